/* What cuBLASLt can multiply, known before anything runs: see cublaslt.h. The rules are those of
 * its documentation for cublasLtMatmul (CUDA 13), read for swapped operands: our B is its A. */
#include "runtime/cuda/cublaslt.h"

#include "runtime/cuda/api.h"

#define REFUSE(...) return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE, __VA_ARGS__)

static f8_status check_shape(const f8_gemm_desc *d, f8_diag *diag)
{
    const int64_t columns_a = d->trans_a ? d->m : d->k, columns_b = d->trans_b ? d->k : d->n;
    if (d->m < 1 || d->n < 1 || d->k < 1)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "a GEMM can't have m = %lld, n = %lld, k = %lld", (long long)d->m,
                       (long long)d->n, (long long)d->k);
    if (d->lda < columns_a || d->ldb < columns_b || d->ldc < d->n)
        return f8_fail(
            diag, F8_ERR_INPUT, F8_NOWHERE,
            "a GEMM's row strides %lld, %lld, %lld are less than its columns %lld, %lld, %lld",
            (long long)d->lda, (long long)d->ldb, (long long)d->ldc, (long long)columns_a,
            (long long)columns_b, (long long)d->n);
    if (d->m > INT32_MAX || d->n > INT32_MAX || d->k > INT32_MAX)
        REFUSE("cuBLASLt takes extents up to 2^31 - 1; this GEMM has m = %lld, n = %lld, k = %lld",
               (long long)d->m, (long long)d->n, (long long)d->k);
    if (!f8_gemm_batch_ok(d))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "no batch of %lld GEMMs has matrices %lld, %lld and %lld elements apart",
                       (long long)d->batch, (long long)d->stride_a, (long long)d->stride_b,
                       (long long)d->stride_c);
    return F8_OK;
}

/* ---- scales ---- */

static f8_scale_kind scale_kind(const f8_gemm_desc *d, bool second)
{
    return f8_scales_kind(&(f8_scales){.grain = second ? d->scale_b : d->scale_a,
                                       .dtype = d->scale,
                                       .k_is_rows = second ? !d->trans_b : d->trans_a});
}

int f8_cublaslt_scale_mode(const f8_gemm_desc *d, bool second)
{
    static const int mode[] = {
        [F8_SCALED_TENSOR] = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
        [F8_SCALED_ROWS] = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
        [F8_SCALED_RUNS] = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
        [F8_SCALED_TILES] = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
        [F8_SCALED_MX] = CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0,
        [F8_SCALED_OTHER] = -1,
    };
    return mode[scale_kind(d, second)];
}

/* Which combinations there are, and where: "Scaling Mode Support Overview". */
static f8_status check_kinds(const f8_target *t, f8_scale_kind a, f8_scale_kind b, f8_diag *diag)
{
    const unsigned lacks = f8_target_lacks(t, a, b);
    if (lacks & F8_LACKS_TWO_TILED)
        REFUSE("cuBLASLt has no FP8 GEMM of two operands with scales of 128 x 128 blocks: one must "
               "have 1 x 128");
    if (lacks & F8_LACKS_PAIR)
        REFUSE("cuBLASLt has no FP8 GEMM whose operands are scaled in two ways, except 1 x 128 "
               "with 128 x 128");
    if (lacks & F8_LACKS_ROWS)
        REFUSE("FP8 GEMMs on %s take no scale for each row and column of the result", t->name);
    if (lacks)
        REFUSE("FP8 GEMMs on %s take no %s", t->name,
               lacks & F8_LACKS_BLOCKS ? "scales of blocks of 128" : "f8e8m0 scales");
    return F8_OK;
}

static f8_status check_scales(const f8_target *t, const f8_gemm_desc *d, f8_diag *diag)
{
    char text[2][48];
    const f8_scale_kind a = scale_kind(d, false), b = scale_kind(d, true);
    if (a == F8_SCALED_OTHER || b == F8_SCALED_OTHER)
        REFUSE("cuBLASLt has no FP8 GEMM with %s scales of %s and %s", f8_dtype_name(d->scale),
               f8_granularity_print(d->scale_a, text[0], sizeof text[0]),
               f8_granularity_print(d->scale_b, text[1], sizeof text[1]));
    F8_TRY(check_kinds(t, a, b, diag));
    const bool blocks = a > F8_SCALED_ROWS;
    if (blocks && d->scale_layout != F8_SCALES_CUBLASLT)
        REFUSE("scales of blocks must lie as cuBLASLt reads them; these are a grid");
    if (blocks && d->scale == F8_F32 && d->fast_accumulate)
        REFUSE("an FP8 GEMM with f32 scales of blocks has no fast accumulation");
    return F8_OK;
}

/* ---- FP8 ---- */

static f8_status check_fp8(const f8_target *t, const f8_gemm_desc *d, f8_diag *diag)
{
    const int64_t multiple = t->fp8_multiple;
    const struct {
        const char *name;
        int64_t value;
    } extent[] = {{"m", d->m}, {"n", d->n}, {"k", d->k}, {"lda", d->lda}, {"ldb", d->ldb}};
    if (t->sm < 89)
        REFUSE("%s has no FP8 tensor cores", t->name);
    if (d->a == F8_E5M2 && d->b == F8_E5M2 && !t->fp8_e5m2_pair)
        REFUSE("cuBLASLt has no FP8 GEMM of two f8e5m2 operands; one must be f8e4m3");
    for (int i = 0; i < 5; i++)
        if (extent[i].value % multiple)
            REFUSE("an FP8 GEMM's %s must be a multiple of %lld on %s; it is %lld", extent[i].name,
                   (long long)multiple, t->name, (long long)extent[i].value);
    if (d->ldc * (int64_t)f8_dtype_size(d->c) % 16)
        REFUSE(
            "rows of an FP8 GEMM's result must begin at multiples of 16 bytes; ldc is %lld of %s",
            (long long)d->ldc, f8_dtype_name(d->c));
    if (t->fp8_tn && (d->trans_a || !d->trans_b))
        REFUSE("FP8 GEMMs on %s need k as the contiguous axis of both operands (trans_a = false, "
               "trans_b = true); this one has trans_a = %s, trans_b = %s",
               t->name, d->trans_a ? "true" : "false", d->trans_b ? "true" : "false");
    if (d->has_alpha)
        F8_TRY(check_scales(t, d, diag));
    if (d->bias && !f8_target_adds_bias(t, d->has_alpha ? scale_kind(d, true) : F8_SCALED_TENSOR))
        REFUSE("FP8 GEMMs on %s add no bias where scales cover blocks", t->name);
    return F8_OK;
}

static f8_status check_types(const f8_gemm_desc *d, bool fp8, f8_diag *diag)
{
    if (!fp8 && (d->a != d->b || (d->a != F8_F32 && d->a != F8_BF16)))
        REFUSE("cuBLASLt has no GEMM of %s x %s: operands are both f32, both bf16 or both FP8",
               f8_dtype_name(d->a), f8_dtype_name(d->b));
    if (d->c != F8_F32 && (d->c != F8_BF16 || d->a == F8_F32))
        REFUSE("a GEMM of %s x %s can't write %s: %s", f8_dtype_name(d->a), f8_dtype_name(d->b),
               f8_dtype_name(d->c), d->a == F8_F32 ? "only f32" : "only f32 and bf16");
    /* seen on Hopper: bf16(bf16(a b) + C) */
    if (d->accumulate && d->c == F8_BF16)
        REFUSE("cuBLASLt rounds a product to bf16 before it adds it to a bf16 C: add to f32");
    if (d->bias && (d->c != F8_BF16 || d->accumulate))
        REFUSE("a bias is added where C is bf16 and overwritten");
    if ((d->round_a || d->round_b))
        REFUSE("cuBLASLt does not round f32 operands to bf16 on the way in: cast them before");
    if (d->has_alpha && !fp8)
        REFUSE("scales are multiplied in by FP8 GEMMs only; this one is of %s x %s",
               f8_dtype_name(d->a), f8_dtype_name(d->b));
    return F8_OK;
}

f8_status f8_cublaslt_supports(const f8_target *target, const f8_gemm_desc *d, f8_diag *diag)
{
    if (target->kind != F8_TARGET_CUDA)
        REFUSE("cuBLASLt runs on CUDA targets; this is for %s", target->name);
    if (d->algorithm != F8_GEMM_AUTO && d->algorithm != F8_GEMM_CUBLASLT)
        REFUSE("GEMM algorithm %s is not one of cuBLASLt's", f8_gemm_algorithm_name(d->algorithm));
    F8_TRY(check_shape(d, diag));
    const bool fp8 = f8_dtype_is_fp8(d->a) && f8_dtype_is_fp8(d->b);
    if (fp8 && d->batch > 1)
        REFUSE("a batch of GEMMs is of f32 or bf16 operands, not of FP8");
    F8_TRY(check_types(d, fp8, diag));
    return fp8 ? check_fp8(target, d, diag) : F8_OK;
}
