nccl_world.o: tests/emulator/nccl_world.c tests/emulator/nccl.h \
  tests/emulator/common.h tests/emulator/api.h runtime/cuda/api.h
tests/emulator/nccl.h:
tests/emulator/common.h:
tests/emulator/api.h:
runtime/cuda/api.h:
