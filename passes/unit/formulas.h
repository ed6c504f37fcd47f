/* The composites as expressions of primitives, in f32.
 *
 * The forward's expansion (decompose.c, chunk.c) and the derivatives (grad/vjp.c) both use these,
 * so a statistic that both need (a norm's mean, the log of a softmax's sum) is one node:
 * hash-consing finds it. Operands are f32 unless said otherwise. A "row" is the last axis; a row
 * statistic has shape [.., 1]. Every function returns 0 when its graph has failed (ir/ir.h). */
#ifndef F8_FORMULAS_H
#define F8_FORMULAS_H

#include "ir/ir.h"
#include "ir/rope.h"

/* A cast, except that cast(cast(x -> f32) -> dtype of x) is x, since widening is exact. */
f8_ref f8_fold_cast(f8_graph *g, f8_ref x, f8_dtype to);
f8_ref f8_mul_const(f8_graph *g, f8_ref x, double c);
f8_ref f8_zeros(f8_graph *g, const f8_type *type); /* a broadcast constant */
f8_ref f8_reshape_to(f8_graph *g, f8_ref x, int rank, const int64_t *dim);
/* acc, or zeros where the bool `adds` is false; acc if `adds` is 0. */
f8_ref f8_if_adds(f8_graph *g, f8_ref adds, f8_ref acc);

f8_ref f8_row_sum(f8_graph *g, f8_ref x);
f8_ref f8_row_mean(f8_graph *g, f8_ref x); /* sum / n */
f8_ref f8_mean(f8_graph *g, f8_ref x, int64_t axis);
f8_ref f8_mean_of(f8_graph *g, f8_ref x, f8_ref sum); /* sum / the elements of x in each */

/* Reduce the axes in `reduced` (bit i: axis i), by reductions of first and last axes:
 * "Several axes" in ir/README.md. */
f8_ref f8_reduce_axes(f8_graph *g, f8_op op, f8_ref x, unsigned reduced);

/* Statistics of a norm: xhat = (x - mean) * rstd for layernorm, x * rstd for rmsnorm (mean is 0
 * there). */
typedef struct f8_norm {
    f8_ref mean, rstd, xhat;
} f8_norm;
f8_norm f8_layernorm_rows(f8_graph *g, f8_ref x, double eps);
f8_norm f8_rmsnorm_rows(f8_graph *g, f8_ref x, double eps);
f8_ref f8_layernorm(f8_graph *g, f8_ref x, f8_ref weight, f8_ref bias, double eps);
f8_ref f8_rmsnorm(f8_graph *g, f8_ref x, f8_ref weight, double eps);

f8_ref f8_softmax(f8_graph *g, f8_ref x);

/* Whether a gelu or silu says that its readers round the result to bf16 or less. A cheaper op
 * (ir/num/scalar.def) then computes it and its derivative. */
bool f8_is_rounded(const f8_graph *g, f8_ref activation);
f8_ref f8_silu(f8_graph *g, f8_ref x, bool rounded);
f8_ref f8_silu_slope(f8_graph *g, f8_ref x, bool rounded);

/* How a gelu is computed. tanh: by tanh, else by erf. rounded: f8_is_rounded. */
typedef struct f8_gelu_form {
    bool tanh, rounded;
} f8_gelu_form;

f8_gelu_form f8_gelu_form_of(const f8_graph *g, f8_ref gelu);
f8_ref f8_gelu(f8_graph *g, f8_ref x, f8_gelu_form form);
f8_ref f8_gelu_slope(f8_graph *g, f8_ref x, f8_gelu_form form);

/* The most by which AdamW moves an element in one update, apart from weight decay, in learning
 * rates: the largest |m^| / sqrt(v^). Both are means of gradients with weights a_i and b_i that add
 * up to 1, and by Cauchy and Schwarz |sum a_i g_i| <= sqrt(sum a_i^2 / b_i) sqrt(sum b_i g_i^2).
 * After any number of updates sum a_i^2 / b_i is at most (1 - beta1)^2 / ((1 - beta2) (1 - beta1^2
 * / beta2)), its limit. INFINITY: there is no bound, as beta1^2 >= beta2; or f32 breaks it, as eps
 * is so small that squares of gradients vanish before it counts, or beta1 is next to 1; or weight
 * decay makes weights larger, with lr weight_decay > 2. */
double f8_adamw_reach(const f8_optimizer *o);

/* x [.., T, heads * D], rotated by halves. x may be the cast of a stored value; then the stored
 * value is rolled. */
f8_ref f8_rotated(f8_graph *g, f8_ref x, int64_t heads, f8_rope frequencies, bool inverse);

/* The mask depends on nothing but these and the place of an element in x: its row (all axes but the
 * last, as one number) and its column. */
typedef struct f8_dropout {
    double p;
    int64_t stream;
} f8_dropout;
f8_dropout f8_dropout_of(const f8_graph *g, f8_ref node);
/* x / (1 - p), with 0 in the place of what is dropped: where the i32
 * random_bits(column, row, random_bits(seed, stream, 0)) is below floor(p 2^32) - 2^31. */
f8_ref f8_dropped(f8_graph *g, const f8_dropout *d, f8_ref x, f8_ref seed);

/* Attention `old` of `from`, or its gradient, with operands `in` and no dropout: without a seed. 0
 * if it has none. */
f8_ref f8_without_seed(f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in);

/* Cross-entropy of logits [.., V] and targets i32 [..]. A target outside [0, V) equals no class:
 * the loss and the gradient of its row are not finite, so it shows and the update is skipped. A row
 * whose target is `ignore` has loss and gradient zero. With label smoothing e the wanted
 * probability is 1 - e + e/V of the target and e/V of each other class (Szegedy et al.,
 * arXiv 1512.00567, section 7; as PyTorch's cross_entropy). */
typedef enum f8_ce_reduction { F8_CE_MEAN, F8_CE_SUM, F8_CE_NONE } f8_ce_reduction;
typedef struct f8_ce {
    int64_t ignore;
    double smoothing;
    f8_ce_reduction reduction;
} f8_ce;
f8_ce f8_ce_of(const f8_graph *g, f8_ref node); /* of a cross_entropy or its gradient */
/* [.., 1]: of each row. */
f8_ref f8_ce_losses(f8_graph *g, const f8_ce *ce, f8_ref logits, f8_ref targets);
/* The op's result from the losses of all rows. */
f8_ref f8_ce_result(f8_graph *g, const f8_ce *ce, f8_ref losses, f8_ref targets);
/* [] or [.., 1]: what (softmax - wanted) is multiplied by. targets: of all rows. */
f8_ref f8_ce_scale(f8_graph *g, const f8_ce *ce, f8_ref dy, f8_ref targets);
/* (softmax - wanted) * scale */
f8_ref f8_ce_grad(f8_graph *g, const f8_ce *ce, f8_ref logits, f8_ref targets, f8_ref scale);

/* What a rounding to bf16 rounds, if that is a product of two operands, with or without a bias that
 * is rounded to bf16 itself: a GEMM can write it so. product: 0 if it is something else. */
typedef struct f8_linear_parts {
    f8_ref product; /* of class GEMM, f32 */
    f8_ref bias;    /* bf16, one element for each column */
} f8_linear_parts;
f8_linear_parts f8_linear_parts_of(const f8_graph *g, f8_ref sum);

/* matmul [+ bias]: `linear` without precision decisions. */
f8_ref f8_linear(f8_graph *g, f8_ref x, f8_ref w, f8_ref bias, bool transpose_b, const char *name);

/* amax over the whole of x -> []; x of any float dtype. */
f8_ref f8_amax_tensor(f8_graph *g, f8_ref x);
/* The scale, by which a value is multiplied to quantize it: (max of format * 2^-margin) / amax. An
 * amax of 0, Inf or NaN keeps `previous` (1 when there is none); an infinite scale (tiny amax)
 * becomes FLT_MAX. amax has any shape. pow2: the scale is then rounded down to a power of two. This
 * is Transformer Engine's definition (common/recipe/recipe_common.cuh, compute_scale_from_amax),
 * f32 throughout. More in passes/scale/README.md, "Scales". The formula stands once more, for
 * hosts: ir/num/quantize.c. */
f8_ref f8_scale_of_amax(f8_graph *g, f8_ref amax, f8_ref previous, f8_dtype format, int64_t margin,
                        bool pow2);
f8_ref f8_history_pushed(f8_graph *g, f8_ref history,
                         f8_ref amax); /* [.., N], [..]: newest first */

#endif
