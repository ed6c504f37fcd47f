/* Gives temporaries memory of their own, so that more steps can merge (merge.c).
 *
 * The memory pass lets small values share bytes one after another: the row sums of one parameter's
 * gradient lie where those of the next will lie. In sequence that costs nothing, but two steps that
 * share bytes cannot be one launch, and they cannot change their order. So such a value may have to
 * move. It can lie anywhere if one step writes it whole, and if only row and copy kernels read it
 * before other values overwrite its bytes. It moves by a multiple of F8_ARENA_ALIGN, since kernels
 * depend on the alignment of what they access. A GEMM may also read it as scales or as a bias,
 * because the addresses of these do not decide the GEMM's algorithm. This file finds the values
 * that can move, and gives them their new places; merge.c chooses among them those that do
 * move. */
#include "codegen/plan/merge.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 4 << 20, MOST_ROWS = 8 };

bool f8_build_simple(const f8_build *b, const f8_step_builder *d)
{
    if (d->n_launches != 1)
        return false;
    const f8_source_kind kind = b->source[d->launch->source].kind;
    return kind == F8_SOURCE_ROWS || kind == F8_SOURCE_COPY;
}

/* ---- finding temporaries ---- */

/* What one access writes to the arena, and whether it can be a temporary as far as is known. */
typedef struct value {
    int64_t begin, end, width, pitch; /* as in the access */
    bool is_temp;
    uint32_t number; /* number of the temporary, + 1 */
} value;

/* A piece has the mark of the value that was written last, its index + 1, and the marks of values
 * that a write with gaps may have left in part. During the search, the temp of an access is the
 * index of its value, + 1. */
typedef struct finder {
    f8_build *b;
    f8_bytes bytes;
    value *value;
    size_t n, room;
} finder;

/* Writes with gaps, of one pitch, that do not overlap: q, k and v of one row, for example. */
typedef struct rows {
    int64_t pitch, width; /* the sum of the widths */
    const value *of[MOST_ROWS];
    int n;
} rows;

/* Whether this value and those before it write every byte of the piece. */
static bool covers(rows *r, const f8_bytes_piece *p, const value *v)
{
    if (!v->pitch)
        return false;
    if ((p->begin - v->begin) % v->pitch + p->end - p->begin <= v->width)
        return true;
    if ((r->pitch && r->pitch != v->pitch) || r->n == MOST_ROWS)
        return false;
    for (int i = 0; i < r->n; i++) {
        const value *w = r->of[i];
        const int64_t ahead = ((v->begin - w->begin) % v->pitch + v->pitch) % v->pitch;
        if (ahead < w->width || ahead + v->width > v->pitch)
            return false;
    }
    r->of[r->n++] = v;
    r->pitch = v->pitch;
    r->width += v->width;
    return r->width == r->pitch;
}

/* A read of bytes that more than one value may have left there: none of these values is a
 * temporary. Values are visited from the newest, until they cover the piece. */
static void stay(finder *f, const f8_bytes_piece *p)
{
    rows r = {0};
    uint32_t mark = p->writer;
    for (uint32_t k = p->others; mark; k = f->bytes.other[k].next) {
        f->value[mark - 1].is_temp = false;
        if (!k || covers(&r, p, &f->value[mark - 1]))
            return;
        mark = f->bytes.other[k].mark;
    }
}

/* A read of the bytes of one value and of no others moves with that value. */
static bool read_arena(finder *f, f8_build_access *a, bool moves)
{
    size_t first, end;
    if (!f8_bytes_cut(&f->bytes, a, &first, &end))
        return false;
    bool one = moves && first < end;
    for (size_t i = first; i < end; i++)
        one = one && !f->bytes.piece[i].others &&
              f->bytes.piece[i].writer == f->bytes.piece[first].writer;
    if (one) {
        a->temp = f->bytes.piece[first].writer;
        return true;
    }
    for (size_t i = first; i < end; i++)
        stay(f, &f->bytes.piece[i]);
    return true;
}

static bool write_arena(finder *f, f8_build_access *a, bool moves)
{
    size_t first, end;
    value *grown = f8_arena_grow(f->bytes.arena, f->value, f->n, &f->room, f->n + 1, sizeof *grown);
    if (!grown || !f8_bytes_cut(&f->bytes, a, &first, &end))
        return false;
    f->value = grown;
    grown[f->n++] = (value){.begin = a->begin,
                            .end = a->end,
                            .width = a->width,
                            .pitch = a->adds ? 0 : a->pitch,
                            .is_temp = moves && a->whole && a->begin % F8_ARENA_ALIGN == 0 &&
                                       a->end - a->begin <= MOST_BYTES};
    a->temp = (uint32_t)f->n;
    if (a->whole) {
        f8_bytes_replace(&f->bytes, first, end, a->temp);
        return true;
    }
    for (size_t i = first; i < end; i++) {
        const uint32_t before = f->bytes.piece[i].writer;
        if (before && !f8_bytes_add_other(&f->bytes, i, before))
            return false;
        f->bytes.piece[i].writer = a->temp;
    }
    return true;
}

