/* A set in the T4 format of Kernel Tuner's results, schema 1.0.0: see measure.h.
 *
 * A result is a measurement. `times` are in milliseconds, as `metadata` says and as Kernel Tuner
 * writes them. `metadata` also has what the set says as a whole, and `measurements` all figures,
 * each with its unit. What is not known is left out. The schema wants two more words of a result:
 *
 *     invalidity     correct; correctness: its error is above its bound; constraints: this target,
 *                    machine or library can't; timeout: the time was up before it had a run
 *     correctness    1: it ran, and no error above its bound was found; else 0 */
#include <math.h>
#include <string.h>

#include "frontend/measure/columns.h"

/* jansson refuses a value that it had no memory for; so what failed is known at the end. */
typedef struct writer {
    const f8_measure_set *set;
    f8_arena arena;
    bool failed;
} writer;

static void set_key(writer *w, json_t *object, const char *key, json_t *value)
{
    w->failed |= json_object_set_new(object, key, value) != 0;
}

static void append(writer *w, json_t *array, json_t *value)
{
    w->failed |= json_array_append_new(array, value) != 0;
}

/* ---- values ---- */

/* Whether JSON has it: it has no number that is not finite. */
static bool is_known(const f8_measure_value *value)
{
    return f8_measure_is_known(value) && (value->text || isfinite(value->number));
}

static json_t *json_of(const f8_measure_value *value)
{
    if (value->text)
        return json_string(value->text);
    if (value->unit == F8_UNIT_COUNT)
        return json_integer((json_int_t)value->number);
    return json_real(value->number);
}

/* The columns of a part, by their names. */
static json_t *columns_of(writer *w, const f8_measure_row *row, int part)
{
    json_t *object = json_object();
    for (int i = 0; i < F8_COLUMNS; i++) {
        if (!(f8_columns[i].parts & part))
            continue;
        const f8_measure_value value = f8_measure_value_of(row, i);
        if (is_known(&value))
            set_key(w, object, f8_columns[i].name, json_of(&value));
    }
    return object;
}

/* ---- a result ---- */

/* [{"name", "value", "unit"}] */
static json_t *figures_of(writer *w, const f8_measure_row *row)
{
    json_t *all = json_array();
    for (int i = 0; i < F8_COLUMNS; i++) {
        if (!(f8_columns[i].parts & F8_COLUMN_FIGURE))
            continue;
        const f8_measure_value value = f8_measure_value_of(row, i);
        if (!is_known(&value))
            continue;
        json_t *figure = json_object();
        set_key(w, figure, "name", json_string(f8_columns[i].name));
        set_key(w, figure, "value", json_of(&value));
        set_key(w, figure, "unit", json_string(f8_measure_unit_text(value.unit)));
        append(w, all, figure);
    }
    return all;
}

/* null: JSON has no number of that size. */
static json_t *milliseconds(double seconds)
{
    const double x = 1000 * seconds;
    return isfinite(x) ? json_real(x) : json_null();
}

/* Every run, process by process. */
static json_t *runtimes_of(writer *w, const f8_measurement *m)
{
    json_t *all = json_array();
    for (size_t i = 0; i < m->n_processes; i++)
        for (size_t run = 0; run < m->process[i].n; run++)
            append(w, all, milliseconds(m->process[i].seconds[run]));
    return all;
}

static json_t *times_of(writer *w, const f8_measurement *m)
{
    json_t *times = json_object();
    if (isfinite(1000 * m->compile_seconds))
        set_key(w, times, "compilation_time", milliseconds(m->compile_seconds));
    set_key(w, times, "runtimes", runtimes_of(w, m));
    return times;
}

static const char *invalidity_of(const f8_measurement *m)
{
    switch (m->state) {
    case F8_MEASURE_LACKING: return "constraints";
    case F8_MEASURE_LATE: return "timeout";
    case F8_MEASURE_TIMED: break;
    }
    return m->error > 1 ? "correctness" : "correct";
}

static json_t *result_of(writer *w, const f8_measurement *m)
{
    const f8_measure_row row = f8_measure_row_of(w->set, m, &w->arena);
    const f8_measure_value begin = f8_measure_value_of(&row, F8_COLUMN_first_date);
    const char *invalidity = invalidity_of(m);
    json_t *result = json_object(), *objectives = json_array();
    append(w, objectives, json_string(f8_columns[F8_COLUMN_median].name));
    if (is_known(&begin))
        set_key(w, result, "timestamp", json_of(&begin));
    set_key(w, result, "configuration", columns_of(w, &row, F8_COLUMN_WAY));
    set_key(w, result, "times", times_of(w, m));
    set_key(w, result, "invalidity", json_string(invalidity));
    set_key(w, result, "correctness", json_integer(!strcmp(invalidity, "correct")));
    set_key(w, result, "measurements", figures_of(w, &row));
    set_key(w, result, "objectives", objectives);
    return result;
}

/* ---- the file ---- */

static json_t *file_of(writer *w)
{
    const f8_measure_row whole = f8_measure_row_of(w->set, NULL, &w->arena);
    json_t *file = json_object(), *metadata = columns_of(w, &whole, F8_COLUMN_WHERE);
    json_t *results = json_array();
    set_key(w, metadata, "timeunit", json_string("milliseconds"));
    set_key(w, file, "schema_version", json_string("1.0.0"));
    set_key(w, file, "metadata", metadata);
    for (size_t i = 0; i < w->set->n_measurements; i++)
        append(w, results, result_of(w, &w->set->measurement[i]));
    set_key(w, file, "results", results);
    return file;
}

char *f8_measure_t4(const f8_measure_set *set)
{
    writer w = {.set = set};
    f8_arena_init(&w.arena, &set->arena.allocator);
    json_t *file = file_of(&w);
    char *text = NULL;
    size_t n;
    FILE *to = w.failed ? NULL : open_memstream(&text, &n);
    const bool written = to && !json_dumpf(file, to, JSON_PRESERVE_ORDER) && fputc('\n', to) != EOF;
    json_decref(file);
    return f8_measure_ended(to, &text, written, &w.arena);
}
