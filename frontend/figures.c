/* The figures of watched values: see figures.h. Formulas are in figures.def; here is what they
 * call.
 */
#include "frontend/figures.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "ir/num/fp8.h"

/* Types of fields by unit. */
typedef double of_VALUE, of_SQUARE, of_FACTOR, of_SHARE, of_BINADES, of_DECIBELS, of_COSINE;
typedef int64_t of_COUNT;

/* A figure without a field in fp8c_diagnose.h, or a field without a row, or one of another place or
 * type, does not compile. */
typedef struct rows {
#define FIGURE(name, unit, has, better, kept, worst, beside, alarm, formula, label, sentence)      \
    of_##unit name;
#include "frontend/figures.def"
#undef FIGURE
} rows;
enum { FIRST = offsetof(fp8c_statistic, amin) };
_Static_assert(sizeof(fp8c_statistic) == FIRST + sizeof(rows), "a row for each field");
#define FIGURE(name, unit, has, better, kept, worst, beside, alarm, formula, label, sentence)      \
    _Static_assert(offsetof(fp8c_statistic, name) == FIRST + offsetof(rows, name) &&               \
                       _Generic(((fp8c_statistic *)NULL)->name, of_##unit: 1, default: 0),         \
                   "the row of " #name);
#include "frontend/figures.def"
#undef FIGURE

enum { NOT, WORST, NO_ALARM = -1 };

/* A count has no NaN for values that lack it. A worst value is the most or the least of a tensor.
 */
#define FIGURE(name, unit, has, better, kept, worst, beside, alarm, formula, label, sentence)      \
    _Static_assert(_Generic((of_##unit)0, int64_t: F8_HAS_##has == F8_HAS_ALL, default: 1) &&      \
                       !(worst == WORST && F8_KEPT_##kept == F8_KEPT_APART),                       \
                   "the columns of " #name);
#include "frontend/figures.def"
#undef FIGURE

const f8_figure f8_figures[F8_FIGURES] = {
#define FIGURE(name, unit, has, better, kept, worst, beside, alarm, formula, label, sentence)      \
    {#name,          #unit,                                                                        \
     label,          F8_BETTER_##better,                                                           \
     F8_KEPT_##kept, _Generic((of_##unit)0, int64_t: true, default: false),                        \
     worst,          F8_FIGURE_##beside,                                                           \
     alarm,          offsetof(fp8c_statistic, name)},
#include "frontend/figures.def"
#undef FIGURE
};

/* ---- what formulas call ---- */

static double share(double part, const f8_watched *w)
{
    return w->elements > 0 ? part / (double)w->elements : NAN;
}

static double or_nan(double x)
{
    return isfinite(x) ? x : NAN;
}

/* What the sums of products are in squares of. */
static double unit_of(double amax)
{
    int exponent;
    if (!isfinite(amax))
        return NAN;
    frexp(amax, &exponent);
    const double unit = amax > 0 ? ldexp(1, exponent - 1) : 0;
    return fmin(fmax(unit, F8_SUM_UNIT_LEAST), F8_SUM_UNIT_MOST);
}

/* ---- filling ---- */

static f8_has has_of(const f8_watched *w)
{
    return !w->quantized                                    ? F8_HAS_ALL
           : !f8_granularity_equal(w->grain, f8_per_tensor) ? F8_HAS_QUANTIZED
           : w->recipe.scaling == F8_SCALING_UNIT           ? F8_HAS_ONE_SCALE
                                                            : F8_HAS_ASKING;
}

enum {
#define SUM(name, has, nodes) SUM_HAS_##name = F8_HAS_##has,
#include "passes/unit/sums.def"
#undef SUM
};
/* A sum in a formula; HAS is of the figure. */
#define SUM(name)                                                                                  \
    ((double)sum[F8_SUM_##name + 0 * sizeof(char[(int)SUM_HAS_##name <= (int)HAS ? 1 : -1])])

void f8_figures_fill(const f8_watched *w, const float *sum, fp8c_statistic *s)
{
    const int has = has_of(w);
#define FIGURE(name, unit, of, better, kept, worst, beside, alarm, formula, label, sentence)       \
    {                                                                                              \
        enum { HAS = F8_HAS_##of };                                                                \
        s->name = (of_##unit)(has >= HAS ? (formula) : NAN);                                       \
    }
#include "frontend/figures.def"
#undef FIGURE
}

double f8_figure_of(const fp8c_statistic *s, int figure)
{
    const char *at = (const char *)s + f8_figures[figure].offset;
    double x;
    int64_t n;
    if (f8_figures[figure].is_count) {
        memcpy(&n, at, sizeof n);
        return (double)n;
    }
    memcpy(&x, at, sizeof x);
    return x;
}
