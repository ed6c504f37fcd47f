/* A burn: the calls of fp8c_diagnose.h, and the rounds. See burn.h. */
#include "frontend/doctor/burn.h"

#include <math.h>
#include <string.h>

#include "ir/base/clock.h"

/* ---- rounds ---- */

/* How fast GEMMs are in the first quarter of the time, and in the last. Only the time in which they
 * run counts: comparing, and how often they run before it, change nothing. */
typedef struct pace {
    double seconds, start; /* of the burn */
    double first[2];       /* flops and seconds of GEMMs when the first round had ended */
    double last[2];        /* when the last round had ended that ended in three quarters */
} pace;

/* Of the GEMMs since `from`; 0: there were none. */
static double rate_since(const fp8c_burn *b, const double from[2])
{
    const double seconds = b->gemm_seconds - from[1];
    return seconds > 0 ? (b->gemm_flops - from[0]) / seconds : 0;
}

static void mark(const fp8c_burn *b, double at[2])
{
    at[0] = b->gemm_flops;
    at[1] = b->gemm_seconds;
}

/* The first round is left out where there are more: it runs everything for the first time. */
static void note_round(fp8c_burn *b, pace *p)
{
    const double now = f8_seconds_now() - p->start;
    if (++b->info.rounds == 1)
        mark(b, p->first);
    else if (!(b->info.first_flops > 0) && now >= p->seconds / 4)
        b->info.first_flops = rate_since(b, p->first);
    b->info.last_flops = rate_since(b, p->last);
    if (now < p->seconds * 3 / 4)
        mark(b, p->last);
}

/* Whether to go on. The callback hears whole seconds. */
static bool goes_on(const fp8c_burn *b, const pace *p, const char *item, bool more)
{
    const double left = p->seconds - (f8_seconds_now() - p->start);
    const int64_t total = (int64_t)ceil(p->seconds), passed = total - (int64_t)ceil(left);
    const f8_progress_state s = {.phase = "burn",
                                 .item = more ? item : "",
                                 .done = !more || passed < 0 ? total * !more
                                         : passed < total    ? passed
                                                             : total - 1,
                                 .total = total,
                                 .seconds_left = left > 0 ? left : 0};
    return !b->ctx->progress.fn || !b->ctx->progress.fn(b->ctx->progress.user, &s);
}

/* The runs before a comparison: *seconds is the time that they took. */
static fp8c_status run_functions(const f8_burn_job *j, double *seconds)
{
    const double start = f8_seconds_now();
    fp8c_status status = FP8C_OK;
    for (int n = 0; n < j->repeats; n++)
        for (int i = 0; i < j->n_functions && status == FP8C_OK; i++)
            status = fp8c_program_run(j->program, j->function[i]);
    if (status == FP8C_OK)
        status = fp8c_program_wait(j->program);
    *seconds = f8_seconds_now() - start;
    return status;
}

/* Where results must be fetched to be compared, the job runs so often that it is under load for
 * nine tenths of the time, but not for so long that few results would be compared. */
static void set_repeats(f8_burn_job *j, double busy, double idle)
{
    enum { MOST = 1000 };
    static const double longest = 0.25; /* seconds */
    const double one = busy / j->repeats, wanted = !j->memory ? 1 : fmin(9 * idle, longest) / one;
    j->repeats = !(wanted > 1) ? 1 : wanted > MOST ? MOST : (int)wanted;
}

static f8_status run_job(fp8c_burn *b, f8_burn_job *j, f8_diag *diag)
{
    const double start = f8_seconds_now();
    double busy = 0;
    for (int i = 0; i < j->n; i++)
        f8_burn_spoil(b, &b->item[j->first + i]);
    fp8c_status status = f8_burn_send(b, j);
    if (status == FP8C_OK)
        status = run_functions(j, &busy);
    if (status == FP8C_OK)
        status = f8_burn_fetch(b, j);
    if (status != FP8C_OK) {
        b->info.failure = f8_arena_strdup(&b->arena, fp8c_context_message(b->ctx));
        return f8_arena_status(&b->arena, diag);
    }
    b->info.runs += j->repeats;
    b->gemm_seconds += j->flops > 0 ? busy : 0;
    b->gemm_flops += j->flops * j->repeats;
    b->info.busy += busy;
    for (int i = 0; i < j->n; i++)
        F8_TRY(f8_burn_compare(b, &b->item[j->first + i], diag));
    set_repeats(j, busy, f8_seconds_now() - start - busy);
    return F8_OK;
}

