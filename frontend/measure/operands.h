/* Operands of a measured GEMM, and how right its result is. Internal to frontend/. */
#ifndef F8_MEASURE_OPERANDS_H
#define F8_MEASURE_OPERANDS_H

#include "frontend/measure/inputs.h"
#include "ir/base/status.h"
#include "ir/num/granularity.h"

/* How the sums over k are made, which says how far they may be off. */
typedef enum f8_sums {
    F8_SUMS_F32, /* in f32, each addition rounded: CPUs */
    F8_SUMS_CUT, /* in f32, cut off and not rounded: tensor cores */
    F8_SUMS_FP8, /* FP8 on Hopper's tensor cores: 13 bits below the largest of 32 products, promoted
                    to f32 every 128 */
    F8_SUMS_FAST /* the same without the promotion (fast_accumulate) */
} f8_sums;

/* A product as its module states it: C[m, n] = op(A) x op(B), with scales; rounded to c. */
typedef struct f8_product {
    int64_t m, n, k;
    f8_dtype a, b, c;      /* c: F8_F32 or F8_BF16 */
    bool trans_a, trans_b; /* as in f8_gemm_desc: the array holds [k, m]; [n, k] */
    const void *a_data, *b_data;
    f8_granularity grain_a, grain_b; /* of scales, over the arrays as stored; grids, row-major */
    f8_dtype scale;                  /* F8_F32 or F8_E8M0 */
    const void *a_scale, *b_scale;   /* NULL: none */
    const uint16_t *bias;            /* [n] in bf16, or NULL */
    const float *sum;                /* the old C that is added, or NULL */
    f8_sums sums;
} f8_product;

/* Decode an operand (`second`: B) with its scales into f32 or bf16 (rounded to nearest), as it is
 * stored. `to` has room for all elements. A scale for the whole tensor is left out: it changes no
 * time. */
void f8_product_decode(const f8_product *p, bool second, f8_dtype to, void *out);

/* The largest |C - exact| / bound over 4,096 elements that `seed` draws (all, if there are fewer).
 * Among them is every row and every column, up to 4,096 of each. exact: a sum in double of the
 * decoded operands times their scales. bound: what sums of k products in any order may be off
 * (Higham 2002, section 3.1; operands.c derives the rest), the rounding to c included. `c` is C as
 * computed, of dtype p->c. At most 1 is right; +Inf: an element is Inf or NaN; NaN: there was no
 * memory (some 1.2 MB) to find out. */
double f8_product_error(const f8_product *p, const void *c, uint64_t seed);

#endif
