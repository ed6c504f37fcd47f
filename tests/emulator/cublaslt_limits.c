/* The products that the cuBLASLt stand-in supports: the documented limits of cublasLtMatmul. */
#include "tests/emulator/cublaslt.h"

#include "tests/emulator/common.h"
#include "tests/emulator/gemm.h"

cublasStatus_t f8_emu_lt_refuse(const char *why)
{
    f8_emu_note("cuBLASLt: %s", why);
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

/* The extents; they must agree. */
cublasStatus_t f8_emu_lt_shape(f8_emu_lt_problem *p)
{
    const bool ta = p->desc->trans_a == CUBLAS_OP_T, tb = p->desc->trans_b == CUBLAS_OP_T;
    p->m = ta ? p->a->columns : p->a->rows;
    p->k = ta ? p->a->rows : p->a->columns;
    p->n = tb ? p->b->rows : p->b->columns;
    const bool good = p->k == (tb ? p->b->columns : p->b->rows) && p->c->rows == p->m &&
                      p->c->columns == p->n && p->d->rows == p->m && p->d->columns == p->n &&
                      p->a->stride >= p->a->rows && p->b->stride >= p->b->rows &&
                      p->c->stride >= p->m && p->d->stride >= p->m && p->m > 0 && p->n > 0 &&
                      p->k > 0 && p->a->batch == p->d->batch && p->b->batch == p->d->batch &&
                      p->c->batch == p->d->batch;
    return good ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/* "Scaling Mode Support Overview" and the table of combinations of blocks. */
static cublasStatus_t check_modes(const f8_emu_lt_problem *p)
{
    const int a = p->desc->mode_a, b = p->desc->mode_b;
    const bool blocks_a = a == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ||
                          a == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    const bool blocks_b = b == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ||
                          b == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    if (blocks_a && blocks_b) {
        if (p->sm != 90)
            return f8_emu_lt_refuse("scales of 128-element blocks are sm_90's");
        if (a == b && a == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F)
            return f8_emu_lt_refuse("128 x 128 blocks on both sides");
        if (p->m % 4 || p->n % 4)
            return f8_emu_lt_refuse("scales of blocks: M or N is no multiple of 4");
        return p->desc->fast ? f8_emu_lt_refuse("scales of blocks with fast accumulation")
                             : CUBLAS_STATUS_SUCCESS;
    }
    if (a != b)
        return f8_emu_lt_refuse("two scale modes that don't go together");
    switch (a) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F: return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F:
        return p->sm == 90 ? CUBLAS_STATUS_SUCCESS
                           : f8_emu_lt_refuse("outer-vector scales are sm_90's");
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0:
        return p->sm >= 100 ? CUBLAS_STATUS_SUCCESS
                            : f8_emu_lt_refuse("UE8M0 scales before sm_100");
    default: return f8_emu_lt_refuse("this scale mode is not emulated");
    }
}

static cublasStatus_t check_scales(const f8_emu_lt_problem *p, bool fp8)
{
    const struct f8_cublaslt_matmul_desc *d = p->desc;
    if (fp8)
        return check_modes(p);
    return d->scale_a || d->scale_b || d->mode_a || d->mode_b
               ? f8_emu_lt_refuse("scales of operands that are not FP8")
               : CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_fp8(const f8_emu_lt_problem *p)
{
    const struct f8_cublaslt_matmul_desc *d = p->desc;
    if (p->d->batch > 1)
        return f8_emu_lt_refuse("FP8 in a batch is not emulated");
    if (p->sm < 89)
        return f8_emu_lt_refuse("FP8 before sm_89");
    if (!f8_emu_lt_is_fp8(p->a->type) || !f8_emu_lt_is_fp8(p->b->type))
        return f8_emu_lt_refuse("one operand FP8, the other not");
    if (p->a->type == CUDA_R_8F_E5M2 && p->b->type == CUDA_R_8F_E5M2)
        return f8_emu_lt_refuse("E5M2 by E5M2");
    if (p->sm / 10 != 10 && (d->trans_a != CUBLAS_OP_T || d->trans_b != CUBLAS_OP_N))
        return f8_emu_lt_refuse("FP8 here is TN only");
    if (p->m % F8_EMU_LT_ALIGNED || p->n % F8_EMU_LT_ALIGNED || p->k % F8_EMU_LT_ALIGNED ||
        p->a->stride % F8_EMU_LT_ALIGNED || p->b->stride % F8_EMU_LT_ALIGNED)
        return f8_emu_lt_refuse("an FP8 extent or stride that is no multiple of 16");
    if (p->d->stride * f8_emu_element(p->d->type) % F8_EMU_LT_ALIGNED ||
        p->c->stride * f8_emu_element(p->c->type) % F8_EMU_LT_ALIGNED)
        return f8_emu_lt_refuse("columns of C or D that begin at no multiple of 16 bytes");
    if (d->epilogue == CUBLASLT_EPILOGUE_BIAS && d->bias_type != CUDA_R_16BF &&
        (d->bias_type != -1 || p->d->type != CUDA_R_16BF))
        return f8_emu_lt_refuse("an FP8 GEMM's bias is bf16");
    return CUBLAS_STATUS_SUCCESS;
}

/* What no algorithm does. */
cublasStatus_t f8_emu_lt_check(const f8_emu_lt_problem *p)
{
    const struct f8_cublaslt_matmul_desc *d = p->desc;
    const bool fp8 = f8_emu_lt_is_fp8(p->a->type) || f8_emu_lt_is_fp8(p->b->type);
    if (d->compute != CUBLAS_COMPUTE_32F || d->scale_type != CUDA_R_32F)
        return f8_emu_lt_refuse("only 32F compute and scale types are emulated");
    if (d->epilogue != CUBLASLT_EPILOGUE_DEFAULT && d->epilogue != CUBLASLT_EPILOGUE_BIAS)
        return f8_emu_lt_refuse("this epilogue is not emulated");
    if (p->d->type != CUDA_R_32F && p->d->type != CUDA_R_16BF)
        return f8_emu_lt_refuse("this type of D is not emulated");
    if (p->c->type != p->d->type)
        return f8_emu_lt_refuse("C and D of two types");
    const cublasStatus_t scales = check_scales(p, fp8);
    if (scales)
        return scales;
    if (fp8)
        return check_fp8(p);
    if (p->a->type != p->b->type || (p->a->type != CUDA_R_16BF && p->a->type != CUDA_R_32F))
        return f8_emu_lt_refuse("operands of these types");
    if (p->a->type == CUDA_R_32F && p->d->type != CUDA_R_32F)
        return f8_emu_lt_refuse("f32 operands, D not f32");
    return CUBLAS_STATUS_SUCCESS;
}
