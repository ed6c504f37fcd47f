/* An interpreter of kernel descriptions (codegen/kernel/kernel.h), one column at a time. It checks
 * what lowering makes for targets whose code a test cannot run. */
#ifndef F8_TESTS_KERNEL_DESC_H
#define F8_TESTS_KERNEL_DESC_H

#include "codegen/kernel/kernel.h"

/* Where places lie; what a kernel doesn't use may be NULL. */
typedef struct kd_memory {
    uint8_t *arena, *state;
    const uint8_t *constants;
    const void *const *in; /* by port */
    void *const *out;
} kd_memory;
uint8_t *kd_at(const kd_memory *m, const f8_place *p);

/* Run k as bound. */
void kd_run(const f8_kernel *k, const f8_binding *bound, const kd_memory *memory);

#endif
