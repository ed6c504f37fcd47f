/* Instructions of a kernel description as LLVM IR: see print.h. */
#include "codegen/cpu/print.h"

#include <math.h>

enum { WIDEST_VECTOR = 16 };

f8_status f8_cpu_printer_begin(f8_cpu_printer *p, f8_arena *arena, f8_diag *d)
{
    const f8_kernel *k = p->k;
    LLVMValueRef **tables[] = {&p->base, &p->pointer, &p->absent};
    for (int i = 0; i < 3; i++)
        *tables[i] = F8_NEW_ARRAY(arena, LLVMValueRef, k->n_buffers + 1);
    LLVMValueRef **by_instr[] = {&p->scalar, &p->vector, &p->partial, &p->blocks,
                                 &p->sizes,  &p->carry,  &p->carried};
    for (size_t i = 0; i < sizeof by_instr / sizeof *by_instr; i++)
        *by_instr[i] = F8_NEW_ARRAY(arena, LLVMValueRef, k->n_instrs + 1);
    for (int u = 0; u < k->config.unroll && u < F8_CPU_UNROLL_MOST; u++)
        p->unrolled[u] = F8_NEW_ARRAY(arena, LLVMValueRef, k->n_instrs + 1);
    p->ints = F8_NEW_ARRAY(arena, LLVMValueRef, k->n_ints + 1);
    p->needed = F8_NEW_ARRAY(arena, bool, k->n_instrs + 1);
    p->owner = F8_NEW_ARRAY(arena, uint32_t, k->n_instrs + 1);
    if (arena->failed)
        return f8_arena_status(arena, d);
    for (uint32_t i = 0; i < k->n_buffers; i++)
        p->pointer[i] = p->base[i] = f8_ll_phase_arg(p->m, &p->phase, (int)i);
    for (uint32_t i = 0; i < k->n_ints; i++)
        p->ints[i] = f8_ll_phase_int(p->m, &p->phase, (int)i);
    return F8_OK;
}

/* ---- memory ---- */

static LLVMTypeRef element_type(f8_llvm_module *m, f8_dtype t)
{
    switch (t) {
    case F8_F32: return m->f32;
    case F8_I32: return m->i32;
    case F8_I64: return m->i64;
    case F8_BF16:
    case F8_F16: return m->i16;
    default: return m->i8;
    }
}

/* `to`, or a vector of it if `like` is a vector. */
static LLVMTypeRef as_wide(f8_llvm_module *m, LLVMTypeRef to, LLVMValueRef like)
{
    const bool vector = m->ll->GetTypeKind(m->ll->TypeOf(like)) == LLVMVectorTypeKind;
    return vector ? f8_ll_vtype(m, to) : to;
}

/* Of an i64. */
static LLVMValueRef nearest_i32(f8_llvm_module *m, LLVMValueRef raw)
{
    LLVMTypeRef wide = m->ll->TypeOf(raw);
    LLVMValueRef most = f8_ll_const_like(m, wide, f8_ll_i64(m, INT32_MAX));
    LLVMValueRef least = f8_ll_const_like(m, wide, f8_ll_i64(m, INT32_MIN));
    LLVMValueRef above = m->ll->BuildICmp(m->b, LLVMIntSGT, raw, most, "");
    LLVMValueRef v = m->ll->BuildSelect(m->b, above, most, raw, "");
    LLVMValueRef below = m->ll->BuildICmp(m->b, LLVMIntSLT, v, least, "");
    v = m->ll->BuildSelect(m->b, below, least, v, "");
    return m->ll->BuildTrunc(m->b, v, as_wide(m, m->i32, raw), "");
}

/* From the bits in memory to the form in which values are held (kernel.h), and back. */
static LLVMValueRef widen(f8_llvm_module *m, f8_dtype t, LLVMValueRef raw)
{
    switch (t) {
    case F8_F32:
    case F8_I32: return raw;
    case F8_I64: return nearest_i32(m, raw);
    case F8_BF16: return f8_ll_bf16_to_f32(m, raw);
    case F8_BOOL:
        return m->ll->BuildICmp(m->b, LLVMIntNE, raw, m->ll->ConstNull(m->ll->TypeOf(raw)), "");
    default: return m->ll->BuildZExt(m->b, raw, as_wide(m, m->i32, raw), "");
    }
}

static LLVMValueRef narrow(f8_llvm_module *m, f8_dtype t, LLVMValueRef v)
{
    switch (t) {
    case F8_F32:
    case F8_I32: return v;
    case F8_I64: return m->ll->BuildSExt(m->b, v, as_wide(m, m->i64, v), "");
    case F8_BF16: {
        /* the value is a bf16 already: its upper half is its encoding */
        LLVMValueRef bits = f8_ll_bits(m, v);
        LLVMValueRef by = f8_ll_const_like(m, m->ll->TypeOf(bits), f8_ll_i32(m, 16));
        return m->ll->BuildTrunc(m->b, m->ll->BuildLShr(m->b, bits, by, ""), as_wide(m, m->i16, v),
                                 "");
    }
    case F8_F16: return m->ll->BuildTrunc(m->b, v, as_wide(m, m->i16, v), "");
    case F8_BOOL: return m->ll->BuildZExt(m->b, v, as_wide(m, m->i8, v), "");
    default: return m->ll->BuildTrunc(m->b, v, as_wide(m, m->i8, v), "");
    }
}

/* The row of a gather. An index outside the table reads row 0 and is marked absent. */
static LLVMValueRef gathered_row(f8_cpu_printer *p, uint32_t buffer)
{
    f8_llvm_module *m = p->m;
    const f8_kbuffer *b = &p->k->buffer[buffer];
    LLVMValueRef id = f8_ll_load(m, m->i32, f8_ll_at(m, m->i32, p->base[b->ids], p->row));
    id = m->ll->BuildSExt(m->b, id, m->i64, "");
    p->absent[buffer] = m->ll->BuildICmp(m->b, LLVMIntUGE, id, p->ints[b->limit], "");
    return m->ll->BuildSelect(m->b, p->absent[buffer], f8_ll_i64(m, 0), id, "");
}

void f8_cpu_row_pointers(f8_cpu_printer *p)
{
    f8_llvm_module *m = p->m;
    const f8_kernel *k = p->k;
    for (uint32_t i = 0; i < k->n_buffers; i++) {
        const f8_kbuffer *b = &k->buffer[i];
        if (b->stride < 0)
            continue;
        LLVMValueRef row = p->row;
        if (b->ids >= 0) {
            row = gathered_row(p, i);
        } else if (b->map >= 0) {
            const f8_kmap *map = &k->map[b->map];
            if (map->shift >= 0) {
                row = m->ll->BuildLShr(m->b, row, f8_ll_i64(m, map->shift), "");
            } else {
                row = m->ll->BuildUDiv(m->b, row, p->ints[map->div], "");
                row = m->ll->BuildURem(m->b, row, p->ints[map->mod], "");
            }
        }
        LLVMValueRef at = m->ll->BuildMul(m->b, row, p->ints[b->stride], "");
        p->pointer[i] = f8_ll_at(m, element_type(m, b->dtype), p->base[i], at);
    }
}

/* ---- rolls ---- */

/* The column that the vector at p->column comes from, if shift and group keep vectors whole. */
static LLVMValueRef rolled_column(f8_cpu_printer *p, const f8_kinstr *i)
{
    f8_llvm_module *m = p->m;
    LLVMValueRef group = f8_ll_i64(m, i->group), c = p->column;
    LLVMValueRef within = m->ll->BuildURem(m->b, c, group, "");
    LLVMValueRef start = m->ll->BuildSub(m->b, c, within, "");
    within = m->ll->BuildAdd(m->b, within, f8_ll_i64(m, i->group - i->shift), "");
    return m->ll->BuildAdd(m->b, start, m->ll->BuildURem(m->b, within, group, ""), "");
}

/* Loads one lane at a time, for groups that are small or no multiple of a vector. */
static LLVMValueRef rolled_lanes(f8_cpu_printer *p, const f8_kinstr *i, LLVMTypeRef element,
                                 LLVMValueRef base)
{
    f8_llvm_module *m = p->m;
    LLVMValueRef v = m->ll->ConstNull(f8_ll_vtype(m, element)), column = p->column;
    LLVMValueRef last = f8_ll_i64(m, p->k->cols - 1);
    for (int lane = 0; lane < m->lanes; lane++) {
        /* lanes beyond the end of the row read its last column and are not used */
        p->column = f8_ll_imin(m, m->ll->BuildAdd(m->b, column, f8_ll_i64(m, lane), ""), last);
        LLVMValueRef from = rolled_column(p, i);
        LLVMValueRef x = f8_ll_load(m, element, f8_ll_at(m, element, base, from));
        v = m->ll->BuildInsertElement(m->b, v, x, f8_ll_i32(m, lane), "");
    }
    p->column = column;
    return v;
}

/* Loads `element`s at p->column of a row that starts at base, rolled as the instruction says. */
static LLVMValueRef load_vector(f8_cpu_printer *p, const f8_kinstr *i, LLVMTypeRef element,
                                LLVMValueRef base)
{
    f8_llvm_module *m = p->m;
    LLVMValueRef column = p->column;
    if (i->group) {
        if (i->group % m->lanes || i->shift % m->lanes)
            return rolled_lanes(p, i, element, base);
        column = rolled_column(p, i);
    }
    return f8_ll_vload(m, element, f8_ll_at(m, element, base, column), p->mask, NULL);
}

/* ---- arithmetic, scalar and vector alike ---- */

static LLVMValueRef print_call(f8_llvm_module *m, f8_sfn fn, LLVMValueRef x)
{
    switch (fn) { /* the machine has exact instructions for these two */
    case F8_FN_DECODE_F16:
        return f8_ll_f16_to_f32(m, m->ll->BuildTrunc(m->b, x, as_wide(m, m->i16, x), ""));
    case F8_FN_ENCODE_F16:
        return m->ll->BuildZExt(m->b, f8_ll_f32_to_f16(m, x), as_wide(m, m->i32, x), "");
    default: return f8_ll_scalar(m, fn, x);
    }
}

static LLVMValueRef print_scalar_op(f8_llvm_module *m, const f8_kinstr *i, const LLVMValueRef *x)
{
    if (i->sub == F8_S_CONST_I)
        return f8_ll_i32(m, (int32_t)i->imm);
    if (i->sub == F8_S_CONST_F)
        return m->ll->ConstBitCast(f8_ll_i32(m, (int32_t)i->imm), m->f32);
    return f8_ll_sop(m, i->sub, x[0], x[1], x[2]);
}

/* ---- values without columns ---- */

void f8_cpu_print_scalar(f8_cpu_printer *p, uint32_t n)
{
    f8_llvm_module *m = p->m;
    const f8_kinstr *i = &p->k->instr[n];
    uint32_t operand[3];
    LLVMValueRef x[3] = {NULL};
    const int count = f8_kinstr_operands(i, operand);
    for (int o = 0; o < count; o++)
        x[o] = p->scalar[operand[o]];
    switch ((f8_kop)i->op) {
    case F8_K_LOAD: {
        const f8_dtype t = p->k->buffer[i->buffer].dtype;
        LLVMValueRef v = widen(m, t, f8_ll_load(m, element_type(m, t), p->pointer[i->buffer]));
        if (p->absent[i->buffer])
            v = m->ll->BuildSelect(m->b, p->absent[i->buffer], f8_ll_f32(m, NAN), v, "");
        p->scalar[n] = v;
        break;
    }
    case F8_K_SCALAR: p->scalar[n] = print_scalar_op(m, i, x); break;
    case F8_K_CALL: p->scalar[n] = print_call(m, i->sub, x[0]); break;
    default: p->scalar[n] = x[0]; break; /* a ROLL of a value without columns */
    }
}

LLVMValueRef f8_cpu_element(f8_cpu_printer *p, int32_t buffer, LLVMValueRef column)
{
    const f8_dtype t = p->k->buffer[buffer].dtype;
    LLVMTypeRef element = element_type(p->m, t);
    LLVMValueRef at = f8_ll_at(p->m, element, p->pointer[buffer], column);
    return widen(p->m, t, f8_ll_load(p->m, element, at));
}

void f8_cpu_store_scalar(f8_cpu_printer *p, uint32_t n)
{
    const f8_kinstr *i = &p->k->instr[n];
    LLVMValueRef v = narrow(p->m, p->k->buffer[i->buffer].dtype, p->scalar[i->a]);
    f8_ll_store(p->m, v, p->pointer[i->buffer]);
}

/* ---- values with columns ---- */

LLVMValueRef f8_cpu_vector(f8_cpu_printer *p, uint32_t n)
{
    const f8_kinstr *i = &p->k->instr[n];
    if ((i->ext & F8_EXT_COL) || (p->in_blocks && (i->ext & F8_EXT_BLOCK)))
        return p->vector[n];
    if (i->ext & F8_EXT_BLOCK) { /* a vector of columns lies in one block */
        f8_llvm_module *m = p->m;
        LLVMValueRef block = m->ll->BuildUDiv(m->b, p->column, f8_ll_i64(m, i->block), "");
        return f8_ll_splat(m, f8_cpu_block(p, n, block, false));
    }
    return f8_ll_splat(p->m, p->scalar[n]);
}

static LLVMTypeRef word_type(f8_llvm_module *m, const f8_kinstr *i)
{
    return i->kind == F8_KIND_F ? m->f32 : m->i32;
}

LLVMValueRef f8_cpu_block(f8_cpu_printer *p, uint32_t n, LLVMValueRef block, bool vector)
{
    f8_llvm_module *m = p->m;
    const bool truth = p->k->instr[n].kind == F8_KIND_B;
    LLVMTypeRef word = p->k->instr[n].kind == F8_KIND_F ? m->f32 : m->i32;
    LLVMValueRef at = f8_ll_at(m, word, p->blocks[n], block);
    LLVMValueRef v = vector ? f8_ll_vload(m, word, at, NULL, NULL) : f8_ll_load(m, word, at);
    return truth ? m->ll->BuildTrunc(m->b, v, as_wide(m, m->i1, v), "") : v;
}

void f8_cpu_set_blocks(f8_cpu_printer *p, uint32_t n)
{
    f8_llvm_module *m = p->m;
    LLVMValueRef v = p->vector[n];
    if (p->k->instr[n].kind == F8_KIND_B)
        v = m->ll->BuildZExt(m->b, v, f8_ll_vtype(m, m->i32), "");
    f8_ll_vstore(m, v, f8_ll_at(m, m->f32, p->blocks[n], p->column), NULL);
}

static LLVMValueRef near_slot(f8_cpu_printer *p, const f8_kinstr *i)
{
    return f8_ll_at(p->m, p->m->f32, p->phase.scratch, f8_ll_i64(p->m, i->near * p->near_row));
}

static LLVMValueRef load_columns(f8_cpu_printer *p, const f8_kinstr *i)
{
    f8_llvm_module *m = p->m;
    const f8_dtype t = p->k->buffer[i->buffer].dtype;
    LLVMValueRef v = widen(m, t, load_vector(p, i, element_type(m, t), p->pointer[i->buffer]));
    if (p->absent[i->buffer])
        v = m->ll->BuildSelect(m->b, f8_ll_splat(m, p->absent[i->buffer]), f8_ll_vf32(m, NAN), v,
                               "");
    return v;
}

void f8_cpu_print_vector(f8_cpu_printer *p, uint32_t n)
{
    f8_llvm_module *m = p->m;
    const f8_kinstr *i = &p->k->instr[n];
    LLVMValueRef x[3] = {NULL};
    if (i->near >= 0 && f8_kinstr_known(i) < p->stage) {
        LLVMTypeRef word = word_type(m, i);
        p->vector[n] =
            f8_ll_vload(m, word, f8_ll_at(m, word, near_slot(p, i), p->column), NULL, NULL);
        return;
    }
    uint32_t operand[3];
    const int count = f8_kinstr_operands(i, operand);
    for (int o = 0; o < count && i->op != F8_K_ROLL; o++)
        x[o] = f8_cpu_vector(p, operand[o]);
    switch ((f8_kop)i->op) {
    case F8_K_LOAD: p->vector[n] = load_columns(p, i); break;
    case F8_K_INDEX: {
        LLVMValueRef c = m->ll->BuildTrunc(m->b, p->column, m->i32, "");
        p->vector[n] = m->ll->BuildAdd(m->b, f8_ll_splat(m, c), f8_ll_iota(m), "");
        break;
    }
    case F8_K_SCALAR: p->vector[n] = print_scalar_op(m, i, x); break;
    case F8_K_CALL: p->vector[n] = print_call(m, i->sub, x[0]); break;
    default: { /* ROLL */
        const f8_kinstr *from = &p->k->instr[i->a];
        p->vector[n] = load_vector(p, i, word_type(m, from), near_slot(p, from));
        break;
    }
    }
    if (i->near >= 0) /* slots are padded to whole vectors, so no mask is needed */
        f8_ll_vstore(m, p->vector[n], f8_ll_at(m, m->f32, near_slot(p, i), p->column), NULL);
}

void f8_cpu_store_vector(f8_cpu_printer *p, uint32_t n)
{
    f8_llvm_module *m = p->m;
    const f8_kinstr *i = &p->k->instr[n];
    const f8_dtype t = p->k->buffer[i->buffer].dtype;
    LLVMValueRef mask = p->mask;
    /* all rows have the same value; the first row stores it */
    if (!(i->ext & F8_EXT_ROW) && !p->k->flat) {
        LLVMValueRef first = m->ll->BuildICmp(m->b, LLVMIntEQ, p->row, f8_ll_i64(m, 0), "");
        first = f8_ll_splat(m, first);
        mask = mask ? m->ll->BuildAnd(m->b, mask, first, "") : first;
    }
    LLVMValueRef v = narrow(m, t, f8_cpu_vector(p, i->a));
    f8_ll_vstore(m, v, f8_ll_at(m, element_type(m, t), p->pointer[i->buffer], p->column), mask);
}
