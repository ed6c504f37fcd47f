/* A process that measures GEMMs: see list.h. */
#include "frontend/measure/session.h"

#include <math.h>
#include <string.h>

/* ---- begin and end ---- */

/* Compile a program of the target, which answers for its machine. */
static fp8c_status open_probe(f8_measure_session *s)
{
    const f8_tune_gemm small = {.m = 16, .n = 16, .k = 16, .a = F8_F32, .b = F8_F32, .count = 1};
    fp8c_module *module = NULL;
    fp8c_status status = f8_tune_gemm_module(s->ctx, &small, 1, &module);
    if (status == FP8C_OK)
        status = fp8c_compile(module, &s->compile, &s->probe);
    fp8c_module_destroy(module);
    return status;
}

static f8_status describe(f8_measure_session *s, f8_diag *diag)
{
    f8_tuning_keys keys;
    f8_gemm_lib *gemms = NULL;
    if (!f8_tuning_device(s->probe, &keys))
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "no device here runs target %s: there is nothing to time",
                       s->probe->target->name);
    const f8_status status = f8_tuning_versions(s->probe, &gemms, &keys, diag);
    f8_gemm_lib_destroy(gemms);
    F8_TRY(status);
    if (s->how.peers && s->probe->target->kind == F8_TARGET_CPU)
        F8_TRY(f8_peers_open(&s->ctx->allocator, s->probe->threads, &s->peers, diag));
    F8_TRY(f8_measure_describe(
        s->probe, s->how.commit, s->how.command, f8_inputs_name(s->how.inputs), keys.gemm_versions,
        s->peers ? f8_peers_describe(s->peers) : "", &s->set->arena, &s->set->about, diag));
    s->caches = f8_measure_cache_bytes("");
    F8_TRY(f8_measure_begin(&s->set->arena, &s->process, diag));
    f8_measure_find_clocks(s->probe, &s->process.begin);
    return f8_measure_find_limits(s->probe, &s->process.before, diag);
}

static fp8c_status open_session(fp8c_context *ctx, const f8_measure_how *how, int64_t problems,
                                f8_measure_set *set, f8_measure_session *s)
{
    f8_diag diag = {0};
    *s = (f8_measure_session){.ctx = ctx, .how = *how, .set = set};
    s->until = how->seconds > 0 ? f8_seconds_now() + how->seconds : 0;
    s->how.runs = how->runs ? how->runs : 7;
    s->compile = (fp8c_compile_options){.struct_size = sizeof s->compile,
                                        .target = how->compile->target,
                                        .threads = how->compile->threads,
                                        .device = how->compile->device,
                                        .inference = 1,
                                        .recipe = "f32"}; /* which changes no dtype of a module */
    s->progress = f8_progress_begin(&ctx->progress, "tune", problems);
    fp8c_status status = open_probe(s);
    if (status == FP8C_OK)
        status = f8_api_result(ctx, &diag, describe(s, &diag));
    if (status != FP8C_OK) {
        fp8c_program_destroy(s->probe);
        f8_peers_close(s->peers);
    }
    return status;
}

static f8_status see_again(f8_measure_session *s, f8_diag *diag)
{
    f8_measure_find_clocks(s->probe, &s->process.end);
    if (s->measured) {
        F8_TRY(f8_measure_find_limits(s->probe, &s->process.after, diag));
        F8_TRY(f8_measure_add_process(s->set, &s->process, diag));
        F8_TRY(f8_measure_keep_process(s, diag));
    }
    return f8_progress_at(&s->progress, s->progress.total, "", diag);
}

static fp8c_status close_session(f8_measure_session *s, bool ok)
{
    f8_diag diag = {0};
    const f8_status status = ok ? see_again(s, &diag) : F8_OK;
    fp8c_program_destroy(s->probe);
    f8_peers_close(s->peers);
    return f8_api_result(s->ctx, &diag, status);
}

_Static_assert((int)F8_MEASURE_RUNS == (int)TUNE_RUNS, "a candidate has as many runs in both");

/* ---- one GEMM ---- */

static f8_measure_problem describe_gemm(const f8_tune_gemm *g, f8_arena *arena)
{
    char text[F8_TUNE_GEMM_TEXT];
    bool transposed[2];
    static const char *const layouts[] = {"nn", "nt", "tn", "tt"};
    f8_tune_transposed(g, transposed);
    return (f8_measure_problem){
        .text = f8_arena_strdup(arena, f8_tune_gemm_text(g, text)),
        .name = g->name,
        .m = g->m,
        .n = g->n,
        .k = g->k,
        .count = g->count,
        .a = f8_dtype_name(g->a),
        .b = f8_dtype_name(g->b),
        .scaling =
            f8_dtype_is_fp8(g->a) ? f8_tune_word(F8_TUNE_SCALING, g->how[F8_TUNE_SCALING]) : "none",
        .role = f8_tune_word(F8_TUNE_ROLE, g->how[F8_TUNE_ROLE]),
        .epilogue = f8_tune_word(F8_TUNE_EPILOGUE, g->how[F8_TUNE_EPILOGUE]),
        .layout = layouts[2 * transposed[0] + transposed[1]],
        .flops = 2. * (double)g->m * (double)g->n * (double)g->k,
        .bytes = f8_tune_gemm_bytes(g)};
}

