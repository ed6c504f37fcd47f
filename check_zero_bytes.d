check_zero_bytes.o: tests/whole/check_zero_bytes.c \
  tests/shared/api/api_run.h frontend/fp8c.h \
  tests/shared/api/rank_case.h tests/shared/api/rank_threads.h \
  tests/shared/suite.h
tests/shared/api/api_run.h:
frontend/fp8c.h:
tests/shared/api/rank_case.h:
tests/shared/api/rank_threads.h:
tests/shared/suite.h:
