/* Signals that come while oneDNN multiplies. Its code for AVX2 points the stack pointer into the
 * heap, where a signal handler would write. The test makes oneDNN run that code on every CPU. */
#include "runtime/cpu/gemm_internal.h"

#include "tests/shared/kernel/gemm_problem.h"
#include "tests/shared/suite.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUNS = 20 };

static atomic_int heard;
static atomic_bool ends;

/* It needs some stack, as the handlers of interpreters do. */
static void hear(int number)
{
    volatile char room[2048];
    memset((char *)(uintptr_t)room, number, sizeof room);
    heard++;
}

static void *call(void *thread)
{
    const struct timespec a_moment = {.tv_nsec = 20000};
    while (!ends) {
        pthread_kill(*(pthread_t *)thread, SIGUSR1);
        nanosleep(&a_moment, NULL);
    }
    return NULL;
}

/* Multiplies again and again, and compares bits. */
static void multiply(const gemm_setup *g, int64_t m, int64_t n, int64_t k)
{
    uint32_t seed = 9;
    f8_gemm_desc d = {.m = m, .n = n, .k = k, .a = F8_F32, .b = F8_F32};
    d.algorithm = F8_GEMM_ONEDNN_F32;
    gemm_set_strides(&d, 0);
    gemm_problem p = gemm_problem_make(d, &seed);
    float *want = gemm_problem_run(g, &p, 1, 0);
    for (int i = 0; i < RUNS; i++) {
        float *c = gemm_problem_run(g, &p, 1, 0);
        require(!memcmp(c, want, p.c_count * sizeof *c), "run %d has other bits", i);
        free(c);
    }
    free(want);
    gemm_problem_end(&p);
}

START_TEST(while_it_multiplies)
{
    static const int64_t sizes[] = {16, 48, 128, 300, 512};
    enum { N = sizeof sizes / sizeof *sizes };
    gemm_setup g;
    pthread_t self = pthread_self(), other;
    sigset_t before, after;
    ck_assert_int_eq(setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1), 0);
    gemm_setup_make(&g);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    signal(SIGUSR1, hear);
    ck_assert_int_eq(pthread_create(&other, NULL, call, &self), 0);
    for (int i = 0; i < N * N * N; i++)
        multiply(&g, sizes[i % N], sizes[i / N % N], sizes[i / N / N]);
    ends = true;
    pthread_join(other, NULL);
    ck_assert_int_gt(heard, 10); /* they come, in between */
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number < NSIG; number++)
        ck_assert_int_eq(sigismember(&after, number), sigismember(&before, number));
    gemm_setup_end(&g);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("gemm_signals");
    TCase *t = tcase_create("signals");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, while_it_multiplies);
    suite_add_tcase(s, t);
    return s;
}
