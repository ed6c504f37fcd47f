/* Memory in which the runs of several programs work: see work.h. */
#include "runtime/work.h"

#include <errno.h>

/* ---- life ---- */

static int make_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t kind;
    int failed = pthread_mutexattr_init(&kind);
    if (failed)
        return failed;
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    failed = pthread_mutex_init(lock, &kind);
    pthread_mutexattr_destroy(&kind);
    return failed;
}

f8_status f8_work_create(const f8_allocator *allocator, f8_work **out, f8_diag *diag)
{
    f8_work *w = allocator->alloc(allocator->user, sizeof *w, 16);
    *out = NULL;
    if (!w)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       sizeof *w);
    *w = (f8_work){.allocator = *allocator, .holders = 1};
    if (make_lock(&w->lock)) {
        allocator->free(allocator->user, w, sizeof *w);
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: a lock was wanted");
    }
    *out = w;
    return F8_OK;
}

/* A thread that has it may do more with it where nothing of a run's memory is touched. */
static bool take(f8_work *w)
{
    return pthread_mutex_lock(&w->lock) == 0;
}

static void release_locked(f8_work *w, bool locked)
{
    const bool last = --w->holders == 0;
    if (locked)
        pthread_mutex_unlock(&w->lock);
    if (!last)
        return;
    const f8_allocator allocator = w->allocator;
    pthread_mutex_destroy(&w->lock);
    allocator.free(allocator.user, w, sizeof *w);
}

void f8_work_release(f8_work *w)
{
    release_locked(w, take(w));
}

int64_t f8_work_bytes(f8_work *w)
{
    const bool locked = take(w);
    const int64_t bytes = w->bytes;
    if (locked)
        pthread_mutex_unlock(&w->lock);
    return bytes;
}

/* ---- homes ---- */

static bool same_place(const f8_work_place *a, const f8_work_place *b)
{
    return a->kind == b->kind && a->device == b->device;
}

f8_status f8_work_join(f8_work *w, const f8_work_place *place, f8_diag *diag)
{
    if (!w)
        return F8_OK;
    F8_TRY(f8_work_lock(w, diag));
    const bool fits = !w->homes || same_place(&w->place, place);
    if (fits) {
        w->place = *place;
        w->homes++;
        w->holders++;
    }
    f8_work_unlock(w);
    return fits ? F8_OK
                : f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                          "arena: its programs run on another device than this one");
}

void f8_work_abandon(f8_work *w)
{
    if (!w)
        return;
    const bool locked = take(w);
    w->homes--; /* it has no blocks, if it was the only one */
    release_locked(w, locked);
}

void f8_work_leave(f8_work *w, f8_home *home, void (*end)(f8_work *w, f8_home *home))
{
    if (!w)
        return;
    const bool locked = take(w);
    if (--w->homes == 0) {
        for (int i = 0; i < F8_WORK_BLOCKS; i++) {
            if (w->block[i].at)
                home->kind->free(home, w->block[i], true);
            w->block[i] = (f8_block){0};
        }
        w->bytes = 0;
        w->generation++;
        if (end)
            end(w, home);
    }
    release_locked(w, locked);
}

/* ---- the lock ---- */

f8_status f8_work_lock(f8_work *w, f8_diag *diag)
{
    const int failed = w ? pthread_mutex_lock(&w->lock) : 0;
    if (!failed)
        return F8_OK;
    return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                   failed == EDEADLK ? "arena: a callback of a run can't use another program with "
                                       "the same arena"
                                     : "arena: its lock can't be taken");
}

void f8_work_unlock(f8_work *w)
{
    if (w)
        pthread_mutex_unlock(&w->lock);
}
