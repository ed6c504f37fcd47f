/* The interpreter evaluates no composite. These run a copy of the function in which `decompose` has
 * expanded those that it has. A function without any is run as it is, so that what a pass makes of
 * primitives can be compared with them. */
#ifndef F8_TEST_PRIMITIVE_H
#define F8_TEST_PRIMITIVE_H

#include "ir/ir.h"

/* As f8_reference_run and f8_reference_run_f64. */
f8_status test_reference_run(const f8_func *f, const void *const *in, void *const *out,
                             f8_diag *diag);
f8_status test_reference_run_f64(const f8_func *f, const void *const *in, void *const *out,
                                 f8_diag *diag);

bool test_has_composites(const f8_func *f);

#endif
