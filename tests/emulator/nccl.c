/* A stand-in for NCCL, with ranks that are threads or processes of this machine: what a
 * communicator is asked for, and how its operations run in a stream. Ranks exchange bytes in memory
 * that they share (nccl_world.c). Operations run as they do on devices: a call only enqueues, and
 * an operation ends when every rank has enqueued its own.
 *
 * A communicator that does not block joins in a thread. Its operations are enqueued when the state
 * is asked for the second time: one who does not wait for that finds them missing.
 *
 * Every rank must enqueue the same operations in the same order: the real library would hang or
 * give wrong bytes, here it is an error. So are calls that would deadlock or that use a
 * communicator that is gone. */
#include "tests/emulator/common.h"
#include "tests/emulator/driver.h"
#include "tests/emulator/nccl.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)
F8_NCCL_SYMBOLS(F8_EMU_PROTOTYPE)
int64_t f8_emulator_communicators(void); /* that were neither aborted nor destroyed; for tests */
#pragma GCC visibility pop

enum { VERSION = 22809, DEAD_EVERY = 256 };

/* One operation of a communicator. */
typedef struct operation {
    struct operation *next;
    ncclComm_t comm;
    uint64_t number; /* from 1 */
    f8_emu_post post;
    const void *from[F8_EMU_RANKS];
    void *to[F8_EMU_RANKS];
    bool begun, posted;
    unsigned tries;
} operation;

struct ncclComm {
    ncclComm_t next;
    f8_emu_member member;
    int device;
    ncclUniqueId id;
    bool blocking, finalizes, finalized, in_world, threaded; /* threaded: it has `thread` */
    _Atomic int joining;                                     /* the thread still joins the ranks */
    pthread_t thread;
    operation *pending; /* not enqueued yet, for `stream` */
    CUstream stream;
    int asked;         /* so often for the state of `pending` */
    bool gone;         /* aborted or destroyed; its memory stays, so that later uses are found */
    _Atomic int error; /* the asynchronous one */
    char why[200];
    uint64_t enqueued;
    operation *running; /* all that have not ended */
};

static ncclComm_t comms; /* all there ever were; those that are gone stay, so that a use is seen */
static _Thread_local char last[200];

/* ---- messages ---- */

static ncclResult_t refuse(ncclResult_t result, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(last, sizeof last, format, args);
    va_end(args);
    f8_emu_note("NCCL: %s", last);
    return result;
}

/* A failure while an operation runs. */
static void fail_later(ncclComm_t c, ncclResult_t result, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->why, sizeof c->why, format, args);
    va_end(args);
    f8_emu_note("NCCL, rank %d, while it runs: %s", c->member.rank, c->why);
    c->error = result;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const text[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a network error",
                                       "NCCL operation in progress"};
    return result >= 0 && result <= ncclInProgress ? text[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return comm && *comm->why ? comm->why : last;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = (int)f8_emu_setting("FP8C_EMULATOR_NCCL", VERSION);
    return ncclSuccess;
}

static ncclResult_t fails(const char *function)
{
    int code = ncclInternalError;
    return f8_emu_fails(function, &code) ? refuse(code, "%s fails as asked", function)
                                         : ncclSuccess;
}
#define MAY_FAIL()                                                                                 \
    do {                                                                                           \
        const ncclResult_t asked_ = fails(__func__);                                               \
        if (asked_)                                                                                \
            return asked_;                                                                         \
    } while (0)

/* ---- the driver that this belongs to ---- */

typedef struct driver {
    CUresult (*enqueue)(CUstream, int (*)(const void *), const void *, size_t);
    int (*device_of)(const void *, size_t);
    int (*device_of_stream)(CUstream);
    int (*current)(void);
    CUresult (*is_capturing)(CUstream, CUstreamCaptureStatus *);
} driver;

