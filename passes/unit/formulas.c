/* Composites as expressions of primitives: see formulas.h. */
#include "passes/unit/formulas.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "ir/num/fp8.h"
#include "passes/unit/rows.h"

/* ---- small helpers ---- */

f8_ref f8_fold_cast(f8_graph *g, f8_ref x, f8_dtype to)
{
    if (!x)
        return 0;
    const f8_node *n = f8_at(g, x);
    if (n->op == F8_OP_CAST && n->type.dtype == F8_F32) {
        f8_dtype below = f8_type_of(g, n->in[0])->dtype;
        if (below == to && f8_dtype_is_float(below))
            return n->in[0];
    }
    return f8_cast(g, x, to);
}

f8_ref f8_mul_const(f8_graph *g, f8_ref x, double c)
{
    return f8_binary(g, F8_OP_MUL, x, f8_const(g, c));
}

f8_ref f8_zeros(f8_graph *g, const f8_type *type)
{
    return f8_broadcast(g, f8_cast(g, f8_const(g, 0), type->dtype), type);
}

f8_ref f8_reshape_to(f8_graph *g, f8_ref x, int rank, const int64_t *dim)
{
    if (!x)
        return 0;
    f8_type t = {.dtype = f8_type_of(g, x)->dtype, .rank = (uint8_t)rank};
    for (int i = 0; i < rank; i++)
        t.dim[i] = dim[i];
    return f8_reshape(g, x, &t);
}

f8_ref f8_if_adds(f8_graph *g, f8_ref adds, f8_ref acc)
{
    return adds ? f8_select(g, adds, acc, f8_const(g, 0)) : acc;
}

f8_ref f8_row_sum(f8_graph *g, f8_ref x)
{
    return f8_reduce(g, F8_OP_REDUCE_SUM, x, -1);
}

f8_ref f8_row_mean(f8_graph *g, f8_ref x)
{
    return f8_mean(g, x, -1);
}

/* Reduce all of x: the last axis, then the vector of its results. */
static f8_ref reduce_all(f8_graph *g, f8_op op, f8_ref x)
{
    int64_t rows = f8_type_rows(f8_type_of(g, x));
    f8_ref r = f8_reduce(g, op, x, -1);
    return rows == 1 ? r : f8_reduce(g, op, f8_reshape_to(g, r, 1, &rows), -1);
}

/* Transpose the axes of x in `reduced` behind the others. If x is the cast of a stored value, that
 * value is transposed. */
static f8_ref move_last(f8_graph *g, f8_ref x, const f8_type *t, unsigned reduced)
{
    f8_ints perm = {.n = 0};
    for (int last = 0; last < 2; last++)
        for (int i = 0; i < t->rank; i++)
            if ((reduced >> i & 1) == (unsigned)last)
                perm.v[perm.n++] = i;
    const f8_node *n = f8_at(g, x);
    f8_ref stored = n->op == F8_OP_CAST ? n->in[0] : x;
    f8_ref moved = f8_make(g, F8_OP_TRANSPOSE, &stored, 1, &F8_INTS(F8_A_PERM, perm), 1);
    return f8_cast(g, moved, t->dtype);
}

f8_ref f8_reduce_axes(f8_graph *g, f8_op op, f8_ref x, unsigned reduced)
{
    if (!x)
        return 0;
    const f8_type t = *f8_type_of(g, x);
    f8_type kept = t;
    int64_t count = 1, rest = 1;
    bool leading = true, trailing = true; /* axes of one element may be anywhere */
    for (int i = 0; i < t.rank; i++) {
        const bool here = reduced >> i & 1;
        if (t.dim[i] > 1) {
            leading &= !here || rest == 1;
            trailing &= here || count == 1;
        }
        *(here ? &count : &rest) *= t.dim[i];
        if (here)
            kept.dim[i] = 1;
    }
    f8_ref r;
    if (rest == 1)
        r = reduce_all(g, op, x);
    else if (leading && !trailing)
        r = f8_reduce(g, op, f8_reshape_to(g, x, 2, (int64_t[]){count, rest}), 0);
    else
        r = f8_reduce(g, op,
                      f8_reshape_to(g, trailing ? x : move_last(g, x, &t, reduced), 2,
                                    (int64_t[]){rest, count}),
                      -1);
    return r ? f8_reshape(g, r, &kept) : 0;
}

f8_ref f8_mean(f8_graph *g, f8_ref x, int64_t axis)
{
    return f8_mean_of(g, x, f8_reduce(g, F8_OP_REDUCE_SUM, x, axis));
}

f8_ref f8_mean_of(f8_graph *g, f8_ref x, f8_ref sum)
{
    if (!sum)
        return 0;
    int64_t n = f8_type_elements(f8_type_of(g, x)) / f8_type_elements(f8_type_of(g, sum));
    return f8_binary(g, F8_OP_DIV, sum, f8_const(g, (double)n));
}

/* ---- norms ---- */

/* 1 / sqrt(mean(x * x) + eps), per row. */
static f8_ref row_rsqrt(f8_graph *g, f8_ref x, double eps)
{
    f8_ref square = f8_row_mean(g, f8_binary(g, F8_OP_MUL, x, x));
    return f8_unary(g, F8_OP_RSQRT, f8_binary(g, F8_OP_ADD, square, f8_const(g, eps)));
}

f8_norm f8_layernorm_rows(f8_graph *g, f8_ref x, double eps)
{
    f8_norm s;
    s.mean = f8_row_mean(g, x);
    f8_ref centred = f8_binary(g, F8_OP_SUB, x, s.mean);
    s.rstd = row_rsqrt(g, centred, eps);
    s.xhat = f8_binary(g, F8_OP_MUL, centred, s.rstd);
    return s;
}

f8_norm f8_rmsnorm_rows(f8_graph *g, f8_ref x, double eps)
{
    f8_norm s = {.rstd = row_rsqrt(g, x, eps)};
    s.xhat = f8_binary(g, F8_OP_MUL, x, s.rstd);
    return s;
}

f8_ref f8_layernorm(f8_graph *g, f8_ref x, f8_ref weight, f8_ref bias, double eps)
{
    f8_ref in[] = {f8_layernorm_rows(g, x, eps).xhat, f8_cast(g, weight, F8_F32),
                   f8_cast(g, bias, F8_F32)};
    return f8_make(g, F8_OP_FMA, in, 3, NULL, 0);
}

f8_ref f8_rmsnorm(f8_graph *g, f8_ref x, f8_ref weight, double eps)
{
    return f8_binary(g, F8_OP_MUL, f8_rmsnorm_rows(g, x, eps).xhat, f8_cast(g, weight, F8_F32));
}

/* ---- activations ---- */

f8_ref f8_softmax(f8_graph *g, f8_ref x)
{
    f8_ref shifted = f8_binary(g, F8_OP_SUB, x, f8_reduce(g, F8_OP_REDUCE_MAX, x, -1));
    f8_ref e = f8_unary(g, F8_OP_EXP, shifted);
    return f8_binary(g, F8_OP_DIV, e, f8_row_sum(g, e));
}

bool f8_is_rounded(const f8_graph *g, f8_ref activation)
{
    return f8_attr_i(g, activation, F8_A_ROUNDED) == F8_BF16;
}

f8_ref f8_silu(f8_graph *g, f8_ref x, bool rounded)
{
    if (rounded)
        return f8_unary(g, F8_OP_SILU_BF16, x);
    return f8_binary(g, F8_OP_MUL, x, f8_unary(g, F8_OP_SIGMOID, x));
}

/* s * (1 + x * (1 - s)), s = sigmoid(x) */
f8_ref f8_silu_slope(f8_graph *g, f8_ref x, bool rounded)
{
    if (rounded)
        return f8_unary(g, F8_OP_SILU_BF16_SLOPE, x);
    f8_ref s = f8_unary(g, F8_OP_SIGMOID, x), one = f8_const(g, 1);
    f8_ref inner = f8_binary(g, F8_OP_MUL, x, f8_binary(g, F8_OP_SUB, one, s));
    return f8_binary(g, F8_OP_MUL, s, f8_binary(g, F8_OP_ADD, one, inner));
}

static const double gelu_cubic = 0.044715;
static const double sqrt_2_over_pi = 0.79788456080286535588;
static const double sqrt_half = 0.70710678118654752440;
static const double inv_sqrt_2pi = 0.39894228040143267794;

/* 0.5 * (1 + t), with t the tanh or erf that gates x in GELU (Hendrycks & Gimpel, arXiv
 * 1606.08415). */
static f8_ref gelu_gate(f8_graph *g, f8_ref x, bool tanh_form, f8_ref *t)
{
    if (tanh_form) {
        f8_ref cubic = f8_mul_const(g, f8_binary(g, F8_OP_MUL, x, x), gelu_cubic);
        f8_ref poly = f8_binary(g, F8_OP_ADD, f8_const(g, 1), cubic);
        f8_ref u = f8_binary(g, F8_OP_MUL, f8_mul_const(g, x, sqrt_2_over_pi), poly);
        *t = f8_unary(g, F8_OP_TANH, u);
    } else {
        *t = f8_unary(g, F8_OP_ERF, f8_mul_const(g, x, sqrt_half));
    }
    return f8_mul_const(g, f8_binary(g, F8_OP_ADD, f8_const(g, 1), *t), 0.5);
}

f8_gelu_form f8_gelu_form_of(const f8_graph *g, f8_ref gelu)
{
    return (f8_gelu_form){.tanh = f8_attr_s(g, gelu, F8_A_APPROXIMATE)[0] == 't',
                          .rounded = f8_is_rounded(g, gelu)};
}

f8_ref f8_gelu(f8_graph *g, f8_ref x, f8_gelu_form form)
{
    f8_ref t;
    if (form.rounded)
        return f8_unary(g, form.tanh ? F8_OP_GELU_TANH : F8_OP_GELU_ERF, x);
    return f8_binary(g, F8_OP_MUL, x, gelu_gate(g, x, form.tanh, &t));
}

/* tanh: gate + 0.5 x (1 - t^2) u', u' = sqrt(2/pi) (1 + 3 c x^2); erf: gate + x pdf(x). */
f8_ref f8_gelu_slope(f8_graph *g, f8_ref x, f8_gelu_form form)
{
    if (form.rounded)
        return f8_unary(g, form.tanh ? F8_OP_GELU_TANH_SLOPE : F8_OP_GELU_ERF_SLOPE, x);
    f8_ref t, gate = gelu_gate(g, x, form.tanh, &t), one = f8_const(g, 1), rest;
    f8_ref x2 = f8_binary(g, F8_OP_MUL, x, x);
    if (form.tanh) {
        f8_ref sech2 = f8_binary(g, F8_OP_SUB, one, f8_binary(g, F8_OP_MUL, t, t));
        f8_ref slope = f8_binary(g, F8_OP_ADD, one, f8_mul_const(g, x2, 3 * gelu_cubic));
        f8_ref half_x = f8_mul_const(g, x, 0.5 * sqrt_2_over_pi);
        rest = f8_binary(g, F8_OP_MUL, f8_binary(g, F8_OP_MUL, half_x, sech2), slope);
    } else {
        f8_ref pdf = f8_unary(g, F8_OP_EXP, f8_mul_const(g, x2, -0.5));
        rest = f8_binary(g, F8_OP_MUL, x, f8_mul_const(g, pdf, inv_sqrt_2pi));
    }
    return f8_binary(g, F8_OP_ADD, gate, rest);
}

/* ---- rope ---- */

f8_ref f8_rotated(f8_graph *g, f8_ref x, int64_t heads, f8_rope frequencies, bool inverse)
{
    if (!x)
        return 0;
    f8_type flat = *f8_type_of(g, x);
    int64_t size = f8_type_columns(&flat) / heads, time = flat.dim[flat.rank - 2];
    int64_t batch = f8_type_rows(&flat) / time;
    /* Roll the stored value: a roll reads other columns, so a kernel can't roll what it only
     * computes. */
    const f8_node *n = f8_at(g, x);
    f8_ref stored = n->op == F8_OP_CAST ? n->in[0] : x;
    f8_attr roll[] = {F8_INT(F8_A_SHIFT, size / 2), F8_INT(F8_A_GROUP, size)};
    f8_ref rolled = f8_cast(g, f8_make(g, F8_OP_ROLL, &stored, 1, roll, 2), F8_F32);

    /* Heads get an axis of their own, over which the tables [T, 1, D] broadcast. */
    f8_type split = {.dtype = F8_F32, .rank = 4, .dim = {batch, time, heads, size}};
    int64_t table[] = {time, 1, size};
    enum { ATTRS = F8_ROPE_ATTRS + 1 };
    f8_attr attr[ATTRS] = {F8_INTS(F8_A_SHAPE, ((f8_ints){2, {time, size}}))};
    f8_rope_attrs(&frequencies, attr + 1);
    f8_ref cosine = f8_reshape_to(g, f8_make(g, F8_OP_ROPE_COS, NULL, 0, attr, ATTRS), 3, table);
    f8_ref sine = f8_reshape_to(g, f8_make(g, F8_OP_ROPE_SIN, NULL, 0, attr, ATTRS), 3, table);

    f8_ref straight = f8_binary(g, F8_OP_MUL, f8_reshape(g, x, &split), cosine);
    f8_ref across = f8_binary(g, F8_OP_MUL, f8_reshape(g, rolled, &split), sine);
    return f8_reshape(g, f8_binary(g, inverse ? F8_OP_SUB : F8_OP_ADD, straight, across), &flat);
}

/* ---- dropout ---- */

static f8_ref const_i32(f8_graph *g, double value)
{
    const f8_attr attr[] = {F8_FLOAT(F8_A_VALUE, value), F8_INT(F8_A_TO, F8_I32)};
    return f8_make(g, F8_OP_CONST, NULL, 0, attr, 2);
}

static f8_ref random_bits(f8_graph *g, f8_ref a, f8_ref b, f8_ref c)
{
    return f8_make(g, F8_OP_RANDOM_BITS, (f8_ref[]){a, b, c}, 3, NULL, 0);
}

f8_dropout f8_dropout_of(const f8_graph *g, f8_ref node)
{
    return (f8_dropout){.p = f8_attr_f(g, node, F8_A_P), .stream = f8_attr_i(g, node, F8_A_STREAM)};
}

f8_ref f8_dropped(f8_graph *g, const f8_dropout *d, f8_ref x, f8_ref seed)
{
    if (!x || !seed || d->p == 0)
        return x;
    f8_type column = *f8_type_of(g, x);
    const f8_ints columns = {.n = column.rank > 0, .v = {f8_type_columns(&column)}};
    const f8_ints rows = {.n = 1, .v = {f8_type_rows(&column)}};
    column.dtype = F8_I32;
    if (column.rank > 0)
        column.dim[column.rank - 1] = 1;
    const f8_ref zero = const_i32(g, 0);
    const f8_ref c =
        columns.n ? f8_make(g, F8_OP_IOTA, NULL, 0, &F8_INTS(F8_A_SHAPE, columns), 1) : zero;
    const f8_ref r =
        rows.v[0] > 1
            ? f8_reshape(g, f8_make(g, F8_OP_IOTA, NULL, 0, &F8_INTS(F8_A_SHAPE, rows), 1), &column)
            : zero;
    const f8_ref key = random_bits(g, seed, const_i32(g, (double)d->stream), zero);
    /* As a signed number, each value of the bits is as likely as any other. */
    const f8_ref limit = const_i32(g, floor(d->p * 0x1p32) - 0x1p31);
    const f8_ref drop = f8_binary(g, F8_OP_LT, random_bits(g, c, r, key), limit);
    return f8_select(g, drop, f8_const(g, 0), f8_mul_const(g, x, 1 / (1 - d->p)));
}

f8_ref f8_without_seed(f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in)
{
    const f8_node *n = f8_at(from, old);
    f8_attr attr[F8_MAX_ATTRS];
    int n_attrs = 0;
    if (!f8_attention_seed(from, n))
        return 0;
    for (int i = 0; i < f8_op_facts(n->op)->n_attrs; i++)
        if (n->attr[i].key != F8_A_DROPOUT && n->attr[i].key != F8_A_STREAM)
            attr[n_attrs++] = n->attr[i];
    return f8_make_clone(to, n->op, in, (int)n->n_in - 1, attr, n_attrs, n->clone);
}

/* ---- cross-entropy ---- */

/* bool [.., V]: whether a column is its row's target. */
static f8_ref target_hit(f8_graph *g, f8_ref logits, f8_ref targets)
{
    if (!logits || !targets)
        return 0;
    f8_type rows = *f8_type_of(g, logits);
    int64_t classes = f8_type_columns(&rows);
    rows.dim[rows.rank - 1] = 1;
    f8_attr shape = F8_INTS(F8_A_SHAPE, ((f8_ints){1, {classes}}));
    f8_ref index = f8_make(g, F8_OP_IOTA, NULL, 0, &shape, 1);
    return f8_binary(g, F8_OP_EQ, index, f8_reshape(g, targets, &rows));
}

/* f32 [.., 1]: 1 where a row's target is a class, else 0. Dividing by it keeps a value or makes it
 * non-finite. So a target that is no class shows in the loss, and the update is skipped. */
static f8_ref target_is_class(f8_graph *g, f8_ref logits, f8_ref targets)
{
    if (!logits || !targets)
        return 0;
    f8_type rows = *f8_type_of(g, logits);
    f8_ref classes = f8_const(g, (double)f8_type_columns(&rows));
    rows.dim[rows.rank - 1] = 1;
    f8_ref target = f8_cast(g, f8_reshape(g, targets, &rows), F8_F32);
    f8_ref above = f8_binary(g, F8_OP_LT, f8_const(g, -1), target);
    f8_ref below = f8_binary(g, F8_OP_LT, target, classes);
    f8_ref both = f8_binary(g, F8_OP_AND, above, below);
    return f8_select(g, both, f8_const(g, 1), f8_const(g, 0));
}

/* A row's largest logit, and log(sum(exp(x - top))). Their sum is the log-sum-exp, but it is never
 * made: where logits are large, rounding it to f32 would lose the digits of the logarithm. */
typedef struct softmax_row {
    f8_ref top, log_sum;
} softmax_row;

/* The terms of a wide row are added before the row's maximum is known: as exp(x - first), where
 * `first` is the maximum of the first columns. A factor then makes the sum one of exp(x - max).
 * Where the maximum lies far above `first`, the sum is the usual one (ir/README.md,
 * "Cross-entropy"). In narrow rows kernels keep the terms. */
enum { NARROW_COLUMNS = 8192, FIRST_COLUMNS = 4096, MOST_ABOVE = 16 };

static f8_ref sum_of_exp(f8_graph *g, f8_ref x, f8_ref less)
{
    return f8_row_sum(g, f8_unary(g, F8_OP_EXP, f8_binary(g, F8_OP_SUB, x, less)));
}

static f8_ref wide_sum_of_exp(f8_graph *g, f8_ref x, f8_ref largest)
{
    const f8_attr shape = F8_INTS(F8_A_SHAPE, ((f8_ints){1, {f8_type_columns(f8_type_of(g, x))}}));
    const f8_ref column = f8_make(g, F8_OP_IOTA, NULL, 0, &shape, 1);
    const f8_ref early = f8_binary(g, F8_OP_LT, column, const_i32(g, FIRST_COLUMNS));
    const f8_ref some = f8_select(g, early, x, f8_const(g, -INFINITY));
    const f8_ref first = f8_reduce(g, F8_OP_REDUCE_MAX, some, -1);
    const f8_ref above = f8_binary(g, F8_OP_SUB, largest, first);
    const f8_ref factor = f8_unary(g, F8_OP_EXP, f8_binary(g, F8_OP_SUB, first, largest));
    const f8_ref usual = f8_binary(g, F8_OP_MUL, sum_of_exp(g, x, first), factor);
    const f8_ref near = f8_binary(g, F8_OP_LT, above, f8_const(g, MOST_ABOVE));
    return f8_select(g, near, usual, sum_of_exp(g, x, largest));
}

static softmax_row softmax_of_row(f8_graph *g, f8_ref x)
{
    softmax_row s = {.top = f8_reduce(g, F8_OP_REDUCE_MAX, x, -1)};
    if (!x)
        return s;
    const bool wide = f8_type_columns(f8_type_of(g, x)) > NARROW_COLUMNS;
    s.log_sum =
        f8_unary(g, F8_OP_LOG, wide ? wide_sum_of_exp(g, x, s.top) : sum_of_exp(g, x, s.top));
    return s;
}

f8_ce f8_ce_of(const f8_graph *g, f8_ref node)
{
    const char *reduction = f8_attr_s(g, node, F8_A_REDUCTION);
    return (f8_ce){.ignore = f8_attr_i(g, node, F8_A_IGNORE),
                   .smoothing = f8_attr_f(g, node, F8_A_LABEL_SMOOTHING),
                   .reduction = !strcmp(reduction, "mean")  ? F8_CE_MEAN
                                : !strcmp(reduction, "sum") ? F8_CE_SUM
                                                            : F8_CE_NONE};
}

static bool ignores(const f8_ce *ce)
{
    return ce->ignore >= INT32_MIN && ce->ignore <= INT32_MAX;
}

/* bool of the targets' shape */
static f8_ref is_ignored(f8_graph *g, const f8_ce *ce, f8_ref targets)
{
    return f8_binary(g, F8_OP_EQ, targets, const_i32(g, (double)ce->ignore));
}

/* `value` of rows that count, 0 of those that are ignored. [.., 1] of the logits' rows. */
static f8_ref where_counted(f8_graph *g, const f8_ce *ce, f8_ref targets, f8_ref value)
{
    if (!ignores(ce) || !value || !targets)
        return value;
    f8_type column = *f8_type_of(g, targets);
    column.dim[column.rank++] = 1;
    const f8_ref ignored = f8_reshape(g, is_ignored(g, ce, targets), &column);
    return f8_select(g, ignored, f8_const(g, 0), value);
}

/* f32 []: the rows that count. Exact below 2^24. */
static f8_ref counted_rows(f8_graph *g, const f8_ce *ce, f8_ref targets)
{
    int64_t rows = f8_type_elements(f8_type_of(g, targets));
    if (!ignores(ce))
        return f8_const(g, (double)rows);
    const f8_ref ignored = is_ignored(g, ce, f8_reshape_to(g, targets, 1, &rows));
    return f8_sum_all(g, f8_select(g, ignored, f8_const(g, 0), f8_const(g, 1)));
}

f8_ref f8_ce_losses(f8_graph *g, const f8_ce *ce, f8_ref logits, f8_ref targets)
{
    const softmax_row s = softmax_of_row(g, logits);
    f8_ref hit = target_hit(g, logits, targets);
    f8_ref picked = f8_row_sum(g, f8_select(g, hit, logits, f8_const(g, 0)));
    f8_ref below = f8_binary(g, F8_OP_SUB, s.top, picked);
    f8_ref loss = f8_binary(g, F8_OP_ADD, below, s.log_sum);
    if (ce->smoothing > 0) {
        const f8_ref above = f8_binary(g, F8_OP_SUB, picked, f8_row_mean(g, logits));
        loss = f8_binary(g, F8_OP_ADD, loss, f8_mul_const(g, above, ce->smoothing));
    }
    loss = f8_binary(g, F8_OP_DIV, loss, target_is_class(g, logits, targets));
    return where_counted(g, ce, targets, loss);
}

f8_ref f8_ce_result(f8_graph *g, const f8_ce *ce, f8_ref losses, f8_ref targets)
{
    if (!losses || !targets)
        return 0;
    if (ce->reduction == F8_CE_NONE) {
        f8_type each = *f8_type_of(g, targets);
        each.dtype = F8_F32;
        return f8_reshape(g, losses, &each);
    }
    int64_t rows = f8_type_elements(f8_type_of(g, losses));
    f8_ref sum = f8_sum_all(g, f8_reshape_to(g, losses, 1, &rows));
    return ce->reduction == F8_CE_SUM ? sum
                                      : f8_binary(g, F8_OP_DIV, sum, counted_rows(g, ce, targets));
}

f8_ref f8_ce_scale(f8_graph *g, const f8_ce *ce, f8_ref dy, f8_ref targets)
{
    if (!dy || !targets)
        return 0;
    f8_type column = *f8_type_of(g, dy);
    switch (ce->reduction) {
    case F8_CE_MEAN: return f8_binary(g, F8_OP_DIV, dy, counted_rows(g, ce, targets));
    case F8_CE_SUM: return dy;
    default: column.dim[column.rank++] = 1; return f8_reshape(g, dy, &column);
    }
}

f8_ref f8_ce_grad(f8_graph *g, const f8_ce *ce, f8_ref logits, f8_ref targets, f8_ref scale)
{
    const softmax_row s = softmax_of_row(g, logits);
    f8_ref below = f8_binary(g, F8_OP_SUB, logits, s.top);
    f8_ref p = f8_unary(g, F8_OP_EXP, f8_binary(g, F8_OP_SUB, below, s.log_sum));
    const double all = logits ? ce->smoothing / (double)f8_type_columns(f8_type_of(g, logits)) : 0;
    f8_ref one = f8_const(g, 1 - ce->smoothing + all), zero = f8_const(g, all);
    f8_ref wanted = f8_select(g, target_hit(g, logits, targets), one, zero);
    scale = f8_binary(g, F8_OP_DIV, scale, target_is_class(g, logits, targets));
    scale = where_counted(g, ce, targets, scale);
    return f8_binary(g, F8_OP_MUL, f8_binary(g, F8_OP_SUB, p, wanted), scale);
}

/* ---- linear ---- */

static bool is_plain_product(const f8_node *n)
{
    return n->type.dtype == F8_F32 &&
           (n->op == F8_OP_BATCH_MATMUL || (n->op == F8_OP_MATMUL && n->n_in == 2) ||
            (n->op == F8_OP_SCALED_MATMUL && n->n_in == 4));
}

f8_linear_parts f8_linear_parts_of(const f8_graph *g, f8_ref sum)
{
    const f8_linear_parts none = {0};
    f8_linear_parts p = {.product = sum};
    const f8_node *n = f8_at(g, sum);
    if (n->op == F8_OP_ADD) {
        const f8_node *wide = f8_at(g, n->in[1]);
        if (wide->op != F8_OP_CAST || f8_type_of(g, wide->in[0])->dtype != F8_BF16 ||
            wide->type.rank != 1 || f8_type_elements(&wide->type) != f8_type_columns(&n->type) ||
            !f8_type_equal(f8_type_of(g, n->in[0]), &n->type))
            return none;
        p = (f8_linear_parts){.product = n->in[0], .bias = wide->in[0]};
        if (f8_at(g, p.product)->op == F8_OP_BATCH_MATMUL) /* it takes no bias */
            return none;
    }
    return is_plain_product(f8_at(g, p.product)) ? p : none;
}

