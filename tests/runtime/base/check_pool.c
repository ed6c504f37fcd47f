/* The thread pool: every task runs once; uneven tasks, many short runs, the floating-point mode,
 * limits. */
#include "runtime/base/pool.h"
#include "tests/shared/suite.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

static f8_pool *make(int n_threads)
{
    f8_pool_options options = {.n_threads = n_threads};
    f8_pool *pool;
    f8_diag diag = {0};
    ck_assert_msg(f8_pool_create(&options, &pool, &diag) == F8_OK, "%s", diag.text);
    ck_assert_int_eq(f8_pool_threads(pool), n_threads);
    return pool;
}

/* Plain counters: the pool alone must order a task against the next run and the caller. */
typedef struct counts {
    int *done;
    int n_threads;
    _Atomic int bad_thread;
    int64_t work; /* spins for task i: i % work */
} counts;

static void count(void *user, int thread, int64_t begin, int64_t end)
{
    counts *c = user;
    if (thread < 0 || thread >= c->n_threads)
        atomic_store(&c->bad_thread, 1);
    for (int64_t i = begin; i < end; i++) {
        for (volatile int64_t spin = c->work ? i % c->work : 0; spin > 0; spin--) {
        }
        c->done[i]++;
    }
}

static const int thread_counts[] = {0, 1, 2, 3, 8, 32}; /* 0: no pool */

START_TEST(every_task_once)
{
    int n = thread_counts[_i];
    f8_pool *pool = n ? make(n) : NULL;
    static const int64_t sizes[] = {0, 1, 2, 3, 7, 100, 1000, 20011};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        counts c = {.n_threads = n ? n : 1, .work = 50};
        c.done = calloc((size_t)sizes[s] + 1, sizeof *c.done);
        for (int repeat = 1; repeat <= 5; repeat++) {
            f8_pool_run(pool, count, &c, sizes[s]);
            for (int64_t i = 0; i < sizes[s]; i++)
                if (c.done[i] != repeat)
                    ck_abort_msg("task %d of %d ran %d times in %d runs", (int)i, (int)sizes[s],
                                 c.done[i], repeat);
        }
        ck_assert_int_eq(c.done[sizes[s]], 0);
        ck_assert_int_eq(c.bad_thread, 0);
        free(c.done);
    }
    f8_pool_destroy(pool);
}
END_TEST

/* Runs that follow at once, with tasks and counters that change: a late thread must not take a task
 * of the next run for one of the last. */
static void add_value(void *user, int thread, int64_t begin, int64_t end)
{
    (void)thread;
    int64_t *cells = user;
    for (int64_t i = begin; i < end; i++)
        cells[i + 1] += cells[0];
}

static void multiply_value(void *user, int thread, int64_t begin, int64_t end)
{
    (void)thread;
    int64_t *cells = user;
    for (int64_t i = begin; i < end; i++)
        cells[i + 1] = cells[i + 1] * 3 % 1000003;
}

START_TEST(many_short_runs)
{
    enum { CELLS = 40, RUNS = 20000 };
    f8_pool *pool = make(3);
    int64_t got[2][CELLS + 1] = {{0}}, want[2][CELLS + 1] = {{0}};
    for (int run = 0; run < RUNS; run++) {
        f8_pool_fn fn = run % 3 ? add_value : multiply_value;
        int64_t n = run % (CELLS + 1), *cells = got[run & 1];
        cells[0] = want[run & 1][0] = run;
        f8_pool_run(pool, fn, cells, n);
        if (n)
            fn(want[run & 1], 0, 0, n);
        if (memcmp(got, want, sizeof got) != 0)
            ck_abort_msg("run %d", run);
    }
    f8_pool_destroy(pool);
}
END_TEST

/* While one task lasts, the others go to whoever is free. */
typedef struct waiting {
    _Atomic int64_t others;
    int64_t n;
} waiting;

static void wait_for_others(void *user, int thread, int64_t begin, int64_t end)
{
    waiting *w = user;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        if (i > 0)
            atomic_fetch_add(&w->others, 1);
        else
            while (atomic_load(&w->others) < w->n - 1) {
            }
}

START_TEST(uneven_tasks_balance)
{
    f8_pool *pool = make(2);
    for (int64_t n = 2; n <= 32; n++) {
        waiting w = {.n = n};
        f8_pool_run(pool, wait_for_others, &w, n);
        ck_assert_int_eq(w.others, n - 1);
    }
    f8_pool_destroy(pool);
}
END_TEST

#if defined(__SSE__)
static void record_mode(void *user, int thread, int64_t begin, int64_t end)
{
    unsigned *modes = user;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        modes[i] = _mm_getcsr() & ~0x3fu;
}

/* A caller that flushes subnormals gets the bits everyone gets, and its own mode back. */
START_TEST(floating_point_mode)
{
    unsigned mine = _mm_getcsr();
    _mm_setcsr(mine | 0x8040u);
    f8_pool *pool = make(2);
    unsigned modes[64];
    f8_pool_run(pool, record_mode, modes, 64);
    f8_pool_run(NULL, record_mode, modes, 1);
    for (int i = 0; i < 64; i++)
        ck_assert_uint_eq(modes[i], 0x1f80u);
    ck_assert_uint_eq(_mm_getcsr() & 0x8040u, 0x8040u);
    f8_pool_destroy(pool);
    _mm_setcsr(mine);
}
END_TEST
#endif

/* ---- the embedder's threads ---- */

enum { LENT = 3 };

/* An embedder's pool: parts of uneven size, one thread each, the last on the caller. `wrong` makes
 * it break the contract in one way. */
typedef struct lender {
    enum { RIGHT, TWICE, NONE, HALF, BEHIND, BEFORE, BACKWARDS, STRANGER, WRONGS } wrong;
    int calls;
} lender;

typedef struct part {
    void (*task)(void *job, int32_t thread, int64_t begin, int64_t end);
    void *job;
    int32_t thread;
    int64_t begin, end;
} part;

static void *run_part(void *user)
{
    const part *p = user;
    for (int64_t i = p->begin; i < p->end;
         i += 3) /* several parts for a thread, one after the other */
        p->task(p->job, p->thread, i, i + 3 < p->end ? i + 3 : p->end);
    p->task(p->job, p->thread, p->begin, p->begin); /* an empty part is none */
    return NULL;
}

static void lend(void *user, void (*task)(void *, int32_t, int64_t, int64_t), void *job, int64_t n)
{
    lender *l = user;
    part p[LENT];
    pthread_t id[LENT];
    l->calls++;
    for (int i = 0; i < LENT; i++)
        p[i] =
            (part){task, job, i, n * i * i / (LENT * LENT), n * (i + 1) * (i + 1) / (LENT * LENT)};
    switch (l->wrong) {
    case RIGHT:
    case WRONGS: break;
    case TWICE: task(job, 0, 0, 1); break;
    case NONE: return;
    case HALF: p[1].end = p[1].begin; break;
    case BEHIND: task(job, 0, n, n + 1); break;
    case BEFORE: task(job, 0, -1, 0); break;
    case BACKWARDS: task(job, 0, 1, 0); break;
    case STRANGER: task(job, LENT, 0, 1), task(job, -1, 0, 1); break;
    }
    for (int i = 0; i < LENT - 1; i++)
        ck_assert_int_eq(pthread_create(&id[i], NULL, run_part, &p[i]), 0);
    run_part(&p[LENT - 1]);
    for (int i = 0; i < LENT - 1; i++)
        pthread_join(id[i], NULL);
}

static f8_pool *make_lent(lender *l)
{
    const f8_parallel parallel = {lend, l, LENT};
    const f8_pool_options options = {.n_threads = 200, .parallel = &parallel};
    f8_pool *pool;
    f8_diag diag = {0};
    ck_assert_msg(f8_pool_create(&options, &pool, &diag) == F8_OK, "%s", diag.text);
    ck_assert_int_eq(f8_pool_threads(pool), LENT);
    return pool;
}

START_TEST(lent_threads)
{
    lender l = {.wrong = RIGHT};
    f8_pool *pool = make_lent(&l);
    int done[101] = {0};
    counts c = {.done = done, .n_threads = LENT, .work = 20};
    for (int64_t n = 0; n <= 100; n++)
        f8_pool_run(pool, count, &c, n);
    for (int i = 0; i <= 100; i++)
        ck_assert_int_eq(done[i], 100 - i);
    ck_assert_int_eq(c.bad_thread, 0);
    ck_assert_int_eq(l.calls, 99); /* a single task is the caller's */
    ck_assert_int_eq(f8_pool_check(pool, NULL), F8_OK);
    f8_pool_destroy(pool);
}
END_TEST

/* What breaks the contract is seen, told once, and touches no task that is not there. */
START_TEST(lent_threads_gone_wrong)
{
    lender l = {.wrong = _i};
    f8_pool *pool = make_lent(&l);
    int done[42] = {0};
    counts c = {.done = done + 1, .n_threads = LENT};
    f8_diag diag = {0};
    f8_pool_run(pool, count, &c, 40);
    ck_assert_int_eq(done[0] + done[41], 0);
    ck_assert_int_eq(c.bad_thread, 0);
    ck_assert_int_eq(f8_pool_check(pool, &diag), F8_ERR_INPUT);
    ck_assert_str_eq(diag.text, "`parallel` did not run each task once, by a thread from 0 to 2");
    l.wrong = RIGHT;
    f8_pool_run(pool, count, &c, 40);
    ck_assert_int_eq(f8_pool_check(pool, NULL), F8_OK);
    f8_pool_destroy(pool);
}
END_TEST

static void add_tasks(void *user, int thread, int64_t begin, int64_t end)
{
    _Atomic int64_t *sum = user;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(sum, i);
}

/* A child of fork has none of the threads: it computes with its own, and can end the pool. */
START_TEST(in_a_child)
{
    enum { POOLS = 8, THREADS = 8 };
    f8_pool *pool[POOLS];
    for (int i = 0; i < POOLS; i++)
        ck_assert_int_eq(f8_pool_create(&(f8_pool_options){.n_threads = THREADS}, &pool[i], NULL),
                         F8_OK);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        for (int i = 0; i < POOLS; i++) {
            _Atomic int64_t sum = 0;
            f8_pool_run(pool[i], add_tasks, &sum, 1000);
            if (atomic_load(&sum) != 1000 * 999 / 2)
                _exit(1);
            f8_pool_destroy(pool[i]);
        }
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(status == 0, "status %d", status);
    for (int i = 0; i < POOLS; i++)
        f8_pool_destroy(pool[i]);
}
END_TEST

static void *no_memory(void *user, size_t size, size_t align)
{
    (void)user, (void)size, (void)align;
    return NULL;
}

START_TEST(limits)
{
    f8_pool_options options = {.n_threads = 257};
    f8_pool *pool;
    f8_diag diag = {0};
    ck_assert_int_eq(f8_pool_create(&options, &pool, &diag), F8_ERR_INPUT);
    ck_assert_str_eq(diag.text, "257 threads: must be 1 to 256");
    ck_assert_ptr_null(pool);
    options.n_threads = -1;
    ck_assert_int_eq(f8_pool_create(&options, &pool, NULL), F8_ERR_INPUT);
    const f8_parallel none = {lend, NULL, 0};
    options = (f8_pool_options){.n_threads = 2, .parallel = &none};
    ck_assert_int_eq(f8_pool_create(&options, &pool, NULL), F8_ERR_INPUT);
    f8_allocator broken = {no_memory, NULL, NULL};
    options = (f8_pool_options){.n_threads = 2, .allocator = &broken};
    ck_assert_int_eq(f8_pool_create(&options, &pool, NULL), F8_ERR_MEMORY);
    options = (f8_pool_options){.n_threads = 256};
    ck_assert_int_eq(f8_pool_create(&options, &pool, NULL), F8_OK);
    ck_assert_int_eq(f8_pool_threads(pool), 256);
    f8_pool_destroy(pool);
    options = (f8_pool_options){.n_threads = 0}; /* what the process may use */
    ck_assert_int_eq(f8_pool_create(&options, &pool, NULL), F8_OK);
    ck_assert_int_ge(f8_pool_threads(pool), 1);
    f8_pool_destroy(pool);
    f8_pool_destroy(NULL);
    ck_assert_int_eq(f8_pool_threads(NULL), 1);
}
END_TEST

/* Sanitizers need address space of their own. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

START_TEST(system_refuses_threads)
{
#if !defined(SANITIZED)
    struct rlimit old, limit;
    getrlimit(RLIMIT_AS, &old);
    limit = old;
    limit.rlim_cur = 64 << 20; /* bytes: room for a few threads' stacks */
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
    f8_pool_options options = {.n_threads = 256};
    f8_pool *pool;
    f8_diag diag = {0};
    f8_status status = f8_pool_create(&options, &pool, &diag);
    setrlimit(RLIMIT_AS, &old);
    ck_assert_int_eq(status, F8_ERR_IO);
    ck_assert_ptr_null(pool);
    ck_assert_msg(strstr(diag.text, "can't start thread") != NULL, "%s", diag.text);
#endif
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("pool");
    TCase *tc = tcase_create("pool");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, every_task_once, 0, sizeof thread_counts / sizeof *thread_counts);
    tcase_add_test(tc, many_short_runs);
    tcase_add_test(tc, uneven_tasks_balance);
#if defined(__SSE__)
    tcase_add_test(tc, floating_point_mode);
#endif
    tcase_add_test(tc, lent_threads);
    tcase_add_loop_test(tc, lent_threads_gone_wrong, TWICE, WRONGS);
    tcase_add_test(tc, in_a_child);
    tcase_add_test(tc, limits);
    tcase_add_test(tc, system_refuses_threads);
    suite_add_tcase(suite, tc);
    return suite;
}
