/* Batches on threads: see build_threads.h. */
#include "codegen/build_threads.h"

#include <signal.h>
#include <string.h>

#include "ir/clock.h"

enum { PAUSE_FIRST = 1000000, PAUSE_MOST = 16000000 }; /* nanoseconds */

/* Compile a batch, and say so; false when it comes later. */
static bool compile(f8_build_worker *w, const char *name, uint32_t n_kernels)
{
    f8_build_threads *t = w->all;
    const double start = f8_seconds_now();
    bool later = false;
    w->status = t->compile(t->user, w->batch, &w->arena, &later, &w->diag);
    if (w->status != F8_OK || later)
        return w->status != F8_OK;
    atomic_fetch_add(&t->done, n_kernels);
    f8_log_say(t->options->log, F8_LOG_DEBUG, "kernel %s%s: %.3f s", name,
               n_kernels > 1 ? " and those with it" : "", f8_seconds_now() - start);
    return true;
}

/* A turn of the worker's batch; false when it comes later. */
static bool take_turn(f8_build_worker *w)
{
    f8_build_threads *t = w->all;
    uint32_t n_kernels = 0;
    bool done = true;
    const char *name = t->name(t->user, w->batch, &n_kernels);
    if (w == &t->worker[0]) /* the caller's own thread: only it may ask */
        w->status = f8_progress_at(&t->phase, atomic_load(&t->done), name, &w->diag);
    if (w->status == F8_OK)
        done = compile(w, name, n_kernels);
    if (w->status != F8_OK)
        atomic_store(&t->failed, true);
    return done;
}

static void push_again(f8_build_threads *t, uint32_t batch)
{
    pthread_mutex_lock(&t->lock);
    t->again[t->n_again++] = batch;
    pthread_mutex_unlock(&t->lock);
}

/* The batch that has waited longest; how many there are with it, 0 for none. */
static uint32_t pop_again(f8_build_threads *t, uint32_t *batch)
{
    pthread_mutex_lock(&t->lock);
    const uint32_t n = t->n_again;
    if (n) {
        *batch = t->again[0];
        memmove(t->again, t->again + 1, --t->n_again * sizeof *t->again);
    }
    pthread_mutex_unlock(&t->lock);
    return n;
}

/* Turns of what others are at, in a circle, with a pause after each round in which nothing was
 * ready. */
static void work_again(f8_build_worker *w)
{
    f8_build_threads *t = w->all;
    long pause = PAUSE_FIRST;
    uint32_t n, vain = 0;
    while (!atomic_load(&t->failed) && (n = pop_again(t, &w->batch))) {
        if (vain >= n) {
            nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
            pause = 2 * pause < PAUSE_MOST ? 2 * pause : PAUSE_MOST;
            vain = 0;
        }
        const bool done = take_turn(w);
        vain = done ? 0 : vain + 1;
        pause = done ? PAUSE_FIRST : pause;
        if (!done)
            push_again(t, w->batch);
    }
}

static void *work(void *user)
{
    f8_build_worker *w = user;
    f8_build_threads *t = w->all;
    while (!atomic_load(&t->failed)) {
        const uint32_t turn = atomic_fetch_add(&t->next, 1);
        if (turn >= t->n_batches)
            break;
        w->batch = t->order ? t->order[turn] : turn;
        if (!take_turn(w))
            push_again(t, w->batch);
    }
    work_again(w);
    return NULL;
}

static bool comes_first(const f8_build_worker *a, const f8_build_worker *b)
{
    return !b || a->status == F8_ERR_CANCELLED ||
           (b->status != F8_ERR_CANCELLED && a->batch < b->batch);
}

static f8_status begin(f8_build_threads *t, const f8_build_options *options, f8_arena *arena,
                       f8_diag *d)
{
    uint32_t total = 0, n_kernels;
    t->again = F8_NEW_ARRAY(arena, uint32_t, t->n_batches + 1);
    if (!t->again)
        return f8_arena_status(arena, d);
    if (pthread_mutex_init(&t->lock, NULL))
        return f8_fail(d, F8_ERR_IO, F8_NOWHERE, "can't make a mutex");
    t->options = options;
    t->n = options->threads > 0 ? options->threads : 2;
    t->n = t->n > F8_BUILD_MOST_THREADS ? F8_BUILD_MOST_THREADS : t->n;
    t->n = (uint32_t)t->n > t->n_batches ? (int)t->n_batches : t->n;
    t->n = t->n < 1 ? 1 : t->n;
    for (uint32_t i = 0; i < t->n_batches; i++) {
        t->name(t->user, t->order ? t->order[i] : i, &n_kernels);
        total += n_kernels;
    }
    t->phase = f8_progress_begin(options->progress, "kernels", total);
    for (int i = 0; i < t->n; i++) {
        t->worker[i] = (f8_build_worker){.all = t};
        f8_arena_init(&t->worker[i].arena, options->allocator);
    }
    return F8_OK;
}

/* They take no signals: those are the embedder's. */
static void start_workers(f8_build_threads *t)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (int i = 1; i < t->n; i++)
        t->worker[i].started = pthread_create(&t->worker[i].thread, NULL, work, &t->worker[i]) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* The first worker is this thread; others that can't be started leave it their share. */
f8_status f8_build_threads_run(f8_build_threads *t, const f8_build_options *options,
                               f8_arena *arena, uint32_t *failed, f8_diag *d)
{
    F8_TRY(begin(t, options, arena, d));
    start_workers(t);
    work(&t->worker[0]);
    const f8_build_worker *first = NULL; /* of those that failed */
    for (int i = 0; i < t->n; i++) {
        const f8_build_worker *w = &t->worker[i];
        if (w->started)
            pthread_join(w->thread, NULL);
        if (w->status != F8_OK && comes_first(w, first))
            first = w;
    }
    pthread_mutex_destroy(&t->lock);
    if (!first)
        return f8_progress_at(&t->phase, t->phase.total, "", d);
    *failed = first->batch;
    return f8_fail(d, first->status, first->diag.loc, "%s", first->diag.text);
}

void f8_build_threads_end(f8_build_threads *t)
{
    for (int i = 0; i < t->n; i++)
        f8_arena_end(&t->worker[i].arena);
}
