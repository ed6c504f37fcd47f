/* Row kernels as CUDA C: the loops over tasks, rows and columns of one kernel (print.h).
 *
 *     values that vary over nothing
 *     for each task of this block
 *         elementwise: this thread's vectors: loads, arithmetic, stores
 *         else, for each of the task's batches of rows (one row a group of threads)
 *             the row's pointers and loads
 *             for each stage: values of the row; the vectors of its columns; the reductions
 *             stores of the row
 *     the tail, in the block that ends last
 *
 * What varies over rows alone is loaded before all stages and stored after them; what varies over
 * nothing is loaded and stored likewise around all tasks. So in place, all threads have read a
 * value before one overwrites it. */
#include "codegen/cuda/rows.h"

#include "runtime/plan.h"

#include <stdio.h>
#include <string.h>

/* ---- parameters ---- */

static uint32_t instance_words(const f8_kernel *k)
{
    return f8_kernel_args(k) + k->n_ints + 1;
}

uint32_t f8_cuda_rows_most_instances(const f8_kernel *k)
{
    return k->tail ? 1 : (F8_MULTI_WORDS - 1) / instance_words(k);
}

static void print_params(f8_cuda_printer *p, const char *symbol)
{
    const f8_kernel *k = p->k;
    f8_cuda_open(p, "struct %s_%s", symbol, p->multi ? "instance" : "params");
    for (uint32_t i = 0; i < k->n_buffers; i++)
        f8_cuda_line(p, "%s%s *b%u;", k->buffer[i].write ? "" : "const ",
                     f8_cuda_element(k->buffer[i].dtype), i);
    f8_cuda_rows_tail_params(p);
    for (uint32_t i = 0; i < k->n_ints; i++)
        f8_cuda_line(p, "f8_i64 i%u;", i);
    f8_cuda_line(p, "f8_i64 tasks;");
    p->indent--;
    f8_cuda_line(p, "};");
    if (!p->multi)
        return;
    f8_cuda_open(p, "struct %s_params", symbol);
    f8_cuda_line(p, "f8_i64 n;");
    f8_cuda_line(p, "%s_instance at[%u];", symbol, f8_cuda_rows_most_instances(k));
    p->indent--;
    f8_cuda_line(p, "};");
}

/* ---- pointers ---- */

/* Buffers that vectors are read from or written to, each with the bytes its address must be aligned
 * to. */
static int vector_bytes(const f8_kernel *k, const f8_cuda_layout *l, uint32_t buffer)
{
    const f8_kbuffer *b = &k->buffer[buffer];
    const int bytes = f8_cuda_bytes(b->dtype) * l->vector;
    if (!(b->ext & F8_EXT_COL))
        return 1;
    if (b->transposed) /* a column's rows, side by side */
        return l->ring.chunks ? f8_cuda_tall_bytes(l, f8_cuda_bytes(b->dtype)) : 1;
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        const bool is_of = k->instr[n].buffer == (int32_t)buffer;
        if (is_of && f8_kinstr_is_partial(&k->instr[n]))
            return 1;
        if (is_of && l->ring.chunks && f8_cuda_ring_takes(k, n))
            return 16;
    }
    return bytes > 16 ? 16 : bytes;
}

bool f8_cuda_rows_are_aligned(const f8_target *target, const f8_kernel *k, const f8_arg *arg,
                              const int64_t *ints)
{
    f8_cuda_layout l;
    f8_kernel as = *k;
    as.aligned = true;
    if (f8_cuda_rows_layout(target, &as, &l, NULL) != F8_OK || l.vector == 1)
        return false;
    if (l.ring.chunks && ints[0] % l.rows)
        return false;
    for (uint32_t i = 0; i < k->n_buffers; i++) {
        const f8_kbuffer *b = &k->buffer[i];
        const int64_t row = b->stride < 0 ? 0 : ints[b->stride] * f8_cuda_bytes(b->dtype);
        if ((arg[i].offset | row) & (vector_bytes(k, &l, i) - 1))
            return false;
    }
    return true;
}

/* `wide`: everything is aligned for whole vectors. */
static void print_wide(f8_cuda_printer *p)
{
    bool any = false;
    if (p->aligned)
        return;
    if (p->l.vector == 1) {
        f8_cuda_line(p, "const bool wide = true;");
        return;
    }
    f8_text_add(p->t, "%*sconst bool wide = ", 4 * p->indent, "");
    for (int align = 16; align > 1; align /= 2) {
        bool some = false;
        for (uint32_t i = 0; i < p->k->n_buffers; i++) {
            const f8_kbuffer *b = &p->k->buffer[i];
            if (b->transposed || vector_bytes(p->k, &p->l, i) != align)
                continue; /* transposed stores test for themselves */
            f8_text_add(p->t, "%s(f8_u64)a.b%u", some ? " | " : any ? " && ((" : "((", i);
            some = any = true;
            if (b->stride >= 0)
                f8_text_add(p->t, " | (f8_u64)(a.i%d * %d)", b->stride, f8_cuda_bytes(b->dtype));
        }
        if (some)
            f8_text_add(p->t, ") & %d) == 0", align - 1);
    }
    f8_text_add(p->t, "%s;\n", any ? "" : "true");
}

/* q<i> for buffers without a row term, `wide` unless all launches are aligned, and the values that
 * vary over nothing. */
static void print_once(f8_cuda_printer *p)
{
    const f8_kernel *k = p->k;
    for (uint32_t i = 0; i < k->n_buffers; i++)
        if (k->buffer[i].stride < 0)
            f8_cuda_line(p, "%s%s *const q%u = a.b%u;", k->buffer[i].write ? "" : "const ",
                         f8_cuda_element(k->buffer[i].dtype), i, i);
    print_wide(p);
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (k->instr[n].ext == F8_EXT_ONE && k->instr[n].op != F8_K_STORE &&
            !f8_kinstr_is_partial(&k->instr[n]))
            f8_cuda_print_value(p, n);
}

static bool is_row_buffer(const f8_cuda_printer *p, uint32_t buffer)
{
    const f8_kbuffer *b = &p->k->buffer[buffer];
    if (b->stride < 0 || b->transposed)
        return false;
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (f8_kinstr_is_partial(&p->k->instr[n]) && p->k->instr[n].buffer == (int32_t)buffer)
            return false;
    return true;
}

/* q<i> for the row `row`, and the row's own loads. */
static void print_row(f8_cuda_printer *p)
{
    const f8_kernel *k = p->k;
    for (uint32_t i = 0; i < k->n_buffers; i++) {
        const f8_kbuffer *b = &k->buffer[i];
        char row[96] = "row";
        if (!is_row_buffer(p, i))
            continue;
        if (b->ids >= 0) {
            f8_cuda_line(p, "const f8_i64 id%u = (f8_i32)a.b%d[row];", i, b->ids);
            f8_cuda_line(p, "const bool absent%u = (f8_u64)id%u >= (f8_u64)a.i%d;", i, i, b->limit);
            snprintf(row, sizeof row, "(absent%u ? 0 : id%u)", i, i);
        } else if (b->map >= 0 && k->map[b->map].shift >= 0) {
            snprintf(row, sizeof row, "(row >> %d)", k->map[b->map].shift);
        } else if (b->map >= 0) {
            snprintf(row, sizeof row, "f8_period(row, a.i%d, a.i%d)", k->map[b->map].div,
                     k->map[b->map].mod);
        }
        f8_cuda_line(p, "%s%s *const q%u = a.b%u + %s * a.i%d;", b->write ? "" : "const ",
                     f8_cuda_element(b->dtype), i, i, row, b->stride);
    }
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (k->instr[n].op == F8_K_LOAD && k->instr[n].ext == F8_EXT_ROW)
            f8_cuda_print_value(p, n);
}

/* Values of the row, known from this stage on. */
static void print_row_values(f8_cuda_printer *p, int32_t stage)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const f8_kinstr *i = &p->k->instr[n];
        if (i->stage == stage && i->ext == F8_EXT_ROW && i->op != F8_K_LOAD &&
            i->op != F8_K_STORE && !f8_kinstr_reduces(i))
            f8_cuda_print_value(p, n);
    }
}

/* ---- stores without columns ---- */

/* A store of one element whose value varies over `ext`. */
static bool is_single_store(const f8_kernel *k, uint32_t n, f8_extent ext)
{
    const f8_kinstr *i = &k->instr[n];
    return i->op == F8_K_STORE && i->ext == F8_EXT_ONE && k->instr[i->a].ext == ext;
}

/* Stores of the row's own values by the thread of which `chosen` is true. */
static void print_row_stores(f8_cuda_printer *p, const char *chosen)
{
    bool row = false, one = false;
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        row |= p->k->instr[n].op == F8_K_STORE && p->k->instr[n].ext == F8_EXT_ROW;
        one |= is_single_store(p->k, n, F8_EXT_ROW);
    }
    if (!row && !one)
        return;
    f8_cuda_open(p, "if (%s)", chosen);
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (p->k->instr[n].op == F8_K_STORE && p->k->instr[n].ext == F8_EXT_ROW)
            f8_cuda_print_store(p, n);
    if (one) { /* one element, held by every row */
        f8_cuda_open(p, "if (row == 0)");
        for (uint32_t n = 0; n < p->k->n_instrs; n++)
            if (is_single_store(p->k, n, F8_EXT_ROW))
                f8_cuda_print_store(p, n);
        f8_cuda_close(p);
    }
    f8_cuda_close(p);
}

/* Stores of what varies over nothing, by one thread once the others of the block have read. */
static void print_once_stores(f8_cuda_printer *p, const char *first)
{
    bool any = false;
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        any |= is_single_store(p->k, n, F8_EXT_ONE);
    if (!any)
        return;
    f8_cuda_open(p, "if (%s)", first);
    f8_cuda_line(p, "f8_sync();");
    f8_cuda_open(p, "if (f8_thread() == 0)");
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (is_single_store(p->k, n, F8_EXT_ONE))
            f8_cuda_print_store(p, n);
    f8_cuda_close(p);
    f8_cuda_close(p);
}

/* ---- elementwise kernels ---- */

static void print_points_body(f8_cuda_printer *p)
{
    f8_cuda_needed(p, 0);
    f8_cuda_rows_declare_loads(p);
    f8_cuda_rows_loads(p);
    f8_cuda_rows_u(p);
    f8_cuda_rows_column(p);
    f8_cuda_rows_late_loads(p);
    f8_cuda_rows_declare_taken(p);
    f8_cuda_rows_blocks(p);
    f8_cuda_rows_add_pairs(p);
    f8_cuda_open(p, "F8_UNROLL for (int e = 0; e < %d; e++)", p->l.vector);
    f8_cuda_rows_elements(p);
    f8_cuda_close(p);
    f8_cuda_rows_stores(p, NULL);
    f8_cuda_rows_block_stores(p, NULL);
    f8_cuda_close(p);
}

static void print_points(f8_cuda_printer *p)
{
    const f8_cuda_layout *l = &p->l;
    if (p->k->flat) {
        print_points_body(p);
        return;
    }
    if (l->vectors == 1) {
        f8_cuda_line(p, "const f8_i64 row = task * %d + f8_thread();", l->threads);
        f8_cuda_line(p, "const int begin = 0;");
    } else {
        f8_cuda_line(p, "const f8_i64 row0 = task * %d / %lld;", l->threads, (long long)l->vectors);
        f8_cuda_line(p, "const int at = (int)(task * %d - row0 * %lld) + f8_thread();", l->threads,
                     (long long)l->vectors);
        f8_cuda_line(p, "const f8_i64 row = row0 + at / %lld;", (long long)l->vectors);
        f8_cuda_line(p, "const int begin = at %% %lld * %d;", (long long)l->vectors, l->vector);
    }
    f8_cuda_open(p, "if (row < a.i0)");
    print_row(p);
    print_row_values(p, 0);
    if (l->columns)
        print_points_body(p);
    print_row_stores(p, "begin == 0");
    f8_cuda_close(p);
}

/* ---- tasks ---- */

static void print_by_rows(f8_cuda_printer *p)
{
    const f8_cuda_layout *l = &p->l;
    const bool alone = l->group > F8_CUDA_WARP;
    f8_cuda_rows_task(p);
    if (l->task_rows > l->rows) {
        f8_cuda_open(p, "for (int batch = 0; batch < %d; batch++)", l->task_rows / l->rows);
        f8_cuda_line(p, "const f8_i64 first = block * %d + batch * %d;", l->task_rows, l->rows);
        f8_cuda_line(p, "if (first >= a.i0)");
        f8_cuda_line(p, "    break;");
    } else {
        f8_cuda_line(p, "const f8_i64 first = block * %d;", l->task_rows);
    }
    const bool whole = l->ring.chunks > 0; /* all rows of the block are there */
    if (whole)
        f8_cuda_line(p, "const int rows = %d;", l->rows);
    else if (l->staged)
        f8_cuda_line(p, "const int rows = (int)(a.i0 - first < %d ? a.i0 - first : %d);", l->rows,
                     l->rows);
    if (alone || whole) {
        if (alone)
            f8_cuda_line(p, "const f8_i64 row = first;");
        else
            f8_cuda_line(p, "const f8_i64 row = first + warp;");
        f8_cuda_line(p, "const bool live = true;");
    } else { /* shuffles want all threads of a warp, so those past the end repeat the last row */
        f8_cuda_line(p, "const f8_i64 own = first + f8_thread() / %d;", l->group);
        f8_cuda_line(p, "const bool live = own < a.i0;");
        f8_cuda_line(p, "const f8_i64 row = live ? own : a.i0 - 1;");
    }
    print_row(p);
    f8_cuda_rows_vector_pointers(p, true);
    f8_cuda_ring_row(p);
    f8_cuda_rows_begin(p);
    for (int32_t stage = 0; stage < (int32_t)p->k->n_stages; stage++) {
        print_row_values(p, stage);
        f8_cuda_rows_stage(p, stage);
    }
    print_row_stores(p, l->split ? "live && lane == 0 && begin == 0" : "live && lane == 0");
    f8_cuda_rows_end(p);
    if (l->task_rows > l->rows)
        f8_cuda_close(p);
    f8_cuda_rows_task_end(p);
}

static void print_kernel(f8_cuda_printer *p, const char *symbol)
{
    f8_cuda_line(p, "F8_KERNEL(%s, %d, %d)", symbol, p->l.threads, p->l.min_blocks);
    f8_cuda_line(p, "{");
    p->indent++;
    f8_cuda_rows_shared(p);
    f8_cuda_rows_tail_shared(p);
    if (p->multi) {
        f8_cuda_line(p, "int which = 0;");
        f8_cuda_open(p, "for (f8_i64 i = f8_block(); i < p.at[p.n - 1].tasks; i += f8_blocks())");
        f8_cuda_open(p, "while (i >= p.at[which].tasks)");
        f8_cuda_line(p, "which++;");
        f8_cuda_close(p);
        f8_cuda_line(p, "const %s_instance &a = p.at[which];", symbol);
        f8_cuda_line(p, "const f8_i64 task = which ? i - p.at[which - 1].tasks : i;");
        print_once(p);
    } else {
        f8_cuda_line(p, "const %s_params &a = p;", symbol);
        print_once(p);
        f8_cuda_ring_first(p);
        f8_cuda_open(p, "for (f8_i64 task = f8_block(); task < a.tasks; task += f8_blocks())");
    }
    if (p->l.points)
        print_points(p);
    else
        print_by_rows(p);
    if (p->multi)
        print_once_stores(p, "task == 0");
    f8_cuda_close(p);
    if (!p->multi)
        print_once_stores(p, "f8_block() == 0");
    f8_cuda_rows_tail(p);
    f8_cuda_close(p);
}

/* ---- the way in ---- */

int64_t f8_cuda_rows_tasks(const f8_target *target, const f8_kernel *k, int64_t extent)
{
    f8_cuda_layout l;
    if (f8_cuda_rows_layout(target, k, &l, NULL) != F8_OK)
        return 0;
    if (l.points) {
        const int64_t each = (int64_t)l.threads * (k->flat ? l.vector * l.sets : 1);
        return (extent * (k->flat ? 1 : l.vectors) + each - 1) / each;
    }
    return (extent + l.task_rows - 1) / l.task_rows * f8_cuda_layout_splits(k, &l);
}

f8_status f8_cuda_rows_emit(f8_text *t, const f8_target *target, const f8_kernel *k, bool multi,
                            const char *symbol, f8_cuda_launch *out, f8_diag *d)
{
    f8_cuda_printer p = {.t = t, .k = k, .arena = t->arena, .multi = multi};
    if (instance_words(k) + multi > F8_MULTI_WORDS)
        return f8_fail(d, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "a kernel of %u buffers and %u integers: a launch takes %d in all",
                       f8_kernel_args(k), k->n_ints, F8_MULTI_WORDS - 1);
    if (multi && k->tail)
        return f8_fail(d, F8_ERR_INTERNAL, F8_NOWHERE, "a launch of many tensors has no tail");
    if (multi)
        F8_TRY(f8_cuda_rows_layout_many(target, k, &p.l, d));
    else
        F8_TRY(f8_cuda_rows_layout(target, k, &p.l, d));
    /* Without branches the compiler interleaves more. The form for many tensors of a staged kernel
     * has no registers for that. */
    p.aligned = k->aligned && !p.l.branches && !(multi && p.l.staged);
    p.needed = F8_NEW_ARRAY(t->arena, bool, k->n_instrs + 1);
    p.raw = F8_NEW_ARRAY(t->arena, uint8_t, k->n_instrs + 1);
    p.loaded = F8_NEW_ARRAY(t->arena, bool, k->n_instrs + 1);
    p.ahead = F8_NEW_ARRAY(t->arena, bool, k->n_instrs + 1);
    p.late = F8_NEW_ARRAY(t->arena, bool, k->n_instrs + 1);
    p.brought = F8_NEW_ARRAY(t->arena, uint64_t, k->n_instrs + 1);
    p.source = F8_NEW_ARRAY(t->arena, uint32_t, k->n_instrs + 1);
    p.put = F8_NEW_ARRAY(t->arena, const char *, k->n_instrs + 1);
    p.pairs = F8_NEW_ARRAY(t->arena, bool, k->n_instrs + 1);
    if (t->arena->failed)
        return f8_arena_status(t->arena, d);
    f8_cuda_rows_find_pairs(&p);
    f8_cuda_store_plan(&p);
    f8_cuda_ring_plan(&p);
    f8_cuda_print_functions(&p);
    f8_cuda_rows_tail_functions(&p);
    f8_text_add(t, "/* %s */\n", k->text);
    print_params(&p, symbol);
    f8_text_add(t, "\n");
    print_kernel(&p, symbol);
    f8_text_add(t, "\n");
    *out = (f8_cuda_launch){.threads = (uint32_t)p.l.threads,
                            .shared = (uint32_t)p.l.shared,
                            .bulk = (uint32_t)(p.l.rows * p.l.ring.chunks * p.l.ring.chunk),
                            .n_args = f8_kernel_args(k),
                            .n_ints = k->n_ints,
                            .max_blocks = p.l.max_blocks};
    snprintf(out->symbol, sizeof out->symbol, "%s", symbol);
    return f8_arena_status(t->arena, d);
}
