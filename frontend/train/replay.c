/* Replaying steps: see replay.h. */
#include "frontend/train/replay.h"

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

static bool add_rule(f8_replay *r)
{
    return !r->rule || f8_train_ok(r->t, r->ctx, fp8c_module_rule(r->module, r->rule, "triage"));
}

static bool find_functions(f8_replay *r)
{
    r->micro_step = fp8c_program_function(r->program, "micro_step");
    r->update = fp8c_program_function(r->program, "update");
    return (r->micro_step >= 0 && r->update >= 0) ||
           f8_train_fail(r->t, F8_ERR_INPUT, "%s: error: the module has no micro_step and update",
                         r->folder->path);
}

bool f8_replay_open(f8_replay *r, const f8_replay_as *as)
{
    const f8_train_options *o = r->t->options;
    f8_diag diag = {0};
    r->recipe = as->recipe ? as->recipe : o->recipe;
    r->rule = as->rule;
    r->program = NULL;
    if (!f8_train_load(r->t, &r->ctx, &r->module))
        return false;
    fp8c_compile_options options =
        f8_train_compile_options(o, r->recipe, f8_module_info(r->module).needs_steps);
    options.stats = as->stats;
    options.stats_recipe = options.dump = NULL;
    options.witness = as->witness && strncmp(o->target ? o->target : "cpu", "reference", 9);
    options.lr = as->lr > 0 ? as->lr : options.lr;
    options.comm = r->t->ranks ? &r->t->ranks->comm : NULL;
    r->accumulate = f8_module_info(r->module).accumulate;
    if (as->eps > 0)
        r->module->ir->optimizer.eps = as->eps;
    const bool ok =
        add_rule(r) && f8_train_ok(r->t, r->ctx, fp8c_compile(r->module, &options, &r->program)) &&
        find_functions(r) &&
        f8_train_done(r->t, f8_data_fit(r->data, r->module, r->program, r->micro_step, &diag),
                      &diag);
    if (ok) {
        f8_run_lend_folder(&r->folder->run, r->program);
        f8_watch_begin(&r->watched, r->t, r->program, r->micro_step);
        r->watched.every = as->every > 0 ? as->every : r->watched.every;
    }
    fp8c_module_destroy(r->module); /* the program does not need it */
    r->module = NULL;
    give_back();
    return ok;
}

void f8_replay_close(f8_replay *r)
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
    f8_replay *r = user;
    r->passed_over++;
    if (!r->quiet)
        f8_train_say(r->t, "%s: warning: passed over: %s", why->file ? why->file : "", why->text);
}

static f8_status load(f8_replay *r, int64_t step, f8_diag *diag)
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

static bool initialize(f8_replay *r)
{
    return f8_train_ok(r->t, r->ctx, fp8c_program_initialize(r->program, r->t->options->seed));
}

bool f8_replay_load(f8_replay *r, int64_t step)
{
    f8_diag diag = {0};
    return initialize(r) && f8_train_done(r->t, load(r, step, &diag), &diag);
}

bool f8_replay_load_older(f8_replay *r, int64_t step)
{
    f8_diag diag = {0};
    return initialize(r) && load(r, step, &diag) == F8_OK;
}

/* ---- steps ---- */

bool f8_replay_fill(f8_replay *r, int function, uint64_t batch)
{
    f8_diag diag = {0};
    return f8_train_done(
        r->t, f8_data_fill(r->data, r->program, function, r->t->options->seed, batch, &diag),
        &diag);
}

bool f8_replay_put(f8_replay *r, int function, uint64_t place, int64_t row)
{
    f8_diag diag = {0};
    return f8_train_done(r->t, f8_data_put(r->data, r->program, function, place, row, &diag),
                         &diag);
}

static bool run(f8_replay *r, int function, int64_t micro_step, const f8_replay_watch *w)
{
    if (w && w->begin)
        w->begin(w->user, function, micro_step);
    const fp8c_status status =
        w ? fp8c_program_run_witnessed(r->program, function, w->judge, w->value, w->user)
          : fp8c_program_run(r->program, function);
    return f8_train_ok(r->t, r->ctx, status);
}

bool f8_replay_step(f8_replay *r, int64_t batch_of, const f8_replay_watch *watch, f8_replayed *out)
{
    const int64_t batches = (batch_of ? batch_of - 1 : r->at) * r->accumulate;
    *out = (f8_replayed){.loss = NAN, .grad_norm = NAN};
    for (int64_t a = 0; a < r->accumulate; a++) {
        const bool last = a + 1 == r->accumulate;
        const uint64_t batch = (uint64_t)(batches + a);
        r->function = last ? f8_watch_function(&r->watched, r->at + 1) : r->micro_step;
        const float *loss = f8_data_buffer(r->program, r->function, FP8C_OUTPUT, "loss");
        if (!f8_replay_fill(r, r->function, batch) ||
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

bool f8_replay_until(f8_replay *r, int64_t step, f8_replayed *out)
{
    while (r->at < step)
        if (!f8_replay_step(r, 0, NULL, out))
            return false;
    return true;
}
