/* Packing lifetimes into one arena: see pack.h.
 *
 * Blocks are placed one by one, each at the lowest gap between the placed blocks that it overlaps
 * in time. How well that works depends on the order of placing, and no order is best for all graphs
 * (the problem is NP-hard). So a few orders are tried: by size, by lifetime, by their product, by
 * start.
 *
 * A sweep for gaps begins where one can be. In a training step most blocks live from the forward to
 * the backward and lie without gaps, so a sweep from offset 0 would meet half of all blocks. For
 * each position is noted up to which offset it is full. */
#include "passes/unit/pack.h"

#include <stdlib.h>
#include <string.h>

static int64_t most_alive(const f8_lifetime *block, uint32_t n, uint32_t positions, int64_t *change)
{
    int64_t alive = 0, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        change[block[i].start] += block[i].bytes;
        change[block[i].end + 1] -= block[i].bytes;
    }
    for (uint32_t i = 0; i <= positions; i++) {
        alive += change[i];
        most = alive > most ? alive : most;
    }
    return most;
}

/* ---- orders ---- */

static int compare(int64_t x, int64_t y)
{
    return x < y ? -1 : x > y;
}

static int ties(const f8_lifetime *x, const f8_lifetime *y)
{
    const int by_bytes = compare(y->bytes, x->bytes), by_start = compare(x->start, y->start);
    return by_bytes ? by_bytes : by_start ? by_start : compare(x->id, y->id);
}

static int by_bytes(const void *a, const void *b)
{
    return ties(a, b);
}

static int by_length(const void *a, const void *b)
{
    const f8_lifetime *x = a, *y = b;
    const int by = compare((int64_t)y->end - y->start, (int64_t)x->end - x->start);
    return by ? by : ties(x, y);
}

static int by_area(const void *a, const void *b)
{
    const f8_lifetime *x = a, *y = b;
    const double p = (double)x->bytes * (x->end - x->start + 1.0);
    const double q = (double)y->bytes * (y->end - y->start + 1.0);
    return p != q ? (p > q ? -1 : 1) : ties(x, y);
}

static int by_start(const void *a, const void *b)
{
    const f8_lifetime *x = a, *y = b;
    const int by = compare(x->start, y->start), longer = compare(y->end, x->end);
    return by ? by : longer ? longer : ties(x, y);
}

/* ---- placing ---- */

/* Blocks placed so far by ascending offset: where gaps are found in one sweep. */
typedef struct shelf {
    uint32_t *at; /* indices of blocks */
    uint32_t n;
    size_t room;
    int64_t largest; /* bytes of a block */
} shelf;

/* TILE positions side by side. Most blocks live for hundreds of positions, and raise whole tiles.
 */
enum { TILE = 32 };
typedef struct tile {
    int64_t most; /* full[] where it is the most */
    bool even;    /* every position has `most` */
} tile;

/* Shelves of spans of positions: level 0 has one shelf of all blocks, each next level four times as
 * many, of those blocks that are alive in a quarter of the span. A block is swept for on the
 * narrowest shelf that spans its life: most blocks live for a few positions, and a sweep over all
 * placed blocks would meet few that are alive then. */
enum { LEVELS = 4, SHELVES = 1 + 4 + 16 + 64 };

typedef struct shelves {
    shelf shelf[SHELVES];
    uint32_t span[LEVELS]; /* positions of one shelf */
    f8_lifetime *block;
    /* by position: up to this offset, or further, bytes are taken without a gap; valid where the
     * position's tile is not even */
    int64_t *full;
    tile *tile;
    uint32_t n_tiles;
    f8_arena *arena;
    int64_t steps; /* blocks met by all sweeps */
} shelves;

static bool setup_shelves(shelves *s, f8_lifetime *block, uint32_t positions, f8_arena *arena)
{
    *s = (shelves){.block = block, .n_tiles = positions / TILE + 1, .arena = arena};
    s->full = F8_NEW_ARRAY(arena, int64_t, (size_t)s->n_tiles *TILE);
    s->tile = F8_NEW_ARRAY(arena, tile, s->n_tiles);
    for (uint32_t level = 0, parts = 1; level < LEVELS; level++, parts *= 4)
        s->span[level] = positions / parts + 1;
    return s->full && s->tile;
}

