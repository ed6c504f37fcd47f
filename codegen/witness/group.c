/* One group: what it reads, and what the interpreter makes of that. See parts.h. */
#include "codegen/witness/parts.h"

#include <stdlib.h>

#include "codegen/reference/reference.h"

static f8_witness_value *value_of(const f8_witness *w, f8_ref r)
{
    return &w->state->value[r];
}

static void list(f8_witness *w, f8_ref r, bool inside)
{
    f8_witness_value *v = value_of(w, r);
    v->inside = inside;
    if (!v->listed)
        w->state->ref[w->state->n_refs++] = r;
    v->listed = true;
}

/* ---- reading ---- */

/* Whether r is a view of what the group computes. Its place does not hold it before. */
static bool views_inside(const f8_witness *w, f8_ref r)
{
    const f8_node *n = f8_at(w->state->g, r);
    if (n->op != F8_OP_RESHAPE && n->op != F8_OP_SLICE && n->op != F8_OP_PROJECT)
        return false;
    return value_of(w, n->in[0])->inside || views_inside(w, n->in[0]);
}

/* Whether the group may write to these bytes. Addresses are compared, not places, because a
 * variable and a port may be bound to the same memory of the caller. */
static bool is_written(const f8_witness *w, const f8_group *group, const void *at, int64_t bytes)
{
    const f8_lowered *p = w->f->lowered;
    const uintptr_t begin = (uintptr_t)at, end = begin + (uintptr_t)bytes;
    for (uint32_t i = 0; i < group->n_out; i++) {
        const f8_ref r = group->out[i];
        const f8_type *t = f8_type_of(w->state->g, r);
        const uintptr_t to = (uintptr_t)w->look(w->user, &p->place[r]);
        const int64_t rows = f8_type_rows(t) + (p->pad ? p->pad[r].rows : 0);
        const int64_t columns =
            p->place[r].stride > f8_type_columns(t) ? p->place[r].stride : f8_type_columns(t);
        const uintptr_t room = (uintptr_t)(rows * columns) * f8_dtype_size(t->dtype);
        if (!to || (to < end && begin < to + room))
            return true;
    }
    return false;
}

static bool has_nonfinite(const f8_type *t, const void *data, int64_t stride)
{
    int64_t first;
    if (!stride)
        return f8_witness_nonfinite(t, data, &first) > 0;
    const f8_type row = {t->dtype, 1, {f8_type_columns(t)}};
    const size_t step = (size_t)stride * f8_dtype_size(t->dtype);
    for (int64_t i = 0; i < f8_type_rows(t); i++)
        if (f8_witness_nonfinite(&row, (const char *)data + (size_t)i * step, &first))
            return true;
    return false;
}

/* Only attentions are judged on values whose rows lie apart. */
static bool takes_strides(const f8_witness *w, const f8_group *group, f8_ref user)
{
    return user == group->out[0] && f8_op_facts(f8_at(w->state->g, user)->op)->cls == F8_ATTENTION;
}

enum { LARGE = 16 << 20 }; /* the fewest bytes of a value that is put aside */

/* Puts a value aside that the group writes over, if it is large and this can be done. Else v->data
 * stays NULL. */
static void put_aside(const f8_witness *w, const f8_type *t, const void *there, f8_witness_value *v)
{
    if (f8_type_bytes(t) < LARGE || !w->put_aside)
        return;
    v->data = (void *)(uintptr_t)w->put_aside(w->user, there, f8_type_bytes(t));
    v->aside = v->data != NULL;
}

/* r is an operand of `user`. */
static f8_status read_value(f8_witness *w, const f8_group *group, f8_ref r, f8_ref user,
                            f8_diag *diag)
{
    const f8_type *t = f8_type_of(w->state->g, r);
    const f8_place *place = &w->f->lowered->place[r];
    int64_t stride = 0;
    const void *there =
        f8_witness_look(w, place, t, takes_strides(w, group, user) ? &stride : NULL);
    const int64_t step = stride ? stride : f8_type_columns(t);
    const int64_t bytes = f8_type_rows(t) * step * (int64_t)f8_dtype_size(t->dtype);
    f8_witness_value *v = value_of(w, r);
    list(w, r, false);
    v->borrowed = there && !is_written(w, group, there, bytes);
    v->stride = v->borrowed ? stride : 0;
    if (v->borrowed)
        v->data = (void *)(uintptr_t)there;
    else if (there && !stride)
        put_aside(w, t, there, v);
    if (!v->data) {
        v->data = f8_witness_room(w, t, diag);
        if (!v->data)
            return F8_ERR_MEMORY;
        F8_TRY(f8_witness_fetch(w, place, t, v->data, diag));
    }
    v->nonfinite = has_nonfinite(t, v->aside ? there : v->data, v->stride);
    return F8_OK;
}

static int by_ref(const void *a, const void *b)
{
    const f8_ref x = *(const f8_ref *)a, y = *(const f8_ref *)b;
    return (x > y) - (x < y);
}

/* Values that lie nowhere, as constants, are computed. */
static f8_status need(f8_witness *w, const f8_group *group, f8_ref r, f8_ref user, f8_diag *diag)
{
    const f8_node *n = f8_at(w->state->g, r);
    if (value_of(w, r)->listed && (!value_of(w, r)->stride || takes_strides(w, group, user)))
        return F8_OK;
    if (w->f->lowered->place[r].space != F8_SPACE_NONE && !views_inside(w, r))
        return read_value(w, group, r, user, diag);
    list(w, r, true);
    for (uint32_t i = 0; i < n->n_in; i++)
        F8_TRY(need(w, group, n->in[i], r, diag));
    return F8_OK;
}

f8_status f8_witness_read(f8_witness *w, const f8_group *group, f8_diag *diag)
{
    const f8_graph *g = w->state->g;
    for (uint32_t p = 0; p < group->n_phases; p++)
        for (uint32_t i = 0; i < group->phase[p].n_nodes; i++)
            list(w, group->phase[p].node[i], true);
    if (!group->n_phases)
        list(w, group->out[0], true);
    const uint32_t n = w->state->n_refs;
    for (uint32_t i = 0; i < n; i++) {
        const f8_node *node = f8_at(g, w->state->ref[i]);
        for (uint32_t k = 0; k < node->n_in; k++)
            F8_TRY(need(w, group, node->in[k], w->state->ref[i], diag));
    }
    qsort(w->state->ref, w->state->n_refs, sizeof(f8_ref), by_ref); /* a topological order */
    return F8_OK;
}

/* ---- computing ---- */

static void note_last_uses(f8_witness *w)
{
    struct f8_witness_state *s = w->state;
    for (uint32_t i = 0; i < s->n_refs; i++) {
        const f8_node *n = f8_at(s->g, s->ref[i]);
        for (uint32_t k = 0; value_of(w, s->ref[i])->inside && k < n->n_in; k++)
            value_of(w, n->in[k])->last = s->ref[i];
    }
}

f8_status f8_witness_compute_one(f8_witness *w, f8_ref r, f8_diag *diag)
{
    const struct f8_witness_state *s = w->state;
    const f8_node *n = f8_at(s->g, r);
    f8_witness_value *v = value_of(w, r);
    int64_t first;
    if (f8_op_facts(n->op)->results != 1)
        return f8_fail(diag, F8_ERR_INTERNAL, s->g->loc[r], "%s inside a kernel has no witness",
                       f8_op_facts(n->op)->name);
    for (uint32_t k = 0; k < n->n_in; k++)
        s->operand[k] = value_of(w, n->in[k])->data;
    v->data = f8_witness_room(w, &n->type, diag);
    if (!v->data)
        return F8_ERR_MEMORY;
    F8_TRY(f8_reference_node(s->g, r, s->operand, &v->data, &s->allocator, diag));
    v->nonfinite = n->n_in > 0 && f8_witness_nonfinite(&n->type, v->data, &first) > 0;
    return F8_OK;
}

