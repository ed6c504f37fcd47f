/* Rows shared by groups of threads: see rows.h and print.h.
 * What goes over rows, column by column, is in rows_tiles.c. */
#include "codegen/cuda/rows.h"

#include <stdio.h>

/* Registers for loads kept over stages; rows of a staged kernel have 128 registers a thread in all.
 */
enum { RAW_WORDS = 32, RAW_WORDS_STAGED = 16 };

enum { KEPT_PARTS = 8 }; /* the most vectors of a turn over a row that is kept */

static bool is_alone(const f8_cuda_printer *p)
{
    return p->l.group > F8_CUDA_WARP;
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
        f8_cuda_line(p, "F8_SHARED(float, lanes, %d);",
                     (reductions < F8_CUDA_BLOCK_SLOTS ? reductions : F8_CUDA_BLOCK_SLOTS) *
                         F8_SUM_LANES);
    if (l->shared)
        f8_cuda_line(p, "F8_SHARED_DYNAMIC(memory);");
    f8_cuda_line(p, "const int lane = f8_thread() %% %d;", l->group);
    if (l->turns > 1)
        f8_cuda_line(p, "int turn = 0;");
    f8_cuda_ring_begin(p);
    for (uint32_t s = 0; s < p->k->n_near; s++)
        if (l->near[s] == F8_CUDA_SHARED)
            f8_cuda_line(p,
                         "f8_u32 *const k%u = (f8_u32 *)memory + f8_thread() / %d * %lld + %lld;",
                         s, l->group, (long long)l->near_words, (long long)l->near_at[s]);
        else if (l->near[s] == F8_CUDA_OWN)
            f8_cuda_line(p,
                         "f8_u8 *const k%u = memory + %lld + f8_thread() / %d * %lld + lane * %d;",
                         s, (long long)l->near_at[s], l->group,
                         (long long)(l->near_bytes[s] * f8_cuda_own_columns(l)),
                         l->near_bytes[s] * l->vector);
    f8_cuda_rows_block_pointers(p);
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
        const int own = p->l.sets * f8_cuda_words(k->buffer[i->buffer].dtype, p->l.vector);
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
    f8_cuda_rows_batch_end(p);
}

/* ---- tasks ---- */

void f8_cuda_rows_task(f8_cuda_printer *p)
{
    const long long blocks = (long long)f8_cuda_layout_splits(p->k, &p->l);
    if (p->l.split) {
        f8_cuda_line(p, "const f8_i64 block = task / %lld;", blocks);
        f8_cuda_line(p, "const int begin = (int)(task - block * %lld) * %lld;", blocks,
                     (long long)p->l.cols);
    } else {
        f8_cuda_line(p, "const f8_i64 block = task;");
    }
    f8_cuda_rows_tiles_begin(p);
}

/* ---- a stage ---- */

static bool stage_rolls(const f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (p->needed[n] && p->k->instr[n].op == F8_K_ROLL && !f8_cuda_is_kept(p, n))
            return true;
    return false;
}

/* Maxima of blocks that an earlier stage left in shared memory. */
static bool stage_follows_blocks(const f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (p->k->instr[n].op == F8_K_BLOCKAMAX && p->k->instr[n].stage < p->stage && !p->l.whole)
            return true;
    return false;
}

/* Where the vector at hand lies from k<slot> on. */
static f8_cuda_name own_place(const f8_cuda_printer *p, int bytes)
{
    f8_cuda_name name;
    snprintf(name.s, sizeof name.s, "(at + u * %d) * %d", f8_cuda_rows_step(p), bytes);
    return name;
}

/* z<slot>: a vector of what the thread keeps for itself, as words where it is there already, else
 * as the values that will be put there. */
static void take_own(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const int32_t slot = p->k->instr[n].near;
        if (!p->needed[n] || slot < 0 || p->l.near[slot] != F8_CUDA_OWN)
            continue;
        const int bytes = p->l.near_bytes[slot];
        if (f8_cuda_is_kept(p, n)) {
            f8_cuda_line(p, "f8_u32 z%d[%d];", slot, (p->l.vector * bytes + 3) / 4);
            f8_cuda_line(p, "f8_get<%d, %d>(z%d, k%d + %s);", bytes, p->l.vector, slot, slot,
                         own_place(p, bytes).s);
        } else if (!f8_cuda_adds_pairs(p, n)) {
            f8_cuda_line(p, "float z%d[%d];", slot, p->l.vector);
        }
    }
}

