/* GEMMs on cuBLASLt: see cublaslt.h. */
#include "runtime/cuda/cublaslt.h"

#include <stdio.h>
#include <string.h>

#include "runtime/cuda/internal.h"

struct f8_cublaslt_gemm {
    f8_cublaslt_gemm *next;
    f8_gemm_desc desc;
    int alignment;
    int64_t workspace; /* bytes allowed */
    bool loose;        /* one of the algorithms that are not deterministic, and no other */
    cublasLtMatmulDesc_t matmul;
    cublasLtMatrixLayout_t a, b, c; /* in cuBLASLt's order: its A is our B */
    bool tried;                     /* f8_cublaslt_first_run */
    bool unusual;                   /* the strides of an operand are greater than its rows need */
    cublasLtMatrixLayout_t usual[3]; /* if so: the layouts with usual strides */
    cublasLtMatmulAlgo_t algo;
    size_t used; /* workspace bytes the algorithm needs */
    f8_gemm_tuning offered[F8_CUBLASLT_ANSWERS]; /* the deterministic algorithms; loose: the others */
    int n_offered;
    char text[240];
};

static bool same_problem(const f8_gemm_desc *x, const f8_gemm_desc *y)
{
    return f8_gemm_tuning_equal(&x->tuning, &y->tuning) && x->m == y->m && x->n == y->n &&
           x->k == y->k && x->lda == y->lda && x->ldb == y->ldb && x->ldc == y->ldc &&
           x->batch == y->batch && x->stride_a == y->stride_a && x->stride_b == y->stride_b &&
           x->stride_c == y->stride_c && x->a == y->a && x->b == y->b && x->c == y->c &&
           x->trans_a == y->trans_a && x->trans_b == y->trans_b && x->accumulate == y->accumulate &&
           x->bias == y->bias && x->has_alpha == y->has_alpha &&
           x->fast_accumulate == y->fast_accumulate &&
           f8_granularity_equal(x->scale_a, y->scale_a) &&
           f8_granularity_equal(x->scale_b, y->scale_b) && x->scale == y->scale;
}

static bool has_scalars(const f8_gemm_desc *d)
{
    return f8_granularity_equal(d->scale_a, f8_per_tensor) &&
           f8_granularity_equal(d->scale_b, f8_per_tensor);
}

static cudaDataType data_type(f8_dtype d)
{
    switch (d) {
    case F8_BF16: return CUDA_R_16BF;
    case F8_E4M3: return CUDA_R_8F_E4M3;
    case F8_E5M2: return CUDA_R_8F_E5M2;
    default: return CUDA_R_32F; /* f8_cublaslt_supports let nothing else through */
    }
}

/* ---- descriptors ---- */

#define LT(call, ...)                                                                              \
    F8_TRY(f8_cublaslt_check(cuda, cuda->lt.call(__VA_ARGS__), diag, #call " of %s", what))

static f8_status set_attribute(f8_cuda *cuda, f8_cublaslt_gemm *g, int which, const void *value,
                               size_t bytes, const char *what, f8_diag *diag)
{
    LT(cublasLtMatmulDescSetAttribute, g->matmul, which, value, bytes);
    return F8_OK;
}

/* A row-major [rows, columns] is a column-major [columns, rows] of the same stride. */
static f8_status make_layout(f8_cuda *cuda, cublasLtMatrixLayout_t *out, f8_dtype type,
                             int64_t rows, int64_t columns, int64_t stride, const char *what,
                             f8_diag *diag)
{
    LT(cublasLtMatrixLayoutCreate, out, data_type(type), (uint64_t)columns, (uint64_t)rows, stride);
    return F8_OK;
}

/* `batch` matrices, `stride` elements from one to the next. */
static f8_status set_batch(f8_cuda *cuda, cublasLtMatrixLayout_t layout, int64_t batch,
                           int64_t stride, const char *what, f8_diag *diag)
{
    const int32_t count = (int32_t)batch;
    LT(cublasLtMatrixLayoutSetAttribute, layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
       sizeof count);
    LT(cublasLtMatrixLayoutSetAttribute, layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
       &stride, sizeof stride);
    return F8_OK;
}

/* The stride that rows would have alone: the least that keeps their beginning at 16 bytes, if these
 * begin so. */
static int64_t usual_stride(int64_t columns, f8_dtype type, int64_t stride)
{
    const int64_t by = 16 / (int64_t)f8_dtype_size(type);
    return stride % by ? stride : f8_aligned(columns, by);
}

static f8_status make_layouts(f8_cuda *cuda, f8_cublaslt_gemm *g, const char *what, f8_diag *diag)
{
    const f8_gemm_desc *d = &g->desc;
    const struct {
        cublasLtMatrixLayout_t *to;
        f8_dtype type;
        int64_t rows, columns, stride, next;
    } m[] = {{&g->a, d->b, d->trans_b ? d->n : d->k, d->trans_b ? d->k : d->n, d->ldb, d->stride_b},
             {&g->b, d->a, d->trans_a ? d->k : d->m, d->trans_a ? d->m : d->k, d->lda, d->stride_a},
             {&g->c, d->c, d->m, d->n, d->ldc, d->stride_c}};
    for (int i = 0; i < 3; i++) {
        F8_TRY(make_layout(cuda, m[i].to, m[i].type, m[i].rows, m[i].columns, m[i].stride, what,
                           diag));
        if (d->batch > 1)
            F8_TRY(set_batch(cuda, *m[i].to, d->batch, m[i].next, what, diag));
        g->unusual |= usual_stride(m[i].columns, m[i].type, m[i].stride) != m[i].stride;
    }
    for (int i = 0; i < 3 && g->unusual; i++) {
        const int64_t usual = usual_stride(m[i].columns, m[i].type, m[i].stride);
        F8_TRY(
            make_layout(cuda, &g->usual[i], m[i].type, m[i].rows, m[i].columns, usual, what, diag));
        if (d->batch > 1)
            F8_TRY(set_batch(cuda, g->usual[i], d->batch, m[i].next ? m[i].rows * usual : 0, what,
                             diag));
    }
    return F8_OK;
}

static f8_status set_scales(f8_cuda *cuda, f8_cublaslt_gemm *g, CUdeviceptr a_scale,
                            CUdeviceptr b_scale, const char *what, f8_diag *diag)
{
    F8_TRY(set_attribute(cuda, g, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &b_scale, sizeof b_scale,
                         what, diag));
    return set_attribute(cuda, g, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &a_scale, sizeof a_scale,
                         what, diag);
}

static f8_status set_scale_modes(f8_cuda *cuda, f8_cublaslt_gemm *g, const char *what,
                                 f8_diag *diag)
{
    const int32_t a = f8_cublaslt_scale_mode(&g->desc, true),
                  b = f8_cublaslt_scale_mode(&g->desc, false);
    F8_TRY(set_attribute(cuda, g, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &a, sizeof a, what, diag));
    return set_attribute(cuda, g, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &b, sizeof b, what, diag);
}

static f8_status set_bias(f8_cuda *cuda, f8_cublaslt_gemm *g, CUdeviceptr bias, const char *what,
                          f8_diag *diag)
{
    return set_attribute(cuda, g, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias, what,
                         diag);
}

/* The heuristic may ask for the address of a bias, too. */
static f8_status set_epilogue(f8_cuda *cuda, f8_cublaslt_gemm *g, const char *what, f8_diag *diag)
{
    const int32_t epilogue = CUBLASLT_EPILOGUE_BIAS, type = CUDA_R_16BF;
    F8_TRY(set_attribute(cuda, g, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, what,
                         diag));
    F8_TRY(set_attribute(cuda, g, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type, what,
                         diag));
    return set_bias(cuda, g, 256, what, diag);
}

static f8_status describe_problem(f8_cuda *cuda, f8_cublaslt_gemm *g, const char *what,
                                  f8_diag *diag)
{
    const f8_gemm_desc *d = &g->desc;
    const int32_t op_a = d->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t op_b = d->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    LT(cublasLtMatmulDescCreate, &g->matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    F8_TRY(set_attribute(cuda, g, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a, what, diag));
    F8_TRY(set_attribute(cuda, g, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b, what, diag));
    if (f8_dtype_is_fp8(d->a)) {
        const int8_t fast = d->fast_accumulate;
        F8_TRY(set_attribute(cuda, g, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast, what,
                             diag));
    }
    /* The heuristic may ask whether there are scales; it does not read them. One for the tensor is
     * what the library expects if it is told nothing. */
    if (d->has_alpha) {
        F8_TRY(set_scales(cuda, g, 256, 256, what, diag));
        if (!has_scalars(d))
            F8_TRY(set_scale_modes(cuda, g, what, diag));
    }
    if (d->bias)
        F8_TRY(set_epilogue(cuda, g, what, diag));
    return make_layouts(cuda, g, what, diag);
}

/* ---- choosing the algorithm ---- */

static f8_status ask(f8_cuda *cuda, f8_cublaslt_gemm *g, const cublasLtMatrixLayout_t *layout,
                     cublasLtMatmulPreference_t p, const char *what,
                     cublasLtMatmulHeuristicResult_t *result, int *n, f8_diag *diag)
{
    static const int alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint64_t workspace = (uint64_t)g->workspace;
    const uint32_t align = (uint32_t)g->alignment,
                   schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
                             (g->loose ? CUBLASLT_REDUCTION_SCHEME_INPLACE |
                                             CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE
                                       : 0);
    LT(cublasLtMatmulPreferenceSetAttribute, p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
       &workspace, sizeof workspace);
    LT(cublasLtMatmulPreferenceSetAttribute, p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
       &schemes, sizeof schemes);
    for (int i = 0; i < 4; i++)
        LT(cublasLtMatmulPreferenceSetAttribute, p, alignments[i], &align, sizeof align);
    /* "Not supported" means that the heuristic knows no algorithm. */
    const cublasStatus_t s =
        cuda->lt.cublasLtMatmulAlgoGetHeuristic(cuda->handle, g->matmul, layout[0], layout[1],
                                                layout[2], layout[2], p, F8_CUBLASLT_ANSWERS,
                                                result, n);
    if (s == CUBLAS_STATUS_NOT_SUPPORTED) {
        *n = 0;
        return F8_OK;
    }
    return f8_cublaslt_check(cuda, s, diag, "cublasLtMatmulAlgoGetHeuristic of %s", what);
}

static f8_status read_config(f8_cuda *cuda, const cublasLtMatmulAlgo_t *algo,
                             f8_cublaslt_config *c, const char *what, f8_diag *diag)
{
    size_t written = 0;
    LT(cublasLtMatmulAlgoConfigGetAttribute, algo, CUBLASLT_ALGO_CONFIG_ID, &c->id, sizeof c->id,
       &written);
#define X(field, word, attribute, type)                                                          \
    {                                                                                              \
        type value = 0;                                                                            \
        LT(cublasLtMatmulAlgoConfigGetAttribute, algo, CUBLASLT_ALGO_CONFIG_##attribute, &value,   \
           sizeof value, &written);                                                                \
        c->field = value;                                                                          \
    }
    F8_CUBLASLT_CONFIG(X)
#undef X
    return F8_OK;
}

/* The scheme "in place" adds parts to C in the order they arrive; "output type" rounds each part to
 * C's type. */
static bool deterministic(const f8_cublaslt_config *c)
{
    return c->scheme == CUBLASLT_REDUCTION_SCHEME_NONE ||
           c->scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

static const char *scheme_name(uint32_t scheme)
{
    switch (scheme) {
    case CUBLASLT_REDUCTION_SCHEME_NONE: return "none";
    case CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: return "f32 in workspace";
    case CUBLASLT_REDUCTION_SCHEME_INPLACE: return "in place";
    default: return "in the result's type";
    }
}

/* Checks that an algorithm proposed for the usual strides also works for these. */
static f8_status fits(f8_cuda *cuda, const f8_cublaslt_gemm *g, cublasLtMatmulHeuristicResult_t *r,
                      bool *out, const char *what, f8_diag *diag)
{
    cublasLtMatmulHeuristicResult_t checked = {0};
    const cublasStatus_t s = cuda->lt.cublasLtMatmulAlgoCheck(cuda->handle, g->matmul, g->a, g->b,
                                                              g->c, g->c, &r->algo, &checked);
    *out = s == CUBLAS_STATUS_SUCCESS;
    r->workspaceSize = checked.workspaceSize;
    if (s == CUBLAS_STATUS_NOT_SUPPORTED || s == CUBLAS_STATUS_INVALID_VALUE)
        return F8_OK;
    return f8_cublaslt_check(cuda, s, diag, "cublasLtMatmulAlgoCheck of %s", what);
}

/* Whether the desc's tuning asks for this algorithm and no other. */
static bool wanted(const f8_cublaslt_gemm *g, const f8_gemm_tuning *offered)
{
    return !memcmp(&g->desc.tuning.lt, &offered->lt, sizeof offered->lt);
}

static void describe_choice(f8_cublaslt_gemm *g, const f8_cublaslt_config *c)
{
    snprintf(g->text, sizeof g->text,
             "algorithm %u, tile %u, stages %u, split-k %u, reduction %s, swizzle %u, custom %u, "
             "inner shape %u, cluster %u, workspace %zu bytes",
             c->id, c->tile, c->stages, c->split_k, scheme_name(c->scheme), c->swizzle, c->custom,
             c->inner_shape, c->cluster_shape, g->used);
}

/* The first deterministic algorithm for those layouts, or the first that is what the tuning asks
 * for; loose: that one alone. `n` counts those proposed. */
static f8_status choose_for(f8_cuda *cuda, f8_cublaslt_gemm *g,
                            const cublasLtMatrixLayout_t *layout, bool *found, int *n,
                            const char *what, f8_diag *diag)
{
    cublasLtMatmulHeuristicResult_t result[F8_CUBLASLT_ANSWERS];
    memset(result, 0, sizeof result);
    cublasLtMatmulPreference_t p = NULL;
    LT(cublasLtMatmulPreferenceCreate, &p);
    const f8_status status = ask(cuda, g, layout, p, what, result, n, diag);
    cuda->lt.cublasLtMatmulPreferenceDestroy(p);
    F8_TRY(status);
    bool as_wanted = false;
    g->n_offered = 0;
    for (int i = 0; i < *n && i < F8_CUBLASLT_ANSWERS; i++) {
        f8_cublaslt_config c = {0};
        bool good = result[i].state == CUBLAS_STATUS_SUCCESS;
        if (good && layout == g->usual)
            F8_TRY(fits(cuda, g, &result[i], &good, what, diag));
        if (!good || result[i].workspaceSize > (size_t)g->workspace)
            continue;
        F8_TRY(read_config(cuda, &result[i].algo, &c, what, diag));
        if (deterministic(&c) == g->loose)
            continue;
        f8_gemm_tuning *offered = &g->offered[g->n_offered++];
        *offered = (f8_gemm_tuning){.lt = c};
        if ((*found || g->loose) && (as_wanted || !wanted(g, offered)))
            continue;
        as_wanted = wanted(g, offered);
        *found = true;
        g->algo = result[i].algo;
        g->used = result[i].workspaceSize;
        describe_choice(g, &c);
    }
    return F8_OK;
}

/* Chooses the algorithm as if operands and result lay on their own, though they may be parts of
 * wider matrices: so equal products have one algorithm, and the same bits. */
static f8_status choose(f8_cuda *cuda, f8_cublaslt_gemm *g, const char *what, f8_diag *diag)
{
    bool found = false;
    int n = 0;
    if (g->unusual)
        F8_TRY(choose_for(cuda, g, g->usual, &found, &n, what, diag));
    if (!found)
        F8_TRY(choose_for(cuda, g, (const cublasLtMatrixLayout_t[]){g->a, g->b, g->c}, &found, &n,
                          what, diag));
    const f8_gemm_desc *d = &g->desc;
    if (found || (g->loose && !d->tuning.lt.id)) /* the latter: only what is offered matters */
        return F8_OK;
    if (g->loose)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "cuBLASLt %s does not offer %s this algorithm",
                       cuda->library[F8_CUDA_CUBLASLT].version, what);
    return f8_fail(
        diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
        "cuBLASLt %s has no deterministic algorithm for %s (%lld x %lld x %lld, %s x %s -> %s%s, "
        "%lld bytes of workspace; it proposed %d)",
        cuda->library[F8_CUDA_CUBLASLT].version, what, (long long)d->m, (long long)d->n,
        (long long)d->k, f8_dtype_name(d->a), f8_dtype_name(d->b), f8_dtype_name(d->c),
        d->bias ? " with a bias" : "", (long long)g->workspace, n);
}

/* ---- life ---- */

f8_status f8_cublaslt_version(f8_cuda *cuda, const char **out, f8_diag *diag)
{
    F8_TRY(f8_cuda_cublaslt(cuda, diag));
    *out = cuda->library[F8_CUDA_CUBLASLT].version;
    return F8_OK;
}

static void destroy(f8_cuda *cuda, f8_cublaslt_gemm *g, const f8_allocator *allocator)
{
    const cublasLtMatrixLayout_t layout[] = {g->a,        g->b,        g->c,
                                             g->usual[0], g->usual[1], g->usual[2]};
    for (int i = 0; i < 6; i++)
        if (layout[i])
            cuda->lt.cublasLtMatrixLayoutDestroy(layout[i]);
    if (g->matmul)
        cuda->lt.cublasLtMatmulDescDestroy(g->matmul);
    allocator->free(allocator->user, g, sizeof *g);
}

static f8_status make(f8_cuda *cuda, f8_cublaslt_gemm *g, const char *what, f8_diag *diag)
{
    const f8_target *target = f8_target_for_sm(cuda->facts.sm);
    if (!target)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE, "there is no target for sm_%d",
                       cuda->facts.sm);
    f8_diag why = {0};
    const f8_status supported = f8_cublaslt_supports(target, &g->desc, &why);
    if (supported != F8_OK)
        return f8_fail(diag, supported, F8_NOWHERE, "%s: %s", what, why.text);
    F8_TRY(f8_cuda_cublaslt(cuda, diag));
    F8_TRY(f8_cuda_enter(cuda, diag));
    f8_status status = describe_problem(cuda, g, what, diag);
    if (status == F8_OK)
        status = choose(cuda, g, what, diag);
    f8_cuda_leave(cuda);
    return status;
}

static f8_status prepare(f8_cuda *cuda, f8_cublaslt_gemm **list, const f8_allocator *allocator,
                         const f8_gemm_desc *desc, int alignment, int64_t workspace, bool loose,
                         const char *what, f8_cublaslt_gemm **out, f8_diag *diag)
{
    *out = NULL;
    for (f8_cublaslt_gemm *g = *list; g; g = g->next)
        if (same_problem(&g->desc, desc) && g->alignment == alignment &&
            g->workspace == workspace && g->loose == loose) {
            *out = g;
            return F8_OK;
        }
    f8_cublaslt_gemm *g = allocator->alloc(allocator->user, sizeof *g, _Alignof(f8_cublaslt_gemm));
    if (!g)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       sizeof *g);
    *g = (f8_cublaslt_gemm){
        .desc = *desc, .alignment = alignment, .workspace = workspace, .loose = loose};
    const f8_status status = make(cuda, g, what, diag);
    if (status != F8_OK) {
        destroy(cuda, g, allocator);
        return status;
    }
    g->next = *list;
    *list = *out = g;
    return F8_OK;
}

f8_status f8_cublaslt_prepare(f8_cuda *cuda, f8_cublaslt_gemm **list, const f8_allocator *allocator,
                              const f8_gemm_desc *desc, int alignment, int64_t workspace,
                              const char *what, f8_cublaslt_gemm **out, f8_diag *diag)
{
    return prepare(cuda, list, allocator, desc, alignment, workspace, false, what, out, diag);
}

f8_status f8_cublaslt_prepare_loose(f8_cuda *cuda, f8_cublaslt_gemm **list,
                                    const f8_allocator *allocator, const f8_gemm_desc *desc,
                                    int alignment, int64_t workspace,
                                    const f8_cublaslt_config *config, const char *what,
                                    f8_cublaslt_gemm **out, f8_diag *diag)
{
    f8_gemm_desc with = *desc;
    with.tuning = (f8_gemm_tuning){.lt = *config};
    if (!config->id)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "%s: no algorithm is named", what);
    return prepare(cuda, list, allocator, &with, alignment, workspace, true, what, out, diag);
}

void f8_cublaslt_release_all(f8_cuda *cuda, f8_cublaslt_gemm **list, const f8_allocator *allocator)
{
    while (*list) {
        f8_cublaslt_gemm *g = *list;
        *list = g->next;
        destroy(cuda, g, allocator);
    }
}

f8_status f8_cublaslt_candidates(f8_cuda *cuda, const f8_allocator *allocator,
                                 const f8_gemm_desc *desc, int alignment, int64_t workspace,
                                 bool loose, const char *what, f8_gemm_tuning *out, int *n,
                                 f8_diag *diag)
{
    f8_cublaslt_gemm *list = NULL, *g;
    f8_gemm_desc plain = *desc;
    plain.tuning = (f8_gemm_tuning){0};
    *n = 0;
    const f8_status status =
        prepare(cuda, &list, allocator, &plain, alignment, workspace, loose, what, &g, diag);
    for (int i = 0; status == F8_OK && i < g->n_offered; i++)
        out[(*n)++] = g->offered[i];
    f8_cublaslt_release_all(cuda, &list, allocator);
    return status;
}

const char *f8_cublaslt_describe(const f8_cublaslt_gemm *g)
{
    return g->text;
}

/* ---- running ---- */

bool f8_cublaslt_first_run(f8_cublaslt_gemm *g)
{
    const bool first = !g->tried;
    g->tried = true;
    return first;
}

f8_status f8_cublaslt_run(f8_cuda *cuda, f8_cublaslt_gemm *g, const CUdeviceptr arg[F8_GEMM_ARGS],
                          CUdeviceptr workspace, void *stream, const char *what, f8_diag *diag)
{
    const bool adds = g->desc.accumulate && !arg[F8_GEMM_ADDS];
    const float alpha = 1.0f, beta = adds ? 1.0f : 0.0f;
    const CUdeviceptr a_scale = arg[F8_GEMM_SCALE_A], b_scale = arg[F8_GEMM_SCALE_B],
                      bias = arg[F8_GEMM_BIAS];
    if (g->desc.has_alpha && !has_scalars(&g->desc) &&
        (!a_scale || !b_scale || (a_scale | b_scale) % 16))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "%s: %s", what,
                       a_scale && b_scale
                           ? "an array of scales does not begin at a multiple of 16 bytes"
                           : "an array of scales is missing");
    if (g->desc.bias && (!bias || bias % 16))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "%s: the bias %s", what,
                       bias ? "does not begin at a multiple of 16 bytes" : "is missing");
    if (g->desc.has_alpha)
        F8_TRY(set_scales(cuda, g, a_scale, b_scale, what, diag));
    if (g->desc.bias)
        F8_TRY(set_bias(cuda, g, bias, what, diag));
#define AT(address) (void *)(uintptr_t)(address)
    void *const c = AT(arg[F8_GEMM_C]);
    LT(cublasLtMatmul, cuda->handle, g->matmul, &alpha, AT(arg[F8_GEMM_B]), g->a,
       AT(arg[F8_GEMM_A]), g->b, &beta, c, g->c, c, g->c, &g->algo, AT(workspace),
       (size_t)g->workspace, stream);
#undef AT
    return F8_OK;
}
