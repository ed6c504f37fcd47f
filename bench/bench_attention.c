/* Time of the attention kernels: milliseconds a layer, GFLOP/s and their share of the FMA peak measured
 * here, as text and as JSON Lines.
 *
 *     bench_attention [-B n] [-T n] [-H n] [-K n] [-D n] [-t threads] [-f] [-j]
 *
 * -K key/value heads, -f f32 instead of bf16, -j JSON. The default is one layer of GPT-2 124M. */
#include "tests/attention_case.h"

#include "runtime/pool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the peak: chains of fused multiply-adds, compiled as the kernels are ---- */

enum { CHAINS = 20, ROUNDS = 4000000 };

static f8_phase_fn peak_kernel(const f8_llvm *llvm, f8_arena *arena, f8_blob *blob, f8_diag *d)
{
    f8_llvm_module *m;
    f8_object o;
    f8_link_image image;
    if (f8_llvm_module_begin(&m, llvm, "peak", d))
        return NULL;
    f8_ll_phase p;
    f8_ll_phase_begin(m, &p, "peak");
    LLVMValueRef acc[CHAINS], x = f8_ll_vload(m, m->f32, p.scratch, NULL, NULL);
    int chains = llvm->avx512 ? CHAINS : 12;
    for (int i = 0; i < chains; i++)
        acc[i] = f8_ll_vf32(m, (float)i);
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, p.begin, p.end, f8_ll_i64(m, 1), acc, chains);
    for (int i = 0; i < chains; i++)
        acc[i] = f8_ll_fma(m, l.value[i], x, x);
    f8_ll_loop_end(m, &l, acc);
    LLVMValueRef sum = l.value[0];
    for (int i = 1; i < chains; i++)
        sum = m->ll->BuildFAdd(m->b, sum, l.value[i], "");
    f8_ll_vstore(m, sum, p.scratch, NULL);
    f8_ll_phase_end(m);
    f8_status s = f8_llvm_module_compile(m, arena, &o, d);
    f8_llvm_module_end(m);
    if (s || f8_link(&o, 1, arena, &image, d) ||
        f8_blob_map(blob, image.bytes, image.size, image.code_size, d))
        return NULL;
    return f8_blob_phase(blob, image.symbols[0].offset);
}

typedef struct job {
    f8_phase_fn peak;
    const att_case *c;
    bool backward;
    int phase;
    uint8_t *scratch; /* per thread */
    size_t scratch_size;
} job;

static void run_peak(void *user, int thread, int64_t begin, int64_t end)
{
    job *j = user;
    float *x = (float *)(j->scratch + (size_t)thread * 64);
    (void)begin, (void)end;
    j->peak(NULL, NULL, 0, ROUNDS, x);
}

static double measure_peak(const f8_llvm *llvm, f8_pool *pool, f8_diag *d)
{
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    f8_blob blob = {0};
    static _Alignas(64) float x[16 * F8_POOL_MAX_THREADS];
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = 0.5f;
    job j = {.peak = peak_kernel(llvm, &arena, &blob, d), .scratch = (uint8_t *)x};
    int threads = f8_pool_threads(pool);
    double best = 0;
    for (int i = 0; i < 5 && j.peak; i++) {
        double t = seconds();
        f8_pool_run(pool, run_peak, &j, threads);
        double rate = 2.0 * threads * ROUNDS * (llvm->avx512 ? CHAINS * 16 : 12 * 8) / (seconds() - t);
        best = fmax(best, rate);
    }
    f8_blob_unmap(&blob);
    f8_arena_end(&arena);
    return best;
}

/* ---- attention ---- */

static void run_tasks(void *user, int thread, int64_t begin, int64_t end)
{
    job *j = user;
    att_tasks(j->c, j->backward, j->phase, begin, end, j->scratch + (size_t)thread * j->scratch_size);
}

static double time_direction(att_case *c, bool backward, f8_pool *pool)
{
    size_t size = 0;
    for (int p = 0; p < c->n_phases[backward]; p++)
        if ((size_t)c->phase[backward][p].scratch > size)
            size = (size_t)c->phase[backward][p].scratch;
    job j = {.c = c, .backward = backward, .scratch_size = size};
    j.scratch = aligned_alloc(64, size * (size_t)f8_pool_threads(pool));
    double best = INFINITY, start = seconds();
    for (int i = 0; i < 5 || seconds() - start < 1.0; i++) {
        double t = seconds();
        for (j.phase = 0; j.phase < c->n_phases[backward]; j.phase++)
            f8_pool_run(pool, run_tasks, &j, c->phase[backward][j.phase].n_tasks);
        best = fmin(best, seconds() - t);
    }
    free(j.scratch);
    return best;
}

static void report(const att_case *c, bool backward, double t, double peak, bool json)
{
    double rate = f8_attention_flops(&c->desc, backward) / t;
    const char *name = backward ? "backward" : "forward";
    if (json) {
        printf("{\"event\": \"bench\", \"name\": \"attention_%s\", \"value\": %.4f, \"unit\": \"ms\", "
               "\"gflops\": %.1f, \"peak_share\": %.3f, \"compile_ms\": %.1f}\n", name, t * 1e3,
               rate * 1e-9, rate / peak, c->compile_seconds[backward] * 1e3);
        return;
    }
    printf("%-9s %8.2f ms  %6.1f GFLOP/s  %4.0f%% of peak   compiled in %.0f ms, %zu bytes of code, "
           "%d phase(s), %.0f kB of scratch a thread\n", name, t * 1e3, rate * 1e-9, 100 * rate / peak,
           c->compile_seconds[backward] * 1e3, c->image[backward].code_size, c->n_phases[backward],
           (double)c->phase[backward][0].scratch / 1024);
}

int main(int argc, char **argv)
{
    f8_attention_desc x = {.dtype = F8_BF16, .B = 1, .T = 1024, .H = 12, .D = 64, .causal = true};
    int threads = 0, option;
    bool json = false;
    while ((option = getopt(argc, argv, "B:T:H:K:D:t:fj")) != -1)
        switch (option) {
        case 'B': x.B = atoll(optarg); break;
        case 'T': x.T = atoll(optarg); break;
        case 'H': x.H = atoll(optarg); break;
        case 'K': x.Hkv = atoll(optarg); break;
        case 'D': x.D = atoll(optarg); break;
        case 't': threads = atoi(optarg); break;
        case 'f': x.dtype = F8_F32; break;
        case 'j': json = true; break;
        default: return 2;
        }
    if (!x.Hkv)
        x.Hkv = x.H;
    x.scale = 1.0f / sqrtf((float)x.D);
    f8_diag d = {0};
    f8_llvm *llvm = NULL;
    f8_pool *pool = NULL;
    if (f8_llvm_load(&llvm, &(f8_llvm_options){0}, &d) ||
        f8_pool_create(&(f8_pool_options){.n_threads = threads}, &pool, &d)) {
        fprintf(stderr, "%s\n", d.text);
        return 1;
    }
    att_case c;
    att_make(&c, llvm, &x, 0, 1);
    double peak = measure_peak(llvm, pool, &d);
    double forward = time_direction(&c, false, pool), backward = time_direction(&c, true, pool);
    if (!json)
        printf("%s B=%d T=%d H=%d Hkv=%d D=%d causal, %d threads, peak %.1f GFLOP/s\n",
               f8_dtype_name(x.dtype), (int)x.B, (int)x.T, (int)x.H, (int)x.Hkv, (int)x.D,
               f8_pool_threads(pool), peak * 1e-9);
    report(&c, false, forward, peak, json);
    report(&c, true, backward, peak, json);
    if (!json)
        printf("%-9s %8.2f ms\n", "layer", (forward + backward) * 1e3);
    att_free(&c);
    f8_pool_destroy(pool);
    f8_llvm_free(llvm);
    return 0;
}
