/* Ranks with a GPU each that can't be joined, or that fail: each is an error that says what, on
 * every rank, and nobody waits for ever. Ranks are threads; the GPUs and NCCL are the emulator's.
 */
#include <unistd.h>

#include "frontend/fp8c_ranks.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/rank_gpu.h"
#include "tests/shared/api/rank_threads.h"
#include "tests/shared/cuda/embedder.h"
#include "tests/shared/suite.h"

enum { RANKS = 2 };

/* What each rank does, and what it said. */
typedef struct attempt {
    int device[RANKS]; /* of each rank */
    double seconds;
    int steps;   /* a rank trains so many steps */
    int leaves;  /* rank that leaves: 0: none; after its program is there: */
    bool aborts; /* and tells the others */
    fp8c_status status[RANKS], again[RANKS], open[RANKS];
    char said[RANKS][1024], said_again[RANKS][1024];
    bool watches;
    int told[RANKS], ended[RANKS]; /* of the GPU's collectives, what an observer was told */
} attempt;

/* What the observer of this thread's rank was told. */
static _Thread_local int told, ended;
static _Thread_local uint64_t newest;

static void observe(void *user, const fp8c_exchange *x, int32_t has_ended)
{
    ck_assert_ptr_nonnull(user);
    if (!x->enqueued) /* of host memory: what the ranks run is compared */
        return;
    ck_assert(!strcmp(x->op, "all_gather") || !strcmp(x->op, "all_to_all"));
    ck_assert(!strcmp(x->function, "micro_step") || !strcmp(x->function, "update"));
    ck_assert_int_gt((int)strlen(x->name), 0);
    ck_assert_int_gt(x->bytes, 0);
    if (has_ended)
        ck_assert_uint_eq(x->enqueued, newest);
    else
        ck_assert_uint_gt(x->enqueued, newest);
    newest = x->enqueued;
    told += !has_ended;
    ended += has_ended != 0;
}

static fp8c_status train_some(fp8c_program *p, int steps)
{
    const int step = fp8c_program_function(p, "micro_step"),
              update = fp8c_program_function(p, "update");
    fp8c_status status = fp8c_program_initialize(p, 1);
    for (int i = 0; i < steps && status == FP8C_OK; i++) {
        fill_batch(p, step);
        status = fp8c_program_run(p, step);
        if (status == FP8C_OK)
            status = fp8c_program_run(p, update);
    }
    return status;
}

static void attempt_rank(const fp8c_comm *comm, void *user)
{
    attempt *a = user;
    const int r = comm->rank;
    fp8c_context *ctx;
    fp8c_nccl *nccl = NULL;
    fp8c_module *m = NULL;
    fp8c_program *p = NULL;
    fp8c_comm own;
    const fp8c_nccl_options o = {
        .struct_size = sizeof o, .device = a->device[r], .over = comm, .seconds = a->seconds};
    own.struct_size = sizeof own;
    fp8c_context_create(NULL, &ctx);
    a->status[r] = a->open[r] = fp8c_nccl_open(ctx, &o, &own, &nccl);
    own.observe = a->watches ? observe : NULL;
    if (a->status[r] == FP8C_OK)
        a->status[r] = fp8c_module_parse(ctx, model, strlen(model), "tiny.f8", NULL, 0, &m);
    fp8c_compile_options c = recipe("bf16");
    c.target = "cuda";
    c.device = a->device[r];
    c.comm = &own;
    if (a->status[r] == FP8C_OK)
        a->status[r] = fp8c_compile(m, &c, &p);
    const bool leaves = a->leaves && r == a->leaves;
    if (a->status[r] == FP8C_OK)
        a->status[r] = train_some(p, leaves ? 0 : a->steps);
    snprintf(a->said[r], sizeof a->said[r], "%s", fp8c_context_message(ctx));
    a->told[r] = told;
    a->ended[r] = ended;
    if (a->status[r] != FP8C_OK && p) {
        a->again[r] = fp8c_program_run(p, fp8c_program_function(p, "micro_step"));
        snprintf(a->said_again[r], sizeof a->said_again[r], "%s", fp8c_context_message(ctx));
    }
    if (a->status[r] != FP8C_OK || leaves)
        ranks_leave(comm);
    if (leaves && a->aborts)
        fp8c_nccl_abort(nccl);
    if (leaves && !a->aborts) /* it is alive, but takes no part any more */
        sleep(3);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_nccl_close(nccl);
    fp8c_context_destroy(ctx);
}

static void has(const char *said, const char *words)
{
    ck_assert_msg(strstr(said, words), "'%s' is not in: %s", words, said);
}

static void run(attempt *a)
{
    ranks_run(RANKS, attempt_rank, a, NULL);
    rank_gpu_nothing_left();
}

/* ---- an observer ---- */

/* The last collective of each run has ended when the run has, and both are told. */
START_TEST(observed)
{
    attempt a = {.device = {0, 1}, .steps = 3, .seconds = 60, .watches = true};
    run(&a);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_msg(a.status[r] == FP8C_OK, "rank %d: %s", r, a.said[r]);
        ck_assert_int_ge(a.told[r], 2 * a.steps); /* of micro_step and of update */
        ck_assert_int_ge(a.ended[r], 2 * a.steps);
    }
}
END_TEST

/* ---- a call of NCCL fails ---- */

/* Joining makes the first gather and the first group; the ranks' calls are counted together. */
static const struct {
    const char *fails, *says;
} calls[] = {
    {"ncclGetUniqueId", "ncclGetUniqueId: internal error: ncclGetUniqueId fails as asked"},
    {"ncclCommInitRankConfig:2", "joining the other ranks: NCCL: internal error"},
    {"ncclAllGather:1:2", "all_gather 'of host memory' in this process: NCCL: unhandled system"},
    {"ncclGroupEnd:2", "all_to_all 'of host memory' in this process: NCCL: internal error"},
    {"ncclAllGather:9", " in micro_step: NCCL: internal error: ncclAllGather fails as asked"},
    {"ncclAllGather:9", " in micro_step: NCCL: internal error: ncclAllGather fails as asked"},
    {"ncclAsync:2", "'of host memory' in this process: NCCL: remote process exited"},
    {"ncclAsync:5:1", " in micro_step: NCCL: unhandled cuda error: operation 3 fails as asked"},
    {"ncclAsync:9:6", " in "},
    {"ncclCommGetAsyncError:1", "NCCL: internal error: ncclCommGetAsyncError fails as asked"},
    {"cuStreamQuery:20", "CUDA_ERROR_UNKNOWN"},
};

START_TEST(a_call_fails)
{
    attempt a = {.device = {0, 1}, .steps = 3, .seconds = 60};
    int wrong = -1;
    setenv("FP8C_EMULATOR_FAIL", calls[_i].fails, 1);
    setenv("FP8C_EMULATOR_NCCL_SECONDS", "2", 1);
    run(&a);
    unsetenv("FP8C_EMULATOR_FAIL");
    for (int r = 0; r < RANKS; r++) {
        ck_assert_msg(a.status[r] == FP8C_ERR_LIBRARY, "%s: rank %d: %d: %s", calls[_i].fails, r,
                      a.status[r], a.said[r]);
        if (strstr(a.said[r], calls[_i].says))
            wrong = r;
        if (strstr(a.said[r], "micro_step")) { /* it stays so, for the same reason */
            ck_assert_int_eq(a.again[r], FP8C_ERR_LIBRARY);
            has(a.said_again[r], "can't be used any more; then it was: ");
        }
    }
    ck_assert_msg(wrong >= 0, "%s: '%s' and '%s', not '%s'", calls[_i].fails, a.said[0], a.said[1],
                  calls[_i].says);
}
END_TEST

/* ---- a rank goes ---- */

START_TEST(leaves_and_says_so)
{
    attempt a = {.device = {0, 1}, .steps = 3, .seconds = 60, .leaves = 1, .aborts = true};
    run(&a);
    ck_assert_int_eq(a.status[0], FP8C_ERR_LIBRARY);
    has(a.said[0], "rank 0 of 2: all_");
}
END_TEST

/* The calls that compare the ranks' programs fail as well; here they don't, so that the rank waits
 * on the device. */
static int alone_gather(void *user, const void *send, void *receive, size_t bytes)
{
    (void)user;
    memcpy(receive, send, bytes);
    memcpy((char *)receive + bytes, send, bytes);
    return 0;
}

typedef struct stuck {
    fp8c_status status;
    char said[1024];
} stuck;

/* Rank 1 joins and then makes no call. */
static void stuck_rank(const fp8c_comm *comm, void *user)
{
    stuck *s = user;
    fp8c_context *ctx;
    fp8c_nccl *nccl;
    fp8c_comm own;
    fp8c_context_create(NULL, &ctx);
    ck_assert_int_eq(rank_gpu_join(ctx, comm, 1, &nccl, &own), FP8C_OK);
    own.all_gather = alone_gather;
    if (comm->rank == 0) {
        fp8c_module *m = parse(ctx, model);
        fp8c_compile_options c = recipe("bf16");
        c.target = "cuda";
        c.comm = &own;
        fp8c_program *p = compile(ctx, m, &c);
        s->status = train_some(p, 1);
        snprintf(s->said, sizeof s->said, "%s", fp8c_context_message(ctx));
        fp8c_program_destroy(p);
        fp8c_module_destroy(m);
    } else {
        sleep(6);
    }
    fp8c_nccl_close(nccl);
    fp8c_context_destroy(ctx);
}

START_TEST(a_rank_is_stuck)
{
    stuck s = {.status = FP8C_OK};
    ranks_run(RANKS, stuck_rank, &s, NULL);
    ck_assert_int_eq(s.status, FP8C_ERR_LIBRARY);
    has(s.said, "rank 0 of 2: all_");
    has(s.said, " in micro_step: it has not ended after 1 seconds: another rank is gone or stuck");
    rank_gpu_nothing_left();
}
END_TEST

/* ---- ranks that can't be joined ---- */

START_TEST(one_gpu_for_two)
{
    attempt a = {.device = {1, 1}};
    run(&a);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(a.open[r], FP8C_ERR_LIBRARY);
        has(a.said[r], "joining the other ranks: NCCL: invalid usage: Duplicate GPU detected : "
                       "rank 0 and rank 1 both on CUDA device 1");
    }
}
END_TEST

START_TEST(no_such_gpu)
{
    attempt a = {.device = {0, 9}};
    ranks_run(RANKS, attempt_rank, &a, NULL);
    ck_assert_int_eq(a.open[0], FP8C_ERR_LIBRARY);
    has(a.said[0], "rank 0 of 2: rank 1 can't join the others with its GPU");
    ck_assert_int_eq(a.open[1], FP8C_ERR_INPUT);
    has(a.said[1], "no CUDA device 9: the driver sees 8, from 0 on");
}
END_TEST

