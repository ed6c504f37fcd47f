/* Reductions over ranks: see collectives.h. */
#include "passes/unit/collectives.h"

/* Up to this many elements for each rank, one exchange of everything is quicker than two of parts.
 */
enum { WHOLE = 1024 };

static f8_ref collective(f8_graph *g, f8_op op, f8_ref x, int64_t ranks)
{
    return f8_make(g, op, &x, 1, &F8_INT(F8_A_RANKS, ranks), 1);
}

/* x [ranks, n]: its rows joined, [n], from first to last. */
static f8_ref join_rows(f8_graph *g, f8_ref x, int64_t ranks, bool amax)
{
    f8_ref joined = 0;
    if (!x)
        return 0;
    const f8_type row = {.dtype = F8_F32, .rank = 1, .dim = {f8_type_of(g, x)->dim[1]}};
    for (int64_t r = 0; r < ranks; r++) {
        f8_ref one = f8_reshape(g, f8_slice(g, x, 0, r, r + 1), &row);
        if (amax)
            one = f8_unary(g, F8_OP_ABS, one);
        joined = r ? f8_binary(g, amax ? F8_OP_MAX : F8_OP_ADD, joined, one) : one;
    }
    return joined;
}

f8_ref f8_reduce_scattered(f8_graph *g, f8_ref x, int64_t ranks, bool amax)
{
    if (!x)
        return 0;
    const f8_type t = *f8_type_of(g, x),
                  rows = {.dtype = F8_F32, .rank = 2, .dim = {ranks, f8_type_elements(&t) / ranks}};
    f8_type row = {.dtype = F8_F32, .rank = (uint8_t)(t.rank - 1)};
    for (int i = 1; i < t.rank; i++)
        row.dim[i - 1] = t.dim[i];
    x = f8_reshape(g, collective(g, F8_OP_ALL_TO_ALL, x, ranks), &rows);
    return f8_reshape(g, join_rows(g, x, ranks, amax), &row);
}

/* x [n] with n a multiple of ranks, or small. */
static f8_ref reduce_vector(f8_graph *g, f8_ref x, int64_t ranks, bool amax)
{
    if (!x)
        return 0;
    const f8_type t = *f8_type_of(g, x),
                  rows = {.dtype = F8_F32, .rank = 2, .dim = {ranks, t.dim[0] / ranks}};
    if (rows.dim[1] <= WHOLE)
        return join_rows(g, collective(g, F8_OP_ALL_GATHER, x, ranks), ranks, amax);
    x = f8_reduce_scattered(g, f8_reshape(g, x, &rows), ranks, amax);
    return f8_reshape(g, collective(g, F8_OP_ALL_GATHER, x, ranks), &t);
}

f8_ref f8_all_reduced(f8_graph *g, f8_ref x, int64_t ranks, bool amax)
{
    if (!x)
        return 0;
    const f8_type t = *f8_type_of(g, x),
                  vector = {.dtype = F8_F32, .rank = 1, .dim = {f8_type_elements(&t)}};
    const int64_t n = vector.dim[0], whole = n / ranks <= WHOLE ? n : n / ranks * ranks;
    x = f8_reshape(g, x, &vector);
    f8_ref sum = reduce_vector(g, f8_slice(g, x, 0, 0, whole), ranks, amax);
    if (whole < n) {
        const f8_ref rest = reduce_vector(g, f8_slice(g, x, 0, whole, n), ranks, amax);
        sum = f8_concat(g, (f8_ref[]){sum, rest}, 2, 0);
    }
    return f8_reshape(g, sum, &t);
}
