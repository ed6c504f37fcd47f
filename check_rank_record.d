check_rank_record.o: tests/frontend/run/check_rank_record.c \
  frontend/run/ranks.h ir/base/status.h tests/shared/suite.h
frontend/run/ranks.h:
ir/base/status.h:
tests/shared/suite.h:
