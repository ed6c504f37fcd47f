/* GEMM throughput on the shapes of GPT-2 124M and of gpt.f8: oneDNN's own threading on f32 operands
 * that were decoded beforehand (timed as its matmul primitive and as its sgemm), against our tiles
 * on f32, bf16 and FP8 operands, decoding and scales of every kind included. The contestants of a
 * shape take turns, so that a busy machine disturbs all of them alike; the best time of each
 * counts.
 *
 *     bench_gemm [threads [repetitions [part of a shape's name]]]
 */
#include "bench/peer_onednn.h"
#include "runtime/cpu/gemm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* C[m, n] = op(A) x op(B), with k terms each. */
typedef struct shape {
    const char *name;
    int64_t m, n, k;
    bool trans_a, trans_b, accumulate;
} shape;

static const shape shapes[] = {
    {"fprop qkv", 1024, 2304, 768, false, false, false},
    {"fprop proj", 1024, 768, 768, false, false, false},
    {"fprop fc", 1024, 3072, 768, false, false, false},
    {"fprop fc2", 1024, 768, 3072, false, false, false},
    {"dgrad qkv", 1024, 768, 2304, false, true, false},
    {"dgrad proj", 1024, 768, 768, false, true, false},
    {"dgrad fc", 1024, 768, 3072, false, true, false},
    {"dgrad fc2", 1024, 3072, 768, false, true, false},
    {"wgrad qkv", 768, 2304, 1024, true, false, true},
    {"wgrad proj", 768, 768, 1024, true, false, true},
    {"wgrad fc", 768, 3072, 1024, true, false, true},
    {"wgrad fc2", 3072, 768, 1024, true, false, true},
    {"gpt qkv", 2048, 384, 128, false, false, false},
    {"gpt fc", 2048, 512, 128, false, false, false},
    {"gpt fc2", 2048, 128, 512, false, false, false},
    {"gpt dgrad", 2048, 128, 384, false, true, false},
    {"gpt wgrad", 128, 384, 2048, true, false, true},
    {"head fprop", 256, 50257, 768, false, true, false},
    {"head dgrad", 256, 768, 50257, false, false, false},
    {"head wgrad", 50257, 768, 256, true, false, true},
};

enum { N_SHAPES = sizeof shapes / sizeof *shapes, MAX_ROWS = 8 };

typedef struct bench {
    peer_onednn *onednn;
    f8_gemm_lib *lib;
    f8_pool *pool;
    int threads;
    const shape *s;
    int64_t lda, ldb;
    void *a, *b; /* large enough for f32 */
    void *a_scale, *b_scale;
    float *c;
    peer_gemm *peer;
    f8_gemm *gemm;
    void *workspace;
} bench;

/* Seconds; with one thread those it ran, which other programs disturb less. */
static double now(const bench *x)
{
    struct timespec t;
    clock_gettime(x->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench_gemm: %s failed\n", what);
    exit(1);
}

/* On large pages where the system gives them, as an arena should be. */
static void *buffer(size_t bytes)
{
    const size_t page = (size_t)2 << 20;
    bytes = (bytes + page - 1) / page * page;
    void *p = aligned_alloc(page, bytes);
    must(p != NULL, "memory");
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

/* ---- contestants ---- */

static void make_peer(bench *x)
{
    const shape *s = x->s;
    const peer_problem p = {s->m,          s->n, s->k, s->trans_a, s->trans_b,
                            s->accumulate, x->a, x->b, x->c};
    f8_diag diag = {0};
    must(peer_gemm_create(x->onednn, &p, &x->peer, &diag) == F8_OK, diag.text);
}

static void run_matmul(bench *x)
{
    peer_gemm_matmul(x->peer);
}

static void run_sgemm(bench *x)
{
    peer_gemm_sgemm(x->peer);
}

/* The cases that our own GEMM runs: the operands' formats, and how many of the result's rows (for
 * b: columns) and how much of k one scale covers (0: all), if there are scales. */
static const struct contestant {
    const char *name;
    f8_dtype a, b;
    bool alpha;
    f8_dtype scale;
    int64_t outer_a, k_a, outer_b, k_b;
} ours[] = {
    {"f32", F8_F32, F8_F32, false, F8_F32, 0, 0, 0, 0},
    {"bf16", F8_BF16, F8_BF16, false, F8_F32, 0, 0, 0, 0},
    {"e4m3", F8_E4M3, F8_E4M3, true, F8_F32, 0, 0, 0, 0},
    {"e5m2", F8_E5M2, F8_E4M3, true, F8_F32, 0, 0, 0, 0},
    {"row", F8_E4M3, F8_E4M3, true, F8_F32, 1, 0, 1, 0},
    {"block", F8_E4M3, F8_E4M3, true, F8_F32, 1, 128, 128, 128},
    {"mxfp8", F8_E4M3, F8_E4M3, true, F8_E8M0, 1, 32, 1, 32},
};

enum { N_OURS = sizeof ours / sizeof *ours, N_ALL = N_OURS + 2 };

static f8_granularity granularity(int64_t outer, int64_t k, bool k_is_rows)
{
    return k_is_rows ? (f8_granularity){k, outer} : (f8_granularity){outer, k};
}

static void make_ours(bench *x, const struct contestant *o)
{
    const shape *s = x->s;
    f8_gemm_desc d = {.m = s->m,
                      .n = s->n,
                      .k = s->k,
                      .lda = x->lda,
                      .ldb = x->ldb,
                      .ldc = s->n,
                      .a = o->a,
                      .b = o->b,
                      .trans_a = s->trans_a,
                      .trans_b = s->trans_b,
                      .accumulate = s->accumulate,
                      .has_alpha = o->alpha,
                      .scale_a = granularity(o->outer_a, o->k_a, s->trans_a),
                      .scale_b = granularity(o->outer_b, o->k_b, !s->trans_b),
                      .scale = o->scale};
    f8_diag diag = {0};
    must(f8_gemm_prepare(x->lib, &d, x->threads, &x->gemm, &diag) == F8_OK, diag.text);
    x->workspace = buffer(f8_gemm_workspace(x->gemm) + 64);
}

static void run_ours(bench *x)
{
    must(f8_gemm_run(x->gemm, x->pool, x->a, x->b, x->c, x->a_scale, x->b_scale, x->workspace) ==
             F8_OK,
         "run");
}

/* ---- one shape ---- */

/* Small normal values in every dtype: a product's speed must not depend on them. */
static void fill(void *data, size_t n, f8_dtype dtype)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t r = (uint32_t)i * 2654435761u >> 8;
        float x = (float)(r % 255 + 1) / 256.0f;
        if (dtype == F8_F32)
            ((float *)data)[i] = x;
        else if (dtype == F8_E8M0)
            ((uint8_t *)data)[i] = (uint8_t)(126u + r % 4);
        else if (dtype == F8_BF16)
            ((uint16_t *)data)[i] = (uint16_t)(0x3f00u + r % 128);
        else
            ((uint8_t *)data)[i] = (uint8_t)(0x30u + r % 8);
    }
}

/* n / 16 scales: at least as many as there are runs of 32, the short ones at the ends included. */
static void *make_scales(const struct contestant *o, size_t n)
{
    if (!o->alpha)
        return NULL;
    void *scales = buffer(n / 16 * sizeof(float));
    fill(scales, n / 16, o->scale);
    return scales;
}

static void time_shape(bench *x, int repetitions, double best[N_ALL])
{
    const shape *s = x->s;
    x->lda = s->trans_a ? s->m : s->k;
    x->ldb = s->trans_b ? s->k : s->n;
    size_t na = (size_t)(s->m * s->k), nb = (size_t)(s->n * s->k), nc = (size_t)(s->m * s->n);
    x->a = buffer(na * 4);
    x->b = buffer(nb * 4);
    x->c = buffer(nc * 4);
    make_peer(x);
    for (int i = 0; i < N_ALL; i++)
        best[i] = INFINITY;
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < N_ALL; i++) {
            f8_dtype a = i < 2 ? F8_F32 : ours[i - 2].a, b = i < 2 ? F8_F32 : ours[i - 2].b;
            fill(x->a, na, a);
            fill(x->b, nb, b);
            fill(x->c, nc, F8_F32);
            if (i >= 2) {
                x->a_scale = make_scales(&ours[i - 2], na);
                x->b_scale = make_scales(&ours[i - 2], nb);
                make_ours(x, &ours[i - 2]);
            }
            void (*run)(bench *) = i == 0 ? run_matmul : i == 1 ? run_sgemm : run_ours;
            for (int r = 0; r <= repetitions; r++) {
                double t = now(x);
                run(x);
                t = now(x) - t;
                if (r > 0 && t < best[i])
                    best[i] = t;
            }
            if (i >= 2) {
                free(x->workspace);
                free(x->a_scale);
                free(x->b_scale);
                f8_gemm_release(x->gemm);
            }
        }
    peer_gemm_destroy(x->peer);
    free(x->a);
    free(x->b);
    free(x->c);
}

static void print_shape(const shape *s, const double best[N_ALL], double log_ratio[N_OURS])
{
    double flop = 2e-9 * (double)s->m * (double)s->n * (double)s->k;
    double base = best[0] < best[1] ? best[0] : best[1];
    printf("%-10s %5d x %5d x %5d  %6.1f %6.1f |", s->name, (int)s->m, (int)s->n, (int)s->k,
           flop / best[0], flop / best[1]);
    for (int i = 0; i < N_OURS; i++) {
        printf(" %6.1f (%.2f)", flop / best[2 + i], base / best[2 + i]);
        log_ratio[i] += log(base / best[2 + i]);
    }
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const bool json = argc > 1 && !strcmp(argv[1], "--json");
    argc -= json;
    argv += json;
    bench x = {.threads = argc > 1 ? atoi(argv[1]) : 2};
    int repetitions = argc > 2 ? atoi(argv[2]) : 5, n = 0;
    f8_diag diag = {0};
    f8_pool_options options = {.n_threads = x.threads};
    must(f8_pool_create(&options, &x.pool, &diag) == F8_OK, diag.text);
    must(f8_gemm_lib_create(NULL, &x.lib, &diag) == F8_OK, diag.text);
    must(peer_onednn_open(&x.onednn, x.threads, &diag) == F8_OK, diag.text);

    double best[N_ALL], log_ratio[N_OURS] = {0};
    printf("%s, %d threads; GFLOP/s (ratio to the better of oneDNN's matmul and sgemm on f32)\n",
           f8_gemm_lib_describe(x.lib), x.threads);
    printf("%-33s  %6s %6s |", "       m, n, k", "matmul", "sgemm");
    for (int i = 0; i < N_OURS; i++)
        printf(" %6s       ", ours[i].name);
    printf("\n");
    for (int i = 0; i < N_SHAPES; i++) {
        if (argc > 3 && !strstr(shapes[i].name, argv[3]))
            continue;
        x.s = &shapes[i];
        time_shape(&x, repetitions, best);
        print_shape(x.s, best, log_ratio);
        n++;
    }
    printf("geometric mean of the ratios:");
    for (int i = 0; i < N_OURS && n; i++)
        printf(" %s %.3f", ours[i].name, exp(log_ratio[i] / n));
    printf("\n");
    for (int i = 0; json && i < N_OURS && n; i++)
        printf("{\"event\":\"bench\",\"name\":\"gemm_over_onednn_%s\",\"value\":%.4g,\"unit\":"
               "\"ratio\"}\n",
               ours[i].name, exp(log_ratio[i] / n));
    peer_onednn_close(x.onednn);
    f8_gemm_lib_destroy(x.lib);
    f8_pool_destroy(x.pool);
    return 0;
}
