/* A search for the reason why a step went wrong: its order, and its outcome. See search.h. */
#include "frontend/diagnose/triage/search.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/api.h"
#include "frontend/records/records.h"
#include "ir/base/file.h"

/* ---- the outcome ---- */

static json_t *value_record(const f8_triage_value *v)
{
    return v->known ? json_pack("{ss ss ss ss}", "function", v->function, "kind", v->kind, "op",
                                v->op, "value", v->value)
                    : json_null();
}

static json_t *row_record(const f8_triage_row *r)
{
    return r->known ? json_pack("{ss ss sI sI so so so?}", "input", r->input, "file", r->file,
                                "row", (json_int_t)r->row, "place", (json_int_t)r->place, "largest",
                                f8_json_number(r->largest), "usual", f8_json_number(r->usual),
                                "rank", r->rank < 0 ? NULL : json_integer(r->rank))
                    : json_null();
}

json_t *f8_triage_record(const f8_triage_search *t)
{
    const f8_triage *f = &t->found;
    const f8_triage_verdict *v = &t->verdict;
    json_t *trials = json_array();
    for (size_t i = 0; i < f->n_trials; i++)
        json_array_append_new(trials, json_pack("{ss sb so}", "with", f->trial[i].what, "bad",
                                                (int)f->trial[i].bad, "loss",
                                                f8_json_number(f->trial[i].loss)));
    return json_pack(
        "{ss ss ss sI sI ss sI sI sI ss? so sI so so so ss ss so? so}", "event", "triage", "run",
        t->folder.path, "class", f8_triage_class_name[v->class], "step", (json_int_t)v->step,
        "bad_step", (json_int_t)f->step, "why", f->why, "checkpoint", (json_int_t)f->checkpoint,
        "passed_over", (json_int_t)f->passed_over, "differs", (json_int_t)f->differs, "differs_in",
        f->differs ? f->differs_in : NULL, "value", value_record(&v->value), "judged",
        (json_int_t)f->judged, "wrong", value_record(&f->wrong), "nonfinite",
        value_record(&f->nonfinite), "trials", trials, "text", v->text, "advice", v->advice, "rank",
        v->rank < 0 ? NULL : json_integer(v->rank), "row", row_record(&f->row));
}

/* The run keeps the verdict, for the report. Who may not write there still gets it. */
static void keep(f8_triage_search *t)
{
    f8_diag diag = {0};
    const char *path = f8_run_path(&t->folder.run, "verdict.json");
    json_t *record = f8_triage_record(t);
    char *text = record ? json_dumps(record, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    if (!text || f8_file_write(t->t->list, path, text, strlen(text), false, &diag) != F8_OK)
        f8_triage_say(t, "the run's folder does not keep the verdict: %s",
                      text ? diag.text : "out of memory");
    json_decref(record);
    free(text);
}

/* ---- its order ---- */

bool f8_triage_open(f8_triage_search *t, const char *folder)
{
    f8_train_options *o = t->t->options;
    if (!f8_folder_look(&t->folder, t->t, folder))
        return false;
    o->steps = o->steps ? o->steps : F8_DEFAULT_STEPS;
    t->stats = o->stats;
    o->stats = o->stats_recipe = o->dump = NULL;
    return true;
}

bool f8_triage_module(f8_triage_search *t, const fp8c_module *module)
{
    t->found.eps = module->ir->optimizer.declared ? module->ir->optimizer.eps : 0;
    return f8_folder_module(&t->folder, module);
}

bool f8_triage_run(f8_triage_search *t)
{
    t->found.recipe = t->t->options->recipe;
    if (!f8_triage_read(t))
        return false;
    f8_triage_say(t, "%s: step %" PRId64 " is bad: %s", t->folder.path, t->found.step,
                  t->found.why);
    if (!f8_triage_device(t) || !f8_triage_trials(t))
        return false;
    f8_triage_judge(&t->found, &t->verdict);
    if (!f8_train_follows(t->t))
        keep(t);
    return true;
}

void f8_triage_close(f8_triage_search *t)
{
    for (int64_t s = 0; s < t->n_steps; s++)
        json_decref(t->step[s].fingerprint);
    free(t->step);
    f8_data_close(&t->data);
    f8_folder_close(&t->folder);
}
