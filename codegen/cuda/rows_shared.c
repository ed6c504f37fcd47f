/* What a row kernel has in shared memory: see rows_shared.h. */
#include "codegen/cuda/rows_shared.h"

#include "codegen/cuda/rows_registers.h"

enum {
    OWN_VALUES = 40, /* with so many in flight there are registers for f32 kept, from sm_100a on */
    RING_FLIGHT = 40 << 10,  /* bytes on their way to a multiprocessor, that memory be busy */
    RING_CHUNKS = 4,         /* of a warp at most */
    SHARED_SMALL = 96 << 10, /* of the 99 KiB that a block may have; the rest is static */
    SHARED_LARGE = 220 << 10 /* of 227 KiB */
};

int64_t f8_cuda_shared_most(const f8_target *target)
{
    return target->shared_large ? SHARED_LARGE : SHARED_SMALL;
}

/* ---- tiles ---- */

int64_t f8_cuda_own_columns(const f8_cuda_layout *l)
{
    return (l->vectors + l->sets - 1) / l->sets * l->sets * l->vector * l->group;
}

int64_t f8_cuda_tile_pitch(const f8_cuda_layout *l, int bytes)
{
    const int64_t row = (int64_t)bytes * l->group * l->vector * l->parts;
    return bytes > 1 || l->rows % 4 ? row : row + (l->rows == 8 ? 16 : 8);
}

int f8_cuda_tall_bytes(const f8_cuda_layout *l, int bytes)
{
    int tall = 16;
    while (l->rows * bytes % tall)
        tall /= 2;
    return tall;
}

bool f8_cuda_layout_holds(const f8_cuda_layout *l, const f8_kinstr *i)
{
    return i->op == F8_K_COLAMAX && l->holds && (int)i->imm >= l->rows;
}

int64_t f8_cuda_tile_bytes(const f8_kernel *k, const f8_cuda_layout *l)
{
    int64_t most = 0;
    for (int32_t stage = 0; stage < (int32_t)k->n_stages; stage++) {
        int64_t all = 0;
        for (uint32_t n = 0; n < k->n_instrs; n++) {
            const f8_kinstr *i = &k->instr[n];
            if (i->stage != stage || (!f8_kinstr_is_partial(i) &&
                                      !(i->op == F8_K_STORE && k->buffer[i->buffer].transposed)))
                continue;
            const int64_t bytes = l->rows * f8_cuda_tile_pitch(l, f8_cuda_tile_element(k, i));
            if (!f8_cuda_layout_holds(l, i))
                all += bytes;
            else if (bytes > most) /* one after the other, at the end of a block */
                most = bytes;
        }
        most = all > most ? all : most;
    }
    return (most + 15) / 16 * 16;
}

/* ---- values kept ---- */

/* Whether a thread has registers for the addresses of f32 values that it keeps in shared memory. */
static bool has_own_floats(const f8_target *target, const f8_kernel *k, const f8_cuda_layout *l)
{
    return target->shared_large &&
           (target->sm < 100 || f8_cuda_rows_staged_values(target, k, l) <= OWN_VALUES);
}

void f8_cuda_keep_own(const f8_target *target, const f8_kernel *k, f8_cuda_layout *l)
{
    const int64_t columns = l->rows * f8_cuda_own_columns(l);
    const int widest = has_own_floats(target, k, l) ? 4 : 2;
    for (int bytes = 2; bytes <= widest && l->staged && !l->whole; bytes += 2)
        for (uint32_t n = 0; n < k->n_instrs; n++) {
            const f8_kinstr *i = &k->instr[n];
            if (i->near < 0 || i->ext != F8_EXT_FULL || i->kind != F8_KIND_F ||
                l->near[i->near] != F8_CUDA_RECOMPUTED || i->op == F8_K_LOAD ||
                (f8_cuda_is_bf16(k, i) ? 2 : 4) != bytes ||
                (l->shared + columns * bytes) * l->min_blocks > f8_cuda_shared_most(target))
                continue;
            l->near[i->near] = F8_CUDA_OWN;
            l->near_bytes[i->near] = bytes;
            l->near_at[i->near] = l->shared;
            l->shared += columns * bytes;
        }
}

