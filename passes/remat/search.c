/* Local search: see search.h. */
#include "passes/remat/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Arrays that live as long as the timeline. */
struct f8_remat_scratch {
    struct trial *trial;
    struct gap *gap;
    double *over; /* by position: the excess before it */
    size_t gap_room, over_room;
    uint32_t *value,
        n_values; /* those with bytes that can be recomputed: a small part of some problems */
};

/* ---- a move: value v is dropped after one access and recomputed just before the next ---- */

typedef struct gap {
    uint32_t value, id; /* the action that reads it next */
    uint32_t version;   /* the timeline's version when reach and score were computed */
    int reach;
    double score;
} gap;

enum { DEEP = 256 };

static uint32_t draw(f8_remat_timeline *t, uint32_t n)
{
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((t->random >> 33) % n);
}

static bool may_insert(const f8_remat_timeline *t, uint32_t v, uint32_t position)
{
    return t->ready[v] <= t->p->n_steps && position > t->position[t->ready[v] - 1];
}

/* The position of the access of v before `id`, which reads it. */
static uint32_t access_before(const f8_remat_timeline *t, uint32_t v, uint32_t id)
{
    const struct f8_remat_accesses *x = &t->access[v];
    uint32_t i = x->n - 1;
    while (x->id[i] != id)
        i--;
    return t->position[x->id[i - 1]];
}

typedef struct trial {
    uint32_t id[DEEP], n;
    double excess;
    bool more; /* the value that was dropped reads one that could be recomputed as well */
} trial;

static void undo(f8_remat_timeline *t, trial *x, uint32_t to)
{
    while (x->n > to)
        f8_remat_remove(t, x->id[--x->n]);
}

/* What a drop does about values that the recomputation reads and that would otherwise have to be
 * kept. */
enum { EARLY = 1, KEEP = 0, WHERE_IT_HELPS = 2, ALL = 4 };

/* Where to recompute v: just before `id` reads it; or, with EARLY, right after the last earlier
 * access of what recomputing v reads. */
static uint32_t drop_position(const f8_remat_timeline *t, uint32_t v, uint32_t id, int reach)
{
    const uint32_t row = t->p->n_steps + 1 + v, latest = t->position[id];
    uint32_t at = access_before(t, v, id) + 1;
    if (!(reach & EARLY) || t->need_at[row] == t->need_at[row + 1])
        return latest;
    for (uint32_t i = t->need_at[row]; i < t->need_at[row + 1]; i++) {
        const uint32_t next = f8_remat_access_from(t, t->need[i], latest);
        const uint32_t last = t->position[t->access[t->need[i]].id[next - 1]] + 1;
        at = last > at ? last : at;
    }
    return at;
}

/* Whether u, which a recomputation at `position` reads, can be recomputed there, so that it need
 * not be kept for it. `there`: the timeline has that recomputation. */
static bool may_extend(const f8_remat_timeline *t, uint32_t u, uint32_t position, bool there)
{
    const uint32_t own = f8_remat_access_from(t, u, position);
    return may_insert(t, u, position) && !f8_remat_reads_on(t, u, own + there) &&
           t->position[t->access[u].id[own - 1]] + 1 < position;
}

static bool may_extend_any(const f8_remat_timeline *t, uint32_t v, uint32_t position, bool there)
{
    uint32_t n;
    const uint32_t *from = f8_remat_sources(t, v, &n);
    while (n > 0 && !may_extend(t, from[n - 1], position, there))
        n--;
    return n > 0;
}

/* Recompute u for the recomputation `reader`; unless `all`, only where it helps. */
static void extend(f8_remat_timeline *t, uint32_t u, uint32_t reader, bool all, trial *x)
{
    const uint32_t position = t->position[reader];
    if (!may_extend(t, u, position, true))
        return;
    const f8_remat_effect effect = f8_remat_effect_of_insert(t, u, position);
    if (!all && effect.excess >= x->excess) {
        t->work += effect.work;
        return;
    }
    x->id[x->n++] = f8_remat_insert(t, u, position);
    x->excess = effect.excess;
}

/* Recompute v before action `id`; depending on `reach`, also what that reads, and so on. */
static void try_drop(f8_remat_timeline *t, uint32_t v, uint32_t id, int reach, trial *x)
{
    const uint32_t position = drop_position(t, v, id, reach);
    reach &= ~EARLY;
    x->n = 0;
    x->id[x->n++] = f8_remat_insert(t, v, position);
    x->excess = f8_remat_excess(t);
    x->more = !t->failed && may_extend_any(t, v, position, true);
    for (uint32_t next = 0; next < x->n && reach != KEEP && !t->failed; next++) {
        uint32_t n;
        const uint32_t *need = f8_remat_needs(t, x->id[next], &n);
        for (uint32_t i = 0; i < n && x->n < DEEP && !t->failed; i++)
            extend(t, need[i], x->id[next], reach == ALL, x);
    }
    for (uint32_t i = x->n; reach == ALL && i-- > 1 && !t->failed;) {
        const f8_remat_effect effect = f8_remat_effect_of_remove(t, x->id[i]);
        if (effect.excess <= x->excess) {
            x->excess = effect.excess;
            f8_remat_remove(t, x->id[i]);
            memmove(x->id + i, x->id + i + 1, (--x->n - i) * sizeof *x->id);
        } else {
            t->work += effect.work;
        }
    }
}

/* What try_drop would make of the excess with reach KEEP. Changes nothing. */
static void look_at_drop(f8_remat_timeline *t, uint32_t v, uint32_t id, int reach, trial *x)
{
    const uint32_t position = drop_position(t, v, id, reach);
    const f8_remat_effect effect = f8_remat_effect_of_insert(t, v, position);
    t->work += effect.work;
    x->excess = effect.excess;
    x->more = may_extend_any(t, v, position, false);
}

/* ---- repair ---- */

/* Gaps by score, the best on top. A score is usually an upper bound, since drops reduce each
 * other's worth. So after a change only the top gap is scored anew (lazy greedy, Minoux 1978). */
typedef struct heap {
    gap *gap;
    uint32_t n;
    double noise;     /* scores are raised at random by up to this much */
    uint32_t version; /* changes of the timeline */
} heap;

static void push(f8_remat_timeline *t, heap *h, gap g)
{
    struct f8_remat_scratch *x = t->scratch;
    gap *grown =
        f8_arena_grow(t->arena, x->gap, h->n, &x->gap_room, (size_t)h->n + 1, sizeof *grown);
    if (!grown) {
        t->failed = true;
        return;
    }
    h->gap = x->gap = grown;
    uint32_t i = h->n++;
    for (; i && h->gap[(i - 1) / 2].score < g.score; i = (i - 1) / 2)
        h->gap[i] = h->gap[(i - 1) / 2];
    h->gap[i] = g;
    t->work += 4;
}

static gap pop(heap *h)
{
    const gap top = h->gap[0], last = h->gap[--h->n];
    uint32_t i = 0;
    for (uint32_t k = 1; k < h->n; k = 2 * i + 1) {
        k += k + 1 < h->n && h->gap[k + 1].score > h->gap[k].score;
        if (h->gap[k].score <= last.score)
            break;
        h->gap[i] = h->gap[k];
        i = k;
    }
    h->gap[i] = last;
    return top;
}

/* Push the gaps of v, each with the most that dropping v there could give. */
static void push_gaps(f8_remat_timeline *t, heap *h, const double *over, uint32_t v)
{
    const struct f8_remat_accesses *x = &t->access[v];
    const double bytes = (double)t->p->value[v].bytes, seconds = t->p->value[v].seconds;
    for (uint32_t i = 0; i + 1 < x->n; i++) {
        const uint32_t from = t->position[x->id[i]] + 1, to = t->position[x->id[i + 1]];
        if (from >= to || over[from] >= over[to] || f8_remat_makes(t, x->id[i + 1], v) ||
            !may_insert(t, v, to))
            continue;
        double gain = over[to] - over[from];
        if (gain > bytes * (to - from))
            gain = bytes * (to - from);
        double score = gain / (seconds + 1e-30);
        if (h->noise > 0)
            score *= 1 + h->noise * draw(t, 1024) / 1024.0;
        push(t, h, (gap){v, x->id[i + 1], UINT32_MAX, KEEP, score});
    }
    t->work += x->n;
}

static void sum_excess(f8_remat_timeline *t)
{
    struct f8_remat_scratch *x = t->scratch;
    double *over =
        f8_arena_grow(t->arena, x->over, 0, &x->over_room, (size_t)t->n + 1, sizeof *over);
    if (!over) {
        t->failed = true;
        return;
    }
    x->over = over;
    over[0] = 0;
    for (uint32_t at = 0; at < t->n; at++)
        over[at + 1] = over[at] + (t->live[at] > t->budget ? (double)(t->live[at] - t->budget) : 0);
    t->work += t->n;
}

static bool can_early(const f8_remat_timeline *t, const gap *g)
{
    const uint32_t at = drop_position(t, g->value, g->id, EARLY);
    return at + 1 < t->position[g->id] && at > access_before(t, g->value, g->id) + 1 &&
           may_insert(t, g->value, at);
}

/* Score a gap by one way to drop it, if that is better than its score so far. Sets x->more. */
static void look_at(f8_remat_timeline *t, double excess, int reach, gap *g, trial *x)
{
    const double before = t->seconds;
    x->more = false;
    if ((reach & EARLY) && !can_early(t, g))
        return;
    double seconds = t->p->value[g->value].seconds;
    if ((reach & ~EARLY) == KEEP) {
        look_at_drop(t, g->value, g->id, reach, x);
    } else {
        try_drop(t, g->value, g->id, reach, x);
        seconds = t->seconds - before;
        undo(t, x, 0);
    }
    const double score = (excess - x->excess) / (seconds + 1e-30);
    if (x->excess < excess && score > g->score) {
        g->score = score;
        g->reach = reach;
    }
}

/* Score a gap by trying it. The way that was the best last time is tried alone while it helps. The
 * widest reach costs the most time, so it is tried only where nothing else helps. Where nothing
 * more could be recomputed, all reaches are one. */
static void look(f8_remat_timeline *t, double excess, gap *g, trial *x)
{
    static const int reaches[] = {KEEP, KEEP | EARLY, WHERE_IT_HELPS, WHERE_IT_HELPS | EARLY,
                                  ALL,  ALL | EARLY};
    bool more[] = {true, true}; /* by EARLY */
    g->score = 0;
    if (g->version != UINT32_MAX)
        look_at(t, excess, g->reach, g, x);
    if (g->score > 0)
        return;
    for (size_t i = 0; i < sizeof reaches / sizeof *reaches && (reaches[i] < ALL || g->score <= 0);
         i++)
        if (more[reaches[i] & EARLY]) {
            look_at(t, excess, reaches[i], g, x);
            more[reaches[i] & EARLY] = x->more;
        }
}

static bool is_gap(const f8_remat_timeline *t, const gap *g)
{
    const uint32_t at = t->position[g->id];
    return access_before(t, g->value, g->id) + 1 < at;
}

/* A gap this near the next one's bound is taken without a look at the others, of which a model with
 * many layers has many alike. */
#define NEARLY 0.95

/* Empty the heap: apply the best gap while it helps. Gives the excess that is left. */
static double apply_best(f8_remat_timeline *t, heap *h, double excess, trial *x)
{
    while (h->n && excess > 0 && !f8_remat_stop(t)) {
        gap g = pop(h);
        if (!is_gap(t, &g))
            continue;
        if (g.version != h->version) {
            look(t, excess, &g, x);
            g.version = h->version;
            if (g.score > 0 && h->n && g.score < NEARLY * h->gap[0].score) {
                push(t, h, g);
                continue;
            }
        }
        if (g.score <= 0)
            continue;
        try_drop(t, g.value, g.id, g.reach, x);
        excess = x->excess;
        h->version++;
    }
    return excess;
}

static bool make_scratch(f8_remat_timeline *t)
{
    if (t->scratch)
        return true;
    t->scratch = F8_NEW(t->arena, struct f8_remat_scratch);
    struct f8_remat_scratch *x = t->scratch;
    if (x) {
        x->trial = F8_NEW(t->arena, trial);
        x->value = F8_NEW_ARRAY(t->arena, uint32_t, t->p->n_values);
    }
    t->failed = !x || !x->trial || !x->value;
    for (uint32_t v = 0; v < t->p->n_values && !t->failed; v++)
        if (t->ready[v] <= t->p->n_steps && t->p->value[v].bytes > 0)
            x->value[x->n_values++] = v;
    return !t->failed;
}

static void repair(f8_remat_timeline *t, double noise)
{
    if (!make_scratch(t))
        return;
    double excess = f8_remat_excess(t);
    heap h = {.gap = t->scratch->gap, .noise = noise};
    for (uint32_t before = 1; excess > 0 && before != h.version;) {
        sum_excess(t);
        before = h.version;
        h.n = 0;
        for (uint32_t i = 0; i < t->scratch->n_values && !f8_remat_stop(t); i++)
            push_gaps(t, &h, t->scratch->over, t->scratch->value[i]);
        excess = apply_best(t, &h, excess, t->scratch->trial);
        if (f8_remat_stop(t))
            return;
    }
}

void f8_remat_repair(f8_remat_timeline *t)
{
    repair(t, 0);
}

/* ---- trim ---- */

void f8_remat_trim(f8_remat_timeline *t)
{
    double excess = f8_remat_excess(t);
    for (bool changed = true; changed && !f8_remat_stop(t);) {
        changed = false;
        double limit = 1e300;
        for (;;) {
            /* The next most expensive; those of one price from the end on. */
            double dearest = -1;
            for (uint32_t at = 0; at < t->n; at++)
                if (f8_remat_is_recompute(t, t->order[at])) {
                    const double s = t->p->value[t->what[t->order[at]]].seconds;
                    if (s < limit && s > dearest)
                        dearest = s;
                }
            t->work += t->n;
            if (dearest < 0 || f8_remat_stop(t))
                break;
            for (uint32_t at = t->n; at-- > 0;) {
                const uint32_t id = t->order[at], v = t->what[id];
                if (!f8_remat_is_recompute(t, id) || t->p->value[v].seconds != dearest)
                    continue;
                const f8_remat_effect effect = f8_remat_effect_of_remove(t, id);
                if (effect.excess > excess) {
                    t->work += effect.work;
                    continue;
                }
                f8_remat_remove(t, id);
                excess = effect.excess;
                changed = true;
            }
            limit = dearest;
        }
    }
}

/* ---- iterated ---- */

bool f8_remat_keep(f8_remat_timeline *t, f8_remat_best *s)
{
    const double excess = f8_remat_excess(t);
    if (s->action && (excess > s->excess || (excess == s->excess && t->seconds > s->seconds)))
        return false;
    f8_remat_action *grown = f8_arena_grow(t->arena, s->action, 0, &s->room, t->n, sizeof *grown);
    if (!grown) {
        t->failed = true;
        return false;
    }
    s->action = grown;
    s->n = 0;
    for (uint32_t at = 0; at < t->n; at++) {
        const uint32_t id = t->order[at];
        if (f8_remat_is_recompute(t, id))
            s->action[s->n++] = (f8_remat_action){true, t->what[id]};
        else if (id < t->p->n_steps)
            s->action[s->n++] = (f8_remat_action){false, id};
    }
    s->seconds = t->seconds;
    s->excess = excess;
    return true;
}

/* Take back what a stretch of the timeline recomputes. */
static void clear(f8_remat_timeline *t)
{
    enum { STRETCH = 128 };
    const uint32_t begin = draw(t, t->n), most = t->n - begin < STRETCH ? t->n - begin : STRETCH;
    for (uint32_t at = begin + draw(t, most); at > 0 && at + 1 > begin; at--)
        if (f8_remat_is_recompute(t, t->order[at]))
            f8_remat_remove(t, t->order[at]);
}

/* Move a few values that are recomputed one after another to an earlier or later position, where
 * what they need is in memory or more bytes are free. */
static void shift(f8_remat_timeline *t)
{
    enum { MOST = 16, FAR = 12 };
    uint32_t value[MOST], n = 0, at = draw(t, t->n);
    for (uint32_t tries = t->n; tries > 0 && !f8_remat_is_recompute(t, t->order[at]); tries--)
        at = (at + 1) % t->n;
    for (const uint32_t most = 1 + draw(t, MOST);
         n < most && f8_remat_is_recompute(t, t->order[at]); n++) {
        value[n] = t->what[t->order[at]];
        f8_remat_remove(t, t->order[at]);
    }
    const uint32_t by = 1 + draw(t, FAR);
    uint32_t to = draw(t, 2) ? at + by : at > by ? at - by : 1;
    for (uint32_t i = 0; i < n && to < t->n && !t->failed; i++)
        if (may_insert(t, value[i], to))
            f8_remat_insert(t, value[i], to++);
}

/* Insert, remove or move a few recomputations. */
static void change(f8_remat_timeline *t, uint32_t n)
{
    for (; n > 0 && !t->failed; n--) {
        const uint32_t at = draw(t, t->n - 1) + 1, id = t->order[at], v = draw(t, t->p->n_values);
        if (f8_remat_is_recompute(t, id) && draw(t, 4)) {
            const uint32_t moved = t->what[id];
            f8_remat_remove(t, id);
            const uint32_t to = draw(t, t->n - 1) + 1;
            if (draw(t, 3) == 0 && may_insert(t, moved, to))
                f8_remat_insert(t, moved, to);
        } else if (may_insert(t, v, at)) {
            f8_remat_insert(t, v, at);
        }
    }
}

static void kick(f8_remat_timeline *t)
{
    enum { CHANGES = 6 };
    switch (draw(t, 8)) {
    case 0:
        shift(t);
        change(t, draw(t, 3));
        break;
    case 1:
    case 2:
    case 3: change(t, 1 + draw(t, CHANGES)); break;
    default: clear(t); change(t, draw(t, CHANGES));
    }
}

/* Change `from` at random and repair it. `from` takes the result if it is no worse; `best` keeps
 * the best of all. */
static void climb(f8_remat_timeline *t, f8_remat_best *from, f8_remat_best *best)
{
    f8_remat_load(t, from->action, from->n);
    while (!f8_remat_stop(t) && (best->seconds > 0 || best->excess > 0)) {
        kick(t);
        repair(t, draw(t, 2));
        f8_remat_trim(t);
        f8_remat_keep(t, best);
        if (!f8_remat_keep(t, from))
            f8_remat_load(t, from->action, from->n);
    }
}

/* Iterated local search, in turns from the best plan and from a new one: the best plan may be one
 * that no few changes improve. */
void f8_remat_improve(f8_remat_timeline *t, f8_remat_best *best, uint64_t work)
{
    enum { PHASES = 6 };
    const uint64_t begin = t->work;
    f8_remat_best other = {0};
    for (uint64_t i = 0; i < PHASES && !t->failed; i++) {
        t->limit = begin + work / PHASES * (i + 1);
        other.seconds = other.excess = INFINITY;
        if (i % 2) {
            f8_remat_load(t, t->steps, t->p->n_steps);
            repair(t, 2);
            f8_remat_trim(t);
        } else {
            f8_remat_load(t, best->action, best->n);
        }
        if (f8_remat_keep(t, &other))
            climb(t, &other, best);
    }
}
