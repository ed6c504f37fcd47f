/* Derivatives of pointwise ops. Operands broadcast, so every contribution is summed back to its
 * operand's shape. Where the result helps (exp, tanh, sqrt, ...) the rule uses y itself. */
#include "passes/formulas.h"
#include "passes/vjp.h"

static f8_ref operand(const f8_graph *g, f8_ref y, uint32_t i)
{
    return f8_at(g, y)->in[i];
}

/* Contribution d to operand i of y. */
static void give(f8_graph *g, f8_ref y, f8_ref *dx, uint32_t i, f8_ref d)
{
    if (!d)
        return;
    f8_type t = *f8_type_of(g, operand(g, y, i));
    if (f8_dtype_is_float(t.dtype))
        dx[i] = f8_sum_to(g, d, &t);
}

static f8_ref mul(f8_graph *g, f8_ref a, f8_ref b)
{
    return f8_binary(g, F8_OP_MUL, a, b);
}

static f8_ref neg(f8_graph *g, f8_ref a)
{
    return f8_unary(g, F8_OP_NEG, a);
}

#define RULE(name) void f8_vjp_##name(f8_graph *g, f8_ref y, f8_ref dy, f8_ref *dx)
#define X0 operand(g, y, 0)
#define X1 operand(g, y, 1)

/* ---- arithmetic ---- */

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
    give(g, y, dx, 0, mul(g, dy, f8_binary(g, F8_OP_SUB, f8_const(g, 1), square)));
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
    give(g, y, dx, 0, mul(g, dy, mul(g, y, f8_binary(g, F8_OP_SUB, f8_const(g, 1), y))));
}
