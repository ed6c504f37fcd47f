/* Gates for FP8: does a run that claims to use FP8 use it, and use it well?
 *
 * The loss of a short run hardly tells: almost any broken recipe trains. So the gates look at what
 * was executed, after some steps of training:
 *
 * count    FP8 GEMMs executed in a step = planned = as many as the recipe has for each linear, and
 *          its operands are there, in its formats
 *
 * sqnr     each quantized operand, read back, against what was quantized: E4M3 at least 28 dB, E5M2
 *          22 dB. A well-scaled cast gives what its mantissa gives: E4M3 31.5 dB, E5M2 25.4 dB
 *          (rounding error uniform over 2^-4 or 2^-3 of the binade); the gates lie half a bit
 *          (3 dB) below, so that the one format cannot pass for the other, as it would at torchao's
 *          25 dB
 *
 * range    the largest code of each operand uses the format's range: at least half of its maximum,
 *          which a scale that is a power of two leaves; a delayed scale is that of the largest amax
 *          of 16 steps, in which gradients shrink: 1/32. SQNR alone cannot see a scale that is too
 *          small by a power of two: it only moves exponents until values underflow
 *
 * block    SQNR of each block that has a scale. Rounding costs an element at most 2^-4 of it (E5M2:
 *          2^-3), so no block is below 24.08 dB (18.06) but for what is subnormal, which is less
 *          than 0.06 dB: a block below 24 dB (18) has saturated or underflown, which the whole
 *          operand's SQNR need not show. Not asked of delayed scales, which may saturate
 *
 * scale    each scale is what its recipe makes of what was seen: of the block's own amax, or of the
 *          amaxes of past steps, by recipe_oracle.h, bit for bit. Finds scales of an earlier step,
 *          or of a neighbour, even where the codes happen to be as good
 *
 * product  each product of the linears against the same in f64 of its operands before they were
 *          quantized. Were the errors of all elements independent, the mean square of the result's
 *          would be that of a b times n_a + n_b, with n = 10^-3.15 for E4M3 and 10^-2.54 for E5M2
 *          as above: relative to sum(a^2 b^2), and so whether or not the products cancel, 28.5 dB
 *          for two E4M3 and 24.4 dB for the mixed pair. Rows that are alike have like errors, which
 *          add up (less than 3 dB, measured): the gate lies a bit (6 dB) below. The other gates
 *          look at operands as they were made, this one at what was multiplied */
#ifndef F8_TESTS_GATES_H
#define F8_TESTS_GATES_H

#include "tests/shared/passes/passes.h"
#include "tests/shared/recipe/broken.h"

enum {
    GATE_COUNT = 1,
    GATE_SQNR = 2,
    GATE_RANGE = 4,
    GATE_BLOCK = 8,
    GATE_SCALE = 16,
    GATE_PRODUCT = 32,
    GATE_ALL = 63
};

/* What was measured of some linears. dB are over the gate's: below 0 it is closed. */
typedef struct gates {
    double forward, gradient; /* sqnr of the worst x or w, and dy */
    double range;             /* the least */
    double block, product;    /* the worst */
    int64_t operands, blocks, wrong_scales, products, other_format;
    int64_t linears, planned, executed; /* of the whole run */
    unsigned closed;                    /* GATE_* */
} gates;

/* What the recipe has of each linear; `fp8` products, all 3 or fewer. */
typedef struct gates_recipe {
    f8_recipe recipe;
    int operands, fp8;
} gates_recipe;
/* By its text: "rowwise {pow2 = true}". */
gates_recipe gates_recipe_of(const char *text);

enum { GATES_LAYERS = 12 };

typedef struct gates_run {
    const char *file, *dims;
    gates_recipe recipe;   /* what is asked for */
    const f8_recipe *made; /* what is compiled instead; NULL: the same */
    int steps;
    broken way[GATES_LAYERS]; /* by layer */
    const char *text;
    size_t text_size;
} gates_run;

/* Train, then measure: out[i] of the linears of layer i ("h.i.*"), n of them; with n = 1 of all.
 * Fails the running Check test when a step fails or its loss is not finite. */
void gates_measure(const gates_run *run, gates *out, int n);

/* One line of it all, the caller's to free. */
char *gates_show(const gates *g);

#endif
