/* The reference interpreter: composites and FP8 scales, if a graph still has them.
 *
 * Each is the expression that passes/unit/formulas.c builds, evaluated array by array with the
 * evaluators of the primitives. So a graph gives the same bits before and after decompose; a test
 * checks this. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "codegen/reference/interp.h"
#include "ir/num/fp8.h"
#include "ir/rope.h"
#include "ir/num/scalar.h"

typedef const f8_rvalue *value; /* NULL after a failure */

/* ---- expressions ---- */

static value pointwise(f8_interp *x, f8_op op, f8_dtype to, value a, value b, value c)
{
    const value in[] = {a, b, c};
    const int n = c ? 3 : b ? 2 : 1;
    f8_type t = {.dtype = to};
    for (int i = 0; i < n; i++) {
        if (!in[i])
            return NULL;
        t.rank = in[i]->type.rank > t.rank ? in[i]->type.rank : t.rank;
    }
    for (int d = 0; d < t.rank; d++)
        t.dim[d] = 1;
    for (int i = 0; i < n; i++)
        for (int d = 0; d < in[i]->type.rank; d++)
            if (in[i]->type.dim[d] != 1)
                t.dim[d + t.rank - in[i]->type.rank] = in[i]->type.dim[d];
    f8_rvalue *out = f8_interp_temp(x, &t);
    if (out)
        f8_interp_pointwise(x, op, in, n, out);
    return out;
}

static value one(f8_interp *x, f8_op op, value a)
{
    return a ? pointwise(x, op, F8_F32, a, NULL, NULL) : NULL;
}

static value two(f8_interp *x, f8_op op, value a, value b)
{
    return a && b ? pointwise(x, op, F8_F32, a, b, NULL) : NULL;
}

static value test(f8_interp *x, f8_op op, value a, value b)
{
    return a && b ? pointwise(x, op, F8_BOOL, a, b, NULL) : NULL;
}

static value select_(f8_interp *x, value cond, value a, value b)
{
    return cond && a && b ? pointwise(x, F8_OP_SELECT, a->type.dtype, cond, a, b) : NULL;
}

static value constant(f8_interp *x, double v)
{
    f8_rvalue *out = f8_interp_temp(x, &(f8_type){.dtype = F8_F32});
    if (!out)
        return NULL;
    const double rounded = (double)(float)v; /* rounded as an f32 constant of the graph is */
    f8_interp_store(x, out, 0, 1, &rounded);
    return out;
}

static value times(f8_interp *x, value a, double c)
{
    return two(x, F8_OP_MUL, a, constant(x, c));
}

static value reduce(f8_interp *x, f8_op op, value a, int64_t axis)
{
    if (!a)
        return NULL;
    f8_type t = a->type;
    t.dim[axis] = 1;
    f8_rvalue *out = f8_interp_temp(x, &t);
    if (out)
        f8_interp_reduce(x, op, axis, 0, a, out);
    return out;
}

static value reduce_row(f8_interp *x, f8_op op, value a)
{
    return a ? reduce(x, op, a, a->type.rank - 1) : NULL;
}

static value row_mean(f8_interp *x, value a)
{
    return a ? two(x, F8_OP_DIV, reduce_row(x, F8_OP_REDUCE_SUM, a),
                   constant(x, (double)f8_type_columns(&a->type)))
             : NULL;
}

/* The mean over some axes, of type `type`. */
static value mean(f8_interp *x, value a, unsigned axes, const f8_type *type)
{
    f8_rvalue *sum = f8_interp_temp(x, type);
    if (!sum)
        return NULL;
    f8_interp_reduce_axes(x, F8_OP_REDUCE_SUM, axes, 0, a, sum);
    const int64_t n = f8_type_elements(&a->type) / f8_type_elements(type);
    return two(x, F8_OP_DIV, sum, constant(x, (double)n));
}

static value reshape(f8_interp *x, value a, int rank, const int64_t *dim)
{
    if (!a)
        return NULL;
    f8_type t = {.dtype = a->type.dtype, .rank = (uint8_t)rank};
    if (rank)
        memcpy(t.dim, dim, (size_t)rank * sizeof *dim);
    f8_rvalue *out = f8_interp_temp(x, &t);
    if (out)
        memcpy(out->data, a->data, f8_interp_bytes(x, &t));
    return out;
}

static value to_f32(f8_interp *x, value a)
{
    return a && a->type.dtype != F8_F32 ? one(x, F8_OP_CAST, a) : a;
}

/* Stores the result of the node; `a` may have another shape with as many elements. */
static void give(f8_interp *x, value a, f8_rvalue *out)
{
    if (a)
        memcpy(out->data, a->data, f8_interp_bytes(x, &out->type));
}

/* ---- norms and activations ---- */

static value row_rsqrt(f8_interp *x, value a, double eps)
{
    value square = row_mean(x, two(x, F8_OP_MUL, a, a));
    return one(x, F8_OP_RSQRT, two(x, F8_OP_ADD, square, constant(x, eps)));
}

static value layernorm(f8_interp *x, const value *in, double eps)
{
    value centred = two(x, F8_OP_SUB, in[0], row_mean(x, in[0]));
    value xhat = two(x, F8_OP_MUL, centred, row_rsqrt(x, centred, eps));
    return xhat ? pointwise(x, F8_OP_FMA, F8_F32, xhat, in[1], in[2]) : NULL;
}

static value rmsnorm(f8_interp *x, const value *in, double eps)
{
    value xhat = two(x, F8_OP_MUL, in[0], row_rsqrt(x, in[0], eps));
    return two(x, F8_OP_MUL, xhat, in[1]);
}

static value softmax(f8_interp *x, value a)
{
    value e = one(x, F8_OP_EXP, two(x, F8_OP_SUB, a, reduce_row(x, F8_OP_REDUCE_MAX, a)));
    return two(x, F8_OP_DIV, e, reduce_row(x, F8_OP_REDUCE_SUM, e));
}

static value gelu(f8_interp *x, value a, bool tanh_form)
{
    value t;
    if (tanh_form) {
        value square = times(x, two(x, F8_OP_MUL, a, a), 0.044715);
        value poly = two(x, F8_OP_ADD, constant(x, 1), square);
        value u = two(x, F8_OP_MUL, times(x, a, 0.79788456080286535588 /* sqrt(2 / pi) */), poly);
        t = one(x, F8_OP_TANH, u);
    } else {
        t = one(x, F8_OP_ERF, times(x, a, 0.70710678118654752440 /* sqrt(1 / 2) */));
    }
    return two(x, F8_OP_MUL, a, times(x, two(x, F8_OP_ADD, constant(x, 1), t), 0.5));
}

/* ---- rope ---- */

/* The table of cosines or sines, [T, 1, D]. The operands are taken as [batch, T, heads, D]. */
static value rope_table(f8_interp *x, f8_op op, int64_t time, int64_t size, const f8_rope *r)
{
    f8_rvalue *out =
        f8_interp_temp(x, &(f8_type){.dtype = F8_F32, .rank = 3, .dim = {time, 1, size}});
    for (int64_t i = 0; out && i < time * size; i++) {
        const double v = f8_rope_entry(op, i / size, i % size, size, r);
        f8_interp_store(x, out, i, 1, &v);
    }
    return out;
}

static value rolled_halves(f8_interp *x, value a, int64_t size)
{
    f8_rvalue *out = f8_interp_temp(x, &a->type);
    const size_t half = (size_t)(size / 2) * f8_interp_element(x, F8_F32);
    const int64_t groups = f8_type_elements(&a->type) / size;
    for (int64_t i = 0; out && i < groups; i++) {
        const size_t at = (size_t)i * 2 * half;
        memcpy((uint8_t *)out->data + at, (const uint8_t *)a->data + at + half, half);
        memcpy((uint8_t *)out->data + at + half, (const uint8_t *)a->data + at, half);
    }
    return out;
}

