check_nccl.o: tests/frontend/check_nccl.c tests/shared/api/api.h \
  frontend/fp8c.h tests/shared/api/rank_gpu.h \
  tests/shared/api/rank_threads.h tests/shared/cuda/embedder.h \
  tests/shared/suite.h
tests/shared/api/api.h:
frontend/fp8c.h:
tests/shared/api/rank_gpu.h:
tests/shared/api/rank_threads.h:
tests/shared/cuda/embedder.h:
tests/shared/suite.h:
