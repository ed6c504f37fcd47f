/* Measures the attention kernels of the CPU against the machine's peak of fused multiply-adds, in
 * turns in the same run: milliseconds a layer, GFLOP/s (twice the multiply-adds that a causal mask
 * leaves), share of the peak. Prints records on stdout and text for people on stderr.
 *
 *     bench_attention [-B n] [-T n] [-H n] [-K n] [-D n] [-t threads] [-f]
 *
 * -K key/value heads, -f f32 instead of bf16. The default is one layer of GPT-2 124M. */
#include "codegen/cpu/attention.h"
#include "codegen/cpu/link.h"
#include "ir/base/clock.h"
#include "runtime/base/blob.h"
#include "runtime/base/pool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the peak: chains of fused multiply-adds, compiled as the kernels are ---- */

enum { CHAINS = 20, ROUNDS = 1000000 };

static f8_phase_fn peak_kernel(f8_llvm *llvm, f8_arena *arena, f8_blob *blob, f8_diag *d)
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

enum { TENSORS = 9 }; /* q k v o lse do dq dk dv */

/* One direction's kernel, or the peak's. */
typedef struct job {
    f8_phase_fn fn[F8_ATTENTION_MAX_PHASES];
    f8_cpu_phase phase[F8_ATTENTION_MAX_PHASES];
    int n_phases, running;
    double flops, compile_seconds, best;
    size_t code_size, scratch_size; /* per thread */
    f8_blob blob;
    void *args[TENSORS];
    uint8_t *scratch;
} job;

static void run_peak(void *user, int thread, int64_t begin, int64_t end)
{
    job *j = user;
    float *x = (float *)(j->scratch + (size_t)thread * 64);
    (void)begin, (void)end;
    j->fn[0](NULL, NULL, 0, ROUNDS, x);
}

/* ---- attention ---- */

static bool make_attention(job *j, f8_llvm *llvm, const f8_attention_desc *x, bool backward,
                           f8_diag *d)
{
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    f8_llvm_module *m;
    f8_object o;
    f8_link_image image;
    double start = f8_seconds_now();
    if (f8_llvm_module_begin(&m, llvm, "attention", d) ||
        f8_cpu_attention_emit(m, x, backward, "attention", j->phase, &j->n_phases, d) ||
        f8_llvm_module_compile(m, &arena, &o, d) || f8_link(&o, 1, &arena, &image, d) ||
        f8_blob_map(&j->blob, image.bytes, image.size, image.code_size, d))
        return false;
    j->compile_seconds = f8_seconds_now() - start;
    j->code_size = image.code_size;
    j->flops = f8_attention_flops(x, backward);
    for (int p = 0; p < j->n_phases; p++) {
        j->fn[p] = f8_blob_phase(&j->blob, f8_link_find(&image, j->phase[p].symbol)->offset);
        if ((size_t)j->phase[p].scratch > j->scratch_size)
            j->scratch_size = (size_t)j->phase[p].scratch;
    }
    f8_llvm_module_end(m);
    f8_arena_end(&arena);
    return true;
}

static void run_tasks(void *user, int thread, int64_t begin, int64_t end)
{
    job *j = user;
    j->fn[j->running](j->args, NULL, begin, end, j->scratch + (size_t)thread * j->scratch_size);
}

static void time_once(job *j, f8_pool *pool)
{
    double start = f8_seconds_now();
    if (!j->n_phases)
        f8_pool_run(pool, run_peak, j, f8_pool_threads(pool));
    for (j->running = 0; j->running < j->n_phases; j->running++)
        f8_pool_run(pool, run_tasks, j, j->phase[j->running].n_tasks);
    j->best = fmin(j->best, f8_seconds_now() - start);
}

static void report(const char *name, const job *j, double peak)
{
    double rate = j->flops / j->best;
    printf("{\"event\": \"bench\", \"name\": \"attention_%s\", \"value\": %.4f, \"unit\": \"ms\", "
           "\"gflops\": %.1f, \"peak_share\": %.3f, \"compile_ms\": %.1f}\n",
           name, j->best * 1e3, rate * 1e-9, rate / peak, j->compile_seconds * 1e3);
    fprintf(stderr,
            "%-9s %8.2f ms  %6.1f GFLOP/s  %4.0f%% of peak   compiled in %.0f ms, %zu bytes of "
            "code, %d phase(s), %zu kB of scratch a thread\n",
            name, j->best * 1e3, rate * 1e-9, 100 * rate / peak, j->compile_seconds * 1e3,
            j->code_size, j->n_phases, j->scratch_size / 1024);
}

/* Small values of mixed sign, sensible as bf16 and as f32; lse far above any score's sum is
 * harmless. */
static void fill(void *memory, size_t bytes)
{
    uint32_t s = 1;
    for (size_t i = 0; i < bytes / 2; i++) {
        s = s * 1664525u + 1013904223u;
        uint16_t x = (uint16_t)(0x3e80u + (s >> 24) % 0x100u + ((s & 0x10000u) >> 1));
        memcpy((uint8_t *)memory + 2 * i, &x, 2);
    }
}

static bool bench(f8_llvm *llvm, f8_pool *pool, const f8_attention_desc *x, f8_diag *d)
{
    job jobs[3] = {{.best = INFINITY}, {.best = INFINITY}, {.best = INFINITY}}, *peak = &jobs[2];
    size_t bytes = (size_t)(x->B * x->T * x->H * (x->D > 1 ? x->D : 2)) * 4,
           threads = (size_t)f8_pool_threads(pool), scratch = 4096;
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    peak->fn[0] = peak_kernel(llvm, &arena, &peak->blob, d);
    peak->flops = 2.0 * (double)threads * ROUNDS * (llvm->avx512 ? CHAINS * 16 : 12 * 8);
    peak->scratch_size = 64;
    bool ok = peak->fn[0] && make_attention(&jobs[0], llvm, x, false, d) &&
              make_attention(&jobs[1], llvm, x, true, d);
    uint8_t *memory = malloc(bytes * TENSORS);
    for (int k = 0; k < 3; k++)
        scratch = jobs[k].scratch_size > scratch ? jobs[k].scratch_size : scratch;
    uint8_t *room = aligned_alloc(64, scratch * threads);
    ok = ok && memory && room;
    if (ok) {
        fill(memory, bytes * TENSORS);
        fill(room, scratch * threads);
        for (int k = 0; k < 3; k++)
            for (int i = 0; i < TENSORS; i++)
                jobs[k].args[i] = memory + bytes * (size_t)i, jobs[k].scratch = room;
        double start = f8_seconds_now();
        for (int i = 0; i < 10 || f8_seconds_now() - start < 3.0; i++)
            for (int k = 0; k < 3; k++)
                time_once(&jobs[k], pool);
        double rate = peak->flops / peak->best;
        fprintf(stderr, "%s B=%d T=%d H=%d Hkv=%d D=%d causal, %zu threads, peak %.1f GFLOP/s\n",
                f8_dtype_name(x->dtype), (int)x->B, (int)x->T, (int)x->H, (int)x->Hkv, (int)x->D,
                threads, rate * 1e-9);
        report("forward", &jobs[0], rate);
        report("backward", &jobs[1], rate);
        fprintf(stderr, "%-9s %8.2f ms\n", "layer", (jobs[0].best + jobs[1].best) * 1e3);
    }
    free(memory);
    free(room);
    for (int k = 0; k < 3; k++)
        f8_blob_unmap(&jobs[k].blob);
    f8_arena_end(&arena);
    return ok;
}

int main(int argc, char **argv)
{
    f8_attention_desc x = {
        .dtype = F8_BF16, .B = 1, .T = 1024, .Tk = 1024, .H = 12, .D = 64, .causal = true};
    int threads = 0, option;
    if (argc > 1 && !strcmp(argv[1], "--json")) { /* stdout has nothing but records anyway */
        argv[1] = argv[0];
        argc--;
        argv++;
    }
    while ((option = getopt(argc, argv, "B:T:H:K:D:t:f")) != -1)
        switch (option) {
        case 'B': x.B = atoll(optarg); break;
        case 'T': x.T = x.Tk = atoll(optarg); break;
        case 'H': x.H = atoll(optarg); break;
        case 'K': x.Hkv = atoll(optarg); break;
        case 'D': x.D = atoll(optarg); break;
        case 't': threads = atoi(optarg); break;
        case 'f': x.dtype = F8_F32; break;
        default: return 2;
        }
    if (!x.Hkv)
        x.Hkv = x.H;
    x.scale = 1.0f / sqrtf((float)x.D);
    x.stride.q = x.stride.o = x.stride.dout = x.stride.dq = x.H * x.D;
    x.stride.k = x.stride.v = x.stride.dk = x.stride.dv = x.Hkv * x.D;
    f8_diag d = {0};
    f8_llvm *llvm = NULL;
    f8_pool *pool = NULL;
    bool ok = !f8_llvm_load(&llvm, &(f8_llvm_options){0}, &d) &&
              !f8_pool_create(&(f8_pool_options){.n_threads = threads}, &pool, &d) &&
              bench(llvm, pool, &x, &d);
    if (!ok)
        fprintf(stderr, "bench_attention: %s\n", d.text);
    f8_pool_destroy(pool);
    f8_llvm_free(llvm);
    return !ok;
}
