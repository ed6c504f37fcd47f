/* An independent judge of lowered functions: see program_check.h. */
#include "tests/shared/passes/program_check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PHASES = 64 }; /* moments a group spans */

/* Rows of `bytes`, `step` apart, from `low` in one space. */
typedef struct region {
    int space, port;
    int64_t low, step, bytes, rows;
} region;

typedef struct write_event {
    f8_ref value;
    int64_t time;
    region at;
} write_event;

typedef struct judge {
    const f8_func *f;
    const f8_graph *g;
    const f8_lowered *p;
    f8_diag *diag;
    int64_t *written; /* by ref: time of the write, 0 = before the start, -1 = never */
    write_event *event;
    size_t n_events, room;
    int64_t end;
} judge;

static f8_status fault(judge *j, f8_ref r, const char *what, f8_ref other)
{
    return f8_fail(j->diag, F8_ERR_INTERNAL, F8_NOWHERE, "%s: %%%u (%s %s): %s (%%%u)", j->f->name,
                   r, f8_op_facts(j->g->node[r].op)->name, j->g->name[r] ? j->g->name[r] : "", what,
                   other);
}

/* ---- regions ---- */

/* At its own place a value has its padding, which is written and read with it. */
static region region_of(const judge *j, f8_ref r, const f8_place *at)
{
    const f8_type *t = f8_type_of(j->g, r);
    const f8_pad none = {0}, *pad = at == &j->p->place[r] ? &j->p->pad[r] : &none;
    const int64_t size = (int64_t)f8_dtype_size(t->dtype);
    region a = {at->space,
                at->port,
                at->offset,
                at->stride * size,
                (f8_type_columns(t) + pad->cols) * size,
                f8_type_rows(t) + pad->rows};
    if (at->space == F8_SPACE_ARENA || at->space == F8_SPACE_STATE || at->space == F8_SPACE_CONST)
        a.port = -1;
    if (a.rows == 1 || a.step == a.bytes) {
        a.bytes *= a.rows;
        a.step = a.bytes;
        a.rows = 1;
    }
    return a;
}

static int64_t high_of(const region *a)
{
    return a->low + (a->rows - 1) * a->step + a->bytes;
}

static bool overlap(const region *a, const region *b)
{
    if (a->space != b->space || a->port != b->port || high_of(a) <= b->low || high_of(b) <= a->low)
        return false;
    for (int64_t i = 0; i < a->rows; i++) {
        const int64_t low = a->low + i * a->step, high = low + a->bytes;
        if (high <= b->low || low >= high_of(b))
            continue;
        int64_t k = (low - b->low) / b->step;
        for (k = k > 0 ? k - 1 : 0; k < b->rows && b->low + k * b->step < high; k++)
            if (b->low + k * b->step + b->bytes > low)
                return true;
    }
    return false;
}

static bool same_region(const region *a, const region *b)
{
    return a->space == b->space && a->port == b->port && a->low == b->low && a->step == b->step &&
           a->bytes == b->bytes && a->rows == b->rows;
}

/* ---- views ---- */

static void unflatten(const f8_type *t, int64_t flat, int64_t *index)
{
    for (int i = t->rank - 1; i >= 0; i--) {
        index[i] = flat % t->dim[i];
        flat /= t->dim[i];
    }
}

/* Element `flat` of view r as an element of the value below it that has been written; *r moves
 * there. */
static int64_t element_below(const judge *j, f8_ref *r, int64_t flat)
{
    while (j->written[*r] < 0) {
        const f8_node *n = f8_at(j->g, *r);
        if (n->op == F8_OP_SLICE) {
            int64_t index[F8_MAX_RANK] = {0}, axis = f8_attr_i(j->g, *r, F8_A_AXIS);
            const f8_type *from = f8_type_of(j->g, n->in[0]);
            unflatten(&n->type, flat, index);
            index[axis < 0 ? axis + from->rank : axis] += f8_attr_i(j->g, *r, F8_A_START);
            flat = 0;
            for (int i = 0; i < from->rank; i++)
                flat = flat * from->dim[i] + index[i];
        } else if (n->op != F8_OP_RESHAPE) {
            return -1;
        }
        *r = n->in[0];
    }
    return flat;
}