static void put_own(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const int32_t slot = p->k->instr[n].near;
        if (!p->needed[n] || slot < 0 || p->l.near[slot] != F8_CUDA_OWN || f8_cuda_is_kept(p, n))
            continue;
        const int bytes = p->l.near_bytes[slot];
        if (f8_cuda_adds_pairs(p, n)) {
            f8_cuda_line(p, "f8_put<%d, %d>(k%d + %s, r%u);", bytes, p->l.vector, slot,
                         own_place(p, bytes).s, n);
            continue;
        }
        f8_cuda_scope(p);
        f8_cuda_line(p, "f8_u32 x[%d];", (p->l.vector * bytes + 3) / 4);
        f8_cuda_line(p, "f8_pack_%s<%d>(x, z%d);", bytes == 2 ? "upper" : "f32", p->l.vector, slot);
        f8_cuda_line(p, "f8_put<%d, %d>(k%d + %s, x);", bytes, p->l.vector, slot,
                     own_place(p, bytes).s);
        f8_cuda_close(p);
    }
}

/* `ahead`: code of a loop over columns that loads the vectors of its next turn, to print where this
 * turn's have been used and nothing has been waited for; NULL: the vectors are loaded first. */
static void print_vectors(f8_cuda_printer *p, const char *ahead)
{
    const bool ragged = f8_cuda_rows_ragged(p) && f8_cuda_rows_stage_reduces(p->k, p->stage);
    const bool parts = p->k->cols % p->l.vector != 0;
    const char *const live = is_alone(p) ? NULL : "live";
    /* where many threads share a row, most have nothing of its last columns */
    const bool skips = !p->inside && p->l.group > F8_SUM_LANES, hands = f8_cuda_rows_hands(p);
    if (!p->l.whole)
        f8_cuda_rows_block_begin(p);
    if (!ahead && !f8_cuda_rows_in_turns(p)) {
        f8_cuda_rows_declare_loads(p);
        f8_cuda_rows_loads(p);
    }
    f8_cuda_rows_u(p);
    f8_cuda_rows_column(p);
    if (skips && !hands)
        f8_cuda_open(p, "if (n > 0)");
    f8_cuda_ring_wait(p);
    f8_cuda_rows_late_loads(p);
    f8_cuda_ring_refill(p);
    take_own(p);
    f8_cuda_rows_declare_taken(p);
    f8_cuda_rows_declare_handed(p, skips);
    f8_cuda_rows_blocks(p);
    f8_cuda_rows_add_pairs(p);
    if (ragged && !parts)
        f8_cuda_line(p, "const bool in = n > 0;");
    if (skips && hands)
        f8_cuda_line(p, "if (n > 0)");
    f8_cuda_open(p, "F8_UNROLL for (int e = 0; e < %d; e++)", p->l.vector);
    if (ragged && parts)
        f8_cuda_line(p, "const bool in = e < n;");
    f8_cuda_rows_elements(p);
    f8_cuda_rows_reduce(p, ragged);
    f8_cuda_rows_block_elements(p);
    f8_cuda_close(p);
    put_own(p);
    f8_cuda_rows_hand(p);
    f8_cuda_rows_stores(p, live);
    f8_cuda_rows_block_stores(p, live);
    if (!p->l.ring.chunks) {
        f8_cuda_rows_tiles_ahead(p);
        f8_cuda_rows_tiles_fill(p);
        if (f8_cuda_rows_in_turns(p)) /* on their way while this round's tiles are read */
            f8_cuda_rows_loads_next(p);
        f8_cuda_rows_tiles_read(p);
    } else {
        f8_cuda_rows_tiles_fill(p);
    }
    if (skips && !hands)
        f8_cuda_close(p);
    f8_cuda_close(p);
    if (ahead) {
        f8_cuda_open(p, "%s", ahead);
        f8_cuda_rows_loads(p);
        f8_cuda_close(p);
    }
    f8_cuda_rows_add_handed(p);
    f8_cuda_rows_block_join(p);
}

/* Prints a loop over columns with a barrier in each turn, `each` columns a turn. It loads the next
 * turn's vectors before that barrier, so that they come while threads wait and add. */
static void print_turns_ahead(f8_cuda_printer *p, int each)
{
    char ahead[48];
    snprintf(ahead, sizeof ahead, "if ((at += %d) < most%d)", each, p->stage);
    f8_cuda_scope(p);
    f8_cuda_line(p, "int at = 0;");
    f8_cuda_rows_declare_loads(p);
    f8_cuda_open(p, "if (at < most%d)", p->stage);
    f8_cuda_rows_loads(p);
    f8_cuda_close(p);
    f8_cuda_open(p, "F8_ROLLED while (at < most%d)", p->stage);
    print_vectors(p, ahead);
    f8_cuda_close(p);
    f8_cuda_close(p);
}

/* The same where rows come through a ring. Tiles are filled for several vectors before they are
 * read, so that all threads have columns to add. */
