/* Tuning: see fp8c_tune.h and tune.h. */
#include "frontend/tune/tune.h"

#include <ctype.h>
#include <stdio.h>
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

static f8_status tune(fp8c_tuning *t, f8_diag *diag)
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
    F8_TRY(t->base->now->instance.kind->init(&t->base->now->instance, 1, NULL, diag));
    F8_TRY(f8_tune_time(t, diag));
    F8_TRY(f8_tune_choose(t, diag));
    qsort(t->problem, t->n, sizeof *t->problem, by_seconds);
    return F8_OK;
}

static fp8c_status begin(fp8c_context *ctx, const fp8c_module *module,
                         const fp8c_tune_options *options, fp8c_tuning **out)
{
    f8_diag diag = {0};
    *out = NULL;
    fp8c_tuning *t = f8_api_new(ctx, sizeof *t, 64, &diag);
    if (!t)
        return f8_api_result(ctx, &diag, diag.status);
    *t = (fp8c_tuning){.ctx = ctx, .module = module, .finished = true, .start = f8_seconds_now()};
    f8_arena_init(&t->arena, &ctx->allocator);
    t->o.struct_size = sizeof t->o;
    t->compile.struct_size = sizeof t->compile;
    f8_status status = f8_api_options(&t->o, options, "fp8c_tune_options", &diag);
    if (status == F8_OK)
        status = f8_api_options(&t->compile, t->o.compile, "fp8c_compile_options", &diag);
    t->compile.profile = 1;
    t->o.database = t->o.database ? t->o.database : ctx->settings.tuning;
    if (status == F8_OK)
        status = tune(t, &diag);
    if (status == F8_OK) {
        *out = t;
        return FP8C_OK;
    }
    if (diag.status != F8_OK) /* otherwise a compile has left its message */
        f8_api_fail(ctx, &diag, status, module->text, module->text_size);
    fp8c_tuning_destroy(t);
    return (fp8c_status)status;
}

/* ---- one GEMM ---- */

enum { COLD_BYTES = 64 << 20, MOST_COPIES = 8 };

typedef struct gemm_text {
    int64_t m, n, k;
    fp8c_dtype dtype;
} gemm_text;

static bool parse_gemm(const char *text, gemm_text *g)
{
    static const fp8c_dtype dtypes[] = {FP8C_F32, FP8C_BF16, FP8C_F8E4M3, FP8C_F8E5M2};
    int64_t *const size[] = {&g->m, &g->n, &g->k};
    for (int i = 0; i < 3; i++) {
        char *end;
        if (!isdigit((unsigned char)*text))
            return false;
        *size[i] = strtoll(text, &end, 10);
        if (*size[i] < 1 || *size[i] > INT32_MAX || *end != (i < 2 ? 'x' : ':'))
            return false;
        text = end + 1;
    }
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (!strcmp(text, fp8c_name(FP8C_NAME_DTYPE, dtypes[i]))) {
            g->dtype = dtypes[i];
            return true;
        }
    return false;
}

/* Add one product to the function, with operands of its own. */
static void add_product(fp8c_module *m, const gemm_text *g, int copy)
{
    const fp8c_type a = {g->dtype, 2, {g->m, g->k}}, b = {g->dtype, 2, {g->n, g->k}},
                    one = {FP8C_F32, 0, {0}};
    const bool fp8 = g->dtype == FP8C_F8E4M3 || g->dtype == FP8C_F8E5M2;
    const fp8c_attr turned = {.name = "transpose_b", .kind = FP8C_ATTR_BOOL, .i = 1};
    char name[4][24];
    static const char *const base[] = {"a", "b", "a_scale", "b_scale"};
    for (int i = 0; i < 4; i++)
        snprintf(name[i], sizeof name[i], "%s.%d", base[i], copy);
    fp8c_value in[4];
    int n = 0;
    in[n++] = fp8c_func_input(m, name[0], &a);
    if (fp8)
        in[n++] = fp8c_func_input(m, name[2], &one);
    in[n++] = fp8c_func_input(m, name[1], &b);
    if (fp8)
        in[n++] = fp8c_func_input(m, name[3], &one);
    char result[24];
    snprintf(result, sizeof result, "c.%d", copy);
    fp8c_func_result(m, result,
                     fp8c_func_op(m, fp8 ? "scaled_matmul" : "matmul", in, (size_t)n, &turned, 1));
}

/* Make as many products as take more memory than the caches have, within reason, so that a step
 * does not find its operands there. */
static fp8c_status make_module(fp8c_context *ctx, const gemm_text *g, fp8c_module **out)
{
    const fp8c_type a = {g->dtype, 2, {g->m, g->k}}, b = {g->dtype, 2, {g->n, g->k}};
    const int64_t bytes = fp8c_type_bytes(&a) + fp8c_type_bytes(&b) + 4 * g->m * g->n;
    int64_t copies = COLD_BYTES / (bytes + 1) + 1;
    copies = copies > MOST_COPIES ? MOST_COPIES : copies;
    fp8c_status status = fp8c_module_create(ctx, "gemm", out);
    if (status == FP8C_OK)
        status = fp8c_func_begin(*out, "forward");
    for (int i = 0; i < copies && status == FP8C_OK; i++)
        add_product(*out, g, i);
    return status == FP8C_OK ? fp8c_func_end(*out) : status;
}

static fp8c_status tune_gemm(fp8c_context *ctx, const fp8c_tune_options *options, fp8c_tuning **out)
{
    gemm_text g = {0};
    f8_diag diag = {0};
    fp8c_module *module = NULL;
    fp8c_tune_options own = {.struct_size = sizeof own};
    fp8c_compile_options compile = {.struct_size = sizeof compile}, given = compile;
    f8_status read = f8_api_options(&own, options, "fp8c_tune_options", &diag);
    if (read == F8_OK)
        read = f8_api_options(&given, own.compile, "fp8c_compile_options", &diag);
    if (read == F8_OK && !parse_gemm(own.gemm ? own.gemm : "", &g))
        read =
            f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE,
                    "GEMM '%s' is not MxNxK:FORMAT, as 2048x768x3072:f8e4m3 (or f32, bf16, f8e5m2)",
                    own.gemm ? own.gemm : "");
    if (read != F8_OK)
        return f8_api_result(ctx, &diag, read);
    compile.target = given.target;
    compile.threads = given.threads;
    compile.device = given.device;
    compile.inference = 1;
    compile.recipe =
        g.dtype == FP8C_F32 ? "f32" : NULL; /* otherwise its operands would be rounded to bf16 */
    own.compile = &compile;
    fp8c_status status = make_module(ctx, &g, &module);
    if (status == FP8C_OK)
        status = begin(ctx, module, &own, out);
    if (*out)
        (*out)->module = NULL;
    fp8c_module_destroy(module);
    return status;
}

fp8c_status fp8c_tune(fp8c_context *ctx, const fp8c_module *module,
                      const fp8c_tune_options *options, fp8c_tuning **out)
{
    *out = NULL;
    return module ? begin(module->ctx, module, options, out) : tune_gemm(ctx, options, out);
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
    *out = (fp8c_choice){.problem = c->problem, .candidate = c->candidate, .tuned = c->tuned,
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
