/* The emulator's cuBLASLt: products of small integers, whose sums are exact, in every type, layout
 * and scale that it accepts; and what it refuses. */
#include "tests/shared/cuda/emulator.h"
#include "tests/shared/suite.h"

#include "ir/num/fp8.h"

#include <math.h>
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
    const int op[2] = {g->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                       g->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N};
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
    const int r =
        lt.cublasLtMatmulAlgoGetHeuristic(handle, g->desc, g->layout_a, g->layout_b, g->layout_d,
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

/* Encoded integers -4..4 and the same as floats; beyond the rows of a column, what must not be
 * read. */
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
        ck_assert_int_eq(
            e.cu.cuStreamBeginCapture_v2(e.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), 0);
    ck_assert_int_eq(lt.cublasLtMatmul(handle, g->desc, &alpha, (void *)(uintptr_t)a.device,
                                       g->layout_a, (void *)(uintptr_t)b.device, g->layout_b,
                                       &g->beta, (void *)(uintptr_t)d.device, g->layout_d,
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
    static const int64_t extent[][3] = {
        {1, 1, 1}, {17, 7, 5}, {33, 800, 3}, {5, 13, 700}, {64, 48, 256}};
    for (size_t i = 0; i < sizeof extent / sizeof *extent; i++) {
        gemm g =
            product(extent[i][0], extent[i][1], extent[i][2], _i & 4 ? CUDA_R_16BF : CUDA_R_32F, 0,
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
        ck_assert_int_eq(g.n_found, want ? 0 : 3); /* three shapes of a cluster */
        forget(&g);
    }
}
END_TEST

/* ---- scales ---- */

enum {
    SCALAR = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
    ROWS = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
    RUNS = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
    TILES = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
    MX = CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0,
    SCALES = 8192 /* bytes of an array of them */
};

static void set_modes(gemm *g, int a, int b)
{
    set(g, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &a, sizeof a);
    set(g, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &b, sizeof b);
}

/* Where the documentation has the scale of row o of an operand, of k's element x; `rows` in all, k
 * elements. */
static int64_t documented(int mode, int64_t o, int64_t x, int64_t rows, int64_t k)
{
    const int64_t l4 = (k + 511) / 512 * 4; /* L rounded up to 4 */
    switch (mode) {
    case ROWS: return o;
    case RUNS: return x / 128 * rows + o;
    case TILES: return o / 128 * l4 + x / 128;
    case MX:
        return (o / 128 * ((k + 127) / 128) + x / 128) * 512 + o % 32 * 16 + o / 32 % 4 * 4 +
               x / 32 % 4;
    default: return 0;
    }
}

/* Powers of two, so that sums stay exact; beyond the last scale NaN, or what MX must have there,
 * zero. */
static CUdeviceptr random_scales(int mode, int64_t rows, int64_t k, float *value, uint32_t seed)
{
    static uint8_t codes[SCALES];
    for (int64_t i = 0; i < SCALES / 4; i++)
        value[i] = mode == MX ? 0 : NAN;
    memset(codes, 0, sizeof codes);
    ck_assert_int_lt(documented(mode, rows - 1, k - 1, rows, k), mode == MX ? SCALES : SCALES / 4);
    for (int64_t o = 0; o < rows; o++)
        for (int64_t x = 0; x < k; x += 16) {
            const int64_t at = documented(mode, o, x, rows, k);
            const uint32_t bits = (uint32_t)at * 2654435761u + seed;
            const int exponent = (int)(bits >> 28) % 5 - 2;
            codes[at] = (uint8_t)(127 + exponent);
            if (mode != MX)
                value[at] = ldexpf(1, exponent);
        }
    return emu_upload(&e, mode == MX ? (void *)codes : value, SCALES);
}

static float scale_value(int mode, const float *value, int64_t at, uint32_t seed)
{
    if (mode != MX)
        return value[at];
    return ldexpf(1, (int)(((uint32_t)at * 2654435761u + seed) >> 28) % 5 - 2);
}

static int multiply(gemm *g, const matrix *a, const matrix *b, CUdeviceptr d)
{
    const float alpha = 1, beta = 0;
    return lt.cublasLtMatmul(handle, g->desc, &alpha, (void *)(uintptr_t)a->device, g->layout_a,
                             (void *)(uintptr_t)b->device, g->layout_b, &beta, (void *)(uintptr_t)d,
                             g->layout_d, (void *)(uintptr_t)d, g->layout_d, &g->found[0].algo,
                             NULL, 0, e.stream);
}

static const int scaled[][3] = {{ROWS, ROWS, 90}, {RUNS, RUNS, 90}, {RUNS, TILES, 90},
                                {TILES, RUNS, 90}, {MX, MX, 100},   {MX, MX, 120}};

START_TEST(scale_modes)
{
    static float got[160 * 144], value[2][SCALES / 4];
    const int *mode = scaled[_i];
    setenv("FP8C_EMULATOR_SM", mode[2] == 90 ? "90" : mode[2] == 100 ? "100" : "120", 1);
    gemm g = product(160, 144, 656, CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_32F);
    matrix a = integers(g.a, g.k, g.m, g.lda, 1), b = integers(g.b, g.k, g.n, g.ldb, 2);
    const CUdeviceptr where[2] = {random_scales(mode[0], g.m, g.k, value[0], 3),
                                  random_scales(mode[1], g.n, g.k, value[1], 4)};
    const CUdeviceptr d = emu_alloc(&e, sizeof got);
    setenv("FP8C_EMULATOR_SM", "89", 1);
    ck_assert_int_eq(ask(&g), 0);
    set(&g, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &where[0], sizeof where[0]);
    set(&g, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &where[1], sizeof where[1]);
    set_modes(&g, mode[0], mode[1]);
    ck_assert_int_eq(multiply(&g, &a, &b, d), CUBLAS_STATUS_NOT_SUPPORTED);
    setenv("FP8C_EMULATOR_SM", mode[2] == 90 ? "90" : mode[2] == 100 ? "100" : "120", 1);
    ck_assert_int_eq(multiply(&g, &a, &b, d), 0);
    emu_download(&e, got, d, sizeof got);
    for (int64_t j = 0; j < g.n; j++)
        for (int64_t i = 0; i < g.m; i++) {
            float sum = 0;
            for (int64_t k = 0; k < g.k; k++)
                sum += at(&a, true, g.lda, i, k) *
                       scale_value(mode[0], value[0], documented(mode[0], i, k, g.m, g.k), 3) *
                       at(&b, false, g.ldb, k, j) *
                       scale_value(mode[1], value[1], documented(mode[1], j, k, g.n, g.k), 4);
            if (got[j * g.m + i] != sum)
                ck_abort_msg("[%d, %d]: %g, not %g", (int)i, (int)j, (double)got[j * g.m + i],
                             (double)sum);
        }
    free(a.value);
    free(b.value);
    forget(&g);
}
END_TEST

/* Which modes go together, and where: by compute capability, bits 1 sm_89, 2 sm_90, 4 sm_100, 8
 * sm_120. */
static const struct {
    int a, b, where;
} together[] = {
    {SCALAR, SCALAR, 15}, {ROWS, ROWS, 2},   {RUNS, RUNS, 2}, {RUNS, TILES, 2},
    {TILES, RUNS, 2},     {TILES, TILES, 0}, {MX, MX, 12},    {SCALAR, ROWS, 0},
    {ROWS, RUNS, 0},      {MX, RUNS, 0},     {SCALAR, MX, 0}, {ROWS, SCALAR, 0},
};

START_TEST(modes_that_go_together)
{
    static const char *const sm[] = {"89", "90", "100", "120"};
    static const uint8_t zeros[4096];
    setenv("FP8C_EMULATOR_SM", sm[_i], 1);
    for (size_t i = 0; i < sizeof together / sizeof *together; i++) {
        gemm g = product(32, 32, 32, CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_16BF);
        matrix a = integers(g.a, g.k, g.m, g.lda, 1);
        const CUdeviceptr d = emu_alloc(&e, 32 * 32 * 2),
                          scale = emu_upload(&e, zeros, sizeof zeros);
        ck_assert_int_eq(ask(&g), 0);
        set(&g, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scale, sizeof scale);
        set(&g, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &scale, sizeof scale);
        set_modes(&g, together[i].a, together[i].b);
        const bool can = together[i].where >> _i & 1;
        ck_assert_msg((multiply(&g, &a, &a, d) == 0) == can, "row %zu on sm_%s", i, sm[_i]);
        const bool blocks = together[i].a != SCALAR && together[i].a != ROWS;
        if (can &&
            blocks) { /* that must begin at 16 bytes; fast accumulation is not for f32 ones */
            const CUdeviceptr odd = scale + 8;
            const int8_t fast = 1;
            set(&g, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &odd, sizeof odd);
            ck_assert_int_eq(multiply(&g, &a, &a, d), CUBLAS_STATUS_NOT_SUPPORTED);
            set(&g, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &scale, sizeof scale);
            set(&g, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
            ck_assert_int_eq(multiply(&g, &a, &a, d) == 0, together[i].a == MX);
        }
        ck_assert_int_eq(e.cu.cuStreamSynchronize(e.stream), 0);
        free(a.value);
        forget(&g);
    }
}
END_TEST

/* An array in host memory, one that is too short, one whose padding is not zero: faults that show
 * later. */
START_TEST(faults_of_scales)
{
    static float got[32 * 32];
    _Alignas(16) static uint8_t host[512];
    setenv("FP8C_EMULATOR_SM", "100", 1);
    gemm g = product(32, 32, 32, CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_32F);
    matrix a = integers(g.a, g.k, g.m, g.lda, 1);
    memset(host, _i == 2, sizeof host);
    const CUdeviceptr d = emu_alloc(&e, sizeof got), good = emu_upload(&e, host, 512),
                      bad = _i == 0   ? (CUdeviceptr)(uintptr_t)host
                            : _i == 1 ? emu_upload(&e, host, 128)
                                      : good;
    ck_assert_int_eq(ask(&g), 0);
    set(&g, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &bad, sizeof bad);
    set(&g, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &good, sizeof good);
    set_modes(&g, MX, MX);
    ck_assert_int_eq(multiply(&g, &a, &a, d), 0);
    ck_assert_int_eq(e.cu.cuStreamSynchronize(e.stream),
                     _i == 2 ? CUDA_ERROR_LAUNCH_FAILED : CUDA_ERROR_ILLEGAL_ADDRESS);
    free(a.value);
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
    ck_assert_int_eq(g.n_found, 4);
    static const int want[] = {CUBLASLT_REDUCTION_SCHEME_INPLACE,
                               CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
                               CUBLASLT_REDUCTION_SCHEME_NONE};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(lt.cublasLtMatmulAlgoConfigGetAttribute(
                             &g.found[i].algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                             sizeof scheme, &written),
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
        ck_assert_int_eq(
            lt.cublasLtMatmul(handle, g.desc, &alpha, (void *)(uintptr_t)a.device, g.layout_a,
                              i ? (void *)host : (void *)(uintptr_t)a.device, g.layout_b, &beta,
                              (void *)(uintptr_t)d, g.layout_d, (void *)(uintptr_t)d, g.layout_d,
                              &g.found[0].algo, NULL, 0, e.stream),
            i ? 0 : CUBLAS_STATUS_EXECUTION_FAILED);
    ck_assert_int_eq(e.cu.cuStreamSynchronize(e.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    free(a.value);
    forget(&g);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("emulator_gemm");
    TCase *tc = tcase_create("emulator_gemm");
    suite_add_tcase(suite, tc);
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, fp8_products, 0, 12);
    tcase_add_loop_test(tc, wide_products, 0, 16);
    tcase_add_loop_test(tc, refusals, 0, 4);
    tcase_add_loop_test(tc, scale_modes, 0, sizeof scaled / sizeof *scaled);
    tcase_add_loop_test(tc, modes_that_go_together, 0, 4);
    tcase_add_loop_test(tc, faults_of_scales, 0, 3);
    tcase_add_test(tc, proposals);
    tcase_add_test(tc, mistakes);
    return suite;
}
