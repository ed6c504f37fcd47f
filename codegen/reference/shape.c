/* The reference interpreter: leaves, ops that only move elements, and gathers. */
#include <math.h>
#include <string.h>

#include "codegen/reference/interp.h"
#include "ir/num/fp8.h"
#include "ir/rope.h"

/* ---- leaves ---- */

static void store_const(f8_interp *x, double value, f8_rvalue *out)
{
    if (out->type.dtype == F8_F32 && !x->wide)
        *(float *)out->data = (float)value;
    else
        f8_interp_store(x, out, 0, 1, &value);
}

void f8_interp_leaf(f8_interp *x, const f8_graph *g, f8_ref r, f8_rvalue *out)
{
    const f8_op op = f8_at(g, r)->op;
    const int64_t cols = f8_type_columns(&out->type), all = f8_type_elements(&out->type);
    if (op == F8_OP_CONST) {
        store_const(x, f8_attr_f(g, r, F8_A_VALUE), out);
        return;
    }
    const f8_rope frequencies = op == F8_OP_IOTA ? (f8_rope){0} : f8_rope_of(f8_at(g, r));
    for (int64_t i = 0; i < all; i++) {
        if (op == F8_OP_IOTA) {
            ((int32_t *)out->data)[i] = (int32_t)(i % cols);
            continue;
        }
        const double v = f8_rope_entry(op, i / cols, i % cols, cols, &frequencies);
        f8_interp_store(x, out, i, 1, &v);
    }
}

/* ---- moving ---- */

typedef struct mover {
    int rank;
    size_t size;                                                  /* bytes of an element */
    int64_t dim[F8_MAX_RANK], to[F8_MAX_RANK], from[F8_MAX_RANK]; /* strides in elements */
} mover;

static void move_axis(const mover *m, int d, uint8_t *to, const uint8_t *from)
{
    if (d == m->rank) {
        memcpy(to, from, m->size);
        return;
    }
    const ptrdiff_t step_to = (ptrdiff_t)(m->to[d] * (int64_t)m->size);
    const ptrdiff_t step_from = (ptrdiff_t)(m->from[d] * (int64_t)m->size);
    if (d == m->rank - 1 && m->to[d] == 1 && m->from[d] == 1) {
        memcpy(to, from, (size_t)m->dim[d] * m->size);
        return;
    }
    if (d == m->rank - 1 && m->size == 4) { /* the common case gets its own loop */
        for (int64_t i = 0; i < m->dim[d]; i++)
            ((uint32_t *)to)[i * m->to[d]] = ((const uint32_t *)from)[i * m->from[d]];
        return;
    }
    for (int64_t i = 0; i < m->dim[d]; i++)
        move_axis(m, d + 1, to + i * step_to, from + i * step_from);
}

static void strides_of(const f8_type *t, int64_t *stride)
{
    int64_t s = 1;
    for (int d = t->rank - 1; d >= 0; d--) {
        stride[d] = s;
        s *= t->dim[d];
    }
}

/* Copies elements of `in` to out, with strides `from`, from element `start` on. */
static void gather_strided(f8_interp *x, const f8_rvalue *in, int64_t start, const int64_t *from,
                           f8_rvalue *out)
{
    mover m = {.rank = out->type.rank, .size = f8_interp_element(x, out->type.dtype)};
    strides_of(&out->type, m.to);
    for (int d = 0; d < m.rank; d++) {
        m.dim[d] = out->type.dim[d];
        m.from[d] = from[d];
    }
    move_axis(&m, 0, out->data, (const uint8_t *)in->data + start * (int64_t)m.size);
}

static void transpose(f8_interp *x, f8_ints perm, const f8_rvalue *in, f8_rvalue *out)
{
    int64_t own[F8_MAX_RANK], from[F8_MAX_RANK];
    strides_of(&in->type, own);
    for (int d = 0; d < perm.n; d++)
        from[d] = own[perm.v[d]];
    gather_strided(x, in, 0, from, out);
}

static void broadcast(f8_interp *x, const f8_rvalue *in, f8_rvalue *out)
{
    int64_t own[F8_MAX_RANK], from[F8_MAX_RANK] = {0};
    const int shift = out->type.rank - in->type.rank;
    strides_of(&in->type, own);
    for (int d = 0; d < in->type.rank; d++)
        from[d + shift] = in->type.dim[d] == 1 ? 0 : own[d];
    gather_strided(x, in, 0, from, out);
}

