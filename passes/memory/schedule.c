/* Schedule: the order of groups.
 *
 * Data dependences decide most of it. Beyond that, a group that reads a state's old value, or an
 * accumulator's, runs before the group that overwrites it (write-after-read), as long as that
 * closes no cycle. Where it would, memory keeps the two values apart. Then two orders are made, and
 * the one that needs less memory is taken: the order of the text, and an order that at each step
 * prefers a group that frees at least as much as it allocates. The second one finishes a chunk of
 * the head before the next chunk's logits appear, and computes a weight's gradient as soon as that
 * frees an activation.
 *
 * A group that only recomputes (f8_is_recomputed) has no turn of its own in either order. It runs
 * right before the first group that reads its results, when that group waits for nothing else. If
 * there are such groups, a third order is made in which only groups with results have a turn, in
 * the text's order: then what a gradient needs recomputed comes and goes before the next gradient
 * is begun.
 *
 * Zeros behind the few rows of an inference come first.
 *
 * Of several ranks, collectives run beside other groups (overlap.h): each order is changed for that
 * before its memory is compared.
 *
 * Requires group. Gives func->lowered->order. */
#include "passes/memory/memory.h"
#include "passes/memory/order.h"
#include "passes/memory/overlap.h"

#include <string.h>

/* ---- the graph of groups ---- */

static f8_status add_edge(f8_scheduler *s, uint32_t from, uint32_t to, bool data)
{
    f8_group_edges *e = &s->next[from];
    for (uint32_t i = 0; i < e->n && i < 8; i++) /* repeats are common and harmless */
        if (e->to[e->n - 1 - i] == 2 * to + data)
            return F8_OK;
    uint32_t *grown = f8_arena_grow(&s->scratch, e->to, e->n, &e->room, e->n + 1, sizeof *e->to);
    if (!grown)
        return f8_arena_status(&s->scratch, s->diag);
    e->to = grown;
    e->to[e->n++] = 2 * to + data;
    s->n_before[to]++;
    return F8_OK;
}

/* Whether `to` runs after `from`; true also when the search grows too long to be worth it. */
static bool reaches(f8_scheduler *s, uint32_t from, uint32_t to)
{
    enum { SEARCH_MAX = 20000 };
    uint32_t depth = 0, visited = 0;
    s->mark++;
    s->stack[depth++] = from;
    s->stamp[from] = s->mark;
    while (depth > 0) {
        const uint32_t at = s->stack[--depth];
        if (at == to || ++visited > SEARCH_MAX)
            return true;
        for (uint32_t i = 0; i < s->next[at].n; i++) {
            const uint32_t k = s->next[at].to[i] / 2;
            if (s->stamp[k] != s->mark) {
                s->stamp[k] = s->mark;
                s->stack[depth++] = k;
            }
        }
    }
    return false;
}

static f8_status data_edges(f8_scheduler *s)
{
    const f8_storage *t = &s->storage;
    for (uint32_t i = 0; i < s->lowered->n_groups; i++)
        for (uint32_t k = 0; k < s->lowered->group[i].n_in; k++)
            if (f8_group_maker(s, i, k) != F8_NO_GROUP)
                F8_TRY(add_edge(s, f8_group_maker(s, i, k), i, true));
    for (uint32_t i = 0; i < s->lowered->n_groups; i++) {
        const f8_group *group = &s->lowered->group[i];
        s->recompute[i] = s->inner[i] = s->next[i].n > 0;
        for (uint32_t k = 0; k < group->n_out; k++)
            s->recompute[i] &= f8_is_recomputed(s->storage.g, group->out[k]);
        s->any_recompute |= s->recompute[i];
    }
    for (size_t i = 0; i < t->func->n_out; i++) {
        const uint32_t def = t->base[t->view[t->func->out[i].ref].base].def;
        if (def != F8_NO_GROUP)
            s->inner[def] = false;
    }
    return F8_OK;
}

/* ---- write after read ---- */

/* Order the readers of `old` before the group that writes `next` over it: all of them or none. A
 * recomputing group that the text has after the writer is not moved before it. */
static f8_status readers_first(f8_scheduler *s, f8_ref old, f8_ref next)
{
    const f8_base *from = &s->storage.base[old];
    const uint32_t writer = s->storage.base[next].def;
    for (uint32_t i = 0; i < from->n_readers; i++) {
        const uint32_t reader = from->reader[i].group;
        if (reader == F8_NO_GROUP ||
            (reader != writer &&
             (reaches(s, writer, reader) || (s->recompute[reader] && reader > writer))))
            return F8_OK;
    }
    for (uint32_t i = 0; i < from->n_readers; i++)
        if (from->reader[i].group != writer)
            F8_TRY(add_edge(s, from->reader[i].group, writer, false));
    return F8_OK;
}

/* Each group that computes a part of a state's next value writes that part itself, so each must run
 * after the readers of the old value. */
static f8_status parts_after_readers(f8_scheduler *s, f8_ref old, f8_ref concat)
{
    const f8_node *n = f8_at(s->storage.g, concat);
    if (n->op != F8_OP_CONCAT)
        return readers_first(s, old, concat);
    for (uint32_t i = 0; i < n->n_in; i++) {
        const f8_ref part = s->storage.view[n->in[i]].base;
        if (s->storage.base[part].def != F8_NO_GROUP)
            F8_TRY(readers_first(s, old, part));
    }
    return readers_first(s, old, concat);
}

static f8_status write_after_read(f8_scheduler *s)
{
    const f8_storage *t = &s->storage;
    const f8_func *f = t->func;
    f8_ref *input = F8_NEW_ARRAY(&s->scratch, f8_ref, t->g->module->n_vars);
    bool *replaced = F8_NEW_ARRAY(&s->scratch, bool, t->g->n_nodes);
    F8_TRY(f8_arena_status(&s->scratch, s->diag));
    for (size_t i = 0; i < f->n_in; i++)
        if (f->in[i].var >= 0)
            input[f->in[i].var] = f->in[i].ref;
    for (size_t i = 0; i < f->n_out; i++) {
        const f8_ref next = t->view[f->out[i].ref].base;
        const f8_ref old = f->out[i].var >= 0 ? input[f->out[i].var] : 0;
        if (!old || t->base[next].def == F8_NO_GROUP)
            continue;
        replaced[old] = true;
        F8_TRY(parts_after_readers(s, old, next));
    }
    for (uint32_t i = 0; i < s->lowered->n_groups; i++) {
        const f8_ref r = s->lowered->group[i].out[0], operand = f8_accumulator(t->g, r);
        const f8_ref acc = operand ? t->view[operand].base : 0;
        if (acc && (t->base[acc].def != F8_NO_GROUP || replaced[acc]))
            F8_TRY(readers_first(s, acc, r));
    }
    return F8_OK;
}

/* ---- zeros behind few rows ---- */

/* Whether base r is zeros behind a value of fewer rows than FP8 GEMMs take (legalize/pad.c). */
static bool ends_few_rows(const f8_storage *t, f8_ref r)
{
    const f8_ref whole = t->base[r].inside;
    if (!whole)
        return false;
    const f8_type *type = f8_type_of(t->g, whole);
    const int64_t axis = f8_attr_i(t->g, whole, F8_A_AXIS);
    return type->dim[axis < 0 ? axis + type->rank : axis] == t->target->fp8_multiple;
}

/* An inference of one token has such zeros for each GEMM. Written first of all, they take one
 * launch (codegen/plan/merge.c). Their bytes are then in use from the beginning, but they are few.
 */
static void fill_first(f8_scheduler *s, uint32_t *order)
{
    const uint32_t n = s->lowered->n_groups;
    uint32_t first = 0;
    for (uint32_t i = 0; i < n && s->storage.target->speeds.merged > 1; i++) {
        const uint32_t at = order[i];
        const f8_group *group = &s->lowered->group[at];
        bool fills = group->n_in == 0 && s->n_before[at] == 0 && !s->recompute[at];
        for (uint32_t k = 0; k < group->n_out; k++)
            fills &= ends_few_rows(&s->storage, group->out[k]);
        if (!fills)
            continue;
        memmove(order + first + 1, order + first, (i - first) * sizeof *order);
        order[first++] = at;
    }
}

/* ---- GEMMs that run beside others ---- */

static bool has_edge(const f8_scheduler *s, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < s->next[from].n; i++)
        if (s->next[from].to[i] / 2 == to)
            return true;
    return false;
}

