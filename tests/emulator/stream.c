/* Streams, events and graphs. A stream that does not capture does all work within the call, on the
 * calling thread. As on a device, a kernel's error is returned by the calls after the launch. A
 * stream that captures records its work, and launching the graph does it in order.
 *
 * Work that waits for others (NCCL's) stays in its stream with all that comes after it. Every call
 * that looks at the stream, waits for it or gives it more work tries it again.
 *
 * With FP8C_EMULATOR_LAZY=1 a stream does its work as late as it may: when somebody waits for it.
 * Another stream then does its own work before, unless it was told to wait for an event. Work of
 * the default stream (NULL) waits for all others and is done within the call. The same stream under
 * its name CU_STREAM_LEGACY is as late as others, and is ordered with those alone that were not
 * created with CU_STREAM_NON_BLOCKING: whoever relies on more gets a wrong result.
 * CU_STREAM_PER_THREAD is here one stream for all threads. */
#include "tests/emulator/driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum work_kind {
    WORK_KERNEL,
    WORK_COPY,
    WORK_SET,
    WORK_CALL,
    WORK_EVENT,
    WORK_WAIT
} work_kind;

typedef struct work {
    work_kind kind;
    f8_emu_kernel_call kernel;
    struct {
        void *to;
        const void *from;
        size_t bytes;
        unsigned value;
        int width; /* bytes of `value` */
    } move;
    int (*call)(const void *data);
    void *data; /* owned: CALL */
    CUevent event;
    CUstream awaited; /* WAIT: this stream's work before `until` */
    uint64_t until;
} work;

struct CUgraph_st {
    f8_emu_object object;
    work *work;
    size_t n, room;
};

/* Before its own fields the same as a graph: f8_emu_graph_clear takes all three. */
struct CUgraphExec_st {
    struct CUgraph_st graph;
};

struct CUstream_st {
    struct CUgraph_st captured;
    bool apart;              /* CU_STREAM_NON_BLOCKING: not ordered with CU_STREAM_LEGACY */
    int status, mode;        /* CUstreamCaptureStatus, CUstreamCaptureMode */
    pthread_t owner;         /* who began the capture */
    struct CUgraph_st queue; /* lazy: work from number `first` on, of which `next` is the first that
                                is not done */
    uint64_t first;
    size_t next;
};

struct CUevent_st {
    f8_emu_object object;
    struct timespec at;
    bool recorded;
    CUstream
        stream; /* lazy: where it was recorded last, behind work number `until`; NULL: nowhere */
    uint64_t until;
};

/* ---- implicit streams: in no list of objects ---- */

enum { LEGACY, PER_THREAD, IMPLICIT };
static struct CUstream_st implicit[F8_EMU_DEVICES][IMPLICIT];

/* The stream that a caller names. */
static CUstream actual(CUstream s)
{
    const uintptr_t handle = (uintptr_t)s;
    if (handle != F8_EMULATOR_LEGACY && handle != F8_EMULATOR_PER_THREAD)
        return s;
    CUstream found =
        &implicit[f8_emu_current()][handle == F8_EMULATOR_LEGACY ? LEGACY : PER_THREAD];
    found->captured.object.device = f8_emu_current();
    return found;
}

static bool is_implicit(CUstream s)
{
    return s >= &implicit[0][0] && s < &implicit[0][0] + F8_EMU_DEVICES * IMPLICIT;
}

static bool is_legacy(CUstream s)
{
    return is_implicit(s) && (s - &implicit[0][0]) % IMPLICIT == LEGACY;
}

/* ---- work ---- */

static void work_free(work *w)
{
    free(w->kernel.params);
    free(w->data);
}

void f8_emu_graph_clear(void *graph)
{
    struct CUgraph_st *g = graph;
    for (size_t i = 0; i < g->n; i++)
        work_free(&g->work[i]);
    free(g->work);
    g->work = NULL;
    g->n = g->room = 0;
}

static bool append(struct CUgraph_st *g, const work *w)
{
    if (g->n == g->room) {
        const size_t room = g->room ? 2 * g->room : 16;
        work *grown = realloc(g->work, room * sizeof *grown);
        if (!grown)
            return false;
        g->work = grown;
        g->room = room;
    }
    g->work[g->n++] = *w;
    return true;
}

static bool append_copy(struct CUgraph_st *g, const work *from)
{
    work w = *from;
    const size_t params = w.kind == WORK_KERNEL ? f8_emu_kernel_params(&w.kernel) : 0;
    if (w.kernel.params)
        w.kernel.params = malloc(params);
    if (w.data)
        w.data = malloc(w.move.bytes);
    if ((from->kernel.params && !w.kernel.params) || (from->data && !w.data) || !append(g, &w)) {
        work_free(&w);
        return false;
    }
    if (w.kernel.params)
        memcpy(w.kernel.params, from->kernel.params, params);
    if (w.data)
        memcpy(w.data, from->data, w.move.bytes);
    return true;
}

static void set_memory(const work *w)
{
    uint8_t *to = w->move.to;
    if (w->move.width == 1) {
        memset(to, (int)w->move.value, w->move.bytes);
        return;
    }
    for (size_t i = 0; i < w->move.bytes; i += 4)
        memcpy(to + i, &w->move.value, 4);
}

static bool drain(CUstream s, uint64_t until);

/* false: it waits for others, and is to be done again. */
static bool perform(const work *w, int device)
{
    int error = 0;
    if (f8_emu_stuck(device))
        return true;
    switch (w->kind) {
    case WORK_KERNEL: error = f8_emu_kernel_run(&w->kernel); break;
    case WORK_COPY: memmove(w->move.to, w->move.from, w->move.bytes); break;
    case WORK_SET: set_memory(w); break;
    case WORK_CALL:
        error = w->call(w->data);
        if (error == F8_EMULATOR_LATER)
            return false;
        break;
    case WORK_EVENT:
        clock_gettime(CLOCK_MONOTONIC, &w->event->at);
        w->event->recorded = true;
        break;
    case WORK_WAIT: return drain(w->awaited, w->until);
    }
    if (error)
        f8_emu_stick(device, error);
    return true;
}

static bool lazy(void)
{
    return f8_emu_setting("FP8C_EMULATOR_LAZY", 0) != 0;
}

/* Do what a stream has yet to do, up to work number `until`. false: some of it waits for others. */
static bool drain(CUstream s, uint64_t until)
{
    if (!s || (!is_implicit(s) && !f8_emu_object_lives(s, F8_EMU_STREAM)))
        return true;
    while (s->next < s->queue.n && s->first + s->next < until) {
        const work w = s->queue.work[s->next];
        if (!perform(&w, s->captured.object.device))
            return false;
        s->next++;
    }
    if (s->next < s->queue.n)
        return true;
    s->first += s->queue.n;
    s->next = 0;
    f8_emu_graph_clear(&s->queue);
    return true;
}

static void wait_until(CUstream s, uint64_t until)
{
    while (!drain(s, until))
        f8_emu_pause();
}

/* A stream of the device that waits for others. */
static f8_emu_object *waits(f8_emu_object *o, void *user)
{
    return o->device != *(const int *)user || drain((CUstream)o, UINT64_MAX) ? NULL : o;
}

static bool drain_device(int device)
{
    bool done = true;
    for (int i = 0; i < IMPLICIT; i++)
        done &= drain(&implicit[device][i], UINT64_MAX);
    for (f8_emu_object *o = f8_emu_object_find(F8_EMU_STREAM, waits, &device); o; o = o->next)
        if (o->kind == F8_EMU_STREAM && waits(o, &device))
            done = false;
    return done;
}

void f8_emu_streams_end(int device)
{
    for (int i = 0; i < IMPLICIT; i++) {
        f8_emu_graph_clear(&implicit[device][i].queue);
        implicit[device][i] = (struct CUstream_st){0};
    }
}

void f8_emu_drain_all(int device)
{
    drain_device(device);
}

void f8_emu_wait_all(int device)
{
    while (!drain_device(device))
        f8_emu_pause();
}

static bool capturing(CUstream s)
{
    return s && s->status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static bool is_stream(CUstream s)
{
    return !s || is_implicit(s) || f8_emu_object_lives(s, F8_EMU_STREAM);
}

static const char *const kind_names[] = {
    [WORK_KERNEL] = "kernel", [WORK_COPY] = "copy",   [WORK_SET] = "set",
    [WORK_CALL] = "call",     [WORK_EVENT] = "event", [WORK_WAIT] = "wait"};

static bool wait_for(CUstream s, CUstream other)
{
    const work w = {.kind = WORK_WAIT, .awaited = other, .until = other->first + other->queue.n};
    return other->next == other->queue.n || append(&s->queue, &w);
}

/* The legacy stream, which waits for this one. */
static f8_emu_object *orders(f8_emu_object *o, void *user)
{
    CUstream s = (CUstream)o, legacy = user;
    return o->device != legacy->captured.object.device || s->apart || wait_for(legacy, s) ? NULL
                                                                                          : o;
}

/* The order between the legacy stream and those that are not apart from it, before one of them gets
 * more work. false: out of memory. */
static bool order(CUstream s)
{
    CUstream legacy = &implicit[s->captured.object.device][LEGACY];
    if (is_legacy(s))
        return !f8_emu_object_find(F8_EMU_STREAM, orders, s) &&
               wait_for(s, &implicit[s->captured.object.device][PER_THREAD]);
    return s->apart || wait_for(s, legacy);
}

/* A capture takes a kernel that may begin before the one ahead ends only right behind a kernel, ours
 * or a library's: what a real driver makes of others is not written down. */
static bool is_behind_kernel(const struct CUgraph_st *g)
{
    const work_kind last = g->n ? g->work[g->n - 1].kind : WORK_SET;
    return last == WORK_KERNEL || last == WORK_CALL;
}

/* Takes over what the work owns, also on failure. The default stream waits for all others. */
static CUresult enqueue(CUstream named, work *w)
{
    CUstream s = actual(named);
    CUresult r = CUDA_SUCCESS;
    if (!is_stream(s))
        r = CUDA_ERROR_INVALID_HANDLE;
    else if ((!s || is_legacy(s)) && f8_emu_captures())
        r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    else if (capturing(s) && s->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (capturing(s) && w->kernel.dependent &&
             (f8_emu_setting("FP8C_EMULATOR_DRIVER", 13000) < 12030 ||
              !is_behind_kernel(&s->captured)))
        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    else if (capturing(s)) {
        if (append(&s->captured, w))
            return CUDA_SUCCESS;
        r = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (s) {
        if (order(s) && append(&s->queue, w)) {
            f8_emu_record_work(kind_names[w->kind], named, false);
            if (!lazy())
                drain(s, UINT64_MAX);
            return CUDA_SUCCESS;
        }
        r = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        f8_emu_record_work(kind_names[w->kind], named, false);
        f8_emu_wait_all(f8_emu_current());
        while (!perform(w, f8_emu_current()))
            f8_emu_pause();
    }
    work_free(w);
    return r;
}

CUresult f8_emu_enqueue_kernel(CUstream s, const f8_emu_kernel_call *call)
{
    work w = {.kind = WORK_KERNEL, .kernel = *call};
    return enqueue(s, &w);
}

CUresult f8_emulator_enqueue(CUstream s, int (*call)(const void *data), const void *data,
                             size_t bytes)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    work w = {.kind = WORK_CALL, .call = call, .data = malloc(bytes), .move.bytes = bytes};
    if (!w.data)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(w.data, data, bytes);
    return enqueue(s, &w);
}

int f8_emulator_is_device(const void *p, size_t bytes)
{
    const CUresult entered = f8_emu_enter(__func__, F8_EMU_NO_CONTEXT);
    const int is = !entered && f8_emu_memory_is_device((CUdeviceptr)(uintptr_t)p, bytes);
    f8_emu_leave(&entered);
    return is;
}

int f8_emulator_device_of(const void *p, size_t bytes)
{
    const CUresult entered = f8_emu_enter(__func__, F8_EMU_NO_CONTEXT);
    const int device = entered ? -1 : f8_emu_memory_device((CUdeviceptr)(uintptr_t)p, bytes);
    f8_emu_leave(&entered);
    return device;
}

int f8_emulator_device_of_stream(CUstream s)
{
    const CUresult entered = f8_emu_enter(__func__, F8_EMU_NO_CONTEXT);
    s = entered ? NULL : actual(s);
    const int device = s && is_stream(s) ? s->captured.object.device : -1;
    f8_emu_leave(&entered);
    return device;
}

/* ---- copies ---- */

/* device: which of the two ends must be device memory. */
static CUresult copy(CUstream s, void *to, bool to_device, const void *from, bool from_device,
                     size_t bytes)
{
    if (!bytes)
        return CUDA_SUCCESS;
    if ((to_device && !f8_emu_memory_is_device((CUdeviceptr)(uintptr_t)to, bytes)) ||
        (from_device && !f8_emu_memory_is_device((CUdeviceptr)(uintptr_t)from, bytes)) || !to ||
        !from)
        return CUDA_ERROR_INVALID_VALUE;
    work w = {.kind = WORK_COPY, .move = {.to = to, .from = from, .bytes = bytes}};
    return enqueue(s, &w);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream s)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    if (bytes && !f8_emu_memory_is_pinned(from, bytes))
        f8_emu_record_wait(F8_EMU_WAIT_PAGEABLE);
    return copy(s, (void *)(uintptr_t)to, true, from, false, bytes);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream s)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    if (bytes && !f8_emu_memory_is_pinned(to, bytes))
        f8_emu_record_wait(F8_EMU_WAIT_PAGEABLE);
    return copy(s, to, false, (const void *)(uintptr_t)from, true, bytes);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    return copy(s, (void *)(uintptr_t)to, true, (const void *)(uintptr_t)from, true, bytes);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    f8_emu_record_wait(F8_EMU_WAIT_COPY);
    return copy(NULL, (void *)(uintptr_t)to, true, from, false, bytes);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    f8_emu_record_wait(F8_EMU_WAIT_COPY);
    return copy(NULL, to, false, (const void *)(uintptr_t)from, true, bytes);
}

