/* A step of a random graph that is an FP8 linear, with some of its three products, in any layout of
 * w, with sizes that GPUs support. x, w and dy are quantized once each; with scales finer than the
 * tensor, once for each product, along its k. */
#include "ir/num/granularity.h"
#include "tests/shared/graphs/graphgen_parts.h"

#include <string.h>

typedef struct operand {
    f8_ref codes, inverse;
    f8_granularity grain;
} operand;

static f8_ref scalar_of(f8_gen *t)
{
    return f8_gen_input(t, f8_gen_shape(0, 0, 0, 0), F8_F32, "soft");
}

typedef enum scheme { TENSOR, ROWS, BLOCKS, MX } scheme;

unsigned graphgen_scalings(const f8_target *t)
{
    return (t->fp8_rows ? GRAPHGEN_ROWS : 0) | (t->fp8_blocks ? GRAPHGEN_BLOCKS : 0) |
           (t->fp8_mx ? GRAPHGEN_MX : 0);
}

static scheme choose_scheme(f8_gen *t)
{
    scheme some[3];
    int n = 0;
    for (int i = 0; i < 3; i++)
        if (t->scalings >> i & 1)
            some[n++] = (scheme)(ROWS + i);
    return n == 0 || f8_gen_chance(t, 3) ? TENSOR : some[f8_gen_below(t, n)];
}

static f8_granularity grain_of(scheme s, bool weight, bool k_is_rows)
{
    f8_granularity g = f8_per_tensor;
    if (s == ROWS)
        g = (f8_granularity){1, 0};
    else if (s == BLOCKS)
        g = (f8_granularity){weight ? 128 : 1, 128};
    else if (s == MX)
        g = (f8_granularity){1, 32};
    return k_is_rows ? f8_granularity_transposed(g) : g;
}

/* An operand to be quantized for a product that sums over its rows or its columns. */
static operand quantized(f8_gen *t, f8_ref x, f8_dtype format, f8_granularity grain, bool mx)
{
    f8_graph *g = t->g;
    char buf[48];
    const char *text = f8_granularity_print(grain, buf, sizeof buf);
    f8_ref scale, inverse;
    if (f8_granularity_equal(grain, f8_per_tensor) && f8_gen_chance(t, 2)) {
        scale = scalar_of(t);
        inverse = f8_binary(g, F8_OP_DIV, f8_const(g, 1), scale);
    } else {
        const f8_ref amax = f8_make(g, F8_OP_AMAX, &x, 1, &F8_STR(F8_A_GRANULARITY, text), 1);
        if (mx) {
            const f8_attr attr[] = {F8_INT(F8_A_FORMAT, F8_E8M0), F8_INT(F8_A_SATURATE, 0)};
            inverse = f8_make(g, F8_OP_QUANTIZE, (f8_ref[]){amax, f8_const(g, 0x1p-8)}, 2, attr, 2);
            scale = f8_binary(g, F8_OP_DIV, f8_const(g, 1), f8_cast(g, inverse, F8_F32));
        } else {
            scale = f8_make(g, F8_OP_FP8_SCALE, &amax, 1, &F8_INT(F8_A_FORMAT, format), 1);
            inverse = f8_binary(g, F8_OP_DIV, f8_const(g, 1), scale);
        }
    }
    const f8_attr attr[] = {
        F8_INT(F8_A_FORMAT, format), F8_INT(F8_A_SATURATE, !f8_gen_chance(t, 4)),
        F8_STR(F8_A_GRANULARITY, f8_granularity_has_blocks(grain) ? text : "broadcast")};
    const f8_ref q = f8_make(g, F8_OP_QUANTIZE, (f8_ref[]){x, scale}, 2, attr, 3);
    return (operand){f8_gen_add(t, q), inverse, grain};
}

/* One product, rounded to bf16 here and there: by a cast, its only use or not, or by itself. */
static f8_ref product(f8_gen *t, operand a, bool ta, operand b, bool tb, f8_ref acc)
{
    f8_graph *g = t->g;
    char text[2][48];
    f8_ref in[] = {a.codes, a.inverse, b.codes, b.inverse, acc};
    const int rounds = acc ? 0 : f8_gen_below(t, 4);
    const f8_attr attr[] = {
        F8_INT(F8_A_TRANSPOSE_A, ta), F8_INT(F8_A_TRANSPOSE_B, tb),
        F8_STR(F8_A_SCALE_A, f8_granularity_print(a.grain, text[0], sizeof text[0])),
        F8_STR(F8_A_SCALE_B, f8_granularity_print(b.grain, text[1], sizeof text[1])),
        F8_INT(F8_A_TO, rounds == 1 ? F8_BF16 : F8_F32)};
    if (rounds != 1 && !acc && f8_gen_chance(t, 3))
        return f8_gen_biased(t, F8_OP_SCALED_MATMUL, in, 4, attr, 4);
    const f8_ref y = f8_make(g, F8_OP_SCALED_MATMUL, in, acc ? 5 : 4, attr, 5);
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
        return f8_gen_add(t,
                          f8_binary(t->g, F8_OP_SUB, x, f8_reduce(t->g, F8_OP_REDUCE_MAX, x, -1)));
    }
}

/* The three values of a linear and how they are scaled. */
typedef struct linear {
    scheme how;
    bool tb;
    f8_ref x, w, dy;
    operand qx, qw, qdy; /* TENSOR: for all products */
} linear;

static operand operand_of(f8_gen *t, const linear *l, f8_ref value, bool k_is_rows)
{
    const operand *made[] = {&l->qx, &l->qw, &l->qdy};
    const f8_ref values[] = {l->x, l->w, l->dy};
    for (int i = 0; i < 3 && l->how == TENSOR; i++)
        if (values[i] == value && made[i]->codes)
            return *made[i];
    /* a row's scales go with the tensor's, too */
    const bool coarse = l->how == ROWS && f8_gen_chance(t, 6);
    return quantized(t, value, value == l->dy && !f8_gen_chance(t, 3) ? F8_E5M2 : F8_E4M3,
                     grain_of(coarse ? TENSOR : l->how, value == l->w, k_is_rows), l->how == MX);
}

void f8_gen_linear(f8_gen *t)
{
    static const int64_t sizes[] = {16, 16, 32, 48, 64, 80, 144}, more[] = {144, 272, 400};
    static const int64_t rows[] = {16, 1, 17, 48, 7, 80, 33}; /* of activations: any number */
    int64_t m = PICK(t, rows), n = PICK(t, sizes), k = PICK(t, sizes);
    const bool three = f8_gen_chance(t, 3), tb = f8_gen_chance(t, 2);
    const scheme how = t->scalings ? choose_scheme(t) : TENSOR;
    if (how == BLOCKS || how == MX) /* more than one block */
        *(f8_gen_chance(t, 3) ? &m : f8_gen_chance(t, 2) ? &n : &k) = PICK(t, more);
    const f8_type x_type = three ? f8_gen_shape(3, 2, (m + 1) / 2, k) : f8_gen_shape(2, m, k, 0);
    const f8_type y_type = three ? f8_gen_shape(3, 2, (m + 1) / 2, n) : f8_gen_shape(2, m, n, 0);
    const f8_type w_type = tb ? f8_gen_shape(2, n, k, 0) : f8_gen_shape(2, k, n, 0);
    linear l = {.how = how, .tb = tb};
    l.w = f8_gen_chance(t, 3) ? activation(t, w_type) : f8_gen_state(t, w_type, F8_F32);
    if (how == TENSOR)
        l.qw = quantized(t, l.w, F8_E4M3, f8_per_tensor, false);
    l.x = activation(t, x_type);
    if (how == TENSOR)
        l.qx = quantized(t, l.x, F8_E4M3, f8_per_tensor, false);
    product(t, operand_of(t, &l, l.x, false), false, operand_of(t, &l, l.w, !tb), tb, 0);
    if (f8_gen_chance(t, 3))
        return;
    l.dy = activation(t, y_type);
    if (how == TENSOR)
        l.qdy = quantized(t, l.dy, F8_E5M2, f8_per_tensor, false);
    product(t, operand_of(t, &l, l.dy, false), false, operand_of(t, &l, l.w, tb), !tb, 0);
    const f8_ref acc = f8_gen_chance(t, 2) ? f8_gen_state(t, w_type, F8_F32) : 0;
    const operand x = operand_of(t, &l, l.x, true), dy = operand_of(t, &l, l.dy, true);
    const f8_ref dw =
        tb ? product(t, dy, true, x, false, acc) : product(t, x, true, dy, false, acc);
    if (acc)
        f8_gen_accumulates(t, acc, dw);
    if (how == TENSOR && f8_gen_chance(t, 3)) {
        const f8_ints perm = {2, {1, 0}};
        f8_gen_add(t, f8_make(t->g, F8_OP_TRANSPOSE, &l.qw.codes, 1, &F8_INTS(F8_A_PERM, perm), 1));
    }
}
