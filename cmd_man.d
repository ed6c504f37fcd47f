cmd_man.o: frontend/cli/cmd_man.c frontend/cli/cmd.h frontend/fp8c.h \
  ir/base/file.h ir/base/status.h ir/base/temporary.h ir/base/type.h
frontend/cli/cmd.h:
frontend/fp8c.h:
ir/base/file.h:
ir/base/status.h:
ir/base/temporary.h:
ir/base/type.h:
