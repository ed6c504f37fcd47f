/* One thread for the engine's calls: see queue.h. */
#include "runtime/comm/queue.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include "ir/base/clock.h"
#include "ir/base/format.h"

struct f8_comm_queue {
    const f8_comm *comm;
    f8_allocator allocator;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t started, ended; /* a transfer, or `leave`; a transfer, or the queue is idle */
    f8_transfer *first, **last;    /* started and not yet begun */
    bool busy, leave;
    f8_diag failed; /* status F8_OK: no call of this run failed */
};

/* The next transfer, without a call where an earlier one failed. NULL: the queue ends. */
static f8_transfer *take(f8_comm_queue *q)
{
    while (!q->first && !q->leave)
        pthread_cond_wait(&q->started, &q->lock);
    f8_transfer *t = q->first;
    if (!t)
        return NULL;
    q->first = t->next;
    if (!q->first)
        q->last = &q->first;
    q->busy = true;
    return t;
}

static void *run(void *user)
{
    enum { SLACK = 1000 }; /* nanoseconds */
    f8_comm_queue *q = user;
    f8_transfer *t;
    prctl(PR_SET_TIMERSLACK, SLACK); /* engines sleep for less than Linux's 50 us; it may refuse */
    pthread_mutex_lock(&q->lock);
    while ((t = take(q))) {
        f8_diag diag = {0};
        f8_status status = q->failed.status;
        if (status == F8_OK) {
            pthread_mutex_unlock(&q->lock);
            t->begun = f8_seconds_now();
            status = f8_comm_run(q->comm, t->desc, t->label, t->send, t->receive, &diag);
            t->ended = f8_seconds_now();
            pthread_mutex_lock(&q->lock);
            if (status != F8_OK) {
                f8_fail(&diag, status, F8_NOWHERE, "a collective failed");
                q->failed = diag;
            }
        }
        t->status = q->failed.status;
        t->done = true;
        q->busy = false;
        pthread_cond_broadcast(&q->ended);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* Signals of the process are for the embedder's threads. */
static int start_thread(f8_comm_queue *q)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&q->thread, NULL, run, q);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

f8_status f8_comm_queue_create(const f8_comm *comm, const f8_allocator *allocator,
                               f8_comm_queue **out, f8_diag *diag)
{
    *out = NULL;
    f8_comm_queue *q = allocator->alloc(allocator->user, sizeof *q, 16);
    if (!q)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       sizeof *q);
    *q = (f8_comm_queue){.comm = comm, .allocator = *allocator};
    q->last = &q->first;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->started, NULL);
    pthread_cond_init(&q->ended, NULL);
    const int failed = start_thread(q);
    if (failed) {
        allocator->free(allocator->user, q, sizeof *q);
        return f8_fail(diag, F8_ERR_IO, F8_NOWHERE, "can't start a thread for collectives: %s",
                       f8_errno_text(failed));
    }
    *out = q;
    return F8_OK;
}

void f8_comm_queue_destroy(f8_comm_queue *q)
{
    if (!q)
        return;
    pthread_mutex_lock(&q->lock);
    q->leave = true;
    pthread_cond_signal(&q->started);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->ended);
    pthread_cond_destroy(&q->started);
    pthread_mutex_destroy(&q->lock);
    const f8_allocator allocator = q->allocator;
    allocator.free(allocator.user, q, sizeof *q);
}

void f8_comm_queue_start(f8_comm_queue *q, f8_transfer *t)
{
    t->next = NULL;
    t->done = false;
    t->status = F8_OK;
    t->started = t->begun = t->ended = f8_seconds_now();
    pthread_mutex_lock(&q->lock);
    *q->last = t;
    q->last = &t->next;
    pthread_cond_signal(&q->started);
    pthread_mutex_unlock(&q->lock);
}

f8_status f8_comm_queue_wait(f8_comm_queue *q, f8_transfer *t, f8_diag *diag)
{
    pthread_mutex_lock(&q->lock);
    while (!t->done)
        pthread_cond_wait(&q->ended, &q->lock);
    if (t->status != F8_OK && diag->status == F8_OK)
        *diag = q->failed;
    pthread_mutex_unlock(&q->lock);
    return t->status;
}

void f8_comm_queue_stop(f8_comm_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->first = NULL;
    q->last = &q->first;
    while (q->busy)
        pthread_cond_wait(&q->ended, &q->lock);
    q->failed = (f8_diag){0};
    pthread_mutex_unlock(&q->lock);
}
