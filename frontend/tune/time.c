/* Running programs in turns with the model's: see tune.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "frontend/tune/tune.h"
#include "ir/base/clock.h"

/* ---- programs ---- */

static const char *next_of(void *user, const f8_build_problem *from, f8_choice_source *source)
{
    const tune_problem *p = f8_tune_find(user, from->text);
    *source = F8_CHOICE_DATABASE;
    return p && p->next ? p->candidate[p->next].text : NULL;
}

f8_status f8_tune_compile(fp8c_tuning *t, fp8c_program **out, f8_diag *diag)
{
    const f8_build_choices choices = {next_of, t};
    const f8_tuner_compile compile = {
        .choices = &choices, .like = t->base->target->kind == F8_TARGET_CPU ? t->base : NULL};
    const fp8c_status status = f8_compile_tuning(t->module, &t->compile, &compile, out);
    if (status == FP8C_OK)
        return F8_OK;
    return f8_fail(diag, (f8_status)status, F8_NOWHERE, "%s", fp8c_context_message(t->ctx));
}

/* Fill inputs with values that any program takes: small numbers, and ids that every table has. */
static void fill_inputs(fp8c_tuning *t, fp8c_program *p)
{
    for (int k = 0; k < t->n_functions; k++) {
        const f8_plan_func *f = &p->now->plan.func[t->function[k]];
        for (uint32_t i = 0; i < f->n_in; i++) {
            const f8_type *type = &f->in[i].type;
            uint8_t *to = f->in[i].var < 0
                              ? fp8c_program_buffer(p, t->function[k], FP8C_INPUT, (int)i)
                              : NULL;
            const int64_t n = to ? f8_type_elements(type) : 0;
            for (int64_t e = 0; e < n; e++) {
                const uint32_t x = (uint32_t)e * 2654435761u >> 24;
                const float value = ((float)x - 127.5f) / 256;
                uint32_t bits;
                memcpy(&bits, &value, sizeof bits);
                switch (type->dtype) {
                case F8_F32: memcpy(to + 4 * e, &bits, 4); break;
                case F8_BF16: memcpy(to + 2 * e, (uint8_t *)&bits + 2, 2); break;
                case F8_E4M3: to[e] = (uint8_t)(0x30 | (x & 0x87)); break;
                case F8_E5M2: to[e] = (uint8_t)(0x38 | (x & 0x83)); break;
                case F8_E8M0: to[e] = 127; break;
                default: break; /* zero: an id of every table */
                }
            }
        }
    }
}

static f8_status run_step(fp8c_tuning *t, fp8c_program *p, f8_diag *diag)
{
    f8_instance *i = &p->now->instance;
    for (int k = 0; k < t->n_functions; k++)
        F8_TRY(f8_sums_run(p, (uint32_t)t->function[k], diag));
    return i->kind->wait(i, diag);
}

/* ---- samples ---- */

double f8_tune_step_seconds(const f8_instance *i, uint32_t func, uint32_t step, int phase)
{
    if (phase >= 0 && i->cpu)
        return f8_exec_phase_seconds(i->cpu, func, step, (uint32_t)phase);
    return phase > 0 ? 0 : i->kind->step_seconds(i, func, step);
}

/* Add `sign` times the seconds that the program has spent on each problem so far. */
static void add_seconds(fp8c_tuning *t, const fp8c_program *p, int side, int run, double sign)
{
    const f8_plan *plan = &p->now->plan;
    const f8_instance *instance = &p->now->instance;
    for (int k = 0; k < t->n_functions; k++) {
        const uint32_t f = (uint32_t)t->function[k];
        for (uint32_t i = 0; i < plan->func[f].n_steps; i++) {
            const f8_step *s = &plan->func[f].step[i];
            for (uint32_t n = 0; n < s->n_phases + 1; n++) {
                tune_problem *x = f8_tune_problem_at(t, plan, s, n);
                if (x)
                    x->sample[side][run] +=
                        sign * f8_tune_step_seconds(instance, f, i, n < s->n_phases ? (int)n : -1);
            }
        }
    }
}

static f8_status sample(fp8c_tuning *t, fp8c_program *p, int side, int run, f8_diag *diag)
{
    for (size_t i = 0; i < t->n; i++)
        t->problem[i].sample[side][run] = 0;
    add_seconds(t, p, side, run, -1);
    const double start = f8_seconds_now();
    F8_TRY(run_step(t, p, diag));
    t->wall[side][run] = f8_seconds_now() - start;
    add_seconds(t, p, side, run, 1);
    return F8_OK;
}

double f8_tune_least(const double *x, int n)
{
    double least = x[0];
    for (int i = 1; i < n; i++)
        least = x[i] < least ? x[i] : least;
    return least;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *x, int n)
{
    double sorted[TUNE_RUNS];
    memcpy(sorted, x, (size_t)n * sizeof *x);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double f8_tune_ratio(const double *other, const double *model, int n)
{
    double ratio[TUNE_RUNS];
    for (int i = 0; i < n; i++)
        ratio[i] = model[i] > 0 ? other[i] / model[i] : 1;
    return median(ratio, n);
}

static bool all_slower(const fp8c_tuning *t, int runs)
{
    for (size_t i = 0; i < t->n; i++) {
        const tune_problem *p = &t->problem[i];
        if (p->next && f8_tune_least(p->sample[1], runs) < 1.1 * f8_tune_least(p->sample[0], runs))
            return false;
    }
    return true;
}

bool f8_tune_late(const fp8c_tuning *t)
{
    return t->o.seconds > 0 && f8_seconds_now() - t->start > t->o.seconds;
}

f8_status f8_tune_compare(fp8c_tuning *t, fp8c_program *other, int *runs, bool may_stop,
                          const char *item, f8_diag *diag)
{
    fp8c_program *const side[] = {t->base, other};
    const int sides = other ? 2 : 1;
    for (int s = 0; s < sides; s++) { /* a first run that does not count warms pages, caches and
                                     clocks */
        F8_TRY(f8_progress_at(&t->progress, t->timed, item, diag));
        if (may_stop && f8_tune_late(t)) {
            *runs = 0;
            return F8_OK;
        }
        fill_inputs(t, side[s]);
        F8_TRY(run_step(t, side[s], diag));
    }
    for (int run = 0; run < *runs; run++) {
        if (may_stop && other && run == TUNE_WORTH_RUNS && all_slower(t, run))
            *runs = run;
        if ((may_stop || run >= TUNE_WORTH_RUNS) && f8_tune_late(t))
            *runs = run >= TUNE_WORTH_RUNS ? run : 0;
        for (int k = 0; k < sides && run < *runs; k++) { /* the two take turns in going first */
            const int s = other ? k ^ (run & 1) : 0;
            F8_TRY(f8_progress_at(&t->progress, t->timed, item, diag));
            fill_inputs(t, side[s]);
            F8_TRY(sample(t, side[s], s, run, diag));
        }
    }
    return F8_OK;
}

/* ---- rounds ---- */

/* Whether a problem has one way, which lacks runs: any round times it. */
static bool is_due(const fp8c_tuning *t, const tune_problem *p)
{
    const tune_candidate *c = &p->candidate[0];
    return p->n == 1 && (!c->runs || (p->fresh && c->runs < t->o.runs));
}

/* The next candidate of a problem to time; 0: none is left. */
static int untimed(const tune_problem *p)
{
    for (int c = 1; c < p->n; c++)
        if (!p->candidate[c].runs && !p->candidate[c].other_bits)
            return c;
    return 0;
}

/* Drop candidates whose way of cutting changes bits: oneDNN may sum in another order for another
 * shape. Another algorithm is compared with itself, cut as the model would. */
static f8_status drop_other_bits(fp8c_tuning *t, tune_problem *p, f8_diag *diag)
{
    while (p->next && p->gemm && t->base->target->kind == F8_TARGET_CPU) {
        tune_candidate *c = &p->candidate[p->next];
        f8_gemm_desc plain = c->desc;
        plain.tuning = (f8_gemm_tuning){0};
        bool same = f8_gemm_tuning_equal(&plain.tuning, &c->desc.tuning);
        if (!same)
            F8_TRY(f8_gemm_same_bits(t->gemms, &plain, &c->desc, t->pool, &t->ctx->allocator, &same,
                                     diag));
        if (same)
            return F8_OK;
        const f8_timing none = {.candidate = c->text};
        c->other_bits = true;
        t->changed_bits++;
        F8_TRY(f8_tuning_put(t->db, f8_tune_key(t, p), p->text, p->name, &none, 1, NULL, diag));
        p->next = untimed(p);
    }
    return F8_OK;
}

/* Say in the database that this process times, before its first samples are put there. */
static f8_status keep_process(fp8c_tuning *t, f8_diag *diag)
{
    const f8_tuning_process process = {.id = t->process, .device = t->keys.device, .facts = ""};
    if (t->process_kept)
        return F8_OK;
    F8_TRY(f8_tuning_put_process(t->db, &process, diag));
    t->process_kept = true;
    return F8_OK;
}

f8_status f8_tune_keep(fp8c_tuning *t, tune_problem *p, int runs, f8_diag *diag)
{
    double seconds[2][TUNE_RUNS];
    f8_tuning_runs samples[2];
    f8_timing timing[2];
    for (int s = 0; s < 2; s++) {
        tune_candidate *c = &p->candidate[s ? p->next : 0];
        const double least = f8_tune_least(p->sample[s], runs);
        if (!c->runs || least < c->seconds) {
            c->seconds = least;
            c->runs = runs;
        }
        for (int i = 0; i < runs; i++) /* a sum of differences may be a little less than 0 */
            seconds[s][i] = p->sample[s][i] > 0 ? p->sample[s][i] / p->count : 0;
        samples[s] = (f8_tuning_runs){t->process, (int64_t)time(NULL), seconds[s], (size_t)runs};
        timing[s] = (f8_timing){.candidate = c->text, .samples = &samples[s], .n_samples = 1};
    }
    F8_TRY(keep_process(t, diag));
    return f8_tuning_put(t->db, f8_tune_key(t, p), p->text, p->name, timing, 2, NULL, diag);
}

/* Keep the samples of a problem's candidate that was not timed before. */
static f8_status keep_new(fp8c_tuning *t, tune_problem *p, int runs, f8_diag *diag)
{
    p->candidate[0].ratio = 1;
    p->candidate[p->next].ratio =
        f8_tune_least(p->sample[1], runs) / f8_tune_least(p->sample[0], runs);
    p->fresh = true;
    t->timed++;
    return f8_tune_keep(t, p, runs, diag);
}

/* Keep the samples of a problem that has one way. */
static f8_status keep_alone(fp8c_tuning *t, tune_problem *p, int runs, f8_diag *diag)
{
    double seconds[TUNE_RUNS];
    tune_candidate *c = &p->candidate[0];
    const double least = f8_tune_least(p->sample[0], runs);
    c->seconds = p->fresh && c->seconds < least ? c->seconds : least;
    c->runs = (p->fresh ? c->runs : 0) + runs;
    for (int i = 0; i < runs; i++)
        seconds[i] = p->sample[0][i] > 0 ? p->sample[0][i] / p->count : 0;
    const f8_tuning_runs samples = {t->process, (int64_t)time(NULL), seconds, (size_t)runs};
    const f8_timing timing = {.candidate = c->text, .samples = &samples, .n_samples = 1};
    t->timed += !p->fresh;
    p->fresh = true;
    F8_TRY(keep_process(t, diag));
    return f8_tuning_put(t->db, f8_tune_key(t, p), p->text, p->name, &timing, 1, NULL, diag);
}

/* Keep the samples of a round. */
static f8_status keep_all(fp8c_tuning *t, int runs, f8_diag *diag)
{
    for (size_t i = 0; i < t->n && runs; i++) {
        tune_problem *p = &t->problem[i];
        if (p->next)
            F8_TRY(keep_new(t, p, runs, diag));
        else if (is_due(t, p))
            F8_TRY(keep_alone(t, p, runs, diag));
    }
    return F8_OK;
}

static f8_status round_of(fp8c_tuning *t, bool *any, f8_diag *diag)
{
    char item[96] = "";
    int runs = t->o.runs;
    fp8c_program *other = NULL;
    bool ways = false;
    *any = false;
    for (size_t i = 0; i < t->n; i++) {
        tune_problem *p = &t->problem[i];
        p->next = untimed(p);
        F8_TRY(f8_progress_at(&t->progress, t->timed, p->name, diag));
        if (f8_tune_late(t)) {
            *any = true;
            return F8_OK;
        }
        F8_TRY(drop_other_bits(t, p, diag));
        if (p->next && !ways)
            snprintf(item, sizeof item, "%s and others: %s ...", p->name,
                     p->candidate[p->next].text);
        ways |= p->next > 0;
        *any |= p->next > 0 || is_due(t, p);
    }
    if (!*any)
        return F8_OK;
    if (ways)
        F8_TRY(f8_tune_compile(t, &other, diag));
    const f8_status status = f8_tune_compare(t, other, &runs, true, item, diag);
    fp8c_program_destroy(other);
    F8_TRY(status);
    return keep_all(t, runs, diag);
}

f8_status f8_tune_time(fp8c_tuning *t, f8_diag *diag)
{
    int64_t left = 0;
    for (size_t i = 0; i < t->n; i++)
        left += is_due(t, &t->problem[i]);
    for (size_t i = 0; i < t->n; i++)
        for (int c = 1; c < t->problem[i].n; c++)
            left += !t->problem[i].candidate[c].runs && !t->problem[i].candidate[c].other_bits;
    /* and the one to choose */
    t->progress = f8_progress_begin(&t->ctx->progress, "tune", left + 1);
    for (bool any = left > 0; any;) {
        if (!f8_tune_late(t))
            F8_TRY(round_of(t, &any, diag));
        if (any && f8_tune_late(t)) {
            t->finished = false;
            return F8_OK;
        }
    }
    return F8_OK;
}
