/* How row kernels see values: broadcast classes and views. Shared by legalize, group, schedule and
 * memory. */
#ifndef F8_ROWS_H
#define F8_ROWS_H

#include "ir/num/granularity.h"
#include "ir/lowered.h"

/* How an element (r, c) of a node over [R, C] reads an operand that broadcasts to it. */
typedef enum f8_read_kind {
    F8_READ_FULL,     /* at (r, c) */
    F8_READ_ROW,      /* [R, 1]: at r */
    F8_READ_COL,      /* [1, C]: at c */
    F8_READ_ONE,      /* a single element */
    F8_READ_PERIODIC, /* row (r / div) % mod, of one or C columns: from memory only */
    F8_READ_NONE,     /* no row kernel can express it */
} f8_read_kind;

typedef struct f8_read {
    f8_read_kind kind;
    int64_t div, mod; /* PERIODIC */
} f8_read;

/* `operand` broadcasts to `user` as NumPy does. */
f8_read f8_read_of(const f8_type *user, const f8_type *operand);

/* Where a value lies relative to the value whose storage it shares. base is the value itself for
 * one that has storage of its own. Element (r, c) of its matrix is at base element offset + r *
 * stride + c. */
typedef struct f8_view {
    f8_ref base;
    int64_t offset, stride; /* elements */
} f8_view;

/* Views of all nodes, by ref. RESHAPE and SLICE are views where a row stride can express them. */
f8_view *f8_views(const f8_graph *g, f8_arena *arena);

/* Whether the matrix lies in one run of elements. */
static inline bool f8_view_contiguous(const f8_view *v, const f8_type *t)
{
    return v->stride == f8_type_columns(t) || f8_type_rows(t) == 1;
}

/* The node under views (all of which are RESHAPE or SLICE), or under reshapes alone. */
f8_ref f8_below_views(const f8_graph *g, f8_ref r);
f8_ref f8_below_reshapes(const f8_graph *g, f8_ref r);

/* The module variable or caller's port an INPUT node reads; NULL for other nodes. */
const f8_port *f8_input_port(const f8_func *f, f8_ref r);

/* A sum, maximum or amax along the first axis of a matrix ([R, C] -> [.., C]); the others reduce
 * rows. */
bool f8_is_column_reduce(const f8_graph *g, f8_ref r);

/* A QUANTIZE or DEQUANTIZE with a scale for each block of rows and columns: in[1] is read at [row /
 * rows, column / cols]. */
bool f8_has_block_scales(const f8_graph *g, f8_ref r, f8_granularity *grain);

/* A TRANSPOSE of a matrix: rows and columns exchanged, both more than one. */
bool f8_is_matrix_transpose(const f8_graph *g, f8_ref r);

static inline bool f8_is_reduce(f8_op op)
{
    return op == F8_OP_REDUCE_SUM || op == F8_OP_REDUCE_MAX || op == F8_OP_REDUCE_AMAX;
}

#endif