void f8_witness_drop(const f8_witness *w, f8_ref r)
{
    f8_witness_value *v = value_of(w, r);
    const f8_type *t = f8_type_of(w->state->g, r);
    if (v->aside)
        w->end_aside(w->user, v->data, f8_type_bytes(t));
    else if (!v->borrowed)
        f8_witness_free(w, t, v->data);
    v->data = NULL;
    v->borrowed = v->aside = false;
}

void f8_witness_unload(const f8_witness *w)
{
    const struct f8_witness_state *s = w->state;
    for (uint32_t i = 0; i < s->n_refs; i++)
        if (value_of(w, s->ref[i])->aside)
            w->unload(w->user, value_of(w, s->ref[i])->data,
                      f8_type_bytes(f8_type_of(s->g, s->ref[i])));
}

/* Values whose last user has been computed. */
static void drop_used(f8_witness *w, const f8_group *group, f8_ref user)
{
    const f8_node *n = f8_at(w->state->g, user);
    for (uint32_t k = 0; k < n->n_in; k++) {
        f8_witness_value *v = value_of(w, n->in[k]);
        if (v->last != user || f8_listed(group->out, group->n_out, n->in[k]))
            continue;
        f8_witness_drop(w, n->in[k]);
    }
}

static bool is_part_of(const f8_graph *g, f8_ref r, f8_ref op)
{
    return op && (r == op || (f8_at(g, r)->op == F8_OP_PROJECT && f8_at(g, r)->in[0] == op));
}

f8_status f8_witness_compute(f8_witness *w, const f8_group *group, f8_ref op, f8_diag *diag)
{
    struct f8_witness_state *s = w->state;
    note_last_uses(w);
    for (uint32_t i = 0; i < s->n_refs; i++) {
        if (!value_of(w, s->ref[i])->inside || is_part_of(s->g, s->ref[i], op))
            continue;
        F8_TRY(f8_witness_compute_one(w, s->ref[i], diag));
        drop_used(w, group, s->ref[i]);
    }
    return F8_OK;
}

/* ---- NaN and Inf ---- */

/* The operand of a product that counts as zeros, whatever it holds; 0: there is none. */
static f8_ref idle_operand(const f8_witness *w, const f8_node *n)
{
    const f8_gemm_operands o =
        f8_op_facts(n->op)->cls == F8_GEMM ? f8_gemm_operands_of(n) : (f8_gemm_operands){0};
    const uint8_t *adds = o.adds ? value_of(w, o.adds)->data : NULL;
    return adds && !*adds ? o.acc : 0;
}

/* Marks the operands that have some. False: there are none. */
static bool trace_operands(f8_witness *w, f8_ref r)
{
    const f8_node *n = f8_at(w->state->g, r);
    const f8_ref idle = idle_operand(w, n);
    bool any = false;
    for (uint32_t k = 0; k < n->n_in; k++)
        if (value_of(w, n->in[k])->nonfinite && n->in[k] != idle)
            any = value_of(w, n->in[k])->traced = true;
    return any;
}

void f8_witness_trace(f8_witness *w, f8_ref r, f8_ref *from, f8_ref *made)
{
    const struct f8_witness_state *s = w->state;
    *from = *made = 0;
    value_of(w, r)->traced = value_of(w, r)->nonfinite;
    for (uint32_t i = s->n_refs; i-- > 0;) {
        f8_witness_value *v = value_of(w, s->ref[i]);
        if (v->traced && !v->inside)
            *from = s->ref[i];
        else if (v->traced && !trace_operands(w, s->ref[i]))
            *made = s->ref[i];
        v->traced = false;
    }
    if (*from)
        *made = 0;
}

void f8_witness_forget(f8_witness *w)
{
    struct f8_witness_state *s = w->state;
    for (uint32_t i = 0; i < s->n_refs; i++) {
        f8_witness_drop(w, s->ref[i]);
        *value_of(w, s->ref[i]) = (f8_witness_value){0};
    }
    for (uint32_t i = 0; i < s->n_seen; i++)
        f8_witness_release(w, &s->seen[i]);
    if (s->seen)
        s->allocator.free(s->allocator.user, s->seen, s->n_seen * sizeof *s->seen);
    s->seen = NULL;
    s->n_refs = s->n_seen = 0;
}
