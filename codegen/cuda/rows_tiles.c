/* What a row kernel does column by column, over the rows of a block: see rows.h.
 *
 * Column reductions and transposed stores are staged. The rows of a block advance through the
 * columns in step. For each vector, every row puts its values into its row of a tile. Then each
 * thread takes columns of the tile and adds a column's rows from first to last, or stores them side
 * by side. A thread keeps the sums of its columns over the batches of a task: in registers if a
 * row's vectors are unrolled, else in the result itself, which no other thread accesses.
 *
 * A maximum does not depend on the order. If a row's vectors are unrolled and few, each thread
 * keeps the maxima of the columns that it computes over the batches of a block, and only these go
 * through a tile. */
#include "codegen/cuda/rows.h"

#include <stdio.h>

static bool is_transposed(const f8_cuda_printer *p, uint32_t n)
{
    const f8_kinstr *i = &p->k->instr[n];
    return i->op == F8_K_STORE && p->k->buffer[i->buffer].transposed;
}

/* Whether instruction n goes through a tile, vector by vector. */
static bool is_tiled(const f8_cuda_printer *p, uint32_t n)
{
    return f8_cuda_rows_takes(p, n) &&
           (f8_kinstr_is_partial(&p->k->instr[n]) || is_transposed(p, n));
}

/* The number of COLSUMs of a stage; for `stage` < 0 all of the kernel. */
static int column_sums(const f8_cuda_printer *p, int32_t stage)
{
    int count = 0;
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        count += p->k->instr[n].op == F8_K_COLSUM && (stage < 0 || p->k->instr[n].stage == stage);
    return count;
}

/* The columns of a tile. */
static int columns(const f8_cuda_printer *p)
{
    return f8_cuda_rows_step(p) * p->l.parts;
}

/* A thread's sums of one tile: (column sum, column) pairs thread, thread + threads, ... */
static int sums_a_thread(const f8_cuda_printer *p, int count)
{
    return (count * columns(p) + p->l.threads - 1) / p->l.threads;
}

static int64_t tile_bytes(const f8_cuda_printer *p, uint32_t n)
{
    const int bytes = f8_cuda_tile_element(p->k, &p->k->instr[n]);
    return p->l.rows * f8_cuda_tile_pitch(&p->l, bytes);
}

/* Where instruction n's tile lies in `tiles`, in bytes: sums of the stage first. */
static int64_t tile_of(const f8_cuda_printer *p, uint32_t n)
{
    int64_t at = 0;
    const bool sum = p->k->instr[n].op == F8_K_COLSUM;
    for (uint32_t i = 0; i < p->k->n_instrs; i++) {
        const bool other = p->k->instr[i].op == F8_K_COLSUM;
        if (is_tiled(p, i) && (other == sum ? i < n : other))
            at += tile_bytes(p, i);
    }
    return at;
}

/* `tiles`, which threads may fill. */
static void print_tiles(f8_cuda_printer *p)
{
    f8_cuda_line(p, "f8_u8 *const tiles = memory + %lld%s;", (long long)p->l.tile_at,
                 p->l.turns > 1 ? " + turn" : "");
}

/* The tiles have been read by this thread. If there are two sets, the readers of the other one
 * are past the barrier that lies between this one's writers and readers. */
static void end_tiles(f8_cuda_printer *p)
{
    if (p->l.turns > 1)
        f8_cuda_line(p, "turn ^= %lld;", (long long)p->l.tile_size);
    else
        f8_cuda_line(p, "f8_sync();");
}

/* ---- sums ---- */

/* Where this thread's vector lies in a tile of elements of `bytes` bytes. Rows lie one after the
 * other, a few bytes apart in some tiles. */
static f8_cuda_name own_vector(const f8_cuda_printer *p, int bytes)
{
    const int own = bytes * p->l.vector;
    const long long apart = (long long)f8_cuda_tile_pitch(&p->l, bytes) - own * p->l.group;
    f8_cuda_name name;
    int at = snprintf(name.s, sizeof name.s, "f8_thread() * %d", own);
    if (apart)
        at += snprintf(name.s + at, sizeof name.s - (size_t)at, " + f8_thread() / %d * %lld",
                       p->l.group, apart);
    if (p->l.parts > 1)
        snprintf(name.s + at, sizeof name.s - (size_t)at, " + part * %d", own * p->l.group);
    return name;
}

