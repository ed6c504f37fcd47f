/* The executor: a plan with its memory, its threads and its libraries, ready to run.
 *
 * Creation does everything that can fail or take time: it maps the blob, prepares the GEMMs,
 * allocates every byte and resolves every place to a pointer. A run resolves the places of buffers
 * that were bound since, and then only walks the steps: no allocation, no look-up, no environment.
 * One thread at a time per executor. */
#ifndef F8_EXEC_H
#define F8_EXEC_H

#include "runtime/cpu/gemm.h"
#include "runtime/home.h"
#include "runtime/observer.h"
#include "runtime/base/pool.h"

typedef struct f8_exec f8_exec;

typedef struct f8_exec_options {
    int n_threads;                 /* 1..256; 0 = the CPUs this process may run on */
    const f8_parallel *parallel;   /* the embedder's threads instead, or NULL; copied */
    const f8_allocator *allocator; /* NULL: the default; copied */
    const f8_comm *comm;           /* NULL: the rank is alone; outlives the executor */
    bool profile;                  /* note the time of each step: f8_exec_step_seconds */
    /* NULL, or an executor of a plan with the same variables, laid out alike. The two, and all
     * others made so, share variables, threads, prepared GEMMs, equal code, counts, and the memory
     * in which a run works. That memory is as large as the executor that needs most of it; one
     * executor runs at a time. Threads and allocator are those of `like`. Buffers of ports share
     * memory too: their contents are lost once another executor has run. */
    f8_exec *like;
    f8_work *work; /* NULL, or memory of other executors' in which runs work, too (work.h). An
                      executor with `like` has that of `like` */
    const char *external; /* NULL, or as f8_plan_sizes takes it; it outlives the executor. An
                             executor with `like` has that of `like` */
} f8_exec_options;

/* The plan is borrowed and must outlive the executor. F8_ERR_MEMORY says how many bytes were
 * wanted; the executors that would have shared are unchanged. */
f8_status f8_exec_create(const f8_plan *plan, const f8_exec_options *options, f8_exec **out,
                         f8_diag *diag);
void f8_exec_destroy(f8_exec *x); /* may be NULL */

int f8_exec_threads(const f8_exec *x);

/* Variables: contiguous, of the plan's type. Each is in memory of the home until the caller binds
 * other memory, aligned to its element (NULL goes back). f8_exec_var is NULL while nothing is bound
 * to an external one. */
void *f8_exec_var(f8_exec *x, uint32_t var);
void f8_exec_bind_var(f8_exec *x, uint32_t var, void *at);

/* Gives every variable that has memory its initial value, which depends on the seed and its name.
 * keep[v]: variable v keeps its value; NULL: none does. Fails as f8_pool_check does. */
f8_status f8_exec_init(f8_exec *x, uint64_t seed, const bool *keep, f8_diag *diag);

/* Buffers of a function's ports that carry no variable. Each has one of the executor's own, unless
 * it is external, until the caller binds another (at least f8_type_bytes, aligned to its element,
 * kept alive by the caller; NULL goes back). */
void *f8_exec_port(f8_exec *x, uint32_t func, bool output, uint32_t port);
void f8_exec_bind(f8_exec *x, uint32_t func, bool output, uint32_t port, void *buffer);

/* Memory for values that a caller keeps between runs, aligned as a port's buffer. It counts among
 * the executor's peak bytes, not among the planned ones. Zeros in *out: nothing is allocated. */
f8_status f8_exec_alloc(f8_exec *x, int64_t bytes, f8_block *out, f8_diag *diag);
void f8_exec_free(f8_exec *x, f8_block *block);

/* F8_ERR_INPUT: as f8_home_ready and f8_pool_check. F8_ERR_LIBRARY: oneDNN or the ranks' engine
 * failed. */
f8_status f8_exec_run(f8_exec *x, uint32_t func, f8_diag *diag);

/* From the next run on `observer` looks on (NULL: nobody). It is borrowed. */
void f8_exec_observe(f8_exec *x, const f8_observer *observer);
/* For an observer: the address of an argument in a function's memory. NULL: it is not bound. */
const void *f8_exec_look(f8_exec *x, uint32_t func, const f8_arg *at);
/* For an observer: copies bytes out of a function's memory. F8_ERR_INPUT: there is none. */
f8_status f8_exec_fetch(f8_exec *x, uint32_t func, const f8_arg *from, int64_t bytes, void *to,
                        f8_diag *diag);

/* Bytes of variables, ports, constants, arena, scratch and GEMM workspace: what the plan asks for,
 * and the most that was ever allocated through the executor's allocator for them (constants: by the
 * plan), by all that share. */
int64_t f8_exec_planned_bytes(const f8_exec *x);
int64_t f8_exec_peak_bytes(const f8_exec *x);
/* Bytes that all that share have now, those of f8_exec_alloc too. */
int64_t f8_exec_held_bytes(const f8_exec *x);

/* What an executor of this plan would plan, on n_threads threads (0: the CPUs this process may run
 * on). The plan may have been made without code (codegen/build.h). Loads oneDNN if there are GEMMs,
 * to ask for their workspace. `lib`: NULL, or a library that is kept from call to call: made when
 * first needed, destroyed by the caller. */
f8_status f8_exec_plan_bytes(const f8_plan *plan, const char *external, int n_threads,
                             const f8_allocator *allocator, f8_gemm_lib **lib, int64_t *bytes,
                             f8_diag *diag);
/* The part of these that the plan alone decides, on any machine: one thread, without the GEMMs'
 * workspace. */
int64_t f8_exec_plan_least_bytes(const f8_plan *plan, const char *external);

f8_exec_counts f8_exec_count(const f8_exec *x);

/* With options.profile: seconds spent in a step over all runs so far: of a collective in its call,
 * of a wait until its collective was done. */
double f8_exec_step_seconds(const f8_exec *x, uint32_t func, uint32_t step);
/* The part of them that the function's first run took, which finds cold pages and caches. */
double f8_exec_first_seconds(const f8_exec *x, uint32_t func, uint32_t step);
/* Whether collectives go on beside other steps; if not, each is done where it stands. */
bool f8_exec_goes_on(const f8_exec *x);
/* The same from where a collective was started to its call: others were before it. */
double f8_exec_queued_seconds(const f8_exec *x, uint32_t func, uint32_t step);
/* The same of one phase of a KERNEL step. */
double f8_exec_phase_seconds(const f8_exec *x, uint32_t func, uint32_t step, uint32_t phase);
/* The name of a GEMM's algorithm; NULL for other steps. */
const char *f8_exec_algorithm(const f8_exec *x, uint32_t func, uint32_t step);

#endif
