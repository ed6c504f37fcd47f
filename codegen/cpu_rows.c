/* Row programs as LLVM IR: the loops over tasks, rows and columns of one kernel (cpu_rows.h).
 *
 *     values that vary over nothing, once
 *     for each row of the tasks given
 *         for each stage
 *             values that vary over rows
 *             for each vector of columns: all loads and arithmetic, then the stores
 *             finish the stage's row reductions
 *     with columns reduced: around the rows of a block, one accumulator row per reduction in scratch
 *
 * Sums keep their 256 lanes in scratch: a lane's element is added in the order the description's
 * definition wants whatever the vector width, and the code stays small. Padding lanes hold -0.0,
 * which no addition notices. */
#include "codegen/cpu_rows.h"
#include "codegen/cpu_print.h"

#include <math.h>
#include <string.h>

enum { WIDEST_VECTOR = 16, WORD = 4 };

static int64_t padded(int64_t cols)
{
    return (cols + WIDEST_VECTOR - 1) / WIDEST_VECTOR * WIDEST_VECTOR;
}

static int64_t rows_per_task(const f8_kernel *k)
{
    if (k->n_partials)
        return f8_kernel_task_rows(k);
    const int64_t rows = 2 * F8_CPU_CHUNK / (k->cols > 0 ? k->cols : 1);
    return rows > 0 ? rows : 1;
}

int64_t f8_cpu_rows_tasks(const f8_kernel *k, int64_t extent)
{
    const int64_t each = k->flat ? F8_CPU_CHUNK : rows_per_task(k);
    return (extent + each - 1) / each;
}

static int64_t most_sums(const f8_kernel *k)
{
    int64_t most = 0;
    for (uint32_t stage = 0; stage < k->n_stages; stage++) {
        int64_t n = 0;
        for (uint32_t i = 0; i < k->n_instrs; i++)
            n += k->instr[i].op == F8_K_SUM && k->instr[i].stage == (int32_t)stage;
        most = n > most ? n : most;
    }
    return most;
}

int64_t f8_cpu_rows_scratch(const f8_kernel *k)
{
    return WORD * ((k->n_near + k->n_partials) * padded(k->cols) + most_sums(k) * F8_SUM_LANES);
}

/* ---- reductions ---- */

static bool carried(const f8_kinstr *i)
{
    return i->op == F8_K_MAX || i->op == F8_K_AMAX;
}

/* Lanes of a sum that exist, up to a power of two: those beyond the row's end are padding. */
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
        slot += p->k->instr[i].op == F8_K_SUM && p->k->instr[i].stage == p->k->instr[n].stage;
    return f8_ll_at(p->m, p->m->f32, p->lanes, f8_ll_i64(p->m, slot * F8_SUM_LANES));
}

static void start_sum(f8_cpu_printer *p, uint32_t n)
{
    f8_llvm_module *m = p->m;
    LLVMValueRef lanes = sum_lanes(p, n);
    for (int64_t i = 0; i < lanes_used(p->k); i += m->lanes)
        f8_ll_vstore(m, f8_ll_vf32(m, -0.0f), f8_ll_at(m, m->f32, lanes, f8_ll_i64(m, i)), NULL);
}

static void add_to_sum(f8_cpu_printer *p, uint32_t n, LLVMValueRef x)
{
    f8_llvm_module *m = p->m;
    LLVMValueRef lane = m->ll->BuildAnd(m->b, p->column, f8_ll_i64(m, F8_SUM_LANES - 1), "");
    LLVMValueRef at = f8_ll_at(m, m->f32, sum_lanes(p, n), lane);
    LLVMValueRef sum = f8_ll_vload(m, m->f32, at, NULL, NULL);
    f8_ll_vstore(m, m->ll->BuildFAdd(m->b, sum, x, ""), at, NULL);
}

/* v[j] op v[j + h] for the lanes j < h of a vector; lanes from h on are of no use afterwards. */
static LLVMValueRef upper_half(f8_llvm_module *m, LLVMValueRef v, int h)
{
    LLVMValueRef index[WIDEST_VECTOR];
    for (int i = 0; i < m->lanes; i++)
        index[i] = f8_ll_i32(m, i < h ? i + h : i);
    return m->ll->BuildShuffleVector(m->b, v, m->ll->GetPoison(m->ll->TypeOf(v)),
                                     m->ll->ConstVector(index, (unsigned)m->lanes), "");
}

static LLVMValueRef finish_sum(f8_cpu_printer *p, uint32_t n)
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

static LLVMValueRef join_max(f8_llvm_module *m, uint8_t op, LLVMValueRef a, LLVMValueRef b)
{
    if (op == F8_K_MAX)
        return f8_ll_fmaximum(m, a, b);
    return f8_ll_intrinsic(m, "llvm.umax", (LLVMValueRef[]){a, b}, 2);
}

/* AMAX is carried as the bits without the sign. */
static LLVMValueRef max_identity(f8_llvm_module *m, uint8_t op)
{
    return op == F8_K_MAX ? f8_ll_vf32(m, -INFINITY) : f8_ll_vi32(m, 0);
}

static LLVMValueRef without_sign(f8_llvm_module *m, LLVMValueRef x)
{
    return m->ll->BuildAnd(m->b, f8_ll_bits(m, x), f8_ll_vi32(m, 0x7fffffff), "");
}

static LLVMValueRef finish_max(f8_cpu_printer *p, uint8_t op, LLVMValueRef v)
{
    f8_llvm_module *m = p->m;
    for (int h = m->lanes / 2; h > 0; h /= 2)
        v = join_max(m, op, v, upper_half(m, v, h));
    v = m->ll->BuildExtractElement(m->b, v, f8_ll_i32(m, 0), "");
    return op == F8_K_MAX ? v : f8_ll_from_bits(m, v);
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
    case F8_K_SUM: add_to_sum(p, n, masked(p, x, f8_ll_vf32(m, -0.0f))); break;
    case F8_K_COLSUM: {
        LLVMValueRef at = f8_ll_at(m, m->f32, p->partial[n], p->column);
        LLVMValueRef sum = f8_ll_vload(m, m->f32, at, NULL, NULL);
        f8_ll_vstore(m, m->ll->BuildFAdd(m->b, sum, x, ""), at, NULL);
        break;
    }
    case F8_K_COLAMAX: {
        LLVMValueRef at = f8_ll_at(m, m->i32, p->partial[n], p->column);
        LLVMValueRef most = f8_ll_vload(m, m->i32, at, NULL, NULL);
        f8_ll_vstore(m, join_max(m, i->op, most, without_sign(m, x)), at, NULL);
        break;
    }
    case F8_K_AMAX:
        x = without_sign(m, x);
        /* fallthrough */
    default: *carry = join_max(m, i->op, *carry, masked(p, x, max_identity(m, i->op))); break;
    }
}

/* All that a stage does for the vector at p->column; carry holds its running maxima. */
static void column_body(f8_cpu_printer *p, int32_t stage, LLVMValueRef *carry)
{
    const f8_kernel *k = p->k;
    int carries = 0;
    p->stage = stage;
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        const f8_kinstr *i = &k->instr[n];
        if (!p->needed[n] || i->op == F8_K_STORE)
            continue;
        if (f8_kinstr_is_root(i))
            reduce_vector(p, n, carried(i) ? &carry[carries++] : NULL);
        else
            f8_cpu_print_vector(p, n);
    }
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (p->needed[n] && k->instr[n].op == F8_K_STORE)
            f8_cpu_store_vector(p, n);
}

/* The column loop of one stage over [begin, end): whole vectors, then what is left, masked. `whole`
 * is the end of the whole vectors. */
static void column_loop(f8_cpu_printer *p, int32_t stage, LLVMValueRef begin, LLVMValueRef whole,
                        LLVMValueRef *carry, int carries)
{
    f8_llvm_module *m = p->m;
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, begin, whole, f8_ll_i64(m, m->lanes), carry, carries);
    p->column = l.index;
    p->mask = NULL;
    LLVMValueRef next[F8_LL_CARRY_MAX];
    for (int i = 0; i < carries; i++)
        next[i] = l.value[i];
    column_body(p, stage, next);
    f8_ll_loop_end(m, &l, next);
    for (int i = 0; i < carries; i++)
        carry[i] = l.value[i];
}

/* ---- one row ---- */

static LLVMValueRef const_mask(f8_llvm_module *m, int64_t count)
{
    LLVMValueRef v[WIDEST_VECTOR];
    for (int i = 0; i < m->lanes; i++)
        v[i] = m->ll->ConstInt(m->i1, i < count, 0);
    return m->ll->ConstVector(v, (unsigned)m->lanes);
}

static f8_status row_stage(f8_cpu_printer *p, int32_t stage, f8_diag *d)
{
    f8_llvm_module *m = p->m;
    const f8_kernel *k = p->k;
    if (!f8_kernel_needed(k, (uint32_t)stage, p->needed))
        return F8_OK;
    LLVMValueRef carry[F8_LL_CARRY_MAX];
    uint32_t owner[F8_LL_CARRY_MAX];
    int carries = 0;
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        if (!p->needed[n] || k->instr[n].stage != stage)
            continue;
        if (k->instr[n].op == F8_K_SUM)
            start_sum(p, n);
        if (carried(&k->instr[n])) {
            if (carries == F8_LL_CARRY_MAX)
                return f8_fail(d, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                               "a kernel with more than %d maxima in one stage", F8_LL_CARRY_MAX);
            owner[carries] = n;
            carry[carries++] = max_identity(m, k->instr[n].op);
        }
    }
    const int64_t whole = k->cols / m->lanes * m->lanes;
    if (whole)
        column_loop(p, stage, f8_ll_i64(m, 0), f8_ll_i64(m, whole), carry, carries);
    if (whole < k->cols) {
        p->column = f8_ll_i64(m, whole);
        p->mask = const_mask(m, k->cols - whole);
        column_body(p, stage, carry);
    }
    for (int i = 0; i < carries; i++)
        p->scalar[owner[i]] = finish_max(p, k->instr[owner[i]].op, carry[i]);
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (p->needed[n] && k->instr[n].op == F8_K_SUM && k->instr[n].stage == stage)
            p->scalar[n] = finish_sum(p, n);
    return F8_OK;
}

/* Values and stores that vary over rows alone, of one stage. */
static void row_scalars(f8_cpu_printer *p, int32_t stage)
{
    f8_llvm_module *m = p->m;
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const f8_kinstr *i = &p->k->instr[n];
        if (i->stage != stage || f8_kinstr_reduces(i) || f8_kinstr_is_root(i) ||
            (i->ext & F8_EXT_COL))
            continue;
        if (i->op == F8_K_STORE) {
            const f8_kinstr *from = &p->k->instr[i->a];
            if (i->ext == F8_EXT_ROW) {
                f8_cpu_store_scalar(p, n);
            } else if (from->ext == F8_EXT_ROW) { /* one element, held by every row */
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

static f8_status rows_loop(f8_cpu_printer *p, LLVMValueRef begin, LLVMValueRef end, f8_diag *d)
{
    f8_llvm_module *m = p->m;
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, begin, end, f8_ll_i64(m, 1), NULL, 0);
    p->row = l.index;
    f8_cpu_row_pointers(p);
    for (int32_t stage = 0; stage < (int32_t)p->k->n_stages; stage++) {
        row_scalars(p, stage);
        F8_TRY(row_stage(p, stage, d));
    }
    f8_ll_loop_end(m, &l, NULL);
    return F8_OK;
}

/* ---- tasks ---- */

/* The accumulators of blocks of `block` rows: no rows yet; or to row `at` of the results. */
static void start_partials(f8_cpu_printer *p, int64_t block)
{
    f8_llvm_module *m = p->m;
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const f8_kinstr *i = &p->k->instr[n];
        if (!f8_kinstr_is_partial(i) || i->imm != block)
            continue;
        LLVMValueRef none = f8_ll_vf32(m, i->op == F8_K_COLSUM ? -0.0f : 0.0f);
        f8_ll_loop l;
        f8_ll_loop_begin(m, &l, f8_ll_i64(m, 0), f8_ll_i64(m, padded(p->k->cols)),
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

static void store_partials(f8_cpu_printer *p, int64_t block, LLVMValueRef at)
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
            copy_vector(m, to, p->partial[n], f8_ll_i64(m, whole), const_mask(m, k->cols - whole));
    }
}

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

/* Rows [begin, end), of whole blocks but at the matrix's end: larger blocks around smaller ones. */
static f8_status blocks_loop(f8_cpu_printer *p, int64_t limit, LLVMValueRef begin, LLVMValueRef end,
                             f8_diag *d)
{
    f8_llvm_module *m = p->m;
    const int64_t block = block_below(p->k, limit);
    if (!block)
        return rows_loop(p, begin, end, d);
    LLVMValueRef rows = f8_ll_i64(m, block);
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, begin, end, rows, NULL, 0);
    start_partials(p, block);
    LLVMValueRef next = m->ll->BuildAdd(m->b, l.index, rows, "");
    F8_TRY(blocks_loop(p, block, l.index, f8_ll_imin(m, next, end), d));
    store_partials(p, block, m->ll->BuildUDiv(m->b, l.index, rows, ""));
    f8_ll_loop_end(m, &l, NULL);
    return F8_OK;
}

static f8_status print_rows(f8_cpu_printer *p, f8_diag *d)
{
    f8_llvm_module *m = p->m;
    LLVMValueRef each = f8_ll_i64(m, rows_per_task(p->k));
    LLVMValueRef begin = m->ll->BuildMul(m->b, p->phase.begin, each, "");
    LLVMValueRef end =
        f8_ll_imin(m, m->ll->BuildMul(m->b, p->phase.end, each, ""), p->ints[0]);
    return blocks_loop(p, INT64_MAX, begin, end, d);
}

static void print_flat(f8_cpu_printer *p)
{
    f8_llvm_module *m = p->m;
    LLVMValueRef each = f8_ll_i64(m, F8_CPU_CHUNK);
    LLVMValueRef begin = m->ll->BuildMul(m->b, p->phase.begin, each, "");
    LLVMValueRef end = f8_ll_imin(m, m->ll->BuildMul(m->b, p->phase.end, each, ""), p->ints[0]);
    /* begin is a multiple of the vector, so rounding the end down leaves whole vectors */
    LLVMValueRef whole = m->ll->BuildAnd(m->b, end, f8_ll_i64(m, ~(int64_t)(m->lanes - 1)), "");
    f8_kernel_needed(p->k, 0, p->needed);
    column_loop(p, 0, begin, whole, NULL, 0);
    f8_ll_if rest;
    f8_ll_if_begin(m, &rest, m->ll->BuildICmp(m->b, LLVMIntSLT, whole, end, ""));
    p->column = whole;
    p->mask = f8_ll_mask(m, m->ll->BuildSub(m->b, end, whole, ""));
    column_body(p, 0, NULL);
    f8_ll_if_end(m, &rest);
}

/* Values that vary over nothing, and stores of them by whoever has task 0. */
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
    const int64_t row = padded(p->k->cols);
    int64_t at = p->k->n_near * row;
    p->near_row = row;
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (f8_kinstr_is_partial(&p->k->instr[n])) {
            p->partial[n] = f8_ll_at(m, m->f32, p->phase.scratch, f8_ll_i64(m, at));
            at += row;
        }
    p->lanes = f8_ll_at(m, m->f32, p->phase.scratch, f8_ll_i64(m, at));
}

f8_status f8_cpu_rows_emit(f8_llvm_module *m, const f8_kernel *k, const char *symbol,
                           f8_arena *arena, f8_diag *d)
{
    f8_cpu_printer p = {.m = m, .k = k};
    f8_ll_phase_begin(m, &p.phase, symbol);
    F8_TRY(f8_cpu_printer_begin(&p, arena, d));
    lay_out_scratch(&p);
    print_once(&p);
    if (k->flat)
        print_flat(&p);
    else
        F8_TRY(print_rows(&p, d));
    f8_ll_phase_end(m);
    return F8_OK;
}