static int64_t address(const judge *j, f8_ref r, int64_t flat)
{
    const f8_type *t = f8_type_of(j->g, r);
    const f8_place *p = &j->p->place[r];
    const int64_t cols = f8_type_columns(t);
    return p->offset + (flat / cols * p->stride + flat % cols) * (int64_t)f8_dtype_size(t->dtype);
}

static f8_status check_view(judge *j, f8_ref r, f8_ref *base)
{
    const int64_t n = f8_type_elements(f8_type_of(j->g, r));
    for (int i = 0; i < 24; i++) {
        const int64_t flat = i == 0   ? 0
                             : i == 1 ? n - 1
                                      : (int64_t)((uint64_t)i * 0x9e3779b97f4a7c15u >> 20) % n;
        f8_ref below = r;
        const int64_t element = element_below(j, &below, flat);
        if (element < 0)
            return fault(j, r, "is read but never written", below);
        *base = below;
        const f8_place *a = &j->p->place[r], *b = &j->p->place[below];
        if (a->space == F8_SPACE_NONE || a->space != b->space || a->port != b->port ||
            address(j, r, flat) != address(j, below, element))
            return fault(j, r, "does not lie where its elements do", below);
    }
    return F8_OK;
}

/* ---- events ---- */

static f8_status add_write(judge *j, f8_ref r, int64_t time, region at)
{
    if (j->n_events == j->room) {
        const size_t room = j->room ? 2 * j->room : 256;
        write_event *grown = realloc(j->event, room * sizeof *grown);
        if (!grown)
            return F8_ERR_MEMORY;
        j->event = grown;
        j->room = room;
    }
    j->event[j->n_events++] = (write_event){r, time, at};
    return F8_OK;
}

/* Where operand i of concatenation c belongs. */
static f8_place part_place(const judge *j, f8_ref c, uint32_t which)
{
    const f8_node *n = f8_at(j->g, c);
    const int64_t size = (int64_t)f8_dtype_size(n->type.dtype);
    int64_t axis = f8_attr_i(j->g, c, F8_A_AXIS), outer = 1, at = 0;
    axis += axis < 0 ? n->type.rank : 0;
    for (int i = 0; i < axis; i++)
        outer *= n->type.dim[i];
    f8_place p = j->p->place[c];
    if (outer > 1 && axis != n->type.rank - 1)
        return (f8_place){0};
    for (uint32_t i = 0; i < which; i++) {
        const f8_type *t = f8_type_of(j->g, n->in[i]);
        at += axis == n->type.rank - 1 ? t->dim[axis] : f8_type_rows(t) * p.stride;
    }
    p.offset += at * size;
    if (outer == 1 && axis == n->type.rank - 1)
        p.stride = f8_type_columns(f8_type_of(j->g, n->in[which]));
    return p;
}

/* The value that was written, under reshapes that see it as `r`. */
static f8_ref written_as(const judge *j, f8_ref r)
{
    while (j->written[r] < 0 && f8_at(j->g, r)->op == F8_OP_RESHAPE)
        r = f8_at(j->g, r)->in[0];
    return r;
}

static bool is_inside(const judge *j, f8_ref c, uint32_t i)
{
    const f8_ref r = f8_at(j->g, c)->in[i];
    const f8_place want = part_place(j, c, i);
    if (want.space == F8_SPACE_NONE || j->written[written_as(j, r)] <= 0)
        return false;
    const region a = region_of(j, r, &want), b = region_of(j, r, &j->p->place[r]);
    return same_region(&a, &b);
}

