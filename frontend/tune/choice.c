/* Choosing candidates: see tune.h. The candidates that were faster in their rounds are tried
 * together in one program, in turns with the model's program. A candidate that is not faster there
 * by more than noise is dropped. If the step is not faster, all are dropped. Once the time is up,
 * few runs must do; where even those take long, nothing is chosen yet. */
#include "frontend/tune/tune.h"

enum { TRIES = 4, MORE_RUNS = 3 /* times the runs of a single round: this decides */ };

static const double worth = 1e-4; /* a share of the step; a smaller gain does not count */

static bool is_faster(const fp8c_tuning *t, const double *other, const double *model, int runs)
{
    const double least = f8_tune_least(model, runs), gain = least - f8_tune_least(other, runs);
    return gain > TUNE_GAIN * least && gain > worth * t->untuned_seconds &&
           f8_tune_ratio(other, model, runs) < 1;
}

/* The candidate that was fastest in its round, if by more than noise; 0: none. */
static int fastest(const tune_problem *p)
{
    int best = 0;
    double least = 1 - TUNE_GAIN;
    for (int c = 1; c < p->n; c++)
        if (p->candidate[c].runs && p->candidate[c].ratio < least) {
            best = c;
            least = p->candidate[c].ratio;
        }
    return best;
}

static f8_status keep(fp8c_tuning *t, const tune_problem *p, f8_diag *diag)
{
    const f8_tuning_choice choice = {p->candidate[p->chosen].text, p->seconds, p->model_seconds};
    return f8_tuning_put(t->db, f8_tune_key(t, p), p->text, p->name, NULL, 0, &choice, diag);
}

static int count_next(const fp8c_tuning *t)
{
    int n = 0;
    for (size_t i = 0; i < t->n; i++)
        n += t->problem[i].next > 0;
    return n;
}

/* Try the `next` of all problems in one program, and drop each that is not faster. *slower: with
 * the rest, the step is slower. */
static f8_status confirm(fp8c_tuning *t, bool *slower, f8_diag *diag)
{
    const int tried = count_next(t);
    int runs = t->o.runs * MORE_RUNS < TUNE_RUNS ? t->o.runs * MORE_RUNS : TUNE_RUNS;
    fp8c_program *other;
    F8_TRY(f8_tune_compile(t, &other, diag));
    const f8_status status = f8_tune_compare(t, other, &runs, false, "all that were fastest", diag);
    fp8c_program_destroy(other);
    F8_TRY(status);
    t->untuned_seconds = f8_tune_least(t->wall[0], runs);
    t->tuned_seconds = f8_tune_least(t->wall[1], runs);
    /* The seconds of the step before and after, problem by problem. Problems with no new candidate
     * count too, for the others may slow them down. */
    double seconds[2] = {0};
    for (size_t i = 0; i < t->n; i++) {
        tune_problem *p = &t->problem[i];
        const double model = f8_tune_least(p->sample[0], runs),
                     now = f8_tune_least(p->sample[1], runs);
        const bool drop = p->next && !is_faster(t, p->sample[1], p->sample[0], runs);
        if (p->next) {
            F8_TRY(f8_tune_keep(t, p, runs, diag));
            p->seconds = now;
            p->model_seconds = model;
        }
        if (drop)
            p->next = 0;
        seconds[0] += model;
        seconds[1] += drop ? model : now;
    }
    *slower = seconds[1] > seconds[0] || t->tuned_seconds > t->untuned_seconds;
    f8_log_say(&t->ctx->log, F8_LOG_INFO,
               "tune: of %d candidates tried in one program %d are faster; the step is %s", tried,
               count_next(t), *slower ? "slower" : "faster");
    return F8_OK;
}

/* Try until the candidates that are left, the `next` of each problem, make the step faster. */
static f8_status settle(fp8c_tuning *t, f8_diag *diag)
{
    bool slower = true;
    for (int i = 0; i < TRIES && slower && count_next(t); i++)
        F8_TRY(confirm(t, &slower, diag));
    if (!count_next(t) || slower) {
        for (size_t i = 0; i < t->n; i++)
            t->problem[i].next = 0;
        t->untuned_seconds = t->tuned_seconds = 0;
    }
    return F8_OK;
}

/* Whether trying the candidates would take longer than all the time that was given, which is up. */
static bool takes_too_long(const fp8c_tuning *t)
{
    const int least = 2 * (TUNE_WORTH_RUNS + 1); /* a first run of each does not count */
    return count_next(t) && f8_tune_late(t) && least * t->wall[0][0] > t->o.seconds;
}

f8_status f8_tune_choose(fp8c_tuning *t, f8_diag *diag)
{
    bool fresh = false;
    for (size_t i = 0; i < t->n; i++) {
        tune_problem *p = &t->problem[i];
        const bool anew = (p->fresh && !p->attention) || p->chosen < 0;
        p->next = anew ? fastest(p) : p->chosen;
        fresh |= anew;
    }
    if (!fresh)
        return F8_OK;
    if (takes_too_long(t)) { /* the next call, which knows the times, begins with this */
        t->finished = false;
        return F8_OK;
    }
    F8_TRY(settle(t, diag));
    for (size_t i = 0; i < t->n; i++) {
        tune_problem *p = &t->problem[i];
        if (!p->next)
            p->seconds = p->model_seconds = p->candidate[0].seconds;
        p->chosen = p->next;
        if (!p->attention)
            F8_TRY(keep(t, p, diag));
    }
    return f8_progress_at(&t->progress, t->progress.total, "", diag);
}
