/* A step of a random graph that quantizes by rows, columns or blocks: the magnitudes of each, a
 * scale for each, codes; of values that are read or made there, in sizes that are multiples of the
 * block or not. */
#include "tests/shared/graphs/graphgen_parts.h"

#include "ir/num/granularity.h"

#include <stdio.h>

static const char *const grains[] = {
    "row",         "column",      "column",     "block(1,128)", "block(128,1)", "block(128,128)",
    "block(1,32)", "block(32,1)", "block(1,5)", "block(3,1)",   "block(6,2)",   "block(64,1)",
    "block(16,7)", "block(96,1)", "block(1,1)", "tensor"};

/* What a block may hold besides numbers of its own size: only zeros, a NaN, an infinity. */
static f8_ref operand(f8_gen *t)
{
    static const int64_t rows[] = {1, 2, 31, 33, 64, 65, 96, 128, 129, 200, 257, 400},
                         cols[] = {1, 2, 5, 7, 31, 32, 64, 96, 100, 128, 160, 256, 300};
    f8_graph *g = t->g;
    const f8_dtype d = f8_gen_chance(t, 2) ? F8_BF16 : F8_F32;
    f8_ref x = f8_gen_chance(t, 2) ? f8_gen_tensor(t, d) : 0;
    if (!x) {
        int64_t r = PICK(t, rows), c = PICK(t, cols);
        while (r * c > 30000)
            *(r > c ? &r : &c) /= 2;
        const bool three = f8_gen_chance(t, 4);
        x = f8_gen_input(t, three ? f8_gen_shape(3, 2, (r + 1) / 2, c) : f8_gen_shape(2, r, c, 0),
                         d, "x");
    }
    x = f8_cast(g, x, F8_F32);
    switch (f8_gen_below(t, 6)) {
    case 0: x = f8_binary(g, F8_OP_SUB, x, f8_reduce(g, F8_OP_REDUCE_MAX, x, -1)); break;
    case 1: x = f8_unary(g, F8_OP_TANH, x); break;
    case 2: x = f8_binary(g, F8_OP_MUL, x, f8_gen_partner(t, f8_type_of(g, x), F8_F32)); break;
    case 3: return f8_gen_add(t, f8_cast(g, f8_unary(g, F8_OP_NEG, x), F8_BF16));
    default: break;
    }
    return f8_gen_chance(t, 3) ? f8_gen_add(t, x) : x;
}

static f8_ref amax_of(f8_gen *t, f8_ref x, const char *grain)
{
    return f8_gen_add(t, f8_make(t->g, F8_OP_AMAX, &x, 1, &F8_STR(F8_A_GRANULARITY, grain), 1));
}

typedef struct scales {
    f8_ref scale, inverse; /* the inverse in f32 or E8M0 */
} scales;

/* As recipes make it, by the power of two of its exponent, or anything. */
static scales scales_of(f8_gen *t, f8_ref amax, int64_t format)
{
    f8_graph *g = t->g;
    const f8_ref one = f8_const(g, 1);
    if (f8_gen_chance(t, 3)) {
        const f8_attr attr[] = {F8_INT(F8_A_FORMAT, F8_E8M0), F8_INT(F8_A_SATURATE, 0)};
        const f8_ref in[] = {amax, f8_const(g, 1.0 / 448)};
        const f8_ref e = f8_gen_add(t, f8_make(g, F8_OP_QUANTIZE, in, 2, attr, 2));
        return (scales){f8_binary(g, F8_OP_DIV, one, f8_cast(g, e, F8_F32)), e};
    }
    const f8_attr attr[] = {F8_INT(F8_A_FORMAT, format), F8_INT(F8_A_MARGIN, f8_gen_below(t, 2)),
                            F8_INT(F8_A_POW2, f8_gen_chance(t, 2))};
    const f8_ref s = f8_gen_chance(t, 4)
                         ? f8_gen_input(t, *f8_type_of(g, amax), F8_F32, "soft")
                         : f8_make(g, F8_OP_FP8_SCALE, &amax, 1, attr, 3);
    return (scales){s, f8_gen_add(t, f8_binary(g, F8_OP_DIV, one, s))};
}

static bool has_blocks(const char *grain)
{
    f8_granularity g;
    return f8_granularity_parse(grain, &g) && f8_granularity_has_blocks(g);
}

static void quantize(f8_gen *t, f8_ref x, const char *grain)
{
    f8_graph *g = t->g;
    const int64_t format = f8_gen_chance(t, 3) ? F8_E5M2 : F8_E4M3;
    const scales s = scales_of(t, amax_of(t, x, grain), format);
    const f8_attr attr[] = {F8_STR(F8_A_GRANULARITY, has_blocks(grain) ? grain : "broadcast"),
                            F8_INT(F8_A_FORMAT, format),
                            F8_INT(F8_A_SATURATE, !f8_gen_chance(t, 4))};
    const f8_ref q = f8_gen_add(t, f8_make(g, F8_OP_QUANTIZE, (f8_ref[]){x, s.scale}, 2, attr, 3));
    if (q && f8_type_of(g, q)->rank == 2 && f8_gen_chance(t, 3)) {
        const f8_ints perm = {2, {1, 0}};
        f8_gen_add(t, f8_make(g, F8_OP_TRANSPOSE, &q, 1, &F8_INTS(F8_A_PERM, perm), 1));
    }
    if (f8_gen_chance(t, 3))
        f8_gen_add(t, f8_make(g, F8_OP_DEQUANTIZE, (f8_ref[]){q, s.inverse}, 2, attr, 1));
    else if (f8_gen_chance(t, 3))
        f8_gen_add(t, f8_cast(g, q, F8_F32));
}

void f8_gen_blocks(f8_gen *t)
{
    const f8_ref x = operand(t);
    char own[48];
    const f8_granularity any = {f8_gen_below(t, 40), f8_gen_below(t, 40)};
    const bool named = !f8_gen_chance(t, 5) || !any.rows || !any.cols;
    for (int n = 1 + f8_gen_below(t, 2); n > 0 && x;
         n--) { /* in both directions, as GEMMs want it */
        const char *grain = named ? PICK(t, grains) : f8_granularity_print(any, own, sizeof own);
        if (f8_gen_chance(t, 5) || f8_type_of(t->g, x)->rank < 2) /* whose rows are no matrix */
            amax_of(t, x, grain);
        else
            quantize(t, x, grain);
    }
    if (f8_gen_chance(t, 6))
        f8_gen_add(t, f8_unary(t->g, F8_OP_POW2_FLOOR, f8_gen_some(t, F8_F32)));
}
