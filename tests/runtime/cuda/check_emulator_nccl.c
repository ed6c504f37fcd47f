/* The NCCL stand-in, called directly: what ranks exchange, how its operations lie in a stream, and
 * which misuse it finds. Ranks are threads, each with a device. */
#include "tests/shared/cuda/emulator.h"
#include "tests/shared/suite.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 3, BYTES = 1000, ROOM = RANKS * BYTES };

typedef struct rank {
    emu *e;
    f8_nccl_api nccl;
    int number;
    CUcontext context;
    CUstream stream;
    CUdeviceptr send, receive;
    ncclComm_t comm;
    ncclUniqueId id;
    ncclResult_t error; /* what a test looks for */
    void (*body)(struct rank *r);
    pthread_barrier_t *barrier;
    pthread_t thread;
} rank;

#define OK(call) ck_assert_int_eq(call, 0)
#define NCCL(call) ck_assert_msg((r->error = (call)) == 0, "%s", r->nccl.ncclGetLastError(NULL))

static void open_nccl(f8_nccl_api *nccl)
{
    static const char *const names[] = {F8_NCCL_SYMBOLS(F8_CUDA_API_NAME)};
    void *lib = dlopen("build/emulator/libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(lib != NULL, "%s (make emulator)", dlerror());
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ((void **)nccl)[i] = dlsym(lib, names[i]);
        ck_assert_msg(((void **)nccl)[i] != NULL, "no %s", names[i]);
    }
}

static unsigned char sent(int rank, int i)
{
    return (unsigned char)(rank * 71 + i * 13 + i / 256);
}

/* Whether communicators block, set before ranks begin. */
static int blocks = 1;

static ncclResult_t init(rank *r, int ranks)
{
    ncclConfig_t config = {sizeof config, NCCL_CONFIG_MAGIC, 21400, blocks};
    return r->nccl.ncclCommInitRankConfig(&r->comm, ranks, r->id, r->number, &config);
}

/* The state of the communicator after what goes on in the background. */
static ncclResult_t settled(rank *r)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        NCCL(r->nccl.ncclCommGetAsyncError(r->comm, &state));
        usleep(100);
    }
    return state;
}

static ncclResult_t call_ended(rank *r, ncclResult_t result)
{
    ck_assert_int_ne(result, blocks ? ncclInProgress : ncclSuccess);
    return result == ncclInProgress ? settled(r) : result;
}

static void destroy(rank *r)
{
    if (!blocks)
        NCCL(call_ended(r, r->nccl.ncclCommFinalize(r->comm)));
    NCCL(r->nccl.ncclCommDestroy(r->comm));
}

static void begin(rank *r)
{
    const f8_cuda_api *cu = &r->e->cu;
    unsigned char bytes[ROOM];
    OK(cu->cuDevicePrimaryCtxRetain(&r->context, r->number));
    OK(cu->cuCtxPushCurrent_v2(r->context));
    OK(cu->cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING));
    OK(cu->cuMemAlloc_v2(&r->send, ROOM));
    OK(cu->cuMemAlloc_v2(&r->receive, ROOM));
    for (int i = 0; i < ROOM; i++)
        bytes[i] = sent(r->number, i);
    OK(cu->cuMemcpyHtoDAsync_v2(r->send, bytes, ROOM, r->stream));
    OK(cu->cuStreamSynchronize(r->stream));
    r->error = init(r, RANKS);
    ck_assert_int_eq(r->error, blocks ? ncclSuccess : ncclInProgress);
    NCCL(settled(r));
}

static void end(rank *r)
{
    const f8_cuda_api *cu = &r->e->cu;
    CUcontext context;
    OK(cu->cuStreamDestroy_v2(r->stream));
    OK(cu->cuCtxPopCurrent_v2(&context));
    OK(cu->cuDevicePrimaryCtxRelease_v2(r->number));
}

static void *run_rank(void *user)
{
    rank *r = user;
    begin(r);
    r->body(r);
    end(r);
    return NULL;
}

static void run(void (*body)(rank *r))
{
    emu e;
    f8_nccl_api nccl;
    rank r[RANKS];
    pthread_barrier_t barrier;
    ncclUniqueId id;
    setenv("FP8C_EMULATOR_DEVICES", "3", 1);
    emu_open(&e);
    open_nccl(&nccl);
    OK(nccl.ncclGetUniqueId(&id));
    pthread_barrier_init(&barrier, NULL, RANKS);
    for (int i = 0; i < RANKS; i++) {
        r[i] =
            (rank){.e = &e, .nccl = nccl, .number = i, .id = id, .body = body, .barrier = &barrier};
        OK(pthread_create(&r[i].thread, NULL, run_rank, &r[i]));
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(r[i].thread, NULL);
    pthread_barrier_destroy(&barrier);
    emu_close(&e);
}

/* ---- what is exchanged ---- */

static ncclResult_t gather(rank *r, size_t bytes)
{
    return r->nccl.ncclAllGather((void *)(uintptr_t)r->send, (void *)(uintptr_t)r->receive, bytes,
                                 ncclUint8, r->comm, r->stream);
}

/* To each other rank `bytes`, and as many from it. */
static ncclResult_t all_to_all(rank *r, size_t bytes)
{
    OK(r->nccl.ncclGroupStart());
    for (int p = 0; p < RANKS; p++) {
        const size_t at = (size_t)p * BYTES;
        if (p == r->number)
            continue;
        NCCL(r->nccl.ncclSend((void *)(uintptr_t)(r->send + at), bytes, ncclUint8, p, r->comm,
                              r->stream));
        NCCL(r->nccl.ncclRecv((void *)(uintptr_t)(r->receive + at), bytes, ncclUint8, p, r->comm,
                              r->stream));
    }
    return r->nccl.ncclGroupEnd();
}

static void exchanges(rank *r)
{
    unsigned char got[ROOM];
    for (int times = 0; times < 20; times++) {
        const bool gathers = times % 3;
        NCCL(call_ended(r, gathers ? gather(r, BYTES) : all_to_all(r, BYTES)));
        OK(r->e->cu.cuMemcpyDtoHAsync_v2(got, r->receive, ROOM, r->stream));
        OK(r->e->cu.cuStreamSynchronize(r->stream));
        for (int i = 0; i < ROOM; i++)
            if (gathers || i / BYTES != r->number)
                ck_assert_int_eq(got[i],
                                 sent(i / BYTES, i % BYTES + (gathers ? 0 : r->number * BYTES)));
    }
    destroy(r);
}

/* Whole numbers, so that no order is seen: what each rank adds, and which part it gets. */
static void sums(rank *r)
{
    enum { N = 5 };
    float own[RANKS * N], got[N];
    const f8_cuda_api *cu = &r->e->cu;
    ck_assert_uint_le(sizeof own, ROOM);
    for (int i = 0; i < RANKS * N; i++)
        own[i] = (float)(r->number * 100 + i);
    for (int parts = 0; parts < 2; parts++) {
        OK(cu->cuMemcpyHtoDAsync_v2(r->send, own, sizeof own, r->stream));
        NCCL((parts ? r->nccl.ncclReduceScatter : r->nccl.ncclAllReduce)(
            (void *)(uintptr_t)r->send, (void *)(uintptr_t)r->receive, N, ncclFloat32, ncclSum,
            r->comm, r->stream));
        OK(cu->cuMemcpyDtoHAsync_v2(got, r->receive, sizeof got, r->stream));
        OK(cu->cuStreamSynchronize(r->stream));
        for (int i = 0; i < N; i++) {
            const int at = parts ? r->number * N + i : i;
            ck_assert_float_eq(got[i], (float)(RANKS * at + 100 * (RANKS * (RANKS - 1) / 2)));
        }
    }
    ck_assert_int_eq(r->nccl.ncclAllReduce((void *)(uintptr_t)r->send,
                                           (void *)(uintptr_t)r->receive, N, ncclUint8, ncclSum,
                                           r->comm, r->stream),
                     ncclInvalidArgument);
    NCCL(r->nccl.ncclCommDestroy(r->comm));
}

START_TEST(added)
{
    run(sums);
}
END_TEST

START_TEST(bytes)
{
    if (_i % 2)
        setenv("FP8C_EMULATOR_LAZY", "1", 1);
    blocks = _i / 2;
    run(exchanges);
    unsetenv("FP8C_EMULATOR_LAZY");
}
END_TEST

/* Rank 0 is not done until the last rank has begun, and nor is what it was given after. */
static void waits(rank *r)
{
    const f8_cuda_api *cu = &r->e->cu;
    CUevent event;
    unsigned char got[ROOM];
    OK(cu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    memset(got, 0, sizeof got);
    if (r->number == 0) {
        NCCL(gather(r, BYTES));
        OK(cu->cuMemcpyDtoHAsync_v2(got, r->receive, ROOM, r->stream));
        OK(cu->cuEventRecord(event, r->stream));
        ck_assert_int_eq(cu->cuStreamQuery(r->stream), CUDA_ERROR_NOT_READY);
        ck_assert_int_eq(cu->cuEventQuery(event), CUDA_ERROR_NOT_READY);
        for (int i = 0; i < ROOM; i++)
            ck_assert_int_eq(got[i], 0);
        ck_assert_int_ne(r->nccl.ncclCommDestroy(r->comm), ncclSuccess);
    }
    pthread_barrier_wait(r->barrier);
    if (r->number)
        NCCL(gather(r, BYTES));
    OK(cu->cuStreamSynchronize(r->stream));
    OK(cu->cuEventQuery(event));
    for (int i = 0; i < ROOM && !r->number; i++)
        ck_assert_int_eq(got[i], sent(i / BYTES, i % BYTES));
    OK(cu->cuEventDestroy_v2(event));
    NCCL(r->nccl.ncclCommDestroy(r->comm));
}

START_TEST(waiting)
{
    run(waits);
}
END_TEST

/* ---- misuse ---- */

/* The error that rank 1, which differs, or a rank that meets it, has while the operation runs. An
 * abort ends the operation, and the stream goes on. */
static void asynchronous(rank *r, ncclResult_t result)
{
    ncclResult_t error = ncclSuccess;
    while (error == ncclSuccess) {
        const CUresult q = r->e->cu.cuStreamQuery(r->stream);
        ck_assert_int_eq(q, CUDA_ERROR_NOT_READY);
        NCCL(r->nccl.ncclCommGetAsyncError(r->comm, &error));
    }
    ck_assert_int_eq(error, result);
    pthread_barrier_wait(r->barrier);
    ck_assert_int_eq(r->e->cu.cuStreamQuery(r->stream), CUDA_ERROR_NOT_READY);
    NCCL(r->nccl.ncclCommAbort(r->comm));
    OK(r->e->cu.cuStreamSynchronize(r->stream));
    ck_assert_int_eq(r->nccl.ncclCommAbort(r->comm), ncclInvalidArgument);
    ck_assert_int_eq(r->nccl.ncclCommGetAsyncError(r->comm, &error), ncclInvalidArgument);
    ck_assert_int_eq(gather(r, BYTES), ncclInvalidArgument);
}

static void counts_differ(rank *r)
{
    NCCL(gather(r, r->number == 1 ? BYTES - 1 : BYTES));
    asynchronous(r, ncclInvalidUsage);
}

static void kinds_differ(rank *r)
{
    NCCL(r->number == 1 ? all_to_all(r, BYTES) : gather(r, BYTES));
    asynchronous(r, ncclInvalidUsage);
}

static void group_counts_differ(rank *r)
{
    NCCL(all_to_all(r, r->number == 2 ? 8 : 16));
    asynchronous(r, ncclInvalidUsage);
}

START_TEST(ranks_differ)
{
    void (*const body[])(rank *) = {counts_differ, kinds_differ, group_counts_differ};
    run(body[_i]);
}
END_TEST

/* Calls that are refused at once. */
static void refusals(rank *r)
{
    const f8_cuda_api *cu = &r->e->cu;
    void *send = (void *)(uintptr_t)r->send, *receive = (void *)(uintptr_t)r->receive;
    static CUdeviceptr of_another;
    static CUstream its_stream;
    char host[16];
    if (r->number == 0) {
        of_another = r->receive;
        its_stream = r->stream;
    }
    pthread_barrier_wait(r->barrier);
    const int peer = (r->number + 1) % RANKS;
    ck_assert_int_eq(r->nccl.ncclSend(send, 16, ncclUint8, peer, r->comm, r->stream),
                     ncclInvalidUsage); /* outside of a group */
    ck_assert_int_eq(r->nccl.ncclGroupEnd(), ncclInvalidUsage);
    ck_assert_int_eq(r->nccl.ncclAllGather(host, receive, 16, ncclUint8, r->comm, r->stream),
                     ncclInvalidArgument);
    ck_assert_int_eq(r->nccl.ncclAllGather(send, receive, ROOM, ncclUint8, r->comm, r->stream),
                     ncclInvalidArgument); /* it ends beyond the memory */
    ck_assert_int_eq(
        r->nccl.ncclAllGather((char *)receive + 1, receive, 16, ncclUint8, r->comm, r->stream),
        ncclInvalidUsage);
    if (r->number) {
        ck_assert_int_eq(r->nccl.ncclAllGather(send, (void *)(uintptr_t)of_another, 16, ncclUint8,
                                               r->comm, r->stream),
                         ncclInvalidArgument);
        ck_assert_int_eq(r->nccl.ncclAllGather(send, receive, 16, ncclUint8, r->comm, its_stream),
                         ncclInvalidUsage);
    }
    CUgraph graph;
    OK(cu->cuStreamBeginCapture_v2(r->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    ck_assert_int_eq(gather(r, 16), ncclInvalidUsage);
    OK(cu->cuStreamEndCapture(r->stream, &graph));
    OK(cu->cuGraphDestroy(graph));
    ck_assert_int_eq(r->nccl.ncclCommDestroy((ncclComm_t)send), ncclInvalidArgument);
    pthread_barrier_wait(r->barrier);
    NCCL(gather(r, 16)); /* none of these did harm */
    OK(cu->cuStreamSynchronize(r->stream));
    NCCL(r->nccl.ncclCommDestroy(r->comm));
}

START_TEST(misuse)
{
    run(refusals);
}
END_TEST

/* ---- communicators that don't block ---- */

/* Calls that a communicator does not take while one before is in progress, and after its end. */
static void in_progress(rank *r)
{
    ck_assert_int_eq(gather(r, 16), ncclInProgress);
    OK(r->e->cu.cuStreamQuery(r->stream)); /* it is not enqueued yet */
    ck_assert_int_eq(gather(r, 16), ncclInvalidArgument);
    ck_assert_int_eq(r->nccl.ncclCommFinalize(r->comm), ncclInvalidArgument);
    ck_assert_int_eq(r->nccl.ncclCommDestroy(r->comm), ncclInvalidArgument);
    NCCL(settled(r));
    OK(r->e->cu.cuStreamSynchronize(r->stream));
    ck_assert_int_eq(r->nccl.ncclCommDestroy(r->comm), ncclInvalidUsage); /* it would block */
    ck_assert_int_eq(r->nccl.ncclCommFinalize(r->comm), ncclInProgress);
    ck_assert_int_eq(r->nccl.ncclCommDestroy(r->comm), ncclInvalidArgument);
    NCCL(settled(r));
    ck_assert_int_eq(gather(r, 16), ncclInvalidUsage);
    ck_assert_int_eq(r->nccl.ncclCommFinalize(r->comm), ncclInvalidArgument);
    NCCL(r->nccl.ncclCommDestroy(r->comm));
}

START_TEST(not_blocking)
{
    blocks = 0;
    run(in_progress);
}
END_TEST

/* Nobody else comes: the call returns, and an abort ends what goes on. */
static void abort_alone(rank *r)
{
    ncclResult_t state;
    ncclConfig_t none = {.blocking = 0};
    NCCL(r->nccl.ncclCommFinalize(r->comm) == ncclInProgress ? settled(r) : ncclInternalError);
    NCCL(r->nccl.ncclCommDestroy(r->comm));
    ck_assert_int_eq(r->nccl.ncclCommInitRankConfig(&r->comm, RANKS, r->id, r->number, &none),
                     ncclInvalidArgument);
    OK(r->nccl.ncclGetUniqueId(&r->id)); /* each rank has one of its own */
    ck_assert_int_eq(init(r, RANKS), ncclInProgress);
    NCCL(r->nccl.ncclCommGetAsyncError(r->comm, &state));
    ck_assert_int_eq(state, ncclInProgress);
    ck_assert_int_eq(gather(r, 16), ncclInvalidArgument);
    ck_assert_int_eq(r->nccl.ncclCommDestroy(r->comm), ncclInvalidArgument);
    NCCL(r->nccl.ncclCommAbort(r->comm));
    ck_assert_int_eq(r->nccl.ncclCommGetAsyncError(r->comm, &state), ncclInvalidArgument);
}

START_TEST(aborted_while_joining)
{
    blocks = 0;
    setenv("FP8C_EMULATOR_NCCL_SECONDS", "1000", 1);
    run(abort_alone);
}
END_TEST

/* A rank aborts while the others wait for it. */
static void leaves(rank *r)
{
    if (r->number == 1) {
        NCCL(r->nccl.ncclCommAbort(r->comm));
        pthread_barrier_wait(r->barrier);
        return;
    }
    NCCL(gather(r, BYTES));
    asynchronous(r, ncclRemoteError);
}

START_TEST(a_rank_leaves)
{
    run(leaves);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("emulator nccl");
    TCase *c = tcase_create("nccl");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, bytes, 0, 4);
    tcase_add_test(c, added);
    tcase_add_test(c, waiting);
    tcase_add_loop_test(c, ranks_differ, 0, 3);
    tcase_add_test(c, misuse);
    tcase_add_test(c, not_blocking);
    tcase_add_test(c, aborted_while_joining);
    tcase_add_test(c, a_rank_leaves);
    suite_add_tcase(suite, c);
    return suite;
}
