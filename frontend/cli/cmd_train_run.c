/* One run of fp8c train, step by step: see cmd_train_run.h. */
#include "frontend/cli/cmd_train_run.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/cli/cmd_fingerprint.h"
#include "frontend/cli/cmd_profile.h"
#include "ir/base/clock.h"

enum { TAIL = 20, LINES = 10 };

/* What an optimizer step says of itself. NaN: the module's own `update` does not say it. */
typedef struct step_facts {
    double loss, grad_norm, lr;
    bool skipped;
} step_facts;

bool cli_train_find_functions(cli_train_run *r)
{
    static const char *const needed[] = {"micro_step", "update", "eval"};
    int *const index[] = {&r->step, &r->update, &r->eval};
    for (int i = 0; i < 3; i++) {
        *index[i] = fp8c_program_function(r->program, needed[i]);
        if (*index[i] < 0) {
            fprintf(stderr, "%s: error: the module has no '%s'%s\n", r->c->file, needed[i],
                    i == 1 ? ": it declares no optimizer" : "");
            return false;
        }
    }
    return true;
}

static void progress(const cli_train_run *r, int64_t step, const step_facts *f, double seconds)
{
    const int64_t n = step - r->begin;
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(r->program, &info);
    cli_train_progress(
        &(cli_train_now){.recipe = r->out->recipe,
                         .step = step,
                         .steps = r->c->steps,
                         .last = step == r->end,
                         .loss = f->loss,
                         .lr = f->lr,
                         .rate = (double)(n * r->accumulate * f8_data_items(r->data)) / seconds,
                         .items = f8_data_items_name(r->data),
                         .seconds_left = seconds / (double)n * (double)(r->end - step),
                         .bytes = info.peak_bytes});
}

/* A line that stays, of which a run prints about LINES. */
static void report_step(const cli_train_run *r, int64_t step, const step_facts *f)
{
    fprintf(stderr,
            "\r\033[K%s  step %" PRId64 "  loss %.4f  gradient norm %.4g  lr %.4g  skipped %" PRId64
            "\n",
            r->out->recipe, step, f->loss, f->grad_norm, f->lr, r->out->skipped);
}

/* The scalar of that name that `update` gave last. */
static double of_update(const cli_train_run *r, const char *name)
{
    const float *value = f8_data_buffer(r->program, r->update, FP8C_OUTPUT, name);
    return value ? (double)*value : NAN;
}

/* Ends the training: stderr says why already. */
static fp8c_status failed(cli_train_run *r)
{
    r->folder->failed = true;
    return FP8C_ERR_IO;
}

/* Counts runs of a function of the plan. */
static void count(cli_train_run *r, int function, int64_t runs)
{
    int i = 0;
    while (i < r->n_ran && r->ran[i].function != function)
        i++;
    if (i == CLI_TRAIN_RAN)
        return;
    r->n_ran = i < r->n_ran ? r->n_ran : i + 1;
    r->ran[i].function = function;
    r->ran[i].runs += runs;
}

/* Runs a function of step `step`, from 1. With a fingerprint in the run's folder if the options ask
 * for one. */
static fp8c_status run_form(cli_train_run *r, int function, int64_t step, int64_t micro_step)
{
    cli_fingerprint f = {0};
    if (!r->folder->path || !cli_fingerprint_wanted(r->c, step))
        return fp8c_program_run(r->program, function);
    if (function == r->update)
        cli_fingerprint_variables(&f, r->program);
    const fp8c_status status =
        fp8c_program_run_witnessed(r->program, function, 0, cli_fingerprint_add, &f);
    const char *name = fp8c_program_function_name(r->program, function);
    const bool kept =
        status == FP8C_OK &&
        cli_folder_record(r->folder, cli_fingerprint_record(&f, name, step, micro_step));
    cli_fingerprint_free(&f);
    return status == FP8C_OK && !kept ? FP8C_ERR_IO : status;
}

static fp8c_status run_function(cli_train_run *r, int function, int64_t step, int64_t micro_step)
{
    int form;
    fp8c_status status = fp8c_program_form(r->program, function, &form);
    if (status == FP8C_OK)
        status = run_form(r, function, step, micro_step);
    if (status == FP8C_OK)
        count(r, form, 1);
    if (status == FP8C_OK && function != r->update)
        r->out->fp8_planned = fp8c_program_fp8_gemms(r->program, form);
    return status;
}

/* One optimizer step: `accumulate` micro-steps each on a batch, then update. */
static fp8c_status train_step(cli_train_run *r, int64_t step, step_facts *f)
{
    f->loss = 0;
    for (int64_t a = 0; a < r->accumulate; a++) {
        const bool last = a + 1 == r->accumulate;
        const int function = last ? cli_stats_function(&r->watched, step + 1) : r->step;
        const float *value = f8_data_buffer(r->program, function, FP8C_OUTPUT, "loss");
        if (!cli_data_fill(r->data, r->program, function, r->out->seed,
                           (uint64_t)(step * r->accumulate + a)))
            return FP8C_ERR_IO;
        f8_peers_step(cli_peers_of(r->c), step + 1, a + 1);
        fp8c_info before = {.struct_size = sizeof before}, after = before;
        fp8c_program_info(r->program, &before);
        const fp8c_status status = run_function(r, function, step + 1, a + 1);
        if (status != FP8C_OK)
            return status;
        fp8c_program_info(r->program, &after);
        r->out->fp8_gemms = after.fp8_gemms_executed - before.fp8_gemms_executed;
        r->function = function;
        if (!cli_alarm_micro_step(&r->alarms, function, (double)*value))
            return failed(r);
        f->loss += (double)*value / (double)r->accumulate;
        if (!cli_stats_record(&r->watched, function, r->out->recipe, r->out->seed, step + 1,
                              r->json, r->folder))
            return failed(r);
    }
    const fp8c_status status = run_function(r, r->update, step + 1, 0);
    f->grad_norm = of_update(r, "grad_norm");
    f->lr = of_update(r, "lr");
    f->skipped = of_update(r, "skipped") == 1;
    return status;
}

/* The rate's name in records. */
static const char *rate_name(const cli_train_run *r)
{
    return r->data->by_rows ? "rows_per_second" : "tokens_per_second";
}

static void summary(cli_train_run *r)
{
    const cli_train_result *o = r->out;
    cli_json_record(
        r->json, json_pack("{ss ss ss ss? sI so so so sf sI sI sI sI sI sf sI sI sf sI sI}",
                           "event", "summary", "recipe", o->recipe, "target", o->target, "device",
                           *o->device.name ? o->device.name : NULL, "steps",
                           (json_int_t)r->c->steps, "final_loss", cli_json_number(o->final_loss),
                           "heldout_loss", cli_json_number(o->heldout_loss), "unigram_entropy",
                           cli_json_number(f8_data_unigram(r->data)), "compile_seconds",
                           o->info.compile_seconds, "peak_bytes", (json_int_t)o->info.peak_bytes,
                           "planned_peak_bytes", (json_int_t)o->info.planned_bytes, "arena_bytes",
                           (json_int_t)o->info.arena_bytes, "activation_bytes",
                           (json_int_t)o->peak.activation_bytes, "recomputed",
                           (json_int_t)o->remat.recomputed, "extra_seconds", o->remat.extra_seconds,
                           "fp8_gemms_planned", (json_int_t)o->fp8_planned, "fp8_gemms_executed",
                           (json_int_t)o->fp8_gemms, rate_name(r), o->items_per_second, "seed",
                           (json_int_t)o->seed, "skipped", (json_int_t)o->skipped));
}

static json_t *step_record(const cli_train_run *r, int64_t step, const step_facts *f, double rate)
{
    return json_pack("{ss ss sI sI so so so sb sf}", "event", "step", "recipe", r->out->recipe,
                     "seed", (json_int_t)r->out->seed, "step", (json_int_t)step, "loss",
                     cli_json_number(f->loss), "grad_norm", cli_json_number(f->grad_norm), "lr",
                     cli_json_number(f->lr), "skipped", (int)f->skipped, rate_name(r), rate);
}

/* The record of the run's folder has all bits, and after some steps a checksum. */
static void record_in_folder(cli_train_run *r, int64_t step, const step_facts *f, double rate)
{
    char loss[40], norm[40];
    const bool last = step == r->end || r->stops;
    if (!r->folder->path)
        return;
    json_t *record = step_record(r, step, f, rate);
    if (record)
        json_object_update_new(record, json_pack("{ss ss}", "loss_hex", cli_hex(f->loss, loss),
                                                 "grad_norm_hex", cli_hex(f->grad_norm, norm)));
    if (record && cli_folder_sums(r->folder, r->c, step, last))
        json_object_set_new(record, "checksum", cli_folder_checksum(r->folder, r->program));
    cli_folder_record(r->folder, record);
}

