main.o: frontend/cli/main.c frontend/cli/cmd.h frontend/fp8c.h \
  ir/base/file.h ir/base/status.h ir/base/temporary.h ir/base/type.h \
  frontend/cli/cmd_tensor_file.h frontend/checkpoint/safetensors.h \
  frontend/cli/cmd_npy.h
frontend/cli/cmd.h:
frontend/fp8c.h:
ir/base/file.h:
ir/base/status.h:
ir/base/temporary.h:
ir/base/type.h:
frontend/cli/cmd_tensor_file.h:
frontend/checkpoint/safetensors.h:
frontend/cli/cmd_npy.h:
