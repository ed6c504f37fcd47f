/* See byte_memory.h. */
#include "tests/shared/cuda/byte_memory.h"

#include <check.h>
#include <stdlib.h>

static void add_run(byte_memory *m, byte_run r)
{
    if (r.begin >= r.end)
        return;
    if (m->n == m->room) {
        m->room = m->room ? 2 * m->room : 256;
        m->run = realloc(m->run, m->room * sizeof *m->run);
        ck_assert_ptr_nonnull(m->run);
    }
    m->run[m->n++] = r;
}

static bool meets(const byte_run *r, const f8_build_access *a)
{
    return r->space == (int)a->space && r->port == a->port && r->begin < a->end &&
           a->begin < r->end;
}

static void write_run(byte_memory *m, const f8_build_access *a, byte_source from)
{
    for (size_t i = m->n; i-- > 0;) {
        if (!meets(&m->run[i], a))
            continue;
        byte_run left = m->run[i], right = m->run[i];
        m->run[i] = m->run[--m->n];
        left.end = a->begin;
        right.begin = a->end;
        right.from.offset += right.begin - left.begin;
        add_run(m, left);
        add_run(m, right);
    }
    add_run(m, (byte_run){(int)a->space, a->port, a->begin, a->end, from});
}

enum { MOST_ROWS = 64 };

void byte_memory_write(byte_memory *m, const f8_build_access *a, byte_source from)
{
    if (a->whole || !a->pitch || (a->end - a->begin) / a->pitch > MOST_ROWS) {
        write_run(m, a, from);
        return;
    }
    f8_build_access row = *a;
    for (; row.begin < a->end; row.begin += a->pitch) {
        row.end = row.begin + a->width;
        from.offset = row.begin - a->begin;
        write_run(m, &row, from);
    }
}

static int by_begin(const void *x, const void *y)
{
    const byte_run *a = x, *b = y;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

byte_memory byte_memory_read(const byte_memory *m, const f8_build_access *a)
{
    byte_memory parts = {0}, all = {0};
    for (size_t i = 0; i < m->n; i++) {
        byte_run r = m->run[i];
        if (!meets(&r, a))
            continue;
        if (r.begin < a->begin) {
            r.from.offset += a->begin - r.begin;
            r.begin = a->begin;
        }
        r.end = r.end < a->end ? r.end : a->end;
        r.begin -= a->begin;
        r.end -= a->begin;
        add_run(&parts, r);
    }
    if (parts.n)
        qsort(parts.run, parts.n, sizeof *parts.run, by_begin);
    int64_t at = 0;
    const bool kept = a->space != F8_SPACE_ARENA;
    for (size_t i = 0; i <= parts.n; i++) {
        const int64_t next = i < parts.n ? parts.run[i].begin : a->end - a->begin;
        if (kept)
            add_run(&all, (byte_run){0, 0, at, next, {-1, a->port, a->begin + at}});
        if (i == parts.n)
            break;
        at = parts.run[i].end;
        byte_run *last = all.n ? &all.run[all.n - 1] : NULL;
        const byte_source from = parts.run[i].from;
        if (last && last->end == next && last->from.step == from.step &&
            last->from.access == from.access &&
            last->from.offset + last->end - last->begin == from.offset)
            last->end = at;
        else
            add_run(&all, (byte_run){0, 0, next, at, from});
    }
    free(parts.run);
    return all;
}