static value rope(f8_interp *x, value a, int64_t heads, f8_rope r, bool inverse)
{
    const f8_type *t = &a->type;
    const int64_t size = f8_type_columns(t) / heads, time = t->dim[t->rank - 2];
    const int64_t split[] = {f8_type_rows(t) / time, time, heads, size};
    value straight = reshape(x, a, 4, split);
    value across = straight ? rolled_halves(x, straight, size) : NULL;
    straight = two(x, F8_OP_MUL, straight, rope_table(x, F8_OP_ROPE_COS, time, size, &r));
    across = two(x, F8_OP_MUL, across, rope_table(x, F8_OP_ROPE_SIN, time, size, &r));
    return two(x, inverse ? F8_OP_SUB : F8_OP_ADD, straight, across);
}

/* ---- cross-entropy ---- */

static value target_hit(f8_interp *x, value logits, value targets)
{
    const int64_t classes = f8_type_columns(&logits->type);
    f8_type rows = logits->type;
    rows.dim[rows.rank - 1] = 1;
    f8_rvalue *index = f8_interp_temp(x, &(f8_type){.dtype = F8_I32, .rank = 1, .dim = {classes}});
    for (int64_t i = 0; index && i < classes; i++)
        ((int32_t *)index->data)[i] = (int32_t)i;
    return test(x, F8_OP_EQ, index, reshape(x, targets, rows.rank, rows.dim));
}

/* 1 where a row's target is a class, else 0: see passes/unit/formulas.c. */
static value target_is_class(f8_interp *x, value logits, value targets)
{
    f8_type rows = logits->type;
    rows.dim[rows.rank - 1] = 1;
    value target = to_f32(x, reshape(x, targets, rows.rank, rows.dim));
    value above = test(x, F8_OP_LT, constant(x, -1), target);
    value below = test(x, F8_OP_LT, target, constant(x, (double)f8_type_columns(&logits->type)));
    return select_(x, test(x, F8_OP_AND, above, below), constant(x, 1), constant(x, 0));
}

/* Of each row: x - top, and log(sum(exp(x - top))), where top is its largest element. */
static value below_top(f8_interp *x, value logits)
{
    return two(x, F8_OP_SUB, logits, reduce_row(x, F8_OP_REDUCE_MAX, logits));
}

static value log_sum(f8_interp *x, value logits)
{
    return one(x, F8_OP_LOG,
               reduce_row(x, F8_OP_REDUCE_SUM, one(x, F8_OP_EXP, below_top(x, logits))));
}

typedef struct loss_attrs {
    const char *reduction;
    double smoothing;
    int64_t ignore;
} loss_attrs;

static loss_attrs loss_attrs_of(const f8_graph *g, f8_ref r)
{
    return (loss_attrs){f8_attr_s(g, r, F8_A_REDUCTION), f8_attr_f(g, r, F8_A_LABEL_SMOOTHING),
                        f8_attr_i(g, r, F8_A_IGNORE)};
}

/* What each row has, [.., 1], with 0 for those that are ignored. */
static value of_counted(f8_interp *x, const loss_attrs *a, value rows, value targets)
{
    f8_rvalue *ignore = f8_interp_temp(x, &(f8_type){.dtype = F8_I32});
    if (a->ignore != (int32_t)a->ignore || !ignore || !rows)
        return rows;
    *(int32_t *)ignore->data = (int32_t)a->ignore;
    f8_type column = targets->type;
    column.dim[column.rank++] = 1;
    value ignored = test(x, F8_OP_EQ, reshape(x, targets, column.rank, column.dim), ignore);
    return select_(x, ignored, constant(x, 0), rows);
}

static int64_t count_rows(const loss_attrs *a, value targets)
{
    const int64_t n = f8_type_elements(&targets->type);
    int64_t counted = n;
    for (int64_t i = 0; i < n; i++)
        counted -= ((const int32_t *)targets->data)[i] == a->ignore;
    return counted;
}

static value cross_entropy(f8_interp *x, const loss_attrs *a, value logits, value targets,
                           const f8_type *type)
{
    const int64_t rows = f8_type_rows(&logits->type);
    value picked = select_(x, target_hit(x, logits, targets), logits, constant(x, 0));
    picked = reduce_row(x, F8_OP_REDUCE_SUM, picked);
    value below = two(x, F8_OP_SUB, reduce_row(x, F8_OP_REDUCE_MAX, logits), picked);
    value losses = two(x, F8_OP_ADD, below, log_sum(x, logits));
    if (a->smoothing > 0) {
        value mean = two(x, F8_OP_DIV, reduce_row(x, F8_OP_REDUCE_SUM, logits),
                         constant(x, (double)f8_type_columns(&logits->type)));
        value above = two(x, F8_OP_SUB, picked, mean);
        losses = two(x, F8_OP_ADD, losses, two(x, F8_OP_MUL, above, constant(x, a->smoothing)));
    }
    losses = two(x, F8_OP_DIV, losses, target_is_class(x, logits, targets));
    losses = of_counted(x, a, losses, targets);
    if (!strcmp(a->reduction, "none"))
        return losses ? reshape(x, losses, type->rank, type->dim) : NULL;
    value sum = reduce_row(x, F8_OP_REDUCE_SUM, reshape(x, losses, 1, &rows));
    return !strcmp(a->reduction, "sum")
               ? sum
               : two(x, F8_OP_DIV, sum, constant(x, (double)count_rows(a, targets)));
}

static value cross_entropy_grad(f8_interp *x, const loss_attrs *a, value logits, value targets,
                                value dy)
{
    const double all = a->smoothing / (double)f8_type_columns(&logits->type);
    f8_type column = logits->type;
    column.dim[column.rank - 1] = 1;
    value p = one(x, F8_OP_EXP, two(x, F8_OP_SUB, below_top(x, logits), log_sum(x, logits)));
    value wanted = select_(x, target_hit(x, logits, targets), constant(x, 1 - a->smoothing + all),
                           constant(x, all));
    value is_class = target_is_class(x, logits, targets);
    value scale = dy;
    if (!strcmp(a->reduction, "mean"))
        scale = two(x, F8_OP_DIV, dy, constant(x, (double)count_rows(a, targets)));
    else if (!strcmp(a->reduction, "none"))
        scale = reshape(x, dy, column.rank, column.dim);
    scale = of_counted(x, a, two(x, F8_OP_DIV, scale, is_class), targets);
    return two(x, F8_OP_MUL, two(x, F8_OP_SUB, p, wanted), scale);
}

/* ---- dropout ---- */

/* pcg3d of ir/num/scalar.def, its third word, written a second time. */
uint32_t f8_interp_random(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t v[3] = {a, b, c};
    for (int i = 0; i < 3; i++)
        v[i] = v[i] * 1664525u + 1013904223u;
    for (int round = 0; round < 2; round++) {
        v[0] += v[1] * v[2];
        v[1] += v[2] * v[0];
        v[2] += v[0] * v[1];
        for (int i = 0; i < 3 && round == 0; i++)
            v[i] ^= v[i] >> 16;
    }
    return v[2];
}

bool f8_interp_drops(uint32_t column, uint32_t row, uint32_t key, double p)
{
    const int64_t dropped = (int64_t)floor(p * 4294967296.0); /* of all words */
    return (int64_t)(f8_interp_random(column, row, key) ^ 0x80000000u) < dropped;
}

