/* The figures of watched values, by the rows of figures.def. Internal to frontend/. */
#ifndef F8_FRONTEND_FIGURES_H
#define F8_FRONTEND_FIGURES_H

#include <stdbool.h>

#include "frontend/fp8c_diagnose.h"
#include "passes/unit/pass.h"

enum {
#define FIGURE(name, unit, has, better, kept, worst, beside, alarm, formula, label, sentence)      \
    F8_FIGURE_##name,
#include "frontend/figures.def"
#undef FIGURE
    F8_FIGURES
};

typedef enum f8_better { F8_BETTER_NEITHER, F8_BETTER_LOWER, F8_BETTER_HIGHER } f8_better;
typedef enum f8_point_has { F8_KEPT_LEAST, F8_KEPT_MOST, F8_KEPT_APART } f8_point_has;

typedef struct f8_figure {
    const char *name, *unit, *label; /* unit: "VALUE", "SHARE", ... */
    f8_better better;
    f8_point_has kept;
    bool is_count;
    bool has_worst;    /* a record `tensor` has its worst value */
    int beside, alarm; /* alarm: fp8c_alarm_kind, or -1 */
    size_t offset;     /* in fp8c_statistic */
} f8_figure;
extern const f8_figure f8_figures[F8_FIGURES];

/* Fills the figures of a statistic from the sums of its value. */
void f8_figures_fill(const f8_watched *w, const float *sum, fp8c_statistic *s);
/* One of them; NaN: the value has none. */
double f8_figure_of(const fp8c_statistic *s, int figure);

#endif
