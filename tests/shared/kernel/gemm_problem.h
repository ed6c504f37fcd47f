/* GEMM problems with data, for tests of the CPU's GEMMs: operands, scales, runs on a watched
 * workspace, and results against a plain double loop over the dequantized operands. */
#ifndef F8_TEST_GEMM_PROBLEM_H
#define F8_TEST_GEMM_PROBLEM_H

#include "runtime/cpu/gemm.h"

#include <check.h>

/* ck_assert writes to a file each time: too slow for every element. */
#define require(condition, ...)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ck_abort_msg(__VA_ARGS__);                                                             \
    } while (0)

/* oneDNN and pools[n] of n threads, n = 1..3; pools[0] is NULL. */
typedef struct gemm_setup {
    f8_gemm_lib *lib;
    f8_pool *pools[4];
} gemm_setup;

void gemm_setup_make(gemm_setup *s);
void gemm_setup_end(gemm_setup *s);

typedef struct gemm_problem {
    f8_gemm_desc desc;
    size_t a_count, b_count, c_count; /* elements, of rows with their strides */
    void *a, *b;
    void *scale_a, *scale_b; /* as desc says; NULL: none */
    size_t scale_a_count, scale_b_count;
    double *a_values, *b_values; /* dequantized, exactly: [m, k] and [n, k] */
    float *c0;                   /* C before */
    bool afresh;                 /* a run is one in which C counts as zeros */
} gemm_problem;

/* lda, ldb and ldc: rows as dense as can be, and `extra` (2, 3 times) elements more. */
void gemm_set_strides(f8_gemm_desc *d, int64_t extra);

/* Random operands (finite, with zeros and subnormals) and scales (within 2^-6..2^6, E8M0 or f32
 * with all bits in use). *seed is moved on. */
gemm_problem gemm_problem_make(f8_gemm_desc d, uint32_t *seed);
void gemm_problem_end(gemm_problem *p);

/* Rereads the operands and scales, after they were changed. */
void gemm_problem_dequantize(gemm_problem *p);

/* The elements as f32, in the layout of the operand, decoded and rounded as desc says, and times
 * their scales if `scaled` (one f32 rounding). Free it. */
float *gemm_problem_decoded(const gemm_problem *p, bool of_a, bool scaled);

/* C after a run prepared for so many threads, with so many (0: no pool); what surrounds the
 * workspace is watched. Free the result. */
float *gemm_problem_run(const gemm_setup *s, const gemm_problem *p, int prepared, int threads);

/* How many elements of C are further from the double loop than rounding explains; the first in
 * `text`, of 120 bytes. Large problems are sampled. Aborts when what lies between C's rows was
 * touched.
 *
 * A sum of k products in f32, in any order, with or without fused multiply-add, is off by at most
 * about k 2^-24 S, S the sum of the absolute products. Each scale multiplied in rounds once, and
 * the product of two scales once. Sums of chunks of k (of 32 at least where scales come in blocks,
 * else of 512, but for the last), scaled, are added to what was there: one rounding of it each. */
int64_t gemm_problem_wrong(const gemm_problem *p, const float *c, char *text);

/* DeepGEMM's measure, over all of C: 1 - 2 sum xy / sum(x^2 + y^2), y from the double loop. */
double gemm_problem_difference(const gemm_problem *p, const float *c);

/* No element wrong, and the same bits with any number of threads, prepared for any number, and
 * again. Where the desc accumulates, a run whose C counts as zeros (f8_gemm_run_afresh) has the
 * bits of a run whose C holds zeros. */
void gemm_problem_check(const gemm_setup *s, const gemm_problem *p);

#endif