static CUresult set(CUstream s, CUdeviceptr to, unsigned value, int width, size_t count)
{
    const size_t bytes = count * (size_t)width;
    if (!bytes)
        return CUDA_SUCCESS;
    if (!f8_emu_memory_is_device(to, bytes) || to % (unsigned)width)
        return CUDA_ERROR_INVALID_VALUE;
    work w = {.kind = WORK_SET, .move = {(void *)(uintptr_t)to, NULL, bytes, value, width}};
    return enqueue(s, &w);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream s)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    return set(s, to, value, 1, bytes);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream s)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    return set(s, to, value, 4, count);
}

/* ---- streams ---- */

CUresult cuStreamCreate(CUstream *s, unsigned flags)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    if (flags > CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    *s = f8_emu_object_new(F8_EMU_STREAM, sizeof **s);
    if (*s)
        (*s)->apart = flags == CU_STREAM_NON_BLOCKING;
    return *s ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamDestroy_v2(CUstream s)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    if (is_implicit(actual(s)))
        return CUDA_ERROR_INVALID_HANDLE;
    wait_until(s, UINT64_MAX);
    return f8_emu_object_destroy(s, F8_EMU_STREAM);
}

static CUresult may_wait(CUstream s)
{
    if (!is_stream(s))
        return CUDA_ERROR_INVALID_HANDLE;
    if ((!s || is_legacy(s)) && f8_emu_captures())
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (!capturing(s))
        return CUDA_SUCCESS;
    s->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult cuStreamSynchronize(CUstream s)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    s = actual(s);
    f8_emu_record_wait(F8_EMU_WAIT_STREAM);
    const CUresult r = may_wait(s);
    if (r)
        return r;
    if (s)
        wait_until(s, UINT64_MAX);
    else
        f8_emu_wait_all(f8_emu_current());
    return f8_emu_stuck(f8_emu_current());
}

