/* Reads records of JSON Lines into a set: see measure.h. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "frontend/measure/fields.h"
#include "ir/base/file.h"
#include "ir/base/format.h"
#include "ir/base/text.h"

enum { MOST_BYTES = 1 << 30 };
#define MOST_SECONDS 1e9 /* of a run: 30 years are a mistake */

typedef struct reader {
    f8_measure_set *set;
    const char *line; /* the one that is read, of `length` bytes */
    size_t length;
    f8_loc loc;
    bool has_about;
    f8_diag *diag;
} reader;

/* The column at which a key of the object in this line begins, or 1. */
static uint32_t column_of(const reader *r, const char *key)
{
    char quoted[64];
    const int n = snprintf(quoted, sizeof quoted, "\"%s\"", key);
    const char *at = memmem(r->line, r->length, quoted, (size_t)n);
    return at ? (uint32_t)(at - r->line) + 1 : 1;
}

#define WRONG(r, key, ...)                                                                         \
    f8_fail((r)->diag, F8_ERR_INPUT, (f8_loc){(r)->loc.line, column_of(r, key)}, __VA_ARGS__)

static f8_status read_number(reader *r, const f8_field *f, const json_t *value, double most,
                             double *to)
{
    *to = json_number_value(value);
    if (json_is_number(value) && *to >= 0 && *to <= most)
        return F8_OK;
    char text[32];
    f8_format(text, sizeof text, "%g", *to);
    if (!json_is_number(value))
        return WRONG(r, f->name, "%s: a number is expected%s", f->name,
                     f->kind == F8_FIELD_MAYBE ? ", or null" : "");
    return WRONG(r, f->name, "%s: %s is not from 0 to %g", f->name, text, most);
}

static f8_status read_integer(reader *r, const f8_field *f, const json_t *value, int64_t *to)
{
    *to = (int64_t)json_integer_value(value);
    if (json_is_integer(value) && *to >= 0)
        return F8_OK;
    return WRONG(r, f->name, "%s: a whole number from 0 is expected", f->name);
}

/* Read text, of which others have chosen each character: it may be shown on a terminal. */
static f8_status read_text(reader *r, const f8_field *f, const json_t *value, const char **to)
{
    if (!json_is_string(value))
        return WRONG(r, f->name, "%s: a text is expected", f->name);
    char *own = f8_arena_strdup(&r->set->arena, json_string_value(value));
    if (!own)
        return f8_arena_status(&r->set->arena, r->diag);
    f8_text_make_plain(own);
    *to = own;
    return F8_OK;
}

/* Read one of a list of words as its index. */
static f8_status read_word(reader *r, const f8_field *f, const json_t *value,
                           const char *const *words, int *to)
{
    char known[64] = "";
    const char *text = json_string_value(value);
    for (*to = 0; words[*to]; ++*to) {
        if (text && !strcmp(text, words[*to]))
            return F8_OK;
        const size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", *to ? ", " : "", words[*to]);
    }
    return WRONG(r, f->name, "%s: '%s' is none of %s", f->name, text ? text : "", known);
}

static f8_status read_value(reader *r, const f8_field *f, const json_t *value, void *at)
{
    const bool none = json_is_null(value);
    int word = 0;
    switch (f->kind) {
    case F8_FIELD_TEXT: return read_text(r, f, value, at);
    case F8_FIELD_INTEGER: return read_integer(r, f, value, at);
    case F8_FIELD_MAYBE:
    case F8_FIELD_AMOUNT:
        return f->kind == F8_FIELD_MAYBE && none ? F8_OK : read_number(r, f, value, DBL_MAX, at);
    case F8_FIELD_KIND:
        F8_TRY(read_word(r, f, value, f8_measure_kinds, &word));
        *(f8_measure_kind *)at = (f8_measure_kind)word;
        return F8_OK;
    case F8_FIELD_STATE:
        F8_TRY(read_word(r, f, value, f8_measure_states, &word));
        *(f8_measure_state *)at = (f8_measure_state)word;
        return F8_OK;
    case F8_FIELD_FLAG:
    case F8_FIELD_ANSWER:
        if (!json_is_boolean(value) && !(none && f->kind == F8_FIELD_ANSWER))
            return WRONG(r, f->name, "%s: true or false is expected", f->name);
        if (f->kind == F8_FIELD_FLAG)
            *(bool *)at = json_is_true(value);
        else if (!none)
            *(f8_measure_answer *)at = json_is_true(value) ? F8_MEASURE_YES : F8_MEASURE_NO;
        return F8_OK;
    case F8_FIELD_FIGURE:
    case F8_FIELD_COUNT: break;
    }
    return F8_OK;
}

/* Read fields of an object. What it lacks stays as it is. */
static f8_status get(reader *r, const json_t *object, const f8_field *fields, void *to)
{
    for (const f8_field *f = fields; f->name; f++) {
        const json_t *value = json_object_get(object, f->name);
        if (!value && f->needed)
            return WRONG(r, "event", "%s is missing", f->name);
        if (value)
            F8_TRY(read_value(r, f, value, (char *)to + f->offset));
    }
    return F8_OK;
}

static f8_status read_about(reader *r, const json_t *record)
{
    const json_t *schema = json_object_get(record, "schema");
    const json_int_t is = json_integer_value(schema);
    if (!json_is_integer(schema) || is < 1)
        return WRONG(r, "schema", "schema: a whole number from 1 is expected");
    if (is > F8_MEASURE_SCHEMA)
        return WRONG(r, "schema",
                     "schema %" JSON_INTEGER_FORMAT
                     " is of a later version of fp8c; this one reads up to %d",
                     is, F8_MEASURE_SCHEMA);
    if (r->has_about)
        return WRONG(r, "event",
                     "a second record `benchmark`: a file holds what one call measured");
    r->has_about = true;
    return get(r, record, f8_about_fields, &r->set->about);
}

static f8_status read_process(reader *r, const json_t *record)
{
    f8_measure_process p = {.id = "", .date = "", .load = NAN};
    F8_TRY(get(r, record, f8_process_fields, &p));
    for (int i = 0; i < F8_FIELD_PARTS; i++) {
        const json_t *part = json_object_get(record, f8_process_parts[i].name);
        if (part && !json_is_object(part))
            return WRONG(r, f8_process_parts[i].name, "%s: an object is expected",
                         f8_process_parts[i].name);
        F8_TRY(get(r, part, f8_process_parts[i].fields, (char *)&p + f8_process_parts[i].offset));
    }
    if (f8_measure_find_process(r->set, p.id))
        return WRONG(r, "id", "process %s is there twice", p.id);
    return f8_measure_add_process(r->set, &p, r->diag);
}

/* Read the runs of a process, number `index` of a measurement. */
static f8_status read_runs(reader *r, const json_t *from, size_t index, f8_measure_runs *to)
{
    static const f8_field id = {"process", F8_FIELD_TEXT, 0, true};
    const json_t *process = json_object_get(from, "process");
    const json_t *seconds = json_object_get(from, "seconds");
    const size_t n = json_array_size(seconds);
    if (!process || !n)
        return WRONG(r, "processes", "processes: number %zu is not a process with its seconds",
                     index + 1);
    F8_TRY(read_text(r, &id, process, &to->process));
    if (!f8_measure_find_process(r->set, to->process))
        return WRONG(r, "processes", "processes: no record `process` before this one is of '%s'",
                     to->process);
    double *all = F8_NEW_ARRAY(&r->set->arena, double, n);
    if (!all)
        return f8_arena_status(&r->set->arena, r->diag);
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(seconds, i);
        all[i] = json_number_value(x);
        if (!json_is_number(x) || !(all[i] >= 0 && all[i] <= MOST_SECONDS))
            return WRONG(r, "seconds",
                         "seconds: run %zu of process %s is not a number from 0 to %g", i + 1,
                         to->process, MOST_SECONDS);
    }
    to->seconds = all;
    to->n = n;
    return F8_OK;
}

static f8_status read_timing(reader *r, const json_t *record)
{
    f8_measurement m = {
        .problem.count = 1, .same_bits = F8_MEASURE_UNKNOWN, .error = NAN, .compile_seconds = NAN};
    const json_t *runs = json_object_get(record, "processes");
    F8_TRY(get(r, record, f8_problem_fields, &m));
    F8_TRY(get(r, record, f8_way_fields, &m));
    if (!json_is_array(runs))
        return WRONG(r, "processes", "processes: a list is expected");
    m.n_processes = json_array_size(runs);
    if ((m.state == F8_MEASURE_TIMED) != (m.n_processes > 0))
        return WRONG(r, "state", "state: '%s', %s", f8_measure_states[m.state],
                     m.n_processes ? "but there are runs" : "but there is no run");
    if (f8_measure_find(r->set, m.problem.text, m.cache, m.candidate))
        return WRONG(r, "problem", "'%s' of %s with a %s cache is there twice", m.candidate,
                     m.problem.text, m.cache);
    m.process = F8_NEW_ARRAY(&r->set->arena, f8_measure_runs, m.n_processes);
    F8_TRY(f8_arena_status(&r->set->arena, r->diag));
    for (size_t i = 0; i < m.n_processes; i++)
        F8_TRY(read_runs(r, json_array_get(runs, i), i, &m.process[i]));
    return f8_measure_add(r->set, &m, r->diag);
}

static f8_status read_line(reader *r)
{
    json_error_t error;
    json_t *record = json_loadb(r->line, r->length, JSON_REJECT_DUPLICATES, &error);
    const char *event = json_string_value(json_object_get(record, "event"));
    f8_status status = F8_OK;
    if (!record)
        status = f8_fail(r->diag, F8_ERR_INPUT,
                         (f8_loc){r->loc.line, error.column > 0 ? (uint32_t)error.column : 1}, "%s",
                         error.text);
    else if (!event)
        status = WRONG(r, "event", "this line is no record: an object with a text `event`");
    else if (!strcmp(event, "benchmark"))
        status = read_about(r, record);
    else if (!strcmp(event, "process"))
        status = read_process(r, record);
    else if (!strcmp(event, "timing"))
        status = read_timing(r, record);
    json_decref(record);
    return status;
}

static f8_status read_lines(reader *r, const char *text, size_t size)
{
    for (const char *end = text + size; text < end; text = r->line + r->length + 1) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        r->line = text;
        r->length = (size_t)((stop ? stop : end) - text);
        r->loc.line++;
        size_t blank = 0;
        while (blank < r->length && strchr(" \t\r", text[blank]) && text[blank])
            blank++;
        if (blank < r->length)
            F8_TRY(read_line(r));
    }
    if (!r->has_about)
        return f8_fail(r->diag, F8_ERR_INPUT, F8_NOWHERE,
                       "there is no record `benchmark` in this file: `fp8c tune --gemm ... --json "
                       "FILE` writes what can be compared");
    if (!r->set->n_measurements)
        return f8_fail(r->diag, F8_ERR_INPUT, F8_NOWHERE,
                       "there is no record `timing` in this file: nothing was measured");
    return F8_OK;
}

static const char *const *about_text(const f8_measure_about *about, const f8_field *f)
{
    return (const char *const *)((const char *)about + f->offset);
}

f8_status f8_measure_read(f8_measure_set *set, const char *path, f8_diag *diag)
{
    f8_file_bytes file;
    f8_diag own = {0};
    reader r = {.set = set, .diag = diag ? diag : &own};
    F8_TRY(f8_file_read(path, MOST_BYTES, &set->arena.allocator, &file, diag));
    for (const f8_field *f = f8_about_fields; f->name; f++)
        if (f->kind == F8_FIELD_TEXT && !*about_text(&set->about, f))
            *(const char **)((char *)&set->about + f->offset) = "";
    f8_status status = read_lines(&r, (const char *)file.bytes, file.size);
    f8_file_release(&file);
    if (status == F8_OK)
        status = f8_measure_figures(set, r.diag);
    if (status != F8_OK)
        r.diag->file = path;
    return status;
}

/* ---- parts, as the tuning database keeps them ---- */

f8_status f8_measure_read_process(f8_measure_set *set, const char *text, f8_diag *diag)
{
    f8_diag own = {0};
    reader r = {.set = set,
                .line = text,
                .length = strlen(text),
                .loc = {1, 1},
                .diag = diag ? diag : &own};
    return read_line(&r);
}

f8_status f8_measure_read_way(f8_measure_set *set, const char *text, f8_measurement *m,
                              f8_diag *diag)
{
    f8_diag own = {0};
    json_error_t error;
    reader r = {.set = set,
                .line = text,
                .length = strlen(text),
                .loc = {1, 1},
                .diag = diag ? diag : &own};
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    const f8_status status = json_is_object(object) ? get(&r, object, f8_way_fields, m)
                                                    : f8_fail(r.diag, F8_ERR_INPUT, r.loc,
                                                              "facts of a way: %s", error.text);
    json_decref(object);
    return status;
}
