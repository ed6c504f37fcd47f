/* Temporaries with memory of their own, so that more steps can be one (build_merge.c).
 *
 * The memory pass lets small values share bytes one after the other: the row sums of one
 * parameter's gradient lie where the next one's will. In order that costs nothing; but steps that
 * share bytes can't run beside each other. A value that one step writes whole, and that only row
 * and copy kernels read until other values are written over its bytes, may lie anywhere. Which do
 * is the merging's choice. */
#include "codegen/build_parts.h"

enum { ALIGN = 64, MOST_BYTES = 256 << 10, MOST_IN_ALL = 8 << 20 };

bool f8_build_simple(const f8_build *b, const f8_build_draft *d)
{
    if (d->n_launches != 1)
        return false;
    const f8_unit_kind kind = b->unit[d->launch->unit].kind;
    return kind == F8_UNIT_ROWS || kind == F8_UNIT_COPY;
}

/* The bytes that still hold the value. */
typedef struct span {
    int64_t begin, end;
} span;

static bool touches(const f8_build_access *a, const span *s)
{
    return a->space == F8_SPACE_ARENA && a->begin < s->end && s->begin < a->end;
}

/* A later step may read some of the value's bytes. With `mark` not 0 the reads are marked. */
static bool read_by(f8_build *b, uint32_t step, const span *live, uint32_t mark)
{
    f8_build_draft *d = &b->draft[step];
    for (uint32_t i = 0; i < d->n_accesses; i++) {
        f8_build_access *a = &d->access[i];
        if (a->write || !touches(a, live))
            continue;
        if (a->begin < live->begin || a->end > live->end || !f8_build_simple(b, d))
            return false;
        if (mark)
            a->temp = mark;
    }
    return true;
}

/* And it may write other values over a part of them, or all. */
static bool written_by(const f8_build *b, uint32_t step, span *live)
{
    const f8_build_draft *d = &b->draft[step];
    for (uint32_t i = 0; i < d->n_accesses; i++) {
        const f8_build_access *a = &d->access[i];
        if (!a->write || !touches(a, live))
            continue;
        if (!a->whole || (a->begin > live->begin && a->end < live->end))
            return false;
        if (a->begin <= live->begin)
            live->begin = a->end;
        else
            live->end = a->begin;
    }
    return true;
}

/* Whether the value that step `from` writes to these bytes is a temporary; its reads are then
 * marked when `mark` is not 0. */
static bool follow(f8_build *b, uint32_t from, span live, uint32_t mark)
{
    for (uint32_t s = from + 1; s < b->out->n_steps && live.begin < live.end; s++)
        if (!read_by(b, s, &live, mark) || !written_by(b, s, &live))
            return false;
    return true;
}

f8_status f8_build_find_temps(f8_build *b, f8_build_temp **out, uint32_t *n)
{
    size_t room = 0;
    *out = NULL;
    *n = 0;
    for (uint32_t s = 0; s < b->out->n_steps; s++) {
        f8_build_draft *d = &b->draft[s];
        if (!f8_build_simple(b, d))
            continue;
        for (uint32_t i = 0; i < d->n_accesses; i++) {
            f8_build_access *a = &d->access[i];
            const span live = {a->begin, a->end};
            if (!a->write || !a->whole || a->space != F8_SPACE_ARENA ||
                live.end - live.begin > MOST_BYTES || !follow(b, s, live, 0))
                continue;
            f8_build_temp *grown = f8_arena_grow(b->arena, *out, *n, &room, *n + 1, sizeof *grown);
            if (!grown)
                return f8_arena_status(b->arena, b->diag);
            *out = grown;
            grown[(*n)++] = (f8_build_temp){.begin = live.begin, .end = live.end};
            a->temp = *n;
            follow(b, s, live, *n);
        }
    }
    return F8_OK;
}

void f8_build_place_temps(f8_build *b, f8_build_temp *temp, uint32_t n, const bool *chosen)
{
    const int64_t base = f8_build_renamed_base(b);
    for (uint32_t i = 0; i < n; i++) {
        const int64_t bytes = (temp[i].end - temp[i].begin + ALIGN - 1) / ALIGN * ALIGN;
        temp[i].to = -1;
        if (!chosen[i] || b->renamed + bytes > MOST_IN_ALL)
            continue;
        temp[i].to = base + b->renamed;
        b->renamed += bytes;
    }
    for (uint32_t s = 0; s < b->out->n_steps; s++)
        for (uint32_t i = 0; i < b->draft[s].n_accesses; i++) {
            f8_build_access *a = &b->draft[s].access[i];
            if (!a->temp)
                continue;
            const f8_build_temp *t = &temp[a->temp - 1];
            const int64_t move = t->to < 0 ? 0 : t->to - t->begin;
            a->begin += move;
            a->end += move;
            b->out->step[s].arg[i].offset += move;
            a->temp = 0;
        }
}
