/* The pieces of a build: each is found in the kernel cache, or made and stored there. Both targets
 * use this. A piece is what one call of a compiler makes: the object of a kernel, or an image.
 * Internal to codegen.
 *
 *     f8_build_cached c = {...};
 *     f8_build_cached_find(&c, options, diag);           // looks all pieces up, on this thread
 *     if (c.n_missing) ... load the compiler ...
 *     f8_build_cached_make(&c, &failed, diag);           // makes the missing pieces, on threads
 *     ... use what `take` and `make` have kept ...
 *     f8_build_cached_end(&c);
 *
 * The thread that makes a piece depends on timing, so each result is kept under the number of its
 * piece.
 *
 * Processes, or threads, that build the same pieces at the same time share the work. A piece that
 * another process makes is left to it, and taken from the cache when it is there. A process that
 * takes too long is not waited for. */
#ifndef F8_CODEGEN_BUILD_CACHED_H
#define F8_CODEGEN_BUILD_CACHED_H

#include <pthread.h>
#include <stdatomic.h>

#include "codegen/plan/options.h"
#include "codegen/cache/cache.h"

enum { F8_BUILD_MOST_THREADS = 16 };

typedef struct f8_build_cached_calls {
    /* The name of piece `i` and the number of its kernels, for log and progress. Called by any
     * thread. */
    const char *(*name)(void *user, uint32_t i, uint32_t *n_kernels);
    /* The key of piece `i`, all that decides it, as text in `arena`. NULL: out of memory. Called by
     * one thread. */
    const char *(*key)(void *user, uint32_t i, f8_arena *arena);
    /* Uses a value from the cache. False: the value is not usable, and the piece is made. Called by
     * any thread. */
    bool (*take)(void *user, uint32_t i, const f8_cache_value *value);
    /* Makes the piece, in `arena`. Called by any thread. */
    f8_status (*make)(void *user, uint32_t i, f8_arena *arena, f8_diag *d);
    /* The value of a piece that was made, as `take` wants it. bytes NULL: it is not stored. */
    f8_cache_value (*give)(void *user, uint32_t i, f8_arena *arena);
} f8_build_cached_calls;

typedef struct f8_build_worker {
    struct f8_build_cached *all;
    f8_arena arena; /* what it makes */
    f8_diag diag;
    f8_status status;
    uint32_t piece; /* its last piece: the one that failed, if one did */
    pthread_t thread;
    bool started;
} f8_build_worker;

typedef struct f8_build_cached {
    const f8_build_cached_calls *calls;
    void *user;
    f8_cache *cache;       /* NULL: all pieces are made */
    uint32_t n;            /* pieces */
    const uint32_t *order; /* the order in which they are made; NULL: by number */
    /* private to cached.c */
    const f8_build_options *options;
    f8_arena arena;                /* keys and found values */
    f8_cache_key *key;             /* by piece */
    uint32_t *missing;             /* in the order in which they are made */
    uint32_t n_missing, n_kernels; /* missing pieces; kernels of all pieces */
    double until;                  /* the time after which it waits for no other process */
    f8_progress_phase phase;
    int n_workers;
    f8_build_worker worker[F8_BUILD_MOST_THREADS];
    /* the next missing piece; kernels that are ready; kernels made here */
    atomic_uint next, done, n_made;
    atomic_bool failed;
    pthread_mutex_t lock; /* guards the queue of pieces to look for a second time */
    uint32_t *retry, n_retries;
} f8_build_cached;

/* Looks all pieces up. May be called a second time, for other keys; the values that `take` received
 * are then freed. */
f8_status f8_build_cached_find(f8_build_cached *c, const f8_build_options *options, f8_diag *d);
/* Makes the missing pieces on options.threads threads. The calling thread is one of them, and calls
 * options.progress before each of its pieces. After a failure no piece is begun. Status and message
 * are those of the lowest piece that failed, and *failed is its number; F8_ERR_CANCELLED comes
 * before all others. */
f8_status f8_build_cached_make(f8_build_cached *c, uint32_t *failed, f8_diag *d);
/* The number of kernels that were not made here. */
uint32_t f8_build_cached_found(f8_build_cached *c);
/* Frees all that `take` received and `make` made. Must also be called after a failure. */
void f8_build_cached_end(f8_build_cached *c);

#endif
