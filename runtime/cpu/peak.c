/* Limits of this machine: see peak.h. */
#include "runtime/cpu/peak.h"

#include <string.h>

#include "ir/base/clock.h"
#include "runtime/base/cpu.h"
#include "runtime/base/pool.h"

/* A round of a unit is short, 2 ms, so that another process disturbs few of them. */
enum { COPY_ROUNDS = 7, ROUNDS = 24, ADDS = 100000, CHAINS = 12, PARTS = 4 };
/* Of AMX: four tiles of sums, since each product waits for the one before it on its tile, and four
 * hide that. A product takes 16 cycles where a vector's takes one. */
enum { TILES = 4, PRODUCTS = 25000, TILE_OPERATIONS = 2 * 16 * 16 * 32 };
#define COPIED ((size_t)64 << 20)

/* A unit's loop: what it computes is of no interest but to the compiler, which can't leave it out.
 * `operations`: of one call. */
typedef struct unit {
    const char *name; /* NULL: there is none */
    float (*chains)(void);
    double operations;
} unit;

/* ---- multiply-adds: chains that don't wait for each other, so the units are always busy ---- */

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

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

/* An instruction takes pairs: 32 products of bf16, added in 16 sums. */
__attribute__((target("avx512f,avx512bf16"))) static float chains_avx512_bf16(void)
{
    __m512 x[CHAINS];
    const __m512bh a = (__m512bh)_mm512_set1_epi32(0x3f803f80), /* 1 */
        b = (__m512bh)_mm512_set1_epi32(0x35863586);            /* about 1e-6 */
    float out[16];
    _Pragma("GCC unroll 12") for (int k = 0; k < CHAINS; k++) x[k] = _mm512_set1_ps((float)k);
    for (int i = 0; i < ADDS; i++)
        _Pragma("GCC unroll 12") for (int k = 0; k < CHAINS; k++) x[k] =
            _mm512_dpbf16_ps(x[k], a, b);
    _Pragma("GCC unroll 12") for (int k = 1; k < CHAINS; k++) x[0] = _mm512_add_ps(x[0], x[k]);
    _mm512_storeu_ps(out, x[0]);
    return out[0];
}

/* ---- AMX: tiles of 16 rows of 64 bytes. Sums in tiles 0 to 3, operands in 4 to 7. ---- */

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64, "as LDTILECFG reads it");

__attribute__((target("amx-tile,amx-bf16"))) static float chains_amx_bf16(void)
{
    tile_config config = {.palette = 1};
    uint16_t ones[16 * 32];
    float out[16 * 16];
    for (int i = 0; i < 8; i++) {
        config.rows[i] = 16;
        config.row_bytes[i] = 64;
    }
    for (int i = 0; i < 16 * 32; i++)
        ones[i] = 0x3f80; /* 1: sums stay below 2^24 */
    /* gcc does not know that the next instructions read all of both */
    __asm__ volatile("" : : "r"(&config), "r"(ones) : "memory");
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, ones, 64);
    _tile_loadd(5, ones, 64);
    _tile_loadd(6, ones, 64);
    _tile_loadd(7, ones, 64);
    for (int i = 0; i < PRODUCTS; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, out, 64);
    _tile_release();
    return out[0];
}

/* Linux lets a process use tiles once it has asked, all its threads at once. Asking again does
 * nothing. oneDNN asks as well. */
static bool may_use_tiles(void)
{
    enum { REQUEST = 0x1023 /* ARCH_REQ_XCOMP_PERM */, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

/* ---- what this CPU has ---- */

static bool has(const char *const *features)
{
    const f8_cpu_features here = f8_cpu_detect();
    f8_cpu_features needs = {0};
    bool known = true;
    char lacks[8];
    for (; *features; features++)
        known &= f8_cpu_add(&needs, *features);
    return known && f8_cpu_suffices(&here, &needs, lacks, sizeof lacks);
}

static unit f32_unit(void)
{
    static const char *const avx512[] = {"avx512f", NULL}, *const avx2[] = {"avx2", "fma", NULL};
    const double vectors = 2.0 * CHAINS * ADDS;
    return has(avx512) ? (unit){"AVX-512", chains_avx512, 16 * vectors}
           : has(avx2) ? (unit){"AVX2", chains_avx2, 8 * vectors}
                       : (unit){0};
}

static unit bf16_unit(void)
{
    static const char *const amx[] = {"amx-tile", "amx-bf16", NULL};
    static const char *const avx512[] = {"avx512f", "avx512bf16", NULL};
    if (has(amx) && may_use_tiles())
        return (unit){"AMX", chains_amx_bf16, (double)TILES * PRODUCTS * TILE_OPERATIONS};
    return has(avx512) ? (unit){"AVX512_BF16", chains_avx512_bf16, 2.0 * 32 * CHAINS * ADDS}
                       : (unit){0};
}
#else
static unit f32_unit(void)
{
    return (unit){0};
}

static unit bf16_unit(void)
{
    return (unit){0};
}
#endif

/* ---- all, on all threads ---- */

typedef struct job {
    char *from, *to;
    size_t part; /* bytes of a task */
    float (*chains)(void);
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
        j->sum[thread] += j->chains();
}

static double least_seconds(f8_pool *pool, f8_pool_fn fn, job *j, int64_t tasks, int rounds)
{
    double least = 1e30;
    for (int i = 0; i < rounds; i++) {
        const double start = f8_seconds_now();
        f8_pool_run(pool, fn, j, tasks);
        const double seconds = f8_seconds_now() - start;
        least = seconds < least ? seconds : least;
    }
    return least;
}

/* Operations a second; 0: there is no such unit. */
static double rate_of(f8_pool *pool, const unit *u, job *j)
{
    const int64_t tasks = (int64_t)PARTS * f8_pool_threads(pool);
    j->chains = u->chains;
    return u->chains
               ? u->operations * (double)tasks / least_seconds(pool, add_part, j, tasks, ROUNDS)
               : 0;
}

static f8_status copy_rate(f8_pool *pool, const f8_allocator *a, job *j, double *out, f8_diag *diag)
{
    const int64_t tasks = (int64_t)PARTS * f8_pool_threads(pool);
    char *memory = a->alloc(a->user, 2 * COPIED, 64);
    if (!memory)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                       "no memory to copy (%zu bytes), for the limits of this machine", 2 * COPIED);
    memset(memory, 1, 2 * COPIED);
    j->from = memory;
    j->to = memory + COPIED;
    j->part = COPIED / (size_t)tasks;
    *out =
        2 * (double)j->part * (double)tasks / least_seconds(pool, copy_part, j, tasks, COPY_ROUNDS);
    a->free(a->user, memory, 2 * COPIED);
    return F8_OK;
}

f8_status f8_cpu_peak_measure(int threads, const f8_allocator *allocator, f8_cpu_peak *out,
                              f8_diag *diag)
{
    const f8_allocator a = allocator ? *allocator : f8_default_allocator();
    const f8_pool_options options = {.n_threads = threads, .allocator = &a};
    const unit f32 = f32_unit(), bf16 = bf16_unit();
    job j = {0};
    f8_pool *pool;
    *out = (f8_cpu_peak){.bf16_unit = bf16.name ? bf16.name : ""};
    F8_TRY(f8_pool_create(&options, &pool, diag));
    const f8_status status = copy_rate(pool, &a, &j, &out->bytes, diag);
    if (status == F8_OK) {
        out->flops = rate_of(pool, &f32, &j);
        out->flops_bf16 = rate_of(pool, &bf16, &j);
    }
    f8_pool_destroy(pool);
    return status;
}
