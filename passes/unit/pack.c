/* Packing lifetimes into one arena: see pack.h.
 *
 * Blocks are placed one by one, each at the lowest gap between the placed blocks that it overlaps
 * in time. How well that works depends on the order of placing, and no order is best for all graphs
 * (the problem is NP-hard). So a few orders are tried: by size, by lifetime, by their product, by
 * start. */
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

/* Blocks placed so far by ascending offset: where gaps are found in one sweep. What the sweep reads
 * is copied, since blocks are many. */
typedef struct placed {
    int64_t offset, top;
    uint32_t start, end;
} placed;

typedef struct shelf {
    placed *at;
    uint32_t n;
} shelf;

static void put(shelf *s, f8_lifetime *b, bool tight)
{
    int64_t low = 0, best = -1, best_gap = INT64_MAX; /* [low, ..) is free so far */
    for (uint32_t i = 0; i < s->n; i++) {
        const placed *other = &s->at[i];
        if (other->end < b->start || b->end < other->start)
            continue;
        const int64_t gap = other->offset - low;
        if (gap >= b->bytes && gap < best_gap) {
            best = low;
            best_gap = gap;
            if (!tight)
                break;
        }
        if (other->top > low)
            low = other->top;
    }
    b->offset = best >= 0 ? best : low;
    uint32_t low_i = 0, high_i = s->n; /* after those with the same offset */
    while (low_i < high_i) {
        const uint32_t middle = low_i + (high_i - low_i) / 2;
        if (s->at[middle].offset > b->offset)
            high_i = middle;
        else
            low_i = middle + 1;
    }
    memmove(s->at + low_i + 1, s->at + low_i, (s->n - low_i) * sizeof *s->at);
    s->at[low_i] = (placed){b->offset, b->offset + b->bytes, b->start, b->end};
    s->n++;
}

/* Stops where the blocks so far take `most` bytes or more (-1: there is no limit). */
static int64_t place_all(f8_lifetime *block, uint32_t n, bool tight, int64_t most, shelf *s)
{
    int64_t top = 0;
    s->n = 0;
    for (uint32_t i = 0; i < n && (most < 0 || top < most); i++) {
        put(s, &block[i], tight);
        const int64_t end = block[i].offset + block[i].bytes;
        top = end > top ? end : top;
    }
    return top;
}

int64_t f8_pack(f8_lifetime *block, uint32_t n, uint32_t positions, f8_arena *scratch,
                int64_t *lower_bound)
{
    static int (*const order[])(const void *, const void *) = {by_bytes, by_area, by_length,
                                                               by_start};
    int64_t *change = F8_NEW_ARRAY(scratch, int64_t, (size_t)positions + 2);
    f8_lifetime *best = F8_NEW_ARRAY(scratch, f8_lifetime, n);
    shelf s = {.at = F8_NEW_ARRAY(scratch, placed, n)};
    if (!change || !best || !s.at)
        return -1;
    *lower_bound = most_alive(block, n, positions, change);
    int64_t least = -1;
    for (int i = 0; i < 8 && least != *lower_bound; i++) {
        qsort(block, n, sizeof *block, order[i / 2]);
        const int64_t top = place_all(block, n, i % 2 == 1, least, &s);
        if (least < 0 || top < least) {
            least = top;
            memcpy(best, block, n * sizeof *block);
        }
    }
    memcpy(block, best, n * sizeof *block);
    return least < 0 ? 0 : least;
}
