/* What a set says as a whole, and what peers say: see measure.h. */
#include <math.h>
#include <string.h>

#include "frontend/measure/measure.h"
#include "frontend/records/records.h"

static bool is_timed(const f8_measurement *m)
{
    return m && m->state == F8_MEASURE_TIMED && m->median > 0;
}

/* The measurements of a problem under a state of the cache, and the best of those that compare with
 * the model's way. */
typedef struct group {
    const f8_measurement *first;
    size_t n;
    const f8_measurement *model, *best, *best_same_bits; /* fp8c's that were timed; NULL: none */
    size_t timed;                                        /* of fp8c's */
} group;

static const f8_measurement *faster(const f8_measurement *a, const f8_measurement *b)
{
    return a && a->median <= b->median ? a : b;
}

/* The group that begins at a measurement. */
static group group_at(const f8_measure_set *set, size_t at)
{
    group g = {.first = &set->measurement[at]};
    for (size_t i = at; i < set->n_measurements; i++, g.n++) {
        const f8_measurement *m = &set->measurement[i];
        if (strcmp(m->problem.text, g.first->problem.text) || strcmp(m->cache, g.first->cache))
            break;
        if (!is_timed(m) || m->kind == F8_MEASURE_PEER)
            continue;
        const bool model = m->kind == F8_MEASURE_MODEL;
        g.timed++;
        if (model)
            g.model = m;
        if (g.model && !f8_measure_compares(m, g.model))
            continue;
        g.best = faster(g.best, m);
        if (model || m->same_bits == F8_MEASURE_YES)
            g.best_same_bits = faster(g.best_same_bits, m);
    }
    return g;
}

/* The state of the cache number `index`, as they first appear. */
static const char *cache_at(const f8_measure_set *set, int index)
{
    for (size_t i = 0; i < set->n_measurements; i++) {
        const char *cache = set->measurement[i].cache;
        bool is_new = true;
        for (size_t j = 0; is_new && j < i; j++)
            is_new = strcmp(set->measurement[j].cache, cache) != 0;
        if (is_new && !index--)
            return cache;
    }
    return NULL;
}

/* ---- headlines ---- */

/* A geometric mean in the making. */
typedef struct mean {
    double sum;
    int64_t n;
} mean;

static void add(mean *to, double x)
{
    if (x > 0 && isfinite(x)) {
        to->sum += log(x);
        to->n++;
    }
}

static double value(const mean *of)
{
    return of->n ? exp(of->sum / (double)of->n) : NAN;
}

/* A problem is what its model's way is; without one, what its first is. */
static void count(f8_measure_headline *h, const group *g)
{
    h->problems++;
    h->timed += g->first->state == F8_MEASURE_TIMED;
    h->lacking += g->first->state == F8_MEASURE_LACKING;
    h->late += g->first->state == F8_MEASURE_LATE;
}

bool f8_measure_headline_at(const f8_measure_set *set, int index, f8_measure_headline *out)
{
    mean share = {0}, best_share = {0};
    f8_measure_headline h = {.cache = cache_at(set, index)};
    size_t modelled = 0, others = 0;
    if (!h.cache)
        return false;
    for (size_t i = 0, n; i < set->n_measurements; i += n) {
        const group g = group_at(set, i);
        n = g.n;
        if (strcmp(g.first->cache, h.cache))
            continue;
        count(&h, &g);
        if (!g.model)
            continue;
        const double times = (double)g.model->problem.count;
        modelled++;
        others += g.timed - 1;
        h.model += times * g.model->median;
        h.best += times * g.best->median;
        h.best_same_bits += times * g.best_same_bits->median;
        add(&share, g.model->share);
        add(&best_share, g.best->share);
    }
    h.model = modelled ? h.model : NAN;
    if (!others)
        h.best = h.best_same_bits = NAN;
    h.regret = h.model / h.best - 1;
    h.share = value(&share);
    h.best_share = others ? value(&best_share) : NAN;
    *out = h;
    return true;
}

/* ---- peers ---- */

/* The peer number `index` under a state of the cache. The first cache's come first. */
static const f8_measurement *peer_at(const f8_measure_set *set, int index)
{
    const char *cache;
    for (int c = 0; (cache = cache_at(set, c)); c++)
        for (size_t i = 0; i < set->n_measurements; i++) {
            const f8_measurement *m = &set->measurement[i];
            bool is_new = m->kind == F8_MEASURE_PEER && !strcmp(m->cache, cache);
            for (size_t j = 0; is_new && j < i; j++) {
                const f8_measurement *o = &set->measurement[j];
                is_new = o->kind != F8_MEASURE_PEER || strcmp(o->cache, cache) ||
                         strcmp(o->candidate, m->candidate);
            }
            if (is_new && !index--)
                return m;
        }
    return NULL;
}

/* Count a problem of which the best way is compared with a peer's. */
static void judge(const f8_measure_set *set, const f8_measurement *peer, const f8_measurement *best,
                  f8_measure_peer_line *to)
{
    f8_arena arena = {0};
    f8_measure_ratio ratio;
    f8_arena_init(&arena, &set->arena.allocator);
    if (f8_measure_interval(peer, best, NULL, &arena, &ratio, NULL) != F8_OK || isnan(ratio.low))
        to->unknown++;
    else
        to->slower += ratio.low > 1;
    f8_arena_end(&arena);
}

bool f8_measure_peer_at(const f8_measure_set *set, int index, f8_measure_peer_line *out)
{
    const f8_measurement *first = peer_at(set, index);
    mean model = {0}, best = {0};
    if (!first)
        return false;
    *out = (f8_measure_peer_line){.cache = first->cache, .peer = first->candidate};
    for (size_t i = 0, n; i < set->n_measurements; i += n) {
        const group g = group_at(set, i);
        n = g.n;
        if (strcmp(g.first->cache, first->cache) || !g.model)
            continue;
        const f8_measurement *peer =
            f8_measure_find(set, g.first->problem.text, first->cache, first->candidate);
        if (!is_timed(peer))
            continue;
        out->problems++;
        add(&model, g.model->median / peer->median);
        add(&best, g.best->median / peer->median);
        judge(set, peer, g.best, out);
    }
    out->model = value(&model);
    out->best = value(&best);
    return true;
}

/* ---- records ---- */

static json_t *headline_record(const f8_measure_headline *x)
{
    return json_pack("{ss ss sI sI sI sI so so so so so so}", "event", "headline", "cache",
                     x->cache, "problems", (json_int_t)x->problems, "timed", (json_int_t)x->timed,
                     "lacking", (json_int_t)x->lacking, "late", (json_int_t)x->late, "model",
                     f8_json_number(x->model), "best", f8_json_number(x->best), "best_same_bits",
                     f8_json_number(x->best_same_bits), "regret", f8_json_number(x->regret),
                     "share", f8_json_number(x->share), "best_share",
                     f8_json_number(x->best_share));
}

static json_t *peer_record(const f8_measure_peer_line *x)
{
    return json_pack("{ss ss ss sI sI sI so so}", "event", "peer", "cache", x->cache, "peer",
                     x->peer, "problems", (json_int_t)x->problems, "slower", (json_int_t)x->slower,
                     "unknown", (json_int_t)x->unknown, "model", f8_json_number(x->model), "best",
                     f8_json_number(x->best));
}

json_t *f8_measure_headline_records(const f8_measure_set *set)
{
    json_t *all = json_array();
    f8_measure_headline x;
    f8_measure_peer_line peer;
    bool ok = all != NULL;
    for (int i = 0; ok && f8_measure_headline_at(set, i, &x); i++)
        ok = !json_array_append_new(all, headline_record(&x));
    for (int i = 0; ok && f8_measure_peer_at(set, i, &peer); i++)
        ok = !json_array_append_new(all, peer_record(&peer));
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}
