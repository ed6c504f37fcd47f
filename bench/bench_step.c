/* A training step of GPT-2 124M (B=1, T=1024; micro_step and update) against its linears' GEMMs
 * alone.
 *
 * The GEMMs alone: every fprop, dgrad and wgrad of the step on f32 operands of its shape, each by
 * the best of oneDNN's matmul and sgemm with its own threading and oneDNN on our static tiles. In a
 * round the GEMMs and one step of each recipe take turns, so that a busy machine disturbs all
 * alike; the figure is the median of the rounds' ratios.
 *
 *     bench_step [--json] [ROUNDS [THREADS]] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/figures.h"
#include "bench/peer_onednn.h"
#include "frontend/fp8c.h"
#include "frontend/fp8c_diagnose.h"
#include "ir/base/clock.h"
#include "runtime/cpu/gemm.h"

enum { MAX_SHAPES = 64, MAX_ROUNDS = 32, N_RECIPES = 3 };

static const char *const recipes[N_RECIPES] = {"bf16", "delayed", "current"};
static const char *const ratio_name[N_RECIPES] = {"step_over_gemms_bf16", "step_over_gemms_fp8",
                                                  "step_over_gemms_fp8_current"};

typedef struct shape {
    int64_t m, n, k, count;
    bool trans_a, trans_b;
    peer_gemm *peer;
    f8_gemm *tiles;
    void *workspace;
} shape;

typedef struct bench {
    bool json;
    int rounds, threads;
    shape shape[MAX_SHAPES];
    int n_shapes;
    double flop;
    float *a, *b, *c;
    peer_onednn *onednn;
    f8_gemm_lib *lib;
    f8_pool *pool;
    fp8c_context *ctx;
    fp8c_program *program[N_RECIPES];
} bench;

/* ---- the programs ---- */

static void make_programs(bench *x)
{
    size_t size;
    const char *file = "frontend/models/gpt2_124m.f8";
    char *text = read_file(file, &size);
    fp8c_module *module;
    must(fp8c_context_create(NULL, &x->ctx) == FP8C_OK, "context");
    must(fp8c_module_parse(x->ctx, text, size, file, NULL, 0, &module) == FP8C_OK,
         fp8c_context_message(x->ctx));
    for (int i = 0; i < N_RECIPES; i++) {
        const fp8c_compile_options o = {.struct_size = sizeof o, .recipe = recipes[i],
                                        .threads = x->threads};
        must(fp8c_compile(module, &o, &x->program[i]) == FP8C_OK, fp8c_context_message(x->ctx));
        must(fp8c_program_initialize(x->program[i], 1) == FP8C_OK, fp8c_context_message(x->ctx));
        const int step = fp8c_program_function(x->program[i], "micro_step");
        for (int side = 0; side < 2; side++) {
            int32_t *ids =
                fp8c_program_buffer(x->program[i], step, FP8C_INPUT,
                                    fp8c_program_find_port(x->program[i], step, FP8C_INPUT,
                                                           side ? "targets" : "tokens"));
            for (int t = 0; t < 1024; t++)
                ids[t] = (int32_t)((uint32_t)(t + side) * 2654435761u % 50257u);
        }
        fp8c_info info = {.struct_size = sizeof info};
        fp8c_program_info(x->program[i], &info);
        report(x->json, info.compile_seconds, "s", "compile_seconds_%s", recipes[i]);
    }
    fp8c_module_destroy(module);
    free(text);
}

static double run_step(const bench *x, int recipe)
{
    fp8c_program *p = x->program[recipe];
    const double start = f8_seconds_now();
    must(fp8c_program_run(p, fp8c_program_function(p, "micro_step")) == FP8C_OK &&
             fp8c_program_run(p, fp8c_program_function(p, "update")) == FP8C_OK,
         fp8c_context_message(x->ctx));
    return f8_seconds_now() - start;
}

/* ---- the GEMMs alone ---- */

static void collect_shapes(bench *x)
{
    fp8c_decision d;
    int64_t most[3] = {0};
    for (int i = 0; fp8c_program_decision(x->program[0], i, &d) == FP8C_OK; i++) {
        const bool head = !strcmp(d.linear, "lm_head"); /* its weight is stored transposed */
        const bool ta = !strcmp(d.role, "wgrad"),
                   tb = strcmp(d.role, "wgrad") && (!strcmp(d.role, "dgrad") != head);
        int k = 0;
        while (k < x->n_shapes &&
               (x->shape[k].m != d.m || x->shape[k].n != d.n || x->shape[k].k != d.k ||
                x->shape[k].trans_a != ta || x->shape[k].trans_b != tb))
            k++;
        must(k < MAX_SHAPES, "too many shapes");
        if (k == x->n_shapes)
            x->shape[x->n_shapes++] =
                (shape){.m = d.m, .n = d.n, .k = d.k, .trans_a = ta, .trans_b = tb};
        x->shape[k].count += d.count;
        x->flop += 2.0 * (double)d.m * (double)d.n * (double)d.k * (double)d.count;
        const int64_t size[3] = {d.m * d.k, d.n * d.k, d.m * d.n};
        for (int j = 0; j < 3; j++)
            most[j] = size[j] > most[j] ? size[j] : most[j];
    }
    float **buffer[3] = {&x->a, &x->b, &x->c};
    for (int j = 0; j < 3; j++) {
        *buffer[j] = aligned_alloc(64, (size_t)most[j] * 4 / 64 * 64 + 64);
        must(*buffer[j] != NULL, "memory");
        for (int64_t i = 0; i < most[j]; i++)
            (*buffer[j])[i] = (float)((uint32_t)i * 2654435761u >> 8 & 255) / 256.0f;
    }
}

static void make_gemms(bench *x)
{
    f8_diag diag = {0};
    must(f8_pool_create(&(f8_pool_options){.n_threads = x->threads}, &x->pool, &diag) == F8_OK,
         diag.text);
    must(f8_gemm_lib_create(NULL, &x->lib, &diag) == F8_OK, diag.text);
    must(peer_onednn_open(&x->onednn, x->threads, &diag) == F8_OK, diag.text);
    for (int i = 0; i < x->n_shapes; i++) {
        shape *s = &x->shape[i];
        const peer_problem p = {s->m, s->n, s->k, s->trans_a, s->trans_b, false, x->a, x->b, x->c};
        const f8_gemm_desc d = {.m = s->m,
                                .n = s->n,
                                .k = s->k,
                                .lda = s->trans_a ? s->m : s->k,
                                .ldb = s->trans_b ? s->k : s->n,
                                .ldc = s->n,
                                .a = F8_F32,
                                .b = F8_F32,
                                .trans_a = s->trans_a,
                                .trans_b = s->trans_b};
        must(peer_gemm_create(x->onednn, &p, &s->peer, &diag) == F8_OK, diag.text);
        must(f8_gemm_prepare(x->lib, &d, x->threads, &s->tiles, &diag) == F8_OK, diag.text);
        s->workspace = aligned_alloc(64, f8_gemm_workspace(s->tiles) / 64 * 64 + 64);
    }
}

/* Seconds of one call, the better of two. */
static double time_gemm(const bench *x, const shape *s, int contestant)
{
    double best = INFINITY;
    for (int i = 0; i < 2; i++) {
        const double start = f8_seconds_now();
        if (contestant == 0)
            peer_gemm_matmul(s->peer);
        else if (contestant == 1)
            peer_gemm_sgemm(s->peer);
        else
            must(f8_gemm_run(s->tiles, x->pool, x->a, x->b, x->c, NULL, NULL, s->workspace) ==
                     F8_OK,
                 "gemm");
        best = fmin(best, f8_seconds_now() - start);
    }
    return best;
}

static double run_gemms(const bench *x, double *peak)
{
    double total = 0;
    for (int i = 0; i < x->n_shapes; i++) {
        const shape *s = &x->shape[i];
        double best = INFINITY;
        for (int contestant = 0; contestant < 3; contestant++)
            best = fmin(best, time_gemm(x, s, contestant));
        total += best * (double)s->count;
        *peak = fmax(*peak, 2e-9 * (double)s->m * (double)s->n * (double)s->k / best);
    }
    return total;
}

/* ---- rounds ---- */

int main(int argc, char **argv)
{
    bench x = {.rounds = 5, .threads = (int)sysconf(_SC_NPROCESSORS_ONLN)};
    for (int i = 1, at = 0; i < argc; i++)
        if (!strcmp(argv[i], "--json"))
            x.json = true;
        else
            *(at++ ? &x.threads : &x.rounds) = atoi(argv[i]);
    must(x.rounds >= 1 && x.rounds <= MAX_ROUNDS && x.threads >= 1,
         "usage: [--json] [ROUNDS [THREADS]]");
    make_programs(&x);
    collect_shapes(&x);
    make_gemms(&x);
    double ratio[N_RECIPES][MAX_ROUNDS], step[N_RECIPES][MAX_ROUNDS], gemms[MAX_ROUNDS], peak = 0;
    for (int i = 0; i < N_RECIPES; i++)
        run_step(&x, i); /* first touch of every page */
    for (int r = 0; r < x.rounds; r++) {
        gemms[r] = run_gemms(&x, &peak);
        for (int i = 0; i < N_RECIPES; i++) {
            step[i][r] = run_step(&x, i);
            ratio[i][r] = step[i][r] / gemms[r];
        }
        if (!x.json)
            fprintf(stderr, "round %d: GEMMs %.3f s, steps %.3f %.3f %.3f s\n", r + 1, gemms[r],
                    step[0][r], step[1][r], step[2][r]);
    }
    for (int i = 0; i < N_RECIPES; i++) {
        const double seconds = median(step[i], x.rounds);
        report(x.json, median(ratio[i], x.rounds), "ratio", "%s", ratio_name[i]);
        report(x.json, 1024 / seconds, "tokens/s", "gpt2_124m_tokens_per_second_%s", recipes[i]);
        report(x.json, x.flop / seconds / (peak * 1e9), "of the best f32 GEMM of the run",
               "gpt2_124m_share_of_gemm_peak_%s", recipes[i]);
    }
    report(x.json, median(gemms, x.rounds), "s", "gpt2_124m_gemms_alone");
    report(x.json, peak, "GFLOP/s", "f32_gemm_peak");
    return 0;
}