static void print_ring_row(f8_cuda_printer *p)
{
    const bool turns = f8_cuda_rows_has_tiles(p) || f8_cuda_ring_stage(p);
    const bool unrolls = f8_cuda_ring_unrolls(p);
    const int step = f8_cuda_rows_step(p);
    int parts = turns || unrolls ? p->l.parts : 1;
    /* of a row that is kept, nothing has to wait, and a turn has few instructions */
    while (!turns && unrolls && !p->l.whole && 2 * parts <= KEPT_PARTS &&
           p->l.vectors % (2 * parts) == 0)
        parts *= 2;
    f8_cuda_ring_before(p);
    f8_cuda_scope(p);
    f8_cuda_rows_vector_pointers(p, false);
    if (p->l.whole)
        f8_cuda_scope(p);
    else
        f8_cuda_open(p, "F8_ROLLED for (int turn_at = 0; turn_at < %lld; turn_at += %d)",
                     (long long)p->l.cols, parts * step);
    f8_cuda_rows_tiles_ahead(p);
    f8_cuda_ring_turn(p);
    if (parts > 1)
        f8_cuda_open(p, "%s for (int part = 0; part < %d; part++)",
                     unrolls ? "F8_UNROLL" : "F8_ROLLED", parts);
    else
        f8_cuda_scope(p);
    if (parts > 1)
        f8_cuda_line(p, "const int at = turn_at + part * %d;", step);
    else
        f8_cuda_line(p, "const int part = 0%s;", p->l.whole ? "" : ", at = turn_at");
    print_vectors(p, NULL);
    f8_cuda_close(p);
    f8_cuda_ring_turned(p);
    f8_cuda_rows_tiles_read(p);
    f8_cuda_rows_vectors_move(p, parts * step);
    f8_cuda_close(p);
    f8_cuda_close(p);
}

/* Prints the vectors of a row that are not all in registers at once. Most need no test of bounds
 * and alignment and have a loop without one. The rest, if there may be one, or the whole of an
 * unaligned row, comes after. */
static void print_wide_row(f8_cuda_printer *p)
{
    const int sets = p->l.sets, each = f8_cuda_rows_step(p) * sets;
    const int64_t reach = f8_kernel_reach(p->k, p->stage);
    const long long cols = p->l.split || p->l.staged ? p->l.cols : reach, most = cols / each * each;
    if (cols == 0)
        return;
    if (p->l.staged) { /* all rows of the block are in the same columns */
        f8_cuda_scope(p);
        if (f8_cuda_rows_in_turns(p))
            f8_cuda_rows_loads_first(p);
        f8_cuda_open(p, "for (int at = 0; at < %lld; at += %d)", cols, each);
        print_vectors(p, NULL);
        f8_cuda_close(p);
        f8_cuda_close(p);
        return;
    }
    f8_cuda_line(p, "const int most%d = %s%lld%s;", p->stage, p->aligned ? "" : "wide ? ", most,
                 p->aligned ? "" : " : 0");
    p->inside = true;
    if (f8_cuda_rows_hands(p)) {
        print_turns_ahead(p, each);
    } else {
        f8_cuda_open(p, "F8_ROLLED for (int at = 0; at < most%d; at += %d)", p->stage, each);
        print_vectors(p, NULL);
        f8_cuda_close(p);
    }
    p->inside = false;
    if (p->aligned && most == cols)
        return;
    p->l.sets = 1;
    f8_cuda_open(p, "F8_ROLLED for (int at = most%d; at < %lld; at += %d)", p->stage, cols,
                 f8_cuda_rows_step(p));
    print_vectors(p, NULL);
    f8_cuda_close(p);
    p->l.sets = sets;
}

void f8_cuda_rows_stage(f8_cuda_printer *p, int32_t stage)
{
    if (!f8_cuda_needed(p, stage) && !f8_cuda_rows_stores_blocks(p))
        return;
    f8_cuda_line(p, "/* stage %d */", stage);
    if (stage_rolls(p) || stage_follows_blocks(p))
        print_sync(p);
    f8_cuda_rows_reduce_begin(p);
    if (p->l.ring.chunks) {
        print_ring_row(p);
    } else if (p->l.whole) {
        f8_cuda_rows_block_begin(p);
        f8_cuda_scope(p);
        print_vectors(p, NULL);
        f8_cuda_close(p);
    } else {
        uint32_t near;
        const bool skips = f8_kernel_may_skip(p->k, stage, &near);
        if (skips) /* the same for all threads of a row: its values are */
            f8_cuda_open(p, "if (!%s)", f8_cuda_value(p, near).s);
        print_wide_row(p);
        if (skips)
            f8_cuda_close(p);
    }
    if (f8_cuda_rows_stage_reduces(p->k, stage))
        f8_cuda_rows_reduce_end(p);
}
