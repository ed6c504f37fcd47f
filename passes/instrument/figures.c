/* Instrument, figures: one value's statistics as nodes. Every figure is a maximum, which does not
 * depend on order, or a sum in the order that reduce_sum defines. So the figures are values like
 * any other: the same bits on every target. The host makes shares, means and decibels of them
 * (frontend/statistics.c).
 *
 * All are row sums or row maxima first, so that the row kernel that computes or reads the value can
 * compute them as well. */
#include <math.h>

#include "ir/num/fp8.h"
#include "passes/instrument/values.h"
#include "passes/unit/formulas.h"

/* How many elements a condition holds for. */
static f8_ref count(f8_graph *g, f8_ref condition)
{
    return f8_sum_all(g, f8_select(g, condition, f8_const(g, 1), f8_const(g, 0)));
}

static f8_ref not_zero(f8_graph *g, f8_ref x)
{
    return f8_binary(g, F8_OP_LT, f8_const(g, 0), f8_unary(g, F8_OP_ABS, x));
}

/* Minus the smallest |x| of those that are finite and not 0; -Inf if there is none. */
static f8_ref minus_amin(f8_graph *g, f8_ref x)
{
    const f8_ref size = f8_unary(g, F8_OP_ABS, x);
    const f8_ref counts = f8_binary(g, F8_OP_AND, f8_unary(g, F8_OP_ISFINITE, x), not_zero(g, x));
    const f8_ref minus = f8_unary(g, F8_OP_NEG, size);
    return f8_reduce_all(g, F8_OP_REDUCE_MAX, f8_select(g, counts, minus, f8_const(g, -INFINITY)));
}

/* x quantized and dequantized: codes as numbers, and what a GEMM takes for x. */
static f8_ref dequantized(f8_graph *g, const f8_gemm_value *v, f8_ref scale_inv, const char *grain)
{
    const f8_attr attr[] = {F8_STR(F8_A_GRANULARITY, grain)};
    return f8_make(g, F8_OP_DEQUANTIZE, (f8_ref[]){v->q, scale_inv}, 2, attr, 1);
}

/* The largest magnitude, in units of the largest code, that is rounded to that code: half of the
 * step before it further on. (The step after it is as large, for the format has no such code.) */
static double saturation(f8_dtype format)
{
    return format == F8_E4M3 ? 464.0 / 448 : 61440.0 / 57344;
}

/* The scale that the value's own amax asks for, where one scale is for the whole value. */
static f8_ref wanted(f8_graph *g, const f8_gemm_value *v, f8_ref amax)
{
    const f8_attr attr[] = {F8_INT(F8_A_FORMAT, f8_type_of(g, v->q)->dtype),
                            F8_INT(F8_A_MARGIN, v->recipe.margin),
                            F8_INT(F8_A_POW2, v->recipe.pow2)};
    return f8_make(g, F8_OP_FP8_SCALE, &amax, 1, attr, 3);
}

/* ---- sums of products ---- */

/* The unit of a row or of the value: the power of two at or below its amax, from 2^-126 to 2^126.
 * Sums are taken of elements in units of their row, where no square overflows or underflows. Then
 * the row's sum is brought to the unit of the value. Powers of two change no other bit. */
static f8_ref unit_of(f8_graph *g, f8_ref amax)
{
    const f8_ref power = f8_unary(g, F8_OP_POW2_FLOOR, amax);
    const f8_ref least = f8_binary(g, F8_OP_MAX, power, f8_const(g, F8_SUM_UNIT_LEAST));
    return f8_binary(g, F8_OP_MIN, least, f8_const(g, F8_SUM_UNIT_MOST));
}

typedef struct units {
    f8_ref row;   /* what elements are multiplied by: 1 / the unit of the row */
    f8_ref ratio; /* [.., 1]: the unit of the row over that of the value */
} units;

static units units_of(f8_graph *g, f8_ref x, f8_ref amax)
{
    const bool scalar = f8_type_of(g, x)->rank == 0;
    const f8_ref row = unit_of(g, scalar ? amax : f8_reduce(g, F8_OP_REDUCE_AMAX, x, -1));
    return (units){f8_binary(g, F8_OP_DIV, f8_const(g, 1), row),
                   f8_binary(g, F8_OP_DIV, row, unit_of(g, amax))};
}

/* The sum of a b, which are in units of their rows, in squares of the value's unit. */
static f8_ref sum_of_products(f8_graph *g, const units *u, f8_ref a, f8_ref b)
{
    f8_ref sum = f8_binary(g, F8_OP_MUL, a, b);
    const int64_t rows = f8_type_rows(f8_type_of(g, sum));
    if (f8_type_of(g, sum)->rank > 0)
        sum = f8_reduce(g, F8_OP_REDUCE_SUM, sum, -1);
    sum = f8_binary(g, F8_OP_MUL, f8_binary(g, F8_OP_MUL, sum, u->ratio), u->ratio);
    return f8_sum_all(g, f8_reshape_to(g, sum, 1, &rows));
}

/* What the sums of codes are made of. */
typedef struct codes {
    f8_ref x, d, off;             /* in units of their rows */
    f8_ref size;                  /* |code| */
    f8_ref lost, largest, beyond; /* conditions */
    units units;
} codes;

static codes codes_of(f8_graph *g, const f8_gemm_value *v, f8_ref x, f8_ref amax, f8_ref zero)
{
    const f8_dtype format = f8_type_of(g, v->q)->dtype;
    const f8_ref code = dequantized(g, v, f8_const(g, 1), "broadcast"),
                 back = dequantized(g, v, v->scale_inv, v->granularity);
    codes c = {.units = units_of(g, x, amax)};
    c.x = f8_binary(g, F8_OP_MUL, x, c.units.row);
    c.d = f8_binary(g, F8_OP_MUL, back, c.units.row);
    c.off = f8_binary(g, F8_OP_SUB, c.d, c.x);
    c.lost = f8_binary(g, F8_OP_AND, not_zero(g, x), f8_binary(g, F8_OP_EQ, code, zero));
    c.size = f8_unary(g, F8_OP_ABS, code);
    c.largest = f8_binary(g, F8_OP_EQ, c.size, f8_const(g, f8_dtype_max(format)));
    c.beyond =
        f8_binary(g, F8_OP_LT, f8_mul_const(g, f8_unary(g, F8_OP_ABS, back), saturation(format)),
                  f8_unary(g, F8_OP_ABS, x));
    return c;
}

static f8_has has_of(const f8_gemm_value *v)
{
    return !v->q                                            ? F8_HAS_ALL
           : !f8_granularity_equal(v->grain, f8_per_tensor) ? F8_HAS_QUANTIZED
           : v->recipe.scaling == F8_SCALING_UNIT           ? F8_HAS_ONE_SCALE
                                                            : F8_HAS_ASKING;
}

f8_ref f8_figures_of(f8_graph *g, const f8_gemm_value *v)
{
    const f8_ref x = f8_cast(g, v->x, F8_F32), zero = f8_const(g, 0);
    const int has = has_of(v);
    codes c = {0};
    f8_ref sum[F8_SUMS];
#define SUM(name, of, nodes)                                                                       \
    if (F8_HAS_##of == F8_HAS_ALL)                                                                 \
        sum[F8_SUM_##name] = nodes;
#include "passes/unit/sums.def"
#undef SUM
    if (v->q)
        c = codes_of(g, v, x, sum[F8_SUM_AMAX], zero);
#define SUM(name, of, nodes)                                                                       \
    if (F8_HAS_##of > F8_HAS_ALL)                                                                  \
        sum[F8_SUM_##name] = has >= F8_HAS_##of ? nodes : zero;
#include "passes/unit/sums.def"
#undef SUM
    for (int i = 0; i < F8_SUMS; i++)
        sum[i] = f8_reshape_to(g, sum[i], 2, (int64_t[]){1, 1});
    return f8_concat(g, sum, F8_SUMS, 1);
}
