/* The minimum cut: see cut.h.
 *
 * Each value has two nodes: `had` (it is in memory after the moment) and `recompute` (it is
 * recomputed then). A node on the sink's side is true.
 *
 *   source -> recompute(v)   seconds         recomputing v; no limit where it can't be recomputed
 *   recompute(v) -> had(v)   price * bytes   had but not recomputed: v is kept
 *   had(u) -> recompute(v)   no limit        u is read to recompute v
 *   had(v) -> sink           no limit        v is read after the moment
 *
 * Dinic's algorithm (1970): shortest augmenting paths by levels. */
#include "passes/remat/cut.h"

#include <string.h>

#define NO_LIMIT ((int64_t)1 << 60)

enum { SOURCE, SINK, FIRST };

static uint32_t had(uint32_t v)
{
    return FIRST + 2 * v;
}

static uint32_t recompute(uint32_t v)
{
    return FIRST + 2 * v + 1;
}

/* Whether v is made before the moment, so that the cut decides about it. */
static bool early(const f8_remat_cut *c, uint32_t v)
{
    return c->t->first[v] < c->moment;
}

static bool can(const f8_remat_cut *c, uint32_t v)
{
    return c->t->ready[v] <= c->moment;
}

static bool read_after(const f8_remat_cut *c, uint32_t v)
{
    const struct f8_remat_accesses *x = &c->t->access[v];
    return x->n && c->t->position[x->id[x->n - 1]] > c->t->position[c->moment];
}

/* The first access after the moment: an action that reads v, or UINT32_MAX. */
static uint32_t first_read_after(const f8_remat_cut *c, uint32_t v)
{
    const struct f8_remat_accesses *x = &c->t->access[v];
    uint32_t found = UINT32_MAX;
    for (uint32_t i = x->n; i > 0; i--) {
        if (c->t->position[x->id[i - 1]] <= c->t->position[c->moment])
            break;
        found = x->id[i - 1];
    }
    return found;
}

/* ---- the network ---- */

/* Visit every edge: for each value the edge from the source and the edge that keeps it, then the
 * values it reads, then the sink. */
static void each_edge(const f8_remat_cut *c, void (*visit)(void *, uint32_t, uint32_t), void *user)
{
    const f8_remat_timeline *t = c->t;
    for (uint32_t v = 0; v < t->p->n_values; v++) {
        if (!early(c, v))
            continue;
        visit(user, SOURCE, recompute(v));
        visit(user, recompute(v), had(v));
        if (read_after(c, v))
            visit(user, had(v), SINK);
        const uint32_t row = t->p->n_steps + 1 + v;
        for (uint32_t i = t->need_at[row]; can(c, v) && i < t->need_at[row + 1]; i++)
            visit(user, had(t->need[i]), recompute(v));
    }
}

static void count_edge(void *user, uint32_t from, uint32_t to)
{
    uint32_t *n = user;
    n[from + 1]++;
    n[to + 1]++;
}

static void add_edge(void *user, uint32_t from, uint32_t to)
{
    f8_remat_cut *c = user;
    const uint32_t a = c->next[from]++, b = c->next[to]++;
    c->edge_to[a] = to;
    c->edge_to[b] = from;
    c->edge_back[a] = b;
    c->edge_back[b] = a;
}

bool f8_remat_cut_make(f8_remat_timeline *t, uint32_t moment, f8_remat_cut *c)
{
    *c = (f8_remat_cut){.t = t, .moment = moment, .n_nodes = FIRST + 2 * t->p->n_values};
    f8_arena *arena = t->arena;
    c->recompute = F8_NEW_ARRAY(arena, bool, t->p->n_values);
    c->node_at = F8_NEW_ARRAY(arena, uint32_t, (size_t)c->n_nodes + 1);
    if (!c->recompute || !c->node_at)
        return false;
    each_edge(c, count_edge, c->node_at);
    for (uint32_t i = 0; i < c->n_nodes; i++)
        c->node_at[i + 1] += c->node_at[i];
    const size_t n = c->node_at[c->n_nodes];
    c->edge_to = F8_NEW_ARRAY(arena, uint32_t, n);
    c->edge_back = F8_NEW_ARRAY(arena, uint32_t, n);
    c->room = F8_NEW_ARRAY(arena, int64_t, n);
    c->level = F8_NEW_ARRAY(arena, uint32_t, c->n_nodes);
    c->next = F8_NEW_ARRAY(arena, uint32_t, c->n_nodes);
    c->queue = F8_NEW_ARRAY(arena, uint32_t, c->n_nodes);
    c->path = F8_NEW_ARRAY(arena, uint32_t, c->n_nodes);
    if (!c->edge_to || !c->edge_back || !c->room || !c->level || !c->next || !c->queue || !c->path)
        return false;
    memcpy(c->next, c->node_at, c->n_nodes * sizeof *c->next);
    each_edge(c, add_edge, c);
    double total = 0;
    for (uint32_t v = 0; v < t->p->n_values; v++)
        total += t->p->value[v].seconds > 0 ? t->p->value[v].seconds : 0;
    c->unit = total > 0 ? total / (double)((int64_t)1 << 44) : 1;
    return true;
}

static int64_t amount(double x)
{
    return x < 0x1p58 ? (int64_t)x : (int64_t)1 << 58;
}

/* The first two edges of recompute(v) come from the source and go to had(v): each_edge's order. */
static void set_rooms(f8_remat_cut *c, double price)
{
    const f8_remat_problem *p = c->t->p;
    for (uint32_t v = 0; v < p->n_values; v++) {
        if (!early(c, v))
            continue;
        const uint32_t *at = &c->node_at[recompute(v)];
        for (uint32_t e = at[0]; e < at[1]; e++) {
            const uint32_t back = c->edge_back[e], to = c->edge_to[e];
            if (to == SOURCE) {
                c->room[e] = 0;
                c->room[back] = can(c, v) ? amount(p->value[v].seconds / c->unit) : NO_LIMIT;
            } else if (to == had(v)) {
                c->room[e] = amount((double)p->value[v].bytes * price / c->unit);
                c->room[back] = 0;
            } else {
                c->room[e] = 0;
                c->room[back] = NO_LIMIT;
            }
        }
    }
    for (uint32_t e = c->node_at[SINK]; e < c->node_at[SINK + 1]; e++) {
        c->room[e] = 0;
        c->room[c->edge_back[e]] = NO_LIMIT;
    }
}

/* ---- flow ---- */

/* Levels by distance to the sink. False: the source is cut off. */
static bool set_levels(f8_remat_cut *c)
{
    memset(c->level, 0, c->n_nodes * sizeof *c->level);
    uint32_t n = 0;
    c->queue[n++] = SINK;
    c->level[SINK] = 1;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t x = c->queue[i];
        for (uint32_t e = c->node_at[x]; e < c->node_at[x + 1]; e++) {
            const uint32_t y = c->edge_to[e];
            if (c->level[y] || c->room[c->edge_back[e]] <= 0)
                continue;
            c->level[y] = c->level[x] + 1;
            c->queue[n++] = y;
        }
    }
    c->t->work += n * 8;
    return c->level[SOURCE] != 0;
}

/* Flow along c->path, n edges from the source to the sink. Gives the first edge that is full then.
 */
static uint32_t augment(f8_remat_cut *c, uint32_t n)
{
    int64_t least = INT64_MAX;
    uint32_t first = 0;
    for (uint32_t i = 0; i < n; i++)
        if (c->room[c->path[i]] < least) {
            least = c->room[c->path[i]];
            first = i;
        }
    for (uint32_t i = 0; i < n; i++) {
        c->room[c->path[i]] -= least;
        c->room[c->edge_back[c->path[i]]] += least;
    }
    c->t->work += n;
    return first;
}

static void block(f8_remat_cut *c)
{
    memcpy(c->next, c->node_at, c->n_nodes * sizeof *c->next);
    uint32_t x = SOURCE, depth = 0;
    for (;;) {
        if (x == SINK) {
            depth = augment(c, depth);
            x = c->edge_to[c->edge_back[c->path[depth]]];
        }
        uint32_t e = c->next[x];
        while (e < c->node_at[x + 1] &&
               (c->room[e] <= 0 || c->level[c->edge_to[e]] + 1 != c->level[x]))
            e++;
        c->t->work += e - c->next[x] + 1;
        c->next[x] = e;
        if (e < c->node_at[x + 1]) {
            c->path[depth++] = e;
            x = c->edge_to[e];
        } else if (x == SOURCE) {
            return;
        } else {
            x = c->edge_to[c->edge_back[c->path[--depth]]];
            c->next[x]++;
        }
    }
}

void f8_remat_cut_solve(f8_remat_cut *c, double price)
{
    const f8_remat_problem *p = c->t->p;
    set_rooms(c, price);
    while (set_levels(c))
        block(c);
    /* The nodes on the sink's side are those that still reach the sink. */
    c->bytes = c->seconds = 0;
    for (uint32_t v = 0; v < p->n_values; v++) {
        c->recompute[v] = early(c, v) && c->level[recompute(v)];
        if (c->recompute[v])
            c->seconds += p->value[v].seconds;
        else if (early(c, v) && c->level[had(v)])
            c->bytes += (double)p->value[v].bytes;
    }
}

void f8_remat_cut_apply(const f8_remat_cut *c)
{
    const f8_remat_timeline *t = c->t;
    for (uint32_t s = c->moment; s-- > 0;)
        for (uint32_t i = t->make_at[s + 1]; i-- > t->make_at[s];) {
            const uint32_t v = t->make[i];
            const uint32_t reader = c->recompute[v] ? first_read_after(c, v) : UINT32_MAX;
            if (reader != UINT32_MAX && !t->failed)
                f8_remat_insert(c->t, v, t->position[reader]);
        }
}
