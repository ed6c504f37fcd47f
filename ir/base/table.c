/* Hash tables: see table.h. Open addressing with linear probing. */
#include "ir/base/table.h"

#include <string.h>

enum { FIRST = 64 };

f8_table_walk f8_table_find(uint64_t hash)
{
    return (f8_table_walk){(uint32_t)(hash * 0x9e3779b97f4a7c15u >> 32), 0};
}

/* Where a walk looks at its next step. */
static struct f8_table_entry *step(const f8_table *t, f8_table_walk *walk)
{
    return &t->entry[(walk->hash + walk->step++) & (t->size - 1)];
}

bool f8_table_next(const f8_table *t, f8_table_walk *walk, uint32_t *item)
{
    while (walk->step < t->size) {
        const struct f8_table_entry *e = step(t, walk);
        if (e->item && e->hash == walk->hash) {
            *item = e->item - 1;
            return true;
        }
        if (!e->item)
            break;
    }
    return false;
}

static f8_status put(f8_table *t, struct f8_table_entry what, f8_diag *d)
{
    for (f8_table_walk walk = {what.hash, 0}; walk.step < t->size;) {
        struct f8_table_entry *e = step(t, &walk);
        if (e->item)
            continue;
        *e = what;
        t->used++;
        return F8_OK;
    }
    return f8_fail(d, F8_ERR_INTERNAL, F8_NOWHERE, "a table of %u entries is full", t->size);
}

static f8_status make_room(f8_table *t, f8_arena *arena, f8_diag *d)
{
    f8_table grown = {.size = t->size ? t->size : FIRST};
    while (grown.size / 2 <= t->used && grown.size <= UINT32_MAX / 2)
        grown.size *= 2;
    if (grown.size == t->size)
        return F8_OK;
    grown.entry = F8_NEW_ARRAY(arena, struct f8_table_entry, grown.size);
    if (!grown.entry)
        return f8_arena_status(arena, d);
    for (uint32_t i = 0; i < t->size; i++)
        if (t->entry[i].item)
            F8_TRY(put(&grown, t->entry[i], d));
    *t = grown;
    return F8_OK;
}

f8_status f8_table_add(f8_table *t, f8_arena *arena, uint64_t hash, uint32_t item, f8_diag *d)
{
    F8_TRY(make_room(t, arena, d));
    return put(t, (struct f8_table_entry){f8_table_find(hash).hash, item + 1}, d);
}

void f8_table_clear(f8_table *t)
{
    if (t->size)
        memset(t->entry, 0, t->size * sizeof *t->entry);
    t->used = 0;
}

/* ---- maps ---- */

static struct f8_map_entry *find(const f8_map *m, uint64_t key)
{
    f8_table_walk walk = f8_table_find(key);
    for (uint32_t i; f8_table_next(&m->table, &walk, &i);)
        if (m->entry[i].key == key)
            return &m->entry[i];
    return NULL;
}

uint32_t f8_map_get(const f8_map *m, uint64_t key)
{
    const struct f8_map_entry *e = find(m, key);
    return e ? e->value : 0;
}

f8_status f8_map_set(f8_map *m, f8_arena *arena, uint64_t key, uint32_t value, f8_diag *d)
{
    struct f8_map_entry *e = find(m, key);
    if (e) {
        e->value = value;
        return F8_OK;
    }
    e = f8_arena_grow(arena, m->entry, m->n, &m->room, (size_t)m->n + 1, sizeof *e);
    if (!e)
        return f8_arena_status(arena, d);
    m->entry = e;
    F8_TRY(f8_table_add(&m->table, arena, key, m->n, d));
    e[m->n++] = (struct f8_map_entry){key, value};
    return F8_OK;
}

void f8_map_clear(f8_map *m)
{
    f8_table_clear(&m->table);
    m->n = 0;
}