static void concat(f8_interp *x, int64_t axis, const f8_rvalue *const *in, uint32_t n,
                   f8_rvalue *out)
{
    mover m = {.rank = out->type.rank, .size = f8_interp_element(x, out->type.dtype)};
    uint8_t *to = out->data;
    strides_of(&out->type, m.to);
    for (uint32_t i = 0; i < n; i++) {
        const f8_type *t = &in[i]->type;
        strides_of(t, m.from);
        memcpy(m.dim, t->dim, sizeof m.dim);
        move_axis(&m, 0, to, in[i]->data);
        to += t->dim[axis] * m.to[axis] * (int64_t)m.size;
    }
}

/* y[c] = x[(c - shift) mod group] within each group of columns */
static void roll(f8_interp *x, int64_t shift, int64_t group, const f8_rvalue *in, f8_rvalue *out)
{
    const size_t size = f8_interp_element(x, out->type.dtype);
    const int64_t groups = f8_type_elements(&out->type) / group;
    const size_t head = (size_t)shift * size, tail = (size_t)(group - shift) * size;
    for (int64_t i = 0; i < groups; i++) {
        const uint8_t *from = (const uint8_t *)in->data + (size_t)(i * group) * size;
        uint8_t *to = (uint8_t *)out->data + (size_t)(i * group) * size;
        memcpy(to + head, from, tail);
        memcpy(to, from + tail, head);
    }
}

void f8_interp_shape(f8_interp *x, const f8_graph *g, f8_ref r, const f8_rvalue *const *in,
                     f8_rvalue *out)
{
    const f8_node *n = f8_at(g, r);
    int64_t own[F8_MAX_RANK];
    strides_of(&in[0]->type, own);
    switch (n->op) {
    case F8_OP_TRANSPOSE: transpose(x, f8_attr_ints(g, r, F8_A_PERM), in[0], out); break;
    case F8_OP_SLICE:
        gather_strided(x, in[0], f8_attr_i(g, r, F8_A_START) * own[f8_attr_i(g, r, F8_A_AXIS)], own,
                       out);
        break;
    case F8_OP_CONCAT: concat(x, f8_attr_i(g, r, F8_A_AXIS), in, n->n_in, out); break;
    case F8_OP_BROADCAST: broadcast(x, in[0], out); break;
    case F8_OP_ROLL:
        roll(x, f8_attr_i(g, r, F8_A_SHIFT), f8_attr_i(g, r, F8_A_GROUP), in[0], out);
        break;
    default: /* RESHAPE, BOUNDARY, STOP_GRADIENT; and PROJECT, whose operand is the result that it names */
        memcpy(out->data, in[0]->data, f8_interp_bytes(x, &out->type));
    }
}

/* ---- gathers ---- */

static void add_row(const f8_interp *x, void *to, const void *from, int64_t n)
{
    for (int64_t c = 0; c < n; c++) {
        if (x->wide)
            ((double *)to)[c] += ((const double *)from)[c];
        else
            ((float *)to)[c] += ((const float *)from)[c];
    }
}

void f8_interp_gather(f8_interp *x, f8_op op, const f8_rvalue *const *in, f8_rvalue *out)
{
    const int64_t rows = in[0]->type.dim[0], n = in[0]->type.dim[1];
    const int64_t count = f8_type_elements(&in[1]->type);
    const size_t row = (size_t)n * f8_interp_element(x, F8_F32);
    uint8_t *to = out->data;
    const bool narrow = in[0]->type.dtype != F8_F32 && !x->wide; /* a table of bf16 */
    if (op == F8_OP_EMBEDDING_GRAD)
        memcpy(to, in[0]->data, (size_t)rows * row);
    for (int64_t i = 0; i < count; i++) {
        const int64_t row_of = in[1]->type.dtype == F8_I64 ? ((const int64_t *)in[1]->data)[i]
                                                           : ((const int32_t *)in[1]->data)[i];
        /* `out` begins with row x->first of the table. Far ids must not overflow. */
        const bool inside = row_of >= x->first && row_of - x->first < rows;
        const int64_t id = inside ? row_of - x->first : 0;
        if (op == F8_OP_EMBEDDING_GRAD) {
            if (inside) /* in order of position */
                add_row(x, to + (size_t)id * row, (const uint8_t *)in[2]->data + (size_t)i * row,
                        n);
        } else if (inside && narrow) {
            double x0;
            for (int64_t c = 0; c < n; c++) {
                f8_interp_load(x, in[0], id * n + c, 1, &x0);
                f8_interp_store(x, out, i * n + c, 1, &x0);
            }
        } else if (inside) {
            memcpy(to + (size_t)i * row, (const uint8_t *)in[0]->data + (size_t)id * row, row);
        } else {
            const double nan = NAN;
            for (int64_t c = 0; c < n; c++)
                f8_interp_store(x, out, i * n + c, 1, &nan);
        }
    }
}
