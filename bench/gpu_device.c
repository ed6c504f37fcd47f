/* See gpu_device.h. */
#include "bench/gpu_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/figures.h"
#include "runtime/cuda/cublaslt.h"

void gpu_check(f8_status status, const f8_diag *diag, const char *what)
{
    if (status == F8_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, diag->text);
    exit(1);
}

#define CU GPU_CU

/* ---- the device ---- */

gpu_device gpu_open(void)
{
    gpu_device g = {0};
    f8_diag diag = {0};
    const f8_cuda_paths paths = f8_cuda_paths_from_environment();
    gpu_check(f8_cuda_create(&paths, NULL, &g.cuda, &diag), &diag, "device");
    gpu_check(f8_cuda_device(g.cuda, 0, &diag), &diag, "device");
    gpu_check(f8_cuda_device_facts(g.cuda, &g.facts, &diag), &diag, "device");
    g.target = f8_target_for_sm(g.facts.sm);
    if (!g.target) {
        fprintf(stderr, "device: there is no target for %s\n", g.facts.name);
        exit(1);
    }
    gpu_check(f8_cuda_enter(g.cuda, &diag), &diag, "device");
    CU(&g, cuStreamCreate, &g.stream, CU_STREAM_NON_BLOCKING);
    CU(&g, cuEventCreate, &g.start, CU_EVENT_DEFAULT);
    CU(&g, cuEventCreate, &g.end, CU_EVENT_DEFAULT);
    return g;
}

void gpu_close(gpu_device *g)
{
    g->cuda->cu.cuEventDestroy_v2(g->start);
    g->cuda->cu.cuEventDestroy_v2(g->end);
    g->cuda->cu.cuStreamDestroy_v2(g->stream);
    f8_cuda_leave(g->cuda);
    f8_cuda_destroy(g->cuda);
}

CUdeviceptr gpu_allocate(gpu_device *g, size_t bytes)
{
    CUdeviceptr p;
    CU(g, cuMemAlloc_v2, &p, bytes);
    return p;
}

void gpu_free(gpu_device *g, CUdeviceptr p)
{
    CU(g, cuMemFree_v2, p);
}

/* Of moderate size: exponents within a few of 0, every mantissa and sign. */
static void fill_numbers(uint8_t *to, size_t bytes, f8_dtype dtype)
{
    uint64_t x = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i + 2 <= bytes; i += 2) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        uint16_t v = (uint16_t)(x >> 32);
        if (dtype == F8_BF16)
            v = (uint16_t)((v & 0x807fu) | (uint16_t)((124 + (v >> 8) % 4) << 7));
        else if (dtype == F8_F32)
            v = i % 4 ? (uint16_t)((v & 0x807fu) | (uint16_t)((124 + (v >> 8) % 4) << 7)) : v;
        else
            v &= 0xbfbfu; /* exponents below the top half: no NaN, no Inf */
        memcpy(to + i, &v, 2);
    }
}

CUdeviceptr gpu_numbers(gpu_device *g, size_t bytes, f8_dtype dtype)
{
    const size_t block = bytes < (64u << 20) ? bytes : 64u << 20;
    uint8_t *host = malloc(block);
    if (!host) {
        fprintf(stderr, "host memory: %zu bytes were wanted\n", block);
        exit(1);
    }
    fill_numbers(host, block, dtype);
    const CUdeviceptr p = gpu_allocate(g, bytes);
    for (size_t at = 0; at < bytes; at += block) {
        const size_t n = bytes - at < block ? bytes - at : block;
        CU(g, cuMemcpyHtoDAsync_v2, p + at, host, n, g->stream);
    }
    CU(g, cuStreamSynchronize, g->stream);
    free(host);
    return p;
}

double gpu_seconds_between(gpu_device *g)
{
    float ms;
    CU(g, cuStreamSynchronize, g->stream);
    CU(g, cuEventElapsedTime, &ms, g->start, g->end);
    return (double)ms * 1e-3;
}

/* ---- copies ---- */

double gpu_copy_bandwidth(gpu_device *g, size_t bytes, int runs)
{
    const CUdeviceptr from = gpu_numbers(g, bytes, F8_F32), to = gpu_allocate(g, bytes);
    double best = 0;
    for (int i = 0; i <= runs; i++) {
        CU(g, cuEventRecord, g->start, g->stream);
        CU(g, cuMemcpyDtoDAsync_v2, to, from, bytes, g->stream);
        CU(g, cuEventRecord, g->end, g->stream);
        const double seconds = gpu_seconds_between(g);
        if (i > 0 && seconds > 0 &&
            2 * (double)bytes / seconds > best) /* the first touches the pages */
            best = 2 * (double)bytes / seconds;
    }
    gpu_free(g, from);
    gpu_free(g, to);
    return best;
}

/* ---- GEMMs ---- */

enum { WORKSPACE = 32 << 20 };

double gpu_gemm_peak(gpu_device *g, int64_t n, f8_dtype dtype, int runs)
{
    const bool fp8 = dtype != F8_BF16;
    const f8_gemm_desc desc = {.m = n,
                               .n = n,
                               .k = n,
                               .lda = n,
                               .ldb = n,
                               .ldc = n,
                               .a = dtype,
                               .b = dtype,
                               .c = F8_BF16,
                               .trans_b = true,
                               .has_alpha = fp8};
    const size_t bytes = (size_t)(n * n) * f8_dtype_size(dtype);
    const float one = 1.0f;
    const f8_allocator allocator = f8_default_allocator();
    f8_cublaslt_gemm *list = NULL, *gemm;
    f8_diag diag = {0};
    gpu_check(f8_cublaslt_prepare(g->cuda, &list, &allocator, &desc, 16, WORKSPACE, "the peak",
                                  &gemm, &diag),
              &diag, "GEMM");
    const CUdeviceptr a = gpu_numbers(g, bytes, dtype), b = gpu_numbers(g, bytes, dtype),
                      c = gpu_allocate(g, (size_t)(n * n) * 2),
                      workspace = gpu_allocate(g, WORKSPACE), scale = gpu_allocate(g, 256);
    CU(g, cuMemcpyHtoDAsync_v2, scale, &one, sizeof one, g->stream);
    const CUdeviceptr arg[F8_GEMM_ARGS] = {a, b, c, fp8 ? scale : 0, fp8 ? scale : 0};
    double seconds[GPU_MOST_RUNS];
    for (int i = 0; i < 2 * runs; i++) {
        CU(g, cuEventRecord, g->start, g->stream);
        gpu_check(f8_cublaslt_run(g->cuda, gemm, arg, workspace, g->stream, "the peak", &diag),
              &diag, "GEMM");
        CU(g, cuEventRecord, g->end, g->stream);
        seconds[i % runs] = gpu_seconds_between(g);
    }
    fprintf(stderr, "%s peak: %s\n", f8_dtype_name(dtype), f8_cublaslt_describe(gemm));
    f8_cublaslt_release_all(g->cuda, &list, &allocator);
    const CUdeviceptr all[] = {a, b, c, workspace, scale};
    for (int i = 0; i < 5; i++)
        gpu_free(g, all[i]);
    return 2.0 * (double)n * (double)n * (double)n / median(seconds, runs);
}

/* By operand: buffers shared by all GEMMs of one dtype there. Each GEMM begins elsewhere in them,
 * so that the L2 cache holds nothing that it reads. */
enum { APART = 80 << 20, PLACES = 4 };
struct gpu_gemms {
    gpu_device *g;
    f8_allocator allocator;
    f8_cublaslt_gemm *list, **gemm;
    const f8_step **step;
    CUdeviceptr operand[2][F8_DTYPE_COUNT], c, workspace, scale, bias;
    int64_t workspace_bytes;
    int n;
};

static size_t stored_bytes(int64_t rows, int64_t stride, f8_dtype dtype)
{
    return ((size_t)(rows * stride) * f8_dtype_size(dtype) + 255) / 256 * 256;
}

static void allocate_operands(gpu_gemms *m)
{
    size_t most[2][F8_DTYPE_COUNT] = {0}, result = 256;
    int64_t columns = 8;
    for (int i = 0; i < m->n; i++) {
        const f8_gemm_desc *d = &m->step[i]->gemm;
        const size_t a = stored_bytes(d->trans_a ? d->k : d->m, d->lda, d->a);
        const size_t b = stored_bytes(d->trans_b ? d->n : d->k, d->ldb, d->b);
        const size_t c = stored_bytes(d->m, d->ldc, F8_F32);
        most[0][d->a] = a > most[0][d->a] ? a : most[0][d->a];
        most[1][d->b] = b > most[1][d->b] ? b : most[1][d->b];
        result = c > result ? c : result;
        columns = d->n > columns ? d->n : columns;
    }
    for (int side = 0; side < 2; side++)
        for (int t = 0; t < F8_DTYPE_COUNT; t++)
            if (most[side][t])
                m->operand[side][t] =
                    gpu_numbers(m->g, most[side][t] + (PLACES - 1) * (size_t)APART, (f8_dtype)t);
    const float one = 1.0f;
    result += (PLACES - 1) * (size_t)APART;
    m->c = gpu_allocate(m->g, result);
    m->workspace = gpu_allocate(m->g, (size_t)m->workspace_bytes + 256);
    m->scale = gpu_allocate(m->g, 256);
    m->bias = gpu_numbers(m->g, (size_t)columns * 2, F8_BF16);
    CU(m->g, cuMemsetD8Async, m->c, 0, result, m->g->stream);
    CU(m->g, cuMemcpyHtoDAsync_v2, m->scale, &one, sizeof one, m->g->stream);
    CU(m->g, cuStreamSynchronize, m->g->stream);
}

gpu_gemms *gpu_gemms_make(gpu_device *g, const f8_plan *plan, uint32_t func)
{
    const f8_plan_func *f = &plan->func[func];
    gpu_gemms *m = calloc(1, sizeof *m);
    f8_diag diag = {0};
    if (m) {
        m->gemm = calloc(f->n_steps + 1, sizeof *m->gemm);
        m->step = calloc(f->n_steps + 1, sizeof *m->step);
    }
    if (!m || !m->gemm || !m->step) {
        fprintf(stderr, "host memory for %u steps\n", f->n_steps);
        exit(1);
    }
    m->g = g;
    m->allocator = f8_default_allocator();
    m->workspace_bytes = plan->gemm_workspace;
    for (uint32_t i = 0; i < f->n_steps; i++) {
        if (f->step[i].kind != F8_STEP_GEMM)
            continue;
        gpu_check(f8_cublaslt_prepare(g->cuda, &m->list, &m->allocator, &f->step[i].gemm, 16,
                                  m->workspace_bytes, f->step[i].name, &m->gemm[m->n], &diag),
              &diag, "GEMMs alone");
        m->step[m->n++] = &f->step[i];
    }
    allocate_operands(m);
    return m;
}

double gpu_gemms_run(gpu_gemms *m)
{
    f8_diag diag = {0};
    CU(m->g, cuEventRecord, m->g->start, m->g->stream);
    for (int i = 0; i < m->n; i++) {
        const f8_gemm_desc *d = &m->step[i]->gemm;
        const CUdeviceptr place = (CUdeviceptr)(i % PLACES) * APART,
                          scale = d->has_alpha ? m->scale : 0;
        const CUdeviceptr arg[F8_GEMM_ARGS] = {
            m->operand[0][d->a] + place, m->operand[1][d->b] + place, m->c + place, scale, scale,
            d->bias ? m->bias : 0};
        gpu_check(f8_cublaslt_run(m->g->cuda, m->gemm[i], arg, m->workspace, m->g->stream,
                                  m->step[i]->name, &diag),
              &diag, "GEMMs alone");
    }
    CU(m->g, cuEventRecord, m->g->end, m->g->stream);
    return gpu_seconds_between(m->g);
}

int gpu_gemms_count(const gpu_gemms *m)
{
    return m->n;
}

void gpu_gemms_free(gpu_gemms *m)
{
    for (int side = 0; side < 2; side++)
        for (int t = 0; t < F8_DTYPE_COUNT; t++)
            if (m->operand[side][t])
                gpu_free(m->g, m->operand[side][t]);
    gpu_free(m->g, m->c);
    gpu_free(m->g, m->workspace);
    gpu_free(m->g, m->scale);
    gpu_free(m->g, m->bias);
    f8_cublaslt_release_all(m->g->cuda, &m->list, &m->allocator);
    free(m->gemm);
    free(m->step);
    free(m);
}