static f8_status note_writes(judge *j)
{
    for (uint32_t i = 0; i < j->p->n_groups; i++) {
        const f8_group *group = &j->p->group[j->p->order[i]];
        const uint32_t n_phases = group->kind == F8_GROUP_ROWS ? group->n_phases : 1;
        for (uint32_t q = 0; q < n_phases; q++) {
            const bool rows = group->kind == F8_GROUP_ROWS;
            const f8_ref *out = rows ? group->phase[q].out : group->out;
            const uint32_t n_out = rows ? group->phase[q].n_out : group->n_out;
            for (uint32_t k = 0; k < n_out; k++) {
                if (j->written[out[k]] >= 0)
                    return fault(j, out[k], "is written twice", 0);
                if (j->p->place[out[k]].space == F8_SPACE_NONE)
                    return fault(j, out[k], "is written nowhere", 0);
                j->written[out[k]] = 1 + (int64_t)i * PHASES + q;
            }
        }
    }
    for (f8_ref r = 1; r < j->g->n_nodes; r++) {
        if (j->written[r] <= 0)
            continue;
        if (j->g->node[r].op != F8_OP_CONCAT) {
            const f8_status s = add_write(j, r, j->written[r], region_of(j, r, &j->p->place[r]));
            if (s != F8_OK)
                return s;
            continue;
        }
        for (uint32_t i = 0; i < j->g->node[r].n_in; i++)
            if (!is_inside(j, r, i)) {
                f8_place at = part_place(j, r, i);
                const f8_ref part = at.space ? j->g->node[r].in[i] : r;
                at = at.space ? at : j->p->place[r];
                const f8_status s = add_write(j, r, j->written[r], region_of(j, part, &at));
                if (s != F8_OK)
                    return s;
            }
    }
    return F8_OK;
}

/* ---- reads ---- */

/* How the reader at `time` may share its moment with a write over what it reads. */
typedef struct reading {
    int64_t time;
    const f8_group *group; /* NULL at the end */
    const f8_phase *phase; /* ROWS */
    f8_ref user;
    uint32_t operand;
} reading;

static bool may_share_moment(const judge *j, const reading *by, f8_ref read, const write_event *w)
{
    if (!by->group)
        return false;
    const f8_node *n = f8_at(j->g, by->user);
    if (by->group->kind == F8_GROUP_GEMM) /* as the accumulator; no bias */
        return by->operand == f8_gemm_added(n->op) && f8_gemm_operands_of(n).acc == read;
    if (by->group->kind == F8_GROUP_SCATTER)
        return by->operand == 0;
    if (!by->phase)
        return false;
    const region a = region_of(j, read, &j->p->place[read]);
    return same_region(&a, &w->at) && j->g->node[w->value].op != F8_OP_TRANSPOSE &&
           n->op != F8_OP_ROLL && n->op != F8_OP_EMBEDDING &&
           f8_dtype_size(f8_type_of(j->g, read)->dtype) ==
               f8_dtype_size(f8_type_of(j->g, w->value)->dtype);
}

/* What is at `at` at the time must be what `value` put there. */
static f8_status check_intact(judge *j, f8_ref value, const region *at, f8_ref read,
                              const reading *by)
{
    const int64_t since = j->written[value];
    if (since >= by->time)
        return fault(j, value, "is read before it is written, by", by->user);
    for (size_t i = 0; i < j->n_events; i++) {
        const write_event *w = &j->event[i];
        if (w->time < since || w->time > by->time || w->value == value || !overlap(&w->at, at))
            continue;
        if (w->time == by->time && may_share_moment(j, by, read, w))
            continue;
        return fault(j, value, "is overwritten before it is read by %, by", w->value);
    }
    return F8_OK;
}

static f8_status check_content(judge *j, f8_ref value, f8_ref read, const reading *by)
{
    const f8_node *n = f8_at(j->g, value);
    if (n->op != F8_OP_CONCAT || j->written[value] <= 0) {
        const region at = region_of(j, read, &j->p->place[read]);
        return check_intact(j, value, &at, read, by);
    }
    if (j->written[value] >= by->time)
        return fault(j, value, "is read before it is whole", by->user);
    for (uint32_t i = 0; i < n->n_in; i++) {
        f8_status s;
        if (is_inside(j, value, i)) {
            const f8_ref part = written_as(j, n->in[i]);
            s = check_content(j, part, part, by);
        } else {
            f8_place place = part_place(j, value, i);
            const f8_ref part = place.space ? n->in[i] : value;
            const region at = region_of(j, part, place.space ? &place : &j->p->place[value]);
            s = check_intact(j, value, &at, read, by);
        }
        if (s != F8_OK)
            return s;
    }
    return F8_OK;
}

static f8_status check_read(judge *j, f8_ref read, const reading *by)
{
    f8_ref base = read;
    const f8_status s = check_view(j, read, &base);
    return s == F8_OK ? check_content(j, base, read, by) : s;
}

/* ---- phases ---- */

static bool in_list(const f8_ref *list, uint32_t n, f8_ref r)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == r)
            return true;
    return false;
}

/* Sums come in blocks of 64 rows, magnitudes in blocks of a power of two up to that; all of few
 * rows are one block. */
static bool reduces_columns(const judge *j, const f8_phase *p, f8_ref r)
{
    const f8_op op = j->g->node[r].op;
    const f8_type *t = f8_type_of(j->g, r);
    const int64_t named = op == F8_OP_REDUCE_AMAX ? f8_attr_i(j->g, r, F8_A_BLOCK) : 0;
    const int64_t block = named ? named : 64;
    return (op == F8_OP_REDUCE_SUM || op == F8_OP_REDUCE_AMAX) && f8_type_columns(t) == p->cols &&
           block <= 64 && !(block & (block - 1)) &&
           f8_type_rows(t) == (p->rows + block - 1) / block;
}

/* One for each block of columns, of 16, 32, ... 256. */
static bool is_of_blocks(const f8_phase *p, int64_t rows, int64_t cols)
{
    for (int64_t block = 16; block <= 256 && cols > 1; block *= 2)
        if (cols == (p->cols + block - 1) / block)
            return rows == p->rows || rows == 1;
    return false;
}

static f8_status check_shape(judge *j, const f8_phase *p, f8_ref r)
{
    const f8_type *t = f8_type_of(j->g, r);
    const int64_t rows = f8_type_rows(t), cols = f8_type_columns(t), all = rows * cols;
    const bool fits =
        is_of_blocks(p, rows, cols) || (rows == p->rows && (cols == p->cols || cols == 1)) ||
        (rows == 1 && (cols == p->cols || cols == 1)) || (p->rows == 1 && all == p->cols);
    const f8_op op = j->g->node[r].op;
    const bool sums = reduces_columns(j, p, r);
    if (op == F8_OP_TRANSPOSE)
        return rows == p->cols && cols == p->rows && p->rows > 1 && p->cols > 1 &&
                       in_list(p->out, p->n_out, r)
                   ? F8_OK
                   : fault(j, r, "is a transpose of something else than its phase's domain", 0);
    if (!fits && !sums)
        return fault(j, r, "does not fit its phase", 0);
    if (in_list(p->out, p->n_out, r) && p->rows > 1 && rows == 1 && !sums)
        return fault(j, r, "is written by every row", 0);
    return F8_OK;
}

static f8_status check_phase(judge *j, const f8_group *group, const f8_phase *p, int64_t time)
{
    for (uint32_t i = 0; i < p->n_out; i++)
        if (!in_list(p->node, p->n_nodes, p->out[i]))
            return fault(j, p->out[i], "is written where it is not computed", 0);
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const f8_ref r = p->node[i];
        f8_status s = check_shape(j, p, r);
        if (i > 0 && p->node[i - 1] >= r)
            return fault(j, r, "is out of order", 0);
        for (uint32_t k = 0; k < j->g->node[r].n_in && s == F8_OK; k++) {
            const f8_ref o = j->g->node[r].in[k];
            const f8_op op = j->g->node[o].op;
            if (in_list(p->node, p->n_nodes, o)) {
                if (op == F8_OP_TRANSPOSE)
                    return fault(j, o, "is a transpose used in its own phase", r);
                if (reduces_columns(j, p, o) && f8_type_rows(f8_type_of(j->g, o)) != p->rows)
                    return fault(j, o, "is a reduction of columns used in its own phase", r);
                continue;
            }
            if ((op == F8_OP_CONST || op == F8_OP_IOTA) && j->p->place[o].space == F8_SPACE_NONE)
                continue;
            s = check_read(j, o, &(reading){time, group, p, r, k});
        }
        if (s != F8_OK)
            return s;
    }
    return F8_OK;
}