/* The index of the first shelf of a level: 0, 1, 5, 21. */
static uint32_t first_of_level(uint32_t level)
{
    return ((1u << 2 * level) - 1) / 3;
}

static const shelf *narrowest(const shelves *s, const f8_lifetime *b)
{
    uint32_t level = LEVELS - 1;
    while (level > 0 && b->start / s->span[level] != b->end / s->span[level])
        level--;
    return &s->shelf[first_of_level(level) + b->start / s->span[level]];
}

static int64_t end_of(const f8_lifetime *b)
{
    return b->offset + b->bytes;
}

/* The place on a shelf of the first block at or above an offset. */
static uint32_t first_from(const shelves *s, const shelf *on, int64_t offset)
{
    uint32_t low = 0, high = on->n;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (s->block[on->at[middle]].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- how full each position is ---- */

/* Writes down an even tile position by position, before one of them changes. */
static int64_t *spread(shelves *s, uint32_t k)
{
    int64_t *full = s->full + (size_t)k * TILE;
    for (uint32_t i = 0; s->tile[k].even && i < TILE; i++)
        full[i] = s->tile[k].most;
    s->tile[k].even = false;
    return full;
}

static void look_at_tile(shelves *s, uint32_t k)
{
    const int64_t *full = s->full + (size_t)k * TILE;
    int64_t most = full[0], least = full[0];
    for (uint32_t i = 1; i < TILE; i++) {
        most = full[i] > most ? full[i] : most;
        least = full[i] < least ? full[i] : least;
    }
    s->tile[k] = (tile){most, most == least};
}

/* Of positions [from, to], those that are full to `offset` become full to `end`. */
static void raise_full(shelves *s, uint32_t from, uint32_t to, int64_t offset, int64_t end)
{
    for (uint32_t k = from / TILE; k <= to / TILE; k++) {
        const uint32_t first = k * TILE < from ? from - k * TILE : 0,
                       last = k * TILE + TILE - 1 > to ? to - k * TILE : TILE - 1;
        tile *t = &s->tile[k];
        s->steps++;
        if (t->most < offset)
            continue;
        if (t->even && first == 0 && last == TILE - 1) {
            t->most = end;
            continue;
        }
        int64_t *full = spread(s, k);
        for (uint32_t i = first; i <= last; i++)
            full[i] = full[i] == offset ? end : full[i];
        look_at_tile(s, k);
    }
}

/* The position of [from, to] that is the fullest. */
static uint32_t fullest(shelves *s, uint32_t from, uint32_t to)
{
    uint32_t at = from;
    int64_t most = -1;
    for (uint32_t k = from / TILE; k <= to / TILE; k++) {
        const tile *t = &s->tile[k];
        s->steps++;
        if (t->most <= most)
            continue;
        const uint32_t first = k * TILE < from ? from : k * TILE,
                       last = k * TILE + TILE - 1 > to ? to : k * TILE + TILE - 1;
        for (uint32_t i = first; i <= (t->even ? first : last); i++)
            if ((t->even ? t->most : s->full[i]) > most) {
                most = t->even ? t->most : s->full[i];
                at = i;
            }
    }
    return at;
}

/* An offset below which no gap is free throughout b's life: the largest of the notes `full` over
 * that life. The note of that place is corrected first. It may be too low, because a block that
 * filled a gap has joined those above it. */
static int64_t full_below(shelves *s, const f8_lifetime *b)
{
    const uint32_t position = fullest(s, b->start, b->end), k = position / TILE;
    const shelf *on = &s->shelf[first_of_level(LEVELS - 1) + position / s->span[LEVELS - 1]];
    const int64_t before = s->tile[k].even ? s->tile[k].most : s->full[position];
    int64_t full = before;
    for (uint32_t i = first_from(s, on, full); i < on->n; i++) {
        const f8_lifetime *other = &s->block[on->at[i]];
        s->steps++;
        if (other->offset > full)
            break;
        if (other->start <= position && position <= other->end)
            full = end_of(other);
    }
    if (full > before) {
        spread(s, k)[position - k * TILE] = full;
        look_at_tile(s, k);
    }
    return full;
}

/* ---- gaps ---- */

static int64_t lowest_offset(shelves *s, const f8_lifetime *b, bool tight)
{
    const shelf *on = narrowest(s, b);
    int64_t low = full_below(s, b), best = -1, best_gap = INT64_MAX; /* [low, ..) is free so far */
    for (uint32_t i = first_from(s, on, low - on->largest); i < on->n; i++) {
        const f8_lifetime *other = &s->block[on->at[i]];
        s->steps++;
        if (other->end < b->start || b->end < other->start)
            continue;
        const int64_t gap = other->offset - low;
        if (gap >= b->bytes && gap < best_gap) {
            best = low;
            best_gap = gap;
            if (!tight)
                break;
        }
        if (end_of(other) > low)
            low = end_of(other);
    }
    return best >= 0 ? best : low;
}

static bool put_on(shelves *s, shelf *on, uint32_t index)
{
    const f8_lifetime *b = &s->block[index];
    uint32_t *grown = f8_arena_grow(s->arena, on->at, on->n, &on->room, on->n + 1, sizeof *grown);
    if (!grown)
        return false;
    on->at = grown;
    const uint32_t at = first_from(s, on, b->offset + 1);
    memmove(grown + at + 1, grown + at, (on->n++ - at) * sizeof *grown);
    grown[at] = index;
    on->largest = b->bytes > on->largest ? b->bytes : on->largest;
    return true;
}

static bool put(shelves *s, uint32_t index, bool tight)
{
    f8_lifetime *b = &s->block[index];
    b->offset = lowest_offset(s, b, tight);
    raise_full(s, b->start, b->end, b->offset, end_of(b));
    for (uint32_t level = 0; level < LEVELS; level++)
        for (uint32_t k = b->start / s->span[level]; k <= b->end / s->span[level]; k++)
            if (!put_on(s, &s->shelf[first_of_level(level) + k], index))
                return false;
    return true;
}

/* The bytes that all blocks take, placed in their order; -1 when out of memory. Stops where the
 * blocks so far take `most` bytes or more (-1: there is no limit). */
static int64_t place_all(shelves *s, uint32_t n, bool tight, int64_t most)
{
    int64_t top = 0;
    for (uint32_t i = 0; i < SHELVES; i++)
        s->shelf[i].largest = s->shelf[i].n = 0;
    for (uint32_t k = 0; k < s->n_tiles; k++)
        s->tile[k] = (tile){.even = true};
    for (uint32_t i = 0; i < n && (most < 0 || top < most); i++) {
        if (!put(s, i, tight))
            return -1;
        top = end_of(&s->block[i]) > top ? end_of(&s->block[i]) : top;
    }
    return top;
}

/* Once sweeps have met so many blocks, the best order so far is taken. An order takes time that
 * grows with the square of the blocks alive at once, and the first one is the best or nearly so. */
enum { MOST_STEPS = 1 << 22 };

bool f8_pack(f8_lifetime *block, uint32_t n, uint32_t positions, f8_arena *scratch, f8_packing *out)
{
    static int (*const order[])(const void *, const void *) = {by_bytes, by_area, by_length,
                                                               by_start};
    int64_t *change = F8_NEW_ARRAY(scratch, int64_t, (size_t)positions + 2);
    f8_lifetime *best = F8_NEW_ARRAY(scratch, f8_lifetime, n);
    shelves *s = F8_NEW(scratch, shelves);
    if (!change || !best || !s || !setup_shelves(s, block, positions, scratch))
        return false;
    const int64_t lower_bound = most_alive(block, n, positions, change);
    int64_t least = -1;
    for (int i = 0; i < 8 && least != lower_bound && s->steps < MOST_STEPS; i++) {
        if (i % 2 == 0)
            qsort(block, n, sizeof *block, order[i / 2]);
        const int64_t top = place_all(s, n, i % 2 == 1, least);
        if (top < 0)
            return false;
        if (least < 0 || top < least) {
            least = top;
            memcpy(best, block, n * sizeof *block);
        }
    }
    memcpy(block, best, n * sizeof *block);
    *out = (f8_packing){least < 0 ? 0 : least, lower_bound, s->steps};
    return true;
}
