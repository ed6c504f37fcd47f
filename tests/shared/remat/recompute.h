/* Random recomputation: some values of a placed function are computed a second time for some of
 * their readers. passes/remat/remat.c does the same by plan. The function's results do not change.
 */
#ifndef F8_TESTS_RECOMPUTE_H
#define F8_TESTS_RECOMPUTE_H

#include "ir/lowered.h"
#include "ir/target.h"

typedef struct recompute {
    uint64_t random;
    uint32_t number; /* the last clone number that was given */
    int reads;       /* operands that now read a clone */
} recompute;

/* Replaces each operand, with a chance of one in `one_in`, by a clone of it. The clone recomputes
 * from values that lie in memory, or from before some of those; it has clones of its own for what
 * it needs, or those of the operand before. Drops func->lowered. */
f8_status recompute_some(recompute *a, f8_func *f, int one_in);

/* Computes the results of m's only function into m's arena, out[i] by port: its graph by the
 * interpreter, or its lowered function for `target`. `seed` and the inputs' names give their
 * values. */
f8_status recompute_run(f8_module *m, uint64_t seed, const f8_target *target, void **out,
                    f8_diag *diag);

#endif
