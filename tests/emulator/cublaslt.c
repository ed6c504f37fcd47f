/* The functions of cuBLASLt that the product uses. What the real library refuses is refused with
 * the same status (cublaslt_limits.c). Where the real answer depends on which kernels the library
 * has, this one behaves as if it had none. */
#include "tests/emulator/common.h"
#include "tests/emulator/cublaslt.h"
#include "tests/emulator/gemm.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)
F8_CUBLASLT_SYMBOLS(F8_EMU_PROTOTYPE)
int64_t f8_emulator_loose_products(void); /* so many ran by what is not deterministic */
#pragma GCC visibility pop

enum { VERSION = 130100, MAGIC = 0x66386c74 };

static _Atomic int64_t loose_products;

int64_t f8_emulator_loose_products(void)
{
    return loose_products;
}

struct cublasLtContext {
    uint64_t magic;
};

struct f8_cublaslt_preference {
    uint64_t workspace;
    uint32_t schemes, alignment[4];
};

/* ---- the driver that this belongs to ---- */

typedef struct driver {
    CUresult (*enqueue)(CUstream, int (*)(const void *), const void *, size_t);
    int (*is_device)(const void *, size_t);
    int (*sm)(void);
    CUresult (*current)(CUcontext *);
    int64_t (*count)(const char *);
} driver;

static bool find_driver(driver *d)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!lib)
        return false;
    *(void **)&d->enqueue = dlsym(lib, "f8_emulator_enqueue");
    *(void **)&d->is_device = dlsym(lib, "f8_emulator_is_device");
    *(void **)&d->sm = dlsym(lib, "f8_emulator_sm");
    *(void **)&d->current = dlsym(lib, "cuCtxGetCurrent");
    *(void **)&d->count = dlsym(lib, "f8_emulator_count");
    dlclose(lib);
    return d->enqueue && d->is_device && d->sm && d->current && d->count;
}

/* Whether the context of the first handle lives: the real library keeps state there as long as it
 * is mapped. */
static bool has_context(const driver *d)
{
    static _Atomic int64_t first = -1;
    int64_t none = -1;
    const int64_t now = d->count("lost context");
    if (atomic_compare_exchange_strong(&first, &none, now) || none == now)
        return true;
    f8_emu_note("cuBLASLt has state in a primary context that was destroyed");
    return false;
}

/* ---- how each call begins ---- */

static cublasStatus_t fails(const char *function)
{
    int code = CUBLAS_STATUS_INTERNAL_ERROR;
    return f8_emu_fails(function, &code) ? code : CUBLAS_STATUS_SUCCESS;
}
#define F8_EMU_MAY_FAIL()                              \
    do {                                               \
        const cublasStatus_t asked_ = fails(__func__); \
        if (asked_)                                    \
            return asked_;                             \
    } while (0)

size_t cublasLtGetVersion(void)
{
    return VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    static const struct {
        const char *name;
        int value;
    } values[] = {
#define ROW(name, value) {#name, value},
        F8_CUBLASLT_VALUES(ROW)
#undef ROW
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i].value == status && strncmp(values[i].name, "CUBLAS_STATUS_", 14) == 0)
            return values[i].name;
    return "CUBLAS_STATUS unknown";
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    F8_EMU_MAY_FAIL();
    driver d;
    CUcontext context = NULL;
    if (!find_driver(&d) || d.current(&context) || !context)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!has_context(&d))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    *handle = malloc(sizeof **handle);
    if (!*handle)
        return CUBLAS_STATUS_ALLOC_FAILED;
    (*handle)->magic = MAGIC;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    F8_EMU_MAY_FAIL();
    if (!handle || handle->magic != MAGIC)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->magic = 0;
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- descriptors ---- */

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType scale_type)
{
    F8_EMU_MAY_FAIL();
    *out = calloc(1, sizeof **out);
    if (!*out)
        return CUBLAS_STATUS_ALLOC_FAILED;
    (*out)->compute = compute;
    (*out)->scale_type = scale_type;
    (*out)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    (*out)->bias_type = -1; /* D's */
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t bytes)
{
    F8_EMU_MAY_FAIL();
    const struct {
        int which;
        void *to;
        size_t bytes;
    } field[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &d->trans_a, 4},
        {CUBLASLT_MATMUL_DESC_TRANSB, &d->trans_b, 4},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &d->epilogue, 4},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &d->bias, sizeof d->bias},
        {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &d->bias_type, 4},
        {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &d->scale_a, sizeof d->scale_a},
        {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &d->scale_b, sizeof d->scale_b},
        {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &d->mode_a, 4},
        {CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &d->mode_b, 4},
        {CUBLASLT_MATMUL_DESC_FAST_ACCUM, &d->fast, 1},
    };
    for (size_t i = 0; i < sizeof field / sizeof *field; i++)
        if (field[i].which == which) {
            if (!value || bytes != field[i].bytes)
                return CUBLAS_STATUS_INVALID_VALUE;
            memcpy(field[i].to, value, bytes);
            return CUBLAS_STATUS_SUCCESS;
        }
    f8_emu_note("cublasLtMatmulDescSetAttribute: attribute %d is not emulated", which);
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t stride)
{
    F8_EMU_MAY_FAIL();
    *out = malloc(sizeof **out);
    if (!*out)
        return CUBLAS_STATUS_ALLOC_FAILED;
    **out = (struct f8_cublaslt_layout){type, (int64_t)rows, (int64_t)columns, stride, 1, 0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

/* Column-major and nothing else. */
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t which,
                                                const void *value, size_t bytes)
{
    F8_EMU_MAY_FAIL();
    int32_t x;
    if (layout && value && which == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET &&
        bytes == sizeof layout->next) {
        memcpy(&layout->next, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    if (!layout || !value || bytes != sizeof x)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&x, value, sizeof x);
    if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && x >= 1)
        layout->batch = x;
    else if (which != CUBLASLT_MATRIX_LAYOUT_ORDER || x != 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    F8_EMU_MAY_FAIL();
    *out = malloc(sizeof **out);
    if (!*out)
        return CUBLAS_STATUS_ALLOC_FAILED;
    **out = (struct f8_cublaslt_preference){0, 7, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void *value, size_t bytes)
{
    F8_EMU_MAY_FAIL();
    void *to = NULL;
    size_t wanted = 4;
    if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        to = &p->workspace;
        wanted = 8;
    } else if (which == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
        to = &p->schemes;
    } else if (which >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
               which <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES) {
        to = &p->alignment[which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES];
    }
    if (!to || !value || bytes != wanted)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- algorithms ---- */

/* Four are proposed when the preference lets them: one that splits k and adds in place (the first,
 * as it may be on a device), one that splits k in the workspace, one that does not split, one that
 * rounds the parts to a result's type that is not f32. With other stages where columns have gaps
 * between them, as it may be on a device too. data[]: */
enum {
    ALGO_MAGIC,
    ALGO_ID,
    ALGO_SCHEME,
    ALGO_SPLIT,
    ALGO_WORKSPACE,
    ALGO_ALIGNMENT,
    ALGO_STAGES, /* with the cluster's shape above it */
    ALGO_CLUSTER = 32 /* bits to shift ALGO_STAGES */
};

static cublasLtMatmulHeuristicResult_t propose(int id, int scheme, int split, size_t workspace,
                                               uint32_t alignment, bool gaps)
{
    cublasLtMatmulHeuristicResult_t r = {.workspaceSize = workspace, .wavesCount = 1.0f};
    r.algo.data[ALGO_MAGIC] = MAGIC;
    r.algo.data[ALGO_ID] = (uint64_t)id;
    r.algo.data[ALGO_SCHEME] = (uint64_t)scheme;
    r.algo.data[ALGO_SPLIT] = (uint64_t)split;
    r.algo.data[ALGO_WORKSPACE] = workspace;
    r.algo.data[ALGO_ALIGNMENT] = alignment;
    r.algo.data[ALGO_STAGES] = gaps ? 9 : 8;
    return r;
}

/* 16 bytes are no gap. */
static bool has_gaps(cublasLtMatrixLayout_t x)
{
    return (x->stride - (int64_t)x->rows) * f8_emu_element(x->type) >= 16;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *found)
{
    F8_EMU_MAY_FAIL();
    driver here;
    if (!handle || handle->magic != MAGIC || !find_driver(&here))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (wanted < 1 || !results || !found)
        return CUBLAS_STATUS_INVALID_VALUE;
    f8_emu_lt_problem p = {desc, a, b, c, d, here.sm(), 0, 0, 0};
    *found = 0;
    cublasStatus_t s = f8_emu_lt_shape(&p);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = f8_emu_lt_check(&p);
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    uint32_t alignment = 256;
    for (int i = 0; i < 4; i++)
        if (preference->alignment[i] < alignment)
            alignment = preference->alignment[i];
    if (f8_emu_lt_is_fp8(a->type) && alignment < F8_EMU_LT_ALIGNED)
        return f8_emu_lt_refuse("FP8 with pointers that need not be 16-byte aligned");
    const size_t partial = 2 * (size_t)(p.m * p.n) * 4;
    const bool gaps = has_gaps(a) || has_gaps(b) || has_gaps(d);
    int n = 0;
    if (preference->schemes & CUBLASLT_REDUCTION_SCHEME_INPLACE)
        results[n++] = propose(66, CUBLASLT_REDUCTION_SCHEME_INPLACE, 2, 0, alignment, gaps);
    if (n < wanted && (preference->schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) &&
        p.k >= 4 * p.m && p.k >= 4 * p.n && partial <= preference->workspace)
        results[n++] =
            propose(67, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2, partial, alignment, gaps);
    /* as Hopper's: the same but for the shape of the cluster, and one proposed twice */
    for (uint64_t cluster = 1; n < wanted && cluster <= 3; cluster++) {
        results[n] = propose(67, CUBLASLT_REDUCTION_SCHEME_NONE, 1, 0, alignment, gaps);
        results[n++].algo.data[ALGO_STAGES] |= (cluster < 3 ? cluster : 1) << ALGO_CLUSTER;
    }
    if (n < wanted && (preference->schemes & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) &&
        d->type != CUDA_R_32F && partial <= preference->workspace)
        results[n++] =
            propose(68, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, 2, partial, alignment, gaps);
    *found = n;
    return CUBLAS_STATUS_SUCCESS;
}

/* Any of ours can do any problem that there is. */
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    F8_EMU_MAY_FAIL();
    driver here;
    if (!handle || handle->magic != MAGIC || !find_driver(&here))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!algo || algo->data[ALGO_MAGIC] != MAGIC || !result)
        return CUBLAS_STATUS_INVALID_VALUE;
    f8_emu_lt_problem p = {desc, a, b, c, d, here.sm(), 0, 0, 0};
    cublasStatus_t s = f8_emu_lt_shape(&p);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = f8_emu_lt_check(&p);
    *result = (cublasLtMatmulHeuristicResult_t){.algo = *algo, .state = s, .wavesCount = 1.0f};
    result->workspaceSize = (size_t)algo->data[ALGO_WORKSPACE];
    return s;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t which,
                                                    void *value, size_t bytes, size_t *written)
{
    F8_EMU_MAY_FAIL();
    uint32_t x;
    const bool is_short = which == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
                          which == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
    const size_t size = is_short ? sizeof(uint16_t) : sizeof(uint32_t);
    if (!algo || algo->data[ALGO_MAGIC] != MAGIC || bytes != size)
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (which) {
    case CUBLASLT_ALGO_CONFIG_ID: x = (uint32_t)algo->data[ALGO_ID]; break;
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM: x = (uint32_t)algo->data[ALGO_SPLIT]; break;
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME: x = (uint32_t)algo->data[ALGO_SCHEME]; break;
    case CUBLASLT_ALGO_CONFIG_TILE_ID: x = 20; break;
    case CUBLASLT_ALGO_CONFIG_STAGES_ID: x = (uint32_t)algo->data[ALGO_STAGES]; break;
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
        x = (uint32_t)(algo->data[ALGO_STAGES] >> ALGO_CLUSTER);
        break;
    case CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING:
    case CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION:
    case CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID: x = 0; break;
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (is_short)
        memcpy(value, &(uint16_t){(uint16_t)x}, size);
    else
        memcpy(value, &x, size);
    if (written)
        *written = size;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- multiplying ---- */

static bool is_matrix(const driver *d, const f8_emu_matrix *x, int64_t rows, int64_t columns,
                      int64_t batch)
{
    const size_t element = (size_t)f8_emu_element(x->type);
    const int64_t last = (batch - 1) * x->next + (columns - 1) * x->stride;
    return d->is_device(x->p, (size_t)(last + rows) * element);
}

static bool are_scales(const driver *d, const f8_emu_matrix *x, int64_t outer, int64_t k)
{
    return !x->scale || d->is_device(x->scale, (size_t)f8_emu_scale_bytes(x->mode, outer, k));
}

/* Work of a stream: an f8_emu_gemm. A pointer that is not the device's is found out here, as there.
 */
static int multiply(const void *data)
{
    f8_emu_gemm g;
    driver d;
    memcpy(&g, data, sizeof g);
    if (!find_driver(&d))
        return CUDA_ERROR_UNKNOWN;
    const bool good =
        is_matrix(&d, &g.a, g.a.transposed ? g.k : g.m, g.a.transposed ? g.m : g.k, g.batch) &&
        is_matrix(&d, &g.b, g.b.transposed ? g.n : g.k, g.b.transposed ? g.k : g.n, g.batch) &&
        is_matrix(&d, &g.d, g.m, g.n, g.batch) &&
        (g.beta == 0.0f || is_matrix(&d, &g.c, g.m, g.n, g.batch)) &&
        are_scales(&d, &g.a, g.m, g.k) && are_scales(&d, &g.b, g.n, g.k) &&
        (!g.bias || d.is_device(g.bias, (size_t)g.m * (size_t)f8_emu_element(g.bias_type)));
    if (!good) {
        f8_emu_note("cublasLtMatmul: an operand is not in device memory");
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    if (!f8_emu_scale_padding_ok(g.a.scale, g.a.mode, g.m, g.k) ||
        !f8_emu_scale_padding_ok(g.b.scale, g.b.mode, g.n, g.k)) {
        f8_emu_note("cublasLtMatmul: UE8M0 scales out of bounds that are not zero");
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    for (int64_t i = 0; i < g.batch; i++) {
        if (!f8_emu_gemm_run(&g))
            return CUDA_ERROR_OUT_OF_MEMORY;
        f8_emu_matrix *const each[] = {&g.a, &g.b, &g.c, &g.d};
        for (int k = 0; k < 4; k++)
            each[k]->p = (char *)each[k]->p + each[k]->next * f8_emu_element(each[k]->type);
    }
    return CUDA_SUCCESS;
}

static bool aligned(const void *p, uint64_t bytes)
{
    return (uintptr_t)p % bytes == 0;
}

/* Of blocks; a vector needs to be there. */
static bool scales_aligned(int mode, const void *scale)
{
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F)
        return true;
    return scale && aligned(scale, mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F ? 4 : 16);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t layout_a, const void *b,
                              cublasLtMatrixLayout_t layout_b, const void *beta, const void *c,
                              cublasLtMatrixLayout_t layout_c, void *d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t s)
{
    F8_EMU_MAY_FAIL();
    driver here;
    if (!handle || handle->magic != MAGIC || !find_driver(&here))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!has_context(&here))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    f8_emu_lt_problem p = {desc, layout_a, layout_b, layout_c, layout_d, here.sm(), 0, 0, 0};
    cublasStatus_t r = f8_emu_lt_shape(&p);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = f8_emu_lt_check(&p);
    if (r != CUBLAS_STATUS_SUCCESS)
        return r;
    /* Without an algorithm the library asks its heuristic itself: nothing of ours does so. */
    if (!alpha || !beta || !a || !b || !d || !algo || algo->data[ALGO_MAGIC] != MAGIC)
        return CUBLAS_STATUS_INVALID_VALUE;
    const uint64_t alignment = algo->data[ALGO_ALIGNMENT];
    if (!aligned(a, alignment) || !aligned(b, alignment) || !aligned(c, alignment) ||
        !aligned(d, alignment) || (workspace && !aligned(workspace, 256)))
        return f8_emu_lt_refuse("a pointer less aligned than the preference said");
    if (algo->data[ALGO_WORKSPACE] > workspace_bytes ||
        (algo->data[ALGO_WORKSPACE] && !here.is_device(workspace, algo->data[ALGO_WORKSPACE])))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!scales_aligned(desc->mode_a, desc->scale_a) ||
        !scales_aligned(desc->mode_b, desc->scale_b))
        return f8_emu_lt_refuse("scales of blocks that begin at no multiple of 16 bytes, or none");
    f8_emu_gemm g = {
        .m = p.m,
        .n = p.n,
        .k = p.k,
        .batch = layout_d->batch,
        .a = {(void *)(uintptr_t)a, layout_a->type, layout_a->stride, desc->trans_a == CUBLAS_OP_T,
              desc->scale_a, desc->mode_a, layout_a->next},
        .b = {(void *)(uintptr_t)b, layout_b->type, layout_b->stride, desc->trans_b == CUBLAS_OP_T,
              desc->scale_b, desc->mode_b, layout_b->next},
        .c = {(void *)(uintptr_t)c, layout_c->type, layout_c->stride, false, NULL, 0,
              layout_c->next},
        .d = {d, layout_d->type, layout_d->stride, false, NULL, 0, layout_d->next},
        .bias = desc->epilogue == CUBLASLT_EPILOGUE_BIAS ? desc->bias : NULL,
        .bias_type = desc->bias_type == -1 ? layout_d->type : desc->bias_type,
        .alpha = *(const float *)alpha,
        .beta = *(const float *)beta,
    };
    const uint64_t scheme = algo->data[ALGO_SCHEME];
    loose_products += scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE ||
                      scheme == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    return here.enqueue(s, multiply, &g, sizeof g) == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS
                                                                   : CUBLAS_STATUS_EXECUTION_FAILED;
}
