/* Row programs as CUDA C: the loops over tasks, rows and columns of one kernel (cuda_print.h).
 *
 *     values that vary over nothing
 *     for each task of this block
 *         elementwise: this thread's vectors: loads, arithmetic, stores
 *         else, for each of the task's batches of rows (one row a group of threads)
 *             the row's pointers and loads
 *             for each stage: values of the row; the vectors of its columns; the reductions
 *             stores of the row
 *
 * What varies over rows alone is loaded before and stored after all stages, and what varies over
 * nothing likewise around all tasks: in place, all threads have then read it. */
#include "codegen/cuda_rows.h"

#include <stdio.h>
#include <string.h>

/* Registers for loads under way together; rows hand in hand have 128 a thread in all. */
enum { EARLY_WORDS = 48, EARLY_WORDS_STAGED = 32 };

/* ---- parameters ---- */

static uint32_t instance_words(const f8_kernel *k)
{
    return k->n_buffers + k->n_ints + 1;
}

uint32_t f8_cuda_rows_most_instances(const f8_kernel *k)
{
    return (F8_CUDA_PARAM_WORDS - 1) / instance_words(k);
}

static void print_params(f8_cuda_printer *p, const char *symbol)
{
    const f8_kernel *k = p->k;
    f8_cuda_open(p, "struct %s_%s", symbol, p->multi ? "instance" : "params");
    for (uint32_t i = 0; i < k->n_buffers; i++)
        f8_cuda_line(p, "%s%s *b%u;", k->buffer[i].write ? "" : "const ",
                     f8_cuda_element(k->buffer[i].dtype), i);
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

/* Buffers that vectors are read from or written to, each with the bytes its address must be aligned to. */
static int vector_bytes(const f8_cuda_printer *p, uint32_t buffer)
{
    const f8_kbuffer *b = &p->k->buffer[buffer];
    const int bytes = f8_cuda_bytes(b->dtype) * p->l.vector;
    if (!(b->ext & F8_EXT_COL) || b->transposed)
        return 1;
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (p->k->instr[n].op == F8_K_COLSUM && p->k->instr[n].buffer == (int32_t)buffer)
            return 1;
    return bytes > 16 ? 16 : bytes;
}

/* `wide`: everything is aligned for whole vectors. */
static void print_wide(f8_cuda_printer *p)
{
    bool any = false;
    if (p->l.vector == 1) {
        f8_cuda_line(p, "const bool wide = true;");
        return;
    }
    f8_text_add(p->t, "%*sconst bool wide = ", 4 * p->indent, "");
    for (int align = 16; align > 1; align /= 2) {
        bool some = false;
        for (uint32_t i = 0; i < p->k->n_buffers; i++) {
            const f8_kbuffer *b = &p->k->buffer[i];
            if (vector_bytes(p, i) != align)
                continue;
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

/* q<i> for buffers without a row term, `wide`, and the values that vary over nothing. */
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
            k->instr[n].op != F8_K_COLSUM)
            f8_cuda_print_value(p, n);
}

static bool is_row_buffer(const f8_cuda_printer *p, uint32_t buffer)
{
    const f8_kbuffer *b = &p->k->buffer[buffer];
    if (b->stride < 0 || b->transposed)
        return false;
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (p->k->instr[n].op == F8_K_COLSUM && p->k->instr[n].buffer == (int32_t)buffer)
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

static void print_scalar_store(f8_cuda_printer *p, uint32_t n)
{
    const f8_kinstr *i = &p->k->instr[n];
    const f8_cuda_name v = f8_cuda_value(p, i->a);
    const f8_dtype t = p->k->buffer[i->buffer].dtype;
    if (t == F8_F32)
        f8_cuda_line(p, "*q%d = %s;", i->buffer, v.s);
    else if (t == F8_BF16)
        f8_cuda_line(p, "*q%d = (f8_u16)f8_bf16x2(%s, 0.0f);", i->buffer, v.s);
    else
        f8_cuda_line(p, "*q%d = (%s)%s;", i->buffer, f8_cuda_element(t), v.s);
}

/* A store of one element whose value varies over `ext`. */
static bool is_single_store(const f8_kernel *k, uint32_t n, f8_extent ext)
{
    const f8_kinstr *i = &k->instr[n];
    return i->op == F8_K_STORE && i->ext == F8_EXT_ONE && k->instr[i->a].ext == ext;
}

void f8_cuda_rows_row_stores(f8_cuda_printer *p, const char *chosen)
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
            print_scalar_store(p, n);
    if (one) { /* one element, held by every row */
        f8_cuda_open(p, "if (row == 0)");
        for (uint32_t n = 0; n < p->k->n_instrs; n++)
            if (is_single_store(p->k, n, F8_EXT_ROW))
                print_scalar_store(p, n);
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
            print_scalar_store(p, n);
    f8_cuda_close(p);
    f8_cuda_close(p);
}

/* ---- vectors ---- */

static int words_of(const f8_cuda_printer *p, f8_dtype t)
{
    return (f8_cuda_bytes(t) * p->l.vector + 3) / 4;
}

void f8_cuda_rows_u(f8_cuda_printer *p)
{
    if (p->l.sets == 1) {
        f8_cuda_scope(p);
        f8_cuda_line(p, "const int u = 0;");
    } else {
        f8_cuda_open(p, "F8_UNROLL for (int u = 0; u < %d; u++)", p->l.sets);
    }
}

static bool is_column_load(const f8_kinstr *i)
{
    return i->op == F8_K_LOAD && (i->ext & F8_EXT_COL);
}

/* Rows whose columns are no multiple of the vector are often loaded and stored in parts. */
static const char *in_parts(const f8_cuda_printer *p)
{
    return !p->k->flat && p->k->cols % p->l.vector ? "ragged" : "some";
}

/* Elements of a rolled load whose vectors don't stay whole come one by one. */
static bool is_scattered(const f8_cuda_printer *p, const f8_kinstr *i)
{
    return i->group && (i->group % p->l.vector || i->shift % p->l.vector);
}

static void print_load(f8_cuda_printer *p, uint32_t n, bool parts)
{
    const f8_kinstr *i = &p->k->instr[n];
    const int bytes = f8_cuda_bytes(p->k->buffer[i->buffer].dtype), v = p->l.vector;
    const long long shift = (long long)i->shift, group = (long long)i->group;
    char at[96] = "c";
    if (is_scattered(p, i)) {
        f8_cuda_line(p, "f8_get_rolled<%d, %d>(w%u[u], q%d, (int)c, n, %lld, %lld);", bytes, v, n,
                     i->buffer, shift, group);
        return;
    }
    if (i->group)
        snprintf(at, sizeof at, "f8_rolled((int)c, %lld, %lld)", shift, group);
    if (parts)
        f8_cuda_line(p, "f8_get_%s<%d, %d>(w%u[u], q%d + %s, n);", in_parts(p), bytes, v, n, i->buffer, at);
    else
        f8_cuda_line(p, "f8_get<%d, %d>(w%u[u], q%d + %s);", bytes, v, n, i->buffer, at);
}

/* A LOAD that this stage has to do. */
static bool is_due(const f8_cuda_printer *p, uint32_t n)
{
    return p->needed[n] && is_column_load(&p->k->instr[n]) && !f8_cuda_is_kept(p, n) &&
           p->raw[n] != F8_CUDA_RAW_LOADED;
}

void f8_cuda_rows_declare_words(f8_cuda_printer *p, uint32_t n)
{
    const int words = words_of(p, p->k->buffer[p->k->instr[n].buffer].dtype);
    f8_cuda_line(p, "f8_u32 w%u[%d][%d];", n, p->l.sets, words);
}

/* A load that may be under way with those of the thread's other vectors. Others find their line in a
 * cache, and would only take registers. */
static bool is_first_touch(const f8_cuda_printer *p, uint32_t n)
{
    const f8_kinstr *i = &p->k->instr[n];
    return i->ext == F8_EXT_FULL && !i->group && !p->touched[n];
}

/* Whether LOAD n is done for all vectors before anything else: what stays for the row, what reads other
 * columns, and first touches while there are registers. */
static bool is_early(const f8_cuda_printer *p, uint32_t n)
{
    int words = 0;
    if (p->l.points || p->raw[n] || p->k->instr[n].group)
        return true;
    for (uint32_t i = 0; i <= n; i++)
        if (is_due(p, i) && (p->raw[i] || is_first_touch(p, i)))
            words += p->l.sets * words_of(p, p->k->buffer[p->k->instr[i].buffer].dtype);
    return is_first_touch(p, n) && words <= (p->l.staged ? EARLY_WORDS_STAGED : EARLY_WORDS);
}

static void print_loads(f8_cuda_printer *p, bool early)
{
    bool any = false, due[2] = {false, false};
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        if (!is_due(p, n) || is_early(p, n) != early)
            continue;
        due[is_scattered(p, &p->k->instr[n])] = any = true;
        if (!early)
            f8_cuda_rows_declare_words(p, n);
    }
    for (int scattered = 0; scattered < 2 && any; scattered++)
        for (int parts = 0; parts < (scattered ? 1 : 2) && due[scattered]; parts++) {
            if (scattered)
                f8_cuda_scope(p);
            else
                f8_cuda_open(p, parts ? "else" : "if (wide && n >= %d)", p->l.vector);
            for (uint32_t n = 0; n < p->k->n_instrs; n++)
                if (is_due(p, n) && is_early(p, n) == early &&
                    is_scattered(p, &p->k->instr[n]) == (scattered == 1))
                    print_load(p, n, parts);
            f8_cuda_close(p);
        }
}

/* Loads of this stage's vectors, before anything is stored. */
void f8_cuda_rows_loads(f8_cuda_printer *p)
{
    bool any = false;
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const bool due = is_due(p, n) && is_early(p, n);
        any |= due;
        if (due && !p->raw[n])
            f8_cuda_rows_declare_words(p, n);
    }
    if (!any)
        return;
    f8_cuda_rows_u(p);
    f8_cuda_rows_column(p);
    print_loads(p, true);
    f8_cuda_close(p);
}

void f8_cuda_rows_late_loads(f8_cuda_printer *p)
{
    print_loads(p, false);
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (is_due(p, n)) {
            p->touched[n] = true;
            if (p->raw[n])
                p->raw[n] = F8_CUDA_RAW_LOADED;
        }
}

bool f8_cuda_rows_takes(const f8_cuda_printer *p, uint32_t n)
{
    const f8_kop op = p->k->instr[n].op;
    return p->needed[n] && (op == F8_K_STORE || op == F8_K_COLSUM);
}

/* What stores and column sums take, gathered over a vector's elements. */
void f8_cuda_rows_declare_taken(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (f8_cuda_rows_takes(p, n)) {
            const bool word = p->k->instr[n].op == F8_K_STORE && (p->put[n][0] == 'w' || p->put[n][0] == 'h' ||
                                                                   !strcmp(p->put[n], "byte"));
            f8_cuda_line(p, "%s y%u[%d];", word ? "f8_u32" : "float", n, p->l.vector);
        }
}

void f8_cuda_rows_elements(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (p->needed[n] && !f8_kinstr_is_root(&p->k->instr[n]))
            f8_cuda_print_element(p, n);
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (f8_cuda_rows_takes(p, n))
            f8_cuda_line(p, "y%u[e] = %s;", n, f8_cuda_value(p, p->source[n]).s);
}

/* A store of this stage along rows: of values that all rows have in common, or of their own. */
static bool is_along_row(const f8_cuda_printer *p, uint32_t n, bool same)
{
    const f8_kinstr *i = &p->k->instr[n];
    return f8_cuda_rows_takes(p, n) && i->op == F8_K_STORE && !p->k->buffer[i->buffer].transposed &&
           (i->ext == F8_EXT_COL && !p->k->flat) == same;
}

static void print_puts(f8_cuda_printer *p, bool same, const char *parts)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const f8_kinstr *i = &p->k->instr[n];
        if (!is_along_row(p, n, same))
            continue;
        const int bytes = f8_cuda_bytes(p->k->buffer[i->buffer].dtype);
        if (parts)
            f8_cuda_line(p, "f8_put_%s<%d, %d>(q%d + c, x%u, n);", parts, bytes, p->l.vector, i->buffer, n);
        else
            f8_cuda_line(p, "f8_put<%d, %d>(q%d + c, x%u);", bytes, p->l.vector, i->buffer, n);
    }
}

