/* Collectives that go on while the run computes: the order of what happens, what programs say of
 * it, and the trace of a step. An engine stands for the second rank, which has what this one has.
 */
#include <jansson.h>
#include <time.h>

#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_ranks.h"
#include "frontend/program.h"
#include "frontend/diagnose/report/report.h"
#include "frontend/records/records.h"
#include "ir/base/clock.h"
#include "tests/shared/suite.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, CALLS = 256, VOCABULARY = 61 };

/* What the engine sees. Calls come from one thread, compute from another. */
typedef struct engine {
    pthread_mutex_t lock;
    pthread_cond_t computed;
    int64_t kernels;       /* parts of steps computed so far */
    int64_t before[CALLS]; /* by call: those computed when it began, if the run waits in it */
    bool hold[CALLS];      /* the call ends once more is computed than that */
    bool beside[CALLS];    /* it did end so */
    int calls;
    int patience_ms; /* how long a call is held */
    double sleep;    /* seconds that each call takes */
} engine;

static void wait_for_compute(engine *e, int call)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += e->patience_ms / 1000;
    until.tv_nsec += e->patience_ms % 1000 * 1000000;
    until.tv_sec += until.tv_nsec / 30000000;
    until.tv_nsec %= 30000000;
    while (e->kernels <= e->before[call])
        if (pthread_cond_timedwait(&e->computed, &e->lock, &until))
            return;
    e->beside[call] = true;
}

static void call_begins(engine *e)
{
    pthread_mutex_lock(&e->lock);
    const int call = e->calls++;
    if (call < CALLS && e->hold[call])
        wait_for_compute(e, call);
    else if (call < CALLS && !e->patience_ms)
        e->before[call] = e->kernels;
    pthread_mutex_unlock(&e->lock);
    const struct timespec t = {.tv_nsec = (long)(1e9 * e->sleep)};
    if (e->sleep > 0)
        nanosleep(&t, NULL);
}

static int all_gather(void *user, const void *send, void *receive, size_t bytes)
{
    call_begins(user);
    for (int r = 0; r < RANKS; r++)
        memcpy((char *)receive + (size_t)r * bytes, send, bytes);
    return 0;
}

static int all_to_all(void *user, const void *send, void *receive, size_t bytes)
{
    call_begins(user);
    memcpy(receive, send, RANKS * bytes);
    return 0;
}

/* The embedder's threads: this one. Each call is a part of a kernel or a GEMM. */
static void parallel(void *user, fp8c_task_fn task, void *job, int64_t n_tasks)
{
    engine *e = user;
    pthread_mutex_lock(&e->lock);
    e->kernels++;
    pthread_cond_broadcast(&e->computed);
    pthread_mutex_unlock(&e->lock);
    task(job, 0, 0, n_tasks);
}

/* ---- a rank ---- */

typedef struct rank {
    engine e;
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_program *program;
    int micro_step;
} rank;

static void fill(rank *r)
{
    fp8c_port at;
    for (int i = 0; fp8c_program_port(r->program, r->micro_step, FP8C_INPUT, i, &at) == FP8C_OK;
         i++) {
        if (at.variable >= 0)
            continue;
        int32_t *ids = fp8c_program_buffer(r->program, r->micro_step, FP8C_INPUT, i);
        for (int64_t k = 0; k < fp8c_type_bytes(&at.type) / 4; k++)
            ids[k] = (int32_t)((k * 7 + i) % VOCABULARY);
    }
}

