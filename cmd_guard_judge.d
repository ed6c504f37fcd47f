cmd_guard_judge.o: frontend/cli/cmd_guard_judge.c \
  frontend/cli/cmd_guard.h frontend/cli/cmd.h frontend/fp8c.h \
  ir/base/file.h ir/base/status.h ir/base/temporary.h ir/base/type.h \
  frontend/run/ranks.h ir/base/clock.h
frontend/cli/cmd_guard.h:
frontend/cli/cmd.h:
frontend/fp8c.h:
ir/base/file.h:
ir/base/status.h:
ir/base/temporary.h:
ir/base/type.h:
frontend/run/ranks.h:
ir/base/clock.h:
