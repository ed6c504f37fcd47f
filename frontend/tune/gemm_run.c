/* Tuning a module or a GEMM that comes from none, and lists of those: see fp8c_tune.h, gemms.h. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "frontend/tune/gemms.h"
#include "frontend/tune/tune.h"
#include "ir/base/clock.h"
#include "ir/base/format.h"

/* ---- one GEMM ---- */

static f8_status read_gemm(const char *text, const fp8c_context *ctx, f8_tune_gemm *out,
                           f8_diag *diag)
{
    f8_tune_gemms list = {0};
    f8_arena_init(&list.arena, &ctx->allocator);
    f8_status status = f8_tune_gemms_parse(&list, text, diag);
    if (status == F8_OK && list.n > 1)
        status = f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "'%s' are %zu GEMMs; one call tunes one",
                         text, list.n);
    if (status == F8_OK) {
        *out = list.gemm[0];
        out->name = "";
    }
    f8_arena_end(&list.arena);
    return status;
}

/* Whether this machine has memory for the products. On a GPU the allocation says so itself. */
static f8_status check_memory(const f8_tune_gemm *g, const char *target, f8_diag *diag)
{
    const bool cpu = !target || !strncmp(target, "cpu", 3);
    const double need = f8_tune_gemm_bytes(g) * f8_tune_gemm_copies(g),
                 have = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    char text[F8_TUNE_GEMM_TEXT];
    if ((!cpu || need <= have) && need < (double)F8_MOST_BYTES)
        return F8_OK;
    return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                   "GEMM %s needs %.1f GiB for its operands and its result; this machine has %.1f "
                   "GiB of memory",
                   f8_tune_gemm_text(g, text), need / (1 << 30), have / (1 << 30));
}

fp8c_status f8_tune_one(fp8c_context *ctx, const fp8c_tune_options *options, fp8c_tuning **out)
{
    f8_tune_gemm g = {0};
    f8_diag diag = {0};
    fp8c_module *module = NULL;
    fp8c_tune_options own = {.struct_size = sizeof own};
    fp8c_compile_options compile = {.struct_size = sizeof compile}, given = compile;
    f8_status read = f8_api_options(&own, options, "fp8c_tune_options", &diag);
    if (read == F8_OK)
        read = f8_api_options(&given, own.compile, "fp8c_compile_options", &diag);
    if (read == F8_OK)
        read = read_gemm(own.gemm ? own.gemm : "", ctx, &g, &diag);
    if (read == F8_OK)
        read = check_memory(&g, given.target, &diag);
    if (read != F8_OK)
        return f8_api_result(ctx, &diag, read);
    compile.target = given.target;
    compile.threads = given.threads;
    compile.device = given.device;
    compile.inference = 1;
    compile.recipe = "f32"; /* which changes no dtype of the module */
    own.compile = &compile;
    own.only = NULL;
    own.kernels = NULL;
    fp8c_status status = f8_tune_gemm_module(ctx, &g, &module);
    if (status == FP8C_OK)
        status = f8_tune_module(ctx, module, &own, true, out);
    if (*out)
        (*out)->module = NULL;
    fp8c_module_destroy(module);
    return status;
}

fp8c_status fp8c_tune(fp8c_context *ctx, const fp8c_module *module,
                      const fp8c_tune_options *options, fp8c_tuning **out)
{
    *out = NULL;
    return module ? f8_tune_module(module->ctx, module, options, false, out)
                  : f8_tune_one(ctx, options, out);
}

/* ---- a list ---- */

fp8c_status f8_tune_gather(fp8c_context *ctx, const f8_tune_sources *from, f8_tune_gemms *list)
{
    f8_diag diag = {0};
    f8_status status = F8_OK;
    *list = (f8_tune_gemms){0};
    f8_arena_init(&list->arena, &ctx->allocator);
    for (size_t i = 0; i < from->n_specs && status == F8_OK; i++)
        status = f8_tune_gemms_parse(list, from->spec[i], &diag);
    for (size_t i = 0; i < from->n_files && status == F8_OK; i++)
        status = f8_tune_gemms_read(list, from->file[i], &diag);
    for (size_t i = 0; i < from->n_suites && status == F8_OK; i++)
        status = f8_tune_gemms_suite(list, from->suite[i], &diag);
    return f8_api_result(ctx, &diag, status);
}

f8_tune_run f8_tune_begin(fp8c_context *ctx, f8_tune_gemms *list, const fp8c_tune_options *options)
{
    return (f8_tune_run){.ctx = ctx,
                         .list = list,
                         .options = options,
                         .start = f8_seconds_now(),
                         .problems = (int64_t)list->n};
}

static f8_tuned_gemm describe(const f8_tune_gemm *g, f8_arena *arena)
{
    char text[F8_TUNE_GEMM_TEXT];
    bool transposed[2];
    static const char *const layouts[] = {"nn", "nt", "tn", "tt"};
    f8_tune_transposed(g, transposed);
    return (f8_tuned_gemm){.problem = f8_arena_strdup(arena, f8_tune_gemm_text(g, text)),
                           .name = g->name,
                           .m = g->m,
                           .n = g->n,
                           .k = g->k,
                           .count = g->count,
                           .a = f8_dtype_name(g->a),
                           .b = f8_dtype_name(g->b),
                           .scaling = f8_dtype_is_fp8(g->a)
                                          ? f8_tune_word(F8_TUNE_SCALING, g->how[F8_TUNE_SCALING])
                                          : "none",
                           .role = f8_tune_word(F8_TUNE_ROLE, g->how[F8_TUNE_ROLE]),
                           .epilogue = f8_tune_word(F8_TUNE_EPILOGUE, g->how[F8_TUNE_EPILOGUE]),
                           .layout = layouts[2 * transposed[0] + transposed[1]],
                           .model_seconds = NAN,
                           .seconds = NAN,
                           .flops = NAN};
}

/* What was found of the GEMM, the only problem of the tuning. */
static void take(f8_tune_run *run, const fp8c_tuning *t, f8_tuned_gemm *result)
{
    fp8c_tuned x;
    fp8c_tuning_info info = {.struct_size = sizeof info};
    f8_arena *arena = &run->list->arena;
    fp8c_tuning_report(t, &info);
    f8_format(run->device, sizeof run->device, "%s", info.device);
    f8_format(run->database, sizeof run->database, "%s", info.database);
    if (fp8c_tuning_problem(t, 0, &x) != FP8C_OK || !(x.seconds > 0)) {
        result->state = "out of time";
        run->out_of_time++;
        return;
    }
    result->gemm = f8_arena_strdup(arena, x.problem);
    result->candidate = f8_arena_strdup(arena, x.candidate);
    result->model_seconds = x.model_seconds / x.count;
    result->seconds = x.seconds / x.count;
    result->flops =
        2. * (double)result->m * (double)result->n * (double)result->k / result->seconds;
    result->state = "timed";
    run->timed++;
    run->chosen += info.chosen;
    run->model_seconds += result->model_seconds * (double)result->count;
    run->seconds += result->seconds * (double)result->count;
}

static void note_lacking(f8_tune_run *run, f8_tuned_gemm *result)
{
    static const char begin[] = "error: ";
    const char *why = fp8c_context_message(run->ctx);
    why += strncmp(why, begin, sizeof begin - 1) ? 0 : sizeof begin - 1;
    result->state = "lacking";
    result->reason = f8_arena_strndup(&run->list->arena, why, strcspn(why, "\n"));
    run->why = run->why ? run->why : result->reason;
    run->lacking++;
}

fp8c_status f8_tune_next(f8_tune_run *run, size_t index, f8_tuned_gemm *result, fp8c_tuning **out)
{
    fp8c_tune_options own = *run->options;
    f8_diag diag = {0};
    *out = NULL;
    *result = describe(&run->list->gemm[index], &run->list->arena);
    const f8_status made = f8_arena_status(&run->list->arena, &diag);
    if (made != F8_OK)
        return f8_api_result(run->ctx, &diag, made);
    own.gemm = result->problem;
    if (own.seconds > 0) {
        own.seconds -= f8_seconds_now() - run->start;
        if (!(own.seconds > 0)) {
            result->state = "out of time";
            run->out_of_time++;
            return FP8C_OK;
        }
    }
    const fp8c_status status = f8_tune_one(run->ctx, &own, out);
    if (status == FP8C_OK)
        take(run, *out, result);
    else if (status == FP8C_ERR_UNSUPPORTED || status == FP8C_ERR_MEMORY)
        note_lacking(run, result);
    else
        return status;
    return f8_api_result(run->ctx, &diag, f8_arena_status(&run->list->arena, &diag));
}