/* ---- rings ---- */

static bool has_bulk_copies(const f8_target *target)
{
    return target->sm >= 90;
}

/* Bytes of a row's loads that a chunk takes: those of all stages, though each may take a part of
 * them alone. */
static int64_t chunk_bytes(const f8_kernel *k, const f8_cuda_layout *l)
{
    int64_t all = 0;
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (f8_cuda_ring_takes(k, n))
            all += l->group * l->vector * f8_cuda_bytes(k->buffer[k->instr[n].buffer].dtype);
    return all;
}

/* Copies are of whole multiples of 16 bytes: bulk copies, and what one thread copies at once. */
static bool is_in_sixteens(const f8_kernel *k, const f8_cuda_layout *l)
{
    const int64_t rest = (l->split ? k->cols : l->cols) % (l->group * l->vector);
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (f8_cuda_ring_takes(k, n) &&
            (rest * f8_cuda_bytes(k->buffer[k->instr[n].buffer].dtype) % 16 || (l->split && rest)))
            return false;
    return true;
}

/* Whether columns are visited once: in the first stage. */
static bool is_one_visit(const f8_kernel *k)
{
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (f8_kinstr_is_root(&k->instr[n]) && k->instr[n].stage > 0)
            return false;
    return true;
}

/* Without bulk copies: whether a ring of each thread's own vectors saves instructions. A row that
 * is whole is loaded at once and stays in registers for later stages: with a ring they would read
 * it again. Where several stages visit a row, each thread has to find out what comes after a chunk.
 * That is worth it only if few threads are resident, so that all of them wait at a barrier. */
static bool may_copy_own(const f8_kernel *k, const f8_cuda_layout *l)
{
    return !l->whole && !f8_cuda_rows_count(k, F8_K_BLOCKAMAX) &&
           (is_one_visit(k) || l->threads * l->min_blocks <= F8_CUDA_ROW_RESIDENT);
}

/* Whether rows may come through a ring: those of a warp each, of which nothing stays in registers
 * over stages. Where a row is one chunk, that chunk is of one stage: what takes its place is of a
 * later task. */
static bool may_ring(const f8_target *target, const f8_kernel *k, const f8_cuda_layout *l)
{
    const bool bulk = has_bulk_copies(target);
    if (!k->aligned || !l->staged || (bulk ? l->branches : !may_copy_own(k, l)) || l->near_words ||
        (l->holds && f8_cuda_rows_count(k, F8_K_COLAMAX)) || l->group != F8_CUDA_WARP ||
        k->n_stages > 64 || !is_in_sixteens(k, l))
        return false;
    for (uint32_t s = 0; s < k->n_near; s++)
        if (l->near[s] != F8_CUDA_RECOMPUTED)
            return false;
    return chunk_bytes(k, l) > 0 &&
           (l->vectors > 1 || (l->task_rows == l->rows && is_one_visit(k)));
}

/* The blocks that a ring leaves room for: those that must be resident. Without bulk copies also
 * those of F8_CUDA_ROW_RESIDENT threads, which small blocks may come to. */
static int blocks_beside(const f8_cuda_layout *l)
{
    const int few = F8_CUDA_ROW_RESIDENT / l->threads;
    return !l->ring.bulk && few > l->min_blocks ? few : l->min_blocks;
}

/* Takes tiles of `parts` vectors, `turns` sets of them, and a ring of `chunks` of `vectors`, where
 * there is room. */
static bool fit_ring(const f8_target *target, const f8_kernel *k, f8_cuda_layout *l, int parts,
                     int turns, int chunks, int vectors)
{
    f8_cuda_layout r = *l;
    r.parts = parts;
    r.turns = turns;
    r.branches = false;
    r.ring.bulk = has_bulk_copies(target);
    r.ring.chunks = chunks;
    r.ring.vectors = vectors;
    r.ring.chunk = vectors * chunk_bytes(k, &r);
    r.tile_size = f8_cuda_tile_bytes(k, &r);
    r.shared = turns * r.tile_size;
    for (uint32_t s = 0; s < k->n_near; s++)
        r.near[s] = F8_CUDA_RECOMPUTED;
    f8_cuda_keep_own(target, k, &r);
    for (uint32_t s = 0; s < k->n_near; s++)
        if (l->near[s] == F8_CUDA_OWN && r.near[s] != F8_CUDA_OWN)
            return false;
    r.ring.at = (r.shared + 127) / 128 * 128;
    r.ring.barriers = r.ring.at + r.rows * chunks * r.ring.chunk;
    r.shared = r.ring.barriers + (r.ring.bulk ? r.rows * chunks * 8 : 0);
    if (r.shared * blocks_beside(&r) > f8_cuda_shared_most(target) ||
        (r.vectors > 1 && r.vectors / vectors <= chunks))
        return false;
    *l = r;
    return true;
}

/* The same of rows that are one chunk, of tasks of their own. */
static bool fit_ring_of_tasks(const f8_target *target, const f8_kernel *k, f8_cuda_layout *l)
{
    bool fits = fit_ring(target, k, l, 1, 1, 2, 1);
    const int64_t each = l->rows * chunk_bytes(k, l) * l->min_blocks;
    for (int chunks = 3; fits && chunks <= RING_CHUNKS && (chunks - 1) * each < RING_FLIGHT;
         chunks++)
        fit_ring(target, k, l, 1, 1, chunks, 1);
    if (fits)
        fit_ring(target, k, l, 1, 2, l->ring.chunks, 1);
    return fits;
}

/* Vectors for which tiles are filled at once, where they have room. */
static int most_parts(const f8_cuda_layout *l)
{
    return l->vectors % 2 == 0 ? 2 : l->vectors % 3 == 0 ? 3 : 1;
}

static bool fit_large_ring(const f8_target *target, const f8_kernel *k, f8_cuda_layout *l)
{
    const int parts = most_parts(l);
    return (parts > 1 && (fit_ring(target, k, l, parts, 1, 2, parts) ||
                          fit_ring(target, k, l, parts, 1, parts, 1))) ||
           fit_ring(target, k, l, 1, 1, 2, 1);
}

/* The same without bulk copies. One chunk a warp, which is on its way while what was in it is
 * computed with, is enough for such a target's memory. So two sets of tiles, which take one barrier
 * a turn, come before a second chunk. */
static bool fit_small_ring(const f8_target *target, const f8_kernel *k, f8_cuda_layout *l)
{
    const int parts = most_parts(l);
    return (parts > 1 && fit_ring(target, k, l, parts, 1, parts, 1)) ||
           fit_ring(target, k, l, 1, 2, 2, 1) || fit_ring(target, k, l, 1, 2, 1, 1) ||
           fit_ring(target, k, l, 1, 1, 2, 1);
}

bool f8_cuda_choose_ring(const f8_target *target, const f8_kernel *k, f8_cuda_layout *l)
{
    if (!may_ring(target, k, l))
        return false;
    f8_cuda_layout r = *l, kept = *l;
    f8_cuda_keep_own(target, k, &kept);
    for (uint32_t s = 0; s < k->n_near; s++)
        r.near[s] = kept.near[s];
    if (r.vectors == 1) {
        if (!fit_ring_of_tasks(target, k, &r))
            return false;
        *l = r;
        return true;
    }
    r.whole = r.holds = false;
    r.sets = 1;
    if (!(has_bulk_copies(target) ? fit_large_ring(target, k, &r) : fit_small_ring(target, k, &r)))
        return false;
    fit_ring(target, k, &r, r.parts, 2, r.ring.chunks, r.ring.vectors);
    *l = r;
    return true;
}
