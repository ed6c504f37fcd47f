/* The device that CUDA tests run on: the emulator of this build (tests/emulator), or with
 * FP8C_TEST_GPU in the environment this machine's GPU. */
#ifndef F8_TEST_GPU_H
#define F8_TEST_GPU_H

#include <stdbool.h>

/* Points FP8C_CUDA_PATH at build/emulator, next to the build that this program belongs to, unless
 * it is set or FP8C_TEST_GPU is; true when the device is the emulator's. Call it before anything
 * else: contexts read the environment when they are made. */
bool f8_test_gpu_emulated(void);

/* Whether there is the LLVM that CPU targets need: not where FP8C_TEST_PEER names another target to
 * compare with. If not, says that `what` is skipped. */
bool f8_test_has_cpu(const char *what);

#endif
