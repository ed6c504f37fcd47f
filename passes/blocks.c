/* Blocks in primitives: a run of b columns becomes a row of its own.
 *
 * x [.., C] is seen as [.., C/b, b]: then a block's amax is a row's, its scale a row's scale, and row
 * programs need no notion of blocks. A reshape that regroups rows reads memory, so in front of one the
 * whole f32 value would be stored. Hence split_columns: the reshape moves up through what is computed
 * element by element, to values that lie in memory anyway (results of GEMMs, bf16 activations) or are a
 * column wide (statistics of rows).
 *
 * Blocks of rows are an axis too, [R/b, b, C]: their amax is a reduction of row blocks, and a scale [R/b,
 * 1, C] broadcasts. What is left over at an end (sizes that are no multiple) is a block of its own, cut
 * off by slices and put back by a concat. */
#include "passes/blocks.h"

#include "passes/formulas.h"

enum { MAX_CONE = 256 };

/* ---- regrouped columns ---- */

/* t with its last axis cut in two, or with an axis of one more where that is one element. */
static f8_type split_type(const f8_type *t, int64_t b)
{
    f8_type out = *t;
    const int64_t cols = f8_type_columns(t);
    if (t->rank == 0)
        return out;
    out.dim[t->rank - 1] = cols == 1 ? 1 : cols / b;
    out.dim[t->rank] = cols == 1 ? 1 : b;
    out.rank++;
    return out;
}

/* Whether reshaping n's operands instead of n gives the same and costs no more memory. */
static bool passes_through(const f8_graph *g, const f8_node *n, int64_t cols)
{
    if (f8_op_facts(n->op)->cls != F8_POINTWISE || f8_type_columns(&n->type) != cols || cols == 1 ||
        n->type.rank >= F8_MAX_RANK)
        return false;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const f8_type *t = f8_type_of(g, n->in[i]);
        if (t->rank && f8_type_columns(t) != cols && f8_type_columns(t) != 1)
            return false;
    }
    return n->op != F8_OP_CAST ||
           f8_dtype_size(f8_type_of(g, n->in[0])->dtype) <= f8_dtype_size(n->type.dtype);
}

typedef struct cone {
    f8_ref node[MAX_CONE], split[MAX_CONE]; /* ascending once sorted; split: the new value */
    int n;
} cone;

static int find(const cone *c, f8_ref r)
{
    for (int i = 0; i < c->n; i++)
        if (c->node[i] == r)
            return i;
    return -1;
}

/* The nodes that the reshape passes through, from x up; false when they are too many. */
static bool collect(const f8_graph *g, f8_ref x, cone *c)
{
    const int64_t cols = f8_type_columns(f8_type_of(g, x));
    c->n = 0;
    if (passes_through(g, f8_at(g, x), cols))
        c->node[c->n++] = x;
    for (int i = 0; i < c->n; i++) {
        const f8_node *n = f8_at(g, c->node[i]);
        for (uint32_t k = 0; k < n->n_in; k++) {
            if (find(c, n->in[k]) >= 0 || !passes_through(g, f8_at(g, n->in[k]), cols))
                continue;
            if (c->n == MAX_CONE)
                return false;
            c->node[c->n++] = n->in[k];
        }
    }
    for (int i = 1; i < c->n; i++) /* operands first: by insertion, the list is short */
        for (int k = i; k > 0 && c->node[k - 1] > c->node[k]; k--) {
            const f8_ref swap = c->node[k];
            c->node[k] = c->node[k - 1];
            c->node[k - 1] = swap;
        }
    return true;
}

static f8_ref split_leaf(f8_graph *g, f8_ref r, int64_t b)
{
    const f8_type t = split_type(f8_type_of(g, r), b);
    return f8_reshape(g, r, &t);
}

/* x [.., C] as [.., C / b, b]; b divides C and x has an axis to spare. */
static f8_ref split_columns(f8_graph *g, f8_ref x, int64_t b)
{
    cone c;
    if (!x || !collect(g, x, &c) || c.n == 0)
        return x ? split_leaf(g, x, b) : 0;
    for (int i = 0; i < c.n; i++) {
        const f8_node n = *f8_at(g, c.node[i]); /* the graph grows below */
        f8_ref in[3];
        for (uint32_t k = 0; k < n.n_in; k++) {
            const int at = find(&c, n.in[k]);
            in[k] = at >= 0 ? c.split[at] : split_leaf(g, n.in[k], b);
        }
        c.split[i] = f8_make_clone(g, n.op, in, (int)n.n_in, n.attr, f8_op_facts(n.op)->n_attrs, n.clone);
    }
    return c.split[c.n - 1];
}

/* ---- shapes ---- */

static f8_ref as_matrix(f8_graph *g, f8_ref x)
{
    if (!x)
        return 0;
    const f8_type *t = f8_type_of(g, x);
    return f8_reshape_to(g, x, 2, (int64_t[]){f8_type_rows(t), f8_type_columns(t)});
}

/* Room for one more axis. */
static f8_ref with_room(f8_graph *g, f8_ref x)
{
    return x && f8_type_of(g, x)->rank >= F8_MAX_RANK ? as_matrix(g, x) : x;
}

/* Blocks of `b` that are whole: the length they cover; n where none or all are. */
static int64_t whole(int64_t n, int64_t b)
{
    return n <= b ? n : n / b * b;
}

/* ---- amax ---- */

static f8_ref amax_columns(f8_graph *g, f8_ref x, int64_t b)
{
    f8_type t = *f8_type_of(g, x);
    const int64_t cols = f8_type_columns(&t), first = whole(cols, b);
    if (first < cols) {
        const f8_ref part[] = {amax_columns(g, f8_slice(g, x, -1, 0, first), b),
                               amax_columns(g, f8_slice(g, x, -1, first, cols), b)};
        return f8_concat(g, part, 2, -1);
    }
    t.dtype = F8_F32;
    t.dim[t.rank - 1] = (cols + b - 1) / b;
    if (t.dim[t.rank - 1] > 1)
        x = split_columns(g, with_room(g, x), b);
    return f8_reshape(g, f8_reduce(g, F8_OP_REDUCE_AMAX, x, -1), &t);
}

static f8_ref amax_rows(f8_graph *g, f8_ref x, int64_t b)
{
    const f8_attr attr[] = {F8_INT(F8_A_AXIS, 0), F8_INT(F8_A_BLOCK, b)};
    x = as_matrix(g, x);
    if (b && x && f8_type_of(g, x)->dim[0] <= b)
        b = 0;
    return f8_make(g, F8_OP_REDUCE_AMAX, &x, 1, attr, b ? 2 : 1);
}

f8_ref f8_amax_of(f8_graph *g, f8_ref x, f8_granularity grain)
{
    if (!grain.rows && !grain.cols)
        return f8_amax_tensor(g, x);
    x = f8_cast(g, x, F8_F32);
    if (!x)
        return 0;
    if (grain.rows == 1 && grain.cols == 1)
        return f8_unary(g, F8_OP_ABS, x);
    if (grain.cols != 1)
        x = amax_columns(g, x, grain.cols ? grain.cols : f8_type_columns(f8_type_of(g, x)));
    return grain.rows == 1 ? x : amax_rows(g, x, grain.rows);
}

/* ---- quantize and dequantize ---- */

/* encode(x * s); with no attributes x * s, in f32. */
static f8_ref times(f8_graph *g, f8_ref x, f8_ref s, const f8_attr *attr)
{
    return attr ? f8_make(g, F8_OP_QUANTIZE, (f8_ref[]){x, s}, 2, attr, 2)
                : f8_binary(g, F8_OP_MUL, f8_cast(g, x, F8_F32), f8_cast(g, s, F8_F32));
}

/* s [.., blocks of a row] */
static f8_ref times_columns(f8_graph *g, f8_ref x, f8_ref s, int64_t b, const f8_attr *attr)
{
    if (!x || !s)
        return 0;
    f8_type out = *f8_type_of(g, x), scales = *f8_type_of(g, s);
    const int64_t cols = f8_type_columns(&out), first = whole(cols, b), n = f8_type_columns(&scales);
    if (first < cols) {
        const f8_ref part[] = {
            times_columns(g, f8_slice(g, x, -1, 0, first), f8_slice(g, s, -1, 0, n - 1), b, attr),
            times_columns(g, f8_slice(g, x, -1, first, cols), f8_slice(g, s, -1, n - 1, n), b, attr)};
        return f8_concat(g, part, 2, -1);
    }
    if (n == 1)
        return times(g, x, s, attr);
    x = split_columns(g, with_room(g, x), b);
    const f8_dtype dtype = scales.dtype;
    scales = *f8_type_of(g, x);
    scales.dtype = dtype;
    scales.dim[scales.rank - 1] = 1;
    out.dtype = attr ? (f8_dtype)attr[0].i : F8_F32;
    return f8_reshape(g, times(g, x, f8_reshape(g, s, &scales), attr), &out);
}

/* x [R, C], s [blocks of rows, C] */
static f8_ref times_rows(f8_graph *g, f8_ref x, f8_ref s, int64_t b, const f8_attr *attr)
{
    if (!x || !s)
        return 0;
    const int64_t rows = f8_type_of(g, x)->dim[0], cols = f8_type_of(g, x)->dim[1];
    const int64_t first = whole(rows, b), n = f8_type_of(g, s)->dim[0];
    if (first < rows) {
        const f8_ref part[] = {
            times_rows(g, f8_slice(g, x, 0, 0, first), f8_slice(g, s, 0, 0, n - 1), b, attr),
            times_rows(g, f8_slice(g, x, 0, first, rows), f8_slice(g, s, 0, n - 1, n), b, attr)};
        return f8_concat(g, part, 2, 0);
    }
    if (n == 1)
        return times(g, x, s, attr);
    x = f8_reshape_to(g, x, 3, (int64_t[]){n, b, cols});
    s = f8_reshape_to(g, s, 3, (int64_t[]){n, 1, cols});
    return f8_reshape_to(g, times(g, x, s, attr), 2, (int64_t[]){rows, cols});
}

/* s [blocks of rows, n] as [R, n]. */
static f8_ref spread_rows(f8_graph *g, f8_ref s, int64_t b, int64_t rows)
{
    if (!s)
        return 0;
    const int64_t blocks = f8_type_of(g, s)->dim[0], n = f8_type_of(g, s)->dim[1];
    const f8_type wide = {.dtype = f8_type_of(g, s)->dtype, .rank = 3, .dim = {blocks, b, n}};
    s = f8_broadcast(g, f8_reshape_to(g, s, 3, (int64_t[]){blocks, 1, n}), &wide);
    return f8_slice(g, f8_reshape_to(g, s, 2, (int64_t[]){blocks * b, n}), 0, 0, rows);
}

static f8_ref times_blocks(f8_graph *g, f8_ref x, f8_ref s, f8_granularity grain, const f8_attr *attr)
{
    if (!x || !s)
        return 0;
    if (grain.rows == 1)
        return times_columns(g, x, s, grain.cols, attr);
    f8_type out = *f8_type_of(g, x);
    out.dtype = attr ? (f8_dtype)attr[0].i : F8_F32;
    const int64_t rows = f8_type_rows(&out), cols = f8_type_columns(&out);
    f8_ref matrix = as_matrix(g, x), q;
    if (grain.cols == 1)
        q = times_rows(g, matrix, s, grain.rows ? grain.rows : rows, attr);
    else
        q = times_columns(g, matrix, spread_rows(g, s, grain.rows ? grain.rows : rows, rows),
                          grain.cols ? grain.cols : cols, attr);
    return f8_reshape(g, q, &out);
}

f8_ref f8_quantize_blocks(f8_graph *g, f8_ref x, f8_ref s, f8_granularity grain, const f8_attr attr[2])
{
    return times_blocks(g, f8_cast(g, x, F8_F32), s, grain, attr);
}

f8_ref f8_dequantize_blocks(f8_graph *g, f8_ref q, f8_ref s, f8_granularity grain)
{
    return times_blocks(g, q, s, grain, NULL);
}
