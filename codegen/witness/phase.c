/* A row kernel, evaluated some rows at a time, so that the values inside it are never held whole.
 *
 * The kernel's phases (f8_phase) are evaluated in their order. In a phase of [rows, cols], a row of
 * a value depends only on the same row of the values that it is computed from. So the interpreter
 * can evaluate some of the rows, as tensors of their own, and gives the bits that these rows have
 * in the whole value. This holds only for the ops that operand_slice lists, where types allow it:
 *
 * - A value is cut along its first axis of more than one element. Axes before that one have one
 *   element, so a part is contiguous. If more axes follow before the columns ([B, T, C]), a part
 *   has whole slices of the axis (T rows each). The granule is the least number of rows that makes
 *   whole slices of every value.
 * - An operand of a pointwise op is cut if it has the axis along which the result is cut. If it is
 *   broadcast along that axis, it is read whole. So is a table whose rows are chosen by ids.
 * - A reduction along the last axis stays inside a row. A reduction of blocks of rows, along the
 *   first axis, takes whole blocks. Scales of blocks of rows are cut between these blocks.
 * - Indices of elements (IOTA, the tables of ROPE) are values, too. They are computed whole and
 *   then cut, so no op needs to know where its part begins. Random bits are computed from them.
 * - All other nodes need more than their own rows: a transpose, for instance, or a reduction along
 *   other axes. Such a node is evaluated whole at the end of the phase, if no node of the phase
 *   reads it. If one does, the whole phase is one part.
 *
 * A flat phase has one row of all elements. There each element counts as a row.
 *
 * As soon as a part is computed, it is compared with what the group has written. After its last use
 * in the phase it is dropped. A value that a later phase reads is put together from its parts.
 * While these have the bits that the group has written, the group's own memory serves instead. */
#include "codegen/witness/parts.h"

#include <string.h>

#include "codegen/reference/reference.h"
#include "ir/num/granularity.h"

enum { PART_BYTES = 64 << 10 }; /* of the largest value of a phase; several are alive at once */

typedef struct rows {
    f8_witness *w;
    const f8_group *group;
    const f8_phase *phase;
    f8_diag *diag;
    bool flat;
    int64_t length;   /* rows of the phase; elements of a flat one */
    int64_t granule;  /* parts have a multiple of it, but for the last */
    int64_t first, n; /* the part that is evaluated: rows [first, first + n) */
} rows;

/* How a value is cut for a part. One index of `axis` stands for `unit` rows of the phase, and has
 * `bytes` bytes. axis -1: a part has the type of the whole. unit 0: the value is read whole. */
typedef struct slice {
    int axis;
    int64_t unit, bytes;
} slice;

static f8_witness_value *value_of(const rows *p, f8_ref r)
{
    return &p->w->state->value[r];
}

/* ---- types ---- */

/* The first axis of more than one element; -1: there is none. */
static int axis_of(const f8_type *t)
{
    for (int d = 0; d < t->rank; d++)
        if (t->dim[d] > 1)
            return d;
    return -1;
}

/* Whether it has an element, or a row, for each row of the phase. */
static bool has_rows(const rows *p, const f8_type *t)
{
    return p->length > 1 && (p->flat ? f8_type_elements(t) : f8_type_rows(t)) == p->length;
}

static slice along(const rows *p, const f8_type *t, int axis)
{
    return (slice){axis, p->length / t->dim[axis], f8_type_bytes(t) / t->dim[axis]};
}

static slice own(const rows *p, const f8_type *t)
{
    return along(p, t, axis_of(t));
}

static f8_type cut(const rows *p, const f8_type *t, const slice *s)
{
    f8_type part = *t;
    if (s->unit && s->axis >= 0)
        part.dim[s->axis] = (p->n + s->unit - 1) / s->unit;
    return part;
}

/* How the result of a node is cut into parts. */
static slice result_slice(const rows *p, f8_ref r)
{
    const f8_graph *g = p->w->state->g;
    const f8_type *t = f8_type_of(g, r);
    if (value_of(p, r)->way != F8_WITNESS_BLOCKS)
        return own(p, t);
    const slice of = own(p, f8_type_of(g, f8_at(g, r)->in[0]));
    return (slice){0, of.unit * f8_attr_i(g, r, F8_A_BLOCK), f8_type_bytes(t) / t->dim[0]};
}

