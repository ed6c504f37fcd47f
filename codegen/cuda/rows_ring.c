/* Row kernels whose rows come through rings of asynchronous copies: see f8_cuda_ring in print.h,
 * and ring.cuh, which has what a kernel calls.
 *
 *     before the tasks    copies of the first chunks of the first row
 *     for each chunk      wait for it; read it; copies of the chunk that takes its place
 *
 * What takes a chunk's place is the chunk `ring.chunks` further on: of the same stage, or, at a
 * stage's end, of the next stage that loads; after the last one, of the warp's next row. Where a
 * row is one chunk, it is of a later task. */
#include "codegen/cuda/rows.h"
#include "codegen/cuda/rows_registers.h"

#include <stdio.h>

bool f8_cuda_ring_takes(const f8_kernel *k, uint32_t n)
{
    const f8_kinstr *i = &k->instr[n];
    if (i->op != F8_K_LOAD || i->ext != F8_EXT_FULL || i->group)
        return false;
    const f8_kbuffer *b = &k->buffer[i->buffer];
    return b->stride >= 0 && b->ids < 0 && b->map < 0 && f8_cuda_bytes(b->dtype) <= 4;
}

/* Whether stage `stage` takes LOAD n from the ring; -1: no stage. */
static bool brings(const f8_cuda_printer *p, int32_t stage, uint32_t n)
{
    return p->l.ring.chunks && stage >= 0 && p->brought[n] >> stage & 1;
}

bool f8_cuda_ring_brings(const f8_cuda_printer *p, uint32_t n)
{
    return brings(p, p->stage, n);
}

void f8_cuda_ring_plan(f8_cuda_printer *p)
{
    for (int32_t stage = 0; stage < (int32_t)p->k->n_stages && p->l.ring.chunks; stage++) {
        f8_cuda_needed(p, stage);
        for (uint32_t n = 0; n < p->k->n_instrs; n++)
            if (p->needed[n] && f8_cuda_ring_takes(p->k, n) && !f8_cuda_is_kept(p, n))
                p->brought[n] |= UINT64_C(1) << stage;
    }
}

/* The columns of a chunk. */
static int chunk_columns(const f8_cuda_printer *p)
{
    return f8_cuda_rows_step(p) * p->l.ring.vectors;
}

static int element_bytes(const f8_cuda_printer *p, uint32_t n)
{
    return f8_cuda_bytes(p->k->buffer[p->k->instr[n].buffer].dtype);
}

/* The bytes of a column that stage `stage` takes of a chunk; 0: it takes none. */
static int column_bytes(const f8_cuda_printer *p, int32_t stage)
{
    int all = 0;
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        all += brings(p, stage, n) ? element_bytes(p, n) : 0;
    return all;
}

/* The first stage from `stage` on that loads through the ring, or -1. */
static int32_t loading_from(const f8_cuda_printer *p, int32_t stage)
{
    for (; stage < (int32_t)p->k->n_stages; stage++)
        if (column_bytes(p, stage))
            return stage;
    return -1;
}

bool f8_cuda_ring_stage(const f8_cuda_printer *p)
{
    return p->l.ring.chunks && column_bytes(p, p->stage);
}

/* Where LOAD n's vectors lie in a chunk, in bytes. */
static int place_of(const f8_cuda_printer *p, uint32_t n)
{
    int at = 0;
    for (uint32_t i = 0; i < n; i++)
        if (f8_cuda_ring_takes(p->k, i))
            at += chunk_columns(p) * element_bytes(p, i);
    return at;
}

/* A row is one chunk, of a task of its own. */
static bool is_one_chunk(const f8_cuda_printer *p)
{
    return p->l.vectors == 1;
}

/* Columns of all chunks of a row; the last one may have less. */
static long long all_columns(const f8_cuda_printer *p)
{
    const int each = chunk_columns(p);
    return ((long long)p->l.cols + each - 1) / each * each;
}

/* What the last chunk of a row lacks. */
static long long lacking(const f8_cuda_printer *p)
{
    return all_columns(p) - (long long)p->l.cols;
}

/* A turn of the loop over columns goes once around the ring: the chunk of part `part` is number
 * `part` of it. Elsewhere a turn is one chunk. */
static bool is_in_step(const f8_cuda_printer *p)
{
    return p->l.parts > 1 && p->l.ring.vectors == 1;
}

/* The columns of a turn. */
static int turn_columns(const f8_cuda_printer *p)
{
    return f8_cuda_rows_step(p) * p->l.parts;
}

/* ---- copies ---- */

/* Begins the copies that fill chunk `slot`, if the text's `when` holds; "": in any case. They are
 * those of stage `stage`; where `over` holds, those of stage `next`. `part`: the columns from g<n>
 * to the chunk, as text. `column`, where rows lack something, is where the chunk lies in its row.
 */
static void print_copies(f8_cuda_printer *p, const char *slot, int32_t stage, int32_t next,
                         const char *when, const char *part)
{
    const int own = column_bytes(p, stage), other = column_bytes(p, next);
    char columns[24];
    snprintf(columns, sizeof columns, "%d", chunk_columns(p));
    if (lacking(p)) {
        f8_cuda_line(p, "const int columns = column == %lld ? %lld : %s;",
                     all_columns(p) - chunk_columns(p), chunk_columns(p) - lacking(p), columns);
        snprintf(columns, sizeof columns, "columns");
    }
    f8_cuda_open(p, "if (f8_ring_fills(ring)%s%s)", *when ? " && " : "", when);
    if (own == other)
        f8_cuda_line(p, "f8_ring_expect(ring, %s, %d * %s);", slot, own, columns);
    else
        f8_cuda_line(p, "f8_ring_expect(ring, %s, (over ? %d : %d) * %s);", slot, other, own,
                     columns);
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const bool here = brings(p, stage, n), there = brings(p, next, n);
        if (!here && !there)
            continue;
        if (here != there)
            f8_cuda_line(p, here ? "if (!over)" : "if (over)");
        f8_cuda_line(p, "%sf8_ring_copy<%d, %d>(ring, %s, chunk + %d, g%u%s, %s);",
                     here != there ? "    " : "", element_bytes(p, n), p->l.vector, slot,
                     place_of(p, n), n, part, columns);
    }
    f8_cuda_close(p);
    f8_cuda_line(p, "f8_ring_close(ring);");
}

/* Prints where the copies of stage `stage` begin: each g<n> points at what this thread copies first
 * of row `row` of its buffer, or of that row's columns from `begin` on. If `but` is not negative,
 * the g<n> of the loads that stage `but` has stay as they are. */
static void print_sources(f8_cuda_printer *p, int32_t stage, int32_t but, const char *row,
                          bool declares)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const int32_t b = p->k->instr[n].buffer;
        if (!brings(p, stage, n) || (but >= 0 && brings(p, but, n)))
            continue;
        f8_text_add(p->t, "%*s", 4 * p->indent, "");
        if (declares)
            f8_text_add(p->t, "const %s *", f8_cuda_element(p->k->buffer[b].dtype));
        f8_text_add(p->t, "g%u = a.b%d + %s * a.i%d%s + f8_ring_own<%d>(ring);\n", n, b, row,
                    p->k->buffer[b].stride, is_one_chunk(p) && p->l.split ? " + begin" : "",
                    p->l.vector);
    }
}

/* After a turn's copies: moves g<n> on by a turn's columns. Where the row has another stage that
 * loads, g<n> goes from the row's end back to its beginning. */
static void print_advance(f8_cuda_printer *p, int32_t stage, int32_t next)
{
    const int own = turn_columns(p);
    if (next > stage)
        f8_cuda_line(p, "const int step = ahead == %lld ? %lld : %d;", all_columns(p) - own,
                     own - all_columns(p), own);
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const bool here = brings(p, stage, n), there = brings(p, next, n);
        if (here && there && next > stage)
            f8_cuda_line(p, "g%u += step;", n);
        else if (!here && there)
            f8_cuda_line(p, "g%u += over ? %d : 0;", n, own);
        else if (here)
            f8_cuda_line(p, "g%u += %d;", n, own);
    }
}

/* The warp's row of the first batch of a task, and its first column. */
static void print_task_row(f8_cuda_printer *p, const char *task, const char *name)
{
    f8_text_add(p->t, "%*sconst f8_i64 %s = %s", 4 * p->indent, "", name, task);
    if (p->l.split)
        f8_text_add(p->t, " / %lld", (long long)f8_cuda_layout_splits(p->k, &p->l));
    f8_text_add(p->t, " * %d + warp;\n", p->l.task_rows);
}

static void print_task_begin(f8_cuda_printer *p, const char *task)
{
    if (p->l.split)
        f8_cuda_line(p, "const int begin = (int)(%s %% %lld) * %lld;", task,
                     (long long)f8_cuda_layout_splits(p->k, &p->l), (long long)p->l.cols);
}

/* ---- before the tasks ---- */

void f8_cuda_ring_begin(f8_cuda_printer *p)
{
    const f8_cuda_ring *ring = &p->l.ring;
    if (!ring->chunks)
        return;
    f8_cuda_line(p, "const int warp = f8_warp();");
    f8_text_add(p->t, "%*sf8_%s_ring<%d, %lld> ring = {memory + %lld + warp * %lld", 4 * p->indent,
                "", ring->bulk ? "bulk" : "own", ring->chunks, (long long)ring->chunk,
                (long long)ring->at, (long long)(ring->chunks * ring->chunk));
    if (ring->bulk)
        f8_text_add(p->t, ", (f8_u64 *)(memory + %lld) + warp * %d", (long long)ring->barriers,
                    ring->chunks);
    f8_text_add(p->t, "};\n");
}

void f8_cuda_ring_first(f8_cuda_printer *p)
{
    const f8_cuda_ring *ring = &p->l.ring;
    if (!ring->chunks)
        return;
    const int32_t stage = loading_from(p, 0);
    f8_cuda_line(p, "f8_ring_begin(ring);");
    if (!is_one_chunk(p)) {
        f8_cuda_line(p, "const f8_i64 row0 = f8_block() * %d + warp;", p->l.task_rows);
        for (uint32_t n = 0; n < p->k->n_instrs; n++) /* what later stages alone load */
            if (p->brought[n] && !brings(p, stage, n))
                f8_cuda_line(p, "const %s *g%u = a.b%d;",
                             f8_cuda_element(p->k->buffer[p->k->instr[n].buffer].dtype), n,
                             p->k->instr[n].buffer);
        print_sources(p, stage, -1, "row0", true);
    }
    f8_cuda_open(p, "F8_ROLLED for (int i = 0; i < %d; i++)", ring->chunks);
    f8_cuda_line(p, "f8_u8 *const chunk = ring.chunks + i * %lld;", (long long)ring->chunk);
    if (is_one_chunk(p)) {
        f8_cuda_line(p, "const f8_i64 task = f8_block() + i * f8_blocks();");
        print_task_row(p, "task", "row0");
        print_task_begin(p, "task");
        print_sources(p, stage, -1, "row0", true);
        f8_cuda_line(p, "const bool more = task < a.tasks;");
    } else {
        f8_cuda_line(p, "const bool more = f8_block() < a.tasks;");
    }
    if (lacking(p))
        f8_cuda_line(p, "const int column = i * %d;", chunk_columns(p));
    print_copies(p, "i", stage, stage, "more", "");
    for (uint32_t n = 0; n < p->k->n_instrs && !is_one_chunk(p); n++)
        if (brings(p, stage, n))
            f8_cuda_line(p, "g%u += %d;", n, chunk_columns(p));
    f8_cuda_close(p);
}

/* ---- in a row ---- */

/* Whether a number says up to which column chunks ahead have a row. `more` would be found again in
 * each turn; column sums leave no register for the number. */
static bool has_limit(const f8_cuda_printer *p)
{
    return !f8_cuda_rows_count(p->k, F8_K_COLSUM) && !is_one_chunk(p);
}

void f8_cuda_ring_row(f8_cuda_printer *p)
{
    if (!p->l.ring.chunks)
        return;
    f8_cuda_line(p, "const f8_i64 later = task + %d * f8_blocks();",
                 is_one_chunk(p) ? p->l.ring.chunks : 1);
    print_task_row(p, "later", "later_row");
    if (p->l.task_rows > p->l.rows) {
        f8_cuda_line(p, "const bool stays = batch + 1 < %d && first + %d < a.i0;",
                     p->l.task_rows / p->l.rows, p->l.rows);
        f8_cuda_line(p, "const f8_i64 next = stays ? row + %d : later_row;", p->l.rows);
        f8_cuda_line(p, "const bool more = stays || later < a.tasks;");
    } else {
        f8_cuda_line(p, "const f8_i64 next = later_row;");
        f8_cuda_line(p, "const bool more = later < a.tasks;");
    }
    if (has_limit(p))
        f8_cuda_line(p, "const int limit = more ? %lld : %lld;", 2 * all_columns(p),
                     all_columns(p));
}

/* The stage whose chunks follow those of this one, or come before them in the next row. */
static int32_t next_stage(const f8_cuda_printer *p)
{
    const int32_t after = loading_from(p, p->stage + 1);
    return after < 0 ? loading_from(p, 0) : after;
}

bool f8_cuda_ring_unrolls(const f8_cuda_printer *p)
{
    const int32_t first = loading_from(p, 0);
    /* where several stages load, pointers to what comes next and sums of a row leave no registers
     */
    return first < 0 || loading_from(p, first + 1) < 0;
}

void f8_cuda_ring_before(f8_cuda_printer *p)
{
    if (f8_cuda_ring_stage(p) && next_stage(p) > p->stage)
        print_sources(p, next_stage(p), p->stage, "row", false);
}

void f8_cuda_ring_turn(f8_cuda_printer *p)
{
    const long long all = all_columns(p);
    if (!f8_cuda_ring_stage(p) || is_one_chunk(p))
        return;
    f8_cuda_line(p, "const int ahead = turn_at + %d;", p->l.ring.chunks * chunk_columns(p));
    f8_cuda_line(p, "const bool over = ahead >= %lld;", all);
    if (next_stage(p) > p->stage)
        return;
    f8_cuda_open(p, "if (ahead == %lld)", all);
    f8_cuda_line(p, "f8_apart();");
    print_sources(p, next_stage(p), -1, "next", false);
    f8_cuda_close(p);
}

/* Opens what is done for one vector of a chunk alone: the first, or the last. */
static void open_of_chunk(f8_cuda_printer *p, bool last)
{
    if (p->l.ring.vectors > 1)
        f8_cuda_open(p, "if (part == %d)", last ? p->l.ring.vectors - 1 : 0);
    else
        f8_cuda_scope(p);
}

void f8_cuda_ring_wait(f8_cuda_printer *p)
{
    if (!f8_cuda_ring_stage(p))
        return;
    f8_cuda_line(p, "const int slot = %s;", is_in_step(p) ? "part" : "ring.slot");
    f8_cuda_line(p, "f8_u8 *const chunk = ring.chunks + slot * %lld;", (long long)p->l.ring.chunk);
    open_of_chunk(p, false);
    f8_cuda_line(p, "f8_ring_wait(ring, slot);");
    f8_cuda_close(p);
}

void f8_cuda_ring_load(f8_cuda_printer *p, uint32_t n)
{
    const int bytes = element_bytes(p, n), v = p->l.vector;
    if (p->l.ring.vectors > 1)
        f8_cuda_line(p, "f8_get<%d, %d>(w%u[u], chunk + %d + part * %d + lane * %d);", bytes, v, n,
                     place_of(p, n), f8_cuda_rows_step(p) * bytes, bytes * v);
    else
        f8_cuda_line(p, "f8_get<%d, %d>(w%u[u], chunk + %d + lane * %d);", bytes, v, n,
                     place_of(p, n), bytes * v);
}

/* What follows a chunk where rows are one chunk. */
static void refill_task(f8_cuda_printer *p)
{
    const int32_t first = loading_from(p, 0);
    print_task_begin(p, "later");
    print_sources(p, first, -1, "next", true);
    if (lacking(p))
        f8_cuda_line(p, "const int column = 0;");
    print_copies(p, "slot", first, first, "more", "");
}

void f8_cuda_ring_refill(f8_cuda_printer *p)
{
    if (!f8_cuda_ring_stage(p))
        return;
    f8_cuda_line(p, "/* what takes the chunk's place */");
    open_of_chunk(p, true);
    f8_cuda_line(p, "f8_ring_empty(ring);");
    if (is_one_chunk(p)) {
        refill_task(p);
    } else {
        char part[32] = "";
        if (is_in_step(p))
            snprintf(part, sizeof part, " + part * %d", chunk_columns(p));
        if (lacking(p))
            f8_cuda_line(p, "const int column = (over ? ahead - %lld : ahead)%s;", all_columns(p),
                         part);
        print_copies(p, "slot", p->stage, next_stage(p),
                     next_stage(p) > p->stage ? ""
                     : has_limit(p)           ? "ahead < limit"
                                              : "(!over || more)",
                     part);
    }
    f8_cuda_close(p);
}

void f8_cuda_ring_turned(f8_cuda_printer *p)
{
    if (!f8_cuda_ring_stage(p))
        return;
    if (!is_one_chunk(p))
        print_advance(p, p->stage, next_stage(p));
    f8_cuda_line(p, is_in_step(p) ? "f8_ring_around(ring);" : "f8_ring_next(ring);");
}