static bool find_driver(driver *d)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!lib)
        return false;
    *(void **)&d->enqueue = dlsym(lib, "f8_emulator_enqueue");
    *(void **)&d->device_of = dlsym(lib, "f8_emulator_device_of");
    *(void **)&d->device_of_stream = dlsym(lib, "f8_emulator_device_of_stream");
    *(void **)&d->current = dlsym(lib, "f8_emulator_current");
    *(void **)&d->is_capturing = dlsym(lib, "cuStreamIsCapturing");
    dlclose(lib);
    return d->enqueue && d->device_of && d->device_of_stream && d->current && d->is_capturing;
}

/* ---- life ---- */

int64_t f8_emulator_communicators(void)
{
    int64_t n = 0;
    for (const struct ncclComm *c = __atomic_load_n(&comms, __ATOMIC_ACQUIRE); c; c = c->next)
        n += !c->gone;
    return n;
}

/* A communicator that still is one. */
static ncclResult_t check_comm(const struct ncclComm *comm, const char *function)
{
    const struct ncclComm *c = __atomic_load_n(&comms, __ATOMIC_ACQUIRE);
    while (c && c != comm)
        c = c->next;
    if (!c)
        return refuse(ncclInvalidArgument, "%s: that is no communicator", function);
    return c->gone ? refuse(ncclInvalidArgument, "%s: the communicator was aborted or destroyed",
                            function)
                   : ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    MAY_FAIL();
    return f8_emu_world_name(id->internal) ? ncclSuccess
                                           : refuse(ncclSystemError, "there are no random bytes");
}

static ncclResult_t check_config(const ncclConfig_t *config)
{
    if (!config)
        return ncclSuccess;
    if (config->magic != NCCL_CONFIG_MAGIC || config->size < sizeof *config ||
        config->version < 21400)
        return refuse(ncclInvalidArgument, "ncclConfig_t argument not initialized");
    if (config->blocking == 0 || config->blocking == 1 || config->blocking == INT_MIN)
        return ncclSuccess;
    return refuse(ncclInvalidArgument, "Invalid blocking attribute value %d", config->blocking);
}

static ncclResult_t join(ncclComm_t c)
{
    char why[200];
    const ncclResult_t r = f8_emu_join(&c->member, c->id.internal, c->device, why, sizeof why);
    c->in_world = r == ncclSuccess;
    if (r)
        fail_later(c, r, "%s", why);
    return r;
}

static void *join_later(void *comm)
{
    ncclComm_t c = comm;
    join(c);
    c->joining = 0;
    return NULL;
}

static ncclResult_t start_joining(ncclComm_t c)
{
    if (c->blocking)
        return join(c);
    c->joining = 1;
    c->threaded = pthread_create(&c->thread, NULL, join_later, c) == 0;
    return c->threaded ? ncclInProgress : ncclSystemError;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    driver d;
    *comm = NULL;
    MAY_FAIL();
    if (!find_driver(&d) || d.current() < 0)
        return refuse(ncclUnhandledCudaError, "no context is current");
    if (ranks < 1 || rank < 0 || rank >= ranks)
        return refuse(ncclInvalidArgument, "Invalid rank requested : %d/%d", rank, ranks);
    if (ranks > F8_EMU_RANKS)
        return refuse(ncclInternalError, "the stand-in has at most %d ranks", F8_EMU_RANKS);
    ncclResult_t r = check_config(config);
    ncclComm_t c = r ? NULL : calloc(1, sizeof *c);
    if (!c)
        return r ? r : ncclSystemError;
    c->device = d.current();
    c->id = id;
    c->blocking = !config || config->blocking != 0;
    c->member = (f8_emu_member){.rank = rank, .ranks = ranks};
    r = start_joining(c);
    if (r != ncclSuccess && r != ncclInProgress) {
        snprintf(last, sizeof last, "%s", c->why);
        free(c);
        return r;
    }
    do
        c->next = __atomic_load_n(&comms, __ATOMIC_ACQUIRE);
    while (!__atomic_compare_exchange_n(&comms, &c->next, c, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE));
    *comm = c;
    return r;
}