/* ---- what an op reads of an operand for some rows of its result ---- */

/* The slice of an operand that broadcasts to the result: the last axes of both are aligned. Axes
 * before the one that is cut have one element in both. */
static slice aligned(const rows *p, const f8_type *result, const f8_type *t)
{
    const int d = axis_of(result), axis = d - (result->rank - t->rank);
    if (axis < 0 || t->dim[axis] == 1)
        return (slice){-1, 0, 0};
    return along(p, t, axis);
}

static bool scale_slice(const rows *p, f8_ref r, slice *out)
{
    f8_granularity grain;
    const f8_graph *g = p->w->state->g;
    const f8_node *n = f8_at(g, r);
    const f8_type *like = f8_type_of(g, n->in[0]), *t = f8_type_of(g, n->in[1]);
    if (!f8_granularity_parse(f8_attr_s(g, r, F8_A_GRANULARITY), &grain)) {
        *out = aligned(p, &n->type, t);
        return true;
    }
    const int64_t stride = f8_granularity_columns(grain, like) * (int64_t)f8_dtype_size(t->dtype);
    *out = (slice){-1, grain.rows, stride};
    if (p->flat)
        return grain.rows == 0 && grain.cols == 0;
    if (grain.rows == 1 && has_rows(p, t))
        *out = own(p, t); /* it may be computed in the phase */
    return grain.rows > 0 || value_of(p, n->in[1])->way != F8_WITNESS_ROWS;
}

static bool is_last_axis(const f8_graph *g, f8_ref r, const f8_type *t)
{
    return t->rank > 1 && f8_attr_i(g, r, F8_A_AXIS) == t->rank - 1 &&
           f8_attr_ints(g, r, F8_A_AXES).n == 0;
}

/* The slice of operand k that a part of node r reads. r has a row for each row of the phase. False:
 * a part of r needs more of the operand than its own rows. */
static bool operand_slice(const rows *p, f8_ref r, uint32_t k, slice *out)
{
    const f8_graph *g = p->w->state->g;
    const f8_node *n = f8_at(g, r);
    const f8_type *t = f8_type_of(g, n->in[k]);
    *out = (slice){-1, 0, 0};
    if (f8_op_facts(n->op)->cls == F8_POINTWISE || n->op == F8_OP_BROADCAST) {
        *out = aligned(p, &n->type, t);
        return true;
    }
    if ((n->op == F8_OP_QUANTIZE || n->op == F8_OP_DEQUANTIZE) && k == 1)
        return scale_slice(p, r, out);
    if (n->op == F8_OP_EMBEDDING && !p->flat) {
        const int d = axis_of(&n->type);
        const f8_type *ids = f8_type_of(g, n->in[1]);
        if (k == 1)
            *out = along(p, ids, d);
        return ids->rank == n->type.rank - 1 && d < ids->rank && ids->dim[d] == n->type.dim[d];
    }
    if (!has_rows(p, t))
        return false;
    *out = own(p, t);
    switch (n->op) {
    case F8_OP_RESHAPE:
    case F8_OP_BOUNDARY:
    case F8_OP_QUANTIZE:
    case F8_OP_DEQUANTIZE: return true;
    case F8_OP_ROLL: return !p->flat;
    case F8_OP_REDUCE_SUM:
    case F8_OP_REDUCE_MAX:
    case F8_OP_REDUCE_AMAX:
    case F8_OP_SLICE:
    case F8_OP_CONCAT: return !p->flat && is_last_axis(g, r, t);
    default: return false;
    }
}

