/* Batches of units compiled on a few threads: what the targets have in common. Internal to codegen.
 *
 * Which thread compiles which batch is a matter of timing: results go where a batch's number
 * says. */
#ifndef F8_CODEGEN_BUILD_THREADS_H
#define F8_CODEGEN_BUILD_THREADS_H

#include <pthread.h>
#include <stdatomic.h>

#include "codegen/build.h"

enum { F8_BUILD_MOST_THREADS = 16 };

/* Compiles one batch, several at once on several threads. What it makes may lie in `arena`. */
typedef f8_status (*f8_build_batch_fn)(void *user, uint32_t batch, f8_arena *arena, f8_diag *d);

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
    void *user;
    uint32_t n_batches;
    const uint32_t *order; /* in which batches are taken up; NULL: as they are numbered */
    /* build_threads.c's own */
    int n;
    f8_build_worker worker[F8_BUILD_MOST_THREADS];
    atomic_uint next;
    atomic_bool failed;
} f8_build_threads;

/* Compile all batches on options.threads threads, this one among them. After a failure no batch is
 * begun; status and message are those of the lowest batch that failed, its number in *failed. */
f8_status f8_build_threads_run(f8_build_threads *t, const f8_build_options *options,
                               uint32_t *failed, f8_diag *d);
/* Free the arenas, after every run: what was compiled is gone. */
void f8_build_threads_end(f8_build_threads *t);

#endif
