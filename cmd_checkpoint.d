cmd_checkpoint.o: frontend/cli/cmd_checkpoint.c \
  frontend/cli/cmd_checkpoint.h frontend/checkpoint/load.h \
  frontend/checkpoint/checkpoint.h frontend/fp8c.h \
  frontend/checkpoint/safetensors.h ir/base/file.h ir/base/status.h \
  ir/base/temporary.h frontend/checkpoint/weights.h frontend/cli/cmd.h \
  ir/base/type.h frontend/checkpoint/shared.h frontend/cli/cmd_ranks.h \
  frontend/cli/cmd_guard.h frontend/run/ranks.h
frontend/cli/cmd_checkpoint.h:
frontend/checkpoint/load.h:
frontend/checkpoint/checkpoint.h:
frontend/fp8c.h:
frontend/checkpoint/safetensors.h:
ir/base/file.h:
ir/base/status.h:
ir/base/temporary.h:
frontend/checkpoint/weights.h:
frontend/cli/cmd.h:
ir/base/type.h:
frontend/checkpoint/shared.h:
frontend/cli/cmd_ranks.h:
frontend/cli/cmd_guard.h:
frontend/run/ranks.h:
