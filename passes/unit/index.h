/* Lists of items by a key, for passes that would otherwise look for an item among all of them: time
 * that grows with the square of the layers. Items are numbers from 0 in the order of adding, which
 * is the order of each list. So nothing depends on the values of keys, which may be pointers. */
#ifndef F8_INDEX_H
#define F8_INDEX_H

#include "ir/base/table.h"

typedef struct f8_index {
    f8_arena *arena;
    f8_map first, last; /* by key: an item of its list + 1 */
    uint32_t *next;     /* by item: the next of its list + 1 */
    uint32_t n;
    size_t room;
} f8_index;

enum { F8_INDEX_END = UINT32_MAX };

/* An empty index, in `arena`. */
static inline f8_index f8_index_in(f8_arena *arena)
{
    return (f8_index){.arena = arena};
}

/* Add the next item. False: out of memory. */
bool f8_index_add(f8_index *x, uint64_t key);
/* Forget all items. */
void f8_index_clear(f8_index *x);
/* The first item of that key, and the next one; F8_INDEX_END where there is none. */
uint32_t f8_index_first(const f8_index *x, uint64_t key);
uint32_t f8_index_next(const f8_index *x, uint32_t item);

#endif