/* Stores of one vector along its row. */
void f8_cuda_rows_stores(f8_cuda_printer *p, const char *live)
{
    for (int same = 0; same < 2; same++) {
        bool any = false;
        for (uint32_t n = 0; n < p->k->n_instrs; n++) {
            if (!is_along_row(p, n, same))
                continue;
            any = true;
            f8_cuda_line(p, "f8_u32 x%u[%d];", n, words_of(p, p->k->buffer[p->k->instr[n].buffer].dtype));
            f8_cuda_line(p, "f8_pack_%s<%d>(x%u, y%u);", p->put[n], p->l.vector, n, n);
        }
        if (!any)
            continue;
        if (live || same)
            f8_cuda_open(p, "if (%s%s%s)", live ? live : "", live && same ? " && " : "",
                         same ? "row == 0" : "");
        f8_cuda_open(p, "if (wide && n >= %d)", p->l.vector);
        print_puts(p, same, NULL);
        f8_cuda_close(p);
        f8_cuda_open(p, "else");
        print_puts(p, same, in_parts(p));
        f8_cuda_close(p);
        if (live || same)
            f8_cuda_close(p);
    }
}

/* ---- elementwise kernels ---- */

static void print_points_body(f8_cuda_printer *p)
{
    f8_cuda_needed(p, 0);
    f8_cuda_rows_loads(p);
    f8_cuda_rows_u(p);
    f8_cuda_rows_column(p);
    f8_cuda_rows_late_loads(p);
    f8_cuda_rows_declare_taken(p);
    f8_cuda_open(p, "F8_UNROLL for (int e = 0; e < %d; e++)", p->l.vector);
    f8_cuda_rows_elements(p);
    f8_cuda_close(p);
    f8_cuda_rows_stores(p, NULL);
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
    f8_cuda_rows_row_stores(p, "begin == 0");
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
    if (l->staged)
        f8_cuda_line(p, "const int rows = (int)(a.i0 - first < %d ? a.i0 - first : %d);", l->rows, l->rows);
    if (alone) {
        f8_cuda_line(p, "const f8_i64 row = first;");
        f8_cuda_line(p, "const bool live = true;");
    } else { /* shuffles want all threads of a warp, so those past the end repeat the last row */
        f8_cuda_line(p, "const f8_i64 own = first + f8_thread() / %d;", l->group);
        f8_cuda_line(p, "const bool live = own < a.i0;");
        f8_cuda_line(p, "const f8_i64 row = live ? own : a.i0 - 1;");
    }
    print_row(p);
    f8_cuda_rows_begin(p);
    for (int32_t stage = 0; stage < (int32_t)p->k->n_stages; stage++) {
        print_row_values(p, stage);
        f8_cuda_rows_stage(p, stage);
    }
    f8_cuda_rows_row_stores(p, l->split ? "live && lane == 0 && begin == 0" : "live && lane == 0");
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
    return (extent + l.task_rows - 1) / l.task_rows * (l.split ? (k->cols + l.cols - 1) / l.cols : 1);
}

f8_status f8_cuda_rows_emit(f8_text *t, const f8_target *target, const f8_kernel *k, bool multi,
                            const char *symbol, f8_cuda_launch *out, f8_diag *d)
{
    f8_cuda_printer p = {.t = t, .k = k, .arena = t->arena, .multi = multi};
    if (instance_words(k) + multi > F8_CUDA_PARAM_WORDS)
        return f8_fail(d, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "a kernel of %u buffers and %u integers: a launch takes %d in all", k->n_buffers,
                       k->n_ints, F8_CUDA_PARAM_WORDS - 1);
    F8_TRY(f8_cuda_rows_layout(target, k, &p.l, d));
    p.needed = F8_NEW_ARRAY(t->arena, bool, k->n_instrs + 1);
    p.raw = F8_NEW_ARRAY(t->arena, uint8_t, k->n_instrs + 1);
    p.touched = F8_NEW_ARRAY(t->arena, bool, k->n_instrs + 1);
    p.source = F8_NEW_ARRAY(t->arena, uint32_t, k->n_instrs + 1);
    p.put = F8_NEW_ARRAY(t->arena, const char *, k->n_instrs + 1);
    if (t->arena->failed)
        return f8_arena_status(t->arena, d);
    f8_cuda_store_plan(&p);
    f8_cuda_print_functions(&p);
    f8_text_add(t, "/* %s */\n", k->text);
    print_params(&p, symbol);
    f8_text_add(t, "\n");
    print_kernel(&p, symbol);
    f8_text_add(t, "\n");
    *out = (f8_cuda_launch){.threads = (uint32_t)p.l.threads,
                            .shared = (uint32_t)p.l.shared,
                            .n_args = k->n_buffers,
                            .n_ints = k->n_ints};
    snprintf(out->symbol, sizeof out->symbol, "%s", symbol);
    return f8_arena_status(t->arena, d);
}