static void open_rank(rank *r, int zero, bool on_caller)
{
    static const fp8c_dim dims[] = {{"B", 4}, {"T", 64}, {"V", VOCABULARY}};
    *r = (rank){.e = {.lock = PTHREAD_MUTEX_INITIALIZER, .computed = PTHREAD_COND_INITIALIZER}};
    const fp8c_context_options c = {.struct_size = sizeof c,
                                    .parallel = parallel,
                                    .parallel_user = &r->e,
                                    .parallel_threads = 1};
    const fp8c_comm comm = {.struct_size = sizeof comm,
                            .ranks = RANKS,
                            .user = &r->e,
                            .all_gather = all_gather,
                            .all_to_all = all_to_all,
                            .on_caller = on_caller};
    const fp8c_compile_options o = {.struct_size = sizeof o,
                                    .recipe = "delayed",
                                    .comm = &comm,
                                    .zero = zero ? zero : -1,
                                    .profile = 1};
    FILE *f = fopen("frontend/models/gpt.f8", "r");
    char text[16384];
    ck_assert_ptr_nonnull(f);
    const size_t size = fread(text, 1, sizeof text, f);
    fclose(f);
    ck_assert_int_eq(fp8c_context_create(&c, &r->ctx), FP8C_OK);
    ck_assert_msg(fp8c_module_parse(r->ctx, text, size, "gpt.f8", dims, sizeof dims / sizeof *dims,
                                    &r->module) == FP8C_OK &&
                      fp8c_compile(r->module, &o, &r->program) == FP8C_OK &&
                      fp8c_program_initialize(r->program, 1) == FP8C_OK,
                  "%s", fp8c_context_message(r->ctx));
    r->micro_step = fp8c_program_function(r->program, "micro_step");
    fill(r);
}

static void run(rank *r)
{
    r->e.calls = 0;
    r->e.kernels = 0;
    ck_assert_msg(fp8c_program_run(r->program, r->micro_step) == FP8C_OK, "%s",
                  fp8c_context_message(r->ctx));
    ck_assert_int_le(r->e.calls, CALLS);
}

static void close_rank(rank *r)
{
    fp8c_program_destroy(r->program);
    fp8c_module_destroy(r->module);
    fp8c_context_destroy(r->ctx);
}

/* ---- the order of events ---- */

/* Whether a kernel runs between collective `index` and the wait for it. The run may wait for
 * earlier ones before. A phase of one task does not come to `parallel`. */
static bool computes_next(const f8_plan_func *f, uint32_t index)
{
    for (uint32_t i = index + 1;
         i < f->n_steps && (f->step[i].kind != F8_STEP_WAIT || f->step[i].waits != index); i++)
        for (uint32_t k = 0; k < f->step[i].n_phases; k++)
            if (f->step[i].phase[k].n_tasks > 1)
                return true;
    return false;
}

/* Marks the calls of such collectives. *n: how many calls there are. */
static int mark(rank *r, int *n)
{
    const f8_plan_func *f = &r->program->now->plan.func[r->micro_step];
    int marked = 0;
    *n = 0;
    for (uint32_t i = 0; i < f->n_steps; i++)
        if (f->step[i].kind == F8_STEP_COLLECTIVE &&
            f8_collective_travels(f->step[i].collective.kind)) {
            r->e.hold[*n] = computes_next(f, i);
            marked += r->e.hold[(*n)++];
        }
    return marked;
}

/* What was computed when each call began: of a run that waits in each call. */
static void learn(rank *r, int zero)
{
    rank waiting;
    open_rank(&waiting, zero, true);
    run(&waiting); /* the first one also compares what the ranks run */
    run(&waiting);
    memcpy(r->e.before, waiting.e.before, sizeof r->e.before);
    ck_assert_int_gt(waiting.e.calls, 10);
    close_rank(&waiting);
}

static int counted(const rank *r)
{
    int n = 0;
    for (int i = 0; i < CALLS; i++)
        n += r->e.beside[i];
    return n;
}

/* A call of the engine ends only once a step is computed that stands behind the collective's start.
 * If the run waited at the start, that step would never come, and patience would end. */
START_TEST(starts_computes_waits)
{
    const int zero = _i;
    rank r;
    int calls;
    open_rank(&r, zero, false);
    run(&r);
    learn(&r, zero);
    const int marked = mark(&r, &calls);
    ck_assert_int_gt(marked, 3);
    r.e.patience_ms = 10000;
    run(&r);
    ck_assert_int_eq(r.e.calls, calls);
    ck_assert_msg(counted(&r) == marked, "stage %d: %d collectives go on beside a step, not %d",
                  zero, counted(&r), marked);
    close_rank(&r);
}
END_TEST

/* The same engine sees no step computed if the run waits in each call. */
START_TEST(waits_at_once)
{
    rank r;
    int calls;
    open_rank(&r, 3, true);
    run(&r);
    learn(&r, 3);
    ck_assert_int_gt(mark(&r, &calls), 3);
    r.e.patience_ms = 5;
    run(&r);
    ck_assert_int_eq(r.e.calls, calls);
    ck_assert_int_eq(counted(&r), 0);
    close_rank(&r);
}
END_TEST

/* ---- what programs say ---- */

/* The form of micro_step that runs while no update has. */
static int form_of(rank *r)
{
    int form;
    ck_assert_int_eq(fp8c_program_form(r->program, r->micro_step, &form), FP8C_OK);
    return form;
}

START_TEST(transfers)
{
    rank r;
    open_rank(&r, 3, _i);
    r.e.sleep = 1e-3;
    run(&r);
    int n = 0, beside = 0;
    const int ran = form_of(&r);
    fp8c_step s;
    for (int i = 0; fp8c_program_step(r.program, ran, i, &s) == FP8C_OK; i++) {
        const fp8c_collective t = s.collective;
        if (!t.wait)
            continue;
        fp8c_step wait;
        ck_assert_int_gt(t.wait, i);
        ck_assert_int_eq(fp8c_program_step(r.program, ran, t.wait, &wait), FP8C_OK);
        ck_assert_str_eq(wait.kind, "wait");
        ck_assert_str_eq(wait.name, s.name);
        ck_assert_int_eq(t.goes_on, !_i);
        ck_assert(s.seconds >= r.e.sleep && t.queued >= 0 && t.waited >= 0);
        beside += t.beside;
        n++;
    }
    ck_assert_int_gt(n, 20);
    ck_assert_int_gt(beside, n);
    close_rank(&r);
}
END_TEST

/* ---- the trace ---- */

static json_t *profile_of(rank *r)
{
    json_t *all = json_array();
    fp8c_step s;
    const int ran = form_of(r);
    for (int i = 0; fp8c_program_step(r->program, ran, i, &s) == FP8C_OK; i++)
        if (s.seconds > 0)
            json_array_append_new(all, f8_record_profile(r->program, ran, i, 1));
    return all;
}

typedef struct interval {
    double begin, end;
    int track;
    const char *kind;
} interval;

/* The event's time, if it is a step of the plan. */
static bool take(const json_t *event, interval *out)
{
    const char *kind = json_string_value(json_object_get(event, "cat"));
    if (!kind || !strcmp(kind, "function"))
        return false;
    out->begin = json_number_value(json_object_get(event, "ts"));
    out->end = out->begin + json_number_value(json_object_get(event, "dur"));
    out->track = (int)json_integer_value(json_object_get(event, "tid"));
    out->kind = kind;
    return true;
}

/* Pairs of a collective and a kernel or GEMM that are under way at one time. Checks the tracks. */
static int intersections(const json_t *events)
{
    size_t i, k;
    json_t *a, *b;
    interval x, y;
    int n = 0;
    double end[2] = {0};
    json_array_foreach (events, i, a) {
        if (!take(a, &x))
            continue;
        const bool collective = !strcmp(x.kind, "collective");
        ck_assert_int_eq(x.track, collective ? 2 : 1);
        ck_assert_msg(x.begin >= end[collective] - 1e-3, "two of one track at once");
        end[collective] = x.end;
        json_array_foreach (events, k, b)
            n += collective && take(b, &y) &&
                 (!strcmp(y.kind, "gemm") || !strcmp(y.kind, "kernel")) && x.begin < y.end &&
                 y.begin < x.end;
    }
    return n;
}

START_TEST(traced)
{
    rank r;
    f8_diag diag = {0};
    json_t *trace;
    open_rank(&r, 3, false);
    r.e.sleep = 1e-3;
    run(&r);
    f8_report_run one = {.name = (char *)"run", .profile = profile_of(&r)};
    const f8_report report = {.run = &one, .n = 1};
    ck_assert_msg(f8_report_trace(&report, &trace, &diag) == F8_OK, "%s", diag.text);
    const json_t *events = json_object_get(trace, "traceEvents");
    ck_assert_int_gt(intersections(events), 0);
    json_decref(trace);
    json_decref(one.profile);
    close_rank(&r);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("transfers");
    TCase *c = tcase_create("threads");
    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, starts_computes_waits, 0, 4);
    tcase_add_test(c, waits_at_once);
    tcase_add_loop_test(c, transfers, 0, 2);
    tcase_add_test(c, traced);
    suite_add_tcase(suite, c);
    return suite;
}
