/* Rows shared by groups of threads: see cuda_rows.h and cuda_print.h.
 *
 * Column sums and transposed stores are staged. The rows of a block go hand in hand: for each
 * vector all of them put their values into a tile, one row each; then every thread takes columns of
 * the tile and adds a column's rows first to last, or stores them side by side. With column sums a
 * task is 64 rows and a thread keeps its columns' sums over the batches of the task: in registers
 * where a row's vectors are unrolled, else in the result itself, which no other thread touches. */
#include "codegen/cuda_rows.h"

#include <stdio.h>

/* Registers for loads kept over stages; rows hand in hand have 128 a thread in all. */
enum { RAW_WORDS = 32, RAW_WORDS_STAGED = 16 };

static int step_of(const f8_cuda_printer *p)
{
    return p->l.group * p->l.vector;
}

static bool is_alone(const f8_cuda_printer *p)
{
    return p->l.group > F8_CUDA_WARP;
}

/* Some vectors lie past the row's end, wholly or in part. */
static bool is_ragged(const f8_cuda_printer *p)
{
    return !p->inside && p->k->cols % (step_of(p) * p->l.sets) != 0;
}

void f8_cuda_rows_column(f8_cuda_printer *p)
{
    const f8_cuda_layout *l = &p->l;
    const int v = l->vector;
    if (p->k->flat) {
        f8_cuda_line(p, "const f8_i64 c = ((task * %d + u) * %d + f8_thread()) * %d;", l->sets,
                     l->threads, v);
        f8_cuda_line(p, "const int n = (int)(a.i0 - c < %d ? a.i0 - c : %d);", v, v);
        return;
    }
    if (l->points)
        f8_cuda_line(p, "const int c = begin;");
    else
        f8_cuda_line(p, "const int c = %s%s(u * %d + lane) * %d;", l->split ? "begin + " : "",
                     l->whole ? "" : "at + ", l->group, v);
    if (l->points ? p->k->cols % v : is_ragged(p))
        f8_cuda_line(p, "const int n = %lld - c;", (long long)p->k->cols);
    else
        f8_cuda_line(p, "const int n = %d;", v);
}

/* ---- shared memory ---- */

static bool keeps_shared(const f8_cuda_printer *p)
{
    return p->l.near_words > 0;
}

void f8_cuda_rows_shared(f8_cuda_printer *p)
{
    const f8_cuda_layout *l = &p->l;
    if (l->points)
        return;
    const int reductions = f8_cuda_rows_reduced_before(p->k, (int32_t)p->k->n_stages);
    if (is_alone(p) && reductions)
        f8_cuda_line(p, "F8_SHARED(float, lanes, %d);", reductions * F8_SUM_LANES);
    if (l->shared)
        f8_cuda_line(p, "F8_SHARED_DYNAMIC(memory);");
    f8_cuda_line(p, "const int lane = f8_thread() %% %d;", l->group);
    for (uint32_t s = 0; s < p->k->n_near; s++)
        if (l->near[s] == F8_CUDA_SHARED)
            f8_cuda_line(p,
                         "f8_u32 *const k%u = (f8_u32 *)memory + f8_thread() / %d * %lld + %lld;",
                         s, l->group, (long long)l->near_words, (long long)l->near_at[s]);
}

static void print_sync(f8_cuda_printer *p)
{
    f8_cuda_line(p, is_alone(p) ? "f8_sync();" : "f8_sync_warp();");
}

/* ---- rows ---- */

/* Loads that several stages want stay in registers while there are few. */
static void keep_words(f8_cuda_printer *p)
{
    const f8_kernel *k = p->k;
    int words = 0;
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        const f8_kinstr *i = &k->instr[n];
        int uses = 0;
        p->raw[n] = 0;
        if (i->op != F8_K_LOAD || i->ext != F8_EXT_FULL || !p->l.whole)
            continue;
        for (int32_t stage = 0; stage < (int32_t)k->n_stages; stage++)
            uses += f8_cuda_needed(p, stage) && p->needed[n] && !f8_cuda_is_kept(p, n);
        const int own =
            p->l.sets * ((f8_cuda_bytes(k->buffer[i->buffer].dtype) * p->l.vector + 3) / 4);
        if (uses > 1 && words + own <= (p->l.staged ? RAW_WORDS_STAGED : RAW_WORDS)) {
            words += own;
            p->raw[n] = F8_CUDA_RAW_KEPT;
        }
    }
}

void f8_cuda_rows_begin(f8_cuda_printer *p)
{
    const f8_kernel *k = p->k;
    keep_words(p);
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (p->raw[n])
            f8_cuda_rows_declare_words(p, n);
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        const f8_kinstr *i = &k->instr[n];
        if (i->near >= 0 && p->l.near[i->near] == F8_CUDA_REGISTERS)
            f8_cuda_line(p, "%s k%d[%d][%d];", i->kind == F8_KIND_F ? "float" : "f8_u32", i->near,
                         p->l.sets, p->l.vector);
    }
    if (keeps_shared(p)) /* the row before has been read */
        print_sync(p);
}

void f8_cuda_rows_end(f8_cuda_printer *p)
{
    int stages = 0;
    for (int32_t stage = 0; stage < (int32_t)p->k->n_stages; stage++)
        stages += f8_cuda_rows_stage_reduces(p->k, stage);
    if (is_alone(p) && stages == 1) /* with more, another stage's lies between two rows' */
        f8_cuda_line(p, "f8_sync();");
}

/* ---- tiles ---- */

static bool is_transposed(const f8_cuda_printer *p, uint32_t n)
{
    const f8_kinstr *i = &p->k->instr[n];
    return i->op == F8_K_STORE && p->k->buffer[i->buffer].transposed;
}

/* COLSUMs of a stage: 0 when there are none. All of a kernel's count for `stage` < 0. */
static int column_sums(const f8_cuda_printer *p, int32_t stage)
{
    int count = 0;
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        count += p->k->instr[n].op == F8_K_COLSUM && (stage < 0 || p->k->instr[n].stage == stage);
    return count;
}

/* A thread's sums of one tile: (column sum, column) pairs thread, thread + threads, ... */
static int sums_a_thread(const f8_cuda_printer *p, int count)
{
    return (count * step_of(p) + p->l.threads - 1) / p->l.threads;
}

/* Where instruction n's tile lies, in bytes: sums of the stage first. */
static int64_t tile_of(const f8_cuda_printer *p, uint32_t n)
{
    int64_t at = p->l.tile_at;
    const bool sum = p->k->instr[n].op == F8_K_COLSUM;
    for (uint32_t i = 0; i < p->k->n_instrs; i++) {
        const f8_kinstr *k = &p->k->instr[i];
        if (!f8_cuda_rows_takes(p, i))
            continue;
        if (k->op == F8_K_COLSUM ? !sum || i < n : is_transposed(p, i) && !sum && i < n)
            at +=
                p->l.rows * f8_cuda_tile_pitch(&p->l, f8_cuda_bytes(p->k->buffer[k->buffer].dtype));
    }
    return at;
}

static void fill_tiles(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const f8_kinstr *i = &p->k->instr[n];
        if (!f8_cuda_rows_takes(p, n) || (i->op != F8_K_COLSUM && !is_transposed(p, n)))
            continue;
        const bool sum = i->op == F8_K_COLSUM;
        const int bytes = sum ? 4 : f8_cuda_bytes(p->k->buffer[i->buffer].dtype);
        f8_cuda_scope(p);
        f8_cuda_line(p, "f8_u32 x[%d];", (bytes * p->l.vector + 3) / 4);
        f8_cuda_line(p, "f8_pack_%s<%d>(x, y%u);", sum ? "f32" : p->put[n], p->l.vector, n);
        f8_cuda_line(p, "f8_put<%d, %d>(memory + %lld + f8_thread() / %d * %lld + lane * %d, x);",
                     bytes, p->l.vector, (long long)tile_of(p, n), p->l.group,
                     (long long)f8_cuda_tile_pitch(&p->l, bytes), bytes * p->l.vector);
        f8_cuda_close(p);
    }
}

static int64_t sums_tile(const f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (f8_cuda_rows_takes(p, n) && p->k->instr[n].op == F8_K_COLSUM)
            return tile_of(p, n);
    return 0;
}

/* The row of sums that pair x of this stage belongs to, as `to`. */
static void print_sum_pointer(f8_cuda_printer *p, int32_t stage)
{
    int slot = 0;
    f8_text_add(p->t, "%*sfloat *const to = ", 4 * p->indent, "");
    const int count = column_sums(p, stage);
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const f8_kinstr *i = &p->k->instr[n];
        if (i->op != F8_K_COLSUM || i->stage != stage)
            continue;
        if (++slot < count)
            f8_text_add(p->t, "x / %d == %d ? ", step_of(p), slot - 1);
        f8_text_add(p->t, "a.b%d + block * a.i%d", i->buffer, p->k->buffer[i->buffer].stride);
        f8_text_add(p->t, slot < count ? " : " : ";\n");
    }
}

static void open_pairs(f8_cuda_printer *p, int count)
{
    const int pairs = count * step_of(p), each = sums_a_thread(p, count);
    f8_cuda_open(p, "F8_UNROLL for (int j = 0; j < %d; j++)", each);
    f8_cuda_line(p, "const int x = f8_thread() + j * %d;", p->l.threads);
    if (pairs % p->l.threads)
        f8_cuda_open(p, "if (x < %d)", pairs);
    else
        f8_cuda_scope(p);
}

static void close_pairs(f8_cuda_printer *p)
{
    f8_cuda_close(p);
    f8_cuda_close(p);
}

static void column_of_pair(f8_cuda_printer *p)
{
    f8_cuda_line(p, "const int column = %s%su * %d + x %% %d;", p->l.split ? "begin + " : "",
                 p->l.whole ? "" : "at + ", step_of(p), step_of(p));
}

static void add_columns(f8_cuda_printer *p)
{
    const int count = column_sums(p, p->stage), w = step_of(p), rows = p->l.rows;
    if (!count)
        return;
    open_pairs(p, count);
    f8_cuda_line(p, "const float *const tile = (const float *)(memory + %lld) + x / %d * %d;",
                 (long long)sums_tile(p), w, w * rows);
    if (p->l.whole) {
        f8_cuda_line(p, "t%d[u][j] = f8_column_sum<%d, %d>(tile, rows, x %% %d, t%d[u][j]);",
                     p->stage, rows, w, w, p->stage);
    } else {
        column_of_pair(p);
        print_sum_pointer(p, p->stage);
        f8_cuda_line(p, "if (column < %lld)", (long long)p->k->cols);
        f8_cuda_line(p, "    to[column] = f8_column_sum<%d, %d>(tile, rows, x %% %d, %s);", rows, w,
                     w, p->l.task_rows > rows ? "batch ? to[column] : -0.0f" : "-0.0f");
    }
    close_pairs(p);
}

/* Column by column. */
static void print_column_loop(f8_cuda_printer *p, uint32_t n, int bytes)
{
    const int32_t b = p->k->instr[n].buffer, stride = p->k->buffer[b].stride;
    const int w = step_of(p);
    f8_cuda_open(p, "F8_ROLLED for (int x = f8_thread(); x < %d; x += %d)", w, p->l.threads);
    column_of_pair(p);
    f8_cuda_line(p, "f8_u8 *const to = (f8_u8 *)(a.b%d + column * a.i%d + first);", b, stride);
    f8_cuda_line(p, "const bool tall = (((f8_u64)to | (f8_u64)(a.i%d * %d)) & 15) == 0;", stride,
                 bytes);
    f8_cuda_line(p, "if (column < %lld)", (long long)p->k->cols);
    f8_cuda_line(p, "    f8_column_store<%d, %d, %lld>(to, memory + %lld, rows, x, tall);", bytes,
                 p->l.rows, (long long)f8_cuda_tile_pitch(&p->l, bytes), (long long)tile_of(p, n));
    f8_cuda_close(p);
}

/* Bytes, in squares of 4 x 4: those of the same columns are neighbours, so that they write a column
 * together. */
static void print_square_loop(f8_cuda_printer *p, uint32_t n)
{
    const int32_t b = p->k->instr[n].buffer, stride = p->k->buffer[b].stride;
    const int down = p->l.rows / 4, squares = step_of(p) / 4 * down;
    f8_cuda_open(p, "F8_ROLLED for (int y = f8_thread(); y < %d; y += %d)", squares, p->l.threads);
    f8_cuda_line(p, "const int x = y / %d * 4;", down);
    column_of_pair(p);
    f8_cuda_line(p, "f8_square_store<%lld>(a.b%d + column * a.i%d + first + y %% %d * 4, a.i%d,",
                 (long long)f8_cuda_tile_pitch(&p->l, 1), b, stride, down, stride);
    f8_cuda_line(p, "    memory + %lld, y %% %d * 4, x, %lld - column);", (long long)tile_of(p, n),
                 down, (long long)p->k->cols);
    f8_cuda_close(p);
}

static void store_columns(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        if (!f8_cuda_rows_takes(p, n) || !is_transposed(p, n))
            continue;
        const int32_t b = p->k->instr[n].buffer;
        const int bytes = f8_cuda_bytes(p->k->buffer[b].dtype);
        if (bytes == 1 && p->l.rows % 4 == 0) {
            f8_cuda_open(p, "if (rows == %d && (((f8_u64)a.b%d | (f8_u64)a.i%d) & 3) == 0)",
                         p->l.rows, b, p->k->buffer[b].stride);
            print_square_loop(p, n);
            f8_cuda_close(p);
            f8_cuda_open(p, "else");
            print_column_loop(p, n, bytes);
            f8_cuda_close(p);
        } else {
            print_column_loop(p, n, bytes);
        }
    }
}

static void print_tiles(f8_cuda_printer *p)
{
    bool any = false;
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        any |=
            f8_cuda_rows_takes(p, n) && (p->k->instr[n].op == F8_K_COLSUM || is_transposed(p, n));
    if (!any)
        return;
    fill_tiles(p);
    f8_cuda_line(p, "f8_sync();");
    add_columns(p);
    store_columns(p);
    f8_cuda_line(p, "f8_sync();");
}

/* ---- tasks ---- */

void f8_cuda_rows_task(f8_cuda_printer *p)
{
    const long long blocks = (long long)((p->k->cols + p->l.cols - 1) / p->l.cols);
    if (p->l.split) {
        f8_cuda_line(p, "const f8_i64 block = task / %lld;", blocks);
        f8_cuda_line(p, "const int begin = (int)(task - block * %lld) * %lld;", blocks,
                     (long long)p->l.cols);
    } else {
        f8_cuda_line(p, "const f8_i64 block = task;");
    }
    for (int32_t stage = 0; stage < (int32_t)p->k->n_stages && p->l.whole; stage++) {
        const int count = column_sums(p, stage);
        if (!count)
            continue;
        f8_cuda_line(p, "float t%d[%d][%d];", stage, p->l.sets, sums_a_thread(p, count));
        f8_cuda_line(p, "F8_UNROLL for (int u = 0; u < %d; u++)", p->l.sets);
        f8_cuda_line(p, "    F8_UNROLL for (int j = 0; j < %d; j++)", sums_a_thread(p, count));
        f8_cuda_line(p, "        t%d[u][j] = -0.0f;", stage);
    }
}

void f8_cuda_rows_task_end(f8_cuda_printer *p)
{
    for (int32_t stage = 0; stage < (int32_t)p->k->n_stages && p->l.whole; stage++) {
        const int count = column_sums(p, stage);
        if (!count)
            continue;
        f8_cuda_rows_u(p);
        open_pairs(p, count);
        column_of_pair(p);
        print_sum_pointer(p, stage);
        f8_cuda_line(p, "if (column < %lld)", (long long)p->k->cols);
        f8_cuda_line(p, "    to[column] = t%d[u][j];", stage);
        close_pairs(p);
        f8_cuda_close(p);
    }
}

/* ---- a stage ---- */

static bool stage_rolls(const f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (p->needed[n] && p->k->instr[n].op == F8_K_ROLL && !f8_cuda_is_kept(p, n))
            return true;
    return false;
}

static void print_vectors(f8_cuda_printer *p)
{
    const bool ragged = is_ragged(p) && f8_cuda_rows_stage_reduces(p->k, p->stage);
    const bool parts = p->k->cols % p->l.vector != 0;
    f8_cuda_rows_loads(p);
    f8_cuda_rows_u(p);
    f8_cuda_rows_column(p);
    f8_cuda_rows_late_loads(p);
    f8_cuda_rows_declare_taken(p);
    f8_cuda_rows_declare_handed(p);
    if (ragged && !parts)
        f8_cuda_line(p, "const bool in = n > 0;");
    f8_cuda_open(p, "F8_UNROLL for (int e = 0; e < %d; e++)", p->l.vector);
    if (ragged && parts)
        f8_cuda_line(p, "const bool in = e < n;");
    f8_cuda_rows_elements(p);
    f8_cuda_rows_reduce(p, ragged);
    f8_cuda_close(p);
    f8_cuda_rows_hand(p);
    f8_cuda_rows_stores(p, is_alone(p) ? NULL : "live");
    print_tiles(p);
    f8_cuda_close(p);
    f8_cuda_rows_add_handed(p);
}

/* The vectors of a row that are not in registers at once. Most need no test of bounds and alignment
 * and have a loop without; what is left, or the whole of a row that is not aligned, comes after. */
static void print_wide_row(f8_cuda_printer *p)
{
    const int sets = p->l.sets, each = step_of(p) * sets;
    const long long cols = p->l.cols, most = cols / each * each;
    if (p->l.staged) { /* all rows of the block are in the same columns */
        f8_cuda_open(p, "for (int at = 0; at < %lld; at += %d)", cols, each);
        print_vectors(p);
        f8_cuda_close(p);
        return;
    }
    f8_cuda_line(p, "const int most%d = wide ? %lld : 0;", p->stage, most);
    f8_cuda_open(p, "F8_ROLLED for (int at = 0; at < most%d; at += %d)", p->stage, each);
    p->inside = true;
    print_vectors(p);
    p->inside = false;
    f8_cuda_close(p);
    p->l.sets = 1;
    f8_cuda_open(p, "F8_ROLLED for (int at = most%d; at < %lld; at += %d)", p->stage, cols,
                 step_of(p));
    print_vectors(p);
    f8_cuda_close(p);
    p->l.sets = sets;
}

void f8_cuda_rows_stage(f8_cuda_printer *p, int32_t stage)
{
    if (!f8_cuda_needed(p, stage))
        return;
    f8_cuda_line(p, "/* stage %d */", stage);
    if (stage_rolls(p))
        print_sync(p);
    f8_cuda_rows_reduce_begin(p);
    if (p->l.whole) {
        f8_cuda_scope(p);
        print_vectors(p);
        f8_cuda_close(p);
    } else {
        print_wide_row(p);
    }
    if (f8_cuda_rows_stage_reduces(p->k, stage))
        f8_cuda_rows_reduce_end(p);
}
