/* Orders of a function's groups: see order.h.
 *
 * An order is played: groups run one by one, and allocations come and go. The groups that can have
 * their turn are in a heap, the best on top. Under `thrifty` what running a group would free
 * depends on what has run. It is worked out when the group gets into the heap, and again where
 * something that it depends on has changed: looking at every group at every turn would take time
 * that grows with the square of the layers. */
#include "passes/memory/order.h"

#include <stdlib.h>

/* A group of the heap that has to be looked at again when something changes. */
typedef struct watch {
    uint32_t group;
    struct watch *next;
} watch;

/* An allocation while an order is played: it lives from its first write to its last read. */
typedef struct allocation {
    int64_t bytes;
    uint32_t events; /* writes and reads of all its bases */
    uint32_t left;
    bool alive;
    watch *watch;                 /* groups that access it, or need lazy groups that do */
    uint32_t most;                /* the most events that one of these turns has */
    uint32_t counted_by, counted; /* scratch: such a turn's group + 1, and its events so far */
} allocation;

struct f8_order_maker {
    f8_scheduler *s;
    allocation *allocation; /* by root ref */
    f8_ref **accessed;      /* by group: roots it writes or reads, once each event */
    uint32_t *n_accessed;
    const bool *lazy; /* by group: it runs only when another group that needs it has its turn */
    uint32_t *waits;  /* by group: edges from groups that have not run */
    uint32_t *held;   /* by group: those of them that running lazy groups would not satisfy */
    bool *done;       /* by group */
    /* the lazy groups that one group needs, as turn << 32 | group; then that group */
    uint64_t *run;
    uint32_t n_run;
    const uint32_t *turn; /* by group: its place in the first order; 0 while that order is made */
    uint32_t *order, n_order;
    int64_t live, peak;
    uint32_t *ready, n_ready; /* the heap of groups that can have their turn */
    uint32_t *slot;           /* by group: its index in ready[], + 1; 0: it is not there */
    int64_t *key;             /* by group of the heap, the lowest on top; of equal ones the lowest
                                 group */
    bool thrifty;
    watch **watch;        /* by lazy group: the groups of the heap that need it */
    bool *watched;        /* by group: it is in the lists of what it depends on */
    bool *stale;          /* by group of the heap: its key may be wrong */
    uint32_t *old, n_old; /* the stale ones */
};

f8_status f8_order_begin(f8_scheduler *s, const uint32_t *turn, f8_order_maker **out)
{
    const f8_storage *t = &s->storage;
    const uint32_t n = s->lowered->n_groups;
    f8_order_maker *p = *out = F8_NEW(&s->scratch, f8_order_maker);
    F8_TRY(f8_arena_status(&s->scratch, s->diag));
    *p = (f8_order_maker){.s = s, .turn = turn};
    p->allocation = F8_NEW_ARRAY(&s->scratch, allocation, t->g->n_nodes);
    p->accessed = F8_NEW_ARRAY(&s->scratch, f8_ref *, n);
    p->n_accessed = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    p->ready = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    p->slot = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    p->key = F8_NEW_ARRAY(&s->scratch, int64_t, n);
    p->waits = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    p->held = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    p->done = F8_NEW_ARRAY(&s->scratch, bool, n);
    p->run = F8_NEW_ARRAY(&s->scratch, uint64_t, n);
    p->watch = F8_NEW_ARRAY(&s->scratch, watch *, n);
    p->watched = F8_NEW_ARRAY(&s->scratch, bool, n);
    p->stale = F8_NEW_ARRAY(&s->scratch, bool, n);
    p->old = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
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

/* ---- what a turn runs ---- */

/* Nothing holds group i. Fill run[] with the lazy groups that it needs, and then with i. */
static void gather(f8_order_maker *p, uint32_t i)
{
    f8_scheduler *s = p->s;
    uint32_t depth = 0;
    p->n_run = 0;
    s->mark++;
    if (p->waits[i] > 0)
        s->stack[depth++] = i;
    while (depth > 0) {
        const uint32_t at = s->stack[--depth];
        for (uint32_t k = 0; k < s->lowered->group[at].n_in; k++) {
            const uint32_t from = f8_group_maker(s, at, k);
            if (from == F8_NO_GROUP || p->done[from] || s->stamp[from] == s->mark)
                continue;
            s->stamp[from] = s->mark;
            s->stack[depth++] = from;
            p->run[p->n_run++] = (uint64_t)p->turn[from] << 32 | from;
        }
    }
    p->run[p->n_run++] = i;
}

static int by_turn(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* As gather, with the lazy groups in the order of their turns. */
static void collect(f8_order_maker *p, uint32_t i)
{
    gather(p, i);
    qsort(p->run, p->n_run - 1, sizeof *p->run, by_turn);
}

/* Bytes by which the arena grows (shrinks, if negative) over the groups run[0, n). */
static int64_t growth(f8_order_maker *p, const uint64_t *run, uint32_t n, int64_t *allocated)
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

/* ---- the heap of groups that can have their turn ---- */

static bool is_better(const f8_order_maker *p, uint32_t a, uint32_t b)
{
    return p->key[a] != p->key[b] ? p->key[a] < p->key[b] : a < b;
}

static void put(f8_order_maker *p, uint32_t slot, uint32_t group)
{
    p->ready[slot] = group;
    p->slot[group] = slot + 1;
}

/* Put `group`, of which slot `at` is free, where it belongs. */
static void settle(f8_order_maker *p, uint32_t at, uint32_t group)
{
    for (; at && is_better(p, group, p->ready[(at - 1) / 2]); at = (at - 1) / 2)
        put(p, at, p->ready[(at - 1) / 2]);
    for (uint32_t k = 2 * at + 1; k < p->n_ready; k = 2 * at + 1) {
        k += k + 1 < p->n_ready && is_better(p, p->ready[k + 1], p->ready[k]);
        if (!is_better(p, p->ready[k], group))
            break;
        put(p, at, p->ready[k]);
        at = k;
    }
    put(p, at, group);
}

static void make_stale(f8_order_maker *p, uint32_t group)
{
    if (p->slot[group] && !p->stale[group]) {
        p->stale[group] = true;
        p->old[p->n_old++] = group;
    }
}

static void make_all_stale(f8_order_maker *p, const watch *w)
{
    for (; w; w = w->next)
        make_stale(p, w->group);
}

/* Groups that free less than they allocate come last, by their number. */
enum { NOT_THRIFTY = 1 };

static void add_ready(f8_order_maker *p, uint32_t group)
{
    p->key[group] = NOT_THRIFTY;
    settle(p, p->n_ready++, group);
    if (p->thrifty)
        make_stale(p, group);
}

static uint32_t take_ready(f8_order_maker *p)
{
    const uint32_t top = p->ready[0], last = p->ready[--p->n_ready];
    p->slot[top] = 0;
    if (last != top)
        settle(p, 0, last);
    return top;
}

static bool add_watch(f8_order_maker *p, watch **list, uint32_t group)
{
    watch *w = F8_NEW(&p->s->scratch, watch);
    if (!w)
        return false;
    *w = (watch){group, *list};
    *list = w;
    return true;
}

/* Let `group`, whose turn is in run[], be looked at again where that can tell: where it is the
 * first to access an allocation, or has all events that are left of one. The turn gets no other
 * groups later. */
static bool watch_turn(f8_order_maker *p, uint32_t group)
{
    for (uint32_t i = 0; i < p->n_run; i++) {
        const uint32_t at = (uint32_t)p->run[i];
        if (at != group && !add_watch(p, &p->watch[at], group))
            return false;
        for (uint32_t k = 0; k < p->n_accessed[at]; k++) {
            allocation *u = &p->allocation[p->accessed[at][k]];
            if (u->counted_by != group + 1 && !add_watch(p, &u->watch, group))
                return false;
            u->counted = u->counted_by == group + 1 ? u->counted + 1 : 1;
            u->counted_by = group + 1;
            u->most = u->counted > u->most ? u->counted : u->most;
        }
    }
    p->watched[group] = true;
    return true;
}

/* Bring the keys up to date. */
static bool look_again(f8_order_maker *p)
{
    while (p->n_old > 0) {
        const uint32_t group = p->old[--p->n_old];
        int64_t allocated;
        p->stale[group] = false;
        if (!p->slot[group])
            continue;
        gather(p, group);
        if (!p->watched[group] && !watch_turn(p, group))
            return false;
        const int64_t change = growth(p, p->run, p->n_run, &allocated);
        p->key[group] = change < NOT_THRIFTY ? change : NOT_THRIFTY;
        settle(p, p->slot[group] - 1, group);
    }
    return true;
}

/* ---- turns ---- */

/* One edge less holds group i. It may have been the last one. */
static void release(f8_order_maker *p, uint32_t i)
{
    f8_scheduler *s = p->s;
    uint32_t depth = 0;
    if (--p->held[i] > 0)
        return;
    s->stack[depth++] = i;
    while (depth > 0) {
        const uint32_t at = s->stack[--depth];
        if (!p->lazy[at]) {
            add_ready(p, at);
            continue;
        }
        for (uint32_t k = 0; k < s->next[at].n; k++)
            if (s->next[at].to[k] & 1 && --p->held[s->next[at].to[k] / 2] == 0)
                s->stack[depth++] = s->next[at].to[k] / 2;
    }
}

/* Group i is about to access this allocation. */
static void access(f8_order_maker *p, allocation *u)
{
    const bool first = !u->alive && u->left == u->events;
    u->alive = true;
    u->left--;
    if (first || u->left <= u->most)
        make_all_stale(p, u->watch);
}

static void run_group(f8_order_maker *p, uint32_t i)
{
    int64_t allocated;
    const int64_t change = growth(p, &(uint64_t){i}, 1, &allocated);
    p->peak = p->live + allocated > p->peak ? p->live + allocated : p->peak;
    p->live += change;
    p->done[i] = true;
    p->order[p->n_order++] = i;
    for (uint32_t k = 0; k < p->n_accessed[i]; k++)
        access(p, &p->allocation[p->accessed[i][k]]);
    make_all_stale(p, p->watch[i]);
    const f8_group_edges *e = &p->s->next[i];
    for (uint32_t k = 0; k < e->n; k++) {
        p->waits[e->to[k] / 2]--;
        if (!p->lazy[i] || !(e->to[k] & 1)) /* else it was released together with this group */
            release(p, e->to[k] / 2);
    }
}

/* Run all of run[], each as soon as its turn comes and it waits for nothing. */
static void run_collected(f8_order_maker *p)
{
    const uint32_t n = p->n_run, before = p->n_order;
    while (p->n_order < before + n)
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t group = (uint32_t)p->run[i];
            if (!p->done[group] && p->waits[group] == 0)
                run_group(p, group);
        }
}

/* No group can have its turn, because those left wait for lazy groups to read what they overwrite.
 * The first group that can run does; one that recomputes only if there is no other. */
static bool run_something(f8_order_maker *p)
{
    const f8_scheduler *s = p->s;
    for (int recompute = 0; recompute < 2; recompute++)
        for (uint32_t i = 0; i < s->lowered->n_groups; i++)
            if (!p->done[i] && p->waits[i] == 0 && s->recompute[i] == recompute) {
                run_group(p, i);
                return true;
            }
    return false;
}

static void reset(f8_order_maker *p)
{
    const f8_scheduler *s = p->s;
    p->live = p->peak = 0;
    p->n_ready = p->n_order = p->n_old = 0;
    for (f8_ref r = 0; r < s->storage.g->n_nodes; r++) {
        allocation *u = &p->allocation[r];
        *u = (allocation){.bytes = u->bytes, .events = u->events, .left = u->events};
    }
    for (uint32_t i = 0; i < s->lowered->n_groups; i++) {
        p->done[i] = p->watched[i] = p->stale[i] = false;
        p->watch[i] = NULL;
        p->slot[i] = 0;
        p->waits[i] = s->n_before[i];
        p->held[i] = s->n_before[i] + 1;
    }
}

f8_status f8_order_make(f8_order_maker *p, const bool *lazy, bool thrifty, uint32_t *order,
                        int64_t *peak)
{
    const f8_scheduler *s = p->s;
    const uint32_t n = s->lowered->n_groups;
    p->order = order;
    p->lazy = lazy;
    p->thrifty = thrifty;
    reset(p);
    for (uint32_t i = 0; i < n; i++)
        release(p, i);
    do {
        while (p->n_ready > 0) {
            if (!look_again(p))
                return f8_arena_status(&s->scratch, s->diag);
            collect(p, take_ready(p));
            run_collected(p);
        }
    } while (run_something(p));
    *peak = p->n_order == n ? p->peak : -1;
    return F8_OK;
}