/* ---- the whole ---- */

static f8_status check_groups(judge *j)
{
    for (uint32_t i = 0; i < j->p->n_groups; i++) {
        const f8_group *group = &j->p->group[j->p->order[i]];
        const int64_t time = 1 + (int64_t)i * PHASES;
        f8_status s = F8_OK;
        for (uint32_t q = 0; q < group->n_phases && s == F8_OK; q++)
            s = check_phase(j, group, &group->phase[q], time + q);
        const f8_node *n = f8_at(j->g, group->out[0]);
        for (uint32_t k = 0; group->kind != F8_GROUP_ROWS && k < n->n_in && s == F8_OK; k++)
            if (n->op != F8_OP_CONCAT || !is_inside(j, group->out[0], k))
                s = check_read(j, n->in[k], &(reading){time, group, NULL, group->out[0], k});
        if (s != F8_OK)
            return s;
    }
    return F8_OK;
}

static f8_status check_results(judge *j)
{
    for (uint32_t i = 0; i < j->p->n_copies; i++) {
        const f8_final_copy *c = &j->p->copy[i];
        f8_status s = check_read(j, c->from, &(reading){j->end + i, NULL, NULL, c->from, 0});
        if (s == F8_OK)
            s = add_write(j, c->from, j->end + i, region_of(j, c->from, &c->to));
        if (s != F8_OK)
            return s;
    }
    for (size_t i = 0; i < j->f->n_out; i++) {
        const f8_port *port = &j->f->out[i];
        const f8_place *at = &j->p->place[port->ref];
        bool copied = false;
        for (uint32_t k = 0; k < j->p->n_copies; k++)
            copied |= j->p->copy[k].from == port->ref &&
                      (port->var >= 0 ? j->p->copy[k].to.space == F8_SPACE_STATE
                                      : j->p->copy[k].to.space == F8_SPACE_OUTPUT &&
                                            j->p->copy[k].to.port == (int32_t)i);
        if (copied)
            continue;
        if (port->var >= 0 ? at->space != F8_SPACE_STATE
                           : at->space != F8_SPACE_OUTPUT || at->port != (int32_t)i || at->offset)
            return fault(j, port->ref, "is a result that does not lie where it belongs", 0);
        const f8_status s =
            check_read(j, port->ref, &(reading){j->end + PHASES, NULL, NULL, port->ref, 0});
        if (s != F8_OK)
            return s;
    }
    return F8_OK;
}

static f8_status check_bounds(judge *j)
{
    for (size_t i = 0; i < j->n_events; i++) {
        const region *a = &j->event[i].at;
        if (a->low < 0 || (a->space == F8_SPACE_ARENA && high_of(a) > j->p->arena_bytes))
            return fault(j, j->event[i].value, "leaves the arena", 0);
        if (a->space == F8_SPACE_CONST || a->space == F8_SPACE_INPUT)
            return fault(j, j->event[i].value, "is written where nothing may be", 0);
    }
    if (j->p->lower_bound > j->p->arena_bytes)
        return f8_fail(j->diag, F8_ERR_INTERNAL, F8_NOWHERE,
                       "%s: the arena is below its lower bound", j->f->name);
    return F8_OK;
}

f8_status f8_program_check(const f8_func *f, f8_diag *diag)
{
    judge j = {.f = f, .g = f->graph, .p = f->lowered, .diag = diag};
    j.end = 1 + (int64_t)j.p->n_groups * PHASES;
    j.written = malloc(f->graph->n_nodes * sizeof *j.written);
    if (!j.written)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory");
    for (f8_ref r = 0; r < f->graph->n_nodes; r++)
        j.written[r] = f8_op_facts(f->graph->node[r].op)->cls == F8_LEAF ? 0 : -1;
    f8_status s = note_writes(&j);
    if (s == F8_OK)
        s = check_groups(&j);
    if (s == F8_OK)
        s = check_results(&j);
    if (s == F8_OK)
        s = check_bounds(&j);
    free(j.event);
    free(j.written);
    return s;
}
