/* The driver stand-in's objects, and the start of each of its calls. */
#ifndef F8_EMU_DRIVER_H
#define F8_EMU_DRIVER_H

#include "tests/emulator/block.h"
#include "tests/emulator/common.h"

/* ---- exported: what runtime/cuda/api.h lists, and some more of the real driver's ---- */

#define F8_EMU_MORE_SYMBOLS(X)                                                                     \
    X(CUresult, cuCtxSetCurrent, (CUcontext context))                                              \
    X(CUresult, cuCtxSynchronize, (void))                                                          \
    X(CUresult, cuDevicePrimaryCtxReset_v2, (CUdevice device))                                     \
    X(CUresult, cuMemHostAlloc, (void **ptr, size_t bytes, unsigned flags))                        \
    X(CUresult, cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes))                 \
    X(CUresult, cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes))                       \
    X(CUresult, cuStreamIsCapturing, (CUstream s, CUstreamCaptureStatus *status))                  \
    X(CUresult, cuEventSynchronize, (CUevent event))                                               \
    X(CUresult, cuDeviceGetPCIBusId, (char *to, int length, CUdevice device))                      \
    X(CUresult, cuModuleLoadDataEx,                                                                \
      (CUmodule *module, const void *image, unsigned n, int *option, void **value))                \
    X(CUresult, cuGetProcAddress_v2,                                                               \
      (const char *symbol, void **function, int version, uint64_t flags, int *status))

#pragma GCC visibility push(default)
F8_CUDA_SYMBOLS(F8_EMU_PROTOTYPE)
F8_CUDA_MORE_SYMBOLS(F8_EMU_PROTOTYPE)
F8_EMU_MORE_SYMBOLS(F8_EMU_PROTOTYPE)

/* Not of the real driver. How many there are of "allocation", "byte" (of device memory), "pinned",
 * "module", "stream", "event", "graph", "graph_exec", "context" (retains of the primary one), and
 * how many "launch"es, "dependent launch"es among them and "lost context"s (destroyed without a
 * fault) there have been in this process; -1 for another name. */
int64_t f8_emulator_count(const char *what);

/* Work that a stream was given, or did as part of a graph. kind: "kernel", "copy", "set", "call" (of
 * another stand-in: a GEMM, an attention, NCCL's), "event", "wait" (for an event). stream: as the
 * caller named it, of a graph that of its launch; NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD
 * are themselves. */
enum { F8_EMULATOR_LEGACY = 1, F8_EMULATOR_PER_THREAD = 2 }; /* the names' values, in cuda.h */
typedef struct f8_emulator_work {
    const char *kind;
    CUstream stream;
    int graph; /* whether it was in a graph */
    int branch; /* then: captured in the stream whose capture it was (0), or which one joined it */
} f8_emulator_work;
/* Forgets what was recorded, and records from now on; waits begin at 0. */
void f8_emulator_record(void);
/* The work number `index` since then, in the order of the calls; 0: there is none. */
int f8_emulator_recorded(int index, f8_emulator_work *out);
/* How often the host waited since then: in "cuStreamSynchronize", "cuEventSynchronize",
 * "cuCtxSynchronize"; in a "synchronous copy"; in a "pageable copy" (an asynchronous one whose host
 * memory is not pinned); in a "free" of memory. NULL: all of them; -1: there is no such name. Calls
 * that ask without waiting (cuStreamQuery) are not counted. */
int64_t f8_emulator_waits(const char *what);

/* For the other stand-ins: do `work` on a copy of `bytes` bytes of data, in the order of the stream
 * (now, or whenever a graph that is being captured is launched). `work` gives a CUDA_ERROR_* that
 * then sticks. The answer is a CUresult too. */
CUresult f8_emulator_enqueue(CUstream s, int (*work)(const void *data), const void *data,
                             size_t bytes);
/* What `work` of f8_emulator_enqueue gives while it waits for others: it is called again. Meanwhile
 * the call that enqueued it has returned, and what the stream was given after it waits. */
enum { F8_EMULATOR_LATER = -1 };
/* Whether [p, p + bytes) is device memory of one allocation. */
int f8_emulator_is_device(const void *p, size_t bytes);
/* The ordinal of the device of such memory, or of a stream; -1: it is neither. */
int f8_emulator_device_of(const void *p, size_t bytes);
int f8_emulator_device_of_stream(CUstream s);
int f8_emulator_current(void); /* of the current context; -1: none */
int f8_emulator_sm(void);
#pragma GCC visibility pop

/* ---- the device ---- */

typedef struct f8_emu_device {
    int sm;
    int optin, per_sm; /* bytes of shared memory: most of a block, all of a multiprocessor */
    int threads, blocks; /* of a multiprocessor */
} f8_emu_device;
enum {
    F8_EMU_MULTIPROCESSORS = 5,
    F8_EMU_SHARED_DEFAULT = 48 * 1024,
    F8_EMU_SHARED_RESERVED = 1024
};

enum { F8_EMU_DEVICES = 8 };                  /* the most; all are alike */
int f8_emu_current(void);                     /* the current context's device, 0 if none is */
const f8_emu_device *f8_emu_device_now(void); /* as FP8C_EMULATOR_SM says; NULL: unknown */

/* ---- calls ---- */

typedef enum f8_emu_need {
    F8_EMU_NO_CONTEXT,
    F8_EMU_CONTEXT,  /* a current one without an error that stuck */
    F8_EMU_UNSAFE,   /* and no capture under way: such a call would break it */
} f8_emu_need;

/* Takes the one lock; every function of the driver begins so:  F8_EMU_ENTER(F8_EMU_CONTEXT); */
#define F8_EMU_ENTER(need)                                                                       \
    __attribute__((cleanup(f8_emu_leave))) const CUresult entered_ = f8_emu_enter(__func__, need); \
    if (entered_)                                                                                \
        return entered_
CUresult f8_emu_enter(const char *function, f8_emu_need need);
void f8_emu_leave(const CUresult *entered);

/* From now on every call that needs this device's context gives this error. */
void f8_emu_stick(int device, int error);
int f8_emu_stuck(int device); /* that error, or 0 */
void f8_emu_pause(void);      /* lets other threads call for a moment */

/* The one lock, for what is no function of the driver. */
void f8_emu_lock(void);
void f8_emu_unlock(void);

/* ---- records (record.c) ---- */

typedef enum f8_emu_wait {
    F8_EMU_WAIT_STREAM,
    F8_EMU_WAIT_EVENT,
    F8_EMU_WAIT_CONTEXT,
    F8_EMU_WAIT_COPY,
    F8_EMU_WAIT_PAGEABLE,
    F8_EMU_WAIT_FREE,
    F8_EMU_WAITS
} f8_emu_wait;
void f8_emu_record_work(const char *kind, CUstream stream, bool graph, int branch);
void f8_emu_record_wait(f8_emu_wait kind);

/* ---- objects: live in lists, so that a stale handle is found out ---- */

typedef enum f8_emu_kind {
    F8_EMU_MODULE,
    F8_EMU_STREAM,
    F8_EMU_EVENT,
    F8_EMU_GRAPH,
    F8_EMU_GRAPH_EXEC,
    F8_EMU_KINDS
} f8_emu_kind;

typedef struct f8_emu_object {
    struct f8_emu_object *next;
    f8_emu_kind kind;
    int device;
} f8_emu_object;

void *f8_emu_object_new(f8_emu_kind kind, size_t bytes); /* zeroed; begins with an f8_emu_object */
bool f8_emu_object_lives(const void *object, f8_emu_kind kind);
void f8_emu_object_free(void *object);
/* The answer of a call that destroys: CUDA_ERROR_INVALID_HANDLE unless the object lives. */
CUresult f8_emu_object_destroy(void *object, f8_emu_kind kind);
/* The first of a kind that `test` answers non-NULL for. */
f8_emu_object *f8_emu_object_find(f8_emu_kind kind, f8_emu_object *(*test)(f8_emu_object *, void *),
                                  void *user);
void f8_emu_objects_free(int device); /* all, when the context goes */
void f8_emu_module_close(void *module);
void f8_emu_graph_clear(void *graph); /* a graph's or a graph_exec's nodes; a stream's capture */
void f8_emu_drain_all(int device);    /* its streams do what they have yet to do, without waiting */
void f8_emu_wait_all(int device);     /* the same, and waits for what others have to do */
void f8_emu_streams_end(int device);  /* the implicit streams forget what they have to do */
bool f8_emu_captures(void);           /* whether any stream captures; if so it is broken now */

/* ---- memory (memory.c) ---- */

void f8_emu_memory_free_all(int device);
int f8_emu_memory_device(CUdeviceptr p, size_t bytes);    /* -1: none's */
int f8_emu_memory_is_device(CUdeviceptr p, size_t bytes); /* all of it in one allocation */
void f8_emu_memory_reach(bool on);                        /* all of it can be accessed, or none */
int64_t f8_emu_memory_count(const char *what);
bool f8_emu_memory_is_pinned(const void *p, size_t bytes);

/* ---- launches (module.c) ---- */

/* A kernel with its parameters copied; run later as often as wanted. */
typedef struct f8_emu_kernel_call {
    CUfunction function;
    uint32_t blocks, threads, shared;
    void *params; /* owned */
    bool dependent; /* launched with CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */
} f8_emu_kernel_call;
int f8_emu_kernel_run(const f8_emu_kernel_call *call); /* CUDA_ERROR_* */
size_t f8_emu_kernel_params(const f8_emu_kernel_call *call); /* bytes */
int64_t f8_emu_launches(bool dependent);                     /* all, or those that are */

/* The stream's queue: run now, or keep for the graph. Takes over call->params. */
CUresult f8_emu_enqueue_kernel(CUstream s, const f8_emu_kernel_call *call);

#endif
