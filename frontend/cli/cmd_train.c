/* fp8c train: trains a model on the data of files, under one or more recipes. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/cli/cmd_agree.h"
#include "frontend/cli/cmd_calibrate.h"
#include "frontend/cli/cmd_checkpoint.h"
#include "frontend/cli/cmd_fingerprint.h"
#include "frontend/cli/cmd_folder.h"
#include "frontend/cli/cmd_health.h"
#include "frontend/cli/cmd_profile.h"
#include "frontend/cli/cmd_train.h"
#include "frontend/cli/cmd_stats.h"
#include "ir/base/clock.h"

enum { TAIL = 20, LINES = 10, MOST_SEEDS = 1000 };

/* ---- one run ---- */

/* What an optimizer step says of itself. NaN: the module's own `update` does not say it. */
typedef struct step_facts {
    double loss, grad_norm, lr;
    bool skipped;
} step_facts;

typedef struct run {
    const cli *c;
    fp8c_context *ctx;
    fp8c_program *program;
    cli_data *data;
    cli_json *json;
    cli_folder *folder;
    int64_t begin, end; /* the steps [begin, end) are trained; others were, or are left */
    bool stops;         /* a signal came to any rank; all know it at the same place */
    double tail_sum;    /* of the losses of the last steps */
    int step, update, eval;
    int64_t accumulate;
    int64_t steps_run, micro_steps_run, evals_run; /* of all seeds */
    bool terminal;                                 /* stderr is one */
    cli_train_result *out;
    cli_loss_watch watch;
    cli_stats watched;
    cli_health health;
} run;

static bool find_functions(run *r)
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

static void progress(const run *r, int64_t step, const step_facts *f, double seconds)
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
                         .rate = (double)(n * r->accumulate * cli_data_items(r->data)) / seconds,
                         .items = cli_data_items_name(r->data),
                         .seconds_left = seconds / (double)n * (double)(r->end - step),
                         .bytes = info.peak_bytes});
}

/* A line that stays, of which a run prints about LINES. */
static void report_step(const run *r, int64_t step, const step_facts *f)
{
    fprintf(stderr,
            "\r\033[K%s  step %" PRId64 "  loss %.4f  gradient norm %.4g  lr %.4g  skipped %" PRId64
            "\n",
            r->out->recipe, step, f->loss, f->grad_norm, f->lr, r->out->skipped);
}

/* Says once a run that its loss explodes. The run goes on: it may recover. */
static void watch_loss(run *r, int64_t step, double loss)
{
    if (!cli_loss_explodes(&r->watch, loss))
        return;
    char what[80] = "is not finite";
    if (isfinite(loss))
        snprintf(what, sizeof what, "explodes: %.6g after a running median of %.6g", loss,
                 r->watch.least);
    fprintf(stderr, "%sfp8c: warning: %s, seed %" PRIu64 ", step %" PRId64 ": the loss %s\n",
            r->terminal ? "\r\033[K" : "", r->out->recipe, r->out->seed, step, what);
    json_t *record = json_pack("{ss ss sI sI so ss}", "event", "warning", "recipe", r->out->recipe,
                               "seed", (json_int_t)r->out->seed, "step", (json_int_t)step, "loss",
                               cli_json_number(loss), "message", what);
    cli_json_record(r->json, json_incref(record));
    cli_folder_record(r->folder, record);
}

/* The scalar of that name that `update` gave last. */
static double of_update(const run *r, const char *name)
{
    const float *value = cli_buffer(r->program, r->update, FP8C_OUTPUT, name);
    return value ? (double)*value : NAN;
}

/* Runs a function of step `step`, from 1. With a fingerprint in the run's folder if the options ask
 * for one. */
static fp8c_status run_function(run *r, int function, int64_t step, int64_t micro_step)
{
    cli_fingerprint f = {0};
    if (!r->folder->path || !cli_fingerprint_wanted(r->c, step))
        return fp8c_program_run(r->program, function);
    if (function == r->update)
        cli_fingerprint_variables(&f, r->program);
    const fp8c_status status =
        fp8c_program_run_witnessed(r->program, function, 0, cli_fingerprint_add, &f);
    const char *name = fp8c_program_function_name(r->program, function);
    const bool kept = status == FP8C_OK &&
                      cli_folder_record(r->folder, cli_fingerprint_record(&f, name, step, micro_step));
    cli_fingerprint_free(&f);
    return status == FP8C_OK && !kept ? FP8C_ERR_IO : status;
}

/* One optimizer step: `accumulate` micro-steps each on a batch, then update. */
static fp8c_status train_step(run *r, int64_t step, step_facts *f)
{
    f->loss = 0;
    for (int64_t a = 0; a < r->accumulate; a++) {
        const bool last = a + 1 == r->accumulate;
        const int function = last ? cli_stats_function(&r->watched, step + 1) : r->step;
        const float *value = cli_buffer(r->program, function, FP8C_OUTPUT, "loss");
        if (!cli_data_fill(r->data, r->program, function, r->out->seed,
                           (uint64_t)(step * r->accumulate + a)))
            return FP8C_ERR_IO;
        cli_guard_step(cli_guard_of(r->c), step + 1, a + 1);
        fp8c_info before = {.struct_size = sizeof before}, after = before;
        fp8c_program_info(r->program, &before);
        const fp8c_status status = run_function(r, function, step + 1, a + 1);
        if (status != FP8C_OK)
            return status;
        r->micro_steps_run += function == r->step;
        fp8c_program_info(r->program, &after);
        r->out->fp8_gemms = after.fp8_gemms_executed - before.fp8_gemms_executed;
        f->loss += (double)*value / (double)r->accumulate;
        if (!cli_stats_record(&r->watched, function, r->out->recipe, r->out->seed, step + 1,
                              r->json, r->folder)) {
            r->folder->failed = true;
            return FP8C_ERR_IO;
        }
    }
    const fp8c_status status = run_function(r, r->update, step + 1, 0);
    r->steps_run += status == FP8C_OK;
    f->grad_norm = of_update(r, "grad_norm");
    f->lr = of_update(r, "lr");
    f->skipped = of_update(r, "skipped") == 1;
    return status;
}

/* The rate's name in records. */
static const char *rate_name(const run *r)
{
    return r->data->by_rows ? "rows_per_second" : "tokens_per_second";
}

static void summary(run *r)
{
    const cli_train_result *o = r->out;
    cli_json_record(r->json,
                    json_pack("{ss ss ss ss? sI so so so sf sI sI sI sI sI sf sI sI sf sI sI}",
                              "event", "summary", "recipe", o->recipe, "target", o->target,
                              "device", *o->device.name ? o->device.name : NULL, "steps",
                              (json_int_t)r->c->steps, "final_loss", cli_json_number(o->final_loss),
                              "heldout_loss", cli_json_number(o->heldout_loss), "unigram_entropy",
                              cli_json_number(cli_data_unigram(r->data)), "compile_seconds",
                              o->info.compile_seconds, "peak_bytes", (json_int_t)o->info.peak_bytes,
                              "planned_peak_bytes", (json_int_t)o->info.planned_bytes,
                              "arena_bytes", (json_int_t)o->info.arena_bytes, "activation_bytes",
                              (json_int_t)o->peak.activation_bytes, "recomputed",
                              (json_int_t)o->remat.recomputed, "extra_seconds",
                              o->remat.extra_seconds, "fp8_gemms_planned",
                              (json_int_t)o->info.fp8_gemms_planned, "fp8_gemms_executed",
                              (json_int_t)o->fp8_gemms, rate_name(r), o->items_per_second, "seed",
                              (json_int_t)o->seed, "skipped", (json_int_t)o->skipped));
}

static json_t *step_record(const run *r, int64_t step, const step_facts *f, double rate)
{
    return json_pack("{ss ss sI sI so so so sb sf}", "event", "step", "recipe", r->out->recipe,
                     "seed", (json_int_t)r->out->seed, "step", (json_int_t)step, "loss",
                     cli_json_number(f->loss), "grad_norm", cli_json_number(f->grad_norm), "lr",
                     cli_json_number(f->lr), "skipped", (int)f->skipped, rate_name(r), rate);
}

/* The record of the run's folder has all bits, and after some steps a checksum. */
static void record_in_folder(run *r, int64_t step, const step_facts *f, double rate)
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

static void tell_health(run *r, int64_t step, bool last)
{
    json_t *at = json_pack("{ss sI sI}", "recipe", r->out->recipe, "seed", (json_int_t)r->out->seed,
                           "step", (json_int_t)step);
    cli_health_tell(&r->health, r->json, r->folder, at, last);
}

static void report(run *r, int64_t step, const step_facts *f, double seconds, double items)
{
    cli_json_record(r->json, step_record(r, step, f, items / seconds));
    record_in_folder(r, step, f, items / seconds);
    watch_loss(r, step, f->loss);
    tell_health(r, step, false);
    const int64_t lines = r->c->steps < LINES ? r->c->steps : LINES;
    if (r->terminal && step * lines / r->c->steps != (step - 1) * lines / r->c->steps)
        report_step(r, step, f);
}

/* The held-out loss after `step` steps, as a record and a line if --eval-every asks for it. */
static fp8c_status evaluate(run *r, int64_t step)
{
    cli_train_result *o = r->out;
    int64_t batches = 0;
    const fp8c_status status =
        cli_held_out(r->data, r->program, r->eval, &o->heldout_loss, &batches);
    r->evals_run += batches;
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

static int64_t tail_steps(const cli *c)
{
    return c->steps < 2 ? 1 : c->steps / 2 < TAIL ? c->steps / 2 : TAIL;
}

/* Takes the record of a step that was trained before the run went on. */
static void replay(void *user, const json_t *record)
{
    run *r = user;
    const char *event = json_string_value(json_object_get(record, "event")),
               *hex = json_string_value(json_object_get(record, "loss_hex"));
    const double loss = hex ? strtod(hex, NULL) : NAN;
    if (strcmp(event, "step"))
        return;
    if (json_integer_value(json_object_get(record, "step")) > r->c->steps - tail_steps(r->c))
        r->tail_sum += loss;
    r->out->skipped += json_is_true(json_object_get(record, "skipped"));
    cli_loss_explodes(&r->watch, loss); /* said already, if it did */
}

/* What is done after a step is finished: the held-out loss, a checkpoint. `seconds` becomes the
 * time that evaluating took. */
static fp8c_status after_step(run *r, int64_t step, double *seconds)
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
static fp8c_status check_ranks(const run *r)
{
    const fp8c_status status = fp8c_program_check_ranks(r->program);
    r->c->ranks->common |= status == FP8C_ERR_IO;
    return status;
}

static fp8c_status train(run *r)
{
    const int64_t items = r->accumulate * cli_data_items(r->data);
    const int64_t tail = tail_steps(r->c);
    double last = 0, beside;
    cli_hold(r->c->save || r->folder->path
                 ? "interrupted: this step is finished and saved; once more ends at once"
                 : "interrupted: this step is finished; once more ends at once");
    r->stops = cli_ranks_stop(r->c->ranks);
    double start = f8_seconds_now(); /* evaluations move it on: a rate is that of training */
    for (int64_t step = r->begin; step < r->end; step++) {
        step_facts f;
        const double begin = f8_seconds_now();
        fp8c_status status = r->stops ? FP8C_ERR_CANCELLED : train_step(r, step, &f);
        if (status != FP8C_OK)
            return status;
        const double end = f8_seconds_now();
        r->stops = cli_ranks_stop(r->c->ranks); /* before what only a last step does */
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
        report(r, step + 1, &f, end - begin, (double)items);
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

/* How often a function ran; all other functions ran once. */
static double runs_of(const void *user, int function)
{
    const run *r = user;
    const cli_stats *w = &r->watched;
    const int64_t runs = function == r->step     ? r->micro_steps_run
                         : function == w->stats  ? w->ran[0]
                         : function == w->dump   ? w->ran[1]
                         : function == r->update ? r->steps_run
                         : function == r->eval   ? r->evals_run
                                                 : 1;
    return runs > 0 ? (double)runs : 1;
}

/* The time of each step of the plan: printed, and kept in the run's folder. false after a message
 * on stderr. */
static bool put_profile(const run *r)
{
    if (r->c->profile && !cli_interrupted())
        cli_profile_print(cli_json_to_stdout(r->c) ? stderr : stdout, r->program, runs_of, r);
    if (!r->folder->path || !r->steps_run)
        return true;
    char *text = cli_profile_text(r->program, runs_of, r);
    const bool ok = text && (!*text || cli_folder_put(r->folder, "profile.jsonl", text));
    free(text);
    return ok;
}

/* ---- the command ---- */

enum { STOPPED = 2 * CLI_RECIPE + 8192 };

/* Sets what a signal that ends the command makes it say. results: NULL before there are any. at:
 * the last run, or NULL. */
static void say_stopped(const cli *c, const cli_train_result *results, const cli_train_result *at)
{
    static char text[STOPPED]; /* it outlives the command */
    const bool saved = results && results->saved;
    char where[CLI_RECIPE + 100] = "interrupted before the first step", what[CLI_RECIPE + 100] = "";
    if (at && at->done)
        snprintf(where, sizeof where, "interrupted after step %" PRId64 " of %" PRId64 " under %s",
                 at->done, c->steps, at->recipe);
    if (saved)
        snprintf(what, sizeof what, "has the checkpoint of step %" PRId64 " under %s",
                 results->done, results->recipe);
    const char *to = c->save ? c->save : c->run ? c->run : c->resume;
    if (to)
        snprintf(text, STOPPED, "%s: %.4096s %s", where, to, saved ? what : "is not written");
    else
        snprintf(text, STOPPED, "%s", where);
    cli_interrupt_text(text);
}

/* Initializes, trains, and saves what is asked for: the checkpoint at `save` and the state at
 * `state`, where they are not NULL. After a signal these are of the last step. false after a
 * message on stderr. */
static bool train_seed(run *r, const char *save, const char *state)
{
    cli_train_result *o = r->out;
    cli_folder *f = r->folder;
    fp8c_status status = fp8c_program_initialize(r->program, o->seed);
    if (status == FP8C_OK && !cli_folder_start(f, r->c, r->ctx, r->program, r->data, replay, r))
        return false;
    if (status == FP8C_OK && !cli_guard_folder(cli_guard_of(r->c), f->path))
        return false;
    o->saved = f->path != NULL;
    o->done = r->begin = f->path ? f->at.step : 0;
    r->end = r->c->stop_at && r->c->stop_at < r->c->steps ? r->c->stop_at : r->c->steps;
    if (status == FP8C_OK) {
        cli_health_of(&r->health, r->ctx, r->program, r->c->device);
        status = train(r);
        tell_health(r, o->done, true); /* after a failure above all */
        cli_health_end(&r->health);
    }
    if (status != FP8C_OK && status != FP8C_ERR_CANCELLED) {
        if (!r->json->failed && !r->data->failed &&
            !f->failed) /* said already, or by cli_json_close */
            fprintf(stderr, "%s\n", fp8c_context_message(r->ctx)); /* after a signal, too */
        return false;
    }
    if (!cli_folder_save(f, r->c, r->program, o->done, (uint64_t)(o->done * r->accumulate)))
        return false;
    if (!o->done)
        return true;
    if ((state && !cli_state_save(r->c, state, r->program)) ||
        (save && !cli_checkpoint_save(r->c, save, r->program, o->recipe, o->done)))
        return false;
    o->saved |= save != NULL;
    return true;
}

/* What all seeds of a recipe share. */
static void describe(fp8c_program *program, cli_train_result *out)
{
    snprintf(out->target, sizeof out->target, "%s", fp8c_program_target(program));
    out->device.struct_size = sizeof out->device;
    fp8c_program_device(program, &out->device); /* fails if there is no device */
    out->remat.struct_size = sizeof out->remat;
    fp8c_program_remat(program, &out->remat);
    fp8c_program_peak(program, fp8c_program_function(program, "micro_step"), &out->peak);
}

/* Whether timing each step of the plan costs next to nothing: on a CPU it is two looks at a clock.
 * A GPU would lose its graphs. */
static bool times_for_nothing(const cli *c)
{
    return !c->target || !strncmp(c->target, "cpu", 3);
}

/* Makes what auto chose rules of the run's module: the run that goes on does not measure again. The
 * calibration ends, also after a failure. */
static bool settle(fp8c_context *ctx, fp8c_module *module, cli_folder *folder,
                   fp8c_calibration **calibration)
{
    const bool ok = cli_take_rules(ctx, module, *calibration) && cli_folder_module(folder, module);
    fp8c_calibration_destroy(*calibration);
    *calibration = NULL;
    return ok;
}

/* Trains under one recipe with every seed. out: a result for each seed. *at becomes the last of
 * them that ran. save: where to write the checkpoint of the first seed, or NULL. */
static int train_recipe(const cli *c, fp8c_context *ctx, fp8c_module *module, cli_data *data,
                        cli_json *json, cli_folder *folder, const char *save, const char *recipe,
                        cli_train_result *out, const cli_train_result **at)
{
    fp8c_compile_options options = cli_compile_options(c, recipe);
    options.profile |= folder->path && times_for_nothing(c);
    options.witness = folder->path && c->fingerprint_every;
    options.comm = c->ranks ? &c->ranks->comm : NULL;
    run r = {.c = c,
             .ctx = ctx,
             .data = data,
             .json = json,
             .folder = folder,
             .accumulate = fp8c_module_accumulate(module),
             .terminal = isatty(STDERR_FILENO)};
    fp8c_calibration *calibration = NULL;
    if (cli_is_auto(recipe) && !folder->resumed && /* the module of such a run has the rules */
        !(calibration = cli_calibrate(c, ctx, module, &options, data)))
        return CLI_FAILED;
    if (calibration && folder->path && !settle(ctx, module, folder, &calibration))
        return CLI_FAILED;
    options.calibration = calibration;
    const fp8c_status compiled = fp8c_compile(module, &options, &r.program);
    fp8c_calibration_destroy(calibration);
    if (compiled != FP8C_OK)
        return cli_fail(ctx);
    bool ok = find_functions(&r);
    cli_stats_begin(&r.watched, c, r.program, r.step);
    ok = ok && cli_data_fit(data, c, module, r.program, r.step) && cli_data_agreed(data, c);
    for (int64_t i = 0; i < c->seeds && ok && !cli_ranks_stop(c->ranks); i++) {
        out[i].recipe = recipe;
        out[i].seed = c->seed + (uint64_t)i;
        describe(r.program, &out[i]);
        *at = r.out = &out[i];
        r.watch = (cli_loss_watch){0};
        r.tail_sum = 0;
        ok = train_seed(&r, i ? NULL : save, i ? NULL : c->save_state);
    }
    ok = ok && put_profile(&r);
    fp8c_program_destroy(r.program);
    return ok ? CLI_DONE : CLI_FAILED;
}

static bool usable(const cli *c)
{
    if (!cli_data_given(c))
        fprintf(stderr, "fp8c train: --data FILE or --batch NAME=FILE is needed; see fp8c train "
                        "--help\n");
    else if (c->seeds > MOST_SEEDS || c->seed > (uint64_t)(INT64_MAX - c->seeds + 1))
        fprintf(stderr, "fp8c train: --seeds %" PRId64 ": at most %d, and none above 2^63 - 1\n",
                c->seeds, MOST_SEEDS);
    else
        return !cli_stats_refused(c);
    return false;
}

/* Trains under every recipe. results: one for each recipe and seed, recipe by recipe. */
static int train_all(const cli *c, fp8c_context *ctx, fp8c_module *module, cli_folder *folder,
                     cli_train_result *results)
{
    cli_json json = {0};
    cli_data data = {0};
    const cli_train_result *at = NULL;
    say_stopped(c, results, NULL);
    /* Everything that can be checked is checked before the first run. */
    const bool ready = cli_can_save(c) && cli_data_open(&data, c) && cli_json_open(&json, c->json);
    int code = ready ? CLI_DONE : CLI_FAILED;
    if (ready)
        cli_hold(NULL);
    for (size_t i = 0; i <= c->compare.n && code == CLI_DONE && !cli_ranks_stop(c->ranks); i++) {
        code = train_recipe(c, ctx, module, &data, &json, folder, i ? NULL : c->save,
                            cli_recipe(c, i), results + i * (size_t)c->seeds, &at);
        say_stopped(c, results, at);
    }
    code = c->ranks && c->ranks->lost ? CLI_FAILED : code;
    if (code == CLI_DONE && !cli_interrupted())
        cli_train_record_spread(c, results, &json);
    if (!cli_json_close(&json))
        code = CLI_FAILED;
    const bool quiet = code != CLI_DONE || cli_json_to_stdout(c) || cli_interrupted();
    if (!quiet && results->done < c->steps)
        printf("stopped after step %" PRId64 " of %" PRId64 " under %s; to go on: fp8c train "
               "--resume %s\n",
               results->done, c->steps, results->recipe, folder->path);
    else if (!quiet)
        cli_train_print(c, results, tail_steps(c), &data);
    cli_data_close(&data);
    return code;
}

/* The module as this process runs it: whole for the folder, then with this rank's part of a batch.
 * *ctx and *module are NULL after a message on stderr. */
static bool load_module(cli *c, cli_folder *folder, fp8c_context **ctx, fp8c_module **module)
{
    if (!cli_load(c, ctx, module))
        return false;
    bool ok = cli_folder_module(folder, *module);
    if (ok && !c->ranks)
        return true;
    /* under MPI before anything else: ranks that are alike then also fail alike */
    const bool first = ok && c->ranks->mpi;
    ok = ok && (!first || cli_agree(c, *module)) && cli_ranks_divide(c->ranks, c, *module) &&
         (first || cli_agree(c, *module));
    fp8c_module_destroy(*module);
    fp8c_context_destroy(*ctx);
    *module = NULL;
    *ctx = NULL;
    return ok && cli_load(c, ctx, module);
}

static int train_module(cli *c, cli_folder *folder)
{
    fp8c_context *ctx;
    fp8c_module *module;
    if (!load_module(c, folder, &ctx, &module))
        return CLI_FAILED;
    int code = CLI_FAILED;
    cli_train_result *results = calloc((1 + c->compare.n) * (size_t)c->seeds, sizeof *results);
    if (!results)
        fprintf(stderr, "error: out of memory\n");
    else
        code = train_all(c, ctx, module, folder, results);
    free(results);
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    return code;
}

int cmd_train(const cli *given)
{
    cli own = *given;
    cli_folder folder;
    cli_ranks ranks;
    if (cli_folder_refused(&own))
        return CLI_USAGE;
    if (!own.file && !own.resume) {
        fprintf(stderr, "fp8c train: an argument is missing: 'FILE.f8'; see fp8c train --help\n");
        return CLI_USAGE;
    }
    int code = CLI_FAILED;
    say_stopped(&own, NULL, NULL);
    if (!cli_ranks_join(&ranks, &own))
        return cli_ranks_leave(&ranks, CLI_FAILED);
    if (cli_folder_open(&folder, &own))
        code = usable(&own) ? CLI_DONE : CLI_USAGE;
    own.steps = own.steps ? own.steps : CLI_STEPS;
    if (code == CLI_DONE)
        code = train_module(&own, &folder);
    cli_folder_close(&folder);
    return cli_ranks_leave(&ranks, code);
}
