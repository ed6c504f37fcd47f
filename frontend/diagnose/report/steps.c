/* The records of steps.jsonl: steps in their order, held-out losses, warnings, what
 * devices said of their health, statistics. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "frontend/diagnose/report/parts.h"

static f8_status take_step(f8_report_run *run, const f8_run_line *line, f8_diag *diag)
{
    const json_t *record = line->record;
    static const char *const rates[] = {"tokens_per_second", "rows_per_second"};
    const int64_t wanted = (int64_t)run->n_steps + 1;
    f8_report_step s = {.skipped = json_is_true(json_object_get(record, "skipped"))};
    if (json_integer_value(json_object_get(record, "step")) != wanted) {
        char what[60];
        snprintf(what, sizeof what, "is not of step %" PRId64, wanted);
        return f8_run_bad_line(line, what, diag);
    }
    run->rate_name = rates[json_object_get(record, rates[0]) == NULL];
    if (!f8_report_number(record, "loss", &s.loss) ||
        !f8_report_number(record, "grad_norm", &s.grad_norm) ||
        !f8_report_number(record, "lr", &s.lr) ||
        !f8_report_number(record, run->rate_name, &s.rate))
        return f8_run_bad_line(line, "has a figure that is no number", diag);
    F8_TRY(f8_report_grow(&run->step, &run->room, run->n_steps, sizeof s, diag));
    run->step[run->n_steps++] = s;
    return F8_OK;
}

f8_status f8_report_take_step(void *user, const f8_run_line *line, f8_diag *diag)
{
    f8_report_run *run = user;
    const json_t *record = line->record;
    const char *event = json_string_value(json_object_get(record, "event"));
    if (!event || !json_is_integer(json_object_get(record, "step")))
        return f8_run_bad_line(line, "is no record of a step", diag);
    if (!strcmp(event, "stats"))
        return run->brief ? F8_OK : f8_report_take_stats(user, line, diag);
    if (!strcmp(event, "step"))
        return take_step(run, line, diag);
    json_t *to = !strcmp(event, "eval")                                         ? run->evals
                 : !strcmp(event, "warning")                                    ? run->warnings
                 : !strcmp(event, "health") || !strcmp(event, "health_summary") ? run->health
                                                                                : NULL;
    if (to && json_array_append_new(to, json_deep_copy(record)))
        return f8_report_no_memory(diag);
    return F8_OK;
}
