/* The pieces of a build, from the cache or made on threads: see cached.h. */
#include "codegen/cache/cached.h"

#include <signal.h>
#include <string.h>

#include "ir/base/clock.h"

enum { WAIT = 20 };                                    /* f8_build_options.cache_wait */
enum { PAUSE_FIRST = 1000000, PAUSE_MOST = 16000000 }; /* nanoseconds */

/* ---- looking up ---- */

static f8_status begin(f8_build_cached *c, const f8_build_options *options, f8_diag *d)
{
    c->options = options;
    c->until = f8_seconds_now() + (options->cache_wait > 0 ? options->cache_wait : WAIT);
    f8_arena_end(&c->arena);
    f8_arena_init(&c->arena, options->allocator);
    c->n_missing = c->n_kernels = 0;
    c->key = F8_NEW_ARRAY(&c->arena, f8_cache_key, c->n + 1);
    c->missing = F8_NEW_ARRAY(&c->arena, uint32_t, c->n + 1);
    return f8_arena_status(&c->arena, d);
}

static f8_status find_one(f8_build_cached *c, uint32_t i, bool *found, f8_diag *d)
{
    f8_cache_value value;
    *found = false;
    if (!c->cache)
        return F8_OK;
    const char *text = c->calls->key(c->user, i, &c->arena);
    if (!text)
        return f8_arena_status(&c->arena, d);
    c->key[i] = f8_cache_key_of(text, strlen(text));
    *found =
        f8_cache_get(c->cache, &c->key[i], &c->arena, &value) && c->calls->take(c->user, i, &value);
    return f8_arena_status(&c->arena, d);
}

f8_status f8_build_cached_find(f8_build_cached *c, const f8_build_options *options, f8_diag *d)
{
    uint32_t n_kernels;
    F8_TRY(begin(c, options, d));
    for (uint32_t turn = 0; turn < c->n; turn++) {
        const uint32_t i = c->order ? c->order[turn] : turn;
        bool found;
        F8_TRY(find_one(c, i, &found, d));
        c->calls->name(c->user, i, &n_kernels);
        c->n_kernels += n_kernels;
        if (!found)
            c->missing[c->n_missing++] = i;
    }
    return F8_OK;
}

/* ---- one piece ---- */

static f8_status make_one(f8_build_worker *w, uint32_t n_kernels)
{
    f8_build_cached *c = w->all;
    F8_TRY(c->calls->make(c->user, w->piece, &w->arena, &w->diag));
    atomic_fetch_add(&c->n_made, n_kernels);
    if (!c->cache)
        return F8_OK;
    const f8_cache_value value = c->calls->give(c->user, w->piece, &w->arena);
    if (value.bytes)
        f8_cache_put(c->cache, &c->key[w->piece], value.bytes, value.size);
    return F8_OK;
}

/* Takes or makes one piece. Another process may have made it since it was looked for, so it is
 * looked for a second time under the lock. *later is set, and nothing done, if another process is
 * making it. */
static f8_status take_or_make(f8_build_worker *w, uint32_t n_kernels, bool *later)
{
    f8_build_cached *c = w->all;
    f8_cache_value value;
    f8_cache_claim claim;
    if (!c->cache)
        return make_one(w, n_kernels);
    if (!f8_cache_claim_key(c->cache, &c->key[w->piece], &claim)) {
        *later = f8_seconds_now() < c->until;
        return *later ? F8_OK : make_one(w, n_kernels);
    }
    f8_status s = F8_OK;
    if (!f8_cache_look_again(c->cache, &c->key[w->piece], &w->arena, &value) ||
        !c->calls->take(c->user, w->piece, &value))
        s = make_one(w, n_kernels);
    f8_cache_release(&claim);
    return s;
}

/* One attempt at the piece of a worker. False: it must be tried later. */
static bool take_turn(f8_build_worker *w)
{
    f8_build_cached *c = w->all;
    uint32_t n_kernels = 0;
    bool later = false;
    const char *name = c->calls->name(c->user, w->piece, &n_kernels);
    if (w == &c->worker[0]) /* only the thread of the caller may ask for progress */
        w->status = f8_progress_at(&c->phase, atomic_load(&c->done), name, &w->diag);
    const double start = f8_seconds_now();
    if (w->status == F8_OK)
        w->status = take_or_make(w, n_kernels, &later);
    if (w->status != F8_OK) {
        atomic_store(&c->failed, true);
    } else if (!later) {
        atomic_fetch_add(&c->done, n_kernels);
        f8_log_say(c->options->log, F8_LOG_DEBUG, "kernel %s%s: %.3f s", name,
                   n_kernels > 1 ? " and the others of its image" : "", f8_seconds_now() - start);
    }
    return !later;
}

/* ---- threads ---- */

static void push_retry(f8_build_cached *c, uint32_t piece)
{
    pthread_mutex_lock(&c->lock);
    c->retry[c->n_retries++] = piece;
    pthread_mutex_unlock(&c->lock);
}

/* Takes the piece that has waited longest. Returns the length of the queue before; 0: it is
 * empty. */
static uint32_t pop_retry(f8_build_cached *c, uint32_t *piece)
{
    pthread_mutex_lock(&c->lock);
    const uint32_t n = c->n_retries;
    if (n) {
        *piece = c->retry[0];
        memmove(c->retry, c->retry + 1, --c->n_retries * sizeof *c->retry);
    }
    pthread_mutex_unlock(&c->lock);
    return n;
}

/* Tries the pieces that other processes are making, one after another, with a pause after each
 * round in which none was ready. */
static void work_retries(f8_build_worker *w)
{
    f8_build_cached *c = w->all;
    long pause = PAUSE_FIRST;
    uint32_t n, vain = 0;
    while (!atomic_load(&c->failed) && (n = pop_retry(c, &w->piece))) {
        if (vain >= n) {
            nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
            pause = 2 * pause < PAUSE_MOST ? 2 * pause : PAUSE_MOST;
            vain = 0;
        }
        const bool done = take_turn(w);
        vain = done ? 0 : vain + 1;
        pause = done ? PAUSE_FIRST : pause;
        if (!done)
            push_retry(c, w->piece);
    }
}

static void *work(void *user)
{
    f8_build_worker *w = user;
    f8_build_cached *c = w->all;
    while (!atomic_load(&c->failed)) {
        const uint32_t turn = atomic_fetch_add(&c->next, 1);
        if (turn >= c->n_missing)
            break;
        w->piece = c->missing[turn];
        if (!take_turn(w))
            push_retry(c, w->piece);
    }
    work_retries(w);
    return NULL;
}

static bool comes_first(const f8_build_worker *a, const f8_build_worker *b)
{
    return !b || a->status == F8_ERR_CANCELLED ||
           (b->status != F8_ERR_CANCELLED && a->piece < b->piece);
}

static f8_status begin_workers(f8_build_cached *c, f8_diag *d)
{
    uint32_t total = 0, n_kernels;
    c->retry = F8_NEW_ARRAY(&c->arena, uint32_t, c->n_missing + 1);
    if (!c->retry)
        return f8_arena_status(&c->arena, d);
    if (pthread_mutex_init(&c->lock, NULL))
        return f8_fail(d, F8_ERR_IO, F8_NOWHERE, "can't make a mutex");
    int n = c->options->threads > 0 ? c->options->threads : 2;
    n = n > F8_BUILD_MOST_THREADS ? F8_BUILD_MOST_THREADS : n;
    n = (uint32_t)n > c->n_missing ? (int)c->n_missing : n;
    c->n_workers = n < 1 ? 1 : n;
    for (uint32_t i = 0; i < c->n_missing; i++) {
        c->calls->name(c->user, c->missing[i], &n_kernels);
        total += n_kernels;
    }
    c->phase = f8_progress_begin(c->options->progress, "kernels", total);
    for (int i = 0; i < c->n_workers; i++) {
        c->worker[i] = (f8_build_worker){.all = c};
        f8_arena_init(&c->worker[i].arena, c->options->allocator);
    }
    return F8_OK;
}

/* Worker threads block all signals, which belong to the embedding program. */
static void start_workers(f8_build_cached *c)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (int i = 1; i < c->n_workers; i++)
        c->worker[i].started = pthread_create(&c->worker[i].thread, NULL, work, &c->worker[i]) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* The first worker is this thread. If a thread cannot be started, the others do its share. */
f8_status f8_build_cached_make(f8_build_cached *c, uint32_t *failed, f8_diag *d)
{
    F8_TRY(begin_workers(c, d));
    start_workers(c);
    work(&c->worker[0]);
    const f8_build_worker *first = NULL; /* the failed worker whose failure is reported */
    for (int i = 0; i < c->n_workers; i++) {
        const f8_build_worker *w = &c->worker[i];
        if (w->started)
            pthread_join(w->thread, NULL);
        if (w->status != F8_OK && comes_first(w, first))
            first = w;
    }
    pthread_mutex_destroy(&c->lock);
    if (first) {
        *failed = first->piece;
        return f8_fail(d, first->status, first->diag.loc, "%s", first->diag.text);
    }
    F8_TRY(f8_progress_at(&c->phase, c->phase.total, "", d));
    if (c->cache)
        f8_log_say(c->options->log, F8_LOG_INFO, "kernels: %u compiled, %u from the cache",
                   atomic_load(&c->n_made), f8_build_cached_found(c));
    return F8_OK;
}

uint32_t f8_build_cached_found(f8_build_cached *c)
{
    return c->n_kernels - atomic_load(&c->n_made);
}

void f8_build_cached_end(f8_build_cached *c)
{
    for (int i = 0; i < c->n_workers; i++)
        f8_arena_end(&c->worker[i].arena);
    f8_arena_end(&c->arena);
}
