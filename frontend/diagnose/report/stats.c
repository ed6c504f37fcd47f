/* The records of statistics, gathered by tensor. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/diagnose/report/parts.h"

bool f8_report_quantized(const f8_report_series *s)
{
    return *s->quantized != 0;
}

/* Replaces a text that may be NULL by n bytes of another one. */
static bool set_bytes(char **to, const char *text, size_t n)
{
    if (*to && strlen(*to) == n && !memcmp(*to, text, n))
        return true;
    char *copy = strndup(text, n);
    if (copy) {
        free(*to);
        *to = copy;
    }
    return copy != NULL;
}

static bool set_text(char **to, const char *text)
{
    return set_bytes(to, text, strlen(text));
}

/* ---- finding a series ---- */

/* What a record says that it is of. Texts are of the record. */
typedef struct label {
    const char *tensor, *linear, *operand, *quantized, *format, *granularity;
    size_t n_tensor; /* bytes of the name without "@RECIPE" */
    bool what_if;
} label;

/* The recipe in use may change where a run goes on: its figures stay one series. */
static bool is_of(const f8_report_series *s, const label *l)
{
    return s->what_if == l->what_if && strlen(s->tensor) == l->n_tensor &&
           !memcmp(s->tensor, l->tensor, l->n_tensor) &&
           (!l->what_if || !strcmp(s->quantized, l->quantized));
}

/* Steps have their records in the same order: most often it is the series after the last one. */
static f8_report_series *find(f8_report_run *run, const label *l, size_t guess)
{
    for (size_t i = 0; i < run->n_series; i++) {
        f8_report_series *s = &run->series[(guess + i) % run->n_series];
        if (is_of(s, l))
            return s;
    }
    return NULL;
}

static f8_status add_series(f8_report_run *run, const label *l, f8_report_series **out,
                            f8_diag *diag)
{
    F8_TRY(f8_report_grow(&run->series, &run->series_room, run->n_series, sizeof **out, diag));
    f8_report_series *s = *out = &run->series[run->n_series++];
    *s = (f8_report_series){.what_if = l->what_if};
    return set_bytes(&s->tensor, l->tensor, l->n_tensor) && set_text(&s->linear, l->linear) &&
                   set_text(&s->operand, l->operand)
               ? F8_OK
               : f8_report_no_memory(diag);
}

/* ---- a record ---- */

/* The bytes of a tensor's name. That of a what-if figure ends in "@RECIPE"; without it, it is the
 * name that the tensor has where that recipe is in use. */
static size_t length_of(const label *l)
{
    const size_t all = strlen(l->tensor), recipe = strlen(l->quantized);
    const char *end = l->tensor + all - recipe;
    return l->what_if && all > recipe + 1 && end[-1] == '@' && !strcmp(end, l->quantized)
               ? all - recipe - 1
               : all;
}

static bool read_label(const json_t *record, label *l)
{
    *l = (label){.tensor = f8_report_text(record, "tensor"),
                 .linear = f8_report_text(record, "linear"),
                 .operand = f8_report_text(record, "operand"),
                 .quantized = f8_report_text(record, "quantized"),
                 .format = f8_report_text(record, "format"),
                 .granularity = f8_report_text(record, "granularity"),
                 .what_if = json_is_true(json_object_get(record, "what_if"))};
    if (!l->tensor || !*l->tensor || !l->linear || !l->operand || !*l->operand || !l->quantized ||
        !l->format || !l->granularity)
        return false;
    l->n_tensor = length_of(l);
    return true;
}

static f8_status add_watched(f8_report_run *run, int64_t step, f8_diag *diag)
{
    size_t at = run->n_watched;
    while (at && run->watched[at - 1] > step)
        at--;
    if (at && run->watched[at - 1] == step)
        return F8_OK;
    F8_TRY(f8_report_grow(&run->watched, &run->watched_room, run->n_watched, sizeof step, diag));
    memmove(run->watched + at + 1, run->watched + at, (run->n_watched - at) * sizeof step);
    run->watched[at] = step;
    run->n_watched++;
    return F8_OK;
}

static f8_status add_point(f8_report_run *run, f8_report_series *s, const f8_report_point *p,
                           f8_diag *diag)
{
    F8_TRY(f8_report_grow(&s->point, &s->room, s->n, sizeof *p, diag));
    s->point[s->n++] = *p;
    return add_watched(run, p->step, diag);
}

f8_status f8_report_take_stats(void *user, const f8_run_line *line, f8_diag *diag)
{
    f8_report_run *run = user;
    const json_t *record = line->record;
    const char *event = json_string_value(json_object_get(record, "event"));
    const json_t *step = json_object_get(record, "step");
    f8_report_point p = {.step = json_integer_value(step)};
    label l;
    char what[120];
    if (!event || !json_is_integer(step) || p.step < 1)
        return f8_run_bad_line(line, "is no record of a step", diag);
    if (strcmp(event, "stats"))
        return F8_OK;
    if (!read_label(record, &l))
        return f8_run_bad_line(line, "does not say what tensor it is of", diag);
    for (int i = 0; i < F8_FIGURES; i++)
        if (!f8_report_number(record, f8_figures[i].name, &p.figure[i])) {
            snprintf(what, sizeof what, "has a '%s' that is no number", f8_figures[i].name);
            return f8_run_bad_line(line, what, diag);
        }
    const size_t guess = run->last_series + 1;
    f8_report_series *s = find(run, &l, guess);
    if (!s)
        F8_TRY(add_series(run, &l, &s, diag));
    run->last_series = (size_t)(s - run->series);
    if (s->n && s->point[s->n - 1].step >= p.step) {
        snprintf(what, sizeof what, "is of step %" PRId64 ", and an earlier one of step %" PRId64,
                 p.step, s->point[s->n - 1].step);
        return f8_run_bad_line(line, what, diag);
    }
    s->elements = json_integer_value(json_object_get(record, "elements"));
    if (!set_text(&s->quantized, l.quantized) || !set_text(&s->format, l.format) ||
        !set_text(&s->granularity, l.granularity))
        return f8_report_no_memory(diag);
    return add_point(run, s, &p, diag);
}

void f8_report_free_series(f8_report_run *run)
{
    for (size_t i = 0; i < run->n_series; i++) {
        f8_report_series *s = &run->series[i];
        char *const texts[] = {s->tensor,    s->linear, s->operand,
                               s->quantized, s->format, s->granularity};
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
            free(texts[k]);
        free(s->point);
    }
    free(run->series);
    free(run->watched);
}
