/* The slow evaluator of kernel_case.h: one op at a time, one element at a time. */
#ifndef F8_TESTS_KERNEL_EVAL_H
#define F8_TESTS_KERNEL_EVAL_H

#include "tests/shared/kernel/kernel_case.h"

void ke_fill_input(kcase *c, f8_ref r, int64_t limit); /* limit > 0: indices, some outside */
void ke_evaluate(kcase *c);
void ke_write(kcase *c, f8_ref r); /* value to its place */
void ke_compare(kcase *c, f8_ref r, const char *what, uint8_t *accessed);
void ke_mark(kcase *c, f8_ref r, uint8_t *accessed);

#endif
