/* Strided copies and initial values: the two things the CPU does to memory outside kernels and
 * GEMMs. */
#ifndef F8_COPY_H
#define F8_COPY_H

#include "runtime/plan.h"
#include "runtime/base/pool.h"

/* Run a COPY step: to and from do not overlap. pool may be NULL. */
void f8_copy_run(const f8_step *step, f8_pool *pool, const void *from, void *to);

/* Fill a variable with its initial value. Normal and uniform values come from a counter-based
 * generator keyed by (seed, the variable's name): they do not depend on the order of variables, on
 * threads, or on the C library. Of a variable that ranks share, rank's part is filled; its elements
 * have the values that they have in the whole. */
void f8_init_var(const f8_plan_var *var, int rank, uint64_t seed, f8_pool *pool, void *to);

#endif
