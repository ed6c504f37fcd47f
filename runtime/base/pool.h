/* One thread pool: a run is a set of tasks with fixed boundaries; threads only pick tasks.
 *
 * The caller of f8_pool_run is thread 0, the pool owns n_threads - 1 more. Tasks are claimed from
 * an atomic counter, a few at a time, so uneven tasks balance; which thread runs a task must not
 * change a result, so a task may depend on its own number and never on the thread. A run allocates
 * nothing. Idle threads spin briefly, then sleep.
 *
 * A pool of the other kind starts no threads: the embedder's own run the tasks (f8_parallel). */
#ifndef F8_POOL_H
#define F8_POOL_H

#include "ir/base/status.h"

enum { F8_POOL_MAX_THREADS = 256 };

/* Tasks [begin, end) of a run, by thread `thread` of [0, n_threads). */
typedef void (*f8_pool_fn)(void *user, int thread, int64_t begin, int64_t end);

/* The embedder's threads. `run` calls task(job, thread, begin, end) for parts that together make up
 * [0, n_tasks), each once. It returns when all are done and what they wrote is visible to its
 * caller. `thread` is in [0, n_threads), and two parts that run at once have different ones. */
typedef struct f8_parallel {
    void (*run)(void *user, void (*task)(void *job, int32_t thread, int64_t begin, int64_t end),
                void *job, int64_t n_tasks);
    void *user;
    int32_t n_threads; /* 1..F8_POOL_MAX_THREADS */
} f8_parallel;

typedef struct f8_pool_options {
    int n_threads; /* 1..F8_POOL_MAX_THREADS; 0 means the CPUs this process may run on */
    const f8_parallel
        *parallel; /* the threads to use instead, n_threads is then ignored; or NULL; copied */
    const f8_allocator *allocator; /* NULL means f8_default_allocator(); copied */
} f8_pool_options;

typedef struct f8_pool f8_pool;

int f8_pool_usable_cpus(void); /* at most F8_POOL_MAX_THREADS */

/* Starts the threads. F8_ERR_INPUT for a thread count out of range, F8_ERR_MEMORY, or F8_ERR_IO if
 * the system refuses a thread (those already started are ended). */
f8_status f8_pool_create(const f8_pool_options *options, f8_pool **out, f8_diag *diag);
/* End the threads; pool may be NULL. Not while a run is in progress. A child of fork has no threads
 * of a pool that its parent made: there runs use the caller's thread alone. */
void f8_pool_destroy(f8_pool *pool);

int f8_pool_threads(const f8_pool *pool); /* 1 for NULL */

/* Runs fn over tasks [0, n_tasks) and returns when all are done; what they wrote is then visible to
 * the caller. One run at a time, never from inside a task. A NULL pool runs everything on the
 * calling thread as thread 0; so does every pool with a single task. */
void f8_pool_run(f8_pool *pool, f8_pool_fn fn, void *user, int64_t n_tasks);

/* F8_ERR_INPUT if the embedder's threads did not run each task of every run since the last check;
 * what these tasks write is then unspecified. Parts outside a run's tasks or threads are not run at
 * all. pool may be NULL. */
f8_status f8_pool_check(f8_pool *pool, f8_diag *diag);

#endif