static ncclResult_t end(ncclComm_t c)
{
    __atomic_store_n(&c->member.cancelled, 1, __ATOMIC_RELEASE);
    if (c->threaded)
        pthread_join(c->thread, NULL);
    free(c->pending);
    c->pending = NULL;
    c->gone = true;
    if (c->in_world)
        f8_emu_leave_world(&c->member);
    return ncclSuccess;
}

/* A communicator for which no call goes on in the background. */
static ncclResult_t check_ready(const struct ncclComm *c, const char *function)
{
    const ncclResult_t r = check_comm(c, function);
    if (!r && (c->joining || c->pending || c->finalizes))
        return refuse(ncclInvalidArgument,
                      "%s: the call before is in progress: wait for ncclCommGetAsyncError",
                      function);
    return r || c->in_world ? r : c->error;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    MAY_FAIL();
    const ncclResult_t r = check_ready(comm, __func__);
    if (r)
        return r;
    if (comm->finalized)
        return refuse(ncclInvalidArgument, "ncclCommFinalize: a second time");
    if (comm->running)
        return refuse(ncclInternalError, "the stand-in finalizes no communicator that is in use");
    comm->finalized = true;
    comm->finalizes = !comm->blocking;
    return comm->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    MAY_FAIL();
    const ncclResult_t r = check_ready(comm, __func__);
    if (r)
        return r;
    if (comm->running)
        return refuse(ncclInternalError, "the stand-in destroys no communicator that is in use");
    if (!comm->blocking && !comm->finalized)
        return refuse(ncclInvalidUsage, "ncclCommDestroy: it would block: finalize before");
    return end(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    const ncclResult_t r = check_comm(comm, __func__);
    return r ? r : end(comm);
}

/* ---- running ---- */

static int ended(operation *o)
{
    operation **at = &o->comm->running;
    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    free(o);
    return 0;
}

/* The first rank whose operation does not go with this one. */
static bool fits(ncclComm_t c, const operation *o)
{
    char why[160];
    if (f8_emu_fits(&c->member, &o->post, why, sizeof why))
        return true;
    fail_later(c, ncclInvalidUsage, "operation %lld: %s", (long long)o->number, why);
    return false;
}

/* One try; the driver calls it until it is done. An operation that fails never ends by itself, as a
 * kernel that waits for a peer: an abort ends it. */
static int run(const void *data)
{
    operation *o = *(operation *const *)data;
    ncclComm_t c = o->comm;
    int code = ncclRemoteError;
    if (c->gone)
        return ended(o);
    if (!o->begun && f8_emu_fails("ncclAsync", &code))
        fail_later(c, code, "operation %lld fails as asked", (long long)o->number);
    o->begun = true;
    if (c->error)
        return F8_EMULATOR_LATER;
    if (!o->posted)
        o->posted = f8_emu_post_operation(&c->member, o->number, &o->post, o->from);
    int gone = -1;
    if (o->posted && f8_emu_all_posted(&c->member, o->number)) {
        if (!fits(c, o))
            return F8_EMULATOR_LATER;
        f8_emu_take(&c->member, o->number, &o->post, o->to);
        return ended(o);
    }
    if (o->tries++ % DEAD_EVERY == 0)
        gone = f8_emu_gone(&c->member, o->number);
    if (gone >= 0)
        fail_later(c, ncclRemoteError, "rank %d is gone", gone);
    return F8_EMULATOR_LATER;
}

static ncclResult_t check_usable(const struct ncclComm *c, const char *function)
{
    const ncclResult_t r = check_ready(c, function);
    return !r && c->finalized
               ? refuse(ncclInvalidUsage, "%s: the communicator is finalized", function)
               : r;
}

static ncclResult_t check_memory(const driver *d, const struct ncclComm *c, const void *p,
                                 size_t bytes, const char *function)
{
    if (bytes && d->device_of(p, bytes) != c->device)
        return refuse(ncclInvalidArgument, "%s: %p is no memory of device %d", function, p,
                      c->device);
    return ncclSuccess;
}

static ncclResult_t check_stream(const driver *d, const struct ncclComm *c, CUstream s,
                                 const char *function)
{
    CUstreamCaptureStatus status;
    if (d->device_of_stream(s) != c->device)
        return refuse(ncclInvalidUsage, "%s: the stream is not of device %d", function, c->device);
    if (d->is_capturing(s, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE)
        return refuse(ncclInvalidUsage, "%s: the stand-in captures no operation", function);
    return c->error ? refuse(c->error, "%s: an operation before has failed", function)
                    : ncclSuccess;
}

static ncclResult_t give_to_driver(const driver *d, operation *o, CUstream s)
{
    o->number = ++o->comm->enqueued;
    o->next = o->comm->running;
    o->comm->running = o;
    return d->enqueue(s, run, &o, sizeof o) == CUDA_SUCCESS
               ? ncclSuccess
               : refuse(ncclUnhandledCudaError, "the driver takes no work");
}

static ncclResult_t enqueue(const driver *d, const operation *what, CUstream s)
{
    ncclComm_t c = what->comm;
    operation *o = malloc(sizeof *o);
    if (!o)
        return ncclSystemError;
    *o = *what;
    if (c->blocking)
        return give_to_driver(d, o, s);
    c->pending = o;
    c->stream = s;
    c->asked = 0;
    return ncclInProgress;
}

/* What goes on in the background goes on here. */
static ncclResult_t state(ncclComm_t c)
{
    driver d;
    if (c->joining || (c->pending && !c->asked++))
        return ncclInProgress;
    operation *o = c->pending;
    const bool finalizes = c->finalizes;
    c->pending = NULL;
    c->finalizes = false;
    if (o && (!find_driver(&d) || give_to_driver(&d, o, c->stream)))
        fail_later(c, ncclUnhandledCudaError, "the driver takes no work");
    return finalizes ? ncclInProgress : c->error;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    MAY_FAIL();
    const ncclResult_t r = check_comm(comm, __func__);
    if (!r)
        *error = state(comm);
    return r;
}

/* ---- groups ---- */

typedef struct group {
    int depth;
    bool used, broken;
    operation o;
    CUstream stream;
} group;

static _Thread_local group now;

ncclResult_t ncclGroupStart(void)
{
    MAY_FAIL();
    if (!now.depth++)
        now = (group){.depth = 1, .o.post.kind = F8_EMU_GROUP};
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (!now.depth)
        return refuse(ncclInvalidUsage, "ncclGroupEnd: there is no group");
    if (--now.depth)
        return ncclSuccess;
    MAY_FAIL();
    driver d;
    if (now.broken || !now.used)
        return now.broken ? ncclInvalidUsage : ncclSuccess;
    return find_driver(&d) ? enqueue(&d, &now.o, now.stream) : ncclUnhandledCudaError;
}

/* Adds one half of a pair. Each peer once in a group, one communicator and one stream. */
static ncclResult_t add(void *at, size_t bytes, int peer, ncclComm_t comm, CUstream s, bool sends,
                        const char *function)
{
    driver d;
    if (!find_driver(&d))
        return ncclUnhandledCudaError;
    ncclResult_t r = check_usable(comm, function);
    if (!r)
        r = check_stream(&d, comm, s, function);
    if (!r)
        r = check_memory(&d, comm, at, bytes, function);
    if (r)
        return r;
    if (!now.depth)
        return refuse(ncclInvalidUsage, "%s outside of a group: ranks that all begin so deadlock",
                      function);
    if (peer < 0 || peer >= comm->member.ranks)
        return refuse(ncclInvalidArgument, "%s: there is no rank %d", function, peer);
    uint64_t *count = sends ? &now.o.post.sends[peer] : &now.o.post.receives[peer];
    if ((now.used && (now.o.comm != comm || now.stream != s)) || *count) {
        now.broken = true;
        return refuse(ncclInvalidUsage,
                      "%s: the stand-in has groups of one communicator and "
                      "stream, with each peer once",
                      function);
    }
    now.used = true;
    now.o.comm = comm;
    now.stream = s;
    *count = bytes;
    if (sends)
        now.o.from[peer] = at;
    else
        now.o.to[peer] = at;
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t s)
{
    MAY_FAIL();
    if (type != ncclUint8)
        return refuse(ncclInvalidArgument, "the stand-in moves bytes");
    return add((void *)(uintptr_t)send, count, peer, comm, s, true, __func__);
}

ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t s)
{
    MAY_FAIL();
    if (type != ncclUint8)
        return refuse(ncclInvalidArgument, "the stand-in moves bytes");
    return add(receive, count, peer, comm, s, false, __func__);
}

ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t s)
{
    driver d;
    MAY_FAIL();
    ncclResult_t r = check_usable(comm, __func__);
    if (!r && (type != ncclUint8 || now.depth || !find_driver(&d)))
        r = refuse(ncclInvalidArgument, "the stand-in gathers bytes, and not in a group");
    if (!r)
        r = check_stream(&d, comm, s, __func__);
    if (!r)
        r = check_memory(&d, comm, send, count, __func__);
    if (!r)
        r = check_memory(&d, comm, receive, count * (size_t)comm->member.ranks, __func__);
    if (r)
        return r;
    const uintptr_t from = (uintptr_t)send, to = (uintptr_t)receive;
    if (from < to + count * (size_t)comm->member.ranks && to < from + count &&
        from != to + count * (size_t)comm->member.rank)
        return refuse(ncclInvalidUsage, "ncclAllGather: what is sent lies in what is received");
    operation o = {.comm = comm, .post = {.kind = F8_EMU_GATHER}};
    for (int k = 0; k < comm->member.ranks; k++) {
        o.post.sends[k] = o.post.receives[k] = count;
        o.from[k] = send;
        o.to[k] = (char *)receive + (size_t)k * count;
    }
    return enqueue(&d, &o, s);
}

/* A sum of f32: of `count` numbers of each rank, or of as many for each rank. */
static ncclResult_t reduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t s, bool in_parts,
                           const char *function)
{
    driver d;
    ncclResult_t r = check_usable(comm, function);
    if (!r && (type != ncclFloat32 || op != ncclSum || now.depth || !find_driver(&d)))
        r = refuse(ncclInvalidArgument, "the stand-in adds f32, and not in a group");
    if (!r)
        r = check_stream(&d, comm, s, function);
    if (r)
        return r;
    const size_t bytes = count * sizeof(float),
                 sent = in_parts ? bytes * (size_t)comm->member.ranks : bytes;
    r = check_memory(&d, comm, send, sent, function);
    if (!r)
        r = check_memory(&d, comm, receive, bytes, function);
    if (r)
        return r;
    const uintptr_t from = (uintptr_t)send, to = (uintptr_t)receive;
    if (from < to + bytes && to < from + sent)
        return refuse(ncclInvalidUsage, "%s: what is sent lies in what is received", function);
    operation o = {.comm = comm, .post = {.kind = in_parts ? F8_EMU_SCATTER : F8_EMU_REDUCE}};
    for (int k = 0; k < comm->member.ranks; k++) {
        o.post.sends[k] = o.post.receives[k] = bytes;
        o.from[k] = (const char *)send + (in_parts ? (size_t)k * bytes : 0);
        o.to[k] = receive;
    }
    return enqueue(&d, &o, s);
}

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t s)
{
    MAY_FAIL();
    return reduce(send, receive, count, type, op, comm, s, false, __func__);
}

ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t s)
{
    MAY_FAIL();
    return reduce(send, receive, count, type, op, comm, s, true, __func__);
}
