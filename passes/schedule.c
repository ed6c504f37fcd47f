/* Schedule: the order of groups.
 *
 * Data decides most of it. Beyond that, whoever reads a state's old value, or an accumulator's,
 * goes before the group that overwrites it (write-after-read) as long as that closes no cycle;
 * where it would, memory keeps the values apart. Then two orders are made and the one that needs
 * less memory is taken: that of the text, and one that at each step prefers a group that frees at
 * least as much as it allocates. The second runs a chunk of the head to its end before the next
 * chunk's logits appear, and a weight's gradient as soon as it can let go of its activation.
 *
 * Requires group. Gives program->order. */
#include "passes/storage.h"

#include <stdlib.h>
#include <string.h>

/* ---- the graph of groups ---- */

typedef struct edges {
    uint32_t *to;
    uint32_t n;
    size_t room;
} edges;

typedef struct scheduler {
    f8_storage storage;
    f8_program *program;
    f8_arena scratch;
    f8_diag *diag;
    edges *next;        /* by group */
    uint32_t *n_before; /* by group: edges into it */
    uint32_t *stamp, *stack, mark;
} scheduler;

static f8_status add_edge(scheduler *s, uint32_t from, uint32_t to)
{
    edges *e = &s->next[from];
    for (uint32_t i = 0; i < e->n && i < 8; i++) /* repeats are common and harmless */
        if (e->to[e->n - 1 - i] == to)
            return F8_OK;
    uint32_t *grown = f8_arena_grow(&s->scratch, e->to, e->n, &e->room, e->n + 1, sizeof *e->to);
    if (!grown)
        return f8_arena_status(&s->scratch, s->diag);
    e->to = grown;
    e->to[e->n++] = to;
    s->n_before[to]++;
    return F8_OK;
}

/* Whether `to` runs after `from`; true also when the search grows too long to be worth it. */
static bool reaches(scheduler *s, uint32_t from, uint32_t to)
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
            const uint32_t k = s->next[at].to[i];
            if (s->stamp[k] != s->mark) {
                s->stamp[k] = s->mark;
                s->stack[depth++] = k;
            }
        }
    }
    return false;
}

static f8_status data_edges(scheduler *s)
{
    const f8_storage *t = &s->storage;
    for (uint32_t i = 0; i < s->program->n_groups; i++)
        for (uint32_t k = 0; k < s->program->group[i].n_in; k++) {
            const uint32_t def = t->base[t->view[s->program->group[i].in[k]].base].def;
            if (def != F8_NO_GROUP && def != i)
                F8_TRY(add_edge(s, def, i));
        }
    return F8_OK;
}

/* ---- write after read ---- */

/* Order the readers of `old` before the group that writes `next` over it; all of them or none. */
static f8_status readers_first(scheduler *s, f8_ref old, f8_ref next)
{
    const f8_base *from = &s->storage.base[old];
    const uint32_t writer = s->storage.base[next].def;
    for (uint32_t i = 0; i < from->n_readers; i++) {
        const uint32_t reader = from->reader[i].group;
        if (reader == F8_NO_GROUP || (reader != writer && reaches(s, writer, reader)))
            return F8_OK;
    }
    for (uint32_t i = 0; i < from->n_readers; i++)
        if (from->reader[i].group != writer)
            F8_TRY(add_edge(s, from->reader[i].group, writer));
    return F8_OK;
}

/* The groups that compute the parts of a state's next value write it each on their own. */
static f8_status parts_after_readers(scheduler *s, f8_ref old, f8_ref concat)
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

static f8_status write_after_read(scheduler *s)
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
    for (uint32_t i = 0; i < s->program->n_groups; i++) {
        const f8_ref r = s->program->group[i].out[0], operand = f8_accumulator(t->g, r);
        const f8_ref acc = operand ? t->view[operand].base : 0;
        if (acc && (t->base[acc].def != F8_NO_GROUP || replaced[acc]))
            F8_TRY(readers_first(s, acc, r));
    }
    return F8_OK;
}

/* ---- orders ---- */

/* A unit of storage while an order is played: it lives from its first write to its last read. */
typedef struct unit {
    int64_t bytes;
    uint32_t events; /* writes and reads of all its bases */
    uint32_t left;
    bool alive;
} unit;

typedef struct play {
    scheduler *s;
    unit *unit;       /* by root ref */
    f8_ref **touched; /* by group: roots it writes or reads, once each event */
    uint32_t *n_touched;
    uint32_t *ready, n_ready;
    uint32_t *waits; /* by group: edges still unmet */
    int64_t live, peak;
} play;

static f8_status setup_play(play *p, scheduler *s)
{
    const f8_storage *t = &s->storage;
    const uint32_t n = s->program->n_groups;
    *p = (play){.s = s};
    p->unit = F8_NEW_ARRAY(&s->scratch, unit, t->g->n_nodes);
    p->touched = F8_NEW_ARRAY(&s->scratch, f8_ref *, n);
    p->n_touched = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    p->ready = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    p->waits = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    F8_TRY(f8_arena_status(&s->scratch, s->diag));
    for (uint32_t i = 0; i < n; i++) {
        const f8_group *group = &s->program->group[i];
        p->touched[i] = F8_NEW_ARRAY(&s->scratch, f8_ref, group->n_in + group->n_out);
        if (!p->touched[i])
            return f8_arena_status(&s->scratch, s->diag);
        for (uint32_t k = 0; k < group->n_in + group->n_out; k++) {
            const f8_ref r = k < group->n_out ? group->out[k] : group->in[k - group->n_out];
            const f8_base *b = &t->base[t->view[r].base], *root = &t->base[b->root];
            if (b->def == F8_NO_GROUP || root->place.space != F8_SPACE_NONE)
                continue;
            p->touched[i][p->n_touched[i]++] = b->root;
            p->unit[b->root].bytes = f8_storage_bytes(t, b->root);
            p->unit[b->root].events++;
        }
    }
    for (size_t i = 0; i < t->func->n_out; i++) /* lives to the end */
        p->unit[t->base[t->view[t->func->out[i].ref].base].root].events++;
    return F8_OK;
}

/* Bytes that the arena grows by (shrinks, if negative) across group i. */
static int64_t growth(play *p, uint32_t i, int64_t *allocated)
{
    int64_t change = 0;
    *allocated = 0;
    for (uint32_t k = 0; k < p->n_touched[i]; k++) {
        unit *u = &p->unit[p->touched[i][k]];
        if (!u->alive && u->left == u->events) {
            change += u->bytes;
            *allocated += u->bytes;
        }
        if (--u->left == 0)
            change -= u->bytes;
    }
    for (uint32_t k = 0; k < p->n_touched[i]; k++)
        p->unit[p->touched[i][k]].left++;
    return change;
}

static void run_group(play *p, uint32_t i)
{
    int64_t allocated;
    const int64_t change = growth(p, i, &allocated);
    p->peak = p->live + allocated > p->peak ? p->live + allocated : p->peak;
    p->live += change;
    for (uint32_t k = 0; k < p->n_touched[i]; k++) {
        unit *u = &p->unit[p->touched[i][k]];
        u->alive = true;
        u->left--;
    }
    const edges *e = &p->s->next[i];
    for (uint32_t k = 0; k < e->n; k++)
        if (--p->waits[e->to[k]] == 0)
            p->ready[p->n_ready++] = e->to[k];
}

/* Index into ready[]: lowest group, or under `thrifty` the one that frees most, if any frees. */
static uint32_t choose(play *p, bool thrifty)
{
    uint32_t first = 0, best = UINT32_MAX;
    int64_t least = 1;
    for (uint32_t i = 0; i < p->n_ready; i++) {
        int64_t allocated;
        if (p->ready[i] < p->ready[first])
            first = i;
        if (!thrifty)
            continue;
        const int64_t change = growth(p, p->ready[i], &allocated);
        if (change < least ||
            (change == least && best != UINT32_MAX && p->ready[i] < p->ready[best])) {
            least = change;
            best = i;
        }
    }
    return best == UINT32_MAX ? first : best;
}

/* Returns the peak in bytes, or -1 if the groups hang in a cycle. */
static int64_t make_order(play *p, bool thrifty, uint32_t *order)
{
    const scheduler *s = p->s;
    uint32_t done = 0;
    p->live = p->peak = 0;
    p->n_ready = 0;
    for (f8_ref r = 0; r < s->storage.g->n_nodes; r++) {
        p->unit[r].left = p->unit[r].events;
        p->unit[r].alive = false;
    }
    memcpy(p->waits, s->n_before, s->program->n_groups * sizeof *p->waits);
    for (uint32_t i = 0; i < s->program->n_groups; i++)
        if (p->waits[i] == 0)
            p->ready[p->n_ready++] = i;
    while (p->n_ready > 0) {
        const uint32_t at = choose(p, thrifty), group = p->ready[at];
        p->ready[at] = p->ready[--p->n_ready];
        order[done++] = group;
        run_group(p, group);
    }
    return done == s->program->n_groups ? p->peak : -1;
}

/* ---- the pass ---- */

static f8_status best_order(scheduler *s, f8_arena *arena)
{
    const uint32_t n = s->program->n_groups;
    uint32_t *order = F8_NEW_ARRAY(arena, uint32_t, n), *thrifty = F8_NEW_ARRAY(arena, uint32_t, n);
    uint32_t *position = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    F8_TRY(f8_arena_status(arena, s->diag));
    F8_TRY(f8_arena_status(&s->scratch, s->diag));
    for (uint32_t i = 0; i < s->storage.g->n_nodes; i++) /* no unit yet: only an order is wanted */
        s->storage.base[i].root = i;
    play p;
    F8_TRY(setup_play(&p, s));
    if (make_order(&p, false, order) < 0)
        return f8_fail(s->diag, F8_ERR_INTERNAL, F8_NOWHERE,
                       "schedule: the groups of '%s' form a cycle", s->storage.func->name);
    for (uint32_t i = 0; i < n; i++)
        position[order[i]] = i;
    F8_TRY(f8_storage_share(&s->storage, position));
    F8_TRY(setup_play(&p, s));
    const int64_t plain = make_order(&p, false, order), less = make_order(&p, true, thrifty);
    s->program->order = less < plain ? thrifty : order;
    return F8_OK;
}

f8_status f8_schedule_function(f8_unit *u, f8_func *f)
{
    scheduler s = {.program = f->program, .diag = u->diag};
    const size_t n = f->program->n_groups;
    f8_arena_init(&s.scratch, &u->arena->allocator);
    f8_status status = f8_storage_build(&s.storage, f, f8_unit_target(u), &s.scratch, u->diag);
    s.next = F8_NEW_ARRAY(&s.scratch, edges, n);
    s.n_before = F8_NEW_ARRAY(&s.scratch, uint32_t, n);
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

f8_status f8_pass_schedule(f8_unit *u)
{
    for (size_t i = 0; i < u->module->n_funcs; i++)
        F8_TRY(f8_schedule_function(u, &u->module->func[i]));
    return F8_OK;
}
