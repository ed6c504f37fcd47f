/* Statistics as columns of numbers. Where a page would become too large, several watched steps are
 * one point, and nothing that stands out is lost: a point has the worst of what it stands for. */
#include <math.h>
#include <stdlib.h>

#include "frontend/diagnose/report/parts.h"

/* Only `digits` digits of x, so that its text is short. */
static double rounded(double x, int digits)
{
    const double unit = pow(10, digits - 1 - floor(log10(fabs(x))));
    return x == 0 || !isfinite(unit) || unit == 0 ? x : round(x * unit) / unit;
}

json_t *f8_report_json(double x, int digits)
{
    if (!isfinite(x))
        return json_null();
    const double y = digits ? rounded(x, digits) : x;
    return y == floor(y) && fabs(y) < 1e6 ? json_integer((json_int_t)y) : json_real(y);
}

/* ---- points ---- */

/* How far a scale is from the one that the tensor's amax asks for: the logarithm of their ratio,
 * without its sign. 0 where one of them is missing. */
static double apart(const f8_report_point *p)
{
    const double x = p->figure[F8_FIGURE_scale] / p->figure[F8_FIGURE_scale_wanted];
    return x > 0 ? fabs(log(x)) : 0;
}

/* The figure of one point that stands for the points [from, end), of which there is at least one.
 */
static double figure_of(const f8_report_point *from, const f8_report_point *end, int figure)
{
    double kept = NAN, farthest = -1;
    for (const f8_report_point *p = from; p < end; p++) {
        const double x = p->figure[figure];
        if (f8_figures[figure].kept == F8_KEPT_APART) {
            if (!isnan(x) && apart(p) > farthest) {
                farthest = apart(p);
                kept = x;
            }
        } else {
            kept = f8_figures[figure].kept == F8_KEPT_MOST ? fmax(kept, x) : fmin(kept, x);
        }
    }
    return kept;
}

/* ---- columns ---- */

typedef enum nature { ABSENT, CONSTANT, VARIED } nature;

/* Many columns need no list: results of GEMMs have no figures of a quantization, and most tensors
 * never have a value that is not finite. */
static nature nature_of(const f8_report_series *s, int figure)
{
    bool any = false;
    for (size_t i = 0; i < s->n; i++) {
        const double x = s->point[i].figure[figure], first = s->point[0].figure[figure];
        any |= !isnan(x);
        if (isnan(x) != isnan(first) || (!isnan(x) && x != first))
            return VARIED;
    }
    return any ? CONSTANT : ABSENT;
}

size_t f8_report_columns(const f8_report_run *run)
{
    size_t n = 0;
    for (size_t i = 0; i < run->n_series; i++)
        for (int f = 0; f < F8_FIGURES; f++)
            n += nature_of(&run->series[i], f) == VARIED;
    return n;
}

/* The column of a series: `each` watched steps are a point. A series that was not watched then has
 * null there. */
static json_t *column(const f8_report_run *run, const f8_report_series *s, int figure, size_t each)
{
    json_t *all = json_array();
    const f8_report_point *from = s->point, *end = s->point + s->n;
    for (size_t i = 0; i < run->n_watched; i += each) {
        const size_t last = i + each < run->n_watched ? i + each : run->n_watched;
        const f8_report_point *to = from;
        while (to < end && to->step <= run->watched[last - 1])
            to++;
        json_array_append_new(all, f8_report_json(figure_of(from, to, figure), 4));
        from = to;
    }
    return all;
}

static json_t *series(const f8_report_run *run, const f8_report_series *s, size_t each)
{
    json_t *all =
        json_pack("{ss ss ss ss ss ss sb sI}", "tensor", s->tensor, "linear", s->linear, "operand",
                  s->operand, "quantized", s->quantized, "format", s->format, "granularity",
                  s->granularity, "what_if", (int)s->what_if, "elements", (json_int_t)s->elements);
    for (int f = 0; f < F8_FIGURES && all; f++) {
        const nature n = nature_of(s, f);
        if (n == CONSTANT && s->n == run->n_watched)
            json_object_set_new(all, f8_figures[f].name, f8_report_json(s->point[0].figure[f], 4));
        else if (n != ABSENT)
            json_object_set_new(all, f8_figures[f].name, column(run, s, f, each));
    }
    return all;
}

json_t *f8_report_stats(const f8_report_run *run, size_t most)
{
    const size_t each = most ? (run->n_watched + most - 1) / most : run->n_watched;
    json_t *first = json_array(), *last = json_array(), *all = json_array();
    for (size_t i = 0; i < run->n_watched; i += each) {
        const size_t end = i + each < run->n_watched ? i + each : run->n_watched;
        json_array_append_new(first, json_integer(run->watched[i]));
        json_array_append_new(last, json_integer(run->watched[end - 1]));
    }
    for (size_t i = 0; i < run->n_series; i++)
        json_array_append_new(all, series(run, &run->series[i], each));
    return json_pack("{sI sI so so so}", "watched", (json_int_t)run->n_watched, "each",
                     (json_int_t)each, "first", first, "last", last, "tensors", all);
}
