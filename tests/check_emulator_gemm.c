/* The emulator's cuBLASLt: products of small integers, whose sums are exact, in every type, layout and
 * scale it takes; what it refuses. */
#include "tests/shared/emulator.h"

#include "ir/fp8.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static emu e;
static f8_cublaslt_api lt;
static cublasLtHandle_t handle;

static void setup(void)
{
    emu_open(&e);
    emu_open_gemm(&lt);
    ck_assert_int_eq(lt.cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
}

static void teardown(void)
{
    ck_assert_int_eq(lt.cublasLtDestroy(handle), CUBLAS_STATUS_SUCCESS);
    emu_close(&e);
}

/* One product, column-major, and what it is set up with. */
typedef struct gemm {
    int64_t m, n, k, lda, ldb, ldd;
    int a, b, d; /* CUDA_R_* */
    bool trans_a, trans_b, scales, bias;
    float beta;
    int schemes;
    uint32_t alignment;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layout_a, layout_b, layout_d;
    cublasLtMatmulHeuristicResult_t found[4];
    int n_found;
} gemm;

static gemm product(int64_t m, int64_t n, int64_t k, int a, int b, int d)
{
    return (gemm){.m = m,
                  .n = n,
                  .k = k,
                  .lda = k,
                  .ldb = k,
                  .ldd = m,
                  .a = a,
                  .b = b,
                  .d = d,
                  .trans_a = true,
                  .alignment = 256};
}

static void set(gemm *g, int which, const void *value, size_t bytes)
{
    ck_assert_int_eq(lt.cublasLtMatmulDescSetAttribute(g->desc, which, value, bytes), 0);
}

/* The heuristic's answer. */
static int ask(gemm *g)
{
    cublasLtMatmulPreference_t p;
    const int op[2] = {g->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, g->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N};
    const uint64_t workspace = 1 << 20;
    const uint32_t schemes = (uint32_t)g->schemes;
    ck_assert_int_eq(lt.cublasLtMatmulDescCreate(&g->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), 0);
    set(g, CUBLASLT_MATMUL_DESC_TRANSA, &op[0], sizeof op[0]);
    set(g, CUBLASLT_MATMUL_DESC_TRANSB, &op[1], sizeof op[1]);
    lt.cublasLtMatrixLayoutCreate(&g->layout_a, g->a, (uint64_t)(g->trans_a ? g->k : g->m),
                                  (uint64_t)(g->trans_a ? g->m : g->k), g->lda);
    lt.cublasLtMatrixLayoutCreate(&g->layout_b, g->b, (uint64_t)(g->trans_b ? g->n : g->k),
                                  (uint64_t)(g->trans_b ? g->k : g->n), g->ldb);
    lt.cublasLtMatrixLayoutCreate(&g->layout_d, g->d, (uint64_t)g->m, (uint64_t)g->n, g->ldd);
    ck_assert_int_eq(lt.cublasLtMatmulPreferenceCreate(&p), 0);
    lt.cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                            sizeof workspace);
    lt.cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                            sizeof schemes);
    for (int i = 0; i < 4; i++)
        lt.cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i,
                                                &g->alignment, sizeof g->alignment);
    const int r = lt.cublasLtMatmulAlgoGetHeuristic(handle, g->desc, g->layout_a, g->layout_b, g->layout_d,
                                                    g->layout_d, p, 4, g->found, &g->n_found);
    lt.cublasLtMatmulPreferenceDestroy(p);
    return r;
}

static void forget(gemm *g)
{
    lt.cublasLtMatrixLayoutDestroy(g->layout_a);
    lt.cublasLtMatrixLayoutDestroy(g->layout_b);
    lt.cublasLtMatrixLayoutDestroy(g->layout_d);
    lt.cublasLtMatmulDescDestroy(g->desc);
}

/* ---- values ---- */

static f8_dtype dtype(int type)
{
    switch (type) {
    case CUDA_R_16BF: return F8_BF16;
    case CUDA_R_8F_E4M3: return F8_E4M3;
    case CUDA_R_8F_E5M2: return F8_E5M2;
    default: return F8_F32;
    }
}

/* Encoded integers -4..4 and the same as floats; beyond the rows of a column, what must not be read. */
typedef struct matrix {
    float *value;
    CUdeviceptr device;
    size_t bytes;
} matrix;

static matrix integers(int type, int64_t rows, int64_t columns, int64_t stride, uint32_t seed)
{
    const size_t n = (size_t)(stride * (columns - 1) + rows), element = f8_dtype_size(dtype(type));
    matrix x = {malloc(n * sizeof *x.value), 0, n * element};
    uint8_t *code = malloc(x.bytes);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        const bool inside = (int64_t)i % stride < rows;
        x.value[i] = (float)((int)(seed >> 24) % 9 - 4);
        const uint32_t bits = inside ? f8_encode(dtype(type), x.value[i], false) : UINT32_MAX;
        memcpy(code + i * element, &bits, element);
    }
    x.device = emu_upload(&e, code, x.bytes);
    free(code);
    return x;
}

static float at(const matrix *x, bool trans, int64_t stride, int64_t i, int64_t j)
{
    return x->value[trans ? i * stride + j : j * stride + i];
}

static void check_product(gemm *g, bool captured)
{
    const float scales[2] = {0.5f, 4.0f}, alpha = 2.0f;
    matrix a = integers(g->a, g->trans_a ? g->k : g->m, g->trans_a ? g->m : g->k, g->lda, 1);
    matrix b = integers(g->b, g->trans_b ? g->n : g->k, g->trans_b ? g->k : g->n, g->ldb, 2);
    matrix d = integers(g->d, g->m, g->n, g->ldd, 3);
    matrix bias = integers(CUDA_R_16BF, g->m, 1, g->m, 4);
    ck_assert_int_eq(ask(g), CUBLAS_STATUS_SUCCESS);
    const CUdeviceptr where = emu_upload(&e, scales, sizeof scales);
    if (g->scales) {
        const CUdeviceptr second = where + 4;
        set(g, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &where, sizeof where);
        set(g, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &second, sizeof second);
    }
    if (g->bias) {
        const int epilogue = CUBLASLT_EPILOGUE_BIAS, type = CUDA_R_16BF;
        set(g, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
        set(g, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
        set(g, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.device, sizeof bias.device);
    }
    if (captured)
        ck_assert_int_eq(e.cu.cuStreamBeginCapture_v2(e.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), 0);
    ck_assert_int_eq(lt.cublasLtMatmul(handle, g->desc, &alpha, (void *)(uintptr_t)a.device, g->layout_a,
                                       (void *)(uintptr_t)b.device, g->layout_b, &g->beta,
                                       (void *)(uintptr_t)d.device, g->layout_d,
                                       (void *)(uintptr_t)d.device, g->layout_d,
                                       &g->found[g->n_found - 1].algo, NULL, 0, e.stream),
                     0);
    if (captured) { /* nothing has happened yet */
        CUgraph graph;
        CUgraphExec exec;
        ck_assert_int_eq(e.cu.cuStreamEndCapture(e.stream, &graph), 0);
        ck_assert_int_eq(e.cu.cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
        ck_assert_int_eq(e.cu.cuGraphLaunch(exec, e.stream), 0);
        e.cu.cuGraphExecDestroy(exec);
        e.cu.cuGraphDestroy(graph);
    }
    uint8_t *got = malloc(d.bytes);
    emu_download(&e, got, d.device, d.bytes);
    const size_t element = f8_dtype_size(dtype(g->d));
    for (int64_t j = 0; j < g->n; j++)
        for (int64_t i = 0; i < g->m; i++) {
            float sum = 0;
            for (int64_t k = 0; k < g->k; k++)
                sum += at(&a, g->trans_a, g->lda, i, k) * at(&b, g->trans_b, g->ldb, k, j);
            sum = sum * alpha * (g->scales ? 2.0f : 1.0f) + g->beta * at(&d, false, g->ldd, i, j) +
                  (g->bias ? bias.value[i] : 0);
            const uint32_t want = f8_encode(dtype(g->d), sum, false);
            uint32_t bits = 0;
            memcpy(&bits, got + (size_t)(j * g->ldd + i) * element, element);
            if (bits != want)
                ck_abort_msg("[%d, %d]: %x, not %x (%g)", (int)i, (int)j, bits, want, sum);
        }
    for (int64_t j = 0; j + 1 < g->n; j++) /* between columns */
        for (int64_t i = (int64_t)((size_t)(j * g->ldd + g->m) * element);
             i < (int64_t)((size_t)((j + 1) * g->ldd) * element); i++)
            ck_assert_uint_eq(got[i], 0xff);
    free(got);
    free(a.value);
    free(b.value);
    free(d.value);
    free(bias.value);
    forget(g);
}

/* ---- tests ---- */

START_TEST(fp8_products)
{
    static const int types[3][2] = {{CUDA_R_8F_E4M3, CUDA_R_8F_E4M3},
                                    {CUDA_R_8F_E5M2, CUDA_R_8F_E4M3},
                                    {CUDA_R_8F_E4M3, CUDA_R_8F_E5M2}};
    gemm g = product(48, 32, _i % 2 ? 16 : 272, types[_i % 3][0], types[_i % 3][1],
                     _i % 4 < 2 ? CUDA_R_16BF : CUDA_R_32F);
    g.lda += 16;
    g.ldd += 16;
    g.scales = _i % 5 != 0;
    g.beta = _i % 3 ? 0.0f : 1.0f;
    g.bias = _i % 4 == 1;
    check_product(&g, _i % 2);
}
END_TEST

/* Every layout, odd extents, blocks that are not full, more than one strip of columns. */
START_TEST(wide_products)
{
    static const int64_t extent[][3] = {{1, 1, 1}, {17, 7, 5}, {33, 800, 3}, {5, 13, 700}, {64, 48, 256}};
    for (size_t i = 0; i < sizeof extent / sizeof *extent; i++) {
        gemm g = product(extent[i][0], extent[i][1], extent[i][2], _i & 4 ? CUDA_R_16BF : CUDA_R_32F, 0,
                         _i & 4 && _i & 8 ? CUDA_R_16BF : CUDA_R_32F);
        g.b = g.a;
        g.trans_a = _i & 1;
        g.trans_b = _i & 2;
        g.lda = (g.trans_a ? g.k : g.m) + 3;
        g.ldb = (g.trans_b ? g.n : g.k) + 1;
        g.ldd = g.m + (int64_t)i;
        g.beta = i % 2 ? 1.0f : 0.0f;
        check_product(&g, false);
    }
}
END_TEST

START_TEST(refusals)
{
    enum { E4 = CUDA_R_8F_E4M3, E5 = CUDA_R_8F_E5M2, BF = CUDA_R_16BF, F = CUDA_R_32F };
    static const struct {
        int64_t m, n, k;
        int a, b, d;
        bool trans_a, trans_b;
        int64_t more_a; /* stride beyond the rows */
        uint32_t alignment;
        int status, status_sm100;
    } row[] = {
        {32, 32, 32, E4, E4, BF, true, false, 0, 16, 0, 0},
        {32, 32, 32, E5, E5, BF, true, false, 0, 16, 15, 15},
        {32, 32, 32, E4, E4, BF, false, false, 0, 16, 15, 0},
        {32, 32, 32, E4, E4, BF, false, true, 0, 16, 15, 0},
        {32, 32, 32, E4, E4, BF, true, true, 0, 16, 15, 0},
        {32, 32, 40, E4, E4, BF, true, false, 0, 16, 15, 15},
        {24, 32, 32, E4, E4, BF, true, false, 0, 16, 15, 15},
        {32, 24, 32, E4, E4, BF, true, false, 0, 16, 15, 15},
        {32, 32, 32, E4, E4, BF, true, false, 8, 16, 15, 15},
        {32, 32, 32, E4, E4, BF, true, false, 0, 8, 15, 15},
        {32, 32, 32, E4, BF, BF, true, false, 0, 16, 15, 15},
        {32, 32, 32, F, BF, F, true, false, 0, 16, 15, 15},
        {32, 32, 32, F, F, BF, true, false, 0, 16, 15, 15},
        {32, 32, 32, E4, E4, E4, true, false, 0, 16, 15, 15},
        {31, 33, 35, BF, BF, BF, false, true, 1, 2, 0, 0},
    };
    static const char *const sm[] = {"89", "90", "100", "120"};
    setenv("FP8C_EMULATOR_SM", sm[_i], 1);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        gemm g = product(row[i].m, row[i].n, row[i].k, row[i].a, row[i].b, row[i].d);
        g.trans_a = row[i].trans_a;
        g.trans_b = row[i].trans_b;
        g.lda = (g.trans_a ? g.k : g.m) + row[i].more_a;
        g.ldb = g.trans_b ? g.n : g.k;
        g.alignment = row[i].alignment;
        const int want = _i == 2 ? row[i].status_sm100 : row[i].status;
        ck_assert_msg(ask(&g) == want, "row %zu on sm_%s", i, sm[_i]);
        ck_assert_int_eq(g.n_found, want ? 0 : 1);
        forget(&g);
    }
}
END_TEST

START_TEST(scale_modes)
{
    gemm g = product(32, 32, 32, CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_16BF);
    const int outer = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    float scale[64], got[32 * 32];
    for (int i = 0; i < 64; i++)
        scale[i] = i % 2 ? 0.5f : 2.0f;
    g.d = CUDA_R_32F;
    matrix a = integers(g.a, g.k, g.m, g.lda, 1), b = integers(g.b, g.k, g.n, g.ldb, 2);
    const CUdeviceptr where = emu_upload(&e, scale, sizeof scale), second = where + 128;
    const CUdeviceptr d = emu_alloc(&e, sizeof got);
    const float alpha = 1, beta = 0;
    ck_assert_int_eq(ask(&g), 0);
    set(&g, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &where, sizeof where);
    set(&g, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &second, sizeof second);
    set(&g, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &outer, sizeof outer);
    set(&g, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &outer, sizeof outer);
#define MULTIPLY()                                                                                      \
    lt.cublasLtMatmul(handle, g.desc, &alpha, (void *)(uintptr_t)a.device, g.layout_a,                  \
                      (void *)(uintptr_t)b.device, g.layout_b, &beta, (void *)(uintptr_t)d, g.layout_d, \
                      (void *)(uintptr_t)d, g.layout_d, &g.found[0].algo, NULL, 0, e.stream)
    ck_assert_int_eq(MULTIPLY(), 0);
    emu_download(&e, got, d, sizeof got);
    for (int j = 0; j < 32; j++)
        for (int i = 0; i < 32; i++) {
            float sum = 0;
            for (int k = 0; k < 32; k++)
                sum += at(&a, true, g.lda, i, k) * at(&b, false, g.ldb, k, j);
            ck_assert(got[j * 32 + i] == sum * scale[i] * scale[32 + j]);
        }
    setenv("FP8C_EMULATOR_SM", "100", 1); /* rowwise scales are Hopper's alone */
    ck_assert_int_eq(MULTIPLY(), CUBLAS_STATUS_NOT_SUPPORTED);
    free(a.value);
    free(b.value);
    forget(&g);
}
END_TEST

/* What is proposed follows the preference: what adds in place comes first where it may. */
START_TEST(proposals)
{
    gemm g = product(32, 32, 4096, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F);
    int32_t scheme;
    size_t written;
    g.schemes = 7;
    ck_assert_int_eq(ask(&g), 0);
    ck_assert_int_eq(g.n_found, 3);
    static const int want[] = {CUBLASLT_REDUCTION_SCHEME_INPLACE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
                               CUBLASLT_REDUCTION_SCHEME_NONE};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(lt.cublasLtMatmulAlgoConfigGetAttribute(&g.found[i].algo,
                                                                 CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                                                 &scheme, sizeof scheme, &written),
                         0);
        ck_assert_int_eq(scheme, want[i]);
    }
    ck_assert_uint_gt(g.found[1].workspaceSize, 0);
    forget(&g);
}
END_TEST

START_TEST(mistakes)
{
    gemm g = product(32, 32, 32, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F);
    const float alpha = 1, beta = 0;
    _Alignas(256) float host[32 * 32];
    matrix a = integers(g.a, g.k, g.m, g.lda, 1);
    const CUdeviceptr d = emu_alloc(&e, sizeof host);
    ck_assert_int_eq(ask(&g), 0);
    setenv("FP8C_EMULATOR_FAIL", "cublasLtMatmul:1:13", 1);
    for (int i = 0; i < 2; i++) /* asked for; then an operand in host memory, which shows later */
        ck_assert_int_eq(lt.cublasLtMatmul(handle, g.desc, &alpha, (void *)(uintptr_t)a.device, g.layout_a,
                                           i ? (void *)host : (void *)(uintptr_t)a.device, g.layout_b,
                                           &beta, (void *)(uintptr_t)d, g.layout_d, (void *)(uintptr_t)d,
                                           g.layout_d, &g.found[0].algo, NULL, 0, e.stream),
                         i ? 0 : CUBLAS_STATUS_EXECUTION_FAILED);
    ck_assert_int_eq(e.cu.cuStreamSynchronize(e.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    free(a.value);
    forget(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("emulator_gemm");
    TCase *tc = tcase_create("emulator_gemm");
    suite_add_tcase(suite, tc);
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, fp8_products, 0, 12);
    tcase_add_loop_test(tc, wide_products, 0, 16);
    tcase_add_loop_test(tc, refusals, 0, 4);
    tcase_add_test(tc, scale_modes);
    tcase_add_test(tc, proposals);
    tcase_add_test(tc, mistakes);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
