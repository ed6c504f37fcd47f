/* Batches of units compiled on a few threads: what the targets have in common. Internal to codegen.
 *
 * Which thread compiles which batch is a matter of timing: results go where a batch's number
 * says. */
#ifndef F8_CODEGEN_BUILD_THREADS_H
#define F8_CODEGEN_BUILD_THREADS_H

#include <pthread.h>
#include <stdatomic.h>

#include "codegen/build_options.h"

enum { F8_BUILD_MOST_THREADS = 16 };

/* Compiles one batch, several at once on several threads. What it makes may lie in `arena`. With
 * *later set to true nothing was done, since another process is at it: the batch comes again,
 * behind the others. */
typedef f8_status (*f8_build_batch_fn)(void *user, uint32_t batch, f8_arena *arena, bool *later,
                                       f8_diag *d);
/* What a batch is called, and how many kernels it has: for log and progress. From any thread. */
typedef const char *(*f8_build_name_fn)(void *user, uint32_t batch, uint32_t *n_kernels);

typedef struct f8_build_worker {
    struct f8_build_threads *all;
    f8_arena arena;
    f8_diag diag;
    f8_status status;
    uint32_t batch; /* its last: the one that failed, if one did */
    pthread_t thread;
    bool started;
} f8_build_worker;

typedef struct f8_build_threads {
    f8_build_batch_fn compile;
    f8_build_name_fn name;
    void *user;
    uint32_t n_batches;
    const uint32_t *order; /* n_batches numbers, as they are taken up; NULL: 0, 1, ... */
    /* build_threads.c's own */
    const f8_build_options *options;
    f8_progress_phase phase;
    int n;
    f8_build_worker worker[F8_BUILD_MOST_THREADS];
    atomic_uint next, done; /* batches taken up; kernels that are ready */
    atomic_bool failed;
    pthread_mutex_t lock; /* of what follows: a queue of batches that come again */
    uint32_t *again, n_again;
} f8_build_threads;

/* Compile all batches on options.threads threads, this one among them, which asks options.progress
 * before each of its own. `arena` is the calling thread's. After a failure no batch is begun;
 * status and message are those of the lowest batch that failed, its number in *failed;
 * F8_ERR_CANCELLED comes before all others. */
f8_status f8_build_threads_run(f8_build_threads *t, const f8_build_options *options,
                               f8_arena *arena, uint32_t *failed, f8_diag *d);
/* Free the arenas, after every run: what was compiled is gone. */
void f8_build_threads_end(f8_build_threads *t);

#endif
