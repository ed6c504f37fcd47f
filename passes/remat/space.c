/* Arenas within an arena: see space.h. */
#include "passes/remat/space.h"

typedef struct block {
    struct block *next;
    size_t size;
} block;

struct f8_remat_spaces {
    f8_arena *arena;
    block *free;
};

/* Chunks of all arenas grow in the same steps, so that mostly a block of just this size is free. */
static void *take(void *user, size_t size, size_t align)
{
    f8_remat_spaces *s = user;
    (void)align; /* at most that of an arena's arrays */
    for (block **at = &s->free; *at; at = &(*at)->next)
        if ((*at)->size >= size && (*at)->size / 2 < size) {
            block *found = *at;
            *at = found->next;
            return found;
        }
    return f8_arena_array(s->arena, size, 1);
}

static void give_back(void *user, void *memory, size_t size)
{
    f8_remat_spaces *s = user;
    block *b = memory;
    *b = (block){s->free, size};
    s->free = b;
}

f8_remat_spaces *f8_remat_spaces_make(f8_arena *arena)
{
    f8_remat_spaces *s = F8_NEW(arena, f8_remat_spaces);
    if (s)
        s->arena = arena;
    return s;
}

f8_arena *f8_remat_space(f8_remat_spaces *s)
{
    f8_arena *made = F8_NEW(s->arena, f8_arena);
    if (made)
        f8_arena_init(made, &(f8_allocator){take, give_back, s});
    return made;
}
