/* Inside the CUDA executor: resolved steps, ports, memory. */
#ifndef F8_CUDA_EXEC_INTERNAL_H
#define F8_CUDA_EXEC_INTERNAL_H

#include "ir/base/clock.h"
#include "runtime/cuda/exec.h"
#include "runtime/cuda/internal.h"
#include "runtime/cuda/cudnn_attention.h"
#include "runtime/cuda/cublaslt.h"

enum { F8_CUDA_ALIGN = 256 };

/* Calls the driver, and returns from the function if that fails: "cuMemAlloc_v2 of the arena". The
 * function has the executor `x` and `diag`. */
#define F8_CU(what, call, ...)                                                                     \
    F8_TRY(f8_cuda_check(x->cuda, x->cuda->cu.call(__VA_ARGS__), diag, #call " of %s", what))

/* One launch, with its block of parameters as the kernel reads it (f8_launch in plan.h). */
typedef struct f8_live_phase {
    const f8_step_phase *phase;
    CUfunction function;
    unsigned grid; /* 0: nothing to do */
    uint64_t *words;
    void *params[1]; /* words */
} f8_live_phase;

/* One attention problem, prepared once for all steps that have it. */
typedef struct f8_live_attention {
    struct f8_live_attention *next;
    f8_cudnn_attention *problem;
    f8_cudnn_attention_desc desc;
    char text[F8_CUDNN_TEXT];
} f8_live_attention;

typedef struct f8_live_step {
    const f8_step *step;
    CUdeviceptr *arg; /* GEMM, COPY, ATTENTION */
    f8_live_phase *phase;
    f8_cublaslt_gemm *gemm;
    const char *what; /* GEMM: its name in messages */
    CUevent ended;    /* of a step of the branch, in the capture of a graph */
    f8_live_attention *attention;
    f8_cudnn_ref arguments; /* ATTENTION; NULL: addresses have changed since */
    size_t bytes; /* COPY */
    uint64_t number; /* COLLECTIVE: what NCCL's last one of this step is called (f8_nccl_join) */
    double seconds, gap;
    double first, first_gap; /* of them: of the function's first run */
    double enqueued; /* profile: when the host came to this step */
} f8_live_step;

/* Steps that run in a row. Collectives are in no graph, so they lie between two parts. */
typedef struct f8_live_part {
    uint32_t first, end;
} f8_live_part;

/* The parts as graphs, with the addresses that they were captured with. */
enum { F8_GRAPHS = 8 };
typedef struct f8_live_graph {
    CUgraphExec *part; /* NULL: never captured; of a part without steps: NULL */
    bool whole;        /* all parts are as `addresses` say */
    uint64_t *addresses;
    int64_t launched; /* when it was last: f8_live_func.launches */
} f8_live_graph;

typedef struct f8_live_func {
    const f8_plan_func *func;
    f8_live_step *step;
    f8_live_part *part; /* NULL until the first launch */
    uint32_t n_parts;
    f8_live_graph graph[F8_GRAPHS], *now; /* now: of the present addresses; NULL: one of them may
                                             have changed */
    uint64_t *addresses;   /* room for the present ones; NULL until the first launch */
    size_t n_addresses;
    int64_t launches;
    bool counts, afresh;   /* a GEMM has F8_GEMM_ADDS; as home.afresh when it was launched last */
    CUevent *event;        /* profile: n_steps + 1 */
    bool timed;            /* profile: a run was */
    f8_exec_counts count;  /* of one run */
} f8_live_func;

/* A loaded image, one for all executors whose plans have the same. */
typedef struct f8_cuda_module {
    struct f8_cuda_module *next;
    f8_image image; /* borrowed from the plan of one of its users */
    CUmodule module;
    int users;
} f8_cuda_module;

typedef struct f8_cuda_home {
    f8_home home; /* bytes, peak: of device memory */
    f8_cuda *cuda;
    f8_cuda_exec_options options; /* those of the first */
    f8_arena memory;              /* of attentions */
    f8_cuda_module *module;
    f8_cublaslt_gemm *gemms;
    f8_live_attention *attentions;
    f8_cudnn cudnn; /* open when there are any */
    CUstream own;     /* to capture in: not ordered with the default stream, which others may use
                         meanwhile */
    CUstream ordered; /* to run in while the embedder gives none: a run begins after the work that
                         the default stream was given before it; NULL until it is needed */
    CUstream stream;  /* where everything runs: `ordered`, or the embedder's */
    CUevent moved;    /* what the stream before must have done when another takes over; NULL until
                         it is needed */
    bool afresh;      /* C of GEMMs with F8_GEMM_ADDS counts as zeros */
    f8_diag failure; /* status F8_OK until a run fails on the device */
} f8_cuda_home;

struct f8_cuda_exec {
    f8_tenant tenant;
    f8_cuda_home *home;
    const f8_plan *plan;
    f8_cuda *cuda;
    f8_cuda_exec_options options;
    f8_allocator allocator;
    f8_parallel parallel; /* run NULL: none was given */
    f8_arena memory; /* the executor's own small structures */
    f8_live_func *func;
    f8_cuda_module **module; /* by image of the plan */
    int64_t workspace_bytes; /* bytes that GEMMs and attentions need of the one workspace, which
                                they use in turn; behind them lies that of the branch */
    CUstream own, stream;    /* the home's */
    CUstream branch;         /* to capture in, beside `own`; NULL: no function has a branch */
    CUevent forked;
    const f8_observer *observer; /* NULL: nobody looks on */
};

/* exec_memory.c. In this order: enter a home, a new one or that of options.like; load the images;
 * at last, when all else is ready, allocate memory and resolve every place. */
f8_status f8_cuda_exec_enter_home(f8_cuda_exec *x, const f8_cuda_exec_options *o, f8_diag *diag);
f8_status f8_cuda_exec_load_images(f8_cuda_exec *x, f8_diag *diag);
f8_status f8_cuda_exec_allocate(f8_cuda_exec *x, f8_diag *diag);
void f8_cuda_exec_leave_home(f8_cuda_exec *x);

/* exec_steps.c: make one function's steps ready; whenever addresses have changed, resolve the
 * places. */
f8_status f8_cuda_exec_make_func(f8_cuda_exec *x, uint32_t func, f8_diag *diag);
/* Runs each GEMM once, outside of any graph: what the library refuses only then, it refuses while a
 * program is made, with the linear's name. Kernels that it loads late are loaded. */
f8_status f8_cuda_exec_try_gemms(f8_cuda_exec *x, f8_diag *diag);
f8_status f8_cuda_exec_prepare_gemms(f8_cuda_exec *x, f8_diag *diag);
void f8_cuda_exec_resolve(f8_cuda_exec *x, uint32_t func);

/* exec_enqueue.c: all steps as one graph, or one by one with times and waits as the options say. */
f8_status f8_cuda_exec_launch(f8_cuda_exec *x, f8_live_func *f, f8_diag *diag);
f8_status f8_cuda_exec_run_steps(f8_cuda_exec *x, f8_live_func *f, f8_diag *diag);
f8_status f8_cuda_exec_add_times(f8_cuda_exec *x, f8_live_func *f, f8_diag *diag);
void f8_cuda_exec_release_graphs(f8_cuda_exec *x, f8_live_func *f);

/* exec_branch.c. Bytes of workspace if all but the branch need `shared`. Its stream and events,
 * after the functions are made; in a capture: the branch goes on behind what was enqueued in
 * `from`, and `to` behind a step of the branch. */
int64_t f8_cuda_exec_workspace(const f8_plan *plan, int64_t shared);
f8_status f8_cuda_exec_make_branch(f8_cuda_exec *x, f8_diag *diag);
void f8_cuda_exec_release_branch(f8_cuda_exec *x);
CUdeviceptr f8_cuda_exec_branch_workspace(const f8_cuda_exec *x);
f8_status f8_cuda_exec_fork(f8_cuda_exec *x, const f8_live_func *f, CUstream from, f8_diag *diag);
f8_status f8_cuda_exec_join(f8_cuda_exec *x, const f8_live_func *f, uint32_t step, CUstream to,
                            f8_diag *diag);

/* exec_attention.c */
f8_status f8_cuda_exec_prepare_attentions(f8_cuda_exec *x, f8_diag *diag);
f8_status f8_cuda_exec_run_attention(f8_cuda_exec *x, const f8_live_func *f, f8_live_step *l,
                                     CUstream stream, f8_diag *diag);
void f8_cuda_exec_forget_arguments(f8_cuda_exec *x); /* before x->func ends */
void f8_cuda_exec_release_attentions(f8_cuda_home *home);

/* exec_wait.c: wait for the executor's stream. With other ranks it also ends with a failure: when
 * NCCL reports an error, or when a rank is given up. `what` is for messages. */
f8_status f8_cuda_exec_sync(f8_cuda_exec *x, f8_diag *diag, const char *what, ...)
    __attribute__((format(printf, 3, 4)));

/* exec_wait.c: with memory that programs share (work.h), whose lock is held: the executor's stream
 * waits for the last run that works in it; and the next one waits for what was enqueued since,
 * whether that failed (`status`) or not. */
f8_status f8_cuda_exec_begin_work(f8_cuda_exec *x, f8_diag *diag);
f8_status f8_cuda_exec_end_work(f8_cuda_exec *x, f8_status status, f8_diag *diag);

/* exec_memory.c: enqueue a copy and wait, in the executor's stream. */
f8_status f8_cuda_exec_upload(f8_cuda_exec *x, CUdeviceptr to, const void *from, size_t bytes,
                              const char *what, f8_diag *diag);

#endif
