/* A placed function as a problem for the planner: see remat.h. */
#include "passes/unit/copy.h"
#include "passes/unit/cost.h"
#include "passes/memory/report.h"
#include "passes/remat/remat.h"

#include <stdlib.h>

/* ---- what is read from memory ---- */

bool f8_remat_reads_memory(const f8_group *group, const f8_phase *p, f8_ref o)
{
    /* a phase may compute a value that one of its nodes can only read from memory */
    return !f8_listed_ascending(p->node, p->n_nodes, o) || f8_listed(group->in, group->n_in, o);
}

/* ---- levels, and which steps are the backward's ---- */

static f8_status find_levels(f8_remat *s)
{
    const f8_graph *g = s->g;
    s->level = F8_NEW_ARRAY(s->scratch, uint32_t, g->n_nodes);
    bool *whole = F8_NEW_ARRAY(s->scratch, bool, g->n_nodes);
    F8_TRY(f8_arena_status(s->scratch, s->unit->diag));
    for (uint32_t i = 0; i < s->lowered->n_groups; i++)
        if (s->lowered->group[i].kind != F8_GROUP_ROWS)
            whole[s->lowered->group[i].out[0]] = true;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        for (uint32_t i = 0; i < g->node[r].n_in; i++) {
            const f8_ref o = g->node[r].in[i];
            const uint32_t level = s->level[o] + (whole[o] && g->node[r].op != F8_OP_PROJECT) +
                                   (g->node[o].op == F8_OP_PROJECT);
            s->level[r] = level > s->level[r] ? level : s->level[r];
        }
    return F8_OK;
}

static f8_status find_backward(f8_remat *s, const bool *forward)
{
    s->backward = F8_NEW_ARRAY(s->scratch, bool, s->problem.n_steps);
    s->read_backward = F8_NEW_ARRAY(s->scratch, bool, s->problem.n_values);
    F8_TRY(f8_arena_status(s->scratch, s->unit->diag));
    for (uint32_t i = 0; i < s->problem.n_steps; i++) {
        const f8_group *group = &s->lowered->group[s->lowered->order[i]];
        const f8_remat_step *step = &s->problem.step[i];
        s->backward[i] = true;
        for (uint32_t k = 0; k < group->n_out; k++)
            s->backward[i] &= !forward[group->out[k]];
        for (uint32_t k = 0; s->backward[i] && k < step->n_read; k++)
            s->read_backward[step->read[k]] = true;
    }
    return F8_OK;
}

/* The loss is the function's first result. */
static f8_status find_activations(f8_remat *s)
{
    f8_memory_category *category;
    const bool *forward = f8_live_nodes(s->g, s->func->n_out > 0 ? &s->func->out[0].ref : NULL,
                                        s->func->n_out > 0, s->scratch);
    s->activation = F8_NEW_ARRAY(s->scratch, bool, s->problem.n_values);
    F8_TRY(f8_arena_status(s->scratch, s->unit->diag));
    F8_TRY(find_backward(s, forward));
    F8_TRY(f8_memory_categories(s->func, s->scratch, s->unit->diag, &category));
    for (uint32_t i = 0; i < s->lowered->n_allocations; i++) {
        const f8_ref r = s->lowered->allocation[i].root;
        if (category[i] != F8_MEMORY_ACTIVATIONS && category[i] != F8_MEMORY_FP8_COPIES &&
            category[i] != F8_MEMORY_WEIGHT_COPIES)
            continue;
        s->activation[s->value[r]] = true;
        s->top = s->level[r] > s->top ? s->level[r] : s->top;
    }
    return F8_OK;
}

/* ---- cones ---- */

static const f8_phase *phase_of(const f8_group *group, f8_ref r)
{
    for (uint32_t i = 0; i < group->n_phases; i++)
        if (f8_listed(group->phase[i].out, group->phase[i].n_out, r))
            return &group->phase[i];
    return NULL;
}

/* Other results of the phase are read from memory, where they may have been kept. But codes of
 * which only the transpose is read later are computed on the way to the transpose. */
static bool passes_through(const f8_remat *s, f8_ref root, f8_ref o)
{
    return s->g->node[root].op == F8_OP_TRANSPOSE && f8_dtype_is_fp8(f8_type_of(s->g, o)->dtype) &&
           !s->read_backward[s->value[o]];
}

/* Mark r and what its phase computes for r, whether or not for other results as well. `mark` is by
 * index of the phase's nodes. */
static uint32_t mark_cone(const f8_remat *s, const f8_group *group, const f8_phase *p, f8_ref r,
                          bool *mark)
{
    uint32_t n = 0;
    for (uint32_t i = p->n_nodes; i-- > 0;) {
        const f8_node *node = f8_at(s->g, p->node[i]);
        if (p->node[i] == r)
            mark[i] = true;
        if (!mark[i])
            continue;
        n++;
        for (uint32_t k = 0; k < node->n_in; k++) {
            const f8_ref o = node->in[k];
            if (f8_remat_reads_memory(group, p, o) ||
                (f8_listed(p->out, p->n_out, o) && !passes_through(s, r, o)))
                continue;
            mark[f8_index_ascending(p->node, p->n_nodes, o)] = true;
        }
    }
    return n;
}

static f8_status rows_cone(f8_remat *s, const f8_group *group, f8_ref r, f8_cone *out)
{
    const f8_phase *p = phase_of(group, r);
    if (!p)
        return F8_OK;
    bool *mark = F8_NEW_ARRAY(s->scratch, bool, p->n_nodes);
    if (!mark)
        return f8_arena_status(s->scratch, s->unit->diag);
    const uint32_t n = mark_cone(s, group, p, r, mark);
    out->node = F8_NEW_ARRAY(s->scratch, f8_ref, n);
    if (!out->node)
        return f8_arena_status(s->scratch, s->unit->diag);
    for (uint32_t i = 0; i < p->n_nodes; i++)
        if (mark[i])
            out->node[out->n++] = p->node[i];
    return F8_OK;
}

/* The cone stays empty where a value can't be recomputed. */
static f8_status make_cone(f8_remat *s, uint32_t value)
{
    const f8_ref r = s->root[value];
    const f8_base *b = &s->storage.base[r];
    const f8_group *group = &s->lowered->group[b->def];
    f8_cone *out = &s->cone[value];
    const bool project = s->g->node[r].op == F8_OP_PROJECT;
    if (b->next || b->place.space != F8_SPACE_NONE)
        return F8_OK;
    switch (group->kind) {
    case F8_GROUP_ROWS: return rows_cone(s, group, r, out);
    case F8_GROUP_GEMM:
        if (f8_accumulator(s->g, r))
            return F8_OK;
        break;
    case F8_GROUP_ATTENTION:
    case F8_GROUP_COPY: break;
    default: return F8_OK;
    }
    out->node = F8_NEW_ARRAY(s->scratch, f8_ref, 2);
    if (!out->node)
        return f8_arena_status(s->scratch, s->unit->diag);
    if (project)
        out->node[out->n++] = s->g->node[r].in[0];
    out->node[out->n++] = r;
    return F8_OK;
}

/* ---- values ---- */

static f8_status number_values(f8_remat *s)
{
    const f8_storage *t = &s->storage;
    uint32_t n = 0;
    s->value = F8_NEW_ARRAY(s->scratch, uint32_t, s->g->n_nodes);
    s->root = F8_NEW_ARRAY(s->scratch, f8_ref, s->g->n_nodes);
    F8_TRY(f8_arena_status(s->scratch, s->unit->diag));
    for (f8_ref r = 0; r < s->g->n_nodes; r++) {
        s->value[r] = F8_NO_VALUE;
        if (r && t->base[r].def != F8_NO_GROUP && t->base[r].root == r) {
            s->value[r] = n;
            s->root[n++] = r;
        }
    }
    for (f8_ref r = 1; r < s->g->n_nodes; r++)
        if (t->base[r].def != F8_NO_GROUP)
            s->value[r] = s->value[t->base[r].root];
    s->problem.n_values = n;
    return F8_OK;
}

/* The distinct values of the `ref`s, through views, into `list` (with room for n). */
static uint32_t values_of(const f8_remat *s, const f8_ref *ref, uint32_t n, uint32_t *list,
                          uint32_t have)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t v = s->value[s->storage.view[ref[i]].base];
        bool known = v == F8_NO_VALUE;
        for (uint32_t k = 0; k < have && !known; k++)
            known = list[k] == v;
        if (!known)
            list[have++] = v;
    }
    return have;
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static f8_status cone_reads(f8_remat *s, uint32_t value, f8_remat_value *out)
{
    const f8_cone *cone = &s->cone[value];
    uint32_t most = 0, n = 0;
    for (uint32_t i = 0; i < cone->n; i++)
        most += s->g->node[cone->node[i]].n_in;
    uint32_t *list = F8_NEW_ARRAY(s->scratch, uint32_t, most);
    if (!list)
        return f8_arena_status(s->scratch, s->unit->diag);
    for (uint32_t i = 0; i < cone->n; i++) {
        const f8_node *node = f8_at(s->g, cone->node[i]);
        for (uint32_t k = 0; k < node->n_in; k++)
            if (!f8_listed_ascending(cone->node, cone->n, node->in[k]))
                n = values_of(s, &node->in[k], 1, list, n);
    }
    qsort(list, n, sizeof *list, by_number);
    out->from = list;
    out->n_from = n;
    return F8_OK;
}

/* Bytes too small to matter in an arena. */
enum { NOTHING = 4096 };

static f8_status make_values(f8_remat *s)
{
    const f8_storage *t = &s->storage;
    const uint32_t n = s->problem.n_values;
    f8_remat_value *value = F8_NEW_ARRAY(s->scratch, f8_remat_value, n);
    s->cone = F8_NEW_ARRAY(s->scratch, f8_cone, n);
    F8_TRY(f8_arena_status(s->scratch, s->unit->diag));
    for (uint32_t v = 0; v < n; v++) {
        const f8_base *b = &t->base[s->root[v]];
        const bool arena = b->place.space == F8_SPACE_NONE;
        value[v].bytes = arena ? f8_storage_bytes(t, s->root[v]) : 0;
        value[v].seconds = -1;
        value[v].result = !arena || b->end == s->lowered->n_groups;
        F8_TRY(make_cone(s, v));
        if (s->cone[v].n == 0 || value[v].result)
            continue;
        F8_TRY(cone_reads(s, v, &value[v]));
        if (value[v].bytes >= s->lowered->arena_bytes / NOTHING)
            value[v].seconds =
                f8_cost_nodes(s->g, f8_unit_target(s->unit), s->cone[v].node, s->cone[v].n);
    }
    s->problem.value = value;
    return F8_OK;
}

static f8_status make_steps(f8_remat *s)
{
    const f8_lowered *p = s->lowered;
    f8_remat_step *step = F8_NEW_ARRAY(s->scratch, f8_remat_step, p->n_groups);
    F8_TRY(f8_arena_status(s->scratch, s->unit->diag));
    for (uint32_t i = 0; i < p->n_groups; i++) {
        const f8_group *group = &p->group[p->order[i]];
        uint32_t *read = F8_NEW_ARRAY(s->scratch, uint32_t, group->n_in + group->n_out);
        if (!read)
            return f8_arena_status(s->scratch, s->unit->diag);
        step[i].read = read;
        step[i].n_read = values_of(s, group->in, group->n_in, read, 0);
        step[i].write = read + step[i].n_read;
        step[i].n_write = values_of(s, group->out, group->n_out, read + step[i].n_read, 0);
    }
    s->problem.step = step;
    s->problem.n_steps = p->n_groups;
    return F8_OK;
}

f8_status f8_remat_problem_make(f8_remat *s, f8_unit *u, f8_func *f, f8_arena *scratch)
{
    *s = (f8_remat){.unit = u, .func = f, .g = f->graph, .lowered = f->lowered, .scratch = scratch};
    s->problem.phase = &u->phase;
    s->in = F8_NEW_ARRAY(scratch, f8_port, f->n_in);
    s->out = F8_NEW_ARRAY(scratch, f8_port, f->n_out);
    uint32_t *position = F8_NEW_ARRAY(scratch, uint32_t, f->lowered->n_groups);
    F8_TRY(f8_arena_status(scratch, u->diag));
    for (size_t i = 0; i < f->n_in; i++)
        s->in[i] = f->in[i];
    for (size_t i = 0; i < f->n_out; i++)
        s->out[i] = f->out[i];
    for (uint32_t i = 0; i < f->lowered->n_groups; i++)
        position[f->lowered->order[i]] = i;
    F8_TRY(f8_storage_build(&s->storage, f, f8_unit_target(u), scratch, u->diag));
    F8_TRY(f8_storage_share(&s->storage, position));
    F8_TRY(find_levels(s));
    F8_TRY(number_values(s));
    F8_TRY(make_steps(s));
    F8_TRY(find_activations(s));
    return make_values(s);
}