static value dropout(f8_interp *x, value a, value seed, double p, int64_t stream)
{
    f8_type mask = a->type;
    mask.dtype = F8_BOOL;
    f8_rvalue *keep = p > 0 ? f8_interp_temp(x, &mask) : NULL;
    if (!keep)
        return a;
    const uint32_t key = f8_interp_random(*(const uint32_t *)seed->data, (uint32_t)stream, 0);
    const int64_t n = f8_type_elements(&mask), columns = f8_type_columns(&mask);
    for (int64_t i = 0; i < n; i++)
        ((uint8_t *)keep->data)[i] =
            !f8_interp_drops((uint32_t)(i % columns), (uint32_t)(i / columns), key, p);
    return select_(x, keep, times(x, a, 1 / (1 - p)), constant(x, 0));
}

/* ---- linear ---- */

static value linear(f8_interp *x, const value *in, bool bias, bool transpose_b, const f8_type *type)
{
    f8_rvalue *y = f8_interp_temp(x, type);
    if (y)
        f8_interp_matmul(x, &(f8_interp_gemm){.a = in[0], .b = in[1], .transpose_b = transpose_b},
                         y);
    return bias ? two(x, F8_OP_ADD, y, in[2]) : y;
}

/* ---- FP8 scales ---- */

/* A maximum of bit patterns depends on no order, so each element goes straight into its block. */
static value amax(f8_interp *x, const f8_graph *g, f8_ref r, value a)
{
    f8_granularity grain = f8_per_tensor;
    f8_granularity_parse(f8_attr_s(g, r, F8_A_GRANULARITY), &grain);
    a = to_f32(x, a);
    f8_rvalue *out = a ? f8_interp_temp(x, f8_type_of(g, r)) : NULL;
    if (!out)
        return NULL;
    const int64_t rows = f8_type_rows(&a->type), cols = f8_type_columns(&a->type);
    const int64_t stride = f8_granularity_columns(grain, &a->type);
    memset(out->data, 0, f8_interp_bytes(x, &out->type));
    for (int64_t i = 0; i < rows * cols; i++) {
        const int64_t to = f8_granularity_block(grain.rows, i / cols) * stride +
                           f8_granularity_block(grain.cols, i % cols);
        if (x->wide) {
            const double v = fabs(((const double *)a->data)[i]);
            double *m = &((double *)out->data)[to];
            *m = isnan(*m) || v <= *m ? *m : v;
        } else {
            float *m = &((float *)out->data)[to];
            *m = f8_from_bits(f8_amax_bits(f8_bits(*m), ((const float *)a->data)[i]));
        }
    }
    return out;
}

/* The scale, as f8_scale_of_amax (passes/unit/formulas.h) builds it of nodes and ir/num/quantize.c
 * computes it on the host. */
static value fp8_scale(f8_interp *x, const f8_graph *g, f8_ref r, value a, value previous)
{
    const double max = f8_dtype_max((f8_dtype)f8_attr_i(g, r, F8_A_FORMAT));
    const double top = ldexp(max, (int)-f8_attr_i(g, r, F8_A_MARGIN));
    value scale = two(x, F8_OP_DIV, constant(x, top), a);
    scale = two(x, F8_OP_MIN, scale, constant(x, FLT_MAX));
    if (f8_attr_i(g, r, F8_A_POW2))
        scale = one(x, F8_OP_POW2_FLOOR, scale);
    value usable = test(x, F8_OP_AND, pointwise(x, F8_OP_ISFINITE, F8_BOOL, a, NULL, NULL),
                        test(x, F8_OP_LT, constant(x, 0), a));
    return select_(x, usable, scale, previous ? previous : constant(x, 1));
}

