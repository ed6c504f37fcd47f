/* The executor on an NVIDIA GPU: a CUDA plan with its memory, its stream and its libraries.
 *
 * Creation does everything that can fail or take time: loads the images, prepares the GEMMs,
 * allocates every byte of the device, resolves every place. The first run of a function captures
 * its steps as one CUDA graph; later runs launch it. One thread at a time per executor. */
#ifndef F8_CUDA_EXEC_H
#define F8_CUDA_EXEC_H

#include "runtime/cuda/device.h"
#include "runtime/cuda/nccl.h"
#include "runtime/home.h"
#include "runtime/observer.h"
#include "runtime/base/pool.h"

typedef struct f8_cuda_exec f8_cuda_exec;

typedef struct f8_cuda_exec_options {
    const f8_allocator *allocator; /* host memory; NULL: the default; copied */
    /* The embedder's device memory, 256-byte aligned, or NULL; both or none. */
    void *(*device_alloc)(void *user, size_t bytes);
    void (*device_free)(void *user, void *ptr, size_t bytes);
    void *device_user;
    void *
        stream; /* the embedder's CUstream: runs are then only enqueued; NULL: our own, runs wait */
    const f8_parallel *parallel; /* the embedder's threads, for initial values; NULL: threads of our
                                    own, while values are made */
    int threads;    /* of our own then; 0: the CPUs this process may run on */
    bool profile; /* time each step (f8_cuda_exec_step_seconds). Steps then run without a graph, and
                     runs wait */
    bool blocking; /* wait after each step, without a graph, so that a fault on the device names its
                      step */
    /* NULL, or an executor on the same device of a plan with the same variables, laid out alike:
     * they share as in f8_exec_options. This executor then uses the stream, device memory and host
     * memory of `like`; a failure on the device concerns all. */
    f8_cuda_exec *like;
    f8_work *work;        /* as in f8_exec_options */
    const char *external; /* as in f8_exec_options */
    f8_nccl *nccl; /* for plans of several ranks, or NULL; on the same device, and outlives the
                      executor */
} f8_cuda_exec_options;

/* plan and cuda are borrowed and outlive the executor. F8_ERR_UNSUPPORTED if the plan is for
 * another architecture than the device's. F8_ERR_MEMORY has the bytes that were wanted and are
 * free, and the biggest variables by name. F8_ERR_LIBRARY if a call of the driver or of cuBLASLt
 * fails; it names the call and the step. F8_ERR_INPUT: `nccl` has other ranks than the plan, or
 * another device. */
f8_status f8_cuda_exec_create(const f8_plan *plan, f8_cuda *cuda,
                              const f8_cuda_exec_options *options, f8_cuda_exec **out,
                              f8_diag *diag);
void f8_cuda_exec_destroy(f8_cuda_exec *x); /* may be NULL; waits for the device */

/* Where a variable is in the device's memory, as f8_exec_var. Memory to bind is the device's,
 * 16-byte aligned. Runs that were enqueued before keep the addresses that they had. */
void *f8_cuda_exec_var(f8_cuda_exec *x, uint32_t var);
void f8_cuda_exec_bind_var(f8_cuda_exec *x, uint32_t var, void *at);
/* Variables are device memory: copied, whole and contiguous, in the plan's type. Both wait.
 * F8_ERR_INPUT: nothing is bound to an external one. */
f8_status f8_cuda_exec_read(f8_cuda_exec *x, uint32_t var, void *to, f8_diag *diag);
f8_status f8_cuda_exec_write(f8_cuda_exec *x, uint32_t var, const void *from, f8_diag *diag);
/* Sets the bytes of a variable to zero: as a run, enqueued on the embedder's stream, and waited for
 * on the executor's own. */
f8_status f8_cuda_exec_clear(f8_cuda_exec *x, uint32_t var, f8_diag *diag);
/* As f8_exec_init; initial values are made on the host. */
f8_status f8_cuda_exec_init(f8_cuda_exec *x, uint64_t seed, const bool *keep, f8_diag *diag);

/* A port that carries no variable has pinned host memory of the executor's own. A run copies inputs
 * to the device before its steps and outputs back after them. Another host buffer, or device
 * memory, may be bound instead; device memory is used in place and must be 16-byte aligned. An
 * external port has no memory of the executor's own and takes device memory alone. NULL goes back
 * to the executor's own. On the embedder's stream host buffers are in use until
 * f8_cuda_exec_wait. f8_cuda_exec_port returns the buffer that is bound now, or the device memory
 * of the port's variable. */
void *f8_cuda_exec_port(f8_cuda_exec *x, uint32_t func, bool output, uint32_t port);
f8_status f8_cuda_exec_bind(f8_cuda_exec *x, uint32_t func, bool output, uint32_t port,
                            void *buffer, f8_diag *diag);

/* Asks the driver whether `buffer` is device memory or managed memory, and of which device. */
f8_status f8_cuda_exec_is_device(f8_cuda_exec *x, const void *buffer, bool *device, f8_diag *diag);
int f8_cuda_exec_ordinal(const f8_cuda_exec *x);

/* Device memory as f8_exec_alloc's. Freeing it waits for the runs that may use it. */
f8_status f8_cuda_exec_alloc(f8_cuda_exec *x, int64_t bytes, f8_block *out, f8_diag *diag);
void f8_cuda_exec_free(f8_cuda_exec *x, f8_block *block);

/* Runs a function; on the executor's own stream it waits for the end. After a failure on the device
 * every later run fails with the same message. */
f8_status f8_cuda_exec_run(f8_cuda_exec *x, uint32_t func, f8_diag *diag);
f8_status f8_cuda_exec_wait(f8_cuda_exec *x, f8_diag *diag);
/* Whether variable F8_COUNT_NAME is not above 0, in later runs of all executors of the home: then C
 * of GEMMs with F8_GEMM_ADDS counts as zeros, and they overwrite it. At first: no. The host
 * chooses, so that it need not wait for the device to tell; the caller knows the variable. */
void f8_cuda_exec_begin_sums(f8_cuda_exec *x, bool afresh);

/* As f8_exec_observe and f8_exec_fetch. A run that somebody looks on waits after each step, and
 * launches no graph. */
void f8_cuda_exec_observe(f8_cuda_exec *x, const f8_observer *observer);
f8_status f8_cuda_exec_fetch(f8_cuda_exec *x, uint32_t func, const f8_arg *from, int64_t bytes,
                             void *to, f8_diag *diag);

/* Later runs are enqueued on the embedder's `stream`, and only enqueued; NULL: on the executor's
 * own, and runs wait. The new stream waits for what was enqueued on the stream before it. All
 * executors of the home change. After a failure the stream is the one before. */
f8_status f8_cuda_exec_set_stream(f8_cuda_exec *x, void *stream, f8_diag *diag);

/* What an executor of a plan would plan. `external`: as f8_plan_sizes takes it. */
int64_t f8_cuda_exec_plan_bytes(const f8_plan *plan, const char *external);
int64_t f8_cuda_exec_planned_bytes(const f8_cuda_exec *x); /* of device memory */
int64_t f8_cuda_exec_peak_bytes(const f8_cuda_exec *x);
int64_t f8_cuda_exec_held_bytes(const f8_cuda_exec *x);
f8_exec_counts f8_cuda_exec_count(const f8_cuda_exec *x);
double f8_cuda_exec_step_seconds(const f8_cuda_exec *x, uint32_t func, uint32_t step);
/* The part of them in which the GPU had nothing to do, as the host had not enqueued the step yet.
 */
double f8_cuda_exec_step_gap(const f8_cuda_exec *x, uint32_t func, uint32_t step);
/* The parts of both that the function's first run took. */
double f8_cuda_exec_first_seconds(const f8_cuda_exec *x, uint32_t func, uint32_t step, double *gap);
/* What cuBLASLt runs for a GEMM step (f8_cublaslt_describe); NULL for other steps. The text is the
 * executor's. */
const char *f8_cuda_exec_step_algorithm(const f8_cuda_exec *x, uint32_t func, uint32_t step);

/* For a measurement alone: make a GEMM step of this executor run a loose algorithm
 * (f8_cublaslt_candidates), whatever its plan says. It needs the option `profile`. The plan does
 * not change, and no text or file can ask for it. */
f8_status f8_cuda_exec_loosen_gemm(f8_cuda_exec *x, uint32_t func, uint32_t step,
                                   const f8_cublaslt_config *config, f8_diag *diag);

#endif
