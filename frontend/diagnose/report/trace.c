/* One optimizer step of each run as a trace that Perfetto and chrome://tracing show: the
 * micro-steps one after the other, then the update, with the mean times of the run's profile.
 *
 * Collectives that go on beside other steps have a track of their own. A mean is linear: the mean
 * time at which a collective starts is the sum of the mean times of the steps before it. */
#include <math.h>
#include <string.h>

#include "frontend/diagnose/report/parts.h"
#include "ir/base/file.h"

enum { MOST_MICRO_STEPS = 64 }; /* more look all alike */

typedef enum track { STEPS = 1, COLLECTIVES } track;

static const char *text_of(const json_t *record, const char *name)
{
    return json_string_value(json_object_get(record, name));
}

static bool is_of(const json_t *record, const char *function)
{
    return !strcmp(text_of(record, "function"), function);
}

/* How often a function ran, by the records of its steps; 0 if it has none. */
static double runs_of(const json_t *profile, const char *function)
{
    size_t i;
    json_t *record;
    json_array_foreach (profile, i, record)
        if (is_of(record, function))
            return json_number_value(json_object_get(record, "runs"));
    return 0;
}

/* A micro-step: also of the first steps and of watched ones, whose functions have other names. The
 * one that most steps run comes first. */
static const char *const micro_steps[] = {
    "micro_step",       "micro_step.stats",       "micro_step.dump",
    "micro_step.first", "micro_step.first.stats", "micro_step.first.dump"};
enum { MICRO_STEPS = sizeof micro_steps / sizeof *micro_steps };

/* How many micro-steps ran. *shown: the function to show; NULL if none ran. */
static double micro_steps_of(const json_t *profile, const char **shown)
{
    double all = 0;
    *shown = NULL;
    for (int i = 0; i < MICRO_STEPS; i++) {
        const double runs = runs_of(profile, micro_steps[i]);
        if (runs > 0 && !*shown)
            *shown = micro_steps[i];
        all += runs;
    }
    return all;
}

static json_t *event(const char *name, const char *category, double start, double seconds,
                     size_t pid, track on, json_t *args)
{
    return json_pack("{ss ss ss sf sf sI si so}", "name", name, "cat", category, "ph", "X", "ts",
                     1e6 * start, "dur", 1e6 * seconds, "pid", (json_int_t)pid, "tid", (int)on,
                     "args", args);
}

/* Whether the run went on while this collective did. *queued: from its start until the engine
 * turned to it. */
static bool goes_on(const json_t *record, double *queued)
{
    const json_t *seconds = json_object_get(record, "queued");
    *queued = json_number_value(seconds);
    return seconds != NULL;
}

/* Where the tracks of a run have got to. */
typedef struct clocks {
    double steps, collectives;
} clocks;

/* Collectives come one after another, whatever the rounding of means says. */
static bool add_step(json_t *events, const json_t *record, size_t pid, clocks *at)
{
    double queued;
    const bool aside = goes_on(record, &queued);
    const double seconds = json_number_value(json_object_get(record, "seconds")),
                 soonest = at->steps + queued;
    const double begin = aside && soonest < at->collectives ? at->collectives : soonest;
    json_t *args = json_pack("{sO? sO?}", "bytes_read", json_object_get(record, "bytes_read"),
                             "bytes_written", json_object_get(record, "bytes_written"));
    json_t *e = event(text_of(record, "name"), text_of(record, "kind"), begin, seconds, pid,
                      aside ? COLLECTIVES : STEPS, args);
    *(aside ? &at->collectives : &at->steps) = begin + seconds;
    return !json_array_append_new(events, e);
}

/* Adds a run of a function, which begins where the run before it ends. */
static bool add_function(json_t *events, const json_t *profile, const char *function, size_t pid,
                         clocks *at)
{
    size_t i;
    json_t *record;
    const double start = at->steps;
    bool ok = true;
    json_array_foreach (profile, i, record) {
        if (is_of(record, function))
            ok = ok && add_step(events, record, pid, at);
    }
    return ok &&
           !json_array_append_new(events, event(function, "function", start, at->steps - start, pid,
                                                STEPS, json_object()));
}

static bool add_name(json_t *events, const char *what, size_t pid, track of, const char *name)
{
    return !json_array_append_new(events,
                                  json_pack("{ss ss sI si s{ss}}", "name", what, "ph", "M", "pid",
                                            (json_int_t)pid, "tid", (int)of, "args", "name", name));
}

/* Names the tracks of a run that has more than one. */
static bool add_tracks(json_t *events, const json_t *profile, size_t pid)
{
    size_t i;
    json_t *record;
    double queued;
    json_array_foreach (profile, i, record)
        if (goes_on(record, &queued))
            return add_name(events, "thread_name", pid, STEPS, "steps") &&
                   add_name(events, "thread_name", pid, COLLECTIVES, "collectives");
    return true;
}

static bool add_run(json_t *events, const f8_report_run *r, size_t pid)
{
    const char *shown;
    const double updates = runs_of(r->profile, "update"),
                 micro = micro_steps_of(r->profile, &shown);
    const double each = updates > 0 ? floor(micro / updates + 0.5) : 1;
    const int n = each > MOST_MICRO_STEPS ? MOST_MICRO_STEPS : each > 1 ? (int)each : 1;
    clocks at = {0};
    bool ok = add_name(events, "process_name", pid, STEPS, r->name) &&
              add_tracks(events, r->profile, pid);
    for (int i = 0; i < n && ok; i++)
        ok = add_function(events, r->profile, shown, pid, &at);
    return ok && add_function(events, r->profile, "update", pid, &at);
}

f8_status f8_report_trace(const f8_report *r, json_t **trace, f8_diag *diag)
{
    const char *shown;
    *trace = NULL;
    for (size_t i = 0; i < r->n; i++)
        if (!r->run[i].profile || !micro_steps_of(r->run[i].profile, &shown))
            return f8_file_fail(diag, F8_ERR_INPUT, r->run[i].run.folder,
                                "the run has no profile.jsonl: a training writes it at its end, "
                                "on a GPU with --profile");
    json_t *events = json_array();
    bool ok = events != NULL;
    for (size_t i = 0; i < r->n && ok; i++)
        ok = add_run(events, &r->run[i], i + 1);
    *trace = ok ? json_pack("{sO ss}", "traceEvents", events, "displayTimeUnit", "ms") : NULL;
    json_decref(events);
    return *trace ? F8_OK : f8_report_no_memory(diag);
}
