/* The exact optimum of small problems: see remat_graphs.h.
 *
 * A state is the next step and the set of values in memory. Three actions lead from it: run the
 * step; recompute a value that is not in memory, whose `from` is; drop a value. While an action
 * runs, everything in memory before it, everything it makes and its workspace count. This is what
 * f8_remat_plan_measure counts, since a value that nothing reads later can be dropped before.
 * Values are dropped only where an action lacks room and then has it: any plan can wait that long.
 */
#include "tests/shared/remat/remat_graphs.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_VALUES = 32, MOST_STEPS = 64 };

typedef struct entry {
    uint64_t key; /* step << 32 | values */
    double seconds;
    uint32_t from; /* entry */
    bool done;
} entry;

typedef struct queued {
    double seconds;
    uint32_t entry;
} queued;

typedef struct search {
    const f8_remat_problem *p;
    int64_t budget;
    uint32_t need[MOST_STEPS + 1], made[MOST_STEPS + 1], useful[MOST_STEPS + 2];
    uint32_t from[MOST_VALUES], first[MOST_VALUES], n_writers[MOST_VALUES];
    entry *entry;    /* in order of discovery */
    uint32_t *table; /* by hash: entry + 1 */
    queued *heap;
    size_t n, room, n_table, n_heap, heap_room;
} search;

static bool again(const search *s, uint32_t v)
{
    return s->p->value[v].seconds >= 0 && s->n_writers[v] == 1;
}

static int64_t bytes_of(const search *s, uint32_t set)
{
    int64_t sum = 0;
    for (; set; set &= set - 1)
        sum += s->p->value[__builtin_ctz(set)].bytes;
    return sum;
}

static void read_problem(search *s)
{
    const f8_remat_problem *p = s->p;
    for (uint32_t v = 0; v < p->n_values; v++) {
        s->first[v] = UINT32_MAX;
        for (uint32_t i = 0; i < p->value[v].n_from; i++)
            s->from[v] |= 1u << p->value[v].from[i];
        if (p->value[v].result)
            s->need[p->n_steps] |= 1u << v;
    }
    for (uint32_t i = 0; i < p->n_steps; i++) {
        for (uint32_t k = 0; k < p->step[i].n_read; k++)
            s->need[i] |= 1u << p->step[i].read[k];
        for (uint32_t k = 0; k < p->step[i].n_write; k++) {
            const uint32_t v = p->step[i].write[k];
            s->n_writers[v]++;
            if (s->first[v] == UINT32_MAX)
                s->first[v] = i;
            *(s->first[v] == i ? &s->made[i] : &s->need[i]) |= 1u << v;
        }
    }
    /* What is read from step i on, or by computing such again. */
    for (uint32_t i = p->n_steps + 1; i-- > 0;) {
        s->useful[i] = s->useful[i + 1] | s->need[i];
        for (uint32_t before = 0; before != s->useful[i];) {
            before = s->useful[i];
            for (uint32_t v = 0; v < p->n_values; v++)
                if ((before >> v & 1) && again(s, v))
                    s->useful[i] |= s->from[v];
        }
    }
}

/* ---- Dijkstra ---- */

static void *grown(void *old, size_t *room, size_t need, size_t size)
{
    if (need <= *room)
        return old;
    *room = need * 2 + 1024;
    void *p = realloc(old, *room * size);
    if (!p)
        abort();
    return p;
}

static uint32_t *place(search *s, uint64_t key)
{
    size_t at = (key * 0x9e3779b97f4a7c15u >> 20) & (s->n_table - 1);
    while (s->table[at] && s->entry[s->table[at] - 1].key != key)
        at = (at + 1) & (s->n_table - 1);
    return &s->table[at];
}

static void enlarge(search *s)
{
    free(s->table);
    s->n_table = s->n_table ? s->n_table * 2 : 4096;
    s->table = calloc(s->n_table, sizeof *s->table);
    if (!s->table)
        abort();
    for (uint32_t i = 0; i < s->n; i++)
        *place(s, s->entry[i].key) = i + 1;
}

static void queue(search *s, uint32_t e)
{
    s->heap = grown(s->heap, &s->heap_room, s->n_heap + 1, sizeof *s->heap);
    size_t i = s->n_heap++;
    const double seconds = s->entry[e].seconds;
    for (; i && s->heap[(i - 1) / 2].seconds > seconds; i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = (queued){seconds, e};
}

static uint32_t dequeue(search *s)
{
    const queued top = s->heap[0], last = s->heap[--s->n_heap];
    size_t i = 0;
    for (size_t k = 1; k < s->n_heap; k = 2 * i + 1) {
        k += k + 1 < s->n_heap && s->heap[k + 1].seconds < s->heap[k].seconds;
        if (s->heap[k].seconds >= last.seconds)
            break;
        s->heap[i] = s->heap[k];
        i = k;
    }
    s->heap[i] = last;
    return top.entry;
}

static void reach(search *s, uint32_t step, uint32_t set, double seconds, uint32_t from)
{
    if (2 * s->n >= s->n_table)
        enlarge(s);
    const uint64_t key = (uint64_t)step << 32 | set;
    uint32_t *at = place(s, key);
    if (!*at) {
        s->entry = grown(s->entry, &s->room, s->n + 1, sizeof *s->entry);
        s->entry[s->n++] = (entry){.key = key, .seconds = seconds, .from = from};
        *at = (uint32_t)s->n;
    } else if (s->entry[*at - 1].done || seconds >= s->entry[*at - 1].seconds) {
        return;
    } else {
        s->entry[*at - 1].seconds = seconds;
        s->entry[*at - 1].from = from;
    }
    queue(s, *at - 1);
}

static void expand(search *s, uint32_t e)
{
    const f8_remat_problem *p = s->p;
    const uint32_t step = (uint32_t)(s->entry[e].key >> 32), set = (uint32_t)s->entry[e].key;
    const double seconds = s->entry[e].seconds;
    const int64_t bytes = bytes_of(s, set);
    uint32_t drop = 0;
    for (uint32_t v = 0; v <= p->n_values; v++) {
        const bool run = v == p->n_values;
        if (run ? step == p->n_steps
                : !again(s, v) || s->first[v] >= step || (set >> v & 1) ||
                      !(s->useful[step] >> v & 1))
            continue;
        const uint32_t in = run ? s->need[step] : s->from[v], out = run ? s->made[step] : 1u << v;
        const int64_t running = run ? p->step[step].bytes : 0;
        if (in & ~set)
            continue;
        if (bytes + bytes_of(s, out) + running <= s->budget)
            reach(s, step + run, (set | out) & s->useful[step + run],
                  seconds + (run ? 0 : p->value[v].seconds), e);
        else if (bytes_of(s, in | out) + running <= s->budget)
            drop |= set & ~in;
    }
    for (; drop; drop &= drop - 1)
        reach(s, step, set & ~(drop & -drop), seconds, e);
}

/* The actions on the way to entry e: drops are none. */
static void trace(const search *s, uint32_t e, f8_arena *arena, f8_remat_plan *out)
{
    uint32_t n = 0;
    for (uint32_t i = e; i; i = s->entry[i].from)
        n++;
    out->action = F8_NEW_ARRAY(arena, f8_remat_action, n);
    if (!out->action)
        abort();
    uint32_t at = n;
    for (uint32_t i = e; i; i = s->entry[i].from) {
        const uint64_t to = s->entry[i].key, from = s->entry[s->entry[i].from].key;
        const uint32_t added = (uint32_t)to & ~(uint32_t)from;
        if (to >> 32 != from >> 32)
            out->action[--at] = (f8_remat_action){false, (uint32_t)(from >> 32)};
        else if (added)
            out->action[--at] = (f8_remat_action){true, (uint32_t)__builtin_ctz(added)};
    }
    out->n_actions = n - at;
    memmove(out->action, out->action + at, out->n_actions * sizeof *out->action);
    out->seconds = s->entry[e].seconds;
}

bool remat_optimum(const f8_remat_problem *p, int64_t budget, f8_arena *arena, f8_remat_plan *out)
{
    if (p->n_values > MOST_VALUES || p->n_steps > MOST_STEPS)
        abort();
    search s = {.p = p, .budget = budget};
    bool found = false;
    *out = (f8_remat_plan){0};
    read_problem(&s);
    reach(&s, 0, 0, 0, 0);
    while (s.n_heap && !found) {
        const uint32_t e = dequeue(&s);
        if (s.entry[e].done)
            continue;
        s.entry[e].done = true;
        found =
            s.entry[e].key >> 32 == p->n_steps && !(s.need[p->n_steps] & ~(uint32_t)s.entry[e].key);
        if (found)
            trace(&s, e, arena, out);
        else
            expand(&s, e);
    }
    free(s.entry);
    free(s.table);
    free(s.heap);
    return found;
}
