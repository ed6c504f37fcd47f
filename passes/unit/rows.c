/* Broadcast classes and views: see rows.h. */
#include "passes/unit/rows.h"

/* ---- broadcast classes ---- */

/* The class of an operand with one row: of all columns if wide, else of one element. */
static f8_read_kind one_row(bool wide, const f8_type *user)
{
    if (f8_type_rows(user) == 1 && (wide || f8_type_elements(user) == 1))
        return F8_READ_FULL;
    return wide && f8_type_columns(user) != 1 ? F8_READ_COL : F8_READ_ONE;
}

f8_read f8_read_of(const f8_type *user, const f8_type *operand)
{
    int64_t n[F8_MAX_RANK], o[F8_MAX_RANK];
    const int rank = user->rank, shift = rank - operand->rank;
    if (shift < 0)
        return (f8_read){F8_READ_NONE, 0, 0};
    for (int i = 0; i < rank; i++) {
        n[i] = user->dim[i];
        o[i] = i < shift ? 1 : operand->dim[i - shift];
    }
    const bool wide = rank > 0 && o[rank - 1] == n[rank - 1];
    int first = -1, last = -1; /* leading axes along which the operand varies: [first, last] */
    for (int i = 0; i + 1 < rank; i++)
        if (o[i] != 1) {
            first = first < 0 ? i : first;
            last = i;
        }
    if (first < 0)
        return (f8_read){one_row(wide, user), 0, 0};
    int64_t div = 1, mod = 1;
    for (int i = 0; i + 1 < rank; i++) {
        if (i > last)
            div *= n[i];
        else if (i >= first) {
            if (o[i] != n[i])
                return (f8_read){F8_READ_NONE, 0, 0};
            mod *= n[i];
        }
    }
    if (mod == f8_type_rows(user))
        return (f8_read){wide ? F8_READ_FULL : F8_READ_ROW, 0, 0};
    return (f8_read){F8_READ_PERIODIC, div, mod};
}

/* ---- views ---- */

static int64_t product(const f8_type *t, int from, int to)
{
    int64_t p = 1;
    for (int i = from; i < to; i++)
        p *= t->dim[i];
    return p;
}

static f8_view reshaped(const f8_graph *g, f8_ref r, const f8_view *in)
{
    const f8_type *t = f8_type_of(g, r), *from = f8_type_of(g, g->node[r].in[0]);
    const int64_t cols = f8_type_columns(t);
    if (f8_view_contiguous(in, from))
        return (f8_view){in->base, in->offset, cols};
    if (cols == f8_type_columns(from))
        return (f8_view){in->base, in->offset, in->stride};
    return (f8_view){r, 0, cols};
}

static f8_view sliced(const f8_graph *g, f8_ref r, const f8_view *in)
{
    const f8_type *t = f8_type_of(g, r), *from = f8_type_of(g, g->node[r].in[0]);
    const int64_t cols = f8_type_columns(t);
    int64_t axis = f8_attr_i(g, r, F8_A_AXIS);
    const int64_t start = f8_attr_i(g, r, F8_A_START);
    axis += axis < 0 ? from->rank : 0;
    if (axis == from->rank - 1) /* columns; of a single row, still one run */
        return (f8_view){in->base, in->offset + start, in->stride};
    /* Rows: `inner` of them per index of the axis. */
    const int64_t inner = product(from, (int)axis + 1, from->rank - 1);
    const int64_t offset = in->offset + start * inner * in->stride;
    if (product(from, 0, (int)axis) == 1)
        return (f8_view){in->base, offset, in->stride};
    if (t->dim[axis] == 1 && inner == 1) /* one row out of every dim[axis] */
        return (f8_view){in->base, offset, in->stride * from->dim[axis]};
    return (f8_view){r, 0, cols};
}

f8_view *f8_views(const f8_graph *g, f8_arena *arena)
{
    f8_view *view = F8_NEW_ARRAY(arena, f8_view, g->n_nodes);
    if (!view)
        return NULL;
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        const f8_node *n = &g->node[r];
        if (n->op == F8_OP_RESHAPE)
            view[r] = reshaped(g, r, &view[n->in[0]]);
        else if (n->op == F8_OP_SLICE)
            view[r] = sliced(g, r, &view[n->in[0]]);
        else
            view[r] = (f8_view){r, 0, f8_type_columns(&n->type)};
    }
    return view;
}

f8_ref f8_below_views(const f8_graph *g, f8_ref r)
{
    while (g->node[r].op == F8_OP_RESHAPE || g->node[r].op == F8_OP_SLICE)
        r = g->node[r].in[0];
    return r;
}

f8_ref f8_below_reshapes(const f8_graph *g, f8_ref r)
{
    while (g->node[r].op == F8_OP_RESHAPE)
        r = g->node[r].in[0];
    return r;
}

/* ---- facts of nodes ---- */

const f8_port *f8_input_port(const f8_func *f, f8_ref r)
{
    const f8_node *n = f8_at(f->graph, r);
    if (n->op != F8_OP_INPUT)
        return NULL;
    const int64_t index = f8_attr_i(f->graph, r, F8_A_INDEX);
    return index >= 0 && (size_t)index < f->n_in ? &f->in[index] : NULL;
}

bool f8_is_column_reduce(const f8_graph *g, f8_ref r)
{
    const f8_node *n = f8_at(g, r);
    if (!f8_is_reduce(n->op))
        return false;
    const int64_t axis = f8_attr_i(g, r, F8_A_AXIS);
    const int rank = f8_type_of(g, n->in[0])->rank;
    return rank > 1 && (axis == 0 || axis == -rank);
}

bool f8_has_block_scales(const f8_graph *g, f8_ref r, f8_granularity *grain)
{
    const f8_op op = g->node[r].op;
    return (op == F8_OP_QUANTIZE || op == F8_OP_DEQUANTIZE) &&
           f8_granularity_parse(f8_attr_s(g, r, F8_A_GRANULARITY), grain);
}

bool f8_is_matrix_transpose(const f8_graph *g, f8_ref r)
{
    const f8_node *n = f8_at(g, r);
    return n->op == F8_OP_TRANSPOSE && n->type.rank == 2 && n->type.dim[0] > 1 &&
           n->type.dim[1] > 1 && f8_attr_ints(g, r, F8_A_PERM).v[0] == 1;
}
