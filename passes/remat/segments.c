/* Checkpoints between segments: for budgets too small for even one value a layer.
 *
 * The steps before the moment with the most in memory (the forward) are divided into segments, and
 * only what crosses from one segment to the next is kept. The other values are recomputed when
 * something after the moment reads the first of a segment's values (Chen et al. 2016). A segment
 * may in turn keep only what crosses its own segments, and so on. d levels take about d times the
 * forward's time more, and the (d+1)-st root of its memory (Griewank and Walther 2000: revolve, for
 * chains of equal steps). */
#include "passes/remat/start.h"

#include <math.h>
#include <string.h>

enum { SIZES = 24, DEPTH = 4 };

typedef struct segments {
    f8_remat_timeline *t;
    uint32_t moment;
    uint32_t *last;                  /* by value: the last step before the moment that reads it */
    double *crossing;                /* by step: bytes that later steps before the moment read */
    double *made;                    /* by step: bytes made up to it */
    bool *end[SIZES];                /* by size and step: a segment ends after it */
    double kept[SIZES], most[SIZES]; /* bytes that cross; bytes of the largest segment */
    uint32_t n[SIZES];               /* segments */
    /* by value: it crosses segments of this level, and none of the levels before */
    uint32_t *level;
} segments;

static bool make_segments(segments *s, f8_remat_timeline *t, uint32_t moment)
{
    *s = (segments){.t = t, .moment = moment};
    s->last = F8_NEW_ARRAY(t->arena, uint32_t, t->p->n_values);
    s->level = F8_NEW_ARRAY(t->arena, uint32_t, t->p->n_values);
    s->crossing = F8_NEW_ARRAY(t->arena, double, moment);
    s->made = F8_NEW_ARRAY(t->arena, double, moment);
    for (uint32_t i = 0; i < SIZES; i++) {
        s->end[i] = F8_NEW_ARRAY(t->arena, bool, moment);
        if (!s->end[i])
            return false;
    }
    return s->last && s->level && s->crossing && s->made;
}

static void count_bytes(segments *s)
{
    const f8_remat_timeline *t = s->t;
    for (uint32_t v = 0; v < t->p->n_values; v++) {
        const uint32_t first = t->first[v];
        if (first >= s->moment)
            continue;
        s->last[v] = first;
        for (uint32_t i = 0; i < t->access[v].n && t->access[v].id[i] <= s->moment; i++)
            s->last[v] = t->access[v].id[i];
        s->made[first] += (double)t->p->value[v].bytes;
        for (uint32_t at = first; at < s->last[v] && at < s->moment; at++)
            s->crossing[at] += (double)t->p->value[v].bytes;
    }
    for (uint32_t at = 1; at < s->moment; at++)
        s->made[at] += s->made[at - 1];
}

static bool crosses(const segments *s, uint32_t size, uint32_t v)
{
    if (s->t->ready[v] > s->moment)
        return true;
    for (uint32_t at = s->t->first[v]; at < s->moment && at < s->last[v]; at++)
        if (s->end[size][at])
            return true;
    return false;
}

/* Divide into segments of at most `bytes` where possible. Each ends where the least crosses, in its
 * second half. */
static void divide(segments *s, uint32_t size, double bytes)
{
    double begin = 0;
    for (uint32_t from = 0; from < s->moment; s->n[size]++) {
        uint32_t to = from;
        while (to + 1 < s->moment && s->made[to] - begin <= bytes)
            to++;
        uint32_t best = to;
        for (uint32_t at = to; at > from && s->made[at] - begin > bytes / 2 && to + 1 < s->moment;
             at--)
            if (s->crossing[at] < s->crossing[best])
                best = at;
        s->end[size][best] = best + 1 < s->moment;
        if (s->made[best] - begin > s->most[size])
            s->most[size] = s->made[best] - begin;
        begin = s->made[best];
        from = best + 1;
    }
    for (uint32_t v = 0; v < s->t->p->n_values; v++)
        if (s->t->first[v] < s->moment && crosses(s, size, v))
            s->kept[size] += (double)s->t->p->value[v].bytes;
    s->t->work += s->moment + s->t->p->n_values;
}

/* ---- levels ---- */

/* The sizes, coarse to fine, with which `depth` levels take about the least memory. */
static double choose(const segments *s, uint32_t depth, uint32_t *size)
{
    uint32_t at[DEPTH] = {0};
    double least = INFINITY;
    for (;;) {
        double memory = s->most[at[depth - 1]];
        bool finer = true;
        for (uint32_t d = 0; d < depth; d++) {
            memory += s->kept[at[d]] / (d ? s->n[at[d - 1]] : 1);
            finer = finer && (!d || at[d] > at[d - 1]);
        }
        if (finer && memory < least) {
            least = memory;
            memcpy(size, at, sizeof at);
        }
        uint32_t d = 0;
        while (d < depth && ++at[d] == SIZES)
            at[d++] = 0;
        if (d == depth)
            return least;
    }
}

/* Whether v is in the last segment of `size` within its segment of the coarser size. */
static bool in_last(const segments *s, uint32_t coarse, uint32_t size, uint32_t v)
{
    uint32_t at = s->t->first[v];
    while (at < s->moment && !s->end[coarse][at]) {
        if (s->end[size][at])
            return false;
        at++;
    }
    return true;
}

/* The first action after the moment that reads v: a step, or what this round recomputes. */
static uint32_t reader(const segments *s, uint32_t v, uint32_t round_id)
{
    const struct f8_remat_accesses *x = &s->t->access[v];
    for (uint32_t i = 0; i < x->n; i++)
        if (!f8_remat_makes(s->t, x->id[i], v) &&
            (f8_remat_is_recompute(s->t, x->id[i]) ? x->id[i] >= round_id : x->id[i] > s->moment))
            return x->id[i];
    return UINT32_MAX;
}

static void apply(const segments *s, uint32_t depth, const uint32_t *size)
{
    f8_remat_timeline *t = s->t;
    f8_remat_load(t, t->steps, t->p->n_steps);
    for (uint32_t v = 0; v < t->p->n_values; v++)
        for (s->level[v] = 0; s->level[v] < depth && !crosses(s, size[s->level[v]], v);)
            s->level[v]++;
    for (uint32_t round = 1; round <= depth; round++) {
        const uint32_t round_id = t->n_ids;
        for (uint32_t step = s->moment; step-- > 0;)
            for (uint32_t i = t->make_at[step + 1]; i-- > t->make_at[step] && !f8_remat_stop(t);) {
                const uint32_t v = t->make[i], id = reader(s, v, round_id);
                if (s->level[v] >= round && id != UINT32_MAX &&
                    (round == 1 || !in_last(s, size[round - 2], size[round - 1], v)))
                    f8_remat_insert(t, v, t->position[id]);
            }
    }
}

void f8_remat_from_segments(f8_remat_timeline *t, uint64_t work, f8_remat_best *best)
{
    segments s;
    const uint32_t moment = f8_remat_moment(t);
    if (t->failed || !moment)
        return;
    if (!make_segments(&s, t, moment)) {
        t->failed = true;
        return;
    }
    count_bytes(&s);
    double bytes = s.made[moment - 1] / 2;
    for (uint32_t i = 0; i < SIZES; i++, bytes *= 0.8)
        divide(&s, i, bytes);
    for (uint32_t depth = 1; depth <= DEPTH && (depth == 1 || best->excess > 0); depth++) {
        uint32_t size[DEPTH] = {0};
        if (choose(&s, depth, size) == INFINITY)
            return;
        t->limit = t->work + work;
        apply(&s, depth, size);
        f8_remat_finish(t, work, best);
    }
}
