/* Random graphs: modules of one function "f" over states s0, s1, ..., which a seed determines.
 *
 * Every op that a compiled function may hold can occur, on ragged shapes. Every graph is valid. A
 * graph grows step by step, and its first steps do not depend on how many follow: a failing graph
 * is made smaller by taking fewer steps, then by leaving out results. */
#ifndef F8_TESTS_GRAPHGEN_H
#define F8_TESTS_GRAPHGEN_H

#include "ir/ir.h"
#include "ir/target.h"

enum { GRAPHGEN_MAX_RESULTS = 256 };

enum { GRAPHGEN_ROWS = 1, GRAPHGEN_BLOCKS = 2, GRAPHGEN_MX = 4 };

typedef struct graphgen_options {
    uint64_t seed;
    int steps;           /* at most; 0: what the seed says */
    const uint8_t *drop; /* by result, [GRAPHGEN_MAX_RESULTS]: leave it out; NULL: none */
    bool gemms;          /* with matmul, scaled_matmul, attention and attention_grad */
    bool aligned_fp8; /* FP8 GEMMs of weights' sizes that are multiples of 16 only, of any number of
                       * rows, more of them, as linears have them: codes used twice, transposed,
                       * results rounded to bf16 */
    unsigned scalings; /* GRAPHGEN_ROWS ..: some of those linears have scales of rows, blocks or MX;
                          0: none */
    bool broadcasts;   /* more values that are processed at a small shape and then spread over
                        * leading,   middle and last axes */
} graphgen_options;

/* NULL with the message in diag. */
f8_module *graphgen_make(const graphgen_options *o, f8_arena *arena, f8_diag *diag);
unsigned graphgen_scalings(const f8_target *target); /* that its FP8 GEMMs have */
int graphgen_steps(uint64_t seed); /* that the seed says */

/* Values for a port of that name and type: a function of seed and name. Zeros of both signs,
 * subnormals, huge values, infinities and NaN occur, in some tensors and sparsely. Names that begin
 * with "ids" are row numbers, mostly inside the small tables; "soft" stays within +-2. */
void graphgen_fill(uint64_t seed, const char *name, const f8_type *type, void *to);

/* The results of the module's function for graphgen_fill's values, in its arena: of the graph, or
 * of the function's program for `target`. Fails the running Check test. */
void graphgen_run(f8_module *m, uint64_t seed, const f8_target *target, void **out);

/* The next number of a sequence (splitmix64). */
uint64_t graphgen_next(uint64_t *state);

#endif
