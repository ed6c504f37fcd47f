/* NCCL: see nccl.h. */
#include "runtime/cuda/nccl.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ir/base/clock.h"
#include "ir/base/format.h"
#include "runtime/cuda/internal.h"

_Static_assert((int)F8_NCCL_ID == (int)NCCL_UNIQUE_ID_BYTES, "an id is NCCL's");

/* A collective that was enqueued. Its events tell whether the others are waited for. */
typedef struct enqueued {
    CUevent begins, ends;
    const char *op;
    int64_t bytes;
    char function[48], name[112], what[160]; /* what: all of them, for messages */
} enqueued;

enum {
    KEPT = 64, /* collectives that are remembered: later ones take the places of earlier ones */
    SECONDS = 600,
    SPINS = 2000, /* looks at the stream before the waiting thread sleeps between two of them */
    ERROR_EVERY = 64,
    STOPPED = 1, /* seconds between two looks: the process itself was stopped */
    CONFIG_VERSION = 21400,
};
static const struct timespec nap = {.tv_nsec = 50000};

/* How long something is waited for, by f8_seconds_now. */
typedef struct patience {
    double since, looked;
} patience;

struct f8_nccl {
    f8_allocator allocator;
    f8_cuda *cuda;
    int rank, ranks;
    double seconds;
    ncclComm_t comm; /* NULL: not joined yet, or aborted */
    CUstream stream;
    enqueued last[KEPT];
    uint64_t count; /* of all that were enqueued; the newest is last[(count - 1) % KEPT] */
    void (*observe)(void *user, const f8_exchange *x, bool ended);
    void *observer;
    uint64_t told, told_ended; /* the collectives, numbered from 1, that it knows of */
    CUdeviceptr staging;
    size_t staging_bytes;
    f8_comm host;
    bool joined;
    patience joining; /* from the call of NCCL until `joined` */
    f8_diag failure; /* status F8_OK until something fails */
};

/* ---- failures ---- */

#define CU(what, call, ...)                                                                        \
    F8_TRY(f8_cuda_check(n->cuda, n->cuda->cu.call(__VA_ARGS__), diag, #call " of %s", what))

static f8_status usable(const f8_nccl *n, f8_diag *diag)
{
    return n->failure.status == F8_OK
               ? F8_OK
               : f8_fail(diag, n->failure.status, F8_NOWHERE, "%s", n->failure.text);
}

static void end_comm(f8_nccl *n)
{
    const ncclComm_t comm = n->comm;
    n->comm = NULL;
    if (comm)
        n->cuda->nccl.ncclCommAbort(comm); /* what it answers changes nothing */
}

static f8_status failed(f8_nccl *n, const char *what, const char *why, const char *more,
                        f8_diag *diag)
{
    if (n->failure.status == F8_OK)
        f8_fail(&n->failure, F8_ERR_LIBRARY, F8_NOWHERE, "rank %d of %d: %s: %s%s%s", n->rank,
                n->ranks, what, why, *more ? ": " : "", more);
    end_comm(n);
    return usable(n, diag);
}

/* An error of NCCL ends the communicator: nothing is known of what it has done. */
static f8_status report(f8_nccl *n, ncclResult_t result, const char *what, f8_diag *diag)
{
    const f8_nccl_api *nccl = &n->cuda->nccl;
    if (result == ncclSuccess)
        return F8_OK;
    char why[160];
    const char *text = nccl->ncclGetErrorString(result), *more = nccl->ncclGetLastError(n->comm);
    snprintf(why, sizeof why, "NCCL: %s", text ? text : "an unknown error");
    return failed(n, what, why, more ? more : "", diag);
}

void f8_nccl_abort(f8_nccl *n, const char *why)
{
    if (n->failure.status == F8_OK)
        f8_fail(&n->failure, F8_ERR_LIBRARY, F8_NOWHERE,
                "rank %d of %d has left the other ranks: %s", n->rank, n->ranks, why);
    if (n->comm && f8_cuda_enter(n->cuda, NULL) == F8_OK) {
        end_comm(n);
        f8_cuda_leave(n->cuda);
    }
}

/* ---- the observer ---- */

void f8_nccl_observe(f8_nccl *n, void (*observe)(void *user, const f8_exchange *x, bool ended),
                     void *user)
{
    n->observe = observe;
    n->observer = user;
    n->told = n->told_ended = n->count; /* what was before is no news */
}

/* Tells of collective `number`, counted from 0, unless it is known. */
static void tell(f8_nccl *n, uint64_t number, bool ended)
{
    const enqueued *e = &n->last[number % KEPT];
    const f8_exchange x = {e->op, e->function, e->name, e->bytes, number + 1};
    if (!n->observe)
        return;
    if (n->told < number + 1)
        n->observe(n->observer, &x, false);
    n->told = number + 1;
    if (ended && n->told_ended < number + 1) {
        n->observe(n->observer, &x, true);
        n->told_ended = number + 1;
    }
}

/* ---- waiting ---- */

static patience from_now(void)
{
    const double now = f8_seconds_now();
    return (patience){now, now};
}

/* Called at every look. A process that was stopped waits anew: the others were given no time. */
static bool too_long(const f8_nccl *n, patience *p)
{
    const double now = f8_seconds_now();
    if (now - p->looked > STOPPED)
        p->since = now;
    p->looked = now;
    return now - p->since >= n->seconds;
}

static void rest(int looks)
{
    if (looks > SPINS)
        nanosleep(&nap, NULL);
    else
        sched_yield();
}

static f8_status joins_late(f8_nccl *n, f8_diag *diag)
{
    char why[160];
    f8_format(why, sizeof why,
              "it has waited for %.1f seconds for the others to join; the limit is %g: a rank is "
              "missing or stuck",
              n->joining.looked - n->joining.since, n->seconds);
    return failed(n, "joining the other ranks", why, "", diag);
}

static f8_status ends_late(f8_nccl *n, const char *what, f8_diag *diag)
{
    char why[120];
    f8_format(why, sizeof why, "it has not ended after %g seconds: another rank is gone or stuck",
              n->seconds);
    return failed(n, what, why, "", diag);
}

/* The communicator's state: an error, ncclInProgress or ncclSuccess. */
static ncclResult_t state(const f8_nccl *n)
{
    ncclResult_t now = ncclSuccess;
    const ncclResult_t asked = n->cuda->nccl.ncclCommGetAsyncError(n->comm, &now);
    return asked != ncclSuccess ? asked : now;
}

/* Waits for the end of a call that goes on in the background. Before that NCCL takes no other call,
 * and what the call enqueues is not in the stream. */
static f8_status settle(f8_nccl *n, const char *what, f8_diag *diag)
{
    patience own = from_now(), *p = n->joined ? &own : &n->joining;
    ncclResult_t now;
    for (int looks = 0; (now = state(n)) == ncclInProgress; looks++) {
        if (too_long(n, p))
            return n->joined ? ends_late(n, what, diag) : joins_late(n, diag);
        rest(looks);
    }
    return report(n, now, what, diag);
}

static f8_status check(f8_nccl *n, ncclResult_t result, const char *what, f8_diag *diag)
{
    return result == ncclInProgress ? settle(n, what, diag) : report(n, result, what, diag);
}

/* The first collective that has begun and not ended: other ranks are waited for. */
static const enqueued *running(const f8_nccl *n, uint64_t *number)
{
    const f8_cuda_api *cu = &n->cuda->cu;
    for (uint64_t i = n->count < KEPT ? 0 : n->count - KEPT; i < n->count; i++) {
        const enqueued *e = &n->last[i % KEPT];
        if (cu->cuEventQuery(e->ends) != CUDA_ERROR_NOT_READY)
            continue;
        *number = i;
        return cu->cuEventQuery(e->begins) == CUDA_SUCCESS ? e : NULL;
    }
    return NULL;
}

/* What a wait knows: since when which collective has been running. */
typedef struct watch {
    uint64_t number;
    bool runs;
    patience patience;
} watch;

static f8_status look(f8_nccl *n, watch *w, const char *what, f8_diag *diag)
{
    uint64_t number = 0;
    F8_TRY(usable(n, diag));
    const ncclResult_t now = state(n);
    const enqueued *e = running(n, &number);
    F8_TRY(report(n, now == ncclInProgress ? ncclSuccess : now, e ? e->what : what, diag));
    if (!n->joined && too_long(n, &n->joining))
        return joins_late(n, diag);
    if (e)
        tell(n, number, false);
    if (!e || !w->runs || w->number != number)
        *w = (watch){number, e != NULL, from_now()};
    return e && too_long(n, &w->patience) ? ends_late(n, e->what, diag) : F8_OK;
}

f8_status f8_nccl_wait(f8_nccl *n, CUstream stream, const char *what, f8_diag *diag)
{
    watch w = {0};
    CUresult r;
    for (int spins = 0; (r = n->cuda->cu.cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY; spins++) {
        if (spins % ERROR_EVERY == 0 || spins > SPINS)
            F8_TRY(look(n, &w, what, diag));
        rest(spins);
    }
    F8_TRY(f8_cuda_check(n->cuda, r, diag, "%s", what));
    F8_TRY(usable(n, diag));
    if (n->count)
        tell(n, n->count - 1, true);
    return F8_OK;
}

/* ---- collectives ---- */

/* Every rank sends `bytes` to each of the others and receives as many; its own part is a copy. */
static f8_status all_to_all(f8_nccl *n, CUdeviceptr send, CUdeviceptr receive, size_t bytes,
                            const char *what, f8_diag *diag)
{
    const f8_nccl_api *nccl = &n->cuda->nccl;
    const CUdeviceptr own = (CUdeviceptr)n->rank * bytes;
    CU(what, cuMemcpyDtoDAsync_v2, receive + own, send + own, bytes, n->stream);
    F8_TRY(check(n, nccl->ncclGroupStart(), what, diag));
    ncclResult_t first = ncclSuccess;
    for (int r = 0; r < n->ranks; r++) {
        const CUdeviceptr at = (CUdeviceptr)r * bytes;
        if (r == n->rank)
            continue;
        if (first == ncclSuccess)
            first = nccl->ncclSend((const void *)(uintptr_t)(send + at), bytes, ncclUint8, r,
                                   n->comm, n->stream);
        if (first == ncclSuccess)
            first = nccl->ncclRecv((void *)(uintptr_t)(receive + at), bytes, ncclUint8, r, n->comm,
                                   n->stream);
    }
    const ncclResult_t end = nccl->ncclGroupEnd(); /* in any case: it ends the group */
    return check(n, first != ncclSuccess ? first : end, what, diag);
}

/* A sum of f32, in an order of NCCL's own. */
static f8_status add(f8_nccl *n, f8_collective kind, CUdeviceptr send, CUdeviceptr receive,
                     size_t bytes, const char *what, f8_diag *diag)
{
    const f8_nccl_api *nccl = &n->cuda->nccl;
    const void *from = (const void *)(uintptr_t)send;
    void *to = (void *)(uintptr_t)receive;
    const size_t count = bytes / sizeof(float);
    const ncclResult_t r =
        kind == F8_COLLECTIVE_ALL_REDUCE
            ? nccl->ncclAllReduce(from, to, count, ncclFloat32, ncclSum, n->comm, n->stream)
            : nccl->ncclReduceScatter(from, to, count, ncclFloat32, ncclSum, n->comm, n->stream);
    return check(n, r, what, diag);
}

static f8_status start(f8_nccl *n, const f8_collective_desc *d, CUdeviceptr send,
                       CUdeviceptr receive, const char *what, f8_diag *diag)
{
    const size_t bytes = (size_t)d->bytes;
    switch (d->kind) {
    case F8_COLLECTIVE_ALL_GATHER:
        return check(n,
                     n->cuda->nccl.ncclAllGather((const void *)(uintptr_t)send,
                                                 (void *)(uintptr_t)receive, bytes, ncclUint8,
                                                 n->comm, n->stream),
                     what, diag);
    case F8_COLLECTIVE_ALL_TO_ALL: return all_to_all(n, send, receive, bytes, what, diag);
    case F8_COLLECTIVE_ALL_REDUCE:
    case F8_COLLECTIVE_REDUCE_SCATTER: return add(n, d->kind, send, receive, bytes, what, diag);
    case F8_COLLECTIVE_ALL_SLICE: break; /* exchanges nothing */
    }
    return F8_ERR_INTERNAL;
}

f8_status f8_nccl_enqueue(f8_nccl *n, const f8_collective_desc *d, CUdeviceptr send,
                          CUdeviceptr receive, CUstream stream, const char *step, const char *func,
                          uint64_t *number, f8_diag *diag)
{
    enqueued *e = &n->last[n->count % KEPT];
    F8_TRY(usable(n, diag));
    e->op = f8_collective_name[d->kind];
    e->bytes = d->bytes;
    snprintf(e->function, sizeof e->function, "%s", func);
    snprintf(e->name, sizeof e->name, "%s", step);
    snprintf(e->what, sizeof e->what, "%s '%s' in %s", e->op, step, func);
    CU(e->what, cuEventRecord, e->begins, stream);
    CU(e->what, cuStreamWaitEvent, n->stream, e->begins, 0);
    F8_TRY(start(n, d, send, receive, e->what, diag));
    CU(e->what, cuEventRecord, e->ends, n->stream);
    *number = n->count++;
    return F8_OK;
}

/* Where a later collective has taken the event, that one is waited for: it ends after this one. */
f8_status f8_nccl_join(f8_nccl *n, uint64_t number, CUstream stream, const char *what,
                       f8_diag *diag)
{
    F8_TRY(usable(n, diag));
    CU(what, cuStreamWaitEvent, stream, n->last[number % KEPT].ends, 0);
    return F8_OK;
}

/* ---- host memory ---- */

static f8_status make_staging(f8_nccl *n, size_t bytes, f8_diag *diag)
{
    if (bytes <= n->staging_bytes)
        return F8_OK;
    if (n->staging)
        n->cuda->cu.cuMemFree_v2(n->staging);
    n->staging = 0;
    n->staging_bytes = 0;
    CU("room to exchange host memory", cuMemAlloc_v2, &n->staging, bytes);
    n->staging_bytes = bytes;
    return F8_OK;
}

static f8_status exchange_staged(f8_nccl *n, const f8_collective_desc *d, const void *send,
                                 void *receive, f8_diag *diag)
{
    const size_t sent = (size_t)f8_collective_operand(d),
                 received = (size_t)f8_collective_result(d);
    uint64_t number;
    const size_t apart = (sent + 255) / 256 * 256;
    const char *what = f8_collective_name[d->kind];
    F8_TRY(make_staging(n, apart + received, diag));
    CU(what, cuMemcpyHtoDAsync_v2, n->staging, send, sent, n->stream);
    F8_TRY(f8_nccl_enqueue(n, d, n->staging, n->staging + apart, n->stream, "of host memory",
                           "this process", &number, diag));
    F8_TRY(f8_nccl_wait(n, n->stream, what, diag));
    CU(what, cuMemcpyDtoHAsync_v2, receive, n->staging + apart, received, n->stream);
    return f8_nccl_wait(n, n->stream, what, diag);
}

static f8_status exchange(f8_nccl *n, f8_collective kind, const void *send, void *receive,
                          int64_t bytes, f8_diag *diag)
{
    const f8_collective_desc d = {.kind = kind, .ranks = n->ranks, .bytes = bytes};
    F8_TRY(usable(n, diag));
    if (!bytes)
        return F8_OK;
    F8_TRY(f8_cuda_enter(n->cuda, diag));
    f8_diag own = {0};
    const f8_status status = exchange_staged(n, &d, send, receive, &own);
    f8_cuda_leave(n->cuda);
    if (status == F8_OK)
        return F8_OK;
    f8_nccl_abort(n, own.text); /* or the others wait for this rank */
    return f8_fail(diag, status, F8_NOWHERE, "%s", own.text);
}

static f8_status host_all_gather(void *user, const void *send, void *receive, int64_t bytes,
                                 f8_diag *diag)
{
    return exchange(user, F8_COLLECTIVE_ALL_GATHER, send, receive, bytes, diag);
}

static f8_status host_all_to_all(void *user, const void *send, void *receive, int64_t bytes,
                                 f8_diag *diag)
{
    return exchange(user, F8_COLLECTIVE_ALL_TO_ALL, send, receive, bytes, diag);
}

const f8_comm *f8_nccl_comm(const f8_nccl *n)
{
    return &n->host;
}

/* ---- life ---- */

int f8_nccl_rank(const f8_nccl *n)
{
    return n->rank;
}

int f8_nccl_ranks(const f8_nccl *n)
{
    return n->ranks;
}

int f8_nccl_ordinal(const f8_nccl *n)
{
    return (int)n->cuda->device;
}

f8_status f8_nccl_present(f8_cuda *cuda, f8_diag *diag)
{
    return f8_cuda_load(cuda, F8_CUDA_NCCL, diag);
}

/* NCCL reads it by getenv, also in a set-uid process. */
bool f8_nccl_has_address(void)
{
    const char *address = getenv("NCCL_COMM_ID");
    return address && *address;
}

f8_status f8_nccl_id(f8_cuda *cuda, void *id, f8_diag *diag)
{
    ncclUniqueId made;
    F8_TRY(f8_cuda_load(cuda, F8_CUDA_NCCL, diag));
    const ncclResult_t r = cuda->nccl.ncclGetUniqueId(&made);
    if (r != ncclSuccess) {
        const char *more = cuda->nccl.ncclGetLastError(NULL);
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "ncclGetUniqueId: %s%s%s",
                       cuda->nccl.ncclGetErrorString(r), more && *more ? ": " : "",
                       more ? more : "");
    }
    memcpy(id, &made, sizeof made);
    return F8_OK;
}

/* Both kinds once: connections that NCCL makes at first use exist, and what it refuses, as two
 * ranks on one GPU, it refuses now. */
static f8_status try_both(f8_nccl *n, f8_diag *diag)
{
    static const char zeros[F8_MAX_RANKS];
    char got[F8_MAX_RANKS];
    const f8_collective_desc gather = {
        .kind = F8_COLLECTIVE_ALL_GATHER, .ranks = n->ranks, .bytes = 1};
    const f8_collective_desc all = {
        .kind = F8_COLLECTIVE_ALL_TO_ALL, .ranks = n->ranks, .bytes = 1};
    F8_TRY(exchange_staged(n, &gather, zeros, got, diag));
    return exchange_staged(n, &all, zeros, got, diag);
}

static f8_status join(f8_nccl *n, const void *id, f8_diag *diag)
{
    ncclUniqueId which;
    memcpy(&which, id, sizeof which);
    CU("NCCL", cuStreamCreate, &n->stream, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < KEPT; i++) {
        CU("NCCL", cuEventCreate, &n->last[i].begins, CU_EVENT_DISABLE_TIMING);
        CU("NCCL", cuEventCreate, &n->last[i].ends, CU_EVENT_DISABLE_TIMING);
    }
    ncclConfig_t config = {sizeof config, NCCL_CONFIG_MAGIC, CONFIG_VERSION, .blocking = 0};
    n->joining = from_now();
    F8_TRY(check(n,
                 n->cuda->nccl.ncclCommInitRankConfig(&n->comm, n->ranks, which, n->rank, &config),
                 "joining the other ranks", diag));
    F8_TRY(try_both(n, diag));
    n->joined = true;
    return F8_OK;
}

f8_status f8_nccl_create(f8_cuda *cuda, const f8_nccl_options *o, f8_nccl **out, f8_diag *diag)
{
    *out = NULL;
    if (o->ranks < 1 || o->ranks > F8_MAX_RANKS || o->rank < 0 || o->rank >= o->ranks)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "NCCL: rank %d of %d: ranks are 1 to %d, and each has a number below that",
                       o->rank, o->ranks, F8_MAX_RANKS);
    F8_TRY(f8_cuda_load(cuda, F8_CUDA_NCCL, diag));
    f8_nccl *n = o->allocator->alloc(o->allocator->user, sizeof *n, 16);
    if (!n)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       sizeof *n);
    *n = (f8_nccl){.allocator = *o->allocator,
                   .cuda = cuda,
                   .rank = o->rank,
                   .ranks = o->ranks,
                   .seconds = o->seconds > 0 ? o->seconds : SECONDS};
    n->host = (f8_comm){.rank = o->rank,
                        .ranks = o->ranks,
                        .user = n,
                        .all_gather = host_all_gather,
                        .all_to_all = host_all_to_all};
    f8_status status = f8_cuda_enter(cuda, diag);
    if (status == F8_OK) {
        status = join(n, o->id, diag);
        f8_cuda_leave(cuda);
    }
    if (status != F8_OK)
        f8_nccl_destroy(n);
    else
        *out = n;
    return status;
}

/* Finalizing waits for what the ranks still do, under the limit; what is finalized is freed without
 * waiting. If it fails, the communicator is aborted. */
static void leave(f8_nccl *n)
{
    const f8_nccl_api *nccl = &n->cuda->nccl;
    if (n->comm && n->joined && n->failure.status == F8_OK &&
        check(n, nccl->ncclCommFinalize(n->comm), "leaving the other ranks", NULL) == F8_OK &&
        nccl->ncclCommDestroy(n->comm) == ncclSuccess)
        n->comm = NULL;
    end_comm(n);
}

/* The results of the calls are ignored: after the device is lost they all fail, and the driver has
 * freed everything itself. */
void f8_nccl_destroy(f8_nccl *n)
{
    if (!n)
        return;
    const f8_cuda_api *cu = &n->cuda->cu;
    const bool entered = f8_cuda_enter(n->cuda, NULL) == F8_OK;
    if (entered)
        leave(n);
    else
        end_comm(n);
    if (n->staging)
        cu->cuMemFree_v2(n->staging);
    for (int i = 0; i < KEPT; i++) {
        if (n->last[i].begins)
            cu->cuEventDestroy_v2(n->last[i].begins);
        if (n->last[i].ends)
            cu->cuEventDestroy_v2(n->last[i].ends);
    }
    if (n->stream)
        cu->cuStreamDestroy_v2(n->stream);
    if (entered)
        f8_cuda_leave(n->cuda);
    const f8_allocator allocator = n->allocator;
    allocator.free(allocator.user, n, sizeof *n);
}
