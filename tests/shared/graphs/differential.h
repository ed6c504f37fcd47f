/* Compares a target with the reference interpreter, on random graphs (graphgen.h).
 *
 * Each graph is compiled twice, fused and not. Both must give the same bits, and the interpreter's
 * bits (NaNs by class), except for products and attention. Those are compared apart. The
 * interpreter takes the target's results of them as given, so that everything after them is still
 * compared exactly. Then each product or attention is evaluated alone, on the operands that the
 * target saw, and compared within a derived bound (compare.h). Where a product is only cast to
 * bf16, the result after the cast is taken, since a target may write bf16 directly. Each graph runs
 * twice, and states carry over. A share of the graphs runs again with other threads (CPU) or other
 * orders of blocks and warps (emulator), and must give the same bits.
 *
 *   FP8C_SEED=S     begin with that seed
 *   FP8C_GRAPHS=N   how many graphs: as the caller says, or 1 with a seed
 *
 * A failure is shrunk (fewer steps, then fewer results) and printed as text with its seed. */
#ifndef F8_TESTS_DIFFERENTIAL_H
#define F8_TESTS_DIFFERENTIAL_H

#include "ir/target.h"
#include "tests/shared/graphs/compare.h"

typedef struct f8_differential {
    const char *target; /* "cpu", or "cuda": the device present, or the emulator's */
    uint64_t graphs;    /* unless FP8C_GRAPHS says */
    f8_sums sums;       /* how its products and attention sum */
    bool emulated;
    unsigned scalings;  /* of its FP8 linears (graphgen.h): f8_differential_run finds out */
} f8_differential;

/* How many graphs failed, of *n. */
int f8_differential_run(const f8_differential *d, uint64_t *n);

#endif