/* Add that nothing was measured, and why. */
static f8_status add_none(f8_measure_session *s, const f8_measure_problem *problem, bool cold,
                          f8_measure_state state, const char *reason, f8_diag *diag)
{
    const f8_measurement m = {.problem = *problem,
                              .cache = cold ? "cold" : "warm",
                              .candidate = "model",
                              .operands = "",
                              .kind = F8_MEASURE_MODEL,
                              .state = state,
                              .reason = reason,
                              .unit = "",
                              .same_bits = F8_MEASURE_UNKNOWN,
                              .error = NAN,
                              .compile_seconds = NAN};
    return f8_measure_add(s->set, &m, diag);
}

/* The first line of the context's message, without "error: ". */
static const char *why_not(const f8_measure_session *s)
{
    static const char begin[] = "error: ";
    const char *why = fp8c_context_message(s->ctx);
    why += strncmp(why, begin, sizeof begin - 1) ? 0 : sizeof begin - 1;
    return f8_arena_strndup(&s->set->arena, why, strcspn(why, "\n"));
}

/* Open the tuner on a module of so many products. FP8C_ERR_UNSUPPORTED also if the compiler makes
 * no GEMM of them. */
static fp8c_status open_tuner(f8_measure_session *s, const f8_tune_gemm *g, int copies,
                              fp8c_module **module, fp8c_tuning **t)
{
    f8_diag diag = {0};
    const fp8c_tune_options options = {.struct_size = sizeof options,
                                       .compile = &s->compile,
                                       .database = s->how.database,
                                       .runs = s->how.runs,
                                       .same_bits = s->how.same_bits,
                                       .again = 1};
    fp8c_status status =
        f8_api_result(s->ctx, &diag, f8_tune_gemm_fits(g, copies, s->compile.target, &diag));
    if (status == FP8C_OK)
        status = f8_tune_gemm_module(s->ctx, g, copies, module);
    if (status == FP8C_OK)
        status = f8_tune_open(s->ctx, *module, &options, true, t);
    if (status == FP8C_OK && (*t)->n != 1) {
        f8_fail(&diag, F8_ERR_UNSUPPORTED, F8_NOWHERE, "the compiler makes %zu GEMMs of it",
                (*t)->n);
        status = f8_api_result(s->ctx, &diag, diag.status);
    }
    return status;
}

static fp8c_status measure(f8_measure_session *s, const f8_tune_gemm *g,
                           const f8_measure_problem *problem, bool cold)
{
    const int copies = cold ? f8_tune_gemm_copies(g, F8_TUNE_COLD_BYTES) : 1;
    fp8c_module *module = NULL;
    fp8c_tuning *t = NULL;
    f8_diag diag = {0};
    fp8c_status status = open_tuner(s, g, copies, &module, &t);
    if (status == FP8C_ERR_UNSUPPORTED || status == FP8C_ERR_MEMORY)
        status = f8_api_result(s->ctx, &diag,
                               add_none(s, problem, cold, F8_MEASURE_LACKING, why_not(s), &diag));
    else if (status == FP8C_OK)
        status =
            f8_api_result(s->ctx, &diag, f8_measure_ways(s, g, problem, t, copies, cold, &diag));
    fp8c_tuning_destroy(t);
    fp8c_module_destroy(module);
    return status;
}

static fp8c_status measure_gemm(f8_measure_session *s, const f8_tune_gemm *g)
{
    f8_diag diag = {0};
    const f8_measure_problem problem = describe_gemm(g, &s->set->arena);
    fp8c_status status = f8_api_result(s->ctx, &diag, f8_arena_status(&s->set->arena, &diag));
    for (int cold = 1; cold >= 0 && status == FP8C_OK; cold--) {
        if (cold ? !s->how.cold : !s->how.warm)
            continue;
        status = f8_measure_late(s)
                     ? f8_api_result(s->ctx, &diag,
                                     add_none(s, &problem, cold, F8_MEASURE_LATE, "", &diag))
                     : measure(s, g, &problem, cold);
    }
    s->done++;
    return status;
}

fp8c_status f8_measure_list(fp8c_context *ctx, const f8_tune_gemms *list, const f8_measure_how *how,
                            f8_measure_set *set)
{
    const int64_t all = how->processes > how->ordinal ? how->processes : how->ordinal;
    const size_t first = (size_t)((how->ordinal - 1) * (int64_t)list->n / all);
    f8_measure_session s;
    fp8c_status status = open_session(ctx, how, (int64_t)list->n, set, &s);
    if (status != FP8C_OK)
        return status;
    for (size_t i = 0; i < list->n && status == FP8C_OK; i++)
        status = measure_gemm(&s, &list->gemm[(first + i) % list->n]);
    const fp8c_status closed = close_session(&s, status == FP8C_OK);
    return status == FP8C_OK ? closed : status;
}
