/* Lists of items by a key: see index.h. */
#include "passes/unit/index.h"

#include <string.h>

/* The key's entry, or the free one that it would take. */
static struct f8_index_list *entry(const f8_index *x, uint64_t key)
{
    uint32_t at = (uint32_t)(key * 0x9e3779b97f4a7c15u >> 32) & (x->size - 1);
    while (x->list[at].first && x->list[at].key != key)
        at = (at + 1) & (x->size - 1);
    return &x->list[at];
}

static bool make_room(f8_index *x)
{
    f8_index grown = *x;
    if (2 * (x->n_lists + 1) <= x->size)
        return true;
    grown.size = x->size ? 2 * x->size : 64;
    grown.list = f8_arena_array(x->arena, grown.size, sizeof *grown.list);
    if (!grown.list)
        return false;
    for (uint32_t i = 0; i < x->size; i++)
        if (x->list[i].first)
            *entry(&grown, x->list[i].key) = x->list[i];
    *x = grown;
    return true;
}

bool f8_index_add(f8_index *x, uint64_t key)
{
    uint32_t *next = f8_arena_grow(x->arena, x->next, x->n, &x->room, (size_t)x->n + 1, 4);
    if (!next || !make_room(x))
        return false;
    x->next = next;
    next[x->n++] = 0;
    struct f8_index_list *list = entry(x, key);
    if (list->first)
        next[list->last - 1] = x->n;
    else
        *list = (struct f8_index_list){.key = key, .first = x->n};
    x->n_lists += list->last == 0;
    list->last = x->n;
    return true;
}

void f8_index_clear(f8_index *x)
{
    if (x->size)
        memset(x->list, 0, x->size * sizeof *x->list);
    x->n = x->n_lists = 0;
}

uint32_t f8_index_first(const f8_index *x, uint64_t key)
{
    return x->size ? entry(x, key)->first - 1 : F8_INDEX_END;
}

uint32_t f8_index_next(const f8_index *x, uint32_t item)
{
    return x->next[item] - 1;
}
