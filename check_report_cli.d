check_report_cli.o: tests/frontend/report/check_report_cli.c \
  tests/shared/api/cli.h tests/shared/api/report_case.h \
  tests/shared/suite.h
tests/shared/api/cli.h:
tests/shared/api/report_case.h:
tests/shared/suite.h:
