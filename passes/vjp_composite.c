/* Derivatives of composites: known formulas, each one pass over the rows, that share the forward's
 * row statistics (formulas.h) instead of what the chain rule over primitives would give. */
#include "passes/formulas.h"
#include "passes/vjp.h"

#define RULE(name) void f8_vjp_##name(f8_graph *g, f8_ref y, f8_ref dy, f8_ref *dx)

static f8_ref mul(f8_graph *g, f8_ref a, f8_ref b)
{
    return f8_binary(g, F8_OP_MUL, a, b);
}

static f8_ref sub(f8_graph *g, f8_ref a, f8_ref b)
{
    return f8_binary(g, F8_OP_SUB, a, b);
}

/* ---- norms ---- */

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

/* ---- activations ---- */

/* dx = y * (dy - sum(dy * y)) */
RULE(softmax)
{
    f8_ref p = f8_softmax(g, f8_at(g, y)->in[0]);
    dx[0] = mul(g, p, sub(g, dy, f8_row_sum(g, mul(g, dy, p))));
}

RULE(gelu)
{
    bool tanh_form = f8_attr_s(g, y, F8_A_APPROXIMATE)[0] == 't';
    dx[0] = mul(g, dy, f8_gelu_slope(g, f8_at(g, y)->in[0], tanh_form));
}

RULE(silu)
{
    dx[0] = mul(g, dy, f8_silu_slope(g, f8_at(g, y)->in[0]));
}

/* A rotation's transpose is its inverse. */
RULE(rope)
{
    f8_attr attr[] = {F8_INT(F8_A_HEADS, f8_attr_i(g, y, F8_A_HEADS)),
                      F8_FLOAT(F8_A_BASE, f8_attr_f(g, y, F8_A_BASE)),
                      F8_INT(F8_A_INVERSE, !f8_attr_i(g, y, F8_A_INVERSE))};
    dx[0] = f8_make(g, F8_OP_ROPE, &dy, 1, attr, 3);
}

/* ---- loss and linear ---- */

RULE(cross_entropy)
{
    const f8_node *n = f8_at(g, y);
    dx[0] = f8_make(g, F8_OP_CROSS_ENTROPY_GRAD, (f8_ref[]){n->in[0], n->in[1], dy}, 3, NULL, 0);
}

/* `precision` lowers every linear before autodiff; this is for graphs differentiated without it. */
RULE(linear)
{
    f8_node n = *f8_at(g, y);
    f8_ref product = f8_linear(g, n.in[0], n.in[1], 0, f8_attr_i(g, y, F8_A_TRANSPOSE_B),
                               f8_attr_s(g, y, F8_A_NAME));
    if (!product)
        return;
    f8_vjp_matmul(g, product, dy, dx);
    if (n.n_in > 2) {
        f8_type bias = *f8_type_of(g, n.in[2]);
        dx[2] = f8_sum_to(g, dy, &bias);
    }
}
