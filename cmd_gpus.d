cmd_gpus.o: frontend/cli/cmd_gpus.c frontend/cli/cmd_gpus.h \
  frontend/cli/cmd_ranks.h frontend/cli/cmd_guard.h frontend/cli/cmd.h \
  frontend/fp8c.h ir/base/file.h ir/base/status.h ir/base/temporary.h \
  ir/base/type.h frontend/run/ranks.h
frontend/cli/cmd_gpus.h:
frontend/cli/cmd_ranks.h:
frontend/cli/cmd_guard.h:
frontend/cli/cmd.h:
frontend/fp8c.h:
ir/base/file.h:
ir/base/status.h:
ir/base/temporary.h:
ir/base/type.h:
frontend/run/ranks.h:
