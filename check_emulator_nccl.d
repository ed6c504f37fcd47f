check_emulator_nccl.o: tests/runtime/cuda/check_emulator_nccl.c \
  tests/shared/cuda/emulator.h tests/emulator/api.h runtime/cuda/api.h \
  tests/shared/suite.h
tests/shared/cuda/emulator.h:
tests/emulator/api.h:
runtime/cuda/api.h:
tests/shared/suite.h:
