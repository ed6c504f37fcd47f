/* Adds rows to the rows of a table that ids select, split by columns: see scatter.h. */
#include "codegen/cpu/scatter.h"

int64_t f8_cpu_scatter_tasks(int64_t columns)
{
    return (columns + F8_SCATTER_COLUMNS - 1) / F8_SCATTER_COLUMNS;
}

/* to[0..lanes) += from[0..lanes) under the mask */
static void add_vector(f8_llvm_module *m, f8_dtype dy, LLVMValueRef to, LLVMValueRef from,
                       LLVMValueRef mask)
{
    LLVMTypeRef narrow = dy == F8_BF16 ? m->i16 : m->f32;
    LLVMValueRef x = f8_ll_vload(m, narrow, from, mask, NULL);
    if (dy == F8_BF16)
        x = f8_ll_bf16_to_f32(m, x);
    LLVMValueRef sum = f8_ll_vload(m, m->f32, to, mask, NULL);
    f8_ll_vstore(m, m->ll->BuildFAdd(m->b, sum, x, ""), to, mask);
}

/* Columns [begin, end) of one position: whole vectors, then the rest. */
static void add_columns(f8_llvm_module *m, f8_dtype dy, LLVMValueRef to, LLVMValueRef from,
                        LLVMValueRef begin, LLVMValueRef end)
{
    const f8_llvm_api *ll = m->ll;
    LLVMTypeRef narrow = dy == F8_BF16 ? m->i16 : m->f32;
    LLVMValueRef count = ll->BuildSub(m->b, end, begin, "");
    LLVMValueRef whole = ll->BuildAnd(m->b, count, f8_ll_i64(m, ~(int64_t)(m->lanes - 1)), "");
    whole = ll->BuildAdd(m->b, begin, whole, "");
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, begin, whole, f8_ll_i64(m, m->lanes), NULL, 0);
    add_vector(m, dy, f8_ll_at(m, m->f32, to, l.index), f8_ll_at(m, narrow, from, l.index), NULL);
    f8_ll_loop_end(m, &l, NULL);
    f8_ll_if rest;
    f8_ll_if_begin(m, &rest, ll->BuildICmp(m->b, LLVMIntSLT, whole, end, ""));
    add_vector(m, dy, f8_ll_at(m, m->f32, to, whole), f8_ll_at(m, narrow, from, whole),
               f8_ll_mask(m, ll->BuildSub(m->b, end, whole, "")));
    f8_ll_if_end(m, &rest);
}

f8_status f8_cpu_scatter_emit(f8_llvm_module *m, f8_dtype dy, const char *symbol, f8_diag *d)
{
    const f8_llvm_api *ll = m->ll;
    if (dy != F8_F32 && dy != F8_BF16)
        return f8_fail(d, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "embedding_grad takes gradients of f32 or bf16, not %s", f8_dtype_name(dy));
    f8_ll_phase p;
    f8_ll_phase_begin(m, &p, symbol);
    LLVMValueRef table = f8_ll_phase_arg(m, &p, 0), ids = f8_ll_phase_arg(m, &p, 1),
                 grad = f8_ll_phase_arg(m, &p, 2), n = f8_ll_phase_int(m, &p, 0),
                 rows = f8_ll_phase_int(m, &p, 1), columns = f8_ll_phase_int(m, &p, 2),
                 table_stride = f8_ll_phase_int(m, &p, 3), grad_stride = f8_ll_phase_int(m, &p, 4);
    LLVMValueRef each = f8_ll_i64(m, F8_SCATTER_COLUMNS);
    LLVMValueRef begin = ll->BuildMul(m->b, p.begin, each, "");
    LLVMValueRef end = f8_ll_imin(m, ll->BuildMul(m->b, p.end, each, ""), columns);
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, f8_ll_i64(m, 0), n, f8_ll_i64(m, 1), NULL, 0);
    LLVMValueRef id = f8_ll_load(m, m->i32, f8_ll_at(m, m->i32, ids, l.index));
    id = ll->BuildSExt(m->b, id, m->i64, "");
    f8_ll_if inside;
    f8_ll_if_begin(m, &inside, ll->BuildICmp(m->b, LLVMIntULT, id, rows, ""));
    LLVMTypeRef narrow = dy == F8_BF16 ? m->i16 : m->f32;
    add_columns(m, dy, f8_ll_at(m, m->f32, table, ll->BuildMul(m->b, id, table_stride, "")),
                f8_ll_at(m, narrow, grad, ll->BuildMul(m->b, l.index, grad_stride, "")), begin,
                end);
    f8_ll_if_end(m, &inside);
    f8_ll_loop_end(m, &l, NULL);
    f8_ll_phase_end(m);
    return F8_OK;
}