void cli_train_tell_health(cli_train_run *r, int64_t step, bool last)
{
    json_t *at = json_pack("{ss sI sI}", "recipe", r->out->recipe, "seed", (json_int_t)r->out->seed,
                           "step", (json_int_t)step);
    cli_health_tell(&r->health, r->json, r->folder, at, last);
}

/* false after a message on stderr. */
static bool report(cli_train_run *r, int64_t step, const step_facts *f, double seconds,
                   double items)
{
    cli_json_record(r->json, step_record(r, step, f, items / seconds));
    record_in_folder(r, step, f, items / seconds);
    cli_train_tell_health(r, step, false);
    const int64_t lines = r->c->steps < LINES ? r->c->steps : LINES;
    if (r->terminal && step * lines / r->c->steps != (step - 1) * lines / r->c->steps)
        report_step(r, step, f);
    return cli_alarm_report(&r->alarms, step, r->out->recipe, r->out->seed, f->loss, r->json,
                            r->folder, r->terminal);
}

/* The held-out loss after `step` steps, as a record and a line if --eval-every asks for it. */
static fp8c_status evaluate(cli_train_run *r, int64_t step)
{
    cli_train_result *o = r->out;
    int64_t batches = 0;
    const fp8c_status status =
        cli_data_held_out(r->data, r->program, r->eval, &o->heldout_loss, &batches);
    count(r, r->eval, batches);
    if (status != FP8C_OK || !r->c->eval_every || step % r->c->eval_every)
        return status;
    json_t *record = json_pack("{ss ss sI sI so sI}", "event", "eval", "recipe", o->recipe, "seed",
                               (json_int_t)o->seed, "step", (json_int_t)step, "loss",
                               cli_json_number(o->heldout_loss), "batches", (json_int_t)batches);
    cli_json_record(r->json, json_incref(record));
    if (step > r->begin) /* else the folder has it */
        cli_folder_record(r->folder, json_incref(record));
    json_decref(record);
    if (r->terminal)
        fprintf(stderr, "\r\033[K%s  step %" PRId64 "  held out %.4f\n", o->recipe, step,
                o->heldout_loss);
    return FP8C_OK;
}

int64_t cli_train_tail(const cli *c)
{
    return c->steps < 2 ? 1 : c->steps / 2 < TAIL ? c->steps / 2 : TAIL;
}

/* Judges a step (from 0). Its gradients are gone: where their norm is not finite, its micro-steps
 * are run once more, and leave no trace. false after a message on stderr. */
static bool judge(cli_train_run *r, int64_t step, const step_facts *f)
{
    cli_alarms *a = &r->alarms;
    bool found = !cli_alarm_wants_again(a, f->loss, f->grad_norm);
    for (int64_t k = 0; k < r->accumulate && !found; k++) {
        if (!cli_data_fill(r->data, r->program, r->step, r->out->seed,
                           (uint64_t)(step * r->accumulate + k)))
            return false;
        found = cli_alarm_again(a, r->step);
    }
    return cli_alarm_judge(a, step + 1, r->function, f->loss, f->grad_norm);
}

/* Takes the record of a step that was trained before the run went on. */
void cli_train_replay(void *run, const json_t *record)
{
    cli_train_run *r = run;
    const char *event = json_string_value(json_object_get(record, "event")),
               *hex = json_string_value(json_object_get(record, "loss_hex"));
    const double loss = hex ? strtod(hex, NULL) : NAN;
    cli_alarm_replay(&r->alarms, record);
    if (strcmp(event, "step"))
        return;
    if (json_integer_value(json_object_get(record, "step")) > r->c->steps - cli_train_tail(r->c))
        r->tail_sum += loss;
    r->out->skipped += json_is_true(json_object_get(record, "skipped"));
}

/* What is done after a step is finished: the held-out loss, a checkpoint. `seconds` becomes the
 * time that evaluating took. */
static fp8c_status after_step(cli_train_run *r, int64_t step, double *seconds)
{
    const double begin = f8_seconds_now();
    const cli *c = r->c;
    const bool evaluates = c->eval_every && step % c->eval_every == 0 && step < c->steps,
               saves = step < r->end && cli_folder_saves(r->folder, c, step, false);
    fp8c_status status = evaluates ? evaluate(r, step) : FP8C_OK;
    if (status == FP8C_OK && saves &&
        !cli_folder_save(r->folder, c, r->program, step, (uint64_t)(step * r->accumulate)))
        status = FP8C_ERR_IO;
    if (status == FP8C_OK && (evaluates || saves)) /* it took long */
        r->stops = cli_ranks_stop(c->ranks);
    *seconds = f8_seconds_now() - begin;
    return status;
}

/* If it fails, all ranks have the message. */
static fp8c_status check_ranks(const cli_train_run *r)
{
    const fp8c_status status = fp8c_program_check_ranks(r->program);
    r->c->ranks->common |= status == FP8C_ERR_IO;
    return status;
}

fp8c_status cli_train_steps(cli_train_run *r)
{
    const int64_t items = r->accumulate * f8_data_items(r->data);
    const int64_t tail = cli_train_tail(r->c);
    double last = 0, beside;
    cli_hold(r->c->save || r->folder->path
                 ? "interrupted: this step is finished and saved; once more ends at once"
                 : "interrupted: this step is finished; once more ends at once");
    r->stops = cli_ranks_stop(r->c->ranks);
    r->out->fp8_planned = fp8c_program_fp8_gemms(r->program, r->step);
    double start = f8_seconds_now(); /* evaluations move it on: a rate is that of training */
    for (int64_t step = r->begin; step < r->end; step++) {
        step_facts f;
        const double begin = f8_seconds_now();
        fp8c_status status = r->stops ? FP8C_ERR_CANCELLED : train_step(r, step, &f);
        if (status != FP8C_OK)
            return status;
        const double end = f8_seconds_now();
        if (!judge(r, step, &f))
            return failed(r);
        r->stops = cli_ranks_tell(r->c->ranks, &r->alarms.any); /* before what a last step does */
        const bool saves =
            step + 1 == r->end || r->stops || cli_folder_saves(r->folder, r->c, step + 1, false);
        if (cli_ranks_check(r->c, step + 1, saves))
            status = check_ranks(r);
        if (status != FP8C_OK)
            return status;
        r->out->done = step + 1;
        if (step >= r->c->steps - tail)
            r->tail_sum += f.loss;
        r->out->skipped += f.skipped;
        if (!report(r, step + 1, &f, end - begin, (double)items))
            return failed(r);
        if (r->alarms.stopped)
            return FP8C_ERR_CANCELLED;
        if (r->json->failed || r->folder->failed) /* nobody would read how this ends */
            return FP8C_ERR_IO;
        if (r->terminal && (end - last > 0.1 || step + 1 == r->end)) {
            progress(r, step + 1, &f, end - start);
            last = end;
        }
        status = after_step(r, step + 1, &beside);
        if (status != FP8C_OK)
            return status;
        start += beside;
    }
    if (r->end < r->c->steps)
        return FP8C_OK;
    r->out->final_loss = r->tail_sum / (double)tail;
    r->out->items_per_second =
        r->end > r->begin ? (double)(items * (r->end - r->begin)) / (f8_seconds_now() - start) : 0;
    const fp8c_status status = evaluate(r, r->c->steps);
    r->out->info.struct_size = sizeof r->out->info;
    fp8c_program_info(r->program, &r->out->info);
    if (status == FP8C_OK)
        summary(r);
    return status;
}

/* ---- after a run ---- */

static int64_t count_of(const cli_train_run *r, int function)
{
    int64_t runs = 0;
    for (int i = 0; i < r->n_ran; i++)
        runs += r->ran[i].function == function ? r->ran[i].runs : 0;
    return runs;
}

/* How often a function ran. Those that are not counted ran once. */
static double runs_of(const void *user, int function)
{
    const int64_t runs = count_of(user, function);
    return runs > 0 ? (double)runs : 1;
}

/* The time of each step of the plan: printed, and kept in the run's folder. false after a message
 * on stderr. */
bool cli_train_put_profile(const cli_train_run *r)
{
    if (r->c->profile && !cli_interrupted())
        cli_profile_print(cli_json_to_stdout(r->c) ? stderr : stdout, r->program, runs_of, r);
    if (!r->folder->path || !count_of(r, r->update))
        return true;
    char *text = cli_profile_text(r->program, runs_of, r);
    const bool ok = text && (!*text || cli_folder_put(r->folder, "profile.jsonl", text));
    free(text);
    return ok;
}
