/* Tuning: see fp8c_tune.h and tune.h. */
#include "frontend/tune/tune.h"

#include <stdlib.h>
#include <string.h>

#include "ir/base/clock.h"

/* ---- life ---- */

void fp8c_tuning_destroy(fp8c_tuning *t)
{
    if (!t)
        return;
    fp8c_program_destroy(t->base);
    f8_gemm_lib_destroy(t->gemms);
    f8_pool_destroy(t->pool);
    f8_tuning_close(t->db);
    f8_arena_end(&t->arena);
    f8_api_delete(t->ctx, t, sizeof *t);
}

static f8_status check(const fp8c_tuning *t, f8_diag *diag)
{
    const fp8c_compile_options *c = &t->compile;
    if (!t->o.database)
        return f8_fail(
            diag, F8_ERR_INPUT, F8_NOWHERE,
            "no tuning database: none was named, and the context has none (FP8C_TUNING)");
    if (c->target && !strcmp(c->target, "reference"))
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "target reference has nothing to tune");
    if (c->no_device || c->text_only || c->plan_only)
        return f8_fail(
            diag, F8_ERR_INPUT, F8_NOWHERE,
            "tuning needs the device: it can't be done with no_device, text_only or plan_only");
    if (c->comm || c->ranks > 1)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "tuning is done by one rank alone: tune without comm and ranks");
    if (t->o.only && t->o.kernels)
        return f8_fail(
            diag, F8_ERR_INPUT, F8_NOWHERE,
            "`only` names steps of all kinds, `kernels` kernels alone: give one of them");
    if (t->o.runs < 0 || t->o.runs > TUNE_RUNS)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "runs: %d is not from 0 to %d", t->o.runs,
                       TUNE_RUNS);
    if (!(t->o.seconds >= 0))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "seconds: %g is negative", t->o.seconds);
    return F8_OK;
}

/* Order problems by time, the longest first. */
static int by_seconds(const void *a, const void *b)
{
    const tune_problem *x = a, *y = b;
    const int longer =
        (x->model_seconds < y->model_seconds) - (x->model_seconds > y->model_seconds);
    return longer ? longer : strcmp(x->text, y->text);
}

/* Make the model's program ready, with its problems and what the database knows of them. */
static f8_status begin(fp8c_tuning *t, f8_diag *diag)
{
    F8_TRY(check(t, diag));
    if (!t->o.runs)
        t->o.runs = 7;
    t->o.database = f8_arena_strdup(&t->arena, t->o.database);
    F8_TRY(f8_arena_status(&t->arena, diag));
    F8_TRY(f8_tuning_open(t->o.database, &t->ctx->allocator, &t->db, diag));
    const f8_pool_options pool = {.n_threads =
                                      t->compile.threads ? t->compile.threads : t->ctx->threads,
                                  .allocator = &t->ctx->allocator};
    F8_TRY(f8_pool_create(&pool, &t->pool, diag));
    F8_TRY(f8_tune_collect(t, diag));
    return t->base->now->instance.kind->init(&t->base->now->instance, 1, NULL, diag);
}

fp8c_status f8_tune_open(fp8c_context *ctx, const fp8c_module *module,
                         const fp8c_tune_options *options, bool gemms, fp8c_tuning **out)
{
    f8_diag diag = {0};
    *out = NULL;
    fp8c_tuning *t = f8_api_new(ctx, sizeof *t, 64, &diag);
    if (!t)
        return f8_api_result(ctx, &diag, diag.status);
    *t = (fp8c_tuning){.ctx = ctx,
                       .module = module,
                       .finished = true,
                       .start = f8_seconds_now(),
                       .gemms_alone = gemms};
    f8_arena_init(&t->arena, &ctx->allocator);
    f8_tuning_name_process(t->process);
    t->o.struct_size = sizeof t->o;
    t->compile.struct_size = sizeof t->compile;
    f8_status status = f8_api_options(&t->o, options, "fp8c_tune_options", &diag);
    if (status == F8_OK)
        status = f8_api_options(&t->compile, t->o.compile, "fp8c_compile_options", &diag);
    t->compile.profile = 1;
    t->o.database = t->o.database ? t->o.database : ctx->settings.tuning;
    if (status == F8_OK)
        status = begin(t, &diag);
    if (status == F8_OK) {
        *out = t;
        return FP8C_OK;
    }
    if (diag.status != F8_OK) /* otherwise a compile has left its message */
        f8_api_fail(ctx, &diag, status, module->text, module->text_size);
    fp8c_tuning_destroy(t);
    return (fp8c_status)status;
}

