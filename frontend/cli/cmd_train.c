/* fp8c train: trains a model on the data of files, under one or more recipes. */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "frontend/cli/auto.h"
#include "frontend/cli/checkpoint.h"
#include "frontend/cli/cmd_train.h"
#include "frontend/cli/told.h"
#include "frontend/train/spread.h"

enum { MOST_SEEDS = 1000, STOPPED = 2 * CLI_RECIPE + 8192 };

/* Sets what a signal that ends the command makes it say. results: NULL before there are any. at:
 * the last run, or NULL. */
static void say_stopped(const cli *c, const f8_train_result *results, const f8_train_result *at)
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

/* ---- a run ---- */

enum { LINES = 10 }; /* that stay, of a run */

/* Says the held-out loss after the last step, if --eval-every asked for it. */
static void say_held_out(const f8_training *r)
{
    const int64_t every = r->t->options->eval_every, step = r->out->done;
    if (step && r->evaluated == step && every && step % every == 0)
        fprintf(stderr, "\r\033[K%s  step %" PRId64 "  held out %.4f\n", r->out->recipe, step,
                r->out->heldout_loss);
}

/* Says how far a run is, on a terminal. *last: when it was said. */
static void say_progress(const f8_training *r, const f8_train_step *f, double *last)
{
    const f8_train_result *o = r->out;
    const int64_t steps = r->t->options->steps, lines = steps < LINES ? steps : LINES;
    if (f->step * lines / steps != (f->step - 1) * lines / steps)
        fprintf(stderr,
                "\r\033[K%s  step %" PRId64
                "  loss %.4f  gradient norm %.4g  lr %.4g  skipped %" PRId64 "\n",
                o->recipe, f->step, f->loss, f->grad_norm, f->lr, o->skipped);
    if (f->seconds - *last > 0.1 || f->step == r->end) {
        cli_train_progress(r, f);
        *last = f->seconds;
    }
}

/* Says what to do after a guard has ended the run. */
static void say_alarm(const f8_training *r, const f8_folder *folder)
{
    const f8_alarms *a = &r->alarms;
    const char *mode = f8_alarms_mode(a);
    if (!folder->path) {
        cli_say(stderr,
                "  --guard %s: the run ends here, and nothing is saved. With --run DIR a run keeps "
                "checkpoints to go on from; with --guard warn it goes on\n",
                mode);
        return;
    }
    if (r->left < 0)
        return;
    cli_say(stderr,
            "  --guard %s: the run ends here. Its newest checkpoint is that of step %" PRId64
            "%s\n",
            mode, r->left, r->left < a->stopped ? ", from before" : ": there is no earlier one");
    if (a->mode == F8_GUARD_STOP)
        cli_say(stderr, "  to look for the cause: fp8c triage %s\n", folder->path);
    cli_say(stderr,
            "  to go on from there in spite of it: fp8c train --resume %s --guard warn; or under "
            "another --recipe\n",
            folder->path);
}

/* Initializes, trains, and saves what is asked for: the checkpoint at `save` and the state at
 * `state`, where they are not NULL. After a signal these are of the last step. false after a
 * message on stderr. */
static bool train_seed(const cli *c, f8_training *r, uint64_t seed, f8_train_result *o,
                       const char *save, const char *state)
{
    const bool terminal = isatty(STDERR_FILENO);
    double last = -1; /* the first step is said at once */
    cli_hold(c->save || r->folder->path
                 ? "interrupted: this step is finished and saved; once more ends at once"
                 : "interrupted: this step is finished; once more ends at once");
    bool ok = f8_training_begin(r, seed, o);
    if (ok && terminal) /* a run that has all its steps */
        say_held_out(r);
    while (ok && f8_training_goes_on(r)) {
        f8_train_step f;
        ok = f8_training_step(r, &f);
        if (terminal && o->done == f.step) {
            say_progress(r, &f, &last);
            say_held_out(r);
        }
    }
    ok = f8_training_end(r);
    if (r->alarms.stopped)
        say_alarm(r, r->folder);
    if (!ok || !o->done)
        return ok;
    if ((state && !cli_state_save(c, state, r->program)) ||
        (save && !cli_checkpoint_save(c, save, r->program, o->recipe, o->done)))
        return false;
    o->saved |= save != NULL;
    return true;
}

/* ---- a recipe ---- */

/* Whether all seeds of a training ended well. *triage: a guard asks for it. */
static bool train_seeds(const cli *c, f8_training *r, const char *save, f8_train_result *out,
                        const f8_train_result **at, bool *triage, cli_json *json)
{
    bool ok = true;
    for (int64_t i = 0; i < c->seeds && ok && !f8_train_stops(r->t, NULL); i++) {
        *at = &out[i];
        ok = train_seed(c, r, c->seed + (uint64_t)i, &out[i], i ? NULL : save,
                        i ? NULL : c->save_state);
        *triage |= r->alarms.stopped && r->alarms.mode == F8_GUARD_TRIAGE && r->left >= 0;
    }
    if (ok && !cli_interrupted())
        ok = cli_profile(c, r->program, f8_training_runs, r, r->eval, "optimizer step",
                         f8_training_steps(r), json, json_pack("{ss}", "recipe", r->recipe));
    return ok && f8_training_put_profile(r);
}

/* ---- all runs ---- */

static bool usable(const cli *c)
{
    f8_diag diag = {0};
    if (!cli_data_given(c))
        cli_usage(c, "--data FILE or --batch NAME=FILE is needed");
    else if (c->seeds > MOST_SEEDS || c->seed > (uint64_t)(INT64_MAX - c->seeds + 1))
        cli_usage(c, "--seeds %" PRId64 ": at most %d, and none above 2^63 - 1", c->seeds,
                  MOST_SEEDS);
    else if (f8_training_check(&c->train, &diag) != F8_OK)
        cli_usage(c, "%s", diag.text);
    else
        return true;
    return false;
}

/* Writes a record `spread` for each recipe, if there are several seeds. */
static void record_spreads(const cli *c, const f8_train_result *runs, cli_json *json)
{
    const f8_train_result *base = runs + cli_baseline(c) * (size_t)c->seeds;
    for (size_t i = 0; i <= c->compare.n && c->seeds > 1; i++, runs += c->seeds) {
        const f8_spreads s = f8_spreads_of(runs, base, c->seeds);
        cli_json_record(json, f8_spreads_record(&s, runs, c->seeds, runs == base));
    }
}

/* Trains under every recipe. results: one for each recipe and seed, recipe by recipe. */
static int train_all(const cli *c, fp8c_context *ctx, fp8c_module *module, f8_folder *folder,
                     f8_train_result *results, bool *triage)
{
    cli_json json = {0};
    f8_train t = cli_told(c, &json);
    f8_data data = {0};
    const f8_train_result *at = NULL;
    cli_job job = {.c = c, .ctx = ctx};
    say_stopped(c, results, NULL);
    /* Everything that can be checked is checked before the first run. */
    const bool ready = cli_can_save(c) && cli_data_open(&data, c) && cli_json_open(&json, c->json);
    int code = ready ? CLI_DONE : CLI_FAILED;
    if (ready)
        cli_hold(NULL);
    folder->t = &t;
    for (size_t i = 0; i <= c->compare.n && code == CLI_DONE && !f8_train_stops(&t, NULL); i++) {
        f8_training r = {.t = &t, .ctx = ctx, .data = &data, .folder = folder};
        if (!f8_training_open(&r, module, cli_recipe(c, i), cli_write_rules, &job) ||
            !train_seeds(c, &r, i ? NULL : c->save, results + i * (size_t)c->seeds, &at, triage,
                         &json))
            code = CLI_FAILED;
        f8_training_close(&r);
        say_stopped(c, results, at);
    }
    code = c->ranks && c->ranks->lost ? CLI_FAILED : code;
    if (code == CLI_DONE && !cli_interrupted())
        record_spreads(c, results, &json);
    if (!cli_json_close(&json))
        code = CLI_FAILED;
    const bool quiet = code != CLI_DONE || cli_json_to_stdout(c) || cli_interrupted();
    if (!quiet && results->done < c->steps)
        cli_say(stdout,
                "stopped after step %" PRId64 " of %" PRId64 " under %s; to go on: fp8c train "
                "--resume %s\n",
                results->done, c->steps, results->recipe, folder->path);
    else if (!quiet)
        cli_train_print(c, results, f8_training_tail(&c->train), &data);
    f8_data_close(&data);
    return code;
}

/* The module as this process runs it: whole for the folder, then with this rank's part of a batch.
 * *ctx and *module are NULL after a message on stderr. */
static bool load_module(cli *c, f8_folder *folder, fp8c_context **ctx, fp8c_module **module)
{
    f8_train t = cli_told(c, NULL);
    if (!cli_load(c, ctx, module))
        return false;
    bool ok = f8_folder_module(folder, *module);
    if (ok && !c->ranks)
        return true;
    /* under MPI before anything else: ranks that are alike then also fail alike */
    const bool first = ok && c->ranks->mpi;
    ok = ok && (!first || f8_train_agree_all(&t, *module)) &&
         cli_ranks_divide(c->ranks, c, *module) && (first || f8_train_agree_all(&t, *module));
    fp8c_module_destroy(*module);
    fp8c_context_destroy(*ctx);
    *module = NULL;
    *ctx = NULL;
    return ok && cli_load(c, ctx, module);
}

static int train_module(cli *c, f8_folder *folder, bool *triage)
{
    fp8c_context *ctx;
    fp8c_module *module;
    if (!load_module(c, folder, &ctx, &module))
        return CLI_FAILED;
    int code = CLI_FAILED;
    f8_train_result *results = calloc((1 + c->compare.n) * (size_t)c->seeds, sizeof *results);
    if (!results)
        cli_error(NULL, "out of memory");
    else
        code = train_all(c, ctx, module, folder, results, triage);
    free(results);
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    return code;
}

/* --guard triage goes on here, in one process with what `fp8c triage` does. Several processes have
 * parted by now: somebody starts them again. */
static void look_for_cause(const cli *c, const char *folder)
{
    const cli triage = {.command = "triage",
                        .file = folder,
                        .files = {{folder}, 1},
                        .recipe = f8_default_recipe,
                        .seed = 1,
                        .seeds = 1};
    if (c->ranks) {
        cli_say(stderr, "  to look for the cause, with as many processes: fp8c triage %s\n",
                folder);
        return;
    }
    cli_say(stderr, "  fp8c triage %s\n", folder);
    cmd_triage(&triage);
}

static bool refused(const cli *c)
{
    const char *with = c->run ? "--run" : "--resume";
    if (!c->file && !c->resume)
        cli_usage(c, "an argument is missing: 'FILE.f8'");
    else if (c->run && c->resume)
        cli_usage(c, "--run begins a run, and --resume goes on with one: give one of the two");
    else if ((c->run || c->resume) && (c->compare.n || c->given[CLI_AT_seeds]))
        cli_usage(c, "%s keeps one run: --%s makes several; give each its own folder", with,
                  c->compare.n ? "compare" : "seeds");
    else
        return false;
    return true;
}

int cmd_train(const cli *given)
{
    cli own = *given;
    f8_folder folder;
    cli_ranks ranks;
    bool triage = false;
    if (refused(&own))
        return CLI_USAGE;
    int code = CLI_FAILED;
    say_stopped(&own, NULL, NULL);
    if (!cli_ranks_join(&ranks, &own))
        return cli_ranks_leave(&ranks, &own, CLI_FAILED);
    f8_train t = cli_told(&own, NULL);
    if (f8_folder_open(&folder, &t))
        code = usable(&own) ? CLI_DONE : CLI_USAGE;
    own.file = t.file; /* the folder has one */
    own.steps = own.steps ? own.steps : F8_DEFAULT_STEPS;
    if (code == CLI_DONE)
        code = train_module(&own, &folder, &triage);
    const char *path = own.run ? own.run : own.resume;
    f8_folder_close(&folder);
    if (triage && path && !f8_ranks_follows(own.ranks))
        look_for_cause(&own, path);
    return cli_ranks_leave(&ranks, &own, code);
}
