/* The row kernels of a case (kernel_case.h) as CUDA text, and their run on the device that
 * cuda_device.h opens. */
#ifndef F8_TESTS_KERNEL_DEVICE_H
#define F8_TESTS_KERNEL_DEVICE_H

#include "tests/shared/cuda/cuda_device.h"
#include "tests/shared/kernel/kernel_case.h"

/* All kernels of the case printed for `target`, each once for one tensor and once for many, those
 * for aligned launches beside those for any, equal code once. n_kernels: how many kernels the text
 * has. The text is the case's. */
const char *kc_cuda_text(kcase *c, const f8_target *target, int *n_kernels);

/* Compile the kernels for the device and run them: aligned or not, those for aligned launches where
 * they may be used and those for any, on grids of three sizes, in the emulator in any order of
 * blocks and warps, one launch a tensor or many. Compares all results with
 * the naive evaluation each time. FP8C_TEST_DUMP=FILE leaves the text there. */
void kc_check_on_device(kcase *c, const cuda_device *device);

/* The same of kernels for aligned launches alone, in blocks that have several tasks each. Returns
 * how many kernels' rows come through rings. */
int kc_check_rings(kcase *c, const cuda_device *device);

/* Whether it shows that the first `right` of the text is `wrong` instead: a launch fails, or a
 * result is another one. The context is of no further use after a launch that fails. */
bool kc_is_caught(kcase *c, const cuda_device *device, const char *right, const char *wrong);

/* Run the kernels for aligned launches 4 bytes past an aligned place: what the first failing call
 * answers (a CUresult). The context is of no further use then. */
int kc_run_misaligned(kcase *c, const cuda_device *device);

#endif