static bool visit(finder *f, f8_step_builder *d)
{
    const bool simple = f8_build_simple(f->b, d);
    for (int write = 0; write < 2; write++) /* a step reads before it writes */
        for (uint32_t i = 0; i < d->n_accesses; i++) {
            f8_build_access *a = &d->access[i];
            if (simple)
                a->arg = i + 1;
            if (a->space != F8_SPACE_ARENA || a->write != write)
                continue;
            if (a->adds && !read_arena(f, a, false))
                return false;
            if (!(write ? write_arena : read_arena)(f, a, a->arg != 0))
                return false;
        }
    return true;
}

f8_status f8_build_find_temps(f8_build *b, f8_arena *tmp, f8_build_temp **out, uint32_t *n)
{
    finder f = {.b = b, .bytes = {.arena = tmp}};
    for (uint32_t s = 0; s < b->out->n_steps; s++)
        if (!visit(&f, &b->builder[s]))
            return f8_arena_status(tmp, b->diag);
    *n = 0;
    if (!(*out = F8_NEW_ARRAY(tmp, f8_build_temp, f.n + 1)))
        return f8_arena_status(tmp, b->diag);
    for (size_t i = 0; i < f.n; i++) {
        value *v = &f.value[i];
        if (!v->is_temp)
            continue;
        (*out)[*n] = (f8_build_temp){.begin = v->begin, .end = v->end, .to = -1};
        v->number = ++*n;
    }
    for (uint32_t s = 0; s < b->out->n_steps; s++)
        for (uint32_t i = 0; i < b->builder[s].n_accesses; i++) {
            f8_build_access *a = &b->builder[s].access[i];
            a->temp = a->temp ? f.value[a->temp - 1].number : 0;
        }
    return F8_OK;
}

/* ---- placing temporaries ---- */

static int64_t room_of(const f8_build_temp *t)
{
    return f8_aligned(t->end - t->begin, F8_ARENA_ALIGN);
}

static int by_first(const void *x, const void *y)
{
    const f8_build_temp *a = *(f8_build_temp *const *)x, *b = *(f8_build_temp *const *)y;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return a < b ? -1 : a > b; /* both point into one array */
}

/* Places a temporary at the lowest bytes that are free. `live` has those that are placed and still
 * needed, sorted by offset. */
static void place(f8_build_temp **live, size_t *n, f8_build_temp *t, int64_t base)
{
    size_t kept = 0, at;
    for (size_t i = 0; i < *n; i++)
        if (live[i]->last >= t->first)
            live[kept++] = live[i];
    t->to = base;
    for (at = 0; at < kept && t->to + room_of(t) > live[at]->to; at++)
        t->to = live[at]->to + room_of(live[at]);
    memmove(live + at + 1, live + at, (kept - at) * sizeof *live);
    live[at] = t;
    *n = kept + 1;
}

f8_status f8_build_place_temps(f8_arena *tmp, f8_build_temp *temp, uint32_t n, int64_t base,
                               int64_t *bytes, f8_diag *d)
{
    f8_build_temp **order = F8_NEW_ARRAY(tmp, f8_build_temp *, n + 1);
    f8_build_temp **live = F8_NEW_ARRAY(tmp, f8_build_temp *, n + 1);
    size_t n_order = 0, n_live = 0;
    *bytes = 0;
    if (!order || !live)
        return f8_arena_status(tmp, d);
    for (uint32_t i = 0; i < n; i++) {
        temp[i].to = -1;
        if (temp[i].own)
            order[n_order++] = &temp[i];
    }
    qsort(order, n_order, sizeof *order, by_first);
    for (size_t i = 0; i < n_order; i++) {
        place(live, &n_live, order[i], base);
        if (order[i]->to + room_of(order[i]) - base > *bytes)
            *bytes = order[i]->to + room_of(order[i]) - base;
    }
    return F8_OK;
}

void f8_build_move_temps(f8_build *b, const f8_build_temp *temp)
{
    for (uint32_t s = 0; s < b->out->n_steps; s++)
        for (uint32_t i = 0; i < b->builder[s].n_accesses; i++) {
            f8_build_access *a = &b->builder[s].access[i];
            if (!a->temp)
                continue;
            const f8_build_temp *t = &temp[a->temp - 1];
            const int64_t move = t->to < 0 ? 0 : t->to - t->begin;
            a->begin += move;
            a->end += move;
            b->out->step[s].arg[a->arg - 1].offset += move;
            a->temp = 0;
        }
}
