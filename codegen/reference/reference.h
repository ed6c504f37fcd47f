/* The reference target: an interpreter of graphs that runs one op at a time, without plan and
 * fusion.
 *
 * f8_reference_run computes in f32 with the canonical reduction orders (ir/README.md) and the
 * scalar functions. The results of other targets must equal its results by memcmp, except those of
 * GEMM and attention, whose sums are taken in double here and rounded once. f8_reference_run_f64
 * computes everything in double, and casts do not round: finite differences need that. */
#ifndef F8_REFERENCE_H
#define F8_REFERENCE_H

#include "ir/ir.h"
#include "runtime/comm/comm.h"

/* in[i] and out[i] are buffers of the ports of the function, row-major, of the types of the ports.
 * Results are written after everything is computed, so an out buffer may be the in buffer of the
 * same variable. Takes any verified function without composites: the pass `decompose` expands them.
 * Memory comes from `allocator` (NULL: the default) and is freed before the call returns; a value
 * is freed after its last use. */
f8_status f8_reference_run(const f8_func *f, const void *const *in, void *const *out,
                           const f8_allocator *allocator, f8_diag *diag);

/* The same as one of several ranks (NULL: alone), which all run this function. */
f8_status f8_reference_run_rank(const f8_func *f, const void *const *in, void *const *out,
                                const f8_comm *comm, const f8_allocator *allocator, f8_diag *diag);

/* The same in double: f32, bf16 and f16 ports are buffers of double, i32 and bool ports are as they
 * are. FP8 values are refused. */
f8_status f8_reference_run_f64(const f8_func *f, const void *const *in, void *const *out,
                               const f8_allocator *allocator, f8_diag *diag);

/* Evaluates one node from the values of its operands, for tests that check a target op by op.
 * value[k] holds the elements of operand k; result[i] receives result i. */
f8_status f8_reference_node(const f8_graph *g, f8_ref r, const void *const *value,
                            void *const *result, const f8_allocator *allocator, f8_diag *diag);

/* Which terms are summed. */
typedef enum f8_terms {
    F8_TERMS, /* those of the op: f8_reference_node */
    /* For a node of class GEMM or ATTENTION: the magnitudes of the terms of the sums that are its
     * results. Errors of summing are relative to these. A GEMM's factors and what is added count by
     * their magnitudes. So do v, and in the gradient q, k, v, o and d_o. The scores, and so the
     * probabilities, keep their values, and lse is what f8_reference_node gives; with an f32 mask
     * see f8_part. */
    F8_TERMS_MAGNITUDES,
    /* GEMMs only: the magnitudes of those terms alone whose factor from A, or from B, is subnormal
     * as an f32; a factor is an element times its scale, if scales differ along k. No bias and no
     * `acc` is added. */
    F8_TERMS_SUBNORMAL_A,
    F8_TERMS_SUBNORMAL_B,
    /* SCALED_MATMUL only: the magnitudes of the products of codes, without scales. No `acc` is
     * added. */
    F8_TERMS_UNSCALED
} f8_terms;

/* A part of a node's results, and the parts of its operands that it is computed from. The caller
 * must know that the op computes the one from the others. Parts are passed as tensors of their own,
 * contiguous, with types of their own. Three kinds of ops have rules of their own:
 *
 *     MATMUL, SCALED_MATMUL    some rows of the result; all operands are whole
 *     ATTENTION, its gradient  some sequences of the batch, of results and operands
 *     EMBEDDING_GRAD           some rows of result and operand 0; the other operands are whole
 */
typedef struct f8_part {
    const f8_type *in;  /* types of the operands; NULL: they are whole */
    const f8_type *out; /* types of the results; NULL: they are whole */
    int64_t first;      /* for these three: the part's first row or sequence in the whole */
    f8_terms terms;
    /* F8_TERMS_MAGNITUDES of an attention with an f32 mask. A target's score may be off by
     * score_error before the mask is added and the sum is rounded; beside a large mask, where an
     * f32 has few neighbours, that is nothing, or a step to the next one. Of a query, `more` is
     * what the rounded scores that count may be off by beyond score_error. Its terms count 1 + 2
     * more / weight_error times; infinitely, where more is over 1/2: exp of it is no longer linear.
     * lse is `more`, or Inf. */
    double score_error, weight_error;
} f8_part;

/* f8_reference_node for a part. value[k] and result[i] hold the parts. Memory comes from
 * `allocator` (NULL: the default) and is freed before the call returns. */
f8_status f8_reference_part(const f8_graph *g, f8_ref r, const f8_part *part,
                            const void *const *value, void *const *result,
                            const f8_allocator *allocator, f8_diag *diag);

#endif