CUresult cuStreamQuery(CUstream s)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    s = actual(s);
    const CUresult r = may_wait(s);
    if (r)
        return r;
    const bool done = s ? drain(s, UINT64_MAX) : drain_device(f8_emu_current());
    return done ? f8_emu_stuck(f8_emu_current()) : CUDA_ERROR_NOT_READY;
}

/* ---- capture ---- */

static f8_emu_object *capture_of(f8_emu_object *o, void *user)
{
    CUstream s = (CUstream)o;
    const bool counts =
        capturing(s) && s->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        (s->mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL || pthread_equal(s->owner, pthread_self()));
    (void)user;
    return counts ? o : NULL;
}

bool f8_emu_captures(void)
{
    CUstream s = (CUstream)f8_emu_object_find(F8_EMU_STREAM, capture_of, NULL);
    if (s)
        s->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return s != NULL;
}

CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    s = actual(s);
    if (!s || is_legacy(s))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!is_stream(s))
        return CUDA_ERROR_INVALID_HANDLE;
    if (capturing(s) || mode < 0 || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    s->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    s->mode = mode;
    s->owner = pthread_self();
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream s, CUgraph *graph)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    *graph = NULL;
    s = actual(s);
    if (!s || !is_stream(s))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!capturing(s))
        return CUDA_ERROR_INVALID_VALUE;
    const bool good = s->status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    struct CUgraph_st *g = good ? f8_emu_object_new(F8_EMU_GRAPH, sizeof *g) : NULL;
    s->status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!g) {
        f8_emu_graph_clear(&s->captured);
        return good ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    g->work = s->captured.work;
    g->n = s->captured.n;
    g->room = s->captured.room;
    s->captured.work = NULL;
    s->captured.n = s->captured.room = 0;
    *graph = g;
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *status)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    s = actual(s);
    if (!is_stream(s))
        return CUDA_ERROR_INVALID_HANDLE;
    *status = s ? s->status : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

/* ---- graphs ---- */

static bool copy_graph(struct CUgraph_st *to, const struct CUgraph_st *from)
{
    for (size_t i = 0; i < from->n; i++)
        if (!append_copy(to, &from->work[i]))
            return false;
    return true;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    F8_EMU_ENTER(F8_EMU_UNSAFE);
    if (!f8_emu_object_lives(graph, F8_EMU_GRAPH))
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags)
        return CUDA_ERROR_NOT_SUPPORTED;
    *exec = f8_emu_object_new(F8_EMU_GRAPH_EXEC, sizeof **exec);
    if (!*exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (copy_graph(&(*exec)->graph, graph))
        return CUDA_SUCCESS;
    f8_emu_object_free(*exec);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Only parameters may differ: the same kinds of work in the same order, the same kernels. */
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                              CUgraphExecUpdateResultInfo *result_info)
{
    F8_EMU_ENTER(F8_EMU_UNSAFE);
    (void)result_info;
    if (!f8_emu_object_lives(exec, F8_EMU_GRAPH_EXEC) || !f8_emu_object_lives(graph, F8_EMU_GRAPH))
        return CUDA_ERROR_INVALID_HANDLE;
    bool same = exec->graph.n == graph->n;
    for (size_t i = 0; same && i < graph->n; i++)
        same = exec->graph.work[i].kind == graph->work[i].kind &&
               exec->graph.work[i].kernel.function == graph->work[i].kernel.function;
    if (!same)
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    f8_emu_graph_clear(&exec->graph);
    return copy_graph(&exec->graph, graph) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream named)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    CUstream s = actual(named);
    if (!f8_emu_object_lives(exec, F8_EMU_GRAPH_EXEC) || !is_stream(s))
        return CUDA_ERROR_INVALID_HANDLE;
    if (capturing(s))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* it would become a child graph */
    for (size_t i = 0; i < exec->graph.n; i++)
        f8_emu_record_work(kind_names[exec->graph.work[i].kind], named, true);
    if (s) {
        if (!order(s) || !copy_graph(&s->queue, &exec->graph))
            return CUDA_ERROR_OUT_OF_MEMORY;
        if (!lazy())
            drain(s, UINT64_MAX);
        return CUDA_SUCCESS;
    }
    f8_emu_wait_all(f8_emu_current());
    for (size_t i = 0; i < exec->graph.n; i++)
        perform(&exec->graph.work[i], f8_emu_current());
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    return f8_emu_object_destroy(exec, F8_EMU_GRAPH_EXEC);
}

CUresult cuGraphDestroy(CUgraph graph)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    return f8_emu_object_destroy(graph, F8_EMU_GRAPH);
}

/* ---- events ---- */

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    if (flags > 3)
        return CUDA_ERROR_INVALID_VALUE;
    *event = f8_emu_object_new(F8_EMU_EVENT, sizeof **event);
    return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    if (f8_emu_object_lives(event, F8_EMU_EVENT))
        wait_until(event->stream, event->until); /* which writes to the event */
    return f8_emu_object_destroy(event, F8_EMU_EVENT);
}

CUresult cuEventRecord(CUevent event, CUstream s)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    if (!f8_emu_object_lives(event, F8_EMU_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    work w = {.kind = WORK_EVENT, .event = event};
    const CUresult r = enqueue(s, &w);
    s = actual(s);
    if (r == CUDA_SUCCESS && s && !capturing(s)) {
        event->stream = s;
        event->until = s->first + s->queue.n;
    }
    return r;
}

CUresult cuStreamWaitEvent(CUstream named, CUevent event, unsigned flags)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    CUstream s = actual(named);
    if (!f8_emu_object_lives(event, F8_EMU_EVENT) || !is_stream(s))
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (capturing(s))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* the event's stream would join */
    if (!event->stream)
        return CUDA_SUCCESS;
    work w = {.kind = WORK_WAIT, .awaited = event->stream, .until = event->until};
    return enqueue(named, &w);
}

CUresult cuEventSynchronize(CUevent event)
{
    F8_EMU_ENTER(F8_EMU_UNSAFE);
    f8_emu_record_wait(F8_EMU_WAIT_EVENT);
    if (!f8_emu_object_lives(event, F8_EMU_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    wait_until(event->stream, event->until);
    return f8_emu_stuck(f8_emu_current());
}

CUresult cuEventQuery(CUevent event)
{
    F8_EMU_ENTER(F8_EMU_UNSAFE);
    if (!f8_emu_object_lives(event, F8_EMU_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    return drain(event->stream, event->until) ? f8_emu_stuck(f8_emu_current())
                                              : CUDA_ERROR_NOT_READY;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    if (!f8_emu_object_lives(start, F8_EMU_EVENT) || !f8_emu_object_lives(end, F8_EMU_EVENT) ||
        !start->recorded || !end->recorded)
        return CUDA_ERROR_INVALID_HANDLE;
    *milliseconds = (float)(end->at.tv_sec - start->at.tv_sec) * 1e3f +
                    (float)(end->at.tv_nsec - start->at.tv_nsec) * 1e-6f;
    return CUDA_SUCCESS;
}
