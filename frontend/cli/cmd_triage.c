/* fp8c triage: says why a step of a training run went wrong. Here are its order and its outcome. */
#include "frontend/cli/cmd_triage.h"

#include <inttypes.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdlib.h>
#include <string.h>

#include "frontend/api.h"
#include "frontend/cli/cmd_train.h"

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
                                cli_json_number(r->largest), "usual", cli_json_number(r->usual),
                                "rank", r->rank < 0 ? NULL : json_integer(r->rank))
                    : json_null();
}

static void record(cli_triage *t)
{
    const f8_triage *f = &t->found;
    const f8_triage_verdict *v = &t->verdict;
    json_t *trials = json_array();
    for (size_t i = 0; i < f->n_trials; i++)
        json_array_append_new(trials, json_pack("{ss sb so}", "with", f->trial[i].what, "bad",
                                                (int)f->trial[i].bad, "loss",
                                                cli_json_number(f->trial[i].loss)));
    cli_json_record(
        &t->json,
        json_pack("{ss ss ss sI sI ss sI sI sI ss? so sI so so so ss ss so? so}", "event", "triage",
                  "run", t->folder.path, "class", f8_triage_class_name[v->class], "step",
                  (json_int_t)v->step, "bad_step", (json_int_t)f->step, "why", f->why, "checkpoint",
                  (json_int_t)f->checkpoint, "passed_over", (json_int_t)f->passed_over, "differs",
                  (json_int_t)f->differs, "differs_in", f->differs ? f->differs_in : NULL, "value",
                  value_record(&v->value), "judged", (json_int_t)f->judged, "wrong",
                  value_record(&f->wrong), "nonfinite", value_record(&f->nonfinite), "trials",
                  trials, "text", v->text, "advice", v->advice, "rank",
                  v->rank < 0 ? NULL : json_integer(v->rank), "row", row_record(&f->row)));
}

static int investigate(cli_triage *t)
{
    t->found.recipe = t->c->recipe;
    if (!cli_triage_read(t))
        return CLI_FAILED;
    cli_triage_say(t, "%s: step %" PRId64 " is bad: %s", t->folder.path, t->found.step,
                   t->found.why);
    if (!cli_triage_device(t) || !cli_triage_trials(t))
        return CLI_FAILED;
    f8_triage_judge(&t->found, &t->verdict);
    cli_triage_say(t, "\nverdict: %s\n%s\n\nwhat to do: %s", f8_triage_class_name[t->verdict.class],
                   t->verdict.text, t->verdict.advice);
    record(t);
    return CLI_DONE;
}

static void end(cli_triage *t)
{
    for (int64_t s = 0; s < t->n_steps; s++)
        json_decref(t->step[s].fingerprint);
    free(t->step);
    f8_data_close(&t->data);
    cli_folder_close(&t->folder);
}

/* The module of the run, and this rank's part of a batch. */
static bool load_module(cli_triage *t, cli *c)
{
    fp8c_context *ctx;
    fp8c_module *module;
    if (!cli_load(c, &ctx, &module))
        return false;
    const bool ok = cli_folder_module(&t->folder, module) &&
                    (!c->ranks || cli_ranks_divide(c->ranks, c, module));
    t->found.eps = module->ir->optimizer.declared ? module->ir->optimizer.eps : 0;
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    return ok;
}

static int run_triage(cli_triage *t, cli *c, const char *folder)
{
    int code = CLI_FAILED;
    if (!cli_folder_look(&t->folder, c, folder))
        return code;
    c->steps = c->steps ? c->steps : CLI_STEPS;
    t->stats = c->stats;
    c->stats = c->stats_recipe = c->dump = NULL;
    if (load_module(t, c) && cli_data_open(&t->data, c) && cli_json_open(&t->json, c->json)) {
        code = investigate(t);
        if (!cli_json_close(&t->json))
            code = CLI_FAILED;
    }
    return code;
}

/* Makes malloc give large blocks back to the system as soon as they are freed. By default it may
 * keep them for later. Then what a compilation or the judging of one value needs for a moment would
 * be taken beside what the steps need. */
static void keep_no_blocks(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
#endif
}

int cmd_triage(const cli *given)
{
    cli own = *given;
    cli_ranks ranks;
    cli_triage t = {.c = &own};
    keep_no_blocks();
    own.file = NULL;
    own.resume = given->file;
    if (!cli_ranks_join(&ranks, &own))
        return cli_ranks_leave(&ranks, CLI_FAILED);
    const int code = run_triage(&t, &own, given->file);
    end(&t);
    return cli_ranks_leave(&ranks, code);
}
