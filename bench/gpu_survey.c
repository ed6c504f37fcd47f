/* Each distinct GEMM of a plan by itself: see gpu_device.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/figures.h"
#include "bench/gpu_device.h"
#include "codegen/cuda/text.h"
#include "runtime/cuda/cublaslt.h"

enum { REPEATS = 50, TIMED = 7, MOST_OFFERED = 16, FLUSHED = 256 << 20, SCALES = 64 << 20 };

/* Sets *differ if two arrays of words differ. */
static const char text[] =
    "#include \"fp8c.cuh\"\n"
    "struct compare_params { const f8_u32 *a, *b; f8_i64 n; f8_u32 *differ; };\n"
    "F8_KERNEL(compare, 256, 1)\n"
    "{\n"
    "    for (f8_i64 i = f8_block() * 256 + f8_thread(); i < p.n; i += f8_blocks() * 256)\n"
    "        if (p.a[i] != p.b[i])\n"
    "            *p.differ = 1;\n"
    "}\n";

typedef struct survey {
    gpu_device *g;
    f8_allocator allocator;
    CUmodule module;
    CUfunction compare;
    CUdeviceptr flush, scales, bias, workspace, differ;
    int64_t workspace_bytes;
} survey;

/* One problem with operands and two results. */
typedef struct problem {
    const f8_step *step;
    CUdeviceptr a, b, c[2];
    size_t bytes; /* of a result, whole words */
    f8_cublaslt_gemm *list;
} problem;

static survey open_survey(gpu_device *g, int64_t workspace)
{
    survey s = {.g = g, .allocator = f8_default_allocator(), .workspace_bytes = workspace};
    f8_diag diag = {0};
    f8_arena arena = {0};
    f8_arena_init(&arena, &s.allocator);
    f8_nvrtc_result code;
    char arch[16];
    snprintf(arch, sizeof arch, "sm_%d", g->facts.sm);
    gpu_check(f8_cuda_compile(g->cuda, text, "compare.cu", f8_cuda_header, "fp8c.cuh", arch,
                              (f8_nvrtc_options){0}, &arena, &code, &diag),
              &diag, "compare");
    GPU_CU(g, cuModuleLoadData, &s.module, code.cubin);
    GPU_CU(g, cuModuleGetFunction, &s.compare, s.module, "compare");
    f8_arena_end(&arena);
    s.flush = gpu_allocate(g, FLUSHED);
    s.scales = gpu_numbers(g, SCALES, F8_F32);
    s.bias = gpu_numbers(g, SCALES, F8_BF16);
    s.workspace = gpu_allocate(g, (size_t)workspace + 256);
    s.differ = gpu_allocate(g, 256);
    return s;
}

static void close_survey(survey *s)
{
    const CUdeviceptr all[] = {s->flush, s->scales, s->bias, s->workspace, s->differ};
    for (int i = 0; i < 5; i++)
        gpu_free(s->g, all[i]);
    GPU_CU(s->g, cuModuleUnload, s->module);
}

static void run(survey *s, const problem *p, f8_cublaslt_gemm *gemm, int result)
{
    f8_diag diag = {0};
    const CUdeviceptr scale = p->step->gemm.has_alpha ? s->scales : 0;
    const CUdeviceptr arg[F8_GEMM_ARGS] = {p->a,  p->b,  p->c[result],
                                           scale, scale, p->step->gemm.bias ? s->bias : 0};
    gpu_check(f8_cublaslt_run(s->g->cuda, gemm, arg, s->workspace, s->g->stream, p->step->name,
                              &diag),
              &diag, "survey");
}

static bool same_bits(survey *s, const problem *p, f8_cublaslt_gemm *gemm, int runs)
{
    unsigned differ = 0;
    uint64_t words[] = {p->c[0], p->c[1], p->bytes / 4, s->differ};
    void *args[] = {words};
    GPU_CU(s->g, cuMemsetD8Async, s->differ, 0, 4, s->g->stream);
    for (int i = 0; i < runs; i++) {
        GPU_CU(s->g, cuMemsetD8Async, p->c[1], 0, p->bytes, s->g->stream);
        run(s, p, gemm, 1);
        GPU_CU(s->g, cuLaunchKernel, s->compare, 1024, 1, 1, 256, 1, 1, 0, s->g->stream, args,
               NULL);
    }
    GPU_CU(s->g, cuMemcpyDtoHAsync_v2, &differ, s->differ, 4, s->g->stream);
    GPU_CU(s->g, cuStreamSynchronize, s->g->stream);
    return !differ;
}

static double time_of(survey *s, const problem *p, f8_cublaslt_gemm *gemm)
{
    double seconds[TIMED];
    run(s, p, gemm, 1);
    for (int i = 0; i < TIMED; i++) {
        GPU_CU(s->g, cuMemsetD8Async, s->flush, i, FLUSHED, s->g->stream);
        GPU_CU(s->g, cuEventRecord, s->g->start, s->g->stream);
        run(s, p, gemm, 1);
        GPU_CU(s->g, cuEventRecord, s->g->end, s->g->stream);
        seconds[i] = gpu_seconds_between(s->g);
    }
    return median(seconds, TIMED);
}

static f8_cublaslt_gemm *prepare(survey *s, problem *p, const f8_gemm_tuning *tuning)
{
    f8_diag diag = {0};
    f8_gemm_desc desc = p->step->gemm;
    f8_cublaslt_gemm *gemm;
    desc.tuning = *tuning;
    gpu_check(f8_cublaslt_prepare(s->g->cuda, &p->list, &s->allocator, &desc, 16,
                                  s->workspace_bytes, p->step->name, &gemm, &diag),
              &diag, "survey");
    return gemm;
}

static problem make_problem(survey *s, const f8_step *step)
{
    const f8_gemm_desc *d = &step->gemm;
    const int64_t rows_a = d->trans_a ? d->k : d->m, rows_b = d->trans_b ? d->n : d->k;
    problem p = {.step = step};
    p.bytes = (size_t)(d->m * d->ldc) * f8_dtype_size(d->c) / 4 * 4;
    p.a = gpu_numbers(s->g, (size_t)(rows_a * d->lda) * f8_dtype_size(d->a), d->a);
    p.b = gpu_numbers(s->g, (size_t)(rows_b * d->ldb) * f8_dtype_size(d->b), d->b);
    for (int i = 0; i < 2; i++) {
        p.c[i] = gpu_allocate(s->g, p.bytes + 4);
        GPU_CU(s->g, cuMemsetD8Async, p.c[i], 0, p.bytes, s->g->stream);
    }
    return p;
}

static void survey_one(survey *s, const f8_step *step, int count, const char *model,
                       const char *recipe)
{
    const f8_gemm_desc *d = &step->gemm;
    const double operations = 2.0 * (double)d->m * (double)d->n * (double)d->k;
    const f8_gemm_tuning none = {0};
    problem p = make_problem(s, step);
    f8_gemm_tuning offered[MOST_OFFERED];
    int n = 0, best = 0, aliases = 0, other_bits = 0;
    f8_diag diag = {0};
    char words[F8_GEMM_PROBLEM_TEXT];
    f8_cublaslt_gemm *first = prepare(s, &p, &none);
    run(s, &p, first, 0);
    const bool repeats = same_bits(s, &p, first, REPEATS);
    const double seconds = time_of(s, &p, first);
    double least = seconds;
    gpu_check(f8_cublaslt_candidates(s->g->cuda, &s->allocator, d, 16, s->workspace_bytes, false,
                                     step->name, offered, &n, &diag),
              &diag, "survey");
    for (int i = 1; i < n; i++) {
        for (int k = 0; k < i; k++)
            aliases += f8_gemm_tuning_equal(&offered[k], &offered[i]);
        f8_cublaslt_gemm *other = prepare(s, &p, &offered[i]);
        other_bits += !same_bits(s, &p, other, 1);
        const double time = time_of(s, &p, other);
        if (time < least) {
            least = time;
            best = i;
        }
    }
    f8_gemm_problem_text(d, words);
    printf(
        "{\"event\":\"gemm\",\"model\":\"%s\",\"recipe\":\"%s\",\"name\":\"%s\",\"problem\":\"%s\","
        "\"count\":%d,\"seconds\":%.4g,\"tflops\":%.4g,\"repeats\":%s,\"algorithm\":\"%s\","
        "\"offered\":%d,\"aliases\":%d,\"other_bits\":%d,\"best\":%d,\"best_seconds\":%.4g,"
        "\"best_algorithm\":\"%s\"}\n",
        model, recipe, step->name, words, count, seconds, operations / seconds / 1e12,
        repeats ? "true" : "false", f8_cublaslt_describe(first), n, aliases, other_bits, best,
        least, f8_cublaslt_describe(best ? prepare(s, &p, &offered[best]) : first));
    fflush(stdout);
    f8_cublaslt_release_all(s->g->cuda, &p.list, &s->allocator);
    const CUdeviceptr all[] = {p.a, p.b, p.c[0], p.c[1]};
    for (int i = 0; i < 4; i++)
        gpu_free(s->g, all[i]);
}

void gpu_survey(gpu_device *g, const f8_plan *plan, const char *model, const char *recipe)
{
    survey s = open_survey(g, plan->gemm_workspace);
    char words[F8_GEMM_PROBLEM_TEXT], other[F8_GEMM_PROBLEM_TEXT];
    for (uint32_t f = 0; f < plan->n_funcs; f++)
        for (uint32_t i = 0; i < plan->func[f].n_steps; i++) {
            const f8_step *step = &plan->func[f].step[i];
            int same = 0, earlier = 0;
            if (step->kind != F8_STEP_GEMM || strcmp(plan->func[f].name, "micro_step"))
                continue;
            f8_gemm_problem_text(&step->gemm, words);
            for (uint32_t k = 0; k < plan->func[f].n_steps; k++) {
                const f8_step *x = &plan->func[f].step[k];
                if (x->kind != F8_STEP_GEMM)
                    continue;
                f8_gemm_problem_text(&x->gemm, other);
                same += !strcmp(words, other);
                earlier += k < i && !strcmp(words, other);
            }
            if (!earlier)
                survey_one(&s, step, same, model, recipe);
        }
    close_survey(&s);
}
