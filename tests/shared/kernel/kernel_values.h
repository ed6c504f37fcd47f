/* The values of a kernel_case.h: random inputs, what the interpreter makes of them node by node,
 * and how they lie in memory. */
#ifndef F8_TESTS_KERNEL_VALUES_H
#define F8_TESTS_KERNEL_VALUES_H

#include "tests/shared/kernel/kernel_case.h"

void kv_fill_input(kcase *c, f8_ref r, int64_t limit); /* limit > 0: indices, some outside */
void kv_evaluate(kcase *c);
void kv_write(kcase *c, f8_ref r); /* value to its place */
void kv_compare(kcase *c, f8_ref r, const char *what, uint8_t *accessed);
void kv_mark(kcase *c, f8_ref r, uint8_t *accessed);

#endif