static void fill_tiles(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        if (!is_tiled(p, n))
            continue;
        const int bytes = f8_cuda_tile_element(p->k, &p->k->instr[n]);
        f8_cuda_name words;
        f8_cuda_scope(p);
        if (!f8_cuda_rows_words(p, n, &words)) {
            snprintf(words.s, sizeof words.s, "x");
            f8_cuda_line(p, "f8_u32 x[%d];", (bytes * p->l.vector + 3) / 4);
            f8_cuda_line(p, "f8_pack_%s<%d>(x, y%u);", p->put[n], p->l.vector, n);
        }
        f8_cuda_line(p, "f8_put<%d, %d>(tiles + %lld + %s, %s);", bytes, p->l.vector,
                     (long long)tile_of(p, n), own_vector(p, bytes).s, words.s);
        f8_cuda_close(p);
    }
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
            f8_text_add(p->t, "x / %d == %d ? ", columns(p), slot - 1);
        f8_text_add(p->t, "a.b%d + block * a.i%d", i->buffer, p->k->buffer[i->buffer].stride);
        f8_text_add(p->t, slot < count ? " : " : ";\n");
    }
}

static void open_pairs(f8_cuda_printer *p, int count)
{
    const int pairs = count * columns(p), each = sums_a_thread(p, count);
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
    if (p->l.ring.chunks)
        f8_cuda_line(p, "const int column = %s%sx %% %d;", p->l.split ? "begin + " : "",
                     p->l.whole ? "" : "turn_at + ", columns(p));
    else
        f8_cuda_line(p, "const int column = %s%su * %d + x %% %d;", p->l.split ? "begin + " : "",
                     p->l.whole ? "" : "at + ", columns(p), columns(p));
}

/* Whether sums stay in the result over the batches of a task. */
static bool sums_return(const f8_cuda_printer *p)
{
    return !p->l.whole && p->l.task_rows > p->l.rows && column_sums(p, p->stage) > 0;
}

/* Loads what the batches before have summed, early enough to have it after the barrier. */
static void load_sums(f8_cuda_printer *p)
{
    if (!sums_return(p))
        return;
    const int count = column_sums(p, p->stage);
    f8_cuda_line(p, "float before[%d];", sums_a_thread(p, count));
    open_pairs(p, count);
    column_of_pair(p);
    print_sum_pointer(p, p->stage);
    f8_cuda_line(p, "before[j] = batch && column < %lld ? to[column] : -0.0f;",
                 (long long)p->k->cols);
    close_pairs(p);
}

/* `sum`: what pair x's column comes to, from `before`. Tiles of elements of one size lie side by
 * side; others have loops of their own. */
static void print_sum(f8_cuda_printer *p, const char *before)
{
    const int count = column_sums(p, p->stage), w = columns(p), rows = p->l.rows;
    int slot = 0, bytes = 0;
    bool mixed = false;
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (is_tiled(p, n) && p->k->instr[n].op == F8_K_COLSUM) {
            const int own = f8_cuda_tile_element(p->k, &p->k->instr[n]);
            mixed |= bytes && own != bytes;
            bytes = own;
        }
    if (!mixed) {
        const long long pitch = (long long)f8_cuda_tile_pitch(&p->l, bytes);
        f8_cuda_line(p, "const float sum = f8_column_sum<%d, %d, %lld>(tiles + x / %d * %lld,",
                     bytes, rows, pitch, w, rows * pitch);
        f8_cuda_line(p, "    rows, x %% %d, %s);", w, before);
        return;
    }
    f8_cuda_line(p, "float sum;");
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (is_tiled(p, n) && p->k->instr[n].op == F8_K_COLSUM) {
            const int own = f8_cuda_tile_element(p->k, &p->k->instr[n]);
            if (slot + 1 < count)
                f8_cuda_line(p, "%sif (x / %d == %d)", slot ? "else " : "", w, slot);
            else
                f8_cuda_line(p, "else");
            f8_cuda_line(p,
                         "    sum = f8_column_sum<%d, %d, %lld>(tiles + %lld, rows, x %% %d, %s);",
                         own, rows, (long long)f8_cuda_tile_pitch(&p->l, own),
                         (long long)tile_of(p, n), w, before);
            slot++;
        }
}

static void add_columns(f8_cuda_printer *p)
{
    const int count = column_sums(p, p->stage);
    char kept[32];
    if (!count)
        return;
    snprintf(kept, sizeof kept, "t%d[u][j]", p->stage);
    open_pairs(p, count);
    print_sum(p, p->l.whole ? kept : sums_return(p) ? "before[j]" : "-0.0f");
    if (p->l.whole) {
        f8_cuda_line(p, "%s = sum;", kept);
    } else {
        column_of_pair(p);
        print_sum_pointer(p, p->stage);
        f8_cuda_line(p, "if (column < %lld)", (long long)p->k->cols);
        f8_cuda_line(p, "    to[column] = sum;");
    }
    close_pairs(p);
}

/* ---- maxima ---- */

/* The largest of each column of a tile, or of each block in it, to `to[0]` of which what follows
 * makes something. Opens a scope. */
static void open_maxima(f8_cuda_printer *p, uint32_t n, int64_t tile, const char *rows)
{
    const f8_kinstr *i = &p->k->instr[n];
    const int w = columns(p), high = (int)i->imm < p->l.rows ? (int)i->imm : p->l.rows;
    const int pairs = w * (p->l.rows / high);
    f8_cuda_open(p, "F8_UNROLL for (int x = f8_thread(); x < %d; x += %d)", pairs, p->l.threads);
    column_of_pair(p);
    f8_cuda_line(p, "const int from = x / %d * %d;", w, high);
    f8_cuda_line(p, "float *const to = a.b%d + (first + from) / %u * a.i%d + column;", i->buffer,
                 i->imm, p->k->buffer[i->buffer].stride);
    f8_cuda_line(p, "const f8_u32 *const tile = (const f8_u32 *)(tiles + %lld) + from * %d;",
                 (long long)tile, w);
    f8_cuda_line(p, "const f8_u32 most = f8_column_amax<%d, %d>(tile, %s - from, x %% %d);", high,
                 w, rows, w);
    f8_cuda_open(p, "if (column < %lld && from < %s)", (long long)p->k->cols, rows);
}

static void close_maxima(f8_cuda_printer *p)
{
    f8_cuda_close(p);
    f8_cuda_close(p);
}

/* COLAMAX n of the tiles that were just filled. */
static void join_columns(f8_cuda_printer *p, uint32_t n)
{
    const int block = (int)p->k->instr[n].imm;
    open_maxima(p, n, tile_of(p, n), "rows");
    if (block > p->l.rows)
        f8_cuda_line(p, "*to = f8_from_bits(first %% %d ? f8_larger(f8_bits(*to), most) : most);",
                     block);
    else
        f8_cuda_line(p, "*to = f8_from_bits(most);");
    close_maxima(p);
}

/* Stores the maxima that threads kept, at the end of a block. */
static void store_held(f8_cuda_printer *p, uint32_t n)
{
    const int v = p->l.vector;
    f8_cuda_rows_u(p);
    print_tiles(p);
    f8_cuda_line(p, "f8_put<4, %d>(tiles + %s, m%u[u]);", v, own_vector(p, 4).s, n);
    f8_cuda_line(p, "F8_UNROLL for (int e = 0; e < %d; e++)", v);
    f8_cuda_line(p, "    m%u[u][e] = 0;", n);
    f8_cuda_line(p, "f8_sync();");
    char rows[16]; /* all threads of the block have maxima of these rows */
    snprintf(rows, sizeof rows, "%d", p->l.rows);
    open_maxima(p, n, 0, rows);
    f8_cuda_line(p, "*to = f8_from_bits(most);");
    close_maxima(p);
    end_tiles(p);
    f8_cuda_close(p);
}

void f8_cuda_rows_batch_end(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const f8_kinstr *i = &p->k->instr[n];
        if (!f8_cuda_layout_holds(&p->l, i))
            continue;
        f8_cuda_open(p, "if ((first + %d) %% %u == 0 || first + %d >= a.i0)", p->l.rows, i->imm,
                     p->l.rows);
        store_held(p, n);
        f8_cuda_close(p);
    }
}

/* ---- transposed stores ---- */

