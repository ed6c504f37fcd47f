/* Hash tables, and maps made of them.
 *
 * A table finds items, which are numbers, by a hash. The items themselves lie in a list of the
 * caller's, who compares them:
 *
 *     f8_table_walk walk = f8_table_find(hash);
 *     for (uint32_t i; f8_table_next(&table, &walk, &i);)
 *         if (is_equal(&list[i], wanted))
 *             return i;
 *
 * Every table of fp8c with open addressing is one of these: at least half of it is free, and a walk
 * ends even where that is not so. No order depends on the values of hashes, so a pointer may be
 * one.
 */
#ifndef F8_TABLE_H
#define F8_TABLE_H

#include "ir/base/status.h"

typedef struct f8_table {
    struct f8_table_entry {
        uint32_t hash, item; /* item + 1; 0: free */
    } *entry;
    uint32_t size, used;
} f8_table;

/* Adds an item with that hash, whether or not others have it. A table of zeros is empty; it grows
 * in the arena, the same one each time. */
f8_status f8_table_add(f8_table *t, f8_arena *arena, uint64_t hash, uint32_t item, f8_diag *d);
/* Forgets all items. */
void f8_table_clear(f8_table *t);

typedef struct f8_table_walk {
    uint32_t hash, step;
} f8_table_walk;

/* Begins a walk over the items with that hash, in no particular order. */
f8_table_walk f8_table_find(uint64_t hash);
/* The next of them. False: there is no more. */
bool f8_table_next(const f8_table *t, f8_table_walk *walk, uint32_t *item);

/* ---- maps ---- */

/* From keys, which may be pointers, to numbers other than 0. A map of zeros is empty. */
typedef struct f8_map {
    f8_table table;
    struct f8_map_entry {
        uint64_t key;
        uint32_t value;
    } *entry;
    uint32_t n;
    size_t room;
} f8_map;

/* 0: the map does not have the key. */
uint32_t f8_map_get(const f8_map *m, uint64_t key);
/* Gives a key its value, or another one; 0 takes it away. The arena is the same one each time. */
f8_status f8_map_set(f8_map *m, f8_arena *arena, uint64_t key, uint32_t value, f8_diag *d);
void f8_map_clear(f8_map *m);

static inline uint64_t f8_map_key(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

#endif
