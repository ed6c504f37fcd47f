/* Batches on threads: see build_threads.h. */
#include "codegen/build_threads.h"

#include "ir/clock.h"

/* Compile a batch, and say so. */
static void compile(f8_build_worker *w, const char *name, uint32_t n_kernels)
{
    f8_build_threads *t = w->all;
    const double start = f8_seconds_now();
    w->status = t->compile(t->user, w->batch, &w->arena, &w->diag);
    if (w->status != F8_OK)
        return;
    atomic_fetch_add(&t->done, n_kernels);
    f8_log_say(t->options->log, F8_LOG_DEBUG, "kernel %s%s: %.3f s", name,
               n_kernels > 1 ? " and those with it" : "", f8_seconds_now() - start);
}

static void *work(void *user)
{
    f8_build_worker *w = user;
    f8_build_threads *t = w->all;
    while (!atomic_load(&t->failed)) {
        const uint32_t turn = atomic_fetch_add(&t->next, 1);
        if (turn >= t->n_batches)
            break;
        uint32_t n_kernels = 0;
        w->batch = t->order ? t->order[turn] : turn;
        const char *name = t->name(t->user, w->batch, &n_kernels);
        if (w == &t->worker[0]) /* the caller's own thread: only it may ask */
            w->status = f8_progress_at(&t->phase, atomic_load(&t->done), name, &w->diag);
        if (w->status == F8_OK)
            compile(w, name, n_kernels);
        if (w->status != F8_OK)
            atomic_store(&t->failed, true);
    }
    return NULL;
}

static bool comes_first(const f8_build_worker *a, const f8_build_worker *b)
{
    return !b || a->status == F8_ERR_CANCELLED || (b->status != F8_ERR_CANCELLED && a->batch < b->batch);
}

static void begin(f8_build_threads *t, const f8_build_options *options)
{
    uint32_t total = 0, n_kernels;
    t->options = options;
    t->n = options->threads > 0 ? options->threads : 2;
    t->n = t->n > F8_BUILD_MOST_THREADS ? F8_BUILD_MOST_THREADS : t->n;
    t->n = (uint32_t)t->n > t->n_batches ? (int)t->n_batches : t->n;
    t->n = t->n < 1 ? 1 : t->n;
    for (uint32_t i = 0; i < t->n_batches; i++) {
        t->name(t->user, i, &n_kernels);
        total += n_kernels;
    }
    t->phase = f8_progress_begin(options->progress, "kernels", total);
    for (int i = 0; i < t->n; i++) {
        t->worker[i] = (f8_build_worker){.all = t};
        f8_arena_init(&t->worker[i].arena, options->allocator);
    }
}

/* The first worker is this thread; others that can't be started leave it their share. */
f8_status f8_build_threads_run(f8_build_threads *t, const f8_build_options *options,
                               uint32_t *failed, f8_diag *d)
{
    begin(t, options);
    for (int i = 1; i < t->n; i++)
        t->worker[i].started = pthread_create(&t->worker[i].thread, NULL, work, &t->worker[i]) == 0;
    work(&t->worker[0]);
    const f8_build_worker *first = NULL; /* of those that failed */
    for (int i = 0; i < t->n; i++) {
        const f8_build_worker *w = &t->worker[i];
        if (w->started)
            pthread_join(w->thread, NULL);
        if (w->status != F8_OK && comes_first(w, first))
            first = w;
    }
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
