/* Two sets compared: see measure.h. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/measure/measure.h"

/* ---- the machine ---- */

#define SURE 0.01

/* Ratios whose logarithm is not beyond `least` do not count. That of memory varies by a tenth from
 * minute to minute beside GEMMs that do not. It rose by a quarter, and GEMMs took up to 30% longer,
 * where a virtual machine's two CPUs came to lie on two chips with a cache each. */
static const struct {
    const char *name;
    size_t at;
    double least;
} limits[] = {{"f32", offsetof(f8_measure_limits, flops_f32), 0},
              {"bf16", offsetof(f8_measure_limits, flops_bf16), 0},
              {"fp8", offsetof(f8_measure_limits, flops_fp8), 0},
              {"memory", offsetof(f8_measure_limits, bytes), 0.15}};
enum { LIMITS = sizeof limits / sizeof *limits };

static double limit_at(const f8_measure_limits *of, size_t at)
{
    return *(const double *)((const char *)of + at);
}

/* A limit as a measurement, whose runs are the seconds for one operation or byte. */
static f8_status measure_limit(const f8_measure_set *set, int limit, f8_arena *arena,
                               f8_measurement *out, f8_diag *diag)
{
    *out = (f8_measurement){.problem.text = limits[limit].name, .cache = "", .candidate = "limit"};
    out->process = F8_NEW_ARRAY(arena, f8_measure_runs, set->n_processes + 1);
    double *seconds = F8_NEW_ARRAY(arena, double, 2 * set->n_processes + 1);
    F8_TRY(f8_arena_status(arena, diag));
    for (size_t i = 0; i < set->n_processes; i++, seconds += 2) {
        const f8_measure_process *p = &set->process[i];
        seconds[0] = 1 / limit_at(&p->before, limits[limit].at);
        seconds[1] = 1 / limit_at(&p->after, limits[limit].at);
        if (isfinite(seconds[0]) && isfinite(seconds[1]))
            out->process[out->n_processes++] = (f8_measure_runs){p->id, seconds, 2};
    }
    return F8_OK;
}

/* See whether the machine was in another state. Another device is what is compared, and no drift.
 */
static f8_status find_drift(f8_measure_diff *d, f8_arena *arena, f8_diag *diag)
{
    const char *a = d->a->about.device, *b = d->b->about.device;
    double size = 0;
    if (!a || !b || strcmp(a, b) != 0)
        return F8_OK;
    for (int i = 0; i < LIMITS; i++) {
        f8_measurement x, y;
        f8_measure_ratio r;
        F8_TRY(measure_limit(d->a, i, arena, &x, diag));
        F8_TRY(measure_limit(d->b, i, arena, &y, diag));
        F8_TRY(f8_measure_interval(&x, &y, &d->options, arena, &r, diag));
        if (LIMITS * r.p < SURE && fabs(log(r.ratio)) > fmax(size, limits[i].least)) {
            size = fabs(log(r.ratio));
            d->drift = (f8_measure_drift){limits[i].name, r};
        }
    }
    d->options.drift = fmax(d->options.drift, size);
    return F8_OK;
}

/* ---- problems ---- */

static f8_status gather(f8_measure_diff *d, f8_arena *arena, f8_diag *diag);

enum { FEW = 6 /* problems that say nothing about all */ };
#define MOST_SCATTER 0.03 /* more is no drift of a machine whose limits are the same */

static int compare_numbers(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of |change| / error, where the errors also have this deviation. `z` has room. */
static double middle(const f8_measure_diff *d, double deviation, double *z, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < d->n_changes; i++) {
        const f8_measure_ratio *r = &d->change[i].ratio;
        const double change = fabs(log(r->ratio)), error = hypot(r->error, deviation);
        if (!isnan(change) && !isnan(error))
            z[(*n)++] = change > 0 ? change / error : 0;
    }
    qsort(z, *n, sizeof *z, compare_numbers);
    return *n ? (z[(*n - 1) / 2] + z[*n / 2]) / 2 : 0;
}

/* Find the deviation that a change from one call to another adds: with it, half of the problems lie
 * within 0.6745 errors, as half of a normal distribution do. Two calls see a machine minutes apart,
 * and what one's processes have in common their runs do not show. (As the variance between studies
 * of a meta-analysis, Paule and Mandel 1982, but around no change, and by the median, which a few
 * problems that did change do not move.) */
static f8_status find_scatter(f8_measure_diff *d, f8_arena *arena, f8_diag *diag)
{
    const double half = 0.67449;
    double *z = F8_NEW_ARRAY(arena, double, d->n_changes + 1), low = 0, high = MOST_SCATTER;
    size_t n;
    if (!z)
        return f8_arena_status(arena, diag);
    if (middle(d, 0, z, &n) <= half || n < FEW)
        return F8_OK;
    for (int i = 0; i < 40; i++) {
        const double between = (low + high) / 2;
        *(middle(d, between, z, &n) > half ? &low : &high) = between;
    }
    d->scatter = high;
    if (d->scatter <= d->options.drift)
        return F8_OK;
    d->options.drift = d->scatter;
    d->n_changes = d->n_only[0] = d->n_only[1] = 0;
    return gather(d, arena, diag);
}

/* The measurement to compare of number `index`'s problem and cache, if it is the first of them. */
static const f8_measurement *pick_at(const f8_measure_set *set, size_t index)
{
    const f8_measurement *m = &set->measurement[index], *before = index ? m - 1 : NULL;
    if (before && !strcmp(before->problem.text, m->problem.text) &&
        !strcmp(before->cache, m->cache))
        return NULL;
    return f8_measure_pick(set, m->problem.text, m->cache);
}

static f8_status gather(f8_measure_diff *d, f8_arena *arena, f8_diag *diag)
{
    for (size_t i = 0; i < d->a->n_measurements; i++) {
        const f8_measurement *a = pick_at(d->a, i);
        const f8_measurement *b = a ? f8_measure_pick(d->b, a->problem.text, a->cache) : NULL;
        if (a && !b)
            d->only[0][d->n_only[0]++] = a;
        if (!b)
            continue;
        f8_measure_change *c = &d->change[d->n_changes++];
        *c = (f8_measure_change){.a = a, .b = b};
        F8_TRY(f8_measure_interval(a, b, &d->options, arena, &c->ratio, diag));
    }
    for (size_t i = 0; i < d->b->n_measurements; i++) {
        const f8_measurement *b = pick_at(d->b, i);
        if (b && !f8_measure_pick(d->a, b->problem.text, b->cache))
            d->only[1][d->n_only[1]++] = b;
    }
    return F8_OK;
}

static int compare_p(const void *a, const void *b)
{
    const double x = (*(f8_measure_change *const *)a)->ratio.p;
    const double y = (*(f8_measure_change *const *)b)->ratio.p;
    return (x > y) - (x < y);
}

/* Mark the changes by Holm's step-down: the least p is compared with alpha / n, the next with
 * alpha / (n - 1), up to the first that is not below. */
static f8_status mark(f8_measure_diff *d, f8_arena *arena, f8_diag *diag)
{
    size_t n = 0;
    f8_measure_change **order = F8_NEW_ARRAY(arena, f8_measure_change *, d->n_changes);
    if (!order)
        return f8_arena_status(arena, diag);
    for (size_t i = 0; i < d->n_changes; i++)
        if (!isnan(d->change[i].ratio.p))
            order[n++] = &d->change[i];
    qsort(order, n, sizeof *order, compare_p);
    for (size_t i = 0; i < n; i++) {
        if (!((double)(n - i) * order[i]->ratio.p < 1 - d->options.level))
            break;
        order[i]->marked = true;
    }
    return F8_OK;
}

static double mean_of(const f8_measure_diff *d)
{
    size_t n = 0;
    double sum = 0;
    for (size_t i = 0; i < d->n_changes; i++) {
        const double x = log(d->change[i].ratio.ratio);
        if (isfinite(x)) {
            sum += x;
            n++;
        }
    }
    return n ? exp(sum / (double)n) : NAN;
}

/* The first problem of a set that is its own alone, for a message. */
static const char *example(const f8_measure_diff *d, int side, f8_arena *arena)
{
    if (!d->n_only[side])
        return "none that was timed";
    const f8_measurement *m = d->only[side][0];
    return f8_arena_printf(arena, "%zu, as %s with a %s cache", d->n_only[side], m->problem.text,
                           m->cache);
}

f8_status f8_measure_compare(const f8_measure_set *a, const f8_measure_set *b,
                             const f8_measure_options *options, f8_arena *arena,
                             f8_measure_diff *out, f8_diag *diag)
{
    f8_measure_diff d = {.a = a, .b = b};
    F8_TRY(f8_measure_settle(options, &d.options, diag));
    d.change = F8_NEW_ARRAY(arena, f8_measure_change, a->n_measurements + 1);
    d.only[0] = F8_NEW_ARRAY(arena, const f8_measurement *, a->n_measurements + 1);
    d.only[1] = F8_NEW_ARRAY(arena, const f8_measurement *, b->n_measurements + 1);
    F8_TRY(f8_arena_status(arena, diag));
    F8_TRY(find_drift(&d, arena, diag));
    F8_TRY(gather(&d, arena, diag));
    if (!d.n_changes) {
        const char *of_a = example(&d, 0, arena), *of_b = example(&d, 1, arena);
        F8_TRY(f8_arena_status(arena, diag));
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "no problem is in both: the first has %s; the second has %s", of_a, of_b);
    }
    F8_TRY(find_scatter(&d, arena, diag));
    F8_TRY(mark(&d, arena, diag));
    d.mean = mean_of(&d);
    *out = d;
    return F8_OK;
}

bool f8_measure_is_slower(const f8_measure_change *c, double percent)
{
    return c->marked && c->ratio.low > 1 + percent / 100;
}