/* The column of the tiles' first. */
static f8_cuda_name first_column(const f8_cuda_printer *p)
{
    f8_cuda_name name;
    const char *const part = p->l.split ? "begin + " : "";
    if (p->l.ring.chunks)
        snprintf(name.s, sizeof name.s, "%s%s", part, p->l.whole ? "0" : "turn_at");
    else
        snprintf(name.s, sizeof name.s, "%s%su * %d", part, p->l.whole ? "" : "at + ", columns(p));
    return name;
}

/* Column by column. */
static void print_columns(f8_cuda_printer *p, uint32_t n, int bytes)
{
    const int32_t b = p->k->instr[n].buffer, stride = p->k->buffer[b].stride;
    f8_cuda_line(p, "f8_store_columns<%d, %d, %lld, %d, %d>((f8_u8 *)(a.b%d + first), a.i%d * %d,",
                 bytes, p->l.rows, (long long)f8_cuda_tile_pitch(&p->l, bytes), columns(p),
                 p->l.threads, b, stride, bytes);
    f8_cuda_line(p, "    tiles + %lld, rows, %s, %lld);", (long long)tile_of(p, n),
                 first_column(p).s, (long long)p->k->cols);
}

/* Stores bytes of four columns, `tall` of each by one access. The first threads add column sums. */
static void print_tall_columns(f8_cuda_printer *p, uint32_t n, int tall)
{
    const int32_t b = p->k->instr[n].buffer, stride = p->k->buffer[b].stride;
    const int late = column_sums(p, p->stage) > 0 ? p->l.threads / 2 : 0;
    f8_cuda_line(p, "f8_tall_columns<%d, %d, %lld, %d, %d, %d>(a.b%d + first, a.i%d,", tall,
                 p->l.rows, (long long)f8_cuda_tile_pitch(&p->l, 1), columns(p), p->l.threads, late,
                 b, stride);
    f8_cuda_line(p, "    tiles + %lld, %s, %lld);", (long long)tile_of(p, n), first_column(p).s,
                 (long long)p->k->cols);
}

static void store_columns(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        if (!f8_cuda_rows_takes(p, n) || !is_transposed(p, n))
            continue;
        const int32_t b = p->k->instr[n].buffer;
        const int bytes = f8_cuda_bytes(p->k->buffer[b].dtype);
        if (bytes == 1 && p->l.rows % 4 == 0 && p->l.ring.chunks) {
            print_tall_columns(p, n, f8_cuda_tall_bytes(&p->l, 1));
        } else if (bytes == 1 && p->l.rows % 4 == 0) {
            f8_cuda_open(p, "if (rows == %d && (((f8_u64)a.b%d | (f8_u64)a.i%d) & 3) == 0)",
                         p->l.rows, b, p->k->buffer[b].stride);
            print_tall_columns(p, n, 4);
            f8_cuda_close(p);
            f8_cuda_open(p, "else");
            print_columns(p, n, bytes);
            f8_cuda_close(p);
        } else {
            print_columns(p, n, bytes);
        }
    }
}

bool f8_cuda_rows_has_tiles(const f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (is_tiled(p, n))
            return true;
    return false;
}

void f8_cuda_rows_tiles_ahead(f8_cuda_printer *p)
{
    if (!f8_cuda_rows_has_tiles(p))
        return;
    load_sums(p);
    print_tiles(p);
}

void f8_cuda_rows_tiles_fill(f8_cuda_printer *p)
{
    fill_tiles(p);
}

void f8_cuda_rows_tiles_read(f8_cuda_printer *p)
{
    if (!f8_cuda_rows_has_tiles(p))
        return;
    f8_cuda_line(p, "f8_sync();");
    add_columns(p);
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (is_tiled(p, n) && p->k->instr[n].op == F8_K_COLAMAX)
            join_columns(p, n);
    store_columns(p);
    end_tiles(p);
}

/* ---- tasks ---- */

void f8_cuda_rows_tiles_begin(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (f8_cuda_layout_holds(&p->l, &p->k->instr[n])) {
            f8_cuda_line(p, "f8_u32 m%u[%d][%d];", n, p->l.sets, p->l.vector);
            f8_cuda_line(p, "F8_UNROLL for (int u = 0; u < %d; u++)", p->l.sets);
            f8_cuda_line(p, "    F8_UNROLL for (int e = 0; e < %d; e++)", p->l.vector);
            f8_cuda_line(p, "        m%u[u][e] = 0;", n);
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
