/* Nodes that make shards and join them: see parts.h. Several values travel in one exchange: each is
 * a matrix of a row for each rank, and the matrices lie side by side. */
#include "passes/shard/parts.h"
#include "passes/unit/formulas.h"

f8_type f8_shard_type(const f8_type *whole, int32_t ranks)
{
    f8_type t = *whole;
    t.dim[0] = f8_shard_rows(t.dim[0], ranks);
    return t;
}

static f8_type vector_of(f8_dtype dtype, int64_t n)
{
    return (f8_type){.dtype = dtype, .rank = 1, .dim = {n}};
}

static f8_type matrix_of(f8_dtype dtype, int64_t rows, int64_t columns)
{
    return (f8_type){.dtype = dtype, .rank = 2, .dim = {rows, columns}};
}

static f8_ref collective(f8_graph *g, f8_op op, f8_ref x, int32_t ranks, uint64_t clone)
{
    return f8_make_clone(g, op, &x, 1, &F8_INT(F8_A_RANKS, ranks), 1, clone);
}

/* ---- gathering ---- */

/* The whole of a value whose shards are the rows of `rows`, [ranks, n]. */
static f8_ref joined(f8_graph *g, f8_ref rows, const f8_type *type, int32_t ranks)
{
    f8_type padded = f8_shard_type(type, ranks);
    padded.dim[0] *= ranks;
    return f8_slice(g, f8_reshape(g, rows, &padded), 0, 0, type->dim[0]);
}

/* The same for rows that lie among the rows of other values. Each rank's rows are copied to their
 * place. Rows past the whole's last are not copied. */
static f8_ref joined_apart(f8_graph *g, f8_ref rows, const f8_type *type, int32_t ranks)
{
    const f8_type shard = f8_shard_type(type, ranks);
    const int64_t each = shard.dim[0], full = type->dim[0] / each, rest = type->dim[0] % each,
                  columns = f8_type_elements(&shard) / each;
    f8_type t = *type;
    t.dim[0] = full * each;
    const f8_ref most = f8_reshape(g, f8_slice(g, rows, 0, 0, full), &t);
    if (!rest)
        return most;
    t.dim[0] = rest;
    const f8_ref last = f8_slice(g, f8_slice(g, rows, 0, full, full + 1), 1, 0, rest * columns);
    return f8_concat(g, (f8_ref[]){most, f8_reshape(g, last, &t)}, 2, 0);
}

f8_ref f8_as_vector(f8_graph *g, f8_ref x)
{
    if (!x)
        return 0;
    const f8_type *t = f8_type_of(g, x);
    const f8_type vector = vector_of(t->dtype, f8_type_elements(t));
    return f8_reshape(g, x, &vector);
}

/* `shard`: vectors; size[i]: the elements of each. Gives [ranks, size[i]]. */
static bool gather_vectors(f8_graph *g, int32_t ranks, const f8_ref *shard, size_t n,
                           uint64_t clone, const char *name, f8_ref *rows)
{
    const f8_ref all = collective(g, F8_OP_ALL_GATHER, f8_concat(g, shard, n, 0), ranks, clone);
    int64_t at = 0;
    if (all && name)
        f8_set_name(g, all, name);
    for (size_t i = 0; i < n && all; i++) {
        const int64_t size = f8_type_of(g, shard[i])->dim[0];
        rows[i] = f8_slice(g, all, 1, at, at + size);
        at += size;
    }
    return g->diag->status == F8_OK;
}

/* apart: which of the two forms of joining. */
static bool gather(f8_graph *g, int32_t ranks, const f8_ref *shard, const f8_type *type, size_t n,
                   uint64_t clone, const char *name, bool apart, f8_ref *whole)
{
    f8_ref *vector = F8_NEW_ARRAY(g->arena, f8_ref, n);
    if (!vector)
        return f8_arena_status(g->arena, g->diag) == F8_OK;
    for (size_t i = 0; i < n; i++) {
        vector[i] = f8_as_vector(g, shard[i]);
        if (!vector[i])
            return false;
    }
    if (!gather_vectors(g, ranks, vector, n, clone, name, whole))
        return false;
    for (size_t i = 0; i < n; i++)
        whole[i] = apart ? joined_apart(g, whole[i], &type[i], ranks)
                         : joined(g, whole[i], &type[i], ranks);
    return g->diag->status == F8_OK;
}

bool f8_gather(f8_graph *g, int32_t ranks, const f8_ref *shard, const f8_type *type, size_t n,
               uint64_t clone, const char *name, f8_ref *whole)
{
    return gather(g, ranks, shard, type, n, clone, name, n > 1, whole);
}

bool f8_gather_stored(f8_graph *g, int32_t ranks, const f8_ref *shard, const f8_type *type,
                      size_t n, const char *name, f8_ref *whole)
{
    return gather(g, ranks, shard, type, n, 0, name, n > 1 || type[0].dim[0] % ranks, whole);
}

static f8_ref below(const f8_graph *g, f8_ref r, f8_op op)
{
    return f8_at(g, r)->op == op ? f8_at(g, r)->in[0] : r;
}

f8_ref f8_gathered_shard(const f8_graph *g, f8_ref whole)
{
    const f8_type *type = f8_type_of(g, whole);
    const f8_ref all = below(g, below(g, whole, F8_OP_SLICE), F8_OP_RESHAPE);
    if (f8_at(g, all)->op != F8_OP_ALL_GATHER || type->rank == 0)
        return 0;
    const f8_ref shard = below(g, f8_at(g, all)->in[0], F8_OP_RESHAPE);
    const f8_type own = f8_shard_type(type, (int32_t)f8_attr_i(g, all, F8_A_RANKS));
    return f8_type_same_shape(f8_type_of(g, shard), &own) ? shard : 0;
}

/* ---- taking shards ---- */

/* A broadcast of a scalar to the shape of a shard: no row depends on where it lies. */
static f8_ref smaller_broadcast(f8_graph *g, const f8_node *n, int32_t ranks)
{
    const f8_type shard = f8_shard_type(&n->type, ranks);
    const f8_ref scalar = n->in[0];
    return f8_make_clone(g, F8_OP_BROADCAST, &scalar, 1, &F8_INTS(F8_A_SHAPE, f8_shape_of(&shard)),
                         1, n->clone);
}

/* How deep a pointwise expression is taken apart, so that shards are taken of what it reads. */
enum { DEEPEST = 32 };

static f8_ref shard_of(f8_graph *g, int32_t ranks, f8_ref whole, int depth)
{
    if (!whole)
        return 0;
    const f8_node n = *f8_at(g, whole);
    f8_ref in[3];
    if (n.op == F8_OP_BROADCAST && f8_type_of(g, n.in[0])->rank == 0)
        return smaller_broadcast(g, &n, ranks);
    bool apart = f8_op_facts(n.op)->cls == F8_POINTWISE && n.n_in <= 3 && depth < DEEPEST;
    for (uint32_t i = 0; i < n.n_in && apart; i++)
        apart = f8_type_of(g, n.in[i])->rank == 0 ||
                f8_type_same_shape(f8_type_of(g, n.in[i]), &n.type);
    if (!apart)
        return collective(g, F8_OP_ALL_SLICE, whole, ranks, 0);
    for (uint32_t i = 0; i < n.n_in; i++)
        in[i] = f8_type_of(g, n.in[i])->rank ? shard_of(g, ranks, n.in[i], depth + 1) : n.in[i];
    return f8_make_clone(g, n.op, in, (int)n.n_in, n.attr, f8_op_facts(n.op)->n_attrs, n.clone);
}

f8_ref f8_shard_of(f8_graph *g, int32_t ranks, f8_ref whole)
{
    return shard_of(g, ranks, whole, 0);
}

f8_ref f8_shard_clean(f8_graph *g, int32_t ranks, f8_ref shard, const f8_type *whole)
{
    if (!shard || whole->dim[0] % ranks == 0)
        return shard;
    f8_type own = {.dtype = F8_F32, .rank = whole->rank};
    const f8_type column = vector_of(F8_F32, whole->dim[0]);
    for (int i = 0; i < own.rank; i++)
        own.dim[i] = i ? 1 : f8_shard_rows(whole->dim[0], ranks);
    f8_ref real = f8_broadcast(g, f8_const(g, 1), &column);
    real = f8_reshape(g, collective(g, F8_OP_ALL_SLICE, real, ranks, 0), &own);
    real = f8_binary(g, F8_OP_LT, f8_const(g, 0), real);
    return f8_select(g, real, shard, f8_const(g, 0));
}

/* ---- summing ---- */

/* x as [ranks, elements of a shard], with zeros behind its last row. */
static f8_ref rows_of_ranks(f8_graph *g, int32_t ranks, f8_ref x)
{
    const f8_type t = *f8_type_of(g, x);
    const int64_t each = f8_shard_rows(t.dim[0], ranks), more = each * ranks - t.dim[0],
                  columns = f8_type_elements(&t) / t.dim[0];
    const f8_type matrix = matrix_of(F8_F32, t.dim[0], columns),
                  zeros = matrix_of(F8_F32, more, columns),
                  rows = matrix_of(F8_F32, ranks, each * columns);
    x = f8_reshape(g, x, &matrix);
    if (more)
        x = f8_concat(g, (f8_ref[]){x, f8_cast(g, f8_zeros(g, &zeros), t.dtype)}, 2, 0);
    return f8_reshape(g, x, &rows);
}

bool f8_reduce_to_shards(f8_graph *g, int32_t ranks, const f8_ref *x, size_t n, const char *order,
                         const char *name, f8_ref *shard)
{
    const f8_attr attr[] = {F8_INT(F8_A_RANKS, ranks), F8_STR(F8_A_ORDER, order)};
    int64_t at = 0;
    f8_ref *rows = F8_NEW_ARRAY(g->arena, f8_ref, n);
    if (!rows)
        return f8_arena_status(g->arena, g->diag) == F8_OK;
    for (size_t i = 0; i < n; i++)
        if (!x[i] || !(rows[i] = rows_of_ranks(g, ranks, x[i])))
            return false;
    const f8_ref all = f8_concat(g, rows, n, 1);
    const f8_ref sum = f8_make(g, F8_OP_REDUCE_SCATTER, &all, 1, attr, 2);
    if (sum && name)
        f8_set_name(g, sum, name);
    for (size_t i = 0; i < n && sum; i++) {
        const f8_type own = f8_shard_type(f8_type_of(g, x[i]), ranks);
        const int64_t size = f8_type_elements(&own);
        shard[i] = f8_reshape(g, f8_slice(g, sum, 0, at, at + size), &own);
        at += size;
    }
    return g->diag->status == F8_OK;
}