/* Whether the node is a reduction of blocks of rows. */
static bool makes_blocks(const rows *p, f8_ref r)
{
    const f8_graph *g = p->w->state->g;
    const f8_node *n = f8_at(g, r);
    if (f8_op_facts(n->op)->cls != F8_REDUCE || p->flat)
        return false;
    const f8_type *t = f8_type_of(g, n->in[0]);
    const int64_t block = f8_attr_i(g, r, F8_A_BLOCK);
    return t->rank > 1 && f8_attr_i(g, r, F8_A_AXIS) == 0 && f8_attr_ints(g, r, F8_A_AXES).n == 0 &&
           block > 0 && has_rows(p, t) && axis_of(t) == 0 && n->type.rank == t->rank &&
           n->type.dim[0] == (t->dim[0] + block - 1) / block &&
           f8_type_elements(&n->type) / n->type.dim[0] == f8_type_elements(t) / t->dim[0];
}

/* ---- planning a phase ---- */

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y) {
        const int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

static bool suits(rows *p, const slice *s, const f8_type *t)
{
    if (s->unit == 0)
        return true;
    if (s->axis >= 0 && p->length % t->dim[s->axis])
        return false;
    p->granule = common_multiple(p->granule, s->unit);
    return true;
}

/* Whether the node can be computed from parts of its operands. */
static bool reads_parts(rows *p, f8_ref r)
{
    const f8_graph *g = p->w->state->g;
    const f8_node *n = f8_at(g, r);
    for (uint32_t k = 0; k < n->n_in; k++) {
        slice s;
        const f8_type *t = f8_type_of(g, n->in[k]);
        const f8_witness_way way = value_of(p, n->in[k])->way;
        if (value_of(p, r)->way == F8_WITNESS_BLOCKS)
            s = own(p, t);
        else if (!operand_slice(p, r, k, &s))
            return false;
        const slice cuts = way == F8_WITNESS_ROWS ? own(p, t) : s;
        if (way == F8_WITNESS_BLOCKS || way == F8_WITNESS_LAST || s.axis != cuts.axis ||
            s.unit != cuts.unit || !suits(p, &s, t))
            return false;
    }
    return true;
}

static bool reads_rows(const rows *p, const f8_node *n)
{
    for (uint32_t k = 0; k < n->n_in; k++)
        if (value_of(p, n->in[k])->way > F8_WITNESS_ONCE)
            return true;
    return false;
}

/* Chooses how a node is evaluated. False: the phase must be one part. */
static bool choose_way(rows *p, f8_ref r)
{
    const f8_node *n = f8_at(p->w->state->g, r);
    f8_witness_value *v = value_of(p, r);
    v->way = makes_blocks(p, r)                     ? F8_WITNESS_BLOCKS
             : n->n_in > 0 && has_rows(p, &n->type) ? F8_WITNESS_ROWS
             : reads_rows(p, n)                     ? F8_WITNESS_LAST
                                                    : F8_WITNESS_ONCE;
    if (v->way == F8_WITNESS_ONCE)
        return true;
    if (v->way == F8_WITNESS_ROWS || v->way == F8_WITNESS_BLOCKS) {
        const slice s = result_slice(p, r);
        if (v->way == F8_WITNESS_BLOCKS) /* the last block may be short */
            p->granule = common_multiple(p->granule, s.unit);
        else if (!suits(p, &s, &n->type))
            return false;
        if (reads_parts(p, r))
            return true;
        v->way = F8_WITNESS_LAST;
    }
    for (uint32_t k = 0; k < n->n_in; k++) { /* it needs them whole */
        f8_witness_value *in = value_of(p, n->in[k]);
        if (in->way == F8_WITNESS_LAST)
            return false;
        in->whole |= in->way > F8_WITNESS_ONCE;
    }
    return v->last == 0;
}

static void plan_phase(rows *p)
{
    const struct f8_witness_state *s = p->w->state;
    const f8_phase *phase = p->phase;
    bool parts = true;
    p->flat = phase->rows == 1;
    p->length = p->flat ? phase->cols : phase->rows;
    p->granule = 1;
    for (uint32_t i = 0; i < s->n_refs; i++) {
        f8_witness_value *v = value_of(p, s->ref[i]);
        v->way = F8_WITNESS_NOT;
        v->last = 0;
        v->whole = v->kept && !v->data;
    }
    for (uint32_t i = 0; i < phase->n_nodes; i++)
        for (uint32_t k = 0; k < f8_at(s->g, phase->node[i])->n_in; k++)
            value_of(p, f8_at(s->g, phase->node[i])->in[k])->last = phase->node[i];
    for (uint32_t i = 0; i < phase->n_nodes && parts; i++)
        parts = choose_way(p, phase->node[i]);
    for (uint32_t i = 0; i < phase->n_nodes && !parts; i++)
        value_of(p, phase->node[i])->way = F8_WITNESS_ONCE;
}

/* How many rows a part has. */
static int64_t rows_at_once(const rows *p)
{
    int64_t most = 1;
    for (uint32_t i = 0; i < p->phase->n_nodes; i++) {
        const int64_t bytes = f8_type_bytes(f8_type_of(p->w->state->g, p->phase->node[i]));
        if (value_of(p, p->phase->node[i])->way == F8_WITNESS_ROWS && bytes > most)
            most = bytes;
    }
    const int64_t granules = PART_BYTES / (most / p->length + 1) / p->granule;
    return p->granule * (granules > 1 ? granules : 1);
}

/* ---- evaluating ---- */

/* What the group has written as r. NULL: this phase does not write it, or a later one has written
 * over it. */
static f8_witness_seen *seen_of(const rows *p, f8_ref r)
{
    struct f8_witness_state *s = p->w->state;
    if (!f8_listed(p->phase->out, p->phase->n_out, r))
        return NULL;
    for (uint32_t i = 0; i < s->n_seen; i++)
        if (p->group->out[i] == r)
            return s->seen[i].data ? &s->seen[i] : NULL;
    return NULL;
}

/* Compares some elements of r, from `first` on, with what the group has written. */
static void judge(const rows *p, f8_ref r, const f8_type *t, int64_t first, const void *want)
{
    f8_witness_seen *seen = seen_of(p, r);
    if (seen)
        f8_witness_judge(seen, t, first, want);
}

/* Computes a whole value from whole operands. Operands that are not there are computed first. */
static f8_status compute_whole(const rows *p, f8_ref r)
{
    const f8_node *n = f8_at(p->w->state->g, r);
    for (uint32_t k = 0; k < n->n_in; k++)
        if (!value_of(p, n->in[k])->data)
            F8_TRY(compute_whole(p, n->in[k]));
    return f8_witness_compute_one(p->w, r, p->diag);
}

static bool is_kept(const rows *p, f8_ref r)
{
    const f8_witness_value *v = value_of(p, r);
    return v->kept || !v->phase;
}

/* Evaluates and judges the nodes of the phase whose way is `way`, ONCE or LAST. `drops`: values
 * that no other node of the phase reads any more are dropped, unless a later phase reads them. */
static f8_status run_whole(const rows *p, f8_witness_way way, bool drops)
{
    const f8_graph *g = p->w->state->g;
    for (uint32_t i = 0; i < p->phase->n_nodes; i++) {
        const f8_ref r = p->phase->node[i];
        const f8_node *n = f8_at(g, r);
        if (value_of(p, r)->way != way)
            continue;
        if (!value_of(p, r)->data)
            F8_TRY(compute_whole(p, r));
        judge(p, r, &n->type, 0, value_of(p, r)->data);
        for (uint32_t k = 0; drops && k < n->n_in; k++)
            if (value_of(p, n->in[k])->last == r && !is_kept(p, n->in[k]))
                f8_witness_drop(p->w, n->in[k]);
        if (drops && !value_of(p, r)->last && !is_kept(p, r))
            f8_witness_drop(p->w, r);
    }
    return F8_OK;
}

/* Before the first part: computes the operands that parts read from outside the phase, and takes
 * memory for values that are put together. */
static f8_status prepare(const rows *p)
{
    const f8_graph *g = p->w->state->g;
    for (uint32_t i = 0; i < p->phase->n_nodes; i++) {
        const f8_ref r = p->phase->node[i];
        const f8_node *n = f8_at(g, r);
        f8_witness_value *v = value_of(p, r);
        if (v->way < F8_WITNESS_ROWS)
            continue;
        for (uint32_t k = 0; k < n->n_in; k++)
            if (value_of(p, n->in[k])->way == F8_WITNESS_NOT && !value_of(p, n->in[k])->data)
                F8_TRY(compute_whole(p, n->in[k]));
        if (!v->whole || v->way == F8_WITNESS_LAST || v->data || seen_of(p, r))
            continue;
        v->data = f8_witness_room(p->w, &n->type, p->diag);
        if (!v->data)
            return F8_ERR_MEMORY;
    }
    return F8_OK;
}

/* Adds a part to a value that is needed whole. While all parts so far have the bits that the group
 * has written, the group's memory stands for them, and no other is taken. */
static f8_status put_together(const rows *p, f8_ref r, int64_t at, const f8_type *part)
{
    f8_witness_value *v = value_of(p, r);
    const f8_witness_seen *seen = v->data ? NULL : seen_of(p, r);
    const size_t bytes = (size_t)f8_type_bytes(part);
    if (!v->owned || (seen && !memcmp((const char *)seen->data + at, v->part, bytes)))
        return F8_OK;
    if (!v->data)
        v->data = f8_witness_room(p->w, &seen->type, p->diag);
    if (!v->data)
        return F8_ERR_MEMORY;
    if (seen)
        memcpy(v->data, seen->data, (size_t)at);
    memcpy((char *)v->data + at, v->part, bytes);
    return F8_OK;
}

/* Values whose parts all had the bits that the group has written are read where it wrote them. */
static void take_seen(const rows *p)
{
    for (uint32_t i = 0; i < p->phase->n_nodes; i++) {
        f8_witness_value *v = value_of(p, p->phase->node[i]);
        if (!v->whole || v->data || v->way == F8_WITNESS_LAST)
            continue;
        v->data = seen_of(p, p->phase->node[i])->data;
        v->borrowed = true;
    }
}

/* The operand of a node for the part, and its type. */
static const void *operand_of(const rows *p, f8_ref r, uint32_t k, f8_type *type)
{
    const f8_graph *g = p->w->state->g;
    const f8_ref in = f8_at(g, r)->in[k];
    const f8_witness_value *v = value_of(p, in);
    slice s;
    if (value_of(p, r)->way == F8_WITNESS_BLOCKS)
        s = own(p, f8_type_of(g, in));
    else
        operand_slice(p, r, k, &s);
    *type = cut(p, f8_type_of(g, in), &s);
    if (v->way == F8_WITNESS_ROWS)
        return v->part;
    return (const char *)v->data + (s.unit ? p->first / s.unit * s.bytes : 0);
}

static void drop_part(const rows *p, f8_ref r)
{
    f8_witness_value *v = value_of(p, r);
    const slice s = result_slice(p, r);
    const f8_type t = cut(p, f8_type_of(p->w->state->g, r), &s);
    if (v->owned)
        f8_witness_free(p->w, &t, v->part);
    v->part = NULL;
}

static f8_status compute_part(const rows *p, f8_ref r)
{
    const f8_graph *g = p->w->state->g;
    const f8_node *n = f8_at(g, r);
    const void **operand = p->w->state->operand;
    f8_type *in = p->w->state->operand_type;
    f8_witness_value *v = value_of(p, r);
    const slice s = result_slice(p, r);
    const f8_type out = cut(p, &n->type, &s);
    const int64_t at = p->first / s.unit * s.bytes;
    int64_t nonfinite;
    for (uint32_t k = 0; k < n->n_in; k++)
        operand[k] = operand_of(p, r, k, &in[k]);
    v->owned = !v->whole || !v->data || v->borrowed;
    v->part = v->owned ? f8_witness_room(p->w, &out, p->diag) : (char *)v->data + at;
    if (!v->part)
        return F8_ERR_MEMORY;
    const f8_part part = {.in = in, .out = &out};
    F8_TRY(f8_reference_part(g, r, &part, operand, &v->part, &p->w->state->allocator, p->diag));
    v->nonfinite |= f8_witness_nonfinite(&out, v->part, &nonfinite) > 0;
    judge(p, r, &out, at / (int64_t)f8_dtype_size(out.dtype), v->part);
    return v->whole && !v->borrowed ? put_together(p, r, at, &out) : F8_OK;
}

static f8_status run_part(const rows *p)
{
    const f8_graph *g = p->w->state->g;
    f8_status status = F8_OK;
    for (uint32_t i = 0; i < p->phase->n_nodes && status == F8_OK; i++) {
        const f8_ref r = p->phase->node[i];
        const f8_node *n = f8_at(g, r);
        const f8_witness_way way = value_of(p, r)->way;
        if (way != F8_WITNESS_ROWS && way != F8_WITNESS_BLOCKS)
            continue;
        status = compute_part(p, r);
        for (uint32_t k = 0; k < n->n_in; k++)
            if (value_of(p, n->in[k])->part && value_of(p, n->in[k])->last == r)
                drop_part(p, n->in[k]);
        if (status == F8_OK && !value_of(p, r)->last)
            drop_part(p, r);
    }
    /* what is left: after a failure, or for nodes that are evaluated at the end */
    for (uint32_t i = 0; i < p->phase->n_nodes; i++)
        if (value_of(p, p->phase->node[i])->part)
            drop_part(p, p->phase->node[i]);
    return status;
}

static bool has_parts(const rows *p)
{
    for (uint32_t i = 0; i < p->phase->n_nodes; i++)
        if (value_of(p, p->phase->node[i])->way > F8_WITNESS_ONCE)
            return true;
    return false;
}

static f8_status run_phase(rows *p)
{
    plan_phase(p);
    const bool parts = has_parts(p);
    F8_TRY(run_whole(p, F8_WITNESS_ONCE, !parts));
    if (parts) {
        const int64_t step = rows_at_once(p);
        F8_TRY(prepare(p));
        for (p->first = 0; p->first < p->length; p->first += step) {
            p->n = p->length - p->first < step ? p->length - p->first : step;
            F8_TRY(run_part(p));
            f8_witness_unload(p->w);
        }
        take_seen(p);
        F8_TRY(run_whole(p, F8_WITNESS_LAST, false));
    }
    for (uint32_t i = 0; i < p->phase->n_nodes; i++)
        if (!is_kept(p, p->phase->node[i]))
            f8_witness_drop(p->w, p->phase->node[i]);
    return F8_OK;
}

/* ---- a group ---- */

static bool is_in(const f8_phase *phase, f8_ref r)
{
    return f8_listed(phase->node, phase->n_nodes, r);
}

/* Marks a value that phase `now` reads and does not compute: the phase that computes it keeps it.
 * False: no earlier phase computes it. */
static bool keep(f8_witness *w, f8_ref r, uint32_t now)
{
    f8_witness_value *v = &w->state->value[r];
    const f8_node *n = f8_at(w->state->g, r);
    if (!v->inside)
        return true;
    v->kept |= v->phase != 0;
    for (uint32_t k = 0; !v->phase && k < n->n_in; k++)
        if (!keep(w, n->in[k], now))
            return false;
    return v->phase < now;
}

bool f8_witness_has_rows(f8_witness *w, const f8_group *group)
{
    struct f8_witness_state *s = w->state;
    if (group->kind != F8_GROUP_ROWS)
        return false;
    for (uint32_t p = group->n_phases; p-- > 0;)
        for (uint32_t i = 0; i < group->phase[p].n_nodes; i++)
            s->value[group->phase[p].node[i]].phase = p + 1;
    for (uint32_t p = 0; p < group->n_phases; p++)
        for (uint32_t i = 0; i < group->phase[p].n_nodes; i++) {
            const f8_node *n = f8_at(s->g, group->phase[p].node[i]);
            if (f8_op_facts(n->op)->results != 1)
                return false;
            for (uint32_t k = 0; k < n->n_in; k++)
                if (!is_in(&group->phase[p], n->in[k]) && !keep(w, n->in[k], p + 1))
                    return false;
        }
    return true;
}

f8_status f8_witness_judge_rows(f8_witness *w, const f8_group *group, f8_diag *diag)
{
    rows p = {.w = w, .group = group, .diag = diag};
    for (uint32_t i = 0; i < group->n_phases; i++) {
        p.phase = &group->phase[i];
        F8_TRY(run_phase(&p));
    }
    return F8_OK;
}
