/* Sets of measurements as records of JSON Lines: see measure.h. A field is a row of a table, by
 * which it is written here and read in read.c. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/measure/fields.h"
#include "frontend/records/records.h"
#include "ir/base/format.h"
#include "ir/base/text.h"

/* ---- fields ---- */

#define ABOUT(kind, member) {#member, F8_FIELD_##kind, offsetof(f8_measure_about, member), false}
const f8_field f8_about_fields[] = {
    ABOUT(TEXT, command),   ABOUT(TEXT, version), ABOUT(TEXT, commit),     ABOUT(TEXT, device),
    ABOUT(TEXT, processor), ABOUT(TEXT, target),  ABOUT(TEXT, libraries),  ABOUT(TEXT, driver),
    ABOUT(TEXT, governor),  ABOUT(TEXT, system),  ABOUT(INTEGER, threads), ABOUT(TEXT, inputs),
    ABOUT(TEXT, program),   {.name = NULL}};

#define PROCESS(kind, member, needed)                                                              \
    {#member, F8_FIELD_##kind, offsetof(f8_measure_process, member), needed}
const f8_field f8_process_fields[] = {PROCESS(TEXT, id, true),
                                      PROCESS(TEXT, date, false),
                                      PROCESS(MAYBE, load, false),
                                      PROCESS(INTEGER, cpus, false),
                                      {.name = NULL}};
#define LIMIT(member) {#member, F8_FIELD_AMOUNT, offsetof(f8_measure_limits, member), false}
static const f8_field limit_fields[] = {
    LIMIT(flops_f32), LIMIT(flops_bf16), LIMIT(flops_fp8), LIMIT(bytes), {.name = NULL}};
#define CLOCK(member) {#member, F8_FIELD_AMOUNT, offsetof(f8_measure_clocks, member), false}
static const f8_field clock_fields[] = {
    CLOCK(sm_mhz), CLOCK(memory_mhz), CLOCK(watts), CLOCK(celsius), {.name = NULL}};
const f8_field_part f8_process_parts[F8_FIELD_PARTS] = {
    {"before", limit_fields, offsetof(f8_measure_process, before)},
    {"after", limit_fields, offsetof(f8_measure_process, after)},
    {"begin", clock_fields, offsetof(f8_measure_process, begin)},
    {"end", clock_fields, offsetof(f8_measure_process, end)}};

#define OF(kind, name, member, needed)                                                             \
    {name, F8_FIELD_##kind, offsetof(f8_measurement, member), needed}
#define PROBLEM(kind, member, needed)                                                              \
    {#member, F8_FIELD_##kind, offsetof(f8_measurement, problem.member), needed}
const f8_field f8_problem_fields[] = {OF(TEXT, "problem", problem.text, true),
                                      PROBLEM(TEXT, name, false),
                                      PROBLEM(INTEGER, m, false),
                                      PROBLEM(INTEGER, n, false),
                                      PROBLEM(INTEGER, k, false),
                                      PROBLEM(INTEGER, count, false),
                                      PROBLEM(TEXT, a, false),
                                      PROBLEM(TEXT, b, false),
                                      PROBLEM(TEXT, scaling, false),
                                      PROBLEM(TEXT, role, false),
                                      PROBLEM(TEXT, epilogue, false),
                                      PROBLEM(TEXT, layout, false),
                                      PROBLEM(AMOUNT, flops, true),
                                      PROBLEM(AMOUNT, bytes, true),
                                      {.name = NULL}};
#define WAY(kind, member, needed)                                                                  \
    {#member, F8_FIELD_##kind, offsetof(f8_measurement, member), needed}
const f8_field f8_way_fields[] = {WAY(TEXT, cache, true),
                                  WAY(TEXT, candidate, true),
                                  WAY(TEXT, operands, false),
                                  WAY(KIND, kind, true),
                                  WAY(STATE, state, true),
                                  WAY(TEXT, reason, false),
                                  WAY(TEXT, unit, false),
                                  WAY(FLAG, chosen, false),
                                  WAY(ANSWER, same_bits, false),
                                  WAY(MAYBE, error, false),
                                  WAY(MAYBE, compile_seconds, false),
                                  {.name = NULL}};
static const f8_field figure_fields[] = {WAY(COUNT, runs, false),
                                         WAY(FIGURE, median, false),
                                         OF(FIGURE, "quartile_1", quartile[0], false),
                                         OF(FIGURE, "quartile_3", quartile[1], false),
                                         WAY(FIGURE, least, false),
                                         WAY(FIGURE, rate, false),
                                         WAY(FIGURE, limit, false),
                                         WAY(FIGURE, share, false),
                                         {.name = NULL}};

const char *const f8_measure_kinds[] = {[F8_MEASURE_MODEL] = "model",
                                        [F8_MEASURE_CANDIDATE] = "candidate",
                                        [F8_MEASURE_PEER] = "peer",
                                        NULL};
const char *const f8_measure_states[] = {[F8_MEASURE_TIMED] = "timed",
                                         [F8_MEASURE_LACKING] = "lacking",
                                         [F8_MEASURE_LATE] = "out of time",
                                         NULL};

/* ---- writing ---- */

/* An error without bound is known, and null would say that it is not. */
static json_t *maybe(double x)
{
    return f8_json_number(isinf(x) ? DBL_MAX : x);
}

static json_t *answer(f8_measure_answer x)
{
    return x == F8_MEASURE_UNKNOWN ? json_null() : json_boolean(x == F8_MEASURE_YES);
}

/* A text; a command line or a name of the system's need not be UTF-8, which JSON is. */
static json_t *text_of(const char *text)
{
    json_t *value = json_string(text ? text : "");
    char *plain = value || !text ? NULL : strdup(text);
    if (plain) {
        f8_text_make_plain(plain);
        value = json_string(plain);
    }
    free(plain);
    return value;
}

static json_t *value_of(const f8_field *f, const void *at)
{
    switch (f->kind) {
    case F8_FIELD_TEXT: return text_of(*(const char *const *)at);
    case F8_FIELD_INTEGER: return json_integer((json_int_t) * (const int64_t *)at);
    case F8_FIELD_MAYBE: return maybe(*(const double *)at);
    case F8_FIELD_AMOUNT:
    case F8_FIELD_FIGURE: return f8_json_number(*(const double *)at);
    case F8_FIELD_FLAG: return json_boolean(*(const bool *)at);
    case F8_FIELD_KIND: return json_string(f8_measure_kinds[*(const f8_measure_kind *)at]);
    case F8_FIELD_STATE: return json_string(f8_measure_states[*(const f8_measure_state *)at]);
    case F8_FIELD_ANSWER: return answer(*(const f8_measure_answer *)at);
    case F8_FIELD_COUNT: return json_integer((json_int_t) * (const size_t *)at);
    }
    return NULL;
}

/* Write fields into an object. False: no memory. */
static bool put(json_t *to, const f8_field *fields, const void *from)
{
    bool ok = to != NULL;
    for (const f8_field *f = fields; ok && f->name; f++)
        ok = !json_object_set_new(to, f->name, value_of(f, (const char *)from + f->offset));
    return ok;
}

/* The object if it is whole; else it goes. */
static json_t *whole(json_t *object, bool ok)
{
    if (ok)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *about_record(const f8_measure_set *set)
{
    json_t *to = json_pack("{ss si}", "event", "benchmark", "schema", F8_MEASURE_SCHEMA);
    return whole(to, put(to, f8_about_fields, &set->about));
}

static json_t *process_record(const f8_measure_process *p)
{
    json_t *to = json_pack("{ss}", "event", "process");
    bool ok = put(to, f8_process_fields, p);
    for (int i = 0; ok && i < F8_FIELD_PARTS; i++) {
        json_t *part = json_object();
        ok = put(part, f8_process_parts[i].fields, (const char *)p + f8_process_parts[i].offset);
        ok = !json_object_set_new(to, f8_process_parts[i].name, whole(part, ok));
    }
    return whole(to, ok);
}

static json_t *runs_of(const f8_measurement *m)
{
    json_t *all = json_array();
    bool ok = all != NULL;
    for (size_t i = 0; ok && i < m->n_processes; i++) {
        const f8_measure_runs *r = &m->process[i];
        json_t *seconds = json_array();
        ok = seconds != NULL;
        for (size_t j = 0; ok && j < r->n; j++)
            ok = !json_array_append_new(seconds, f8_json_number(r->seconds[j]));
        json_t *runs =
            json_pack("{so so}", "process", text_of(r->process), "seconds", whole(seconds, ok));
        ok = !json_array_append_new(all, runs);
    }
    return whole(all, ok);
}

static json_t *timing_record(const f8_measure_set *set, const f8_measurement *m, f8_arena *arena)
{
    const f8_measure_problem *p = &m->problem;
    json_t *to = json_pack("{ss}", "event", "timing");
    const char *command = f8_measure_command(set, m, arena);
    bool ok = command && put(to, f8_problem_fields, m);
    ok = ok && !json_object_set_new(to, "intensity", f8_json_number(p->flops / p->bytes));
    ok = ok && put(to, f8_way_fields, m) && put(to, figure_fields, m);
    ok = ok && !json_object_set_new(to, "processes", runs_of(m));
    ok = ok && !json_object_set_new(to, "command", text_of(command));
    return whole(to, ok);
}

json_t *f8_measure_records(const f8_measure_set *set)
{
    json_t *all = json_array();
    bool ok = all && !json_array_append_new(all, about_record(set));
    f8_arena arena;
    f8_arena_init(&arena, &set->arena.allocator);
    for (size_t i = 0; ok && i < set->n_processes; i++)
        ok = !json_array_append_new(all, process_record(&set->process[i]));
    for (size_t i = 0; ok && i < set->n_measurements; i++)
        ok = !json_array_append_new(all, timing_record(set, &set->measurement[i], &arena));
    f8_arena_end(&arena);
    return whole(all, ok);
}

/* ---- parts, as the tuning database keeps them ---- */

static char *text_and_end(json_t *object)
{
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(object);
    return text;
}

char *f8_measure_process_text(const f8_measure_process *p)
{
    return text_and_end(process_record(p));
}

char *f8_measure_way_text(const f8_measurement *m)
{
    json_t *to = json_object();
    return text_and_end(whole(to, put(to, f8_way_fields, m)));
}
