/* Row kernels as LLVM IR: the loops over tasks, rows and columns of one kernel (rows.h).
 *
 *     values that vary over nothing, once
 *     for each row of the tasks
 *         for each stage
 *             values that vary over rows, then over blocks of columns, a vector of blocks at a time
 *             for each vector of columns: all loads and arithmetic, then the stores
 *             finish the row reductions of the stage
 *
 * A kernel that reduces columns has loops over blocks of rows around this, and one row of
 * accumulators in scratch for each reduction. */
#include "codegen/cpu/rows.h"
#include "codegen/cpu/reduce.h"

#include <string.h>

enum { WORD = 4 };

/* n times 2^grain. */
static int64_t grained(const f8_kernel *k, int64_t n)
{
    const int g = k->config.grain;
    return g < 0 ? n >> -g : n << g;
}

static int64_t rows_per_task(const f8_kernel *k)
{
    if (k->n_partials)
        return f8_kernel_task_rows(k);
    const int64_t rows = grained(k, 2 * F8_CPU_CHUNK) / (k->cols > 0 ? k->cols : 1);
    return rows > 0 ? rows : 1;
}

int64_t f8_cpu_rows_tasks(const f8_kernel *k, int64_t extent)
{
    const int64_t each = k->flat ? grained(k, F8_CPU_CHUNK) : rows_per_task(k);
    return (extent + each - 1) / each;
}

/* Words of scratch for the block values of instructions below n: one for each block, and for an
 * amax also the magnitudes of all columns. */
static int64_t block_words(const f8_kernel *k, uint32_t n)
{
    int64_t words = 0;
    for (uint32_t i = 0; i < n; i++)
        if ((k->instr[i].ext & F8_EXT_BLOCK) && k->instr[i].op != F8_K_STORE) {
            const int64_t blocks = f8_kernel_blocks(k, k->instr[i].block);
            words += f8_cpu_padded(blocks) +
                     (k->instr[i].op == F8_K_BLOCKAMAX ? blocks * k->instr[i].block : 0);
        }
    return words;
}

int64_t f8_cpu_rows_scratch(const f8_kernel *k)
{
    return WORD * ((k->n_near + k->n_partials) * f8_cpu_padded(k->cols) +
                   f8_kernel_most_sums(k) * F8_SUM_LANES + block_words(k, k->n_instrs));
}

/* ---- one vector of columns ---- */

static LLVMValueRef masked(f8_cpu_printer *p, LLVMValueRef x, LLVMValueRef other)
{
    return p->mask ? p->m->ll->BuildSelect(p->m->b, p->mask, x, other, "") : x;
}

static void reduce_vector(f8_cpu_printer *p, uint32_t n, LLVMValueRef *carry)
{
    f8_llvm_module *m = p->m;
    const f8_kinstr *i = &p->k->instr[n];
    LLVMValueRef x = f8_cpu_vector(p, i->a);
    switch (i->op) {
    case F8_K_SUM:
        if (f8_cpu_adds(p->k, n))
            f8_cpu_add_to_sum(p, n, masked(p, x, f8_ll_vf32(m, -0.0f)));
        break;
    case F8_K_COLSUM: {
        LLVMValueRef at = f8_ll_at(m, m->f32, p->partial[n], p->column);
        LLVMValueRef sum = f8_ll_vload(m, m->f32, at, NULL, NULL);
        f8_ll_vstore(m, m->ll->BuildFAdd(m->b, sum, x, ""), at, NULL);
        break;
    }
    case F8_K_COLAMAX: {
        LLVMValueRef at = f8_ll_at(m, m->i32, p->partial[n], p->column);
        LLVMValueRef most = f8_ll_vload(m, m->i32, at, NULL, NULL);
        f8_ll_vstore(m, f8_cpu_join_max(m, i->op, most, f8_cpu_without_sign(m, x)), at, NULL);
        break;
    }
    /* blocks are reduced when all magnitudes are there, so no vector waits for the one before */
    case F8_K_BLOCKAMAX:
        x = masked(p, f8_cpu_without_sign(m, x), f8_ll_vi32(m, 0));
        f8_ll_vstore(m, x, f8_ll_at(m, m->i32, p->sizes[n], p->column), NULL);
        break;
    case F8_K_AMAX:
        x = f8_cpu_without_sign(m, x);
        /* fallthrough */
    default:
        *carry = f8_cpu_join_max(m, i->op, *carry, masked(p, x, f8_cpu_max_identity(m, i->op)));
        break;
    }
}

/* Computes the values of a stage for the vector at p->column. p->carry has the running maxima. */
static void column_values(f8_cpu_printer *p, int32_t stage)
{
    const f8_kernel *k = p->k;
    int carries = 0;
    p->stage = stage;
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        const f8_kinstr *i = &k->instr[n];
        if (!p->needed[n] || i->op == F8_K_STORE)
            continue;
        if (f8_kinstr_is_root(i))
            reduce_vector(p, n, f8_cpu_carried(i) ? &p->carry[carries++] : NULL);
        else
            f8_cpu_print_vector(p, n);
    }
}

static void column_stores(f8_cpu_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (p->needed[n] && p->k->instr[n].op == F8_K_STORE)
            f8_cpu_store_vector(p, n);
}

/* Computes and stores all of a stage for the vector at p->column. */
static void column_body(f8_cpu_printer *p, int32_t stage)
{
    column_values(p, stage);
    column_stores(p);
}

/* The same for `unroll` vectors from p->column on: first the values of all vectors, in order, then
 * the stores. A store writes memory that only loads of its own columns may read. */
static void column_bodies(f8_cpu_printer *p, int32_t stage, int unroll)
{
    f8_llvm_module *m = p->m;
    LLVMValueRef *const own = p->vector, first = p->column;
    for (int u = 0; u < unroll; u++) {
        p->vector = p->unrolled[u];
        p->column = m->ll->BuildAdd(m->b, first, f8_ll_i64(m, u * m->lanes), "");
        column_values(p, stage);
    }
    for (int u = 0; u < unroll; u++) {
        p->vector = p->unrolled[u];
        p->column = m->ll->BuildAdd(m->b, first, f8_ll_i64(m, u * m->lanes), "");
        column_stores(p);
    }
    p->vector = own;
}

/* The loop of one stage over [begin, end), `unroll` whole vectors in each iteration. */
static void vectors_loop(f8_cpu_printer *p, int32_t stage, LLVMValueRef begin, LLVMValueRef end,
                         uint32_t carries, int unroll)
{
    f8_llvm_module *m = p->m;
    f8_ll_loop l = {.value = p->carried};
    f8_ll_loop_begin(m, &l, begin, end, f8_ll_i64(m, unroll * m->lanes), p->carry, (int)carries);
    p->column = l.index;
    p->mask = NULL;
    memcpy(p->carry, l.value, carries * sizeof(LLVMValueRef));
    if (unroll > 1)
        column_bodies(p, stage, unroll);
    else
        column_body(p, stage);
    f8_ll_loop_end(m, &l, p->carry);
    memcpy(p->carry, l.value, carries * sizeof(LLVMValueRef));
}

/* The column loop of one stage over the whole vectors of [begin, whole). `begin` is a multiple of
 * `unroll` vectors. */
static void column_loop(f8_cpu_printer *p, int32_t stage, LLVMValueRef begin, LLVMValueRef whole,
                        uint32_t carries)
{
    f8_llvm_module *m = p->m;
    const int unroll = p->k->config.unroll > 1 ? p->k->config.unroll : 1;
    if (unroll > 1) {
        LLVMValueRef several =
            m->ll->BuildAnd(m->b, whole, f8_ll_i64(m, ~(int64_t)(unroll * m->lanes - 1)), "");
        vectors_loop(p, stage, begin, several, carries, unroll);
        begin = several;
    }
    vectors_loop(p, stage, begin, whole, carries, 1);
}

/* ---- one row ---- */

/* All columns that the stage has to visit. A stage that rows may do without has sums alone: these
 * are in scratch, where they have begun. */
static void visit_columns(f8_cpu_printer *p, int32_t stage, uint32_t carries)
{
    f8_llvm_module *m = p->m;
    const f8_kernel *k = p->k;
    const int64_t cols = f8_kernel_reach(k, stage), whole = cols / m->lanes * m->lanes;
    uint32_t near;
    const bool skips = f8_kernel_may_skip(k, stage, &near);
    f8_ll_if rare;
    if (skips)
        f8_ll_if_begin(m, &rare, m->ll->BuildNot(m->b, p->scalar[near], ""));
    if (whole)
        column_loop(p, stage, f8_ll_i64(m, 0), f8_ll_i64(m, whole), carries);
    if (whole < cols) {
        p->column = f8_ll_i64(m, whole);
        p->mask = f8_cpu_const_mask(m, cols - whole);
        column_body(p, stage);
    }
    if (skips)
        f8_ll_if_end(m, &rare);
}

static void row_stage(f8_cpu_printer *p, int32_t stage)
{
    f8_llvm_module *m = p->m;
    const f8_kernel *k = p->k;
    if (!f8_kernel_needed(k, (uint32_t)stage, p->needed))
        return;
    uint32_t carries = 0;
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        if (!p->needed[n] || k->instr[n].stage != stage)
            continue;
        if (f8_cpu_adds(k, n))
            f8_cpu_start_sum(p, n);
        else if (k->instr[n].op == F8_K_SUM)
            p->scalar[n] = f8_cpu_pick(p, n);
        if (f8_cpu_carried(&k->instr[n])) {
            p->owner[carries] = n;
            p->carry[carries++] = f8_cpu_max_identity(m, k->instr[n].op);
        }
    }
    visit_columns(p, stage, carries);
    for (uint32_t i = 0; i < carries; i++)
        p->scalar[p->owner[i]] = f8_cpu_finish_max(p, k->instr[p->owner[i]].op, p->carry[i]);
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (p->needed[n] && k->instr[n].stage == stage && f8_cpu_adds(k, n))
            p->scalar[n] = f8_cpu_finish_sum(p, n);
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (p->needed[n] && k->instr[n].op == F8_K_BLOCKAMAX && k->instr[n].stage == stage)
            f8_cpu_finish_blocks(p, n);
}

/* The values and stores of one stage that vary over rows alone. */
static void row_scalars(f8_cpu_printer *p, int32_t stage)
{
    f8_llvm_module *m = p->m;
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const f8_kinstr *i = &p->k->instr[n];
        if (i->stage != stage || f8_kinstr_is_root(i) || (i->ext & (F8_EXT_COL | F8_EXT_BLOCK)))
            continue;
        if (i->op == F8_K_STORE) {
            const f8_kinstr *from = &p->k->instr[i->a];
            if (i->ext == F8_EXT_ROW) {
                f8_cpu_store_scalar(p, n);
            } else if (from->ext == F8_EXT_ROW) { /* one element, which every row holds */
                f8_ll_if first;
                f8_ll_if_begin(m, &first,
                               m->ll->BuildICmp(m->b, LLVMIntEQ, p->row, f8_ll_i64(m, 0), ""));
                f8_cpu_store_scalar(p, n);
                f8_ll_if_end(m, &first);
            }
        } else if (i->ext == F8_EXT_ROW) {
            f8_cpu_print_scalar(p, n);
        }
    }
}

/* ---- values of blocks of columns ---- */

/* One vector of blocks at p->column: loads the block values that are known, and computes those of
 * stage `stage`. */
static void block_body(f8_cpu_printer *p, int32_t stage, int32_t block)
{
    const f8_kernel *k = p->k;
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        const f8_kinstr *i = &k->instr[n];
        if (!(i->ext & F8_EXT_BLOCK) || i->block != block || i->op == F8_K_STORE)
            continue;
        if (f8_kinstr_known(i) < stage || i->op == F8_K_BLOCKAMAX) {
            if (f8_kinstr_known(i) <= stage)
                p->vector[n] = f8_cpu_block(p, n, p->column, true);
        } else if (i->stage == stage) {
            f8_cpu_print_vector(p, n);
            f8_cpu_set_blocks(p, n);
        }
    }
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (k->instr[n].op == F8_K_STORE && k->instr[n].block == block &&
            k->instr[n].stage == stage)
            f8_cpu_store_vector(p, n);
}

static void block_loop(f8_cpu_printer *p, int32_t stage, int32_t block)
{
    f8_llvm_module *m = p->m;
    const int64_t blocks = f8_kernel_blocks(p->k, block), whole = blocks / m->lanes * m->lanes;
    p->in_blocks = true;
    p->stage = stage;
    if (whole) {
        f8_ll_loop l;
        f8_ll_loop_begin(m, &l, f8_ll_i64(m, 0), f8_ll_i64(m, whole), f8_ll_i64(m, m->lanes), NULL,
                         0);
        p->column = l.index;
        p->mask = NULL;
        block_body(p, stage, block);
        f8_ll_loop_end(m, &l, NULL);
    }
    if (whole < blocks) {
        p->column = f8_ll_i64(m, whole);
        p->mask = f8_cpu_const_mask(m, blocks - whole);
        block_body(p, stage, block);
    }
    p->in_blocks = false;
}

/* The values and stores of one stage that vary over blocks of columns, one vector of blocks at a
 * time. */
static void row_blocks(f8_cpu_printer *p, int32_t stage)
{
    const f8_kernel *k = p->k;
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        bool first = f8_kinstr_of_blocks(&k->instr[n]) && k->instr[n].stage == stage;
        for (uint32_t i = 0; i < n && first; i++)
            first = !f8_kinstr_of_blocks(&k->instr[i]) || k->instr[i].stage != stage ||
                    k->instr[i].block != k->instr[n].block;
        if (first)
            block_loop(p, stage, k->instr[n].block);
    }
}

static void rows_loop(f8_cpu_printer *p, LLVMValueRef begin, LLVMValueRef end)
{
    f8_llvm_module *m = p->m;
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, begin, end, f8_ll_i64(m, 1), NULL, 0);
    p->row = l.index;
    f8_cpu_row_pointers(p);
    for (int32_t stage = 0; stage < (int32_t)p->k->n_stages; stage++) {
        row_scalars(p, stage);
        row_blocks(p, stage);
        row_stage(p, stage);
    }
    f8_ll_loop_end(m, &l, NULL);
}

/* ---- tasks ---- */

/* The largest block below `limit` of any column reduction; 0: none. */
static int64_t block_below(const f8_kernel *k, int64_t limit)
{
    int64_t block = 0;
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (f8_kinstr_is_partial(&k->instr[n]) && k->instr[n].imm < limit &&
            k->instr[n].imm > block)
            block = k->instr[n].imm;
    return block;
}

/* Rows [begin, end), which are whole blocks except at the end of the matrix. Loops over larger
 * blocks contain loops over smaller ones. */
static void blocks_loop(f8_cpu_printer *p, int64_t limit, LLVMValueRef begin, LLVMValueRef end)
{
    f8_llvm_module *m = p->m;
    const int64_t block = block_below(p->k, limit);
    if (!block) {
        rows_loop(p, begin, end);
        return;
    }
    LLVMValueRef rows = f8_ll_i64(m, block);
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, begin, end, rows, NULL, 0);
    f8_cpu_start_partials(p, block);
    LLVMValueRef next = m->ll->BuildAdd(m->b, l.index, rows, "");
    blocks_loop(p, block, l.index, f8_ll_imin(m, next, end));
    f8_cpu_store_partials(p, block, m->ll->BuildUDiv(m->b, l.index, rows, ""));
    f8_ll_loop_end(m, &l, NULL);
}

static void print_rows(f8_cpu_printer *p)
{
    f8_llvm_module *m = p->m;
    LLVMValueRef each = f8_ll_i64(m, rows_per_task(p->k));
    LLVMValueRef begin = m->ll->BuildMul(m->b, p->phase.begin, each, "");
    LLVMValueRef end =
        f8_ll_imin(m, m->ll->BuildMul(m->b, p->phase.end, each, ""), p->ints[0]);
    blocks_loop(p, INT64_MAX, begin, end);
}

static void print_flat(f8_cpu_printer *p)
{
    f8_llvm_module *m = p->m;
    LLVMValueRef each = f8_ll_i64(m, grained(p->k, F8_CPU_CHUNK));
    LLVMValueRef begin = m->ll->BuildMul(m->b, p->phase.begin, each, "");
    LLVMValueRef end = f8_ll_imin(m, m->ll->BuildMul(m->b, p->phase.end, each, ""), p->ints[0]);
    /* begin is a multiple of the vector, so rounding the end down leaves whole vectors */
    LLVMValueRef whole = m->ll->BuildAnd(m->b, end, f8_ll_i64(m, ~(int64_t)(m->lanes - 1)), "");
    f8_kernel_needed(p->k, 0, p->needed);
    column_loop(p, 0, begin, whole, 0);
    f8_ll_if rest;
    f8_ll_if_begin(m, &rest, m->ll->BuildICmp(m->b, LLVMIntSLT, whole, end, ""));
    p->column = whole;
    p->mask = f8_ll_mask(m, m->ll->BuildSub(m->b, end, whole, ""));
    column_body(p, 0);
    f8_ll_if_end(m, &rest);
}

/* Values that vary over nothing. The thread that has task 0 stores them. */
static void print_once(f8_cpu_printer *p)
{
    f8_llvm_module *m = p->m;
    const f8_kernel *k = p->k;
    bool stores = false;
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        const f8_kinstr *i = &k->instr[n];
        if (i->op != F8_K_STORE && !f8_kinstr_is_partial(i) && i->ext == F8_EXT_ONE)
            f8_cpu_print_scalar(p, n);
        stores |= i->op == F8_K_STORE && i->ext == F8_EXT_ONE && k->instr[i->a].ext == F8_EXT_ONE;
    }
    if (!stores)
        return;
    f8_ll_if first;
    f8_ll_if_begin(m, &first,
                   m->ll->BuildICmp(m->b, LLVMIntEQ, p->phase.begin, f8_ll_i64(m, 0), ""));
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        const f8_kinstr *i = &k->instr[n];
        if (i->op == F8_K_STORE && i->ext == F8_EXT_ONE && k->instr[i->a].ext == F8_EXT_ONE)
            f8_cpu_store_scalar(p, n);
    }
    f8_ll_if_end(m, &first);
}

static void lay_out_scratch(f8_cpu_printer *p)
{
    f8_llvm_module *m = p->m;
    const int64_t row = f8_cpu_padded(p->k->cols);
    int64_t at = p->k->n_near * row;
    p->near_row = row;
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (f8_kinstr_is_partial(&p->k->instr[n])) {
            p->partial[n] = f8_ll_at(m, m->f32, p->phase.scratch, f8_ll_i64(m, at));
            at += row;
        }
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const f8_kinstr *i = &p->k->instr[n];
        if (!(i->ext & F8_EXT_BLOCK) || i->op == F8_K_STORE)
            continue;
        const int64_t words = at + block_words(p->k, n);
        p->blocks[n] = f8_ll_at(m, m->f32, p->phase.scratch, f8_ll_i64(m, words));
        if (i->op != F8_K_BLOCKAMAX)
            continue;
        const int64_t blocks = f8_kernel_blocks(p->k, i->block);
        p->sizes[n] =
            f8_ll_at(m, m->f32, p->phase.scratch, f8_ll_i64(m, words + f8_cpu_padded(blocks)));
        for (int64_t c = (p->k->cols + m->lanes - 1) / m->lanes * m->lanes; c < blocks * i->block;
             c += m->lanes)
            f8_ll_vstore(m, f8_ll_vi32(m, 0), f8_ll_at(m, m->i32, p->sizes[n], f8_ll_i64(m, c)),
                         NULL);
    }
    at += block_words(p->k, p->k->n_instrs);
    p->lanes = f8_ll_at(m, m->f32, p->phase.scratch, f8_ll_i64(m, at));
}

f8_status f8_cpu_rows_emit(f8_llvm_module *m, const f8_kernel *k, const char *symbol,
                           f8_arena *arena, f8_diag *d)
{
    f8_cpu_printer p = {.m = m, .k = k};
    const int widest = m->lanes;
    if (k->config.lanes && k->config.lanes < widest)
        m->lanes = k->config.lanes;
    f8_ll_phase_begin(m, &p.phase, symbol);
    F8_TRY(f8_cpu_printer_begin(&p, arena, d));
    lay_out_scratch(&p);
    print_once(&p);
    if (k->flat)
        print_flat(&p);
    else
        print_rows(&p);
    f8_ll_phase_end(m);
    m->lanes = widest;
    return F8_OK;
}
