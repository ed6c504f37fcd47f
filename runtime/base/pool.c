/* The thread pool: see pool.h.
 *
 * A run is one 64-bit word, the cursor: generation << 32 | chunks not yet claimed. A claim is a
 * compare-and-swap from the word seen, so it succeeds only while that very run has work left, and
 * the run cannot end (nor its fields change) before the claimed chunk is done. That is why a thread
 * that wakes late needs no barrier of its own: the caller waits for chunks, never for threads, and
 * a short run on a busy machine costs no context switch. The obvious fetch-and-add would let a late
 * thread take a chunk of the next run with the fields of the last. */
#include "runtime/base/pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ir/base/format.h"
#include "ir/base/type.h"
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

enum {
    CACHE_LINE = 64,
    CHUNKS_PER_THREAD = 16, /* finer when there are few tasks: 1 task a chunk up to this many */
    /* Pauses before sleeping: some hundreds of microseconds. A step of a program often leaves
     * threads idle for less, and waking one costs as much as a small kernel. */
    SPINS = 10000,
    /* One pause in so many gives the CPU to who else wants it. Without, idle threads of several
     * processes on few CPUs keep the working ones off. */
    YIELD_EVERY = 16,
};

typedef struct worker {
    f8_pool *pool;
    pthread_t id;
    int thread;
} worker;

struct f8_pool {
    f8_allocator allocator;
    f8_parallel parallel; /* run NULL: threads of our own */
    _Atomic bool broken;  /* they did not do as f8_parallel says */
    int n_threads;
    int n_started; /* workers that run; n_threads - 1 once created */
    pid_t process; /* that has the workers */
    worker *workers;

    /* The run's fields: atomic because a late thread may read them while the next run is set up (it
     * then fails to claim and drops what it read). */
    _Atomic(f8_pool_fn) fn;
    _Atomic(void *) user;
    _Atomic int64_t n_tasks, chunk, n_chunks;

    _Alignas(CACHE_LINE) _Atomic uint64_t cursor;
    _Alignas(CACHE_LINE) _Atomic uint32_t unfinished; /* chunks; the caller sleeps on it */
    _Atomic uint32_t caller_sleeps;
    _Alignas(CACHE_LINE) _Atomic uint32_t wake; /* counts runs; idle workers sleep on it */
    _Atomic uint32_t sleepers;
    _Atomic bool stop;
};

/* ---- waiting ---- */

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Return when *word is no longer `seen`, or earlier for no reason. */
static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* ---- floating-point mode ----
 * A caller that flushes subnormals or rounds otherwise must not get other bits on thread 0 than on
 * the workers: tasks always run in the default mode. */

static unsigned enter_default_mode(void)
{
#if defined(__SSE__)
    unsigned saved = _mm_getcsr();
    if ((saved & ~0x3fu) != 0x1f80u) /* all but the sticky exception flags */
        _mm_setcsr(0x1f80u);
    return saved;
#else
    return 0;
#endif
}

static void leave_default_mode(unsigned saved)
{
#if defined(__SSE__)
    if ((saved & ~0x3fu) != 0x1f80u)
        _mm_setcsr(saved);
#else
    (void)saved;
#endif
}

/* ---- claiming and running ---- */

/* Run one chunk, if one is left. */
static bool run_chunk(f8_pool *pool, int thread)
{
    uint64_t seen = atomic_load_explicit(&pool->cursor, memory_order_acquire);
    f8_pool_fn fn;
    void *user;
    int64_t begin, end;
    do {
        if ((uint32_t)seen == 0)
            return false;
        fn = atomic_load_explicit(&pool->fn, memory_order_relaxed);
        user = atomic_load_explicit(&pool->user, memory_order_relaxed);
        int64_t n_tasks = atomic_load_explicit(&pool->n_tasks, memory_order_relaxed);
        int64_t chunk = atomic_load_explicit(&pool->chunk, memory_order_relaxed);
        int64_t n_chunks = atomic_load_explicit(&pool->n_chunks, memory_order_relaxed);
        begin = (n_chunks - (int64_t)(uint32_t)seen) * chunk;
        end = begin + chunk < n_tasks ? begin + chunk : n_tasks;
    } while (!atomic_compare_exchange_weak_explicit(&pool->cursor, &seen, seen - 1,
                                                    memory_order_acq_rel, memory_order_acquire));
    fn(user, thread, begin, end);
    /* seq_cst orders this against caller_sleeps: one side sees the other (see wait_for_chunks). */
    if (atomic_fetch_sub(&pool->unfinished, 1) == 1 && atomic_load(&pool->caller_sleeps))
        futex_wake(&pool->unfinished, 1);
    return true;
}

static void wait_for_chunks(f8_pool *pool)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&pool->unfinished, memory_order_acquire) == 0)
            return;
        pause_briefly();
    }
    atomic_store(&pool->caller_sleeps, 1);
    for (uint32_t left; (left = atomic_load(&pool->unfinished)) != 0;)
        futex_wait(&pool->unfinished, left);
    atomic_store(&pool->caller_sleeps, 0);
}

static void *worker_main(void *arg)
{
    worker *self = arg;
    f8_pool *pool = self->pool;
    enter_default_mode();
    for (;;) {
        /* Read before looking for work: a run published after the look changes it. */
        uint32_t seen = atomic_load(&pool->wake);
        if (atomic_load(&pool->stop))
            return NULL;
        while (run_chunk(pool, self->thread)) {
        }
        int spins = 0;
        while (spins < SPINS && atomic_load_explicit(&pool->wake, memory_order_acquire) == seen) {
            if (++spins % YIELD_EVERY)
                pause_briefly();
            else
                sched_yield();
        }
        if (spins < SPINS)
            continue;
        atomic_fetch_add(&pool->sleepers, 1);
        futex_wait(&pool->wake, seen);
        atomic_fetch_sub(&pool->sleepers, 1);
    }
}

static void wake_workers(f8_pool *pool, int64_t at_most)
{
    atomic_fetch_add(&pool->wake, 1);
    if (atomic_load(&pool->sleepers))
        futex_wake(&pool->wake, at_most < INT_MAX ? (int)at_most : INT_MAX);
}

/* ---- the embedder's threads ---- */

typedef struct lent_run {
    f8_pool *pool;
    f8_pool_fn fn;
    void *user;
    int64_t n_tasks;
    _Atomic int64_t done;
} lent_run;

static void lent_task(void *job, int32_t thread, int64_t begin, int64_t end)
{
    lent_run *r = job;
    if (begin == end)
        return;
    if (thread < 0 || thread >= r->pool->n_threads || begin < 0 || end < begin ||
        end > r->n_tasks) {
        atomic_store(&r->pool->broken, true);
        return;
    }
    const unsigned mode = enter_default_mode();
    r->fn(r->user, thread, begin, end);
    leave_default_mode(mode);
    atomic_fetch_add(&r->done, end - begin);
}

static void run_lent(f8_pool *pool, f8_pool_fn fn, void *user, int64_t n_tasks)
{
    lent_run r = {.pool = pool, .fn = fn, .user = user, .n_tasks = n_tasks};
    pool->parallel.run(pool->parallel.user, lent_task, &r, n_tasks);
    if (atomic_load(&r.done) != n_tasks)
        atomic_store(&pool->broken, true);
}

f8_status f8_pool_check(f8_pool *pool, f8_diag *diag)
{
    if (!pool || !pool->parallel.run || !atomic_exchange(&pool->broken, false))
        return F8_OK;
    return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                   "`parallel` did not run each task once, by a thread from 0 to %d",
                   pool->n_threads - 1);
}

/* ---- a run ---- */

void f8_pool_run(f8_pool *pool, f8_pool_fn fn, void *user, int64_t n_tasks)
{
    if (n_tasks <= 0)
        return;
    if (pool && pool->parallel.run && n_tasks > 1) {
        run_lent(pool, fn, user, n_tasks);
        return;
    }
    unsigned mode = enter_default_mode();
    if (!pool || pool->n_threads == 1 || n_tasks == 1) {
        fn(user, 0, 0, n_tasks);
        leave_default_mode(mode);
        return;
    }
    int64_t finest = (int64_t)pool->n_threads * CHUNKS_PER_THREAD;
    int64_t chunk = n_tasks <= finest ? 1 : (n_tasks - 1) / finest + 1;
    int64_t n_chunks = (n_tasks - 1) / chunk + 1;
    atomic_store_explicit(&pool->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&pool->user, user, memory_order_relaxed);
    atomic_store_explicit(&pool->n_tasks, n_tasks, memory_order_relaxed);
    atomic_store_explicit(&pool->chunk, chunk, memory_order_relaxed);
    atomic_store_explicit(&pool->n_chunks, n_chunks, memory_order_relaxed);
    atomic_store_explicit(&pool->unfinished, (uint32_t)n_chunks, memory_order_relaxed);
    uint64_t last = atomic_load_explicit(&pool->cursor, memory_order_relaxed);
    atomic_store_explicit(&pool->cursor, ((last >> 32) + 1) << 32 | (uint64_t)n_chunks,
                          memory_order_release);
    wake_workers(pool, n_chunks - 1);
    while (run_chunk(pool, 0)) {
    }
    wait_for_chunks(pool);
    leave_default_mode(mode);
}

/* ---- lifetime ---- */

int f8_pool_usable_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set) < F8_POOL_MAX_THREADS ? CPU_COUNT(&set) : F8_POOL_MAX_THREADS;
    return 1;
}

/* Workers take no signals: those are the embedder's. */
static f8_status start_workers(f8_pool *pool, f8_diag *diag)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = 0;
    for (int i = 0; i < pool->n_threads - 1 && !error; i++) {
        worker *w = &pool->workers[i];
        *w = (worker){.pool = pool, .thread = i + 1};
        error = pthread_create(&w->id, NULL, worker_main, w);
        if (!error)
            pool->n_started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error)
        return f8_fail(diag, F8_ERR_IO, F8_NOWHERE, "can't start thread %d of %d: %s",
                       pool->n_started + 2, pool->n_threads, f8_errno_text(error));
    return F8_OK;
}

f8_status f8_pool_create(const f8_pool_options *options, f8_pool **out, f8_diag *diag)
{
    *out = NULL;
    const f8_parallel *lent = options->parallel;
    int n = lent                 ? lent->n_threads
            : options->n_threads ? options->n_threads
                                 : f8_pool_usable_cpus();
    if (n < 1 || n > F8_POOL_MAX_THREADS)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "%d threads: must be 1 to %d", n,
                       F8_POOL_MAX_THREADS);
    f8_allocator al = options->allocator ? *options->allocator : f8_default_allocator();
    size_t header = (size_t)f8_aligned(sizeof(f8_pool), CACHE_LINE);
    size_t size = header + sizeof(worker) * (lent ? 0 : (size_t)n);
    f8_pool *pool = al.alloc(al.user, size, CACHE_LINE);
    if (!pool)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                       "out of memory: %zu bytes were wanted for a thread pool", size);
    memset(pool, 0, size);
    pool->allocator = al;
    pool->n_threads = n;
    pool->process = getpid();
    pool->workers = (worker *)((char *)pool + header);
    if (lent)
        pool->parallel = *lent;
    f8_status status = lent ? F8_OK : start_workers(pool, diag);
    if (status != F8_OK) {
        f8_pool_destroy(pool);
        return status;
    }
    *out = pool;
    return F8_OK;
}

void f8_pool_destroy(f8_pool *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->stop, true);
    wake_workers(pool, INT_MAX);
    const bool here = pool->process == getpid();
    for (int i = 0; here && i < pool->n_started; i++)
        pthread_join(pool->workers[i].id, NULL);
    f8_allocator al = pool->allocator;
    size_t header = (size_t)f8_aligned(sizeof(f8_pool), CACHE_LINE);
    const size_t n_workers = pool->parallel.run ? 0 : (size_t)pool->n_threads;
    al.free(al.user, pool, header + sizeof(worker) * n_workers);
}

int f8_pool_threads(const f8_pool *pool)
{
    return pool ? pool->n_threads : 1;
}