f8_status f8_tune_finish(fp8c_tuning *t, f8_diag *diag)
{
    F8_TRY(f8_tune_time(t, diag));
    F8_TRY(f8_tune_choose(t, diag));
    for (size_t i = 0; i < t->n; i++) /* where nothing is chosen yet */
        if (!(t->problem[i].model_seconds > 0))
            t->problem[i].model_seconds = t->problem[i].seconds =
                t->problem[i].candidate[0].seconds;
    qsort(t->problem, t->n, sizeof *t->problem, by_seconds);
    return F8_OK;
}

fp8c_status f8_tune_module(fp8c_context *ctx, const fp8c_module *module,
                           const fp8c_tune_options *options, bool gemms, fp8c_tuning **out)
{
    f8_diag diag = {0};
    fp8c_tuning *t;
    const fp8c_status opened = f8_tune_open(ctx, module, options, gemms, &t);
    *out = NULL;
    if (opened != FP8C_OK)
        return opened;
    const f8_status status = f8_tune_finish(t, &diag);
    if (status == F8_OK) {
        *out = t;
        return FP8C_OK;
    }
    if (diag.status != F8_OK) /* otherwise a compile has left its message */
        f8_api_fail(ctx, &diag, status, module->text, module->text_size);
    fp8c_tuning_destroy(t);
    return (fp8c_status)status;
}

/* ---- what was found ---- */

void fp8c_tuning_report(const fp8c_tuning *t, fp8c_tuning_info *out)
{
    fp8c_tuning_info own = {.struct_size = sizeof own,
                            .database = t->o.database,
                            .device = t->keys.device,
                            .problems = (int32_t)t->n,
                            .timed = t->timed,
                            .kept = t->kept,
                            .changed_bits = t->changed_bits,
                            .untuned_seconds = t->untuned_seconds,
                            .tuned_seconds = t->tuned_seconds,
                            .finished = t->finished};
    for (size_t i = 0; i < t->n; i++)
        own.chosen += t->problem[i].chosen > 0;
    f8_api_give(out, &own);
}

fp8c_status fp8c_tuning_problem(const fp8c_tuning *t, int index, fp8c_tuned *out)
{
    if (index < 0 || (size_t)index >= t->n)
        return FP8C_ERR_INPUT;
    const tune_problem *p = &t->problem[index];
    *out = (fp8c_tuned){.problem = p->text,
                        .name = p->name,
                        .candidate = p->candidate[p->chosen > 0 ? p->chosen : 0].text,
                        .gemm = p->gemm,
                        .count = p->count,
                        .candidates = p->n,
                        .model_seconds = p->model_seconds,
                        .seconds = p->seconds};
    return FP8C_OK;
}

fp8c_status fp8c_tuning_candidate(const fp8c_tuning *t, int index, int candidate, const char **text,
                                  double *seconds)
{
    if (index < 0 || (size_t)index >= t->n || candidate < 0 || candidate >= t->problem[index].n)
        return FP8C_ERR_INPUT;
    *text = t->problem[index].candidate[candidate].text;
    *seconds = t->problem[index].candidate[candidate].seconds;
    return FP8C_OK;
}

fp8c_status fp8c_program_choice(const fp8c_program *p, int index, fp8c_choice *out)
{
    const f8_plan *plan = &p->now->plan;
    if (index < 0 || (uint32_t)index >= plan->n_choices)
        return FP8C_ERR_INPUT;
    const f8_plan_choice *c = &plan->choice[index];
    *out = (fp8c_choice){.problem = c->problem,
                         .candidate = c->candidate,
                         .tuned = (int32_t)c->source,
                         .gemm = !strncmp(c->problem, "gemm ", 5)};
    for (uint32_t f = 0; f < plan->n_funcs; f++)
        for (uint32_t i = 0; i < plan->func[f].n_steps; i++) {
            const f8_step *s = &plan->func[f].step[i];
            out->count += s->choice == (uint32_t)index + 1;
            for (uint32_t n = 0; n < s->n_phases; n++)
                out->count += s->phase[n].choice == (uint32_t)index + 1;
        }
    return FP8C_OK;
}
