/* Reading folders of runs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "frontend/diagnose/report/parts.h"
#include "ir/base/file.h"

enum { MOST = 1 << 28 }; /* bytes of plan.json */

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

/* Reads a file of records into an array. `to` stays NULL if there is no such file. */
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
    struct stat s;
    f8_file_bytes file;
    json_error_t error;
    const char *path = f8_run_path(&r->run, "plan.json");
    if (stat(path, &s) && errno == ENOENT)
        return F8_OK;
    F8_TRY(f8_file_read(path, MOST, NULL, &file, diag));
    r->plan = json_loadb((const char *)file.bytes, file.size, JSON_REJECT_DUPLICATES, &error);
    f8_file_release(&file);
    if (!r->plan)
        return f8_file_fail(diag, F8_ERR_INPUT, path, "it is not JSON: line %d: %s", error.line,
                            error.text);
    if (json_is_object(json_object_get(r->plan, "memory")) &&
        json_is_array(json_object_get(r->plan, "tensors")))
        return F8_OK;
    return f8_file_fail(diag, F8_ERR_INPUT, path, "it does not describe a plan");
}

static f8_status read_run(f8_report_run *r, const char *folder, f8_diag *diag)
{
    bool there;
    r->evals = json_array();
    r->warnings = json_array();
    r->health = json_array();
    if (!r->evals || !r->warnings || !r->health)
        return f8_report_no_memory(diag);
    F8_TRY(f8_run_look(&r->run, folder, diag));
    F8_TRY(f8_run_lines(f8_run_path(&r->run, "steps.jsonl"), f8_report_take_step, r, &there, diag));
    if (!there)
        return f8_file_fail(diag, F8_ERR_INPUT, folder, "the run has no steps.jsonl");
    if (!r->n_steps)
        return f8_file_fail(diag, F8_ERR_INPUT, folder,
                            "the run has no step yet: there is nothing to report");
    F8_TRY(read_records(r, "decisions.jsonl", take_record, &r->decisions, diag));
    F8_TRY(read_records(r, "profile.jsonl", take_profile, &r->profile, diag));
    F8_TRY(read_plan(r, diag));
    r->has_stats = r->n_series > 0;
    return F8_OK;
}

/* The last part of a path, of *n bytes. */
static const char *last_part(const char *path, size_t *n)
{
    size_t end = strlen(path), from;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (from = end; from && path[from - 1] != '/';)
        from--;
    *n = end - from;
    return path + from;
}

/* A run has the name of its folder, or its path where another folder has the same name. */
static f8_status name_run(f8_report_run *r, const char *const *folders, size_t n, size_t at,
                          f8_diag *diag)
{
    size_t length, other;
    const char *name = last_part(folders[at], &length);
    bool alone = true;
    for (size_t i = 0; i < n; i++) {
        const char *last = last_part(folders[i], &other);
        alone &= i == at || other != length || memcmp(last, name, length) != 0;
    }
    r->name = alone ? strndup(name, length) : strdup(folders[at]);
    return r->name ? F8_OK : f8_report_no_memory(diag);
}

f8_status f8_report_read(f8_report *r, const char *const *folders, size_t n, f8_diag *diag)
{
    *r = (f8_report){.run = calloc(n, sizeof *r->run)};
    if (!r->run)
        return f8_report_no_memory(diag);
    for (; r->n < n; r->n++)
        r->run[r->n].run = F8_RUN_CLOSED;
    for (size_t i = 0; i < n; i++) {
        F8_TRY(name_run(&r->run[i], folders, n, i, diag));
        F8_TRY(read_run(&r->run[i], folders[i], diag));
    }
    return F8_OK;
}

void f8_report_free(f8_report *r)
{
    for (size_t i = 0; i < r->n; i++) {
        f8_report_run *run = &r->run[i];
        json_t *const values[] = {run->evals,     run->warnings, run->health,
                                  run->decisions, run->plan,     run->profile};
        f8_run_close(&run->run);
        f8_report_free_series(run);
        for (size_t k = 0; k < sizeof values / sizeof *values; k++)
            json_decref(values[k]);
        free(run->step);
        free(run->name);
    }
    free(r->run);
    *r = (f8_report){0};
}
