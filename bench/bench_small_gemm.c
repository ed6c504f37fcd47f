/* Small products of f32 on the CPU: algorithm f64 against onednn-f32. Both take turns in one
 * thread. The bar: in the geometric mean f64 takes at most the time of onednn-f32.
 *
 *     bench_small_gemm [--json] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/figures.h"
#include "runtime/cpu/gemm.h"

enum { ROUNDS = 101, RUNS = 40, ROOM = 1 << 20 };

/* m, n, k. The last two are among the worst for f64: long sums, and a single column. */
static const int64_t shapes[][3] = {
    {3, 3, 32},   {3, 32, 3},   {8, 8, 32},   {16, 16, 16}, {11, 11, 32}, {8, 8, 128},
    {16, 16, 32}, {12, 32, 32}, {16, 31, 32}, {8, 8, 255},  {3, 3, 384},  {128, 1, 32},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

typedef struct data {
    float a[ROOM / 4], b[ROOM / 4], c[ROOM / 4];
    _Alignas(64) char workspace[4 * ROOM];
} data;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static f8_gemm *prepare(f8_gemm_lib *lib, f8_gemm_desc d, uint32_t algorithm)
{
    f8_gemm *gemm;
    f8_diag diag = {0};
    d.algorithm = algorithm;
    must(f8_gemm_prepare(lib, &d, 1, &gemm, &diag) == F8_OK, diag.text);
    must(f8_gemm_workspace(gemm) <= sizeof((data *)0)->workspace, "the workspace");
    return gemm;
}

static double time_of(f8_gemm *gemm, data *x)
{
    const double start = now();
    for (int i = 0; i < RUNS; i++)
        f8_gemm_run(gemm, NULL, x->a, x->b, x->c, NULL, NULL, x->workspace);
    return (now() - start) / RUNS * 1e6;
}

/* The median of f64's time over that of onednn-f32, for one shape. */
static double compare(f8_gemm_lib *lib, const int64_t s[3], data *x, bool json)
{
    const f8_gemm_desc d = {
        .m = s[0], .n = s[1], .k = s[2], .lda = s[2], .ldb = s[1], .ldc = s[1]};
    f8_gemm *f32 = prepare(lib, d, F8_GEMM_ONEDNN_F32), *f64 = prepare(lib, d, F8_GEMM_F64);
    double us[2][ROUNDS], ratio[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        us[0][i] = time_of(f32, x);
        us[1][i] = time_of(f64, x);
        ratio[i] = us[1][i] / us[0][i];
    }
    const double middle = median(ratio, ROUNDS);
    fprintf(json ? stderr : stdout, "%4d x %3d x %3d   %6.2f us  %6.2f us  %.2f\n", (int)s[0],
            (int)s[1], (int)s[2], median(us[0], ROUNDS), median(us[1], ROUNDS), middle);
    f8_gemm_release(f32);
    f8_gemm_release(f64);
    return middle;
}

int main(int argc, char **argv)
{
    const bool json = argc > 1 && !strcmp(argv[1], "--json");
    f8_gemm_lib *lib;
    f8_diag diag = {0};
    data *x = aligned_alloc(64, sizeof *x);
    double log_ratio = 0;
    must(x && f8_gemm_lib_create(NULL, &lib, &diag) == F8_OK, diag.text);
    for (int i = 0; i < ROOM / 4; i++)
        x->a[i] = x->b[i] = (float)(i % 255 + 1) / 256;
    fprintf(json ? stderr : stdout,
            "%s\n      m, n, k    onednn-f32        f64  f64 / onednn-f32\n",
            f8_gemm_lib_describe(lib));
    for (int i = 0; i < N_SHAPES; i++)
        log_ratio += log(compare(lib, shapes[i], x, json));
    const double mean = exp(log_ratio / N_SHAPES);
    report(json, mean, "ratio", "gemm_f64_over_onednn_f32");
    if (mean > 1)
        fprintf(stderr, "the bar, 1, does not hold\n");
    f8_gemm_lib_destroy(lib);
    free(x);
    return 0;
}
