check_comm.o: tests/frontend/check_comm.c tests/shared/api/api.h \
  frontend/fp8c.h tests/shared/suite.h
tests/shared/api/api.h:
frontend/fp8c.h:
tests/shared/suite.h:
