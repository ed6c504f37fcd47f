/* Replaying steps: see cmd_replay.h. */
#include "frontend/cli/cmd_replay.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "frontend/api.h"

/* ---- memory ---- */

/* Gives freed memory back to the system, which malloc otherwise keeps. LLVM and the passes leave
 * many megabytes of it. A replay should need no more memory than the run. */
static void give_back(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* ---- life ---- */

static bool add_rule(fp8c_context *ctx, fp8c_module *module, const char *rule)
{
    return !rule || fp8c_module_rule(module, rule, "triage") == FP8C_OK ||
           cli_fail(ctx) == CLI_DONE;
}

static bool find_functions(cli_replay *r)
{
    r->micro_step = fp8c_program_function(r->program, "micro_step");
    r->update = fp8c_program_function(r->program, "update");
    if (r->micro_step >= 0 && r->update >= 0)
        return true;
    fprintf(stderr, "%s: error: the module has no micro_step and update\n", r->folder->path);
    return false;
}

bool cli_replay_open(cli_replay *r, const cli_replay_as *as)
{
    r->recipe = as->recipe ? as->recipe : r->c->recipe;
    r->rule = as->rule;
    r->program = NULL;
    if (!cli_load(r->c, &r->ctx, &r->module))
        return false;
    fp8c_compile_options options = cli_compile_options(r->c, r->recipe);
    options.stats = as->stats;
    options.stats_recipe = options.dump = NULL;
    options.witness = as->witness && strncmp(r->c->target ? r->c->target : "cpu", "reference", 9);
    options.lr = as->lr > 0 ? as->lr : options.lr;
    options.comm = r->c->ranks ? &r->c->ranks->comm : NULL;
    fp8c_module_info info = {.struct_size = sizeof info};
    fp8c_module_report(r->module, &info);
    r->accumulate = info.accumulate;
    if (as->eps > 0)
        r->module->ir->optimizer.eps = as->eps;
    bool ok = add_rule(r->ctx, r->module, r->rule);
    if (ok && fp8c_compile(r->module, &options, &r->program) != FP8C_OK)
        ok = cli_fail(r->ctx) == CLI_DONE;
    ok = ok && find_functions(r) && cli_data_fit(r->data, r->module, r->program, r->micro_step);
    if (ok) {
        f8_run_lend_folder(&r->folder->run, r->program);
        cli_stats_begin(&r->watched, r->c, r->program, r->micro_step);
        r->watched.every = as->every > 0 ? as->every : r->watched.every;
    }
    fp8c_module_destroy(r->module); /* the program does not need it */
    r->module = NULL;
    give_back();
    return ok;
}

void cli_replay_close(cli_replay *r)
{
    fp8c_program_destroy(r->program);
    fp8c_module_destroy(r->module);
    fp8c_context_destroy(r->ctx);
    r->program = NULL;
    r->module = NULL;
    r->ctx = NULL;
    give_back();
}

/* ---- the checkpoint ---- */

static void say_passed_over(void *user, const f8_diag *why)
{
    cli_replay *r = user;
    r->passed_over++;
    if (!r->quiet)
        fprintf(stderr, "%s: warning: passed over: %s\n", why->file ? why->file : "", why->text);
}

static f8_status load(cli_replay *r, int64_t step, f8_diag *diag)
{
    f8_run_position at = r->folder->at;
    r->same = true;
    at.recipe = r->rule ? "" : r->recipe; /* a rule more changes the states as a recipe does */
    const f8_status status = f8_run_load_before(&r->folder->run, r->program, step, &at, &r->same,
                                                say_passed_over, r, diag);
    r->at = at.step;
    if (status == F8_OK && r->at < r->since)
        return f8_file_fail(diag, F8_ERR_INPUT, r->folder->path,
                            "from step %" PRId64 " on it was trained under other conditions, and "
                            "no checkpoint since then is of before that step",
                            r->since + 1);
    return status;
}

static bool initialize(cli_replay *r)
{
    return fp8c_program_initialize(r->program, r->c->seed) == FP8C_OK ||
           cli_fail(r->ctx) == CLI_DONE;
}

bool cli_replay_load(cli_replay *r, int64_t step)
{
    f8_diag diag = {0};
    return initialize(r) && (load(r, step, &diag) == F8_OK || cli_file_fail(&diag));
}

bool cli_replay_load_older(cli_replay *r, int64_t step)
{
    f8_diag diag = {0};
    return initialize(r) && load(r, step, &diag) == F8_OK;
}

/* ---- steps ---- */

static bool run(cli_replay *r, int function, int64_t micro_step, const cli_replay_watch *w)
{
    if (w && w->begin)
        w->begin(w->user, function, micro_step);
    const fp8c_status status =
        w ? fp8c_program_run_witnessed(r->program, function, w->judge, w->value, w->user)
          : fp8c_program_run(r->program, function);
    return status == FP8C_OK || cli_fail(r->ctx) == CLI_DONE;
}

bool cli_replay_step(cli_replay *r, int64_t batch_of, const cli_replay_watch *watch,
                     cli_replayed *out)
{
    const int64_t batches = (batch_of ? batch_of - 1 : r->at) * r->accumulate;
    *out = (cli_replayed){.loss = NAN, .grad_norm = NAN};
    for (int64_t a = 0; a < r->accumulate; a++) {
        const bool last = a + 1 == r->accumulate;
        const uint64_t batch = (uint64_t)(batches + a);
        r->function = last ? cli_stats_function(&r->watched, r->at + 1) : r->micro_step;
        const float *loss = f8_data_buffer(r->program, r->function, FP8C_OUTPUT, "loss");
        if (!cli_data_fill(r->data, r->program, r->function, r->c->seed, batch) ||
            (r->alter && !r->alter(r, r->function, r->at + 1, batch, r->user)) ||
            !run(r, r->function, a + 1, watch))
            return false;
        out->loss = loss ? (a ? out->loss : 0) + (double)*loss / (double)r->accumulate : NAN;
    }
    if (!run(r, r->update, 0, watch))
        return false;
    const float *norm = f8_data_buffer(r->program, r->update, FP8C_OUTPUT, "grad_norm");
    out->grad_norm = norm ? (double)*norm : NAN;
    out->finite = isfinite(out->loss) && (!norm || isfinite(out->grad_norm));
    r->at++;
    return true;
}

bool cli_replay_until(cli_replay *r, int64_t step, cli_replayed *out)
{
    while (r->at < step)
        if (!cli_replay_step(r, 0, NULL, out))
            return false;
    return true;
}