/* A layer's two products of one gradient have their turns one after the other. The weight's waits
 * for the other, which all that follows needs: so it runs beside the row kernels that follow, and
 * not beside that one. */
static void products_first(const f8_scheduler *s, uint32_t *order)
{
    const f8_group *group = s->lowered->group;
    for (uint32_t i = 1; i < s->lowered->n_groups; i++) {
        const uint32_t moved = order[i];
        uint32_t at = i;
        if (group[moved].kind != F8_GROUP_GEMM || group[moved].beside)
            continue;
        for (; at > 0 && group[order[at - 1]].beside && !has_edge(s, order[at - 1], moved); at--)
            order[at] = order[at - 1];
        order[at] = moved;
    }
}

/* ---- the pass ---- */

static f8_status best_order(f8_scheduler *s, f8_arena *arena)
{
    const uint32_t n = s->lowered->n_groups;
    uint32_t *order[3], *best = NULL;
    uint32_t *turn = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    for (int i = 0; i < 3; i++)
        order[i] = F8_NEW_ARRAY(arena, uint32_t, n);
    F8_TRY(f8_arena_status(arena, s->diag));
    F8_TRY(f8_arena_status(&s->scratch, s->diag));
    /* no allocations yet: only an order is wanted */
    for (uint32_t i = 0; i < s->storage.g->n_nodes; i++)
        s->storage.base[i].root = i;
    f8_order_maker *p;
    int64_t peak, least = INT64_MAX;
    F8_TRY(f8_order_begin(s, turn, &p));
    F8_TRY(f8_order_make(p, s->recompute, false, order[0], &peak));
    if (peak < 0)
        return f8_fail(s->diag, F8_ERR_INTERNAL, F8_NOWHERE,
                       "schedule: the groups of '%s' form a cycle", s->storage.func->name);
    for (uint32_t i = 0; i < n; i++)
        turn[order[0][i]] = i;
    F8_TRY(f8_storage_share(&s->storage, turn));
    F8_TRY(f8_order_begin(s, turn, &p));
    for (int i = 0; i < (s->any_recompute ? 3 : 2); i++) {
        F8_TRY(f8_order_make(p, i == 2 ? s->inner : s->recompute, i == 1, order[i], &peak));
        F8_TRY(f8_order_overlap(s, order[i], &peak));
        best = peak < least ? order[i] : best;
        least = peak < least ? peak : least;
    }
    fill_first(s, best);
    products_first(s, best);
    s->lowered->order = best;
    return F8_OK;
}

f8_status f8_schedule_buckets(f8_unit *u, f8_func *f, uint32_t buckets)
{
    f8_scheduler s = {.lowered = f->lowered, .diag = u->diag, .buckets = buckets};
    const size_t n = f->lowered->n_groups;
    f8_arena_init(&s.scratch, &u->arena->allocator);
    f8_status status = f8_storage_build(&s.storage, f, f8_unit_target(u), &s.scratch, u->diag);
    s.next = F8_NEW_ARRAY(&s.scratch, f8_group_edges, n);
    s.n_before = F8_NEW_ARRAY(&s.scratch, uint32_t, n);
    s.recompute = F8_NEW_ARRAY(&s.scratch, bool, n);
    s.inner = F8_NEW_ARRAY(&s.scratch, bool, n);
    s.stamp = F8_NEW_ARRAY(&s.scratch, uint32_t, n);
    s.stack = F8_NEW_ARRAY(&s.scratch, uint32_t, n);
    if (status == F8_OK)
        status = f8_arena_status(&s.scratch, u->diag);
    if (status == F8_OK)
        status = data_edges(&s);
    if (status == F8_OK)
        status = write_after_read(&s);
    if (status == F8_OK)
        status = best_order(&s, u->arena);
    f8_arena_end(&s.scratch);
    return status;
}

f8_status f8_schedule_function(f8_unit *u, f8_func *f)
{
    return f8_schedule_buckets(u, f, 1);
}

f8_status f8_pass_schedule(f8_unit *u)
{
    for (size_t i = 0; i < u->module->n_funcs; i++) {
        F8_TRY(f8_schedule_function(u, &u->module->func[i]));
        F8_TRY(f8_unit_within(u));
    }
    return F8_OK;
}
