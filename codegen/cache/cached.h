/* What a build makes piece by piece, each found in the kernel cache or made and kept there: what
 * the targets have in common. A piece is what one call of a compiler makes: a kernel's object, an
 * image. Internal to codegen.
 *
 *     f8_build_cached c = {...};
 *     f8_build_cached_find(&c, options, diag); looks all up, on this thread
 *     if (c.n_missing) ... load the compiler ...
 *     f8_build_cached_make(&c, &failed, diag); makes what is missing, on a few threads
 *     ... use what take and make have put away ...
 *     f8_build_cached_end(&c);
 *
 * Which thread makes which piece is a matter of timing: results go where a piece's number says.
 *
 * Processes, or threads, that build the same at the same time share the work: what another is
 * making is left to it, and taken from the cache when it is there. Who is at it for too long is not
 * waited for. */
#ifndef F8_CODEGEN_BUILD_CACHED_H
#define F8_CODEGEN_BUILD_CACHED_H

#include <pthread.h>
#include <stdatomic.h>

#include "codegen/plan/options.h"
#include "codegen/cache/cache.h"

enum { F8_BUILD_MOST_THREADS = 16 };

typedef struct f8_build_cached_calls {
    /* What piece `i` is called, and how many kernels it has: for log and progress. From any
     * thread. */
    const char *(*name)(void *user, uint32_t i, uint32_t *n_kernels);
    /* All that decides piece `i`, as text in `arena`; NULL when memory ran out. Called by one
     * thread. */
    const char *(*key)(void *user, uint32_t i, f8_arena *arena);
    /* Use what the cache has; false: it is nothing of the kind, and the piece is made. From any
     * thread. */
    bool (*take)(void *user, uint32_t i, const f8_cache_value *value);
    /* Make it, in `arena`. From any thread. */
    f8_status (*make)(void *user, uint32_t i, f8_arena *arena, f8_diag *d);
    /* What take takes, of what was made; bytes NULL: it is not to be kept. */
    f8_cache_value (*give)(void *user, uint32_t i, f8_arena *arena);
} f8_build_cached_calls;

typedef struct f8_build_worker {
    struct f8_build_cached *all;
    f8_arena arena; /* what it makes */
    f8_diag diag;
    f8_status status;
    uint32_t piece; /* its last: the one that failed, if one did */
    pthread_t thread;
    bool started;
} f8_build_worker;

typedef struct f8_build_cached {
    const f8_build_cached_calls *calls;
    void *user;
    f8_cache *cache;       /* NULL: all is made */
    uint32_t n;            /* pieces */
    const uint32_t *order; /* in which they are made; NULL: as they are numbered */
    /* build_cached.c's own */
    const f8_build_options *options;
    f8_arena arena;                /* keys; what was found */
    f8_cache_key *key;             /* by piece */
    uint32_t *missing;             /* in the order they are made */
    uint32_t n_missing, n_kernels; /* pieces; kernels of all of them */
    double until;                  /* when it waits no more */
    f8_progress_phase phase;
    int n_workers;
    f8_build_worker worker[F8_BUILD_MOST_THREADS];
    atomic_uint next, done, n_made; /* missing pieces taken up; kernels that are ready; made here */
    atomic_bool failed;
    pthread_mutex_t lock; /* of what follows: a queue of pieces that come again */
    uint32_t *again, n_again;
} f8_build_cached;

/* May be called again, for other keys: what take was given is then gone. */
f8_status f8_build_cached_find(f8_build_cached *c, const f8_build_options *options, f8_diag *d);
/* Makes what is missing on options.threads threads. The calling one is among them and asks
 * options.progress before each piece of its own. After a failure no piece is begun; status and
 * message are those of the lowest piece that failed, its number in *failed; F8_ERR_CANCELLED comes
 * before all others. */
f8_status f8_build_cached_make(f8_build_cached *c, uint32_t *failed, f8_diag *d);
/* Kernels that were not made here. */
uint32_t f8_build_cached_found(f8_build_cached *c);
/* Frees all that take was given and make made. Also after a failure. */
void f8_build_cached_end(f8_build_cached *c);

#endif