/* *stop: the callback said so, or a run failed. */
static f8_status run_round(fp8c_burn *b, const pace *p, bool *stop, f8_diag *diag)
{
    for (int i = 0; i < b->n_jobs; i++) {
        f8_burn_job *j = &b->job[i];
        *stop = !goes_on(b, p, j->name, true);
        if (*stop)
            return F8_OK;
        if (!j->program)
            continue;
        F8_TRY(run_job(b, j, diag));
        *stop = b->info.failure != NULL;
        if (*stop)
            return F8_OK;
    }
    return F8_OK;
}

static f8_status burn(fp8c_burn *b, f8_diag *diag)
{
    pace p = {.seconds = b->options.seconds, .start = f8_seconds_now()};
    bool stop = false;
    f8_status status = F8_OK;
    while (status == F8_OK && !stop && !b->info.finished) {
        status = run_round(b, &p, &stop, diag);
        b->info.finished = !stop && f8_seconds_now() - p.start >= p.seconds;
        if (status == F8_OK && !stop)
            note_round(b, &p);
    }
    b->info.seconds = f8_seconds_now() - p.start;
    if (!(b->info.first_flops > 0)) /* there were no two rounds in a quarter of the time */
        b->info.first_flops = rate_since(b, (double[2]){0});
    goes_on(b, &p, "", false);
    return status;
}

/* ---- the calls ---- */

static f8_status set_options(fp8c_burn *b, const fp8c_burn_options *given, f8_diag *diag)
{
    b->options.struct_size = sizeof b->options;
    F8_TRY(f8_api_options(&b->options, given, "fp8c_burn_options", diag));
    fp8c_burn_options *o = &b->options;
    if (o->seconds < 0 || !isfinite(o->seconds))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "seconds is %g: a burn needs some",
                       o->seconds);
    if (o->threads < 0 || o->threads > F8_POOL_MAX_THREADS)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "threads is %d: 1 to %d, or 0", o->threads,
                       F8_POOL_MAX_THREADS);
    o->seconds = o->seconds > 0 ? o->seconds : 10;
    o->target = f8_arena_strdup(&b->arena, o->target ? o->target : "cpu");
    b->info.target = o->target;
    F8_TRY(f8_arena_status(&b->arena, diag));
    const f8_pool_options pool = {.n_threads = f8_api_threads(b->ctx, o->threads),
                                  .parallel = b->ctx->parallel.run ? &b->ctx->parallel : NULL,
                                  .allocator = &b->ctx->allocator};
    F8_TRY(f8_pool_create(&pool, &b->pool, diag));
    b->info.threads = f8_pool_threads(b->pool);
    return F8_OK;
}

fp8c_status fp8c_doctor_burn(fp8c_context *ctx, const fp8c_burn_options *options, fp8c_burn **out)
{
    f8_diag diag = {0};
    *out = NULL;
    fp8c_burn *b = f8_api_new(ctx, sizeof *b, 16, &diag);
    if (!b)
        return f8_api_result(ctx, &diag, diag.status);
    b->ctx = ctx;
    b->info.struct_size = sizeof b->info;
    f8_arena_init(&b->arena, &ctx->allocator);
    fp8c_status status = f8_api_result(ctx, &diag, set_options(b, options, &diag));
    if (status == FP8C_OK)
        status = f8_burn_prepare(b);
    if (status == FP8C_OK)
        status = f8_api_result(ctx, &diag, burn(b, &diag));
    if (status != FP8C_OK) {
        fp8c_burn_destroy(b);
        return status;
    }
    *out = b;
    return FP8C_OK;
}

void fp8c_burn_destroy(fp8c_burn *b)
{
    if (!b)
        return;
    for (int i = 0; i < b->n_jobs; i++)
        fp8c_program_destroy(b->job[i].program);
    for (int i = 0; i < b->n_jobs; i++)
        fp8c_program_destroy(b->job[i].memory);
    f8_pool_destroy(b->pool);
    f8_arena_end(&b->arena);
    f8_api_delete(b->ctx, b, sizeof *b);
}

void fp8c_burn_report(const fp8c_burn *b, fp8c_burn_info *out)
{
    f8_api_give(out, &b->info);
}

fp8c_status fp8c_burn_result_at(const fp8c_burn *b, int index, fp8c_burn_result *out)
{
    if (index < 0 || index >= b->n_items)
        return FP8C_ERR_INPUT;
    const f8_burn_item *i = &b->item[index];
    const fp8c_burn_result result = {.struct_size = sizeof result,
                                     .name = i->name,
                                     .step = i->step,
                                     .skipped = i->skipped,
                                     .comparisons = i->comparisons,
                                     .wrong = i->wrong,
                                     .first = i->first,
                                     .first_round = i->first_round,
                                     .first_element = i->first_element,
                                     .first_count = i->first_count};
    f8_api_give(out, &result);
    return FP8C_OK;
}
