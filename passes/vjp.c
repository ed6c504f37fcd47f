/* The table of derivative rules; the rules of casts, GEMMs, attention and gathers: see vjp.h. */
#include "passes/vjp.h"
#include "passes/formulas.h"

static const f8_vjp_fn rules[F8_OP_COUNT] = {
#define OP(ID, name, lo, hi, results, CLS, infer, rule, ...) [F8_OP_##ID] = f8_vjp_##rule,
#include "ir/ops.def"
#undef OP
};

#define RULE(name) void f8_vjp_##name(f8_graph *g, f8_ref y, f8_ref dy, f8_ref *dx)

void f8_vjp(f8_graph *g, f8_ref y, f8_ref dy, f8_ref *dx)
{
    if (y && dy)
        rules[f8_at(g, y)->op](g, y, dy, dx);
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

/* y = A @ B, A = a or a', B = b or b', as matrices. Each gradient is one product in its operand's
 * own layout: a: dy @ B'   or (a transposed)  B @ dy' b: A' @ dy   or (b transposed)  dy' @ A dy is
 * rounded to the operands' dtype, as the operands were. The results are f32; autodiff rounds that
 * of an activation and keeps a weight's. An acc operand's derivative is dy. */
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
    if (n.n_in > 2)
        dx[2] = dy;
}

/* ---- attention and gather ---- */

/* attention_grad recomputes the probabilities from q, k and the saved log-sum-exp (Dao et al.,
 * arXiv 2205.14135, section 3 and appendix B). */
RULE(attention)
{
    f8_node n = *f8_at(g, y);
    f8_ref in[] = {n.in[0], n.in[1], n.in[2], y, f8_project(g, y, 1), dy};
    f8_attr attr[] = {F8_INT(F8_A_HEADS, f8_attr_i(g, y, F8_A_HEADS)),
                      F8_INT(F8_A_KV_HEADS, f8_attr_i(g, y, F8_A_KV_HEADS)),
                      F8_INT(F8_A_CAUSAL, f8_attr_i(g, y, F8_A_CAUSAL)),
                      F8_FLOAT(F8_A_SCALE, f8_attr_f(g, y, F8_A_SCALE))};
    f8_ref grad = f8_make(g, F8_OP_ATTENTION_GRAD, in, 6, attr, 4);
    for (int i = 0; i < 3 && grad; i++)
        dx[i] = f8_project(g, grad, i);
}

/* Scatter-add into zeros; autodiff puts the gradient's running sum in their place. */
RULE(embedding)
{
    f8_node n = *f8_at(g, y);
    f8_type table = *f8_type_of(g, n.in[0]);
    table.dtype = F8_F32;
    f8_ref in[] = {f8_zeros(g, &table), n.in[1], f8_fold_cast(g, dy, F8_F32)};
    dx[0] = f8_make(g, F8_OP_EMBEDDING_GRAD, in, 3, NULL, 0);
}
