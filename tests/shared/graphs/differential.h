/* A target against the reference interpreter, on random graphs (graphgen.h).
 *
 * Each graph is compiled twice, fused and not, and both must agree with each other bit for bit, and
 * with the interpreter bit for bit (NaNs by class) but for products and attention. Those are cut:
 * the target's own results of them are fed to the interpreter, so everything after them is still
 * compared exactly, and each of them is evaluated alone on the operands the target saw and compared
 * within a derived bound (compare.h). A product that is only ever cast to bf16 is cut after the cast:
 * a target may write the bf16 at once. States are carried over two runs; a share of the graphs runs
 * again under other circumstances (threads on the CPU, orders of blocks and warps in the emulator),
 * with the same bits.
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
