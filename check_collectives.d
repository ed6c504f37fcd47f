check_collectives.o: tests/whole/check_collectives.c \
  tests/shared/api/rank_case.h tests/shared/api/rank_threads.h \
  frontend/fp8c.h tests/shared/api/rank_gpu.h tests/shared/suite.h
tests/shared/api/rank_case.h:
tests/shared/api/rank_threads.h:
frontend/fp8c.h:
tests/shared/api/rank_gpu.h:
tests/shared/suite.h:
