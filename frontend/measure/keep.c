/* The runs of GEMMs in the tuning database: those from before, new ones, and what is chosen. See
 * session.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "frontend/measure/session.h"
#include "ir/base/format.h"

/* What the database has of a problem. */
typedef struct earlier {
    const f8_measure_session *s;
    const fp8c_tuning *t;
    f8_timing *row;
    size_t n;
} earlier;

/* ---- from before ---- */

static size_t count_processes(const earlier *e, const f8_timing *row)
{
    size_t n = 0;
    for (size_t i = 0; i < row->n_samples; i++)
        n += row->samples[i].at >= e->s->how.since;
    return n;
}

static bool is_candidate(const tune_problem *p, const char *text)
{
    for (int c = 0; c < p->n; c++)
        if (!strcmp(p->candidate[c].text, text))
            return true;
    return false;
}

static const f8_timing *find_row(const earlier *e, const char *candidate)
{
    for (size_t i = 0; i < e->n; i++)
        if (!strcmp(e->row[i].candidate, candidate) && count_processes(e, &e->row[i]))
            return &e->row[i];
    return NULL;
}

/* The least of the runs that count. */
static double least_of(const earlier *e, const f8_timing *row)
{
    double least = INFINITY;
    for (size_t i = 0; i < row->n_samples; i++)
        if (row->samples[i].at >= e->s->how.since)
            least = fmin(least, f8_tune_least(row->samples[i].seconds, (int)row->samples[i].n));
    return least;
}

/* A candidate that was a tenth slower than the model's way in earlier processes is known well
 * enough. Peers are measured in all. */
static size_t known(void *user, const char *candidate)
{
    const earlier *e = user;
    const f8_timing *row = find_row(e, candidate), *model = find_row(e, "model");
    const bool is_slow = row && model && strcmp(candidate, "model") &&
                         is_candidate(&e->t->problem[0], candidate) &&
                         least_of(e, row) > 1.1 * least_of(e, model);
    if (is_slow)
        return SIZE_MAX;
    return row ? count_processes(e, row) : 0;
}

/* The process of earlier runs, as far as it is known: one that was killed has left only runs. */
static f8_status add_process(f8_measure_session *s, f8_tuning *db, const char *id, f8_diag *diag)
{
    f8_tuning_process found;
    bool any;
    if (f8_measure_find_process(s->set, id) || !strcmp(id, s->process.id))
        return F8_OK;
    F8_TRY(f8_tuning_get_process(db, id, &s->set->arena, &found, &any, diag));
    if (any && *found.facts)
        return f8_measure_read_process(s->set, found.facts, diag);
    return f8_measure_add_process(s->set, &(f8_measure_process){.id = id, .date = "", .load = NAN},
                                  diag);
}

static f8_status add_row(f8_measure_session *s, const f8_measure_problem *problem, bool cold,
                         const earlier *e, const f8_timing *row, f8_tuning *db, f8_diag *diag)
{
    f8_measurement m = {.problem = *problem,
                        .cache = cold ? "cold" : "warm",
                        .candidate = row->candidate,
                        .reason = "",
                        .same_bits = F8_MEASURE_UNKNOWN,
                        .error = NAN,
                        .compile_seconds = NAN};
    if (!count_processes(e, row) || !row->facts || !*row->facts)
        return F8_OK;
    F8_TRY(f8_measure_read_way(s->set, row->facts, &m, diag));
    if (m.kind == F8_MEASURE_PEER ? !s->how.peers
                                  : m.kind == F8_MEASURE_CANDIDATE && s->how.model_only)
        return F8_OK;
    m.process = F8_NEW_ARRAY(&s->set->arena, f8_measure_runs, row->n_samples);
    F8_TRY(f8_arena_status(&s->set->arena, diag));
    for (size_t k = 0; k < row->n_samples; k++) {
        const f8_tuning_runs *r = &row->samples[k];
        if (r->at < s->how.since)
            continue;
        F8_TRY(add_process(s, db, r->process, diag));
        m.process[m.n_processes++] = (f8_measure_runs){r->process, r->seconds, r->n};
    }
    return f8_measure_add(s->set, &m, diag);
}

/* Add what is known from before, in the order of the candidates; then peers. */
static f8_status add_earlier(f8_measure_session *s, const f8_measure_problem *problem, bool cold,
                             const earlier *e, const fp8c_tuning *t, f8_diag *diag)
{
    const tune_problem *p = &t->problem[0];
    for (int c = 0; c <= p->n; c++)
        for (size_t i = 0; i < e->n; i++)
            if (c == p->n || !strcmp(e->row[i].candidate, p->candidate[c].text)) {
                if (c == p->n && is_candidate(p, e->row[i].candidate))
                    continue;
                F8_TRY(add_row(s, problem, cold, e, &e->row[i], t->db, diag));
            }
    return F8_OK;
}

/* ---- choosing ---- */

/* Whether a compile may take it: it is one of fp8c's, and has the model's bits or another
 * algorithm. */
static bool may_choose(const f8_measurement *m, const fp8c_tuning *t)
{
    const tune_problem *p = &t->problem[0];
    if (m->kind != F8_MEASURE_CANDIDATE || m->state != F8_MEASURE_TIMED)
        return false;
    for (int i = 1; i < p->n; i++)
        if (!strcmp(p->candidate[i].text, m->candidate))
            return m->same_bits == F8_MEASURE_YES || t->base->target->kind == F8_TARGET_CUDA ||
                   p->candidate[i].desc.algorithm != p->candidate[0].desc.algorithm;
    return false;
}

static double median_of(const f8_measure_runs *r)
{
    double own[TUNE_RUNS + F8_MEASURE_MOST_COPIES];
    const size_t n = r->n < sizeof own / sizeof *own ? r->n : sizeof own / sizeof *own;
    memcpy(own, r->seconds, n * sizeof *own);
    return f8_measure_quantile(own, n, 0.5);
}

/* Whether m is faster than the model's way in most of the processes that measured both. */
static bool is_mostly_faster(const f8_measurement *m, const f8_measurement *model)
{
    size_t faster = 0, both = 0;
    for (size_t i = 0; i < m->n_processes; i++)
        for (size_t k = 0; k < model->n_processes; k++)
            if (!strcmp(m->process[i].process, model->process[k].process)) {
                both++;
                faster += median_of(&m->process[i]) < median_of(&model->process[k]);
            }
    return 2 * faster > both;
}

/* Mark the fastest way of the problem, if by more than noise. */
static f8_measurement *choose(f8_measure_set *set, const char *problem, const char *cache,
                              const fp8c_tuning *t)
{
    f8_measurement *model = f8_measure_find(set, problem, cache, "model"), *best = model;
    if (!model || model->state != F8_MEASURE_TIMED)
        return NULL;
    for (size_t i = 0; i < set->n_measurements; i++) {
        f8_measurement *m = &set->measurement[i];
        if (strcmp(m->problem.text, problem) || strcmp(m->cache, cache))
            continue;
        m->chosen = false;
        if (may_choose(m, t) && m->median < (1 - TUNE_GAIN) * model->median &&
            m->median < best->median && f8_measure_compares(m, model) && is_mostly_faster(m, model))
            best = m;
    }
    best->chosen = true;
    return best;
}

/* ---- keeping ---- */

/* New runs of a way, with what is known of it. */
static f8_status keep(const f8_measurement *m, const char *how, fp8c_tuning *t, f8_diag *diag)
{
    if (m->state != F8_MEASURE_TIMED)
        return F8_OK;
    char *facts = f8_measure_way_text(m);
    if (!facts)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "no memory for the facts of a candidate");
    const f8_tuning_runs runs = {.process = m->process->process,
                                 .at = (int64_t)time(NULL),
                                 .seconds = m->process->seconds,
                                 .n = m->process->n};
    const f8_timing row = {
        .candidate = m->candidate, .how = how, .samples = &runs, .n_samples = 1, .facts = facts};
    const tune_problem *p = &t->problem[0];
    const f8_status status =
        f8_tuning_put(t->db, f8_tune_key(t, p), p->text, m->problem.name, &row, 1, NULL, diag);
    free(facts);
    return status;
}

static f8_status keep_choice(fp8c_tuning *t, const f8_measurement *best,
                             const f8_measurement *model, f8_diag *diag)
{
    const tune_problem *p = &t->problem[0];
    const f8_tuning_choice choice = {best->candidate, best->median, model->median};
    return f8_tuning_put(t->db, f8_tune_key(t, p), p->text, best->problem.name, NULL, 0, &choice,
                         diag);
}

f8_status f8_measure_ways(f8_measure_session *s, const f8_tune_gemm *g,
                          const f8_measure_problem *problem, fp8c_tuning *t, int copies, bool cold,
                          f8_diag *diag)
{
    const char *cache = cold ? "cold" : "warm";
    const tune_problem *p = &t->problem[0];
    f8_measurement ways[F8_MEASURE_WAYS];
    earlier e = {.s = s, .t = t};
    size_t n = 0;
    char how[48];
    f8_format(how, sizeof how, "%s %s", cache, f8_inputs_name(s->how.inputs));
    F8_TRY(
        f8_tuning_get(t->db, f8_tune_key(t, p), p->text, how, &s->set->arena, &e.row, &e.n, diag));
    F8_TRY(f8_measure_turns(s, g, t, copies, cold, known, &e, ways, &n, diag));
    F8_TRY(add_earlier(s, problem, cold, &e, t, diag));
    for (size_t i = 0; i < n; i++) {
        ways[i].problem = *problem;
        F8_TRY(f8_measure_add(s->set, &ways[i], diag));
        F8_TRY(keep(&ways[i], how, t, diag));
    }
    s->measured |= n > 0;
    F8_TRY(f8_measure_figures(s->set, diag));
    if (s->how.model_only || (!cold && s->how.cold)) /* a step finds what is closer to cold */
        return F8_OK;
    const f8_measurement *best = choose(s->set, problem->text, cache, t);
    if (!best)
        return F8_OK;
    return keep_choice(t, best, f8_measure_find(s->set, problem->text, cache, "model"), diag);
}

f8_status f8_measure_keep_process(f8_measure_session *s, f8_diag *diag)
{
    const f8_tuning_process p = {.id = s->process.id,
                                 .device = s->set->about.device,
                                 .facts = f8_measure_process_text(&s->process)};
    const char *path = s->how.database ? s->how.database : s->ctx->settings.tuning;
    f8_tuning *db = NULL;
    f8_status status = p.facts ? f8_tuning_open(path, &s->ctx->allocator, &db, diag)
                               : f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                                         "no memory for the facts of this process");
    if (status == F8_OK)
        status = f8_tuning_put_process(db, &p, diag);
    f8_tuning_close(db);
    free((char *)p.facts);
    return status;
}
