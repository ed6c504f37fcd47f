/* Short builders over f8_make: see ir.h. Ref 0 in gives ref 0 out. */
#include "ir/ir.h"

#include <string.h>

f8_ref f8_const(f8_graph *g, double value)
{
    return f8_make(g, F8_OP_CONST, NULL, 0, &F8_FLOAT(F8_A_VALUE, value), 1);
}

f8_ref f8_unary(f8_graph *g, f8_op op, f8_ref a)
{
    return f8_make(g, op, &a, 1, NULL, 0);
}

f8_ref f8_binary(f8_graph *g, f8_op op, f8_ref a, f8_ref b)
{
    return f8_make(g, op, (f8_ref[]){a, b}, 2, NULL, 0);
}

f8_ref f8_select(f8_graph *g, f8_ref cond, f8_ref a, f8_ref b)
{
    return f8_make(g, F8_OP_SELECT, (f8_ref[]){cond, a, b}, 3, NULL, 0);
}

f8_ref f8_cast(f8_graph *g, f8_ref a, f8_dtype to)
{
    if (a && f8_type_of(g, a)->dtype == to)
        return a;
    return f8_make(g, F8_OP_CAST, &a, 1, &F8_INT(F8_A_TO, to), 1);
}

f8_ref f8_reduce(f8_graph *g, f8_op op, f8_ref a, int64_t axis)
{
    return f8_make(g, op, &a, 1, &F8_INT(F8_A_AXIS, axis), 1);
}

/* ---- shape ---- */

f8_ints f8_shape_of(const f8_type *t)
{
    f8_ints v = {.n = t->rank};
    for (int i = 0; i < t->rank; i++)
        v.v[i] = t->dim[i];
    return v;
}

f8_ref f8_reshape(f8_graph *g, f8_ref a, const f8_type *shape_of)
{
    if (a && f8_type_same_shape(f8_type_of(g, a), shape_of))
        return a;
    return f8_make(g, F8_OP_RESHAPE, &a, 1, &F8_INTS(F8_A_SHAPE, f8_shape_of(shape_of)), 1);
}

f8_ref f8_broadcast(f8_graph *g, f8_ref a, const f8_type *shape_of)
{
    if (a && f8_type_same_shape(f8_type_of(g, a), shape_of))
        return a;
    return f8_make(g, F8_OP_BROADCAST, &a, 1, &F8_INTS(F8_A_SHAPE, f8_shape_of(shape_of)), 1);
}

f8_ref f8_slice(f8_graph *g, f8_ref a, int64_t axis, int64_t start, int64_t stop)
{
    if (a) {
        const f8_type *t = f8_type_of(g, a);
        int64_t at = axis < 0 ? axis + t->rank : axis;
        if (at >= 0 && at < t->rank && start == 0 && stop == t->dim[at])
            return a;
    }
    f8_attr attr[] = {F8_INT(F8_A_AXIS, axis), F8_INT(F8_A_START, start), F8_INT(F8_A_STOP, stop)};
    return f8_make(g, F8_OP_SLICE, &a, 1, attr, 3);
}

/* Concatenations of `most` values each, in order, in place of values they join: the new n. */
static size_t concat_level(f8_graph *g, f8_ref *part, size_t n, size_t most, int64_t axis)
{
    size_t made = 0;
    for (size_t i = 0; i < n; i += most) {
        const size_t count = n - i < most ? n - i : most;
        part[made++] = count == 1 ? part[i]
                                  : f8_make(g, F8_OP_CONCAT, part + i, (int)count,
                                            &F8_INT(F8_A_AXIS, axis), 1);
    }
    return made;
}

f8_ref f8_concat(f8_graph *g, const f8_ref *in, size_t n, int64_t axis)
{
    const size_t most = f8_op_facts(F8_OP_CONCAT)->max_in;
    if (n == 1)
        return in[0];
    if (n <= most)
        return f8_make(g, F8_OP_CONCAT, in, (int)n, &F8_INT(F8_A_AXIS, axis), 1);
    f8_ref *part = F8_NEW_ARRAY(g->arena, f8_ref, n);
    if (!part) {
        f8_arena_status(g->arena, g->diag);
        return 0;
    }
    memcpy(part, in, n * sizeof *part);
    while (n > 1)
        n = concat_level(g, part, n, most, axis);
    return part[0];
}

f8_ref f8_project(f8_graph *g, f8_ref a, int64_t index)
{
    if (index == 0)
        return a;
    return f8_make(g, F8_OP_PROJECT, &a, 1, &F8_INT(F8_A_INDEX, index), 1);
}

/* ---- reductions ---- */

f8_ref f8_reduce_all(f8_graph *g, f8_op op, f8_ref a)
{
    if (!a || f8_type_of(g, a)->rank == 0)
        return a;
    f8_type t = {.dtype = F8_F32, .rank = 1, .dim = {f8_type_rows(f8_type_of(g, a))}};
    bool vector = f8_type_of(g, a)->rank == 1;
    f8_ref all = f8_reduce(g, op, a, -1); /* [.., 1] */
    if (!vector)
        all = f8_reduce(g, op, f8_reshape(g, all, &t), -1); /* [1] */
    return f8_reshape(g, all, &(f8_type){.dtype = F8_F32});
}

f8_ref f8_sum_all(f8_graph *g, f8_ref a)
{
    return f8_reduce_all(g, F8_OP_REDUCE_SUM, a);
}

/* Sum `a`, of type t, over the axes marked in `summed`; the last axis is not one of them. They are
 * transposed to the front, because only the first and the last axis can be reduced. */
static f8_ref sum_leading(f8_graph *g, f8_ref a, const f8_type *t, const bool *summed)
{
    f8_ints perm = {.n = t->rank};
    int64_t rows = 1, rest = 1;
    int at = 0;
    bool moved = false;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < t->rank; i++) {
            if (summed[i] != (pass == 0))
                continue;
            *(pass == 0 ? &rows : &rest) *= t->dim[i];
            moved |= at != i;
            perm.v[at++] = i;
        }
    if (rows == 1)
        return a;
    if (moved)
        a = f8_make(g, F8_OP_TRANSPOSE, &a, 1, &F8_INTS(F8_A_PERM, perm), 1);
    f8_type matrix = {.dtype = F8_F32, .rank = 2, .dim = {rows, rest}};
    return f8_reduce(g, F8_OP_REDUCE_SUM, f8_reshape(g, a, &matrix), 0); /* [1, rest] */
}

f8_ref f8_sum_to(f8_graph *g, f8_ref a, const f8_type *to)
{
    if (!a)
        return 0;
    f8_type t = *f8_type_of(g, a);
    bool summed[F8_MAX_RANK] = {false};
    for (int i = 0; i < t.rank; i++) {
        int j = i - (t.rank - to->rank);
        summed[i] = (j < 0 || to->dim[j] == 1) && t.dim[i] != 1;
    }
    if (f8_type_elements(to) == f8_type_elements(&t))
        return f8_reshape(g, a, to);
    if (f8_type_elements(to) == 1)
        return f8_reshape(g, f8_sum_all(g, a), to);

    /* The trailing axes that are summed become one last axis. */
    int keep = t.rank;
    int64_t inner = 1;
    while (keep > 0 && (summed[keep - 1] || t.dim[keep - 1] == 1))
        inner *= t.dim[--keep];
    if (inner > 1) {
        t.rank = (uint8_t)(keep + 1);
        t.dim[keep] = inner;
        a = f8_reduce(g, F8_OP_REDUCE_SUM, f8_reshape(g, a, &t), -1);
        t.dim[keep] = 1;
        summed[keep] = false;
    }
    return f8_reshape(g, sum_leading(g, a, &t, summed), to);
}
