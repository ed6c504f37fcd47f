/* Where a run parts from a good one: see README.md, "Where runs part". */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/diagnose/report/parts.h"

/* ---- tensors ---- */

/* How well a series of the good run goes with one of the other; 0: not at all. The tensor of that
 * name comes first (the name has the granularity), and then the same operand of the same linear
 * under a recipe that scales it otherwise. Of these, the one of the recipe in use, then what would
 * have been under the run's recipe, then what would have been under another: `delayed` has no
 * what-if figures, `current` has. */
static int fitness(const f8_report_series *good, const f8_report_series *s)
{
    const bool named = !strcmp(good->tensor, s->tensor);
    const bool operand = !strcmp(good->linear, s->linear) && !strcmp(good->operand, s->operand);
    if (!f8_report_quantized(good) || (!named && !operand))
        return 0;
    return 1 + 3 * named + (!good->what_if ? 2 : !strcmp(good->quantized, s->quantized));
}

static const f8_report_series *partner(const f8_report_run *good, const f8_report_series *s)
{
    const f8_report_series *best = NULL;
    for (size_t i = 0; i < good->n_series; i++) {
        const int fits = fitness(&good->series[i], s);
        if (fits && (!best || fits > fitness(best, s)))
            best = &good->series[i];
    }
    return best;
}

/* The watched steps that two series share. */
typedef struct pairs {
    const f8_report_point **good, **run;
    size_t n;
} pairs;

static f8_status pair_up(const f8_report_series *good, const f8_report_series *run, pairs *p,
                         f8_diag *diag)
{
    const size_t most = good->n < run->n ? good->n : run->n;
    *p = (pairs){calloc(most + 1, sizeof *p->good), calloc(most + 1, sizeof *p->run), 0};
    if (!p->good || !p->run)
        return f8_report_no_memory(diag);
    for (size_t g = 0, r = 0; g < good->n && r < run->n;) {
        const int64_t a = good->point[g].step, b = run->point[r].step;
        if (a == b) {
            p->good[p->n] = &good->point[g];
            p->run[p->n++] = &run->point[r];
        }
        g += a <= b;
        r += b <= a;
    }
    return F8_OK;
}

/* How many times the most that the good run has around there. Underflow of next to nothing is not
 * counted in times of nothing. */
static double times(const pairs *p, size_t at, int figure, double least)
{
    double most = least;
    const size_t from = at > F8_PART_AROUND ? at - F8_PART_AROUND : 0;
    for (size_t i = from; i < p->n && i <= at + F8_PART_AROUND; i++)
        most = fmax(most, p->good[i]->figure[figure]);
    const double x = p->run[at]->figure[figure];
    return x > 0 && most > 0 ? x / most : x > 0 ? INFINITY : 0;
}

/* The first of F8_PART_POINTS watched steps in a row at which a figure has left. p->n: none. */
static size_t first_left(const pairs *p, int figure, double least, double factor)
{
    size_t row = 0;
    for (size_t i = 0; i < p->n; i++) {
        row = times(p, i, figure, least) >= factor ? row + 1 : 0;
        if (row == F8_PART_POINTS)
            return i + 1 - F8_PART_POINTS;
    }
    return p->n;
}

/* false: the tensor does not part. */
static bool judge(const pairs *p, f8_report_parted *out)
{
    const size_t underflow = first_left(p, F8_FIGURE_underflow, F8_PART_UNDERFLOW_LEAST,
                                        F8_PART_UNDERFLOW_FACTOR),
                 mse = first_left(p, F8_FIGURE_mse, 0, F8_PART_MSE_FACTOR);
    if (underflow == p->n && mse == p->n)
        return false;
    const size_t at = underflow == p->n ? mse
                      : mse == p->n     ? underflow
                                        : (underflow > mse ? underflow : mse);
    out->underflow_step = underflow < p->n ? p->run[underflow]->step : 0;
    out->mse_step = mse < p->n ? p->run[mse]->step : 0;
    out->step = p->run[at]->step;
    out->good_at = *p->good[at];
    out->run_at = *p->run[at];
    out->factor = fmax(times(p, at, F8_FIGURE_underflow, F8_PART_UNDERFLOW_LEAST),
                       times(p, at, F8_FIGURE_mse, 0));
    return true;
}

static bool both(const f8_report_parted *p)
{
    return p->underflow_step && p->mse_step;
}

static int order(const void *a, const void *b)
{
    const f8_report_parted *x = a, *y = b;
    if (both(x) != both(y))
        return both(x) ? -1 : 1;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (x->factor != y->factor)
        return x->factor > y->factor ? -1 : 1;
    return strcmp(x->run->tensor, y->run->tensor);
}

static f8_status part_tensors(const f8_report_run *good, const f8_report_run *run,
                              f8_report_parting *out, f8_diag *diag)
{
    size_t room = 0;
    for (size_t i = 0; i < run->n_series; i++) {
        const f8_report_series *s = &run->series[i], *g;
        pairs p;
        f8_report_parted parted = {.run = s};
        if (s->what_if || !f8_report_quantized(s) || !(g = partner(good, s)))
            continue;
        f8_status status = pair_up(g, s, &p, diag);
        parted.good = g;
        out->compared += p.n > 0;
        if (status == F8_OK && judge(&p, &parted)) {
            status = f8_report_grow(&out->tensor, &room, out->n, sizeof parted, diag);
            if (status == F8_OK)
                out->tensor[out->n++] = parted;
        }
        free(p.good);
        free(p.run);
        F8_TRY(status);
    }
    if (out->n)
        qsort(out->tensor, out->n, sizeof *out->tensor, order);
    return F8_OK;
}

/* ---- the loss ---- */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The difference of the losses. A loss that is no number is far above any other. */
static double gap(const f8_report_run *good, const f8_report_run *run, size_t i)
{
    return isnan(run->step[i].loss)    ? INFINITY
           : isnan(good->step[i].loss) ? 0
                                       : run->step[i].loss - good->step[i].loss;
}

/* How much the difference changes from step to step before step i: the median. Runs that see the
 * same data scatter alike, so that it is small. */
static double noise(const f8_report_run *good, const f8_report_run *run, size_t i)
{
    double change[F8_PART_BEFORE];
    size_t n = 0;
    for (size_t k = i; k > 1 && n < F8_PART_BEFORE; k--) {
        const double x = fabs(gap(good, run, k - 1) - gap(good, run, k - 2));
        if (isfinite(x))
            change[n++] = x;
    }
    qsort(change, n, sizeof *change, ascending);
    return n ? change[n / 2] : 0;
}

static int64_t part_loss(const f8_report_run *good, const f8_report_run *run)
{
    const size_t n = good->n_steps < run->n_steps ? good->n_steps : run->n_steps;
    size_t row = 0;
    double limit = 0;
    for (size_t i = 0; i < n; i++) {
        if (!row) /* the limit stays while a run is on its way out */
            limit = fmax(F8_PART_LOSS_SHARE * fabs(good->step[i].loss),
                         F8_PART_LOSS_NOISE * noise(good, run, i));
        row = gap(good, run, i) > limit ? row + 1 : 0;
        if (row == F8_PART_STEPS)
            return (int64_t)(i + 2 - F8_PART_STEPS);
    }
    return 0;
}

f8_status f8_report_part(const f8_report_run *good, const f8_report_run *run,
                         f8_report_parting *out, f8_diag *diag)
{
    *out = (f8_report_parting){.loss_step = part_loss(good, run)};
    return part_tensors(good, run, out, diag);
}

void f8_report_part_free(f8_report_parting *p)
{
    free(p->tensor);
    *p = (f8_report_parting){0};
}