START_TEST(no_library)
{
    char folder[] = "/tmp/fp8c-nccl-XXXXXX", command[1024];
    const char *emulator = getenv("FP8C_CUDA_PATH");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(command, sizeof command, "ln -s %s/libcuda.so.1 %s/libnvrtc.so.13 %s", emulator,
             emulator, folder);
    ck_assert_int_eq(system(command), 0);
    setenv("FP8C_CUDA_PATH", folder, 1);
    attempt a = {.device = {0, 1}};
    ranks_run(RANKS, attempt_rank, &a, NULL);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(a.open[r], FP8C_ERR_LIBRARY);
        has(a.said[r], "can't load NCCL (libnccl.so.2): looked in /tmp/fp8c-nccl-");
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(old_library)
{
    attempt a = {.device = {0, 1}};
    setenv("FP8C_EMULATOR_NCCL", "21304", 1); /* it can't join without blocking */
    run(&a);
    unsetenv("FP8C_EMULATOR_NCCL");
    ck_assert_int_eq(a.open[0], FP8C_ERR_LIBRARY);
    has(a.said[0], "NCCL 2.14 or later is needed, this is version code 21304");
}
END_TEST

/* ---- options ---- */

START_TEST(bad_options)
{
    char id[FP8C_NCCL_ID] = "";
    const fp8c_comm over = {.struct_size = sizeof over, .rank = 3, .ranks = 2};
    const struct {
        fp8c_nccl_options o;
        const char *says;
    } wrong[] = {
        {{.over = &over, .id = id}, "`over` has the rank and brings the id; give no others"},
        {{.over = &over, .ranks = 2}, "`over` has the rank and brings the id; give no others"},
        {{.over = &over}, "`over` is incomplete"},
        {{.rank = 0, .ranks = 2},
         "the ranks can't find each other: give `over`, or `id`, or NCCL_"},
        {{.rank = 2, .ranks = 2, .id = id}, "NCCL: rank 2 of 2: ranks are 1 to 1024"},
        {{.ranks = 2000, .id = id}, "NCCL: rank 0 of 2000"},
        {{.ranks = 2, .id = id, .device = -1}, "device -1: an ordinal is 0 or more"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fp8c_context *ctx = new_context();
        fp8c_nccl_options o = wrong[i].o;
        fp8c_nccl *nccl;
        fp8c_comm own = {.struct_size = sizeof own};
        o.struct_size = sizeof o;
        ck_assert_int_eq(fp8c_nccl_open(ctx, &o, &own, &nccl), FP8C_ERR_INPUT);
        ck_assert_ptr_null(nccl);
        said(ctx, wrong[i].says);
        fp8c_context_destroy(ctx);
    }
    fp8c_nccl_close(NULL);
}
END_TEST

static void refuses(fp8c_context *ctx, const fp8c_comm *comm, int device, fp8c_status status,
                    const char *words)
{
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("bf16");
    fp8c_program *p;
    o.target = "cuda";
    o.device = device;
    o.comm = comm;
    ck_assert_int_eq(fp8c_compile(m, &o, &p), status);
    said(ctx, words);
    fp8c_module_destroy(m);
}

static void refused_rank(const fp8c_comm *comm, void *user)
{
    fp8c_context *ctx;
    fp8c_nccl *nccl;
    fp8c_comm own, other;
    (void)user;
    fp8c_context_create(NULL, &ctx);
    ck_assert_int_eq(rank_gpu_join(ctx, comm, 0, &nccl, &own), FP8C_OK);
    if (comm->rank == 0) {
        other = own;
        other.nccl = NULL;
        refuses(ctx, &other, 0, FP8C_ERR_UNSUPPORTED,
                "comm exchanges host memory; a GPU's collectives go to NCCL: give the comm of "
                "fp8c_nccl_open, whose `over` can be this one");
        other = own;
        other.rank = 1;
        refuses(ctx, &other, 0, FP8C_ERR_INPUT,
                "comm: it is rank 1 of 2, but its nccl is rank 0 of 2");
        refuses(ctx, &own, 2, FP8C_ERR_INPUT,
                "rank 0 has joined the others with device 0, but its program is for device 2");
    }
    fp8c_nccl_close(nccl);
    fp8c_context_destroy(ctx);
}

START_TEST(bad_comms)
{
    ranks_run(RANKS, refused_rank, NULL, NULL);
}
END_TEST

/* ---- other ways to run ---- */

/* A training of three steps, and the variables of each rank at its end. */
typedef struct variant {
    const char *file; /* NULL: the program is compiled */
    bool stream;      /* the embedder's */
    float wte[RANKS][16 * 32];
    fp8c_status status[RANKS];
    char said[RANKS][1024];
} variant;

static fp8c_status make_program(const variant *v, fp8c_context *ctx, const fp8c_comm *comm,
                                void *stream, fp8c_program **out)
{
    if (v->file) {
        const fp8c_open_options o = {
            .struct_size = sizeof o, .device = comm->rank, .stream = stream, .comm = comm};
        return fp8c_program_open(ctx, v->file, &o, out);
    }
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("bf16");
    o.target = "cuda";
    o.device = comm->rank;
    o.stream = stream;
    o.comm = comm;
    const fp8c_status status = fp8c_compile(m, &o, out);
    fp8c_module_destroy(m);
    return status;
}

static void run_variant(const fp8c_comm *comm, void *user)
{
    variant *v = user;
    const int r = comm->rank;
    fp8c_context *ctx;
    fp8c_nccl *nccl;
    fp8c_program *p;
    fp8c_comm own;
    driver d = {0};
    void *context, *stream = NULL;
    if (v->stream) {
        d = open_driver();
        ck_assert_int_eq(d.cuDevicePrimaryCtxRetain(&context, r), 0);
        ck_assert_int_eq(d.cuCtxSetCurrent(context), 0);
        ck_assert_int_eq(d.cuStreamCreate(&stream, 1), 0);
    }
    fp8c_context_create(NULL, &ctx);
    ck_assert_int_eq(rank_gpu_join(ctx, comm, 60, &nccl, &own), FP8C_OK);
    v->status[r] = make_program(v, ctx, &own, stream, &p);
    if (v->status[r] == FP8C_OK)
        v->status[r] = train_some(p, 3);
    if (v->status[r] == FP8C_OK)
        v->status[r] = fp8c_program_wait(p);
    if (v->status[r] == FP8C_OK)
        v->status[r] = fp8c_program_read(p, fp8c_program_find_variable(p, "wte"), v->wte[r]);
    snprintf(v->said[r], sizeof v->said[r], "%s", fp8c_context_message(ctx));
    fp8c_program_destroy(p);
    fp8c_nccl_close(nccl);
    fp8c_context_destroy(ctx);
    if (v->stream) {
        ck_assert_int_eq(d.cuStreamDestroy_v2(stream), 0);
        ck_assert_int_eq(d.cuDevicePrimaryCtxRelease_v2(r), 0);
        close_driver(&d);
    }
}

START_TEST(same_bits)
{
    char path[] = "/tmp/fp8c-nccl-XXXXXX";
    ck_assert_int_ge(mkstemp(path), 0);
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("bf16");
    o.target = "sm_90a";
    o.ranks = RANKS;
    ck_assert_msg(fp8c_compile_file(m, &o, 1, path) == FP8C_OK, "%s", fp8c_context_message(ctx));
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    variant plain = {.file = NULL},
            other[] = {{.file = path}, {.stream = true}, {.file = path, .stream = true}};
    ranks_run(RANKS, run_variant, &plain, NULL);
    for (int i = 0; i < 4; i++) {
        if (i == 3) /* late streams, where a missing wait shows */
            setenv("FP8C_EMULATOR_LAZY", "1", 1);
        variant *v = &other[i % 3];
        ranks_run(RANKS, run_variant, v, NULL);
        for (int r = 0; r < RANKS; r++) {
            ck_assert_msg(v->status[r] == FP8C_OK, "%d: %s", i, v->said[r]);
            ck_assert_mem_eq(v->wte[r], plain.wte[0], sizeof plain.wte[0]);
        }
    }
    unsetenv("FP8C_EMULATOR_LAZY");
    unlink(path);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("nccl");
    TCase *c = tcase_create("nccl");
    tcase_set_timeout(c, 120);
    if (!rank_gpus("ranks with GPUs that fail"))
        return NULL;
    tcase_add_test(c, observed);
    tcase_add_loop_test(c, a_call_fails, 0, sizeof calls / sizeof *calls);
    tcase_add_test(c, leaves_and_says_so);
    tcase_add_test(c, a_rank_is_stuck);
    tcase_add_test(c, one_gpu_for_two);
    tcase_add_test(c, no_such_gpu);
    tcase_add_test(c, no_library);
    tcase_add_test(c, old_library);
    tcase_add_test(c, bad_options);
    tcase_add_test(c, bad_comms);
    tcase_add_test(c, same_bits);
    suite_add_tcase(suite, c);
    return suite;
}
