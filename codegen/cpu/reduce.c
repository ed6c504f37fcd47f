/* Reductions of row kernels as LLVM IR: see reduce.h.
 *
 * A sum has its 256 lanes in scratch. So each lane gets its elements in the order of the
 * definition, whatever the width of a vector, and the code stays small. Padding lanes hold -0.0,
 * which changes no sum. */
#include "codegen/cpu/reduce.h"

#include <math.h>

enum { WIDEST_VECTOR = 16 };

int64_t f8_cpu_padded(int64_t cols)
{
    return f8_aligned(cols, WIDEST_VECTOR);
}

LLVMValueRef f8_cpu_const_mask(f8_llvm_module *m, int64_t count)
{
    LLVMValueRef v[WIDEST_VECTOR];
    for (int i = 0; i < m->lanes; i++)
        v[i] = m->ll->ConstInt(m->i1, i < count, 0);
    return m->ll->ConstVector(v, (unsigned)m->lanes);
}

bool f8_cpu_carried(const f8_kinstr *i)
{
    return i->op == F8_K_MAX || i->op == F8_K_AMAX;
}

/* ---- sums of rows ---- */

bool f8_cpu_adds(const f8_kernel *k, uint32_t n)
{
    uint32_t x, id;
    return k->instr[n].op == F8_K_SUM && !f8_kernel_picked(k, n, &x, &id);
}

/* x[id] + 0, or 0 if no column is id. */
LLVMValueRef f8_cpu_pick(f8_cpu_printer *p, uint32_t n)
{
    f8_llvm_module *m = p->m;
    uint32_t x, id;
    f8_kernel_picked(p->k, n, &x, &id);
    LLVMValueRef column = m->ll->BuildSExt(m->b, p->scalar[id], m->i64, "");
    LLVMValueRef there = m->ll->BuildICmp(m->b, LLVMIntULT, column, f8_ll_i64(m, p->k->cols), "");
    column = m->ll->BuildSelect(m->b, there, column, f8_ll_i64(m, 0), "");
    LLVMValueRef v = f8_cpu_element(p, p->k->instr[x].buffer, column);
    v = m->ll->BuildFAdd(m->b, v, f8_ll_f32(m, 0), "");
    return m->ll->BuildSelect(m->b, there, v, f8_ll_f32(m, 0), "");
}

/* The lanes of a sum that exist, rounded up to a power of two; those beyond the end of the row are
 * padding. */
static int64_t lanes_used(const f8_kernel *k)
{
    int64_t n = 1;
    while (n < F8_SUM_LANES && n < k->cols)
        n *= 2;
    return n;
}

static LLVMValueRef sum_lanes(f8_cpu_printer *p, uint32_t n)
{
    int64_t slot = 0;
    for (uint32_t i = 0; i < n; i++)
        slot += f8_cpu_adds(p->k, i) && p->k->instr[i].stage == p->k->instr[n].stage;
    return f8_ll_at(p->m, p->m->f32, p->lanes, f8_ll_i64(p->m, slot * F8_SUM_LANES));
}

void f8_cpu_start_sum(f8_cpu_printer *p, uint32_t n)
{
    f8_llvm_module *m = p->m;
    LLVMValueRef lanes = sum_lanes(p, n);
    for (int64_t i = 0; i < lanes_used(p->k); i += m->lanes)
        f8_ll_vstore(m, f8_ll_vf32(m, -0.0f), f8_ll_at(m, m->f32, lanes, f8_ll_i64(m, i)), NULL);
}

void f8_cpu_add_to_sum(f8_cpu_printer *p, uint32_t n, LLVMValueRef x)
{
    f8_llvm_module *m = p->m;
    LLVMValueRef lane = m->ll->BuildAnd(m->b, p->column, f8_ll_i64(m, F8_SUM_LANES - 1), "");
    LLVMValueRef at = f8_ll_at(m, m->f32, sum_lanes(p, n), lane);
    LLVMValueRef sum = f8_ll_vload(m, m->f32, at, NULL, NULL);
    f8_ll_vstore(m, m->ll->BuildFAdd(m->b, sum, x, ""), at, NULL);
}

/* v[j] op v[j + h] for the lanes j < h of a vector; the lanes from h on are not used afterwards. */
static LLVMValueRef upper_half(f8_llvm_module *m, LLVMValueRef v, int h)
{
    LLVMValueRef index[WIDEST_VECTOR];
    for (int i = 0; i < m->lanes; i++)
        index[i] = f8_ll_i32(m, i < h ? i + h : i);
    return m->ll->BuildShuffleVector(m->b, v, m->ll->GetPoison(m->ll->TypeOf(v)),
                                     m->ll->ConstVector(index, (unsigned)m->lanes), "");
}

LLVMValueRef f8_cpu_finish_sum(f8_cpu_printer *p, uint32_t n)
{
    f8_llvm_module *m = p->m;
    LLVMValueRef lanes = sum_lanes(p, n), v[F8_SUM_LANES];
    const int64_t used = lanes_used(p->k);
    int count = 0;
    for (int64_t i = 0; i < used; i += m->lanes)
        v[count++] =
            f8_ll_vload(m, m->f32, f8_ll_at(m, m->f32, lanes, f8_ll_i64(m, i)), NULL, NULL);
    for (int half = count / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            v[i] = m->ll->BuildFAdd(m->b, v[i], v[i + half], "");
    for (int h = (used < m->lanes ? (int)used : m->lanes) / 2; h > 0; h /= 2)
        v[0] = m->ll->BuildFAdd(m->b, v[0], upper_half(m, v[0], h), "");
    return m->ll->BuildExtractElement(m->b, v[0], f8_ll_i32(m, 0), "");
}

/* ---- maxima of rows and of blocks of columns ---- */

LLVMValueRef f8_cpu_join_max(f8_llvm_module *m, uint8_t op, LLVMValueRef a, LLVMValueRef b)
{
    if (op == F8_K_MAX)
        return f8_ll_fmaximum(m, a, b);
    return f8_ll_intrinsic(m, "llvm.umax", (LLVMValueRef[]){a, b}, 2);
}

/* AMAX is carried as the bits without the sign. */
LLVMValueRef f8_cpu_max_identity(f8_llvm_module *m, uint8_t op)
{
    return op == F8_K_MAX ? f8_ll_vf32(m, -INFINITY) : f8_ll_vi32(m, 0);
}

LLVMValueRef f8_cpu_without_sign(f8_llvm_module *m, LLVMValueRef x)
{
    return m->ll->BuildAnd(m->b, f8_ll_bits(m, x), f8_ll_vi32(m, 0x7fffffff), "");
}

LLVMValueRef f8_cpu_finish_max(f8_cpu_printer *p, uint8_t op, LLVMValueRef v)
{
    f8_llvm_module *m = p->m;
    for (int h = m->lanes / 2; h > 0; h /= 2)
        v = f8_cpu_join_max(m, op, v, upper_half(m, v, h));
    v = m->ll->BuildExtractElement(m->b, v, f8_ll_i32(m, 0), "");
    return op == F8_K_MAX ? v : f8_ll_from_bits(m, v);
}

void f8_cpu_finish_blocks(f8_cpu_printer *p, uint32_t n)
{
    f8_llvm_module *m = p->m;
    const int32_t block = p->k->instr[n].block;
    LLVMValueRef v[F8_SUM_LANES];
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, f8_ll_i64(m, 0), f8_ll_i64(m, f8_kernel_blocks(p->k, block)),
                     f8_ll_i64(m, 1), NULL, 0);
    LLVMValueRef first = m->ll->BuildMul(m->b, l.index, f8_ll_i64(m, block), "");
    LLVMValueRef at = f8_ll_at(m, m->i32, p->sizes[n], first);
    int count = 0;
    for (int32_t i = 0; i < block; i += m->lanes)
        v[count++] = f8_ll_vload(m, m->i32, f8_ll_at(m, m->i32, at, f8_ll_i64(m, i)), NULL, NULL);
    for (int half = count / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            v[i] = f8_cpu_join_max(m, F8_K_AMAX, v[i], v[i + half]);
    f8_ll_store(m, f8_cpu_finish_max(p, F8_K_AMAX, v[0]),
                f8_ll_at(m, m->f32, p->blocks[n], l.index));
    f8_ll_loop_end(m, &l, NULL);
}

/* ---- reductions of columns ---- */

/* The accumulators of blocks of `block` rows: cleared, or stored as row `at` of the results. */
void f8_cpu_start_partials(f8_cpu_printer *p, int64_t block)
{
    f8_llvm_module *m = p->m;
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const f8_kinstr *i = &p->k->instr[n];
        if (!f8_kinstr_is_partial(i) || i->imm != block)
            continue;
        LLVMValueRef none = f8_ll_vf32(m, i->op == F8_K_COLSUM ? -0.0f : 0.0f);
        f8_ll_loop l;
        f8_ll_loop_begin(m, &l, f8_ll_i64(m, 0), f8_ll_i64(m, f8_cpu_padded(p->k->cols)),
                         f8_ll_i64(m, m->lanes), NULL, 0);
        f8_ll_vstore(m, none, f8_ll_at(m, m->f32, p->partial[n], l.index), NULL);
        f8_ll_loop_end(m, &l, NULL);
    }
}

static void copy_vector(f8_llvm_module *m, LLVMValueRef to, LLVMValueRef from, LLVMValueRef column,
                        LLVMValueRef mask)
{
    f8_ll_vstore(m, f8_ll_vload(m, m->f32, f8_ll_at(m, m->f32, from, column), NULL, NULL),
                 f8_ll_at(m, m->f32, to, column), mask);
}

void f8_cpu_store_partials(f8_cpu_printer *p, int64_t block, LLVMValueRef at)
{
    f8_llvm_module *m = p->m;
    const f8_kernel *k = p->k;
    const int64_t whole = k->cols / m->lanes * m->lanes;
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        const f8_kinstr *i = &k->instr[n];
        if (!f8_kinstr_is_partial(i) || i->imm != block)
            continue;
        LLVMValueRef first = m->ll->BuildMul(m->b, at, p->ints[k->buffer[i->buffer].stride], "");
        LLVMValueRef to = f8_ll_at(m, m->f32, p->base[i->buffer], first);
        f8_ll_loop l;
        f8_ll_loop_begin(m, &l, f8_ll_i64(m, 0), f8_ll_i64(m, whole), f8_ll_i64(m, m->lanes), NULL,
                         0);
        copy_vector(m, to, p->partial[n], l.index, NULL);
        f8_ll_loop_end(m, &l, NULL);
        if (whole < k->cols)
            copy_vector(m, to, p->partial[n], f8_ll_i64(m, whole),
                        f8_cpu_const_mask(m, k->cols - whole));
    }
}
