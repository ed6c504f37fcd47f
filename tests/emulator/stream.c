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
#include "tests/emulator/stream.h"

#include <stdlib.h>
#include <string.h>

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

/* The list that a stream's work goes to while it captures. */
static struct CUgraph_st *captures_to(CUstream s)
{
    return s->origin ? &s->origin->captured : &s->captured;
}

/* What a broken call does to a capture. */
static void invalidate(CUstream s)
{
    CUstream origin = s->origin ? s->origin : s;
    origin->status = s->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
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
    return other->next == other->queue.n || f8_emu_append(&s->queue, &w);
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

/* A capture takes a kernel that may begin before the one ahead ends only right behind a kernel,
 * ours or a library's: what a real driver makes of others is not written down. */
static bool is_behind_kernel(CUstream s)
{
    const struct CUgraph_st *g = captures_to(s);
    size_t i = g->n;
    while (i > 0 && (g->work[i - 1].lane != s->lane || g->work[i - 1].kind == WORK_EVENT))
        i--;
    return i && (g->work[i - 1].kind == WORK_KERNEL || g->work[i - 1].kind == WORK_CALL);
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
             (f8_emu_setting("FP8C_EMULATOR_DRIVER", 13000) < 12030 || !is_behind_kernel(s)))
        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    else if (capturing(s)) {
        w->lane = s->lane;
        if (f8_emu_append(captures_to(s), w))
            return CUDA_SUCCESS;
        r = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (s) {
        if (order(s) && f8_emu_append(&s->queue, w)) {
            f8_emu_record_work(kind_names[w->kind], named, false, 0);
            if (!lazy())
                drain(s, UINT64_MAX);
            return CUDA_SUCCESS;
        }
        r = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        f8_emu_record_work(kind_names[w->kind], named, false, 0);
        f8_emu_wait_all(f8_emu_current());
        while (!perform(w, f8_emu_current()))
            f8_emu_pause();
    }
    f8_emu_work_free(w);
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
    invalidate(s);
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
        invalidate(s);
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
    static uint64_t captures;
    s->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    s->mode = mode;
    s->owner = pthread_self();
    s->lane = 0;
    s->n_lanes = 1;
    s->capture = ++captures;
    return CUDA_SUCCESS;
}

/* Streams that joined a capture leave it with its end. */
static f8_emu_object *leave(f8_emu_object *o, void *user)
{
    CUstream s = (CUstream)o;
    if (s->origin == user) {
        s->origin = NULL;
        s->status = CU_STREAM_CAPTURE_STATUS_NONE;
    }
    return NULL;
}

/* A stream waits within a capture, or joins one. */
static CUresult wait_captured(CUstream s, CUevent event)
{
    CUstream origin = event->stream;
    if (!is_stream(origin) || !capturing(origin) || origin->capture != event->capture)
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    if (capturing(s) && (s->origin ? s->origin : s) != origin)
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    if (!capturing(s)) {
        if (origin->n_lanes == F8_EMU_LANES)
            return CUDA_ERROR_NOT_SUPPORTED;
        s->origin = origin;
        s->lane = origin->n_lanes++;
        s->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
        s->mode = origin->mode;
        s->owner = origin->owner;
    }
    work w = {.kind = WORK_WAIT, .after = event->node};
    return enqueue(s, &w);
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
    if (s->origin)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    const bool joined = f8_emu_graph_is_joined(&s->captured);
    const bool good = s->status == CU_STREAM_CAPTURE_STATUS_ACTIVE && joined;
    f8_emu_object_find(F8_EMU_STREAM, leave, s);
    struct CUgraph_st *g = good ? f8_emu_object_new(F8_EMU_GRAPH, sizeof *g) : NULL;
    s->status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!g) {
        f8_emu_graph_clear(&s->captured);
        return good      ? CUDA_ERROR_OUT_OF_MEMORY
               : !joined ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                         : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
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

CUresult cuGraphLaunch(CUgraphExec exec, CUstream named)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    CUstream s = actual(named);
    if (!f8_emu_object_lives(exec, F8_EMU_GRAPH_EXEC) || !is_stream(s))
        return CUDA_ERROR_INVALID_HANDLE;
    if (capturing(s))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* it would become a child graph */
    struct CUgraph_st own = {0}, *to = s ? &s->queue : &own;
    if (s && !order(s))
        return CUDA_ERROR_OUT_OF_MEMORY;
    const size_t first = to->n;
    if (!f8_emu_graph_play(to, &exec->graph))
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = first; i < to->n; i++)
        f8_emu_record_work(kind_names[to->work[i].kind], named, true, to->work[i].lane);
    if (s) {
        if (!lazy())
            drain(s, UINT64_MAX);
        return CUDA_SUCCESS;
    }
    f8_emu_wait_all(f8_emu_current());
    for (size_t i = 0; i < own.n; i++)
        perform(&own.work[i], f8_emu_current());
    f8_emu_graph_clear(&own);
    return CUDA_SUCCESS;
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
    if (f8_emu_object_lives(event, F8_EMU_EVENT) && !event->capture)
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
    if (r == CUDA_SUCCESS && s && capturing(s)) {
        event->stream = s->origin ? s->origin : s;
        event->capture = event->stream->capture;
        event->node = event->stream->captured.n;
    } else if (r == CUDA_SUCCESS && s) {
        event->stream = s;
        event->until = s->first + s->queue.n;
        event->capture = 0;
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
    if (event->capture)
        return s ? wait_captured(s, event) : CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (capturing(s))
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION; /* the event is not of this capture */
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
    if (event->capture)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    wait_until(event->stream, event->until);
    return f8_emu_stuck(f8_emu_current());
}

CUresult cuEventQuery(CUevent event)
{
    F8_EMU_ENTER(F8_EMU_UNSAFE);
    if (!f8_emu_object_lives(event, F8_EMU_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
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
