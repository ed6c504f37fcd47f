check_explain.o: tests/frontend/cli/check_explain.c frontend/fp8c.h \
  tests/shared/api/cli.h tests/shared/suite.h
frontend/fp8c.h:
tests/shared/api/cli.h:
tests/shared/suite.h:
