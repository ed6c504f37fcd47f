/* Reductions over ranks: see collectives.h. */
#include "passes/unit/collectives.h"

/* A sum of up to this many elements a rank is one exchange: every rank gets all of them and adds
 * them up. Above, an exchange of parts and one of their sums send fewer bytes. */
enum { WHOLE = 1024 };

/* What is exchanged, by how many, how it is joined, and under which name (for listings; may be
 * NULL). */
typedef struct exchange {
    f8_graph *g;
    int64_t ranks;
    bool amax;
    const char *name;
} exchange;

static f8_ref collective(const exchange *e, f8_op op, f8_ref x)
{
    const f8_ref r = f8_make(e->g, op, &x, 1, &F8_INT(F8_A_RANKS, e->ranks), 1);
    if (r && e->name)
        f8_set_name(e->g, r, e->name);
    return r;
}

f8_ref f8_join_rows(f8_graph *g, f8_ref x, bool amax)
{
    f8_ref joined = 0;
    if (!x)
        return 0;
    const f8_type *t = f8_type_of(g, x), row = {.dtype = F8_F32, .rank = 1, .dim = {t->dim[1]}};
    const int64_t rows = t->dim[0];
    for (int64_t r = 0; r < rows; r++) {
        f8_ref one = f8_cast(g, f8_reshape(g, f8_slice(g, x, 0, r, r + 1), &row), F8_F32);
        if (amax)
            one = f8_unary(g, F8_OP_ABS, one);
        joined = r ? f8_binary(g, amax ? F8_OP_MAX : F8_OP_ADD, joined, one) : one;
    }
    return joined;
}

static f8_ref scattered(const exchange *e, f8_ref x)
{
    if (!x)
        return 0;
    const f8_type t = *f8_type_of(e->g, x),
                  rows = {.dtype = F8_F32,
                          .rank = 2,
                          .dim = {e->ranks, f8_type_elements(&t) / e->ranks}};
    f8_type row = {.dtype = F8_F32, .rank = (uint8_t)(t.rank - 1)};
    for (int i = 1; i < t.rank; i++)
        row.dim[i - 1] = t.dim[i];
    x = f8_reshape(e->g, collective(e, F8_OP_ALL_TO_ALL, x), &rows);
    return f8_reshape(e->g, f8_join_rows(e->g, x, e->amax), &row);
}

/* x [n] with n a multiple of ranks, or small. */
static f8_ref reduce_vector(const exchange *e, f8_ref x)
{
    if (!x)
        return 0;
    const f8_type t = *f8_type_of(e->g, x),
                  rows = {.dtype = F8_F32, .rank = 2, .dim = {e->ranks, t.dim[0] / e->ranks}};
    if (rows.dim[1] <= WHOLE)
        return f8_join_rows(e->g, collective(e, F8_OP_ALL_GATHER, x), e->amax);
    x = scattered(e, f8_reshape(e->g, x, &rows));
    return f8_reshape(e->g, collective(e, F8_OP_ALL_GATHER, x), &t);
}

f8_ref f8_reduce_scattered(f8_graph *g, f8_ref x, int64_t ranks, bool amax, const char *name)
{
    return scattered(&(exchange){g, ranks, amax, name}, x);
}

f8_ref f8_all_reduced(f8_graph *g, f8_ref x, int64_t ranks, bool amax, const char *name)
{
    const exchange e = {g, ranks, amax, name};
    if (!x)
        return 0;
    const f8_type t = *f8_type_of(g, x),
                  vector = {.dtype = F8_F32, .rank = 1, .dim = {f8_type_elements(&t)}};
    const int64_t n = vector.dim[0], whole = n / ranks <= WHOLE ? n : n / ranks * ranks;
    x = f8_reshape(g, x, &vector);
    f8_ref sum = reduce_vector(&e, f8_slice(g, x, 0, 0, whole));
    if (whole < n)
        sum = f8_concat(g, (f8_ref[]){sum, reduce_vector(&e, f8_slice(g, x, 0, whole, n))}, 2, 0);
    return f8_reshape(g, sum, &t);
}

/* x [n] with n a multiple of ranks, or small. */
static f8_ref broadcast_vector(const exchange *e, f8_ref x, int64_t root)
{
    if (!x)
        return 0;
    const f8_type t = *f8_type_of(e->g, x),
                  rows = {.dtype = t.dtype, .rank = 2, .dim = {e->ranks, t.dim[0] / e->ranks}};
    const bool small = rows.dim[1] <= WHOLE;
    x = small ? collective(e, F8_OP_ALL_GATHER, x)
              : collective(e, F8_OP_ALL_TO_ALL, f8_reshape(e->g, x, &rows));
    x = f8_slice(e->g, x, 0, root, root + 1);
    if (!small)
        x = collective(e, F8_OP_ALL_GATHER, x);
    return f8_reshape(e->g, x, &t);
}

f8_ref f8_broadcast_from(f8_graph *g, f8_ref x, int64_t ranks, int64_t root, const char *name)
{
    const exchange e = {g, ranks, false, name};
    if (!x)
        return 0;
    const f8_type t = *f8_type_of(g, x),
                  vector = {.dtype = t.dtype, .rank = 1, .dim = {f8_type_elements(&t)}};
    const int64_t n = vector.dim[0], even = n / ranks <= WHOLE ? n : n / ranks * ranks;
    x = f8_reshape(g, x, &vector);
    f8_ref all = broadcast_vector(&e, f8_slice(g, x, 0, 0, even), root);
    if (even < n)
        all = f8_concat(g, (f8_ref[]){all, broadcast_vector(&e, f8_slice(g, x, 0, even, n), root)},
                        2, 0);
    return f8_reshape(g, all, &t);
}
