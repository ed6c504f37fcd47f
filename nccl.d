nccl.o: tests/emulator/nccl.c tests/emulator/common.h \
  tests/emulator/api.h runtime/cuda/api.h tests/emulator/driver.h \
  tests/emulator/block.h tests/emulator/image.h tests/emulator/nccl.h
tests/emulator/common.h:
tests/emulator/api.h:
runtime/cuda/api.h:
tests/emulator/driver.h:
tests/emulator/block.h:
tests/emulator/image.h:
tests/emulator/nccl.h:
