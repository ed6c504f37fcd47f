/* A step of a random graph that is an FP8 linear: x, w and dy quantized once each, and some of its
 * three products, in any layout of w, with sizes that GPUs take. */
#include "tests/shared/graphgen_parts.h"

#include <string.h>

typedef struct operand {
    f8_ref codes, inverse;
} operand;

static f8_ref scalar_of(f8_gen *t)
{
    return f8_gen_input(t, f8_gen_shape(0, 0, 0, 0), F8_F32, "soft");
}

static operand quantized(f8_gen *t, f8_ref x, f8_dtype format)
{
    f8_graph *g = t->g;
    f8_ref scale;
    if (f8_gen_chance(t, 2)) {
        scale = scalar_of(t);
    } else {
        const f8_ref amax = f8_unary(g, F8_OP_AMAX, x);
        scale = f8_make(g, F8_OP_FP8_SCALE, &amax, 1, &F8_INT(F8_A_FORMAT, format), 1);
    }
    const f8_attr attr[] = {F8_INT(F8_A_FORMAT, format), F8_INT(F8_A_SATURATE, !f8_gen_chance(t, 4))};
    const f8_ref q = f8_make(g, F8_OP_QUANTIZE, (f8_ref[]){x, scale}, 2, attr, 2);
    return (operand){f8_gen_add(t, q), f8_binary(g, F8_OP_DIV, f8_const(g, 1), scale)};
}

/* One product, rounded to bf16 here and there: by a cast, its only use or not, or by itself. */
static f8_ref product(f8_gen *t, operand a, bool ta, operand b, bool tb, f8_ref acc)
{
    f8_graph *g = t->g;
    const f8_ref in[] = {a.codes, a.inverse, b.codes, b.inverse, acc};
    const int rounds = acc ? 0 : f8_gen_below(t, 4);
    const f8_attr attr[] = {F8_INT(F8_A_TRANSPOSE_A, ta), F8_INT(F8_A_TRANSPOSE_B, tb),
                            F8_INT(F8_A_TO, rounds == 1 ? F8_BF16 : F8_F32)};
    const f8_ref y = f8_make(g, F8_OP_SCALED_MATMUL, in, acc ? 5 : 4, attr, 3);
    if (rounds != 2)
        f8_gen_add(t, y);
    return rounds > 1 ? f8_gen_add(t, f8_cast(g, y, F8_BF16)) : y;
}

static f8_ref activation(f8_gen *t, f8_type type)
{
    const f8_ref x = f8_gen_input(t, type, F8_F32, "soft");
    switch (f8_gen_below(t, 4)) {
    case 0: return x;
    case 1: return f8_gen_add(t, f8_cast(t->g, f8_unary(t->g, F8_OP_TANH, x), F8_BF16));
    case 2: return f8_gen_add(t, f8_unary(t->g, F8_OP_TANH, x));
    default: /* behind a row reduction */
        return f8_gen_add(t, f8_binary(t->g, F8_OP_SUB, x, f8_reduce(t->g, F8_OP_REDUCE_MAX, x, -1)));
    }
}

void f8_gen_linear(f8_gen *t)
{
    static const int64_t sizes[] = {16, 16, 32, 48, 64, 80, 144};
    const int64_t m = PICK(t, sizes), n = PICK(t, sizes), k = PICK(t, sizes);
    const bool three = f8_gen_chance(t, 3), tb = f8_gen_chance(t, 2);
    const f8_type x_type = three ? f8_gen_shape(3, 2, m / 2, k) : f8_gen_shape(2, m, k, 0);
    const f8_type y_type = three ? f8_gen_shape(3, 2, m / 2, n) : f8_gen_shape(2, m, n, 0);
    const f8_type w_type = tb ? f8_gen_shape(2, n, k, 0) : f8_gen_shape(2, k, n, 0);
    const f8_ref w = f8_gen_chance(t, 3) ? activation(t, w_type) : f8_gen_state(t, w_type, F8_F32);
    const operand qw = quantized(t, w, F8_E4M3), qx = quantized(t, activation(t, x_type), F8_E4M3);
    product(t, qx, false, qw, tb, 0);
    if (f8_gen_chance(t, 3))
        return;
    const operand qdy = quantized(t, activation(t, y_type), F8_E5M2);
    product(t, qdy, false, qw, !tb, 0);
    const f8_ref acc = f8_gen_chance(t, 2) ? f8_gen_state(t, w_type, F8_F32) : 0;
    const f8_ref dw = tb ? product(t, qdy, true, qx, false, acc) : product(t, qx, true, qdy, false, acc);
    if (acc)
        f8_gen_accumulates(t, acc, dw);
    if (f8_gen_chance(t, 3)) {
        const f8_ints perm = {2, {1, 0}};
        f8_gen_add(t, f8_make(t->g, F8_OP_TRANSPOSE, &qw.codes, 1, &F8_INTS(F8_A_PERM, perm), 1));
    }
}
