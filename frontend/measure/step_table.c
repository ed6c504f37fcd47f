/* The GEMMs and kernels of a model's step as a table for a terminal: see model.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/measure/columns.h"
#include "frontend/measure/model.h"
#include "ir/base/format.h"

enum { MOST_LINES = 20 };

/* A problem: the model's way of it, and the chosen one. */
typedef struct line {
    const f8_measurement *model, *chosen;
} line;

/* ---- the lines ---- */

/* What a step spends on it; 0: not known. */
static double step_seconds(const line *x)
{
    return x->model->median > 0 ? (double)x->model->problem.count * x->model->median : 0;
}

/* The longest first. */
static int by_seconds(const void *a, const void *b)
{
    const line *x = a, *y = b;
    const double s = step_seconds(x), t = step_seconds(y);
    return s != t ? (s < t) - (s > t) : (x->model > y->model) - (x->model < y->model);
}

/* The lines of a set in their order; NULL: no memory. The caller frees them. */
static line *lines_of(const f8_measure_set *set, size_t *n)
{
    line *all = malloc((set->n_measurements + 1) * sizeof *all);
    *n = 0;
    for (size_t i = 0; all && i < set->n_measurements; i++) {
        const f8_measurement *m = &set->measurement[i];
        if (m->kind == F8_MEASURE_MODEL)
            all[(*n)++] = (line){m, m};
        else if (m->chosen && *n)
            all[*n - 1].chosen = m;
    }
    if (all)
        qsort(all, *n, sizeof *all, by_seconds);
    return all;
}

/* ---- cells ---- */

static const char *show(double x, f8_column_unit unit, char to[F8_COLUMN_SHOWN])
{
    f8_column_show(x, unit, to);
    if (!*to)
        f8_format(to, F8_COLUMN_SHOWN, "-");
    return to;
}

static void put_cell(FILE *to, int width, double x, f8_column_unit unit)
{
    char text[F8_COLUMN_SHOWN], cell[F8_COLUMN_SHOWN + 64];
    f8_format(cell, sizeof cell, " %*s", width, show(x, unit, text));
    fputs(cell, to);
}

static const char *bits(const f8_measurement *m)
{
    return m->same_bits == F8_MEASURE_UNKNOWN ? "-" : m->same_bits == F8_MEASURE_YES ? "yes" : "no";
}

/* What the chosen way gains on the model's. */
static double gain_of(const fp8c_tuning *t, const f8_measurement *m)
{
    const tune_problem *p = f8_tune_find(t, m->problem.text);
    return p && p->model_seconds > 0 ? 1 - p->seconds / p->model_seconds : (double)NAN;
}

static void put_line(const line *x, const fp8c_tuning *t, FILE *to)
{
    const f8_measurement *m = x->model, *c = x->chosen;
    char text[512], first[F8_COLUMN_SHOWN], third[F8_COLUMN_SHOWN], both[2 * F8_COLUMN_SHOWN + 8];
    f8_format(text, sizeof text, "%-32.32s %5" PRId64, m->problem.name, m->problem.count);
    fputs(text, to);
    if (m->state != F8_MEASURE_TIMED) {
        f8_format(text, sizeof text, "  %s  %s\n",
                  m->state == F8_MEASURE_LATE ? "out of time" : m->reason, m->problem.text);
        fputs(text, to);
        return;
    }
    put_cell(to, 9, m->median, F8_UNIT_SECONDS);
    f8_format(both, sizeof both, "%s - %s", show(m->quartile[0], F8_UNIT_SECONDS, first),
              show(m->quartile[1], F8_UNIT_SECONDS, third));
    f8_format(text, sizeof text, "  %-21s", both);
    fputs(text, to);
    put_cell(to, 9, c->median, F8_UNIT_SECONDS);
    put_cell(to, 6, gain_of(t, m), F8_UNIT_SHARE);
    put_cell(to, 14, c->rate,
             m->problem.flops > 0 ? F8_UNIT_OPERATIONS_A_SECOND : F8_UNIT_BYTES_A_SECOND);
    put_cell(to, 6, c->share, F8_UNIT_SHARE);
    f8_format(text, sizeof text, "  %-4s  %-20s  %s\n", bits(c), c->candidate, m->problem.text);
    fputs(text, to);
}

/* ---- the whole ---- */

static void put_lines(const line *all, size_t n, const fp8c_tuning *t, FILE *to)
{
    char text[160];
    size_t left = 0;
    f8_format(text, sizeof text, "%-32s %5s %9s  %-21s %9s %6s %14s %6s  %-4s  %-20s  %s\n",
              "first step", "count", "median", "quartiles", "chosen", "gain", "rate", "limit",
              "bits", "way", "problem");
    fputs(text, to);
    for (size_t i = 0; i < n; i++)
        if (i < MOST_LINES || all[i].chosen != all[i].model)
            put_line(&all[i], t, to);
        else
            left++;
    if (!left)
        return;
    f8_format(text, sizeof text,
              "... and %zu that take less time, or had none, and keep the model's choice (--json "
              "and --csv have all)\n",
              left);
    fputs(text, to);
}

char *f8_measure_step_table(const f8_measure_set *set, const fp8c_tuning *t)
{
    char *text = NULL;
    size_t size, n;
    line *all = lines_of(set, &n);
    FILE *to = all ? open_memstream(&text, &size) : NULL;
    if (to) {
        put_lines(all, n, t, to);
        f8_measure_put_foot(set, to);
    }
    free(all);
    const bool ok = to && !ferror(to);
    if (to && !fclose(to) && ok)
        return text;
    free(text);
    return NULL;
}