f8_ref f8_linear(f8_graph *g, f8_ref x, f8_ref w, f8_ref bias, bool transpose_b, const char *name)
{
    f8_ref in[] = {x, w};
    f8_attr attr[] = {F8_INT(F8_A_TRANSPOSE_B, transpose_b), F8_STR(F8_A_NAME, name),
                      F8_STR(F8_A_ROLE, "fprop")};
    f8_ref y = f8_make(g, F8_OP_MATMUL, in, 2, attr, 3);
    return bias ? f8_binary(g, F8_OP_ADD, y, bias) : y;
}

/* ---- FP8 ---- */

f8_ref f8_amax_tensor(f8_graph *g, f8_ref x)
{
    if (!x)
        return 0;
    x = f8_below_reshapes(g, x);     /* a maximum does not depend on order: reduce the rows there */
    if (f8_type_of(g, x)->rank == 0) /* no axis to reduce */
        return f8_unary(g, F8_OP_ABS, f8_cast(g, x, F8_F32));
    f8_ref rows = f8_reduce(g, F8_OP_REDUCE_AMAX, f8_cast(g, x, F8_F32), -1);
    if (!rows)
        return 0;
    int64_t n = f8_type_elements(f8_type_of(g, rows));
    if (n > 1)
        rows = f8_reduce(g, F8_OP_REDUCE_AMAX, f8_reshape_to(g, rows, 1, &n), -1);
    return f8_reshape_to(g, rows, 0, NULL);
}

f8_ref f8_scale_of_amax(f8_graph *g, f8_ref amax, f8_ref previous, f8_dtype format, int64_t margin,
                        bool pow2)
{
    double top = ldexp((double)f8_dtype_max(format), (int)-margin);
    f8_ref scale = f8_binary(g, F8_OP_DIV, f8_const(g, top), amax);
    scale = f8_binary(g, F8_OP_MIN, scale, f8_const(g, FLT_MAX));
    if (pow2)
        scale = f8_unary(g, F8_OP_POW2_FLOOR, scale);
    f8_ref finite = f8_unary(g, F8_OP_ISFINITE, amax);
    f8_ref positive = f8_binary(g, F8_OP_LT, f8_const(g, 0), amax);
    f8_ref usable = f8_binary(g, F8_OP_AND, finite, positive);
    return f8_select(g, usable, scale, previous ? previous : f8_const(g, 1));
}

f8_ref f8_history_pushed(f8_graph *g, f8_ref history, f8_ref amax)
{
    if (!history || !amax)
        return 0;
    f8_type first = *f8_type_of(g, history);
    int64_t n = f8_type_columns(&first);
    first.dim[first.rank - 1] = 1;
    f8_ref newest = f8_reshape(g, amax, &first);
    if (n == 1)
        return newest;
    return f8_concat(g, (f8_ref[]){newest, f8_slice(g, history, -1, 0, n - 1)}, 2, -1);
}

/* ---- AdamW ---- */

double f8_adamw_reach(const f8_optimizer *o)
{
    const double ratio = o->beta1 * o->beta1 / o->beta2; /* NaN: both are 0 */
    const bool shrinks = o->lr * o->weight_decay <= 2,   /* |1 - lr wd| <= 1 */
        /* a square below f32's range is 0, which must not matter beside eps */
        divides = (float)o->eps * (1 - o->beta2) >= 1e-22,
               /* rounding is small beside 1 - beta1 */
        forgets = 1 - o->beta1 >= 0x1p-16;
    return ratio < 1 && shrinks && divides && forgets
               ? (1 - o->beta1) / sqrt((1 - o->beta2) * (1 - ratio))
               : INFINITY;
}
