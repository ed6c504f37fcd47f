/* Blocks in primitives.
 *
 * Kernels know blocks of columns of some sizes, and of any number of rows
 * (f8_blocks_are_primitive): there amax is a reduction in blocks, and quantize and dequantize stay
 * as they are.
 *
 * For other sizes a run of b columns becomes a row of its own: x [.., C] is seen as [.., C/b, b],
 * so that a block's amax is a row's amax and its scale a row's scale. The value must be stored for
 * that. What is left over at an end is a block of its own, cut off by slices and joined again by a
 * concat. Scales of several rows are spread over them. */
#include "passes/unit/blocks.h"

#include "passes/unit/formulas.h"

/* ---- shapes ---- */

/* x [.., C] as [.., C / b, b]. b divides C, and x must have room for one more axis. */
static f8_ref split_columns(f8_graph *g, f8_ref x, int64_t b)
{
    if (!x)
        return 0;
    f8_type t = *f8_type_of(g, x);
    t.dim[t.rank] = b;
    t.dim[t.rank - 1] /= b;
    t.rank++;
    return f8_reshape(g, x, &t);
}

static f8_ref as_matrix(f8_graph *g, f8_ref x)
{
    if (!x)
        return 0;
    const f8_type *t = f8_type_of(g, x);
    return f8_reshape_to(g, x, 2, (int64_t[]){f8_type_rows(t), f8_type_columns(t)});
}

/* x with room for one more axis. */
static f8_ref with_room(f8_graph *g, f8_ref x)
{
    return x && f8_type_of(g, x)->rank >= F8_MAX_RANK ? as_matrix(g, x) : x;
}

/* The length that whole blocks of `b` cover; n where none or all are whole. */
static int64_t whole(int64_t n, int64_t b)
{
    return n <= b ? n : n / b * b;
}

/* ---- amax ---- */

static f8_ref amax_columns(f8_graph *g, f8_ref x, int64_t b)
{
    f8_type t = *f8_type_of(g, x);
    const int64_t cols = f8_type_columns(&t), first = whole(cols, b);
    const f8_attr runs[] = {F8_INT(F8_A_AXIS, -1), F8_INT(F8_A_BLOCK, b)};
    if (cols > b && f8_column_block(b))
        return f8_make(g, F8_OP_REDUCE_AMAX, &x, 1, runs, 2);
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
    const int64_t cols = f8_type_columns(&out), first = whole(cols, b),
                  n = f8_type_columns(&scales);
    if (first < cols) {
        const f8_ref part[] = {
            times_columns(g, f8_slice(g, x, -1, 0, first), f8_slice(g, s, -1, 0, n - 1), b, attr),
            times_columns(g, f8_slice(g, x, -1, first, cols), f8_slice(g, s, -1, n - 1, n), b,
                          attr)};
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

f8_ref f8_spread_rows(f8_graph *g, f8_ref s, int64_t b, int64_t rows)
{
    if (!s)
        return 0;
    const f8_type *t = f8_type_of(g, s);
    const int64_t blocks = t->dim[0], n = f8_type_elements(t) / blocks;
    const f8_type wide = {.dtype = t->dtype, .rank = 3, .dim = {blocks, b, n}};
    s = f8_broadcast(g, f8_reshape_to(g, s, 3, (int64_t[]){blocks, 1, n}), &wide);
    return f8_slice(g, f8_reshape_to(g, s, 2, (int64_t[]){blocks * b, n}), 0, 0, rows);
}

static f8_ref times_blocks(f8_graph *g, f8_ref x, f8_ref s, f8_granularity grain,
                           const f8_attr *attr)
{
    if (!x || !s)
        return 0;
    if (grain.rows == 1)
        return times_columns(g, x, s, grain.cols, attr);
    f8_type out = *f8_type_of(g, x);
    out.dtype = attr ? (f8_dtype)attr[0].i : F8_F32;
    const int64_t rows = f8_type_rows(&out), cols = f8_type_columns(&out);
    const f8_ref spread = f8_spread_rows(g, s, grain.rows ? grain.rows : rows, rows);
    const f8_ref q =
        times_columns(g, as_matrix(g, x), spread, grain.cols ? grain.cols : cols, attr);
    return f8_reshape(g, q, &out);
}

bool f8_blocks_are_primitive(f8_granularity grain)
{
    return grain.cols <= 1 || f8_column_block(grain.cols);
}

f8_ref f8_quantize_blocks(f8_graph *g, f8_ref x, f8_ref s, f8_granularity grain,
                          const f8_attr attr[2])
{
    return times_blocks(g, f8_cast(g, x, F8_F32), s, grain, attr);
}

f8_ref f8_dequantize_blocks(f8_graph *g, f8_ref q, f8_ref s, f8_granularity grain)
{
    return times_blocks(g, q, s, grain, NULL);
}
