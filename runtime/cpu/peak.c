/* Limits of this machine: see peak.h. */
#include "runtime/cpu/peak.h"

#include <string.h>

#include "ir/base/clock.h"
#include "runtime/base/pool.h"

enum { ROUNDS = 5, ADDS = 100000, CHAINS = 12, PARTS = 4 };
#define COPIED ((size_t)64 << 20)

/* ---- multiply-adds: chains that don't wait for each other, so the units are always busy ---- */

#if defined(__x86_64__)
#include <immintrin.h>

#define CHAINS_OF(name, target_, vector, set, fmadd, add, store, lanes)                            \
    __attribute__((target(target_))) static float name(void)                                       \
    {                                                                                              \
        vector x[CHAINS];                                                                          \
        const vector a = set(0.999999f), b = set(1e-6f);                                           \
        float out[lanes];                                                                          \
        _Pragma("GCC unroll 12") for (int k = 0; k < CHAINS; k++) x[k] = set((float)k);            \
        for (int i = 0; i < ADDS; i++)                                                             \
            _Pragma("GCC unroll 12") for (int k = 0; k < CHAINS; k++) x[k] = fmadd(x[k], a, b);    \
        _Pragma("GCC unroll 12") for (int k = 1; k < CHAINS; k++) x[0] = add(x[0], x[k]);          \
        store(out, x[0]);                                                                          \
        return out[0];                                                                             \
    }
CHAINS_OF(chains_avx512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_add_ps,
          _mm512_storeu_ps, 16)
CHAINS_OF(chains_avx2, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_add_ps,
          _mm256_storeu_ps, 8)

/* How many f32 a vector of this CPU has; 0: the loops above can't run. */
static int lanes_here(void)
{
    return __builtin_cpu_supports("avx512f")                                 ? 16
           : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 8
                                                                             : 0;
}

static float chains(int lanes)
{
    return lanes == 16 ? chains_avx512() : chains_avx2();
}
#else
static int lanes_here(void)
{
    return 0;
}

static float chains(int lanes)
{
    return (float)lanes;
}
#endif

/* ---- both, on all threads ---- */

typedef struct job {
    char *from, *to;
    size_t part; /* bytes of a task */
    int lanes;
    float sum[F8_POOL_MAX_THREADS]; /* keeps the compiler from leaving it out */
} job;

static void copy_part(void *user, int thread, int64_t begin, int64_t end)
{
    const job *j = user;
    (void)thread;
    memcpy(j->to + (size_t)begin * j->part, j->from + (size_t)begin * j->part,
           (size_t)(end - begin) * j->part);
}

static void add_part(void *user, int thread, int64_t begin, int64_t end)
{
    job *j = user;
    for (int64_t i = begin; i < end; i++)
        j->sum[thread] += chains(j->lanes);
}

static double least_seconds(f8_pool *pool, f8_pool_fn fn, job *j, int64_t tasks)
{
    double least = 1e30;
    for (int i = 0; i < ROUNDS; i++) {
        const double start = f8_seconds_now();
        f8_pool_run(pool, fn, j, tasks);
        const double seconds = f8_seconds_now() - start;
        least = seconds < least ? seconds : least;
    }
    return least;
}

f8_status f8_cpu_peak_measure(int threads, const f8_allocator *allocator, f8_cpu_peak *out,
                              f8_diag *diag)
{
    const f8_allocator a = allocator ? *allocator : f8_default_allocator();
    const f8_pool_options options = {.n_threads = threads, .allocator = &a};
    job j = {.lanes = lanes_here()};
    f8_pool *pool;
    *out = (f8_cpu_peak){0};
    F8_TRY(f8_pool_create(&options, &pool, diag));
    char *memory = a.alloc(a.user, 2 * COPIED, 64);
    if (memory) {
        const int64_t tasks = PARTS * f8_pool_threads(pool);
        memset(memory, 1, 2 * COPIED);
        j.from = memory;
        j.to = memory + COPIED;
        j.part = COPIED / (size_t)tasks;
        const double bytes = 2 * (double)j.part * (double)tasks;
        out->bytes = bytes / least_seconds(pool, copy_part, &j, tasks);
        const double ops = 2.0 * j.lanes * CHAINS * ADDS * (double)tasks;
        out->flops = j.lanes ? ops / least_seconds(pool, add_part, &j, tasks) : 0;
        a.free(a.user, memory, 2 * COPIED);
    }
    f8_pool_destroy(pool);
    return memory ? F8_OK
                  : f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                            "no memory to copy (%zu bytes), for the limits of this machine",
                            2 * COPIED);
}
