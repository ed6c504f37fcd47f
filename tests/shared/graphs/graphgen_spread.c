/* A step of a random graph that broadcasts computed values: a few ops on a small shape, whose
 * leading, middle or last axes of one element are then broadcast over a larger shape; and a vector
 * that is read along the columns and, reshaped, along the rows. */
#include "tests/shared/graphs/graphgen_parts.h"

/* An f32 value of that shape, made from what is narrower as a rule. */
static f8_ref source(f8_gen *t, const f8_type *shape)
{
    static const f8_dtype dtypes[] = {F8_BF16, F8_BF16, F8_BF16, F8_E4M3, F8_F32, F8_I32, F8_BOOL};
    const f8_dtype d = PICK(t, dtypes);
    const f8_ref x = f8_gen_input(t, *shape, d, "x");
    return d == F8_F32 ? x : f8_gen_add(t, f8_cast(t->g, x, F8_F32));
}

/* The shape with some axes made one, leading ones left out here and there. */
static f8_type smaller(f8_gen *t, const f8_type *whole)
{
    f8_type s = *whole;
    for (int i = 0; i < s.rank; i++)
        if (f8_gen_chance(t, i == s.rank - 1 ? 4 : 2))
            s.dim[i] = 1;
    while (s.rank > 1 && s.dim[0] == 1 && f8_gen_chance(t, 3)) {
        for (int i = 1; i < s.rank; i++)
            s.dim[i - 1] = s.dim[i];
        s.rank--;
    }
    return s;
}

/* A few ops at x's own shape, or over its rows; some of the values on the way are wanted later. */
static f8_ref processed(f8_gen *t, f8_ref x)
{
    static const f8_op unary[] = {F8_OP_NEG, F8_OP_ABS, F8_OP_TANH, F8_OP_EXP, F8_OP_SIGMOID};
    static const f8_op binary[] = {F8_OP_ADD, F8_OP_SUB, F8_OP_MUL, F8_OP_MAX};
    f8_graph *g = t->g;
    for (int n = f8_gen_below(t, 4); n > 0; n--) {
        const f8_type type = *f8_type_of(g, x);
        switch (f8_gen_below(t, 6)) {
        case 0: x = f8_binary(g, PICK(t, binary), x, f8_const(g, 0.75)); break;
        case 1: x = f8_binary(g, PICK(t, binary), x, source(t, &type)); break;
        case 2: x = f8_binary(g, F8_OP_SUB, x, f8_reduce(g, F8_OP_REDUCE_MAX, x, -1)); break;
        case 3: x = f8_cast(g, f8_cast(g, x, F8_BF16), F8_F32); break;
        default: x = f8_unary(g, PICK(t, unary), x); break;
        }
        if (f8_gen_chance(t, 6))
            f8_gen_add(t, x);
    }
    return x;
}

/* x and its own reshape [D, 1], over [D, D]. */
static void along_both(f8_gen *t)
{
    const int64_t d = 1 + f8_gen_size(t) % 100;
    const f8_type vector = f8_gen_shape(1, d, 0, 0), tall = f8_gen_shape(2, d, 1, 0);
    const bool upright = f8_gen_chance(t, 2);
    const f8_ref x = processed(t, source(t, upright ? &tall : &vector)),
                 turned = f8_reshape(t->g, x, upright ? &vector : &tall);
    const f8_ref in[] = {x, f8_gen_chance(t, 2) ? processed(t, turned) : turned,
                         f8_gen_input(t, f8_gen_shape(2, d, d, 0), F8_F32, "x")};
    f8_gen_add(t, f8_make(t->g, F8_OP_FMA, in, 3, NULL, 0));
}

void f8_gen_spread(f8_gen *t)
{
    static const f8_op binary[] = {F8_OP_ADD, F8_OP_SUB, F8_OP_MUL, F8_OP_DIV};
    static const int64_t columns[] = {1, 2, 7, 16, 33, 130};
    f8_graph *g = t->g;
    if (f8_gen_chance(t, 4)) {
        along_both(t);
        return;
    }
    const f8_type whole = {.dtype = F8_F32,
                           .rank = 4,
                           .dim = {1 + f8_gen_below(t, 3), 1 + f8_gen_below(t, 6),
                                   1 + f8_gen_below(t, 4), PICK(t, columns)}};
    f8_ref y = processed(t, source(t, &whole));
    for (int n = 1 + f8_gen_below(t, 3); n > 0; n--) {
        const f8_type shape = smaller(t, &whole);
        f8_ref x = processed(t, source(t, &shape));
        if (f8_gen_chance(t, 3)) { /* grows in two steps */
            const f8_type other = smaller(t, &whole);
            x = processed(t, f8_binary(g, F8_OP_ADD, x, source(t, &other)));
        }
        if (f8_gen_chance(t, 5))
            x = f8_broadcast(g, x, &whole);
        const bool first = f8_gen_chance(t, 2);
        y = f8_binary(g, PICK(t, binary), first ? x : y, first ? y : x);
    }
    if (f8_gen_chance(t, 3))
        y = f8_unary(g, F8_OP_SOFTMAX, y);
    f8_gen_add(t, y);
}
