/* Batches on threads: see build_threads.h. */
#include "codegen/build_threads.h"

static void *work(void *user)
{
    f8_build_worker *w = user;
    f8_build_threads *t = w->all;
    while (!atomic_load(&t->failed)) {
        const uint32_t turn = atomic_fetch_add(&t->next, 1);
        if (turn >= t->n_batches)
            break;
        w->batch = t->order ? t->order[turn] : turn;
        w->status = t->compile(t->user, w->batch, &w->arena, &w->diag);
        if (w->status != F8_OK)
            atomic_store(&t->failed, true);
    }
    return NULL;
}

/* The first worker is this thread; others that can't be started leave it their share. */
f8_status f8_build_threads_run(f8_build_threads *t, const f8_build_options *options,
                               uint32_t *failed, f8_diag *d)
{
    const int n = options->threads > 0 ? options->threads : 2;
    t->n = n > F8_BUILD_MOST_THREADS ? F8_BUILD_MOST_THREADS : n;
    for (int i = 0; i < t->n; i++) {
        t->worker[i] = (f8_build_worker){.all = t};
        f8_arena_init(&t->worker[i].arena, options->allocator);
    }
    for (int i = 1; i < t->n; i++)
        t->worker[i].started = pthread_create(&t->worker[i].thread, NULL, work, &t->worker[i]) == 0;
    work(&t->worker[0]);
    const f8_build_worker *first = NULL; /* of those that failed */
    for (int i = 0; i < t->n; i++) {
        const f8_build_worker *w = &t->worker[i];
        if (w->started)
            pthread_join(w->thread, NULL);
        if (w->status != F8_OK && (!first || w->batch < first->batch))
            first = w;
    }
    if (!first)
        return F8_OK;
    *failed = first->batch;
    return f8_fail(d, first->status, first->diag.loc, "%s", first->diag.text);
}

void f8_build_threads_end(f8_build_threads *t)
{
    for (int i = 0; i < t->n; i++)
        f8_arena_end(&t->worker[i].arena);
}
