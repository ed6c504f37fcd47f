/* fp8c train: trains a model on the data of files, under one or more recipes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/cli/cmd_agree.h"
#include "frontend/cli/cmd_calibrate.h"
#include "frontend/cli/cmd_checkpoint.h"
#include "frontend/cli/cmd_train_run.h"

enum { MOST_SEEDS = 1000, STOPPED = 2 * CLI_RECIPE + 8192 };

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
static bool train_seed(cli_train_run *r, const char *save, const char *state)
{
    cli_train_result *o = r->out;
    cli_folder *f = r->folder;
    fp8c_status status = fp8c_program_initialize(r->program, o->seed);
    if (status == FP8C_OK && !cli_alarm_begin(&r->alarms, r->c, r->ctx, r->program))
        return false;
    if (status == FP8C_OK &&
        !cli_folder_start(f, r->c, r->ctx, r->program, r->data, cli_train_replay, r))
        return false;
    if (status == FP8C_OK && !cli_ranks_folder(r->c, f->path))
        return false;
    o->saved = f->path != NULL;
    o->done = r->begin = f->path ? f->at.step : 0;
    r->end = r->c->stop_at && r->c->stop_at < r->c->steps ? r->c->stop_at : r->c->steps;
    if (status == FP8C_OK) {
        cli_health_of(&r->health, r->ctx, r->program, r->c->device);
        status = cli_train_steps(r);
        cli_train_tell_health(r, o->done, true); /* after a failure above all */
        cli_health_end(&r->health);
    }
    if (r->alarms.stopped) {
        cli_alarm_stop(&r->alarms, f);
        if (r->c->ranks)
            r->c->ranks->common = true; /* rank 0 has said why */
        return false;
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
    fp8c_program_remat(program, 0, 0, &out->remat);
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
static int train_recipe(const cli *c, fp8c_context *ctx, fp8c_module *module, f8_data *data,
                        cli_json *json, cli_folder *folder, const char *save, const char *recipe,
                        cli_train_result *out, const cli_train_result **at)
{
    fp8c_compile_options options = cli_compile_options(c, recipe);
    options.profile |= folder->path && times_for_nothing(c);
    options.witness = folder->path && c->fingerprint_every;
    options.comm = c->ranks ? &c->ranks->comm : NULL;
    fp8c_module_info info = {.struct_size = sizeof info};
    fp8c_module_report(module, &info);
    cli_train_run r = {.c = c,
                       .ctx = ctx,
                       .data = data,
                       .json = json,
                       .folder = folder,
                       .accumulate = info.accumulate,
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
    bool ok = cli_train_find_functions(&r);
    cli_stats_begin(&r.watched, c, r.program, r.step);
    ok = ok && cli_data_fit(data, module, r.program, r.step) && cli_data_agreed(data, c);
    for (int64_t i = 0; i < c->seeds && ok && !cli_ranks_stop(c->ranks); i++) {
        out[i].recipe = recipe;
        out[i].seed = c->seed + (uint64_t)i;
        describe(r.program, &out[i]);
        *at = r.out = &out[i];
        r.tail_sum = 0;
        ok = train_seed(&r, i ? NULL : save, i ? NULL : c->save_state);
        cli_alarm_end(&r.alarms);
    }
    ok = ok && cli_train_put_profile(&r);
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
    else if (c->fingerprint_every && c->target && !strcmp(c->target, "reference"))
        fprintf(stderr, "fp8c train: --fingerprint-every is of the steps of a plan, and --target "
                        "reference has none\n");
    else
        return !cli_stats_refused(c) && !cli_alarm_refused(c);
    return false;
}

/* Trains under every recipe. results: one for each recipe and seed, recipe by recipe. */
static int train_all(const cli *c, fp8c_context *ctx, fp8c_module *module, cli_folder *folder,
                     cli_train_result *results)
{
    cli_json json = {0};
    f8_data data = {0};
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
        cli_train_print(c, results, cli_train_tail(c), &data);
    f8_data_close(&data);
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
    const bool triage = folder.triage && !f8_ranks_follows(own.ranks);
    cli_folder_close(&folder);
    if (triage)
        code = cli_alarm_triage(&own, own.run ? own.run : own.resume);
    return cli_ranks_leave(&ranks, code);
}
