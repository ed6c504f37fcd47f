/* Random recomputation: some values of a placed function are computed again for some of their
 * readers, as passes/remat/remat.c does it by plan. What the function computes does not change. */
#ifndef F8_TESTS_AGAIN_H
#define F8_TESTS_AGAIN_H

#include "ir/lowered.h"
#include "ir/target.h"

typedef struct again {
    uint64_t random;
    uint32_t number; /* of what is computed again, the last one given */
    int reads;       /* operands that are another instance now */
} again;

/* Every operand, with a chance of one in `one_in`, becomes a clone of itself with a cone of its
 * own, or that of the node before: back to values that lie in memory, and past some of those.
 * func->program is gone after it. */
f8_status again_some(again *a, f8_func *f, int one_in);

/* The results of m's only function, made in m's arena: out[i] by port. Of its graph by the
 * interpreter, or of its placed program for `target`; inputs are a function of `seed` and their
 * names. */
f8_status again_run(f8_module *m, uint64_t seed, const f8_target *target, void **out,
                    f8_diag *diag);

#endif
