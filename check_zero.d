check_zero.o: tests/whole/check_zero.c tests/shared/api/rank_threads.h \
  frontend/fp8c.h tests/shared/api/api_run.h \
  tests/shared/api/rank_case.h tests/shared/suite.h
tests/shared/api/rank_threads.h:
frontend/fp8c.h:
tests/shared/api/api_run.h:
tests/shared/api/rank_case.h:
tests/shared/suite.h:
