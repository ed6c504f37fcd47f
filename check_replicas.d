check_replicas.o: tests/frontend/check_replicas.c \
  tests/shared/api/rank_threads.h frontend/fp8c.h \
  tests/shared/api/api_run.h tests/shared/suite.h
tests/shared/api/rank_threads.h:
frontend/fp8c.h:
tests/shared/api/api_run.h:
tests/shared/suite.h:
