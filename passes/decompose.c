/* Decompose: expands composites to primitives, by the formulas in unit/formulas.c.
 *
 * Derivatives are made from the same formulas, so a statistic that forward and backward share
 * becomes one node here. Everything is f32; autodiff and precision have already placed the
 * roundings.
 *
 * Gives: no COMPOSITE op, no boundary or stop_gradient, no reduction but of the first or the last
 * axis, no amax, fp8_scale, history_push, collective_broadcast, all_reduce or reduce_scatter (but
 * those whose order is the library's) is left, and no quantize or dequantize by blocks that kernels
 * don't know (unit/blocks.h). */
#include "passes/unit/blocks.h"
#include "passes/unit/collectives.h"
#include "passes/unit/formulas.h"
#include "passes/pipeline.h"

#include <string.h>

static f8_ref cross_entropy(f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in)
{
    const f8_ce ce = f8_ce_of(from, old);
    return f8_ce_result(to, &ce, f8_ce_losses(to, &ce, in[0], in[1]), in[1]);
}

static f8_ref cross_entropy_grad(f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in)
{
    const f8_ce ce = f8_ce_of(from, old);
    return f8_ce_grad(to, &ce, in[0], in[1], f8_ce_scale(to, &ce, in[2], in[1]));
}

static f8_ref dropout(f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in)
{
    const f8_dropout d = f8_dropout_of(from, old);
    return f8_dropped(to, &d, in[0], in[1]);
}

static f8_ref amax(f8_graph *to, const f8_graph *from, f8_ref old, f8_ref x)
{
    f8_granularity grain = f8_per_tensor;
    f8_granularity_parse(f8_attr_s(from, old, F8_A_GRANULARITY), &grain); /* inference checked it */
    return f8_amax_of(to, x, grain);
}

/* A quantize with one scale for each block. 0 where the scale broadcasts or kernels know the
 * blocks: that is a primitive. */
static f8_ref quantize(f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in)
{
    f8_granularity grain;
    const f8_attr attr[] = {F8_INT(F8_A_FORMAT, f8_attr_i(from, old, F8_A_FORMAT)),
                            F8_INT(F8_A_SATURATE, f8_attr_i(from, old, F8_A_SATURATE))};
    if (!f8_granularity_parse(f8_attr_s(from, old, F8_A_GRANULARITY), &grain) ||
        f8_blocks_are_primitive(grain))
        return 0;
    return f8_quantize_blocks(to, in[0], in[1], grain, attr);
}

static f8_ref dequantize(f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in)
{
    f8_granularity grain;
    if (f8_granularity_parse(f8_attr_s(from, old, F8_A_GRANULARITY), &grain))
        return f8_blocks_are_primitive(grain) ? 0 : f8_dequantize_blocks(to, in[0], in[1], grain);
    const f8_attr f32 = F8_INT(F8_A_TO, F8_F32);
    const uint64_t clone = f8_at(from, old)->clone;
    const f8_ref values = f8_make_clone(to, F8_OP_CAST, in, 1, &f32, 1, clone),
                 factor[] = {values, f8_cast(to, in[1], F8_F32)};
    return f8_make_clone(to, F8_OP_MUL, factor, 2, NULL, 0, clone);
}

/* A reduction, or the sum of a mean. 0 along the first or the last axis alone: that is a
 * primitive. */
static f8_ref reduce(f8_graph *to, const f8_graph *from, f8_ref old, f8_op op, f8_ref x)
{
    const f8_ints axes = f8_attr_ints(from, old, F8_A_AXES);
    const int64_t axis = f8_attr_i(from, old, F8_A_AXIS);
    unsigned reduced = 1u << axis;
    if (axes.n == 0 && (axis == 0 || axis == f8_type_of(to, x)->rank - 1))
        return 0;
    for (int i = 0; i < axes.n; i++)
        reduced |= 1u << axes.v[i];
    return f8_reduce_axes(to, op, x, reduced);
}

static f8_ref mean(f8_graph *to, const f8_graph *from, f8_ref old, f8_ref x)
{
    f8_ref sum = reduce(to, from, old, F8_OP_REDUCE_SUM, x);
    return sum ? f8_mean_of(to, x, sum) : f8_mean(to, x, f8_attr_i(from, old, F8_A_AXIS));
}

/* Whether the library adds: there is nothing to expand. */
static bool is_of_library(const f8_graph *g, f8_ref r)
{
    return f8_attr_s(g, r, F8_A_ORDER)[0] == 'l';
}

