check_cuda_ranks.o: tests/whole/check_cuda_ranks.c \
  tests/shared/api/api_run.h frontend/fp8c.h \
  tests/shared/api/rank_case.h tests/shared/api/rank_threads.h \
  tests/shared/api/rank_gpu.h tests/shared/suite.h
tests/shared/api/api_run.h:
frontend/fp8c.h:
tests/shared/api/rank_case.h:
tests/shared/api/rank_threads.h:
tests/shared/api/rank_gpu.h:
tests/shared/suite.h:
