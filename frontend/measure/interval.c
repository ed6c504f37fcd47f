/* The ratio of two measurements with its interval: see measure.h.
 *
 * Runs of one process agree more than processes do, so that only processes count as observations,
 * and there are few of them. An interval of the bootstrap's quantiles is too narrow then. So the
 * bootstrap (Efron 1979), which resamples processes with replacement and then runs within each,
 * gives the standard error of the logarithm of the median, and the interval is Student's, with the
 * degrees of freedom of Welch (1947) and Satterthwaite (1946). Resampling n processes gives
 * (n - 1) / n of the variance between them, which is made good. All in all it errs on the wide side
 * for few processes: of 5, an interval of 95% holds 98% (check_diff simulates it). */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/measure/measure.h"
#include "frontend/measure/student.h"
#include "frontend/train/data/mix.h"
#include "ir/base/hash.h"

enum { DRAWS = 2000, MOST_FREEDOM = 100000 /* of student.h */ };
#define LEVEL 0.95

/* A measurement, for resampling. */
typedef struct sample {
    const f8_measurement *m;
    size_t n;         /* runs */
    double *sorted;   /* their seconds, in order */
    uint32_t *place;  /* of a run, as the processes have them, in that order */
    uint32_t *begin;  /* the first run of a process */
    uint32_t *copies; /* of a run by its place, in a draw */
    double median;
    double variance; /* of its logarithm */
    bool sure;       /* the variance is known */
} sample;

typedef struct placed {
    double seconds;
    uint32_t run;
} placed;

static int compare(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

static f8_status prepare(sample *s, const f8_measurement *m, f8_arena *arena, f8_diag *diag)
{
    *s = (sample){.m = m};
    for (size_t i = 0; i < m->n_processes; i++)
        s->n += m->process[i].n;
    placed *order = F8_NEW_ARRAY(arena, placed, s->n + 1);
    s->sorted = F8_NEW_ARRAY(arena, double, s->n + 1);
    s->place = F8_NEW_ARRAY(arena, uint32_t, s->n + 1);
    s->copies = F8_NEW_ARRAY(arena, uint32_t, s->n + 1);
    s->begin = F8_NEW_ARRAY(arena, uint32_t, m->n_processes + 1);
    F8_TRY(f8_arena_status(arena, diag));
    uint32_t n = 0;
    for (size_t i = 0; i < m->n_processes; i++) {
        s->begin[i] = n;
        for (size_t j = 0; j < m->process[i].n; j++, n++)
            order[n] = (placed){m->process[i].seconds[j], n};
    }
    qsort(order, n, sizeof *order, compare);
    for (uint32_t i = 0; i < n; i++) {
        s->sorted[i] = order[i].seconds;
        s->place[order[i].run] = i;
    }
    return F8_OK;
}

static double median_of(const double *sorted, size_t n)
{
    const double low = sorted[(n - 1) / 2];
    return low + (sorted[n / 2] - low) / 2;
}

/* A number below n, from a stream that `*state` is the place in. (Lemire 2019, without the step
 * that takes away a bias of n / 2^32) */
static uint32_t below(uint64_t *state, size_t n)
{
    return (uint32_t)((f8_mix(++*state) >> 32) * (uint64_t)n >> 32);
}

/* The logarithm of the median of a draw: processes, then runs of each. */
static double draw(sample *s, uint64_t *state)
{
    const f8_measurement *m = s->m;
    size_t total = 0, seen = 0;
    memset(s->copies, 0, s->n * sizeof *s->copies);
    for (size_t i = 0; i < m->n_processes; i++) {
        const uint32_t p = below(state, m->n_processes);
        const size_t n = m->process[p].n;
        for (size_t j = 0; j < n; j++)
            s->copies[s->place[s->begin[p] + below(state, n)]]++;
        total += n;
    }
    size_t at = 0;
    while ((seen += s->copies[at]) <= (total - 1) / 2)
        at++;
    const double low = s->sorted[at];
    while (seen <= total / 2)
        seen += s->copies[++at];
    return log(low + (s->sorted[at] - low) / 2);
}

/* The variance of the bootstrap's draws. */
static double resample(sample *s, const f8_measure_options *o)
{
    uint64_t state = f8_mix(f8_fnv(F8_FNV ^ f8_mix(o->seed), s->m->problem.text));
    state = f8_fnv(f8_fnv(state, s->m->cache), s->m->candidate);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < o->draws; i++) {
        const double x = draw(s, &state) - log(s->median);
        sum += x;
        squares += x * x;
    }
    const double draws = (double)o->draws;
    return fmax(squares - sum * sum / draws, 0) / (draws - 1);
}

/* Whether more than one process measured, and each on a clock that is fine enough. */
static bool can_say(const sample *s)
{
    for (size_t i = 0; i < s->m->n_processes; i++)
        if (!s->m->process[i].n)
            return false;
    return s->m->n_processes > 1 && s->sorted[0] > 0;
}

static f8_status judge(sample *s, const f8_measurement *m, const f8_measure_options *o,
                       f8_arena *arena, f8_diag *diag)
{
    F8_TRY(prepare(s, m, arena, diag));
    const double n = (double)m->n_processes;
    s->median = s->n ? median_of(s->sorted, s->n) : NAN;
    s->sure = can_say(s);
    if (!s->sure)
        return F8_OK;
    s->variance = resample(s, o) * n / (n - 1);
    return F8_OK;
}

f8_status f8_measure_settle(const f8_measure_options *options, f8_measure_options *out,
                            f8_diag *diag)
{
    *out = options ? *options : (f8_measure_options){0};
    out->draws += out->draws ? 0 : DRAWS;
    out->level += out->level ? 0 : LEVEL;
    if (out->draws < 100 || out->draws > 10000000)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "%" PRId64 " draws of a bootstrap: from 100 to 10,000,000 are expected",
                       out->draws);
    if (!(out->level >= 0.5 && out->level < 1))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "an interval's level of %g: from 0.5 to below 1 is expected", out->level);
    if (!(out->drift >= 0 && out->drift < HUGE_VAL))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "a drift of %g: from 0 on is expected",
                       out->drift);
    return F8_OK;
}

f8_status f8_measure_interval(const f8_measurement *a, const f8_measurement *b,
                              const f8_measure_options *options, f8_arena *arena,
                              f8_measure_ratio *out, f8_diag *diag)
{
    f8_measure_options o;
    sample x, y;
    F8_TRY(f8_measure_settle(options, &o, diag));
    F8_TRY(judge(&x, a, &o, arena, diag));
    F8_TRY(judge(&y, b, &o, arena, diag));
    const double ratio = y.median / x.median, change = log(y.median) - log(x.median);
    const double variance = x.variance + y.variance + o.drift * o.drift;
    *out = (f8_measure_ratio){ratio, NAN, NAN, NAN, NAN};
    if (!x.sure || !y.sure || !isfinite(change) || !isfinite(variance))
        return F8_OK;
    if (!(x.variance + y.variance > 0) &&
        !(o.drift > 0)) { /* no run differs from another of its side */
        *out = (f8_measure_ratio){ratio, ratio, ratio, y.median == x.median ? 1 : 0, 0};
        return F8_OK;
    }
    const double part = x.variance / variance, rest = y.variance / variance;
    const double inverse =
        part * part / (double)(a->n_processes - 1) + rest * rest / (double)(b->n_processes - 1);
    const double freedom = fmin(1 / inverse, MOST_FREEDOM); /* a drift is taken as known */
    const double error = sqrt(variance), half = f8_student_t(o.level, freedom) * error;
    out->error = error;
    out->low = exp(change - half);
    out->high = exp(change + half);
    out->p = f8_student_p(change / error, freedom);
    return F8_OK;
}