static f8_ref all_reduce(f8_graph *to, const f8_graph *from, f8_ref old, f8_ref x)
{
    if (is_of_library(from, old))
        return 0;
    return f8_all_reduced(to, x, f8_attr_i(from, old, F8_A_RANKS),
                          f8_attr_s(from, old, F8_A_REDUCE)[0] == 'a', from->name[old]);
}

static f8_ref reduce_scatter(f8_graph *to, const f8_graph *from, f8_ref old, f8_ref x)
{
    if (is_of_library(from, old))
        return 0;
    return f8_reduce_scattered(to, x, f8_attr_i(from, old, F8_A_RANKS),
                               f8_attr_s(from, old, F8_A_REDUCE)[0] == 'a', from->name[old]);
}

static f8_ref broadcast_from(f8_graph *to, const f8_graph *from, f8_ref old, f8_ref x)
{
    return f8_broadcast_from(to, x, f8_attr_i(from, old, F8_A_RANKS),
                             f8_attr_i(from, old, F8_A_ROOT), from->name[old]);
}

static f8_ref expand(void *user, f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in)
{
    (void)user;
    const f8_node *n = f8_at(from, old);
    double eps = f8_attr_f(from, old, F8_A_EPS);
    switch (n->op) {
    case F8_OP_LINEAR:
        return f8_linear(to, in[0], in[1], n->n_in > 2 ? in[2] : 0,
                         f8_attr_i(from, old, F8_A_TRANSPOSE_B), f8_attr_s(from, old, F8_A_NAME));
    case F8_OP_LAYERNORM: return f8_layernorm(to, in[0], in[1], in[2], eps);
    case F8_OP_RMSNORM: return f8_rmsnorm(to, in[0], in[1], eps);
    case F8_OP_SOFTMAX: return f8_softmax(to, in[0]);
    case F8_OP_GELU: return f8_gelu(to, in[0], f8_gelu_form_of(from, old));
    case F8_OP_SILU: return f8_silu(to, in[0], f8_is_rounded(from, old));
    case F8_OP_ROPE:
        return f8_rotated(to, in[0], f8_attr_i(from, old, F8_A_HEADS), f8_rope_of(n),
                          f8_attr_i(from, old, F8_A_INVERSE));
    case F8_OP_DROPOUT: return dropout(to, from, old, in);
    case F8_OP_ATTENTION:
    case F8_OP_ATTENTION_GRAD:
        return f8_attr_f(from, old, F8_A_DROPOUT) > 0 ? 0 : f8_without_seed(to, from, old, in);
    case F8_OP_CROSS_ENTROPY: return cross_entropy(to, from, old, in);
    case F8_OP_CROSS_ENTROPY_GRAD: return cross_entropy_grad(to, from, old, in);
    case F8_OP_MEAN: return mean(to, from, old, in[0]);
    case F8_OP_REDUCE_SUM:
    case F8_OP_REDUCE_MAX:
    case F8_OP_REDUCE_AMAX: return reduce(to, from, old, n->op, in[0]);
    case F8_OP_AMAX: return amax(to, from, old, in[0]);
    case F8_OP_FP8_SCALE:
        return f8_scale_of_amax(to, in[0], n->n_in > 1 ? in[1] : 0,
                                (f8_dtype)f8_attr_i(from, old, F8_A_FORMAT),
                                f8_attr_i(from, old, F8_A_MARGIN), f8_attr_i(from, old, F8_A_POW2));
    case F8_OP_QUANTIZE: return quantize(to, from, old, in);
    case F8_OP_DEQUANTIZE: return dequantize(to, from, old, in);
    case F8_OP_BOUNDARY:
    case F8_OP_STOP_GRADIENT: return in[0];
    case F8_OP_HISTORY_PUSH: return f8_history_pushed(to, in[0], in[1]);
    case F8_OP_COLLECTIVE_BROADCAST: return broadcast_from(to, from, old, in[0]);
    case F8_OP_ALL_REDUCE: return all_reduce(to, from, old, in[0]);
    case F8_OP_REDUCE_SCATTER: return reduce_scatter(to, from, old, in[0]);
    default: return 0;
    }
}

f8_status f8_pass_decompose(f8_unit *u)
{
    for (size_t i = 0; i < u->module->n_funcs; i++)
        F8_TRY(f8_func_rewrite(&u->module->func[i], expand, NULL));
    return F8_OK;
}
