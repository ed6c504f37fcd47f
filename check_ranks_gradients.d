check_ranks_gradients.o: tests/whole/check_ranks_gradients.c \
  tests/shared/api/rank_case.h tests/shared/api/rank_threads.h \
  frontend/fp8c.h tests/shared/suite.h
tests/shared/api/rank_case.h:
tests/shared/api/rank_threads.h:
frontend/fp8c.h:
tests/shared/suite.h:
