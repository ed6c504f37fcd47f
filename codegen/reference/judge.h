/* Judges what a target made of one op, from the operands that the target itself had.
 *
 * Kernels must give the reference's values bit for bit (f8_judge_bits). Products and attentions may
 * sum in another order and round inside, so each of their elements must be within a bound that
 * judge.c derives from the operands and from how the target sums (f8_judge_node). */
#ifndef F8_JUDGE_H
#define F8_JUDGE_H

#include "ir/ir.h"

/* How a target sums products, and what it rounds inside attention. */
typedef enum f8_sums {
    F8_SUMS_F32,      /* f32 throughout, in any order */
    F8_SUMS_EMULATED, /* the same, but attention's probabilities and their gradients are bf16 */
    F8_SUMS_GPU       /* so too; sums are cut off, not rounded, and FP8 ones keep few bits */
} f8_sums;

/* `result`, `at`, `got`, `want` and `allowed` are of the first element that is off. Integers and
 * bools are given as numbers. */
typedef struct f8_judgement {
    bool ok;                   /* no element is off */
    int result;                /* of an op with several results: which of them */
    int64_t off;               /* how many elements are off, of all results */
    int64_t at;                /* the element's index in its result, row-major */
    double got, want, allowed; /* |got - want| may be up to `allowed` */
    double worst;      /* the largest |got - want| / allowed of all; Inf when only one is NaN */
    int64_t unbounded; /* elements without a bound, such as sums that may overflow: not judged */
} f8_judgement;

/* Judges node r: an op of class GEMM or ATTENTION, or a cast of a GEMM to bf16, which a target may
 * do in the product's own step. operand[k] holds operand k, of the product where r is a cast;
 * result[k] holds what the target gave as result k. An attention's may be NULL: it is not judged.
 * Values are contiguous. Returns F8_OK when it could judge, whatever the judgement.
 * F8_ERR_UNSUPPORTED: r is another op. Memory comes from `allocator` (NULL: the default) and is
 * freed before the call returns. */
f8_status f8_judge_node(const f8_graph *g, f8_ref r, f8_sums sums, const void *const *operand,
                        const void *const *result, const f8_allocator *allocator, f8_judgement *out,
                        f8_diag *diag);

/* How the rows of operands and results lie: operand[k] and result[k] are the elements from one row
 * to the next. 0: the value is contiguous, as all values of a product must be. */
typedef struct f8_judge_rows {
    const int64_t *operand, *result;
    void (*between)(void *user); /* called after each part has been judged; may be NULL */
    void *user;
} f8_judge_rows;

/* The same for values whose rows need not follow one another: q, k and v of an attention may be
 * columns of one product. strides may be NULL: all values are contiguous. */
f8_status f8_judge_strided(const f8_graph *g, f8_ref r, f8_sums sums, const void *const *operand,
                           const void *const *result, const f8_judge_rows *strides,
                           const f8_allocator *allocator, f8_judgement *out, f8_diag *diag);

/* Judges two values of a type, which must be equal by their bits; any NaN equals any NaN. */
void f8_judge_bits(const f8_type *t, const void *got, const void *want, f8_judgement *out);

#endif
