/* Which accesses covered which bytes: disjoint runs of bytes, sorted, found by binary search. See
 * merge.h. */
#include "codegen/plan/merge.h"

#include <string.h>

/* Whether the piece ends before the first byte of the access. */
static bool is_before(const f8_bytes_piece *p, const f8_build_access *a)
{
    if (p->space != a->space)
        return p->space < a->space;
    if (p->port != a->port)
        return p->port < a->port;
    return p->end <= a->begin;
}

static bool is_within(const f8_bytes *m, size_t i, const f8_build_access *a)
{
    return i < m->n && m->piece[i].space == a->space && m->piece[i].port == a->port &&
           m->piece[i].begin < a->end;
}

static size_t find(const f8_bytes *m, const f8_build_access *a)
{
    size_t low = 0, high = m->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (is_before(&m->piece[middle], a))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool insert(f8_bytes *m, size_t at, f8_bytes_piece p)
{
    f8_bytes_piece *grown =
        f8_arena_grow(m->arena, m->piece, m->n, &m->room, m->n + 1, sizeof *grown);
    if (!grown)
        return false;
    m->piece = grown;
    memmove(grown + at + 1, grown + at, (m->n - at) * sizeof *grown);
    grown[at] = p;
    m->n++;
    return true;
}

/* Splits piece i at byte `at`. */
static bool split(f8_bytes *m, size_t i, int64_t at)
{
    f8_bytes_piece rest = m->piece[i];
    rest.begin = at;
    if (!insert(m, i + 1, rest))
        return false;
    m->piece[i].end = at;
    return true;
}

bool f8_bytes_cut(f8_bytes *m, const f8_build_access *a, size_t *first, size_t *end)
{
    size_t i = find(m, a);
    *first = *end = i;
    if (a->begin >= a->end)
        return true;
    if (is_within(m, i, a) && m->piece[i].begin < a->begin) {
        if (!split(m, i, a->begin))
            return false;
        *first = ++i;
    }
    for (int64_t at = a->begin; at < a->end; at = m->piece[i++].end) {
        const bool is_piece = is_within(m, i, a);
        if (!is_piece || m->piece[i].begin > at) { /* bytes without a piece so far */
            const int64_t stop = is_piece ? m->piece[i].begin : a->end;
            if (!insert(m, i, (f8_bytes_piece){a->space, a->port, at, stop, 0, 0}))
                return false;
        } else if (m->piece[i].end > a->end && !split(m, i, a->end)) {
            return false;
        }
    }
    *end = i;
    return true;
}

void f8_bytes_replace(f8_bytes *m, size_t first, size_t end, uint32_t writer)
{
    if (first == end)
        return;
    f8_bytes_piece *p = &m->piece[first];
    p->end = m->piece[end - 1].end;
    p->writer = writer;
    p->others = 0;
    memmove(p + 1, m->piece + end, (m->n - end) * sizeof *p);
    m->n -= end - first - 1;
}

bool f8_bytes_add_other(f8_bytes *m, size_t piece, uint32_t mark)
{
    const size_t at = m->n_others ? m->n_others : 1;
    f8_bytes_other *grown =
        f8_arena_grow(m->arena, m->other, m->n_others, &m->other_room, at + 1, sizeof *grown);
    if (!grown)
        return false;
    m->other = grown;
    grown[at] = (f8_bytes_other){mark, m->piece[piece].others};
    m->piece[piece].others = (uint32_t)at;
    m->n_others = at + 1;
    return true;
}

bool f8_bytes_follow(f8_bytes *m, const f8_build_access *a, uint32_t mark,
                     bool (*see)(void *user, uint32_t mark), void *user)
{
    size_t first, end;
    if (!f8_bytes_cut(m, a, &first, &end))
        return false;
    for (size_t i = first; i < end; i++) {
        const f8_bytes_piece p = m->piece[i];
        if (p.writer && !see(user, p.writer))
            return false;
        if (!a->write && !f8_bytes_add_other(m, i, mark))
            return false;
        for (uint32_t k = a->write ? p.others : 0; k; k = m->other[k].next)
            if (!see(user, m->other[k].mark))
                return false;
    }
    if (a->write)
        f8_bytes_replace(m, first, end, mark);
    return true;
}
