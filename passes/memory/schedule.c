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
 * Requires group. Gives func->lowered->order. */
#include "passes/memory/memory.h"
#include "passes/memory/storage.h"

#include <stdlib.h>
#include <string.h>

/* ---- the graph of groups ---- */

typedef struct edges {
    uint32_t *to; /* twice the group, + 1 if that group reads what this one makes */
    uint32_t n;
    size_t room;
} edges;

typedef struct scheduler {
    f8_storage storage;
    f8_lowered *lowered;
    f8_arena scratch;
    f8_diag *diag;
    edges *next;        /* by group */
    uint32_t *n_before; /* by group: edges into it */
    bool *recompute;    /* by group: it does nothing but recompute what others read */
    bool *inner;        /* by group: all of its results are read by others */
    bool any_recompute;
    uint32_t *stamp, *stack, mark;
} scheduler;

static f8_status add_edge(scheduler *s, uint32_t from, uint32_t to, bool data)
{
    edges *e = &s->next[from];
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
            const uint32_t k = s->next[at].to[i] / 2;
            if (s->stamp[k] != s->mark) {
                s->stamp[k] = s->mark;
                s->stack[depth++] = k;
            }
        }
    }
    return false;
}

/* The group that makes operand k of group i, or F8_NO_GROUP. */
static uint32_t maker(const scheduler *s, uint32_t i, uint32_t k)
{
    const f8_storage *t = &s->storage;
    const uint32_t def = t->base[t->view[s->lowered->group[i].in[k]].base].def;
    return def == i ? F8_NO_GROUP : def;
}

static f8_status data_edges(scheduler *s)
{
    const f8_storage *t = &s->storage;
    for (uint32_t i = 0; i < s->lowered->n_groups; i++)
        for (uint32_t k = 0; k < s->lowered->group[i].n_in; k++)
            if (maker(s, i, k) != F8_NO_GROUP)
                F8_TRY(add_edge(s, maker(s, i, k), i, true));
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
static f8_status readers_first(scheduler *s, f8_ref old, f8_ref next)
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
    for (uint32_t i = 0; i < s->lowered->n_groups; i++) {
        const f8_ref r = s->lowered->group[i].out[0], operand = f8_accumulator(t->g, r);
        const f8_ref acc = operand ? t->view[operand].base : 0;
        if (acc && (t->base[acc].def != F8_NO_GROUP || replaced[acc]))
            F8_TRY(readers_first(s, acc, r));
    }
    return F8_OK;
}

/* ---- orders ---- */

/* An allocation while an order is simulated: it lives from its first write to its last read. */
typedef struct allocation {
    int64_t bytes;
    uint32_t events; /* writes and reads of all its bases */
    uint32_t left;
    bool alive;
} allocation;

typedef struct play {
    scheduler *s;
    allocation *allocation; /* by root ref */
    f8_ref **accessed;      /* by group: roots it writes or reads, once each event */
    uint32_t *n_accessed;
    uint32_t *ready, n_ready;
    const bool *lazy; /* by group: it runs only when another group that needs it has its turn */
    uint32_t *waits;  /* by group: edges from groups that have not run */
    uint32_t *held;   /* by group: those of them that running lazy groups would not satisfy */
    bool *done;       /* by group */
    /* the lazy groups that one group needs, as turn << 32 | group, ascending; then that group */
    uint64_t *run;
    uint32_t n_run;
    const uint32_t *turn; /* by group: its place in the first order; 0 while that order is made */
    uint32_t *order, n_order;
    int64_t live, peak;
} play;

static f8_status setup_play(play *p, scheduler *s)
{
    const f8_storage *t = &s->storage;
    const uint32_t n = s->lowered->n_groups;
    *p = (play){.s = s};
    p->allocation = F8_NEW_ARRAY(&s->scratch, allocation, t->g->n_nodes);
    p->accessed = F8_NEW_ARRAY(&s->scratch, f8_ref *, n);
    p->n_accessed = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    p->ready = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    p->waits = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    p->held = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    p->done = F8_NEW_ARRAY(&s->scratch, bool, n);
    p->run = F8_NEW_ARRAY(&s->scratch, uint64_t, n);
    F8_TRY(f8_arena_status(&s->scratch, s->diag));
    for (uint32_t i = 0; i < n; i++) {
        const f8_group *group = &s->lowered->group[i];
        p->accessed[i] = F8_NEW_ARRAY(&s->scratch, f8_ref, group->n_in + group->n_out);
        if (!p->accessed[i])
            return f8_arena_status(&s->scratch, s->diag);
        for (uint32_t k = 0; k < group->n_in + group->n_out; k++) {
            const f8_ref r = k < group->n_out ? group->out[k] : group->in[k - group->n_out];
            const f8_base *b = &t->base[t->view[r].base], *root = &t->base[b->root];
            if (b->def == F8_NO_GROUP || root->place.space != F8_SPACE_NONE)
                continue;
            p->accessed[i][p->n_accessed[i]++] = b->root;
            p->allocation[b->root].bytes = f8_storage_bytes(t, b->root);
            p->allocation[b->root].events++;
        }
    }
    for (size_t i = 0; i < t->func->n_out; i++) /* lives to the end */
        p->allocation[t->base[t->view[t->func->out[i].ref].base].root].events++;
    return F8_OK;
}

static int by_turn(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Fill run[] with group i, which nothing holds, after all the lazy groups that it needs. */
static void collect(play *p, uint32_t i)
{
    scheduler *s = p->s;
    uint32_t depth = 0;
    p->n_run = 0;
    s->mark++;
    if (p->waits[i] > 0)
        s->stack[depth++] = i;
    while (depth > 0) {
        const uint32_t at = s->stack[--depth];
        for (uint32_t k = 0; k < s->lowered->group[at].n_in; k++) {
            const uint32_t from = maker(s, at, k);
            if (from == F8_NO_GROUP || p->done[from] || s->stamp[from] == s->mark)
                continue;
            s->stamp[from] = s->mark;
            s->stack[depth++] = from;
            p->run[p->n_run++] = (uint64_t)p->turn[from] << 32 | from;
        }
    }
    qsort(p->run, p->n_run, sizeof *p->run, by_turn);
    p->run[p->n_run++] = i;
}

/* Bytes by which the arena grows (shrinks, if negative) over the groups run[0, n). */
static int64_t growth(play *p, const uint64_t *run, uint32_t n, int64_t *allocated)
{
    int64_t change = 0;
    *allocated = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0, at = (uint32_t)run[i]; k < p->n_accessed[at]; k++) {
            allocation *u = &p->allocation[p->accessed[at][k]];
            if (!u->alive && u->left == u->events) {
                change += u->bytes;
                *allocated += u->bytes;
            }
            if (--u->left == 0)
                change -= u->bytes;
        }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0, at = (uint32_t)run[i]; k < p->n_accessed[at]; k++)
            p->allocation[p->accessed[at][k]].left++;
    return change;
}

/* One edge less holds group i. It may have been the last one. */
static void release(play *p, uint32_t i)
{
    scheduler *s = p->s;
    uint32_t depth = 0;
    if (--p->held[i] > 0)
        return;
    s->stack[depth++] = i;
    while (depth > 0) {
        const uint32_t at = s->stack[--depth];
        if (!p->lazy[at]) {
            p->ready[p->n_ready++] = at;
            continue;
        }
        for (uint32_t k = 0; k < s->next[at].n; k++)
            if (s->next[at].to[k] & 1 && --p->held[s->next[at].to[k] / 2] == 0)
                s->stack[depth++] = s->next[at].to[k] / 2;
    }
}

static void run_group(play *p, uint32_t i)
{
    int64_t allocated;
    const int64_t change = growth(p, &(uint64_t){i}, 1, &allocated);
    p->peak = p->live + allocated > p->peak ? p->live + allocated : p->peak;
    p->live += change;
    p->done[i] = true;
    p->order[p->n_order++] = i;
    for (uint32_t k = 0; k < p->n_accessed[i]; k++) {
        allocation *u = &p->allocation[p->accessed[i][k]];
        u->alive = true;
        u->left--;
    }
    const edges *e = &p->s->next[i];
    for (uint32_t k = 0; k < e->n; k++) {
        p->waits[e->to[k] / 2]--;
        if (!p->lazy[i] || !(e->to[k] & 1)) /* else it was released together with this group */
            release(p, e->to[k] / 2);
    }
}

/* Run all of run[], each as soon as its turn comes and it waits for nothing. */
static void run_collected(play *p)
{
    const uint32_t n = p->n_run, before = p->n_order;
    while (p->n_order < before + n)
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t group = (uint32_t)p->run[i];
            if (!p->done[group] && p->waits[group] == 0)
                run_group(p, group);
        }
}

/* Index into ready[]: the lowest group; under `thrifty` the one that frees most, if any frees. */
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
        collect(p, p->ready[i]);
        const int64_t change = growth(p, p->run, p->n_run, &allocated);
        if (change < least ||
            (change == least && best != UINT32_MAX && p->ready[i] < p->ready[best])) {
            least = change;
            best = i;
        }
    }
    return best == UINT32_MAX ? first : best;
}

/* No group can have its turn, because those left wait for lazy groups to read what they overwrite.
 * The first group that can run does; one that recomputes only if there is no other. */
static bool run_something(play *p)
{
    const scheduler *s = p->s;
    for (int recompute = 0; recompute < 2; recompute++)
        for (uint32_t i = 0; i < s->lowered->n_groups; i++)
            if (!p->done[i] && p->waits[i] == 0 && s->recompute[i] == recompute) {
                run_group(p, i);
                return true;
            }
    return false;
}

/* Returns the peak in bytes, or -1 if the groups form a cycle. */
static int64_t make_order(play *p, const bool *lazy, bool thrifty, uint32_t *order)
{
    const scheduler *s = p->s;
    const uint32_t n = s->lowered->n_groups;
    p->live = p->peak = 0;
    p->n_ready = p->n_order = 0;
    p->order = order;
    p->lazy = lazy;
    for (f8_ref r = 0; r < s->storage.g->n_nodes; r++) {
        p->allocation[r].left = p->allocation[r].events;
        p->allocation[r].alive = false;
    }
    for (uint32_t i = 0; i < n; i++) {
        p->done[i] = false;
        p->waits[i] = s->n_before[i];
        p->held[i] = s->n_before[i] + 1;
    }
    for (uint32_t i = 0; i < n; i++)
        release(p, i);
    do {
        while (p->n_ready > 0) {
            const uint32_t at = choose(p, thrifty);
            collect(p, p->ready[at]);
            p->ready[at] = p->ready[--p->n_ready];
            run_collected(p);
        }
    } while (run_something(p));
    return p->n_order == n ? p->peak : -1;
}

/* ---- the pass ---- */

static f8_status best_order(scheduler *s, f8_arena *arena)
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
    play p;
    F8_TRY(setup_play(&p, s));
    p.turn = turn;
    if (make_order(&p, s->recompute, false, order[0]) < 0)
        return f8_fail(s->diag, F8_ERR_INTERNAL, F8_NOWHERE,
                       "schedule: the groups of '%s' form a cycle", s->storage.func->name);
    for (uint32_t i = 0; i < n; i++)
        turn[order[0][i]] = i;
    F8_TRY(f8_storage_share(&s->storage, turn));
    F8_TRY(setup_play(&p, s));
    p.turn = turn;
    int64_t least = INT64_MAX;
    for (int i = 0; i < (s->any_recompute ? 3 : 2); i++) {
        const int64_t peak = make_order(&p, i == 2 ? s->inner : s->recompute, i == 1, order[i]);
        best = peak < least ? order[i] : best;
        least = peak < least ? peak : least;
    }
    s->lowered->order = best;
    return F8_OK;
}

f8_status f8_schedule_function(f8_unit *u, f8_func *f)
{
    scheduler s = {.lowered = f->lowered, .diag = u->diag};
    const size_t n = f->lowered->n_groups;
    f8_arena_init(&s.scratch, &u->arena->allocator);
    f8_status status = f8_storage_build(&s.storage, f, f8_unit_target(u), &s.scratch, u->diag);
    s.next = F8_NEW_ARRAY(&s.scratch, edges, n);
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

f8_status f8_pass_schedule(f8_unit *u)
{
    for (size_t i = 0; i < u->module->n_funcs; i++)
        F8_TRY(f8_schedule_function(u, &u->module->func[i]));
    return F8_OK;
}
