/* Derivatives: the table of rules and the rules themselves. See vjp.h. */
#include "passes/grad/vjp.h"

#include "passes/unit/blocks.h"
#include "passes/unit/formulas.h"

typedef void rule(f8_graph *g, f8_ref y, f8_ref dy, f8_ref *dx);

#define OP(ID, name, lo, hi, results, CLS, infer, rule_name, ...) static rule vjp_##rule_name;
#include "ir/ops.def"
#undef OP

static rule *const rules[F8_OP_COUNT] = {
#define OP(ID, name, lo, hi, results, CLS, infer, rule_name, ...) [F8_OP_##ID] = vjp_##rule_name,
#include "ir/ops.def"
#undef OP
};

#define RULE(name) static void vjp_##name(f8_graph *g, f8_ref y, f8_ref dy, f8_ref *dx)

void f8_vjp(f8_graph *g, f8_ref y, f8_ref dy, f8_ref *dx)
{
    if (y && dy)
        rules[f8_at(g, y)->op](g, y, dy, dx);
}

static f8_ref mul(f8_graph *g, f8_ref a, f8_ref b)
{
    return f8_binary(g, F8_OP_MUL, a, b);
}

static f8_ref sub(f8_graph *g, f8_ref a, f8_ref b)
{
    return f8_binary(g, F8_OP_SUB, a, b);
}

static f8_ref neg(f8_graph *g, f8_ref a)
{
    return f8_unary(g, F8_OP_NEG, a);
}

static f8_ref operand(const f8_graph *g, f8_ref y, uint32_t i)
{
    return f8_at(g, y)->in[i];
}

/* Zero everywhere. */
RULE(none)
{
    (void)g, (void)y, (void)dy, (void)dx;
}

RULE(error)
{
    (void)dy, (void)dx;
    f8_fail(g->diag, F8_ERR_UNSUPPORTED, g->loc[y], "can't differentiate through %s",
            f8_op_facts(f8_at(g, y)->op)->name);
}

/* The cotangent passes; autodiff rounds it where the operand is narrower. */
RULE(cast)
{
    if (f8_dtype_is_float(f8_type_of(g, f8_at(g, y)->in[0])->dtype))
        dx[0] = dy;
}

/* ---- GEMM ---- */

static f8_ref product(f8_graph *g, f8_ref a, bool ta, f8_ref b, bool tb, const char *name,
                      const char *role)
{
    f8_attr attr[] = {F8_INT(F8_A_TRANSPOSE_A, ta), F8_INT(F8_A_TRANSPOSE_B, tb),
                      F8_STR(F8_A_NAME, name), F8_STR(F8_A_ROLE, role)};
    f8_ref r = f8_make(g, F8_OP_MATMUL, (f8_ref[]){a, b}, 2, attr, 4);
    if (r && *name) {
        const char *full = f8_arena_printf(g->arena, "%s.%s", name, role);
        f8_set_name(g, r, full ? full : "");
    }
    return r;
}

/* y = A @ B, with A = a or a', B = b or b', as matrices. Each gradient is one product in its
 * operand's own layout:
 *
 *     a: dy @ B'   or (a transposed)  B @ dy'
 *     b: A' @ dy   or (b transposed)  dy' @ A
 *
 * dy is rounded to the operands' dtype, as the operands were. The results are f32; autodiff rounds
 * that of an activation and keeps a weight's. The derivative of acc is dy, and that of a bias is
 * the sum of dy over the rows. */
RULE(matmul)
{
    f8_node n = *f8_at(g, y);
    bool ta = f8_attr_i(g, y, F8_A_TRANSPOSE_A), tb = f8_attr_i(g, y, F8_A_TRANSPOSE_B);
    const char *name = f8_attr_s(g, y, F8_A_NAME);
    bool linear = *f8_attr_s(g, y, F8_A_ROLE);
    const char *to_a = linear ? "dgrad" : "", *to_b = linear ? "wgrad" : "";
    f8_ref a = n.in[0], b = n.in[1];
    f8_type at = *f8_type_of(g, a), bt = *f8_type_of(g, b);
    f8_ref d_a = f8_fold_cast(g, dy, at.dtype), d_b = f8_fold_cast(g, dy, bt.dtype);
    if (at.rank == 1) { /* a row vector: as a matrix of one row */
        a = f8_reshape_to(g, a, 2, (int64_t[]){1, at.dim[0]});
        d_a = f8_reshape_to(g, d_a, 2, (int64_t[]){1, n.type.dim[0]});
    }
    f8_ref da =
        ta ? product(g, b, tb, d_b, true, name, to_a) : product(g, d_b, false, b, !tb, name, to_a);
    f8_ref db =
        tb ? product(g, d_a, true, a, ta, name, to_b) : product(g, a, !ta, d_a, false, name, to_b);
    if (!da || !db)
        return;
    dx[0] = f8_reshape(g, da, &at);
    dx[1] = f8_reshape(g, db, &bt);
    if (n.n_in > 2) {
        const f8_type acc = *f8_type_of(g, n.in[2]);
        dx[2] = f8_sum_to(g, f8_fold_cast(g, dy, F8_F32), &acc);
        if (n.n_in > 3) /* where acc counts as zeros, what it holds changes nothing */
            dx[2] = f8_if_adds(g, n.in[3], dx[2]);
    }
}

/* As matmul, for each pair of matrices. What broadcast over a batch gets the sum of its products.
 */
RULE(batch_matmul)
{
    const f8_ref a = operand(g, y, 0), b = operand(g, y, 1);
    const bool ta = f8_attr_i(g, y, F8_A_TRANSPOSE_A), tb = f8_attr_i(g, y, F8_A_TRANSPOSE_B);
    const f8_type at = *f8_type_of(g, a), bt = *f8_type_of(g, b);
    const f8_ref d = f8_fold_cast(g, dy, at.dtype);
    const struct {
        f8_ref in[2];
        bool transpose[2];
    } to[] = {{{ta ? b : d, ta ? d : b}, {ta && tb, ta || !tb}},
              {{tb ? d : a, tb ? a : d}, {tb || !ta, tb && ta}}};
    for (int i = 0; i < 2; i++) {
        const f8_attr attr[] = {F8_INT(F8_A_TRANSPOSE_A, to[i].transpose[0]),
                                F8_INT(F8_A_TRANSPOSE_B, to[i].transpose[1])};
        const f8_ref r = f8_make(g, F8_OP_BATCH_MATMUL, to[i].in, 2, attr, 2);
        dx[i] = f8_sum_to(g, r, i ? &bt : &at);
    }
}

/* ---- attention and gather ---- */

/* attention_grad recomputes the probabilities from q, k and the saved log-sum-exp (Dao et al.,
 * arXiv 2205.14135, section 3 and appendix B). */
RULE(attention)
{
    f8_node n = *f8_at(g, y);
    const f8_ref mask = f8_attention_mask(g, &n), seed = f8_attention_seed(g, &n);
    f8_ref in[8] = {n.in[0], n.in[1], n.in[2], y, f8_project(g, y, 1), dy};
    int n_in = 6;
    if (mask)
        in[n_in++] = mask;
    if (seed)
        in[n_in++] = seed;
    /* it takes the same attributes: what was dropped is dropped again */
    f8_ref grad = f8_make(g, F8_OP_ATTENTION_GRAD, in, n_in, n.attr, f8_op_facts(n.op)->n_attrs);
    for (int i = 0; i < 3 && grad; i++)
        dx[i] = f8_project(g, grad, i);
}

/* ids with -1, which is no row, in the place of `padding`. */
static f8_ref without_padding(f8_graph *g, f8_ref ids, int64_t padding)
{
    f8_attr of[] = {F8_FLOAT(F8_A_VALUE, (double)padding), F8_INT(F8_A_TO, F8_I32)};
    const f8_ref row = f8_make(g, F8_OP_CONST, NULL, 0, of, 2);
    of[0].f = -1;
    const f8_ref none = f8_make(g, F8_OP_CONST, NULL, 0, of, 2);
    return f8_select(g, f8_binary(g, F8_OP_EQ, ids, row), none, ids);
}

/* Scatter-add into zeros; autodiff puts the gradient's running sum in their place. */
RULE(embedding)
{
    f8_node n = *f8_at(g, y);
    f8_type table = *f8_type_of(g, n.in[0]);
    const int64_t padding = f8_attr_i(g, y, F8_A_PADDING);
    table.dtype = F8_F32;
    const f8_ref ids = padding < 0 ? n.in[1] : without_padding(g, n.in[1], padding);
    f8_ref in[] = {f8_zeros(g, &table), ids, f8_fold_cast(g, dy, F8_F32)};
    dx[0] = f8_make(g, F8_OP_EMBEDDING_GRAD, in, 3, NULL, 0);
}

/* ---- pointwise ---- */

/* Operands broadcast, so give() sums every contribution back to its operand's shape. Where the
 * result helps (exp, tanh, sqrt, ...) the rule uses y itself. */

/* Contribution d to operand i of y. */
static void give(f8_graph *g, f8_ref y, f8_ref *dx, uint32_t i, f8_ref d)
{
    if (!d)
        return;
    f8_type t = *f8_type_of(g, operand(g, y, i));
    if (f8_dtype_is_float(t.dtype))
        dx[i] = f8_sum_to(g, d, &t);
}

#define X0 operand(g, y, 0)
#define X1 operand(g, y, 1)

RULE(add)
{
    give(g, y, dx, 0, dy);
    give(g, y, dx, 1, dy);
}

RULE(sub)
{
    give(g, y, dx, 0, dy);
    give(g, y, dx, 1, neg(g, dy));
}

RULE(mul)
{
    give(g, y, dx, 0, mul(g, dy, X1));
    give(g, y, dx, 1, mul(g, dy, X0));
}

/* d(a / b) = da / b - (y / b) db */
RULE(div)
{
    f8_ref da = f8_binary(g, F8_OP_DIV, dy, X1);
    give(g, y, dx, 0, da);
    give(g, y, dx, 1, neg(g, mul(g, da, y)));
}

/* The winner takes dy; equal operands share it half and half (as PyTorch and JAX do). */
static void extremum(f8_graph *g, f8_ref y, f8_ref dy, f8_ref *dx, bool largest)
{
    f8_ref a = X0, b = X1, zero = f8_const(g, 0), half = f8_mul_const(g, dy, 0.5);
    f8_ref a_less = f8_binary(g, F8_OP_LT, a, b), b_less = f8_binary(g, F8_OP_LT, b, a);
    f8_ref a_wins = largest ? b_less : a_less, b_wins = largest ? a_less : b_less;
    give(g, y, dx, 0, f8_select(g, a_wins, dy, f8_select(g, b_wins, zero, half)));
    give(g, y, dx, 1, f8_select(g, b_wins, dy, f8_select(g, a_wins, zero, half)));
}

RULE(max)
{
    extremum(g, y, dy, dx, true);
}

RULE(min)
{
    extremum(g, y, dy, dx, false);
}

RULE(fma)
{
    give(g, y, dx, 0, mul(g, dy, X1));
    give(g, y, dx, 1, mul(g, dy, X0));
    give(g, y, dx, 2, dy);
}

RULE(neg)
{
    give(g, y, dx, 0, neg(g, dy));
}

/* 0 at 0 */
RULE(abs)
{
    f8_ref x = X0, zero = f8_const(g, 0), minus = neg(g, dy);
    f8_ref negative = f8_select(g, f8_binary(g, F8_OP_LT, x, zero), minus, zero);
    give(g, y, dx, 0, f8_select(g, f8_binary(g, F8_OP_LT, zero, x), dy, negative));
}

RULE(select)
{
    f8_ref cond = X0, zero = f8_cast(g, f8_const(g, 0), f8_type_of(g, dy)->dtype);
    give(g, y, dx, 1, f8_select(g, cond, dy, zero));
    give(g, y, dx, 2, f8_select(g, cond, zero, dy));
}

/* ---- elementary functions ---- */

RULE(sqrt) /* 1 / (2 y) */
{
    give(g, y, dx, 0, f8_binary(g, F8_OP_DIV, f8_mul_const(g, dy, 0.5), y));
}

RULE(rsqrt) /* -y^3 / 2 */
{
    f8_ref half = f8_mul_const(g, dy, -0.5);
    give(g, y, dx, 0, mul(g, half, mul(g, y, mul(g, y, y))));
}

RULE(exp)
{
    give(g, y, dx, 0, mul(g, dy, y));
}

RULE(log)
{
    give(g, y, dx, 0, f8_binary(g, F8_OP_DIV, dy, X0));
}

RULE(tanh) /* 1 - y^2 */
{
    f8_ref square = mul(g, y, y);
    give(g, y, dx, 0, mul(g, dy, sub(g, f8_const(g, 1), square)));
}

RULE(erf) /* 2 / sqrt(pi) exp(-x^2) */
{
    f8_ref x = X0, bell = f8_unary(g, F8_OP_EXP, neg(g, mul(g, x, x)));
    give(g, y, dx, 0, mul(g, dy, f8_mul_const(g, bell, 1.12837916709551257390)));
}

RULE(sin)
{
    give(g, y, dx, 0, mul(g, dy, f8_unary(g, F8_OP_COS, X0)));
}

RULE(cos)
{
    give(g, y, dx, 0, neg(g, mul(g, dy, f8_unary(g, F8_OP_SIN, X0))));
}

RULE(sigmoid) /* y (1 - y) */
{
    give(g, y, dx, 0, mul(g, dy, mul(g, y, sub(g, f8_const(g, 1), y))));
}

/* 0 at 0; a NaN lets the cotangent pass (as PyTorch does). It is the result that is compared: the
 * next linear keeps that anyway. */
RULE(relu)
{
    f8_ref zero = f8_const(g, 0), off = f8_binary(g, F8_OP_LE, y, zero);
    give(g, y, dx, 0, f8_select(g, off, zero, dy));
}

/* ---- shape: move the cotangent back ---- */

static f8_type type_of_input(const f8_graph *g, f8_ref y)
{
    return *f8_type_of(g, f8_at(g, y)->in[0]);
}

RULE(reshape)
{
    f8_type t = type_of_input(g, y);
    dx[0] = f8_reshape(g, dy, &t);
}

/* A gradient has its boundary at the same place. */
RULE(boundary)
{
    (void)y;
    dx[0] = f8_unary(g, F8_OP_BOUNDARY, dy);
}

RULE(transpose)
{
    f8_ints perm = f8_attr_ints(g, y, F8_A_PERM), back = {.n = perm.n};
    for (int i = 0; i < perm.n; i++)
        back.v[perm.v[i]] = i;
    dx[0] = f8_make(g, F8_OP_TRANSPOSE, &dy, 1, &F8_INTS(F8_A_PERM, back), 1);
}

f8_ref f8_vjp_pad(f8_graph *g, f8_ref dy, const f8_type *whole, int64_t axis, int64_t start,
                  int64_t stop)
{
    if (!dy)
        return 0;
    f8_ref part[3];
    int n = 0;
    f8_type zeros = *whole;
    zeros.dtype = f8_type_of(g, dy)->dtype;
    zeros.dim[axis] = start;
    if (start > 0)
        part[n++] = f8_zeros(g, &zeros);
    part[n++] = dy;
    zeros.dim[axis] = whole->dim[axis] - stop;
    if (stop < whole->dim[axis])
        part[n++] = f8_zeros(g, &zeros);
    return f8_concat(g, part, n, axis);
}

/* For a single slice; autodiff first joins slices that tile their operand. */
RULE(slice)
{
    f8_type t = type_of_input(g, y);
    int64_t axis = f8_attr_i(g, y, F8_A_AXIS);
    axis += axis < 0 ? t.rank : 0;
    dx[0] = f8_vjp_pad(g, dy, &t, axis, f8_attr_i(g, y, F8_A_START), f8_attr_i(g, y, F8_A_STOP));
}

RULE(concat)
{
    f8_node n = *f8_at(g, y);
    int64_t axis = f8_attr_i(g, y, F8_A_AXIS), at = 0;
    axis += axis < 0 ? n.type.rank : 0;
    for (uint32_t i = 0; i < n.n_in; i++) {
        int64_t size = f8_type_of(g, n.in[i])->dim[axis];
        dx[i] = f8_slice(g, dy, axis, at, at + size);
        at += size;
    }
}

RULE(broadcast)
{
    f8_type t = type_of_input(g, y);
    dx[0] = f8_sum_to(g, f8_fold_cast(g, dy, F8_F32), &t);
}

RULE(roll)
{
    int64_t group = f8_attr_i(g, y, F8_A_GROUP), shift = f8_attr_i(g, y, F8_A_SHIFT);
    if (group == 0)
        group = f8_type_columns(&f8_at(g, y)->type);
    f8_attr attr[] = {F8_INT(F8_A_SHIFT, (group - shift % group) % group),
                      F8_INT(F8_A_GROUP, group)};
    dx[0] = f8_make(g, F8_OP_ROLL, &dy, 1, attr, 2);
}

/* Reached only when the loss uses attention's log-sum-exp (or another second result). */
RULE(error_result)
{
    (void)dy, (void)dx;
    f8_fail(g->diag, F8_ERR_UNSUPPORTED, g->loc[y], "can't differentiate through result %lld of %s",
            (long long)f8_attr_i(g, y, F8_A_INDEX),
            f8_op_facts(f8_at(g, f8_at(g, y)->in[0])->op)->name);
}

/* ---- reductions: spread the cotangent out ---- */

RULE(reduce_sum)
{
    f8_type t = type_of_input(g, y);
    const int64_t block = f8_attr_i(g, y, F8_A_BLOCK); /* of rows: only the first axis has them */
    dx[0] = block && block < t.dim[0] ? f8_reshape(g, f8_spread_rows(g, dy, block, t.dim[0]), &t)
                                      : f8_broadcast(g, dy, &t);
}

RULE(mean)
{
    f8_type t = type_of_input(g, y);
    int64_t n = f8_type_elements(&t) / f8_type_elements(f8_type_of(g, y));
    dx[0] = f8_broadcast(g, f8_binary(g, F8_OP_DIV, dy, f8_const(g, (double)n)), &t);
}

/* Elements that equal the maximum share its cotangent equally (as PyTorch's amax does). */
RULE(reduce_max)
{
    f8_ref x = f8_at(g, y)->in[0];
    f8_ref one = f8_const(g, 1), zero = f8_const(g, 0);
    f8_ref hit = f8_select(g, f8_binary(g, F8_OP_EQ, x, y), one, zero);
    f8_attr attr[] = {F8_INT(F8_A_AXIS, f8_attr_i(g, y, F8_A_AXIS)),
                      F8_INTS(F8_A_AXES, f8_attr_ints(g, y, F8_A_AXES))};
    f8_ref count = f8_make(g, F8_OP_REDUCE_SUM, &hit, 1, attr, 2);
    dx[0] = mul(g, hit, f8_binary(g, F8_OP_DIV, dy, count));
}

/* ---- composites ---- */

/* Known formulas, each one pass over the rows. They share the forward's row statistics
 * (formulas.h), which the chain rule over primitives would not. */

/* With h = dy * weight, the cotangent of xhat:
 *   layernorm dx = rstd * (h - mean(h) - xhat * mean(h * xhat))   (Ba et al., arXiv 1607.06450; the
 * form of llm.c's layernorm_backward); rmsnorm the same less mean(h) (Zhang & Sennrich, arXiv
 * 1910.07467). */
static f8_ref norm_dx(f8_graph *g, f8_ref h, const f8_norm *s)
{
    f8_ref inner = s->mean ? sub(g, h, f8_row_mean(g, h)) : h;
    f8_ref along = mul(g, s->xhat, f8_row_mean(g, mul(g, h, s->xhat)));
    return mul(g, sub(g, inner, along), s->rstd);
}

RULE(layernorm)
{
    f8_node n = *f8_at(g, y);
    f8_type weight = *f8_type_of(g, n.in[1]), bias = *f8_type_of(g, n.in[2]);
    f8_norm s = f8_layernorm_rows(g, n.in[0], f8_attr_f(g, y, F8_A_EPS));
    dx[0] = norm_dx(g, mul(g, dy, n.in[1]), &s);
    dx[1] = f8_sum_to(g, mul(g, dy, s.xhat), &weight);
    dx[2] = f8_sum_to(g, dy, &bias);
}

RULE(rmsnorm)
{
    f8_node n = *f8_at(g, y);
    f8_type weight = *f8_type_of(g, n.in[1]);
    f8_norm s = f8_rmsnorm_rows(g, n.in[0], f8_attr_f(g, y, F8_A_EPS));
    dx[0] = norm_dx(g, mul(g, dy, n.in[1]), &s);
    dx[1] = f8_sum_to(g, mul(g, dy, s.xhat), &weight);
}

/* dx = y * (dy - sum(dy * y)) */
RULE(softmax)
{
    f8_ref p = f8_softmax(g, f8_at(g, y)->in[0]);
    dx[0] = mul(g, p, sub(g, dy, f8_row_sum(g, mul(g, dy, p))));
}

RULE(gelu)
{
    dx[0] = mul(g, dy, f8_gelu_slope(g, f8_at(g, y)->in[0], f8_gelu_form_of(g, y)));
}

RULE(silu)
{
    dx[0] = mul(g, dy, f8_silu_slope(g, f8_at(g, y)->in[0], f8_is_rounded(g, y)));
}

/* A rotation's transpose is its inverse. */
RULE(rope)
{
    enum { ATTRS = F8_ROPE_ATTRS + 2 };
    f8_attr attr[ATTRS] = {F8_INT(F8_A_HEADS, f8_attr_i(g, y, F8_A_HEADS)),
                           F8_INT(F8_A_INVERSE, !f8_attr_i(g, y, F8_A_INVERSE))};
    const f8_rope frequencies = f8_rope_of(f8_at(g, y));
    f8_rope_attrs(&frequencies, attr + 2);
    dx[0] = f8_make(g, F8_OP_ROPE, &dy, 1, attr, ATTRS);
}

/* The same elements are dropped: the mask is computed again, not saved. */
RULE(dropout)
{
    const f8_node n = *f8_at(g, y);
    dx[0] =
        f8_make(g, F8_OP_DROPOUT, (f8_ref[]){dy, n.in[1]}, 2, n.attr, f8_op_facts(n.op)->n_attrs);
}

RULE(cross_entropy)
{
    const f8_node n = *f8_at(g, y);
    dx[0] = f8_make(g, F8_OP_CROSS_ENTROPY_GRAD, (f8_ref[]){n.in[0], n.in[1], dy}, 3, n.attr,
                    f8_op_facts(n.op)->n_attrs);
}

/* `precision` lowers every linear before autodiff; this is for graphs differentiated without it. */
RULE(linear)
{
    f8_node n = *f8_at(g, y);
    f8_ref product = f8_linear(g, n.in[0], n.in[1], 0, f8_attr_i(g, y, F8_A_TRANSPOSE_B),
                               f8_attr_s(g, y, F8_A_NAME));
    if (!product)
        return;
    vjp_matmul(g, product, dy, dx);
    if (n.n_in > 2) {
        f8_type bias = *f8_type_of(g, n.in[2]);
        dx[2] = f8_sum_to(g, dy, &bias);
    }
}
