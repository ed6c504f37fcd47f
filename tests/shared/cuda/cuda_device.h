/* The device that tests of the CUDA runtime run on (tests/shared/cuda/gpu.h says which), the
 * emulator's counts of leaks and failures on request, calls that must succeed, and a host allocator
 * that counts. */
#ifndef F8_TESTS_CUDA_DEVICE_H
#define F8_TESTS_CUDA_DEVICE_H

#include "runtime/cuda/device.h"

#include <check.h>

typedef struct cuda_device {
    f8_cuda *cuda;
    f8_cuda_facts facts;
    const f8_target *target;
    int64_t (*count)(const char *what); /* the emulator's; NULL on a GPU */
} cuda_device;

/* Fails the test when there is none: make build/emulator, or run where there is a GPU. */
void cuda_device_open(cuda_device *d);
/* Asserts that the emulator holds nothing any more. */
void cuda_device_close(cuda_device *d);

/* The emulator's next call number n of `function` fails; NULL: none does. */
void cuda_device_fail(const char *function, int n);

/* A call with `diag` in it for the f8_diag that the message is read from. */
#define OK(expr)                                                                                   \
    do {                                                                                           \
        f8_diag d_ = {0};                                                                          \
        f8_diag *const diag = &d_;                                                                 \
        ck_assert_msg((expr) == F8_OK, #expr ": %s", d_.text);                                     \
    } while (0)

/* An allocator that counts, and that fails at the n-th call when `fail` is n > 0. */
typedef struct counting {
    int64_t blocks, bytes, calls, fail;
} counting;
f8_allocator counting_allocator(counting *c);

#endif