/* Adds the newest amax in front; the oldest is dropped. */
static void history_push(const f8_interp *x, value history, value newest, f8_rvalue *out)
{
    const size_t size = f8_interp_element(x, F8_F32);
    const int64_t n = f8_type_columns(&history->type), rows = f8_type_rows(&history->type);
    for (int64_t i = 0; i < rows; i++) {
        uint8_t *to = (uint8_t *)out->data + (size_t)(i * n) * size;
        memcpy(to, (const uint8_t *)newest->data + (size_t)i * size, size);
        memcpy(to + size, (const uint8_t *)history->data + (size_t)(i * n) * size,
               (size_t)(n - 1) * size);
    }
}

/* ---- the entry ---- */

/* Ids and targets of i64 as the nearest i32, and parameters of bf16 as f32: what the expressions
 * above are written for. */
static value as_computed(f8_interp *x, f8_op op, value a, uint32_t operand)
{
    const bool is_param = op == F8_OP_LINEAR || op == F8_OP_LAYERNORM || op == F8_OP_RMSNORM;
    if (a->type.dtype == F8_I64)
        return pointwise(x, F8_OP_CAST, F8_I32, a, NULL, NULL);
    return is_param && operand > 0 ? to_f32(x, a) : a;
}

void f8_interp_composite(f8_interp *x, const f8_graph *g, f8_ref r, const f8_rvalue *const *given,
                         f8_rvalue *out)
{
    const f8_node *n = f8_at(g, r);
    value in[3] = {NULL};
    for (uint32_t i = 0; i < n->n_in && i < 3; i++)
        in[i] = as_computed(x, n->op, given[i], i);
    const double eps = f8_attr_f(g, r, F8_A_EPS);
    value y = NULL;
    if (x->status != F8_OK)
        return;
    const loss_attrs loss = n->op == F8_OP_CROSS_ENTROPY || n->op == F8_OP_CROSS_ENTROPY_GRAD
                                ? loss_attrs_of(g, r)
                                : (loss_attrs){0};
    switch (n->op) {
    case F8_OP_LINEAR:
        y = linear(x, in, n->n_in > 2, f8_attr_i(g, r, F8_A_TRANSPOSE_B), &out->type);
        break;
    case F8_OP_LAYERNORM: y = layernorm(x, in, eps); break;
    case F8_OP_RMSNORM: y = rmsnorm(x, in, eps); break;
    case F8_OP_SOFTMAX: y = softmax(x, in[0]); break;
    case F8_OP_GELU: y = gelu(x, in[0], !strcmp(f8_attr_s(g, r, F8_A_APPROXIMATE), "tanh")); break;
    case F8_OP_SILU: y = two(x, F8_OP_MUL, in[0], one(x, F8_OP_SIGMOID, in[0])); break;
    case F8_OP_ROPE:
        y = rope(x, in[0], f8_attr_i(g, r, F8_A_HEADS), f8_rope_of(n),
                 f8_attr_i(g, r, F8_A_INVERSE));
        break;
    case F8_OP_DROPOUT:
        y = dropout(x, in[0], in[1], f8_attr_f(g, r, F8_A_P), f8_attr_i(g, r, F8_A_STREAM));
        break;
    case F8_OP_CROSS_ENTROPY: y = cross_entropy(x, &loss, in[0], in[1], &out->type); break;
    case F8_OP_CROSS_ENTROPY_GRAD: y = cross_entropy_grad(x, &loss, in[0], in[1], in[2]); break;
    case F8_OP_MEAN: y = mean(x, in[0], f8_interp_axes(g, r), &out->type); break;
    case F8_OP_AMAX: y = amax(x, g, r, in[0]); break;
    case F8_OP_FP8_SCALE: y = fp8_scale(x, g, r, in[0], n->n_in > 1 ? in[1] : NULL); break;
    case F8_OP_HISTORY_PUSH: history_push(x, in[0], in[1], out); return;
    default:
        x->status =
            f8_fail(x->diag, F8_ERR_INTERNAL, x->at, "reference: no %s", f8_op_facts(n->op)->name);
        return;
    }
    give(x, y, out);
}
