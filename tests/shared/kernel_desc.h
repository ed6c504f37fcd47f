/* An interpreter of kernel descriptions (codegen/kernel.h), one column at a time: the judge of what
 * kernel_lower makes for targets whose printer a test doesn't run. */
#ifndef F8_TESTS_KERNEL_DESC_H
#define F8_TESTS_KERNEL_DESC_H

#include "codegen/kernel.h"

/* Run k as bound: arena places lie in `memory`, constants in `constants` (may be NULL). */
void kd_run(const f8_kernel *k, const f8_binding *bound, uint8_t *memory, const uint8_t *constants);

#endif
