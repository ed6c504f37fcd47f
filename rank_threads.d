rank_threads.o: tests/shared/api/rank_threads.c \
  tests/shared/api/rank_threads.h frontend/fp8c.h tests/shared/suite.h
tests/shared/api/rank_threads.h:
frontend/fp8c.h:
tests/shared/suite.h:
