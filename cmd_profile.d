cmd_profile.o: frontend/cli/cmd_profile.c frontend/cli/cmd_profile.h \
  frontend/cli/cmd.h frontend/fp8c.h ir/base/file.h ir/base/status.h \
  ir/base/temporary.h ir/base/type.h frontend/report/report.h \
  frontend/run/run.h frontend/checkpoint/load.h \
  frontend/checkpoint/checkpoint.h frontend/checkpoint/safetensors.h \
  frontend/checkpoint/weights.h ir/base/hash.h
frontend/cli/cmd_profile.h:
frontend/cli/cmd.h:
frontend/fp8c.h:
ir/base/file.h:
ir/base/status.h:
ir/base/temporary.h:
ir/base/type.h:
frontend/report/report.h:
frontend/run/run.h:
frontend/checkpoint/load.h:
frontend/checkpoint/checkpoint.h:
frontend/checkpoint/safetensors.h:
frontend/checkpoint/weights.h:
ir/base/hash.h:
