/* Lists of items by a key: see index.h. */
#include "passes/unit/index.h"

bool f8_index_add(f8_index *x, uint64_t key)
{
    uint32_t *next = f8_arena_grow(x->arena, x->next, x->n, &x->room, (size_t)x->n + 1, 4);
    const uint32_t last = f8_map_get(&x->last, key), item = x->n + 1;
    if (!next || f8_map_set(last ? &x->last : &x->first, x->arena, key, item, NULL) != F8_OK ||
        (!last && f8_map_set(&x->last, x->arena, key, item, NULL) != F8_OK))
        return false;
    x->next = next;
    next[x->n++] = 0;
    if (last)
        next[last - 1] = item;
    return true;
}

void f8_index_clear(f8_index *x)
{
    f8_map_clear(&x->first);
    f8_map_clear(&x->last);
    x->n = 0;
}

uint32_t f8_index_first(const f8_index *x, uint64_t key)
{
    return f8_map_get(&x->first, key) - 1;
}

uint32_t f8_index_next(const f8_index *x, uint32_t item)
{
    return x->next[item] - 1;
}
