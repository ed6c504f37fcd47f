/* A run by its folder. */
#include <stdlib.h>
#include <string.h>

#include "frontend/diagnose/report/parts.h"
#include "ir/base/file.h"

static f8_status take_record(void *user, const f8_run_line *line, f8_diag *diag)
{
    json_t *copy = json_deep_copy(line->record);
    return json_array_append_new(user, copy) ? f8_report_no_memory(diag) : F8_OK;
}

static f8_status take_profile(void *user, const f8_run_line *line, f8_diag *diag)
{
    const json_t *record = line->record, *queued = json_object_get(line->record, "queued");
    double seconds, runs;
    if (!json_is_string(json_object_get(record, "function")) ||
        !json_is_string(json_object_get(record, "name")) ||
        !json_is_string(json_object_get(record, "kind")) ||
        !f8_report_number(record, "seconds", &seconds) || !(seconds >= 0) ||
        !f8_report_number(record, "runs", &runs) || !(runs >= 0) ||
        (queued && !(json_number_value(queued) >= 0 && json_is_number(queued))))
        return f8_run_bad_line(line, "is no record of a profile", diag);
    return take_record(user, line, diag);
}

/* Reads a file of records into an array. `to` is NULL if there is no such file. */
static f8_status read_records(f8_report_run *r, const char *name, f8_run_take take, json_t **to,
                              f8_diag *diag)
{
    bool there;
    *to = json_array();
    if (!*to)
        return f8_report_no_memory(diag);
    const f8_status status = f8_run_lines(f8_run_path(&r->run, name), take, *to, &there, diag);
    if (!there) {
        json_decref(*to);
        *to = NULL;
    }
    return status;
}

static f8_status read_plan(f8_report_run *r, f8_diag *diag)
{
    F8_TRY(f8_run_json(&r->run, "plan.json", &r->plan, diag));
    if (!r->plan || (json_is_object(json_object_get(r->plan, "memory")) &&
                     json_is_array(json_object_get(r->plan, "tensors"))))
        return F8_OK;
    return f8_file_fail(diag, F8_ERR_INPUT, r->run.path, "it does not describe a plan");
}

static f8_status read_verdict(f8_report_run *r, f8_diag *diag)
{
    F8_TRY(f8_run_json(&r->run, "verdict.json", &r->verdict, diag));
    if (!r->verdict || (json_is_integer(json_object_get(r->verdict, "step")) &&
                        json_is_string(json_object_get(r->verdict, "class")) &&
                        json_is_string(json_object_get(r->verdict, "text"))))
        return F8_OK;
    return f8_file_fail(diag, F8_ERR_INPUT, r->run.path, "it is no verdict of triage");
}

f8_status f8_report_read_run(f8_report_run *r, const char *folder, f8_diag *diag)
{
    bool there;
    r->folder = strdup(folder);
    r->evals = json_array();
    r->warnings = json_array();
    r->health = json_array();
    if (!r->folder || !r->evals || !r->warnings || !r->health)
        return f8_report_no_memory(diag);
    r->used = f8_run_is_used(folder); /* before the last record: it may end in between */
    r->early = !f8_run_is_there(folder);
    F8_TRY(f8_run_look(&r->run, r->folder, diag));
    F8_TRY(f8_run_lines_but(f8_run_path(&r->run, "steps.jsonl"),
                            r->brief ? F8_RUN_SKIP_STATS : NULL, f8_report_take_step, r, &there,
                            diag));
    r->early = !r->n_steps;
    if (!there)
        return f8_file_fail(diag, F8_ERR_INPUT, r->folder, "the run has no steps.jsonl");
    if (!r->n_steps)
        return f8_file_fail(diag, F8_ERR_INPUT, r->folder,
                            "the run has no step yet: there is nothing to report");
    F8_TRY(read_verdict(r, diag));
    if (r->brief)
        return F8_OK;
    F8_TRY(read_records(r, "decisions.jsonl", take_record, &r->decisions, diag));
    F8_TRY(read_records(r, "profile.jsonl", take_profile, &r->profile, diag));
    F8_TRY(read_plan(r, diag));
    r->has_stats = r->n_series > 0;
    return F8_OK;
}

void f8_report_free_run(f8_report_run *run)
{
    json_t *const values[] = {run->evals, run->warnings, run->health, run->decisions,
                              run->plan,  run->profile,  run->verdict};
    f8_run_close(&run->run);
    f8_report_free_series(run);
    for (size_t k = 0; k < sizeof values / sizeof *values; k++)
        json_decref(values[k]);
    free(run->step);
    free(run->name);
    free(run->folder);
}
