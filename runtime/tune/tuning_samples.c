/* The seconds of each run, from JSON and to it: see tuning_row.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/format.h"
#include "runtime/tune/tuning_row.h"

#define WRONG(why, ...) (f8_format(why, F8_TUNING_WHY, __VA_ARGS__), false)

/* ---- checking ---- */

static int by_process(const void *a, const void *b)
{
    const f8_tuning_runs *x = a, *y = b;
    return strcmp(x->process, y->process);
}

static bool check_runs(const f8_tuning_runs *r, char why[F8_TUNING_WHY])
{
    if (!r->process || !*r->process)
        return WRONG(why, "samples: a process has no id");
    if (r->at < 0 || !r->n)
        return WRONG(why, "samples of process '%.80s' have no %s", r->process,
                     r->n ? "time" : "seconds");
    for (size_t i = 0; i < r->n; i++)
        if (!isfinite(r->seconds[i]) || r->seconds[i] < 0)
            return WRONG(why, "samples of process '%.80s': run %zu has no number of seconds",
                         r->process, i + 1);
    return true;
}

bool f8_tuning_check_samples(f8_arena *arena, f8_tuning_row *row, char why[F8_TUNING_WHY])
{
    const size_t n = row->n_samples;
    for (size_t i = 0; i < n; i++)
        if (!check_runs(&row->samples[i], why))
            return false;
    f8_tuning_runs *sorted = n ? F8_NEW_ARRAY(arena, f8_tuning_runs, n) : NULL;
    if (!sorted)
        return true;
    memcpy(sorted, row->samples, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_process);
    row->samples = sorted;
    for (size_t i = 1; i < n; i++)
        if (!by_process(&sorted[i - 1], &sorted[i]))
            return WRONG(why, "samples: process '%.80s' is there twice", sorted[i].process);
    return true;
}

/* ---- reading ---- */

/* What is no number becomes NaN, which check_runs finds. */
static const double *read_seconds(const json_t *array, f8_arena *arena)
{
    double *to = F8_NEW_ARRAY(arena, double, json_array_size(array));
    for (size_t i = 0; to && i < json_array_size(array); i++) {
        const json_t *x = json_array_get(array, i);
        to[i] = json_is_number(x) ? json_number_value(x) : NAN;
    }
    return to;
}

bool f8_tuning_read_samples(const json_t *samples, f8_arena *arena, f8_tuning_row *row,
                            char why[F8_TUNING_WHY])
{
    const size_t n = json_array_size(samples);
    if (samples && !json_is_array(samples))
        return WRONG(why, "samples are no array");
    f8_tuning_runs *to = n ? F8_NEW_ARRAY(arena, f8_tuning_runs, n) : NULL;
    if (!to)
        return true;
    for (size_t i = 0; i < n; i++) {
        const json_t *from = json_array_get(samples, i), *at = json_object_get(from, "at"),
                     *seconds = json_object_get(from, "seconds");
        to[i] = (f8_tuning_runs){
            .process = f8_arena_strdup(arena, json_string_value(json_object_get(from, "process"))),
            .at = json_is_integer(at) ? json_integer_value(at) : -1,
            .n = json_array_size(seconds)};
        if (to[i].n)
            to[i].seconds = read_seconds(seconds, arena);
        if (arena->failed)
            return true;
    }
    row->samples = to;
    row->n_samples = n;
    return f8_tuning_check_samples(arena, row, why);
}

bool f8_tuning_read_facts(const json_t *facts, f8_arena *arena, f8_tuning_row *row,
                          char why[F8_TUNING_WHY])
{
    row->facts = "";
    if (!facts)
        return true;
    if (!json_is_object(facts))
        return WRONG(why, "facts are no JSON object");
    char *text = json_dumps(facts, JSON_COMPACT | JSON_PRESERVE_ORDER);
    if (!text)
        return WRONG(why, "facts: out of memory");
    row->facts = f8_arena_strdup(arena, text);
    free(text);
    return true;
}

/* NULL for "" without a failure. */
static bool parse(const char *text, const char *what, json_t **out, char why[F8_TUNING_WHY])
{
    json_error_t error;
    *out = *text ? json_loads(text, JSON_REJECT_DUPLICATES, &error) : NULL;
    return !*text || *out || WRONG(why, "%s: %s", what, error.text);
}

bool f8_tuning_parse_samples(const char *text, f8_arena *arena, f8_tuning_row *row,
                             char why[F8_TUNING_WHY])
{
    json_t *json;
    if (!parse(text, "samples", &json, why))
        return false;
    const bool ok = f8_tuning_read_samples(json, arena, row, why);
    json_decref(json);
    return ok;
}

bool f8_tuning_parse_facts(f8_arena *arena, f8_tuning_row *row, char why[F8_TUNING_WHY])
{
    json_t *json;
    if (!parse(row->facts ? row->facts : "", "facts", &json, why))
        return false;
    const bool ok = f8_tuning_read_facts(json, arena, row, why);
    json_decref(json);
    return ok;
}

/* ---- writing ---- */

static json_t *seconds_json(const f8_tuning_runs *r)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < r->n; i++)
        if (json_array_append_new(array, json_real(r->seconds[i]))) {
            json_decref(array);
            return NULL;
        }
    return array;
}

json_t *f8_tuning_samples_json(const f8_tuning_row *row)
{
    json_t *all = json_array();
    for (size_t i = 0; all && i < row->n_samples; i++) {
        const f8_tuning_runs *r = &row->samples[i];
        json_t *one = json_pack("{ss sI so}", "process", r->process, "at", (json_int_t)r->at,
                                "seconds", seconds_json(r));
        if (json_array_append_new(all, one)) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

const char *f8_tuning_samples_text(const f8_tuning_row *row, f8_arena *arena)
{
    if (!row->n_samples)
        return "";
    json_t *json = f8_tuning_samples_json(row);
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(json);
    const char *own = f8_arena_strdup(arena, text);
    free(text);
    return own;
}

/* ---- together ---- */

static f8_tuning_runs join_runs(const f8_tuning_runs *a, const f8_tuning_runs *b, bool add,
                                f8_arena *arena)
{
    if (!add)
        return b->n > a->n ? *b : *a;
    double *both = F8_NEW_ARRAY(arena, double, a->n + b->n);
    if (!both)
        return *a;
    memcpy(both, a->seconds, a->n * sizeof *both);
    memcpy(both + a->n, b->seconds, b->n * sizeof *both);
    return (f8_tuning_runs){a->process, b->at, both, a->n + b->n};
}

void f8_tuning_join(const f8_tuning_row *a, const f8_tuning_row *b, bool add, f8_arena *arena,
                    f8_tuning_row *out)
{
    const size_t most = a->n_samples + b->n_samples;
    f8_tuning_runs *to = most ? F8_NEW_ARRAY(arena, f8_tuning_runs, most) : NULL;
    size_t n = 0;
    for (size_t i = 0, j = 0; to && (i < a->n_samples || j < b->n_samples);) {
        const int order = i == a->n_samples   ? 1
                          : j == b->n_samples ? -1
                                              : by_process(&a->samples[i], &b->samples[j]);
        to[n++] = order < 0   ? a->samples[i]
                  : order > 0 ? b->samples[j]
                              : join_runs(&a->samples[i], &b->samples[j], add, arena);
        i += order <= 0;
        j += order >= 0;
    }
    out->samples = to;
    out->n_samples = n;
}

int64_t f8_tuning_count_runs(const f8_tuning_row *row)
{
    int64_t n = 0;
    for (size_t i = 0; i < row->n_samples; i++)
        n += (int64_t)row->samples[i].n;
    return n;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void f8_tuning_figures(f8_tuning_row *row, f8_arena *arena)
{
    const size_t n = (size_t)f8_tuning_count_runs(row);
    double *all = n ? F8_NEW_ARRAY(arena, double, n) : NULL, *to = all;
    if (!all)
        return;
    for (size_t i = 0; i < row->n_samples; to += row->samples[i++].n)
        memcpy(to, row->samples[i].seconds, row->samples[i].n * sizeof *all);
    qsort(all, n, sizeof *all, by_value);
    row->seconds = all[0];
    row->other = n % 2 ? all[n / 2] : (all[n / 2 - 1] + all[n / 2]) / 2;
    row->runs = (int64_t)n;
}
