/* Hash tables and maps, against a search in all items; tables that are full, and that can't grow.
 */
#include "tests/shared/suite.h"

#include <stdlib.h>

#include "ir/base/table.h"

enum { ITEMS = 3000 };

static uint64_t hash_of(uint32_t i)
{
    const uint64_t h = i * 2654435761u % 509;
    return h % 3 ? h : h << 40; /* low bits alone must not decide */
}

static int count(const f8_table *t, uint64_t hash, uint32_t wanted)
{
    int n = 0;
    f8_table_walk walk = f8_table_find(hash);
    for (uint32_t i; f8_table_next(t, &walk, &i);)
        n += i == wanted;
    return n;
}

START_TEST(finds_each_item_once)
{
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    f8_table t = {0};
    for (int round = 0; round < 2; round++) { /* the second time after f8_table_clear */
        for (uint32_t i = 0; i < ITEMS; i++) {
            ck_assert_int_eq(count(&t, hash_of(i), i), 0);
            ck_assert_int_eq(f8_table_add(&t, &arena, hash_of(i), i, NULL), F8_OK);
            ck_assert_uint_ge(t.size, 2 * t.used); /* half of it is free, and it grew for that */
            ck_assert_int_eq(count(&t, hash_of(i), i), 1);
        }
        for (uint32_t i = 0; i < ITEMS; i++)
            ck_assert_int_eq(count(&t, hash_of(i), i), 1);
        ck_assert_uint_eq(t.used, ITEMS);
        ck_assert_int_eq(count(&t, 1 << 20, 0), 0);
        f8_table_clear(&t);
    }
    f8_arena_end(&arena);
}
END_TEST

/* What a mistake in the count of entries would leave: no walk may go on for ever. */
START_TEST(a_full_table_is_a_failure)
{
    f8_arena arena;
    f8_diag diag = {0};
    f8_arena_init(&arena, NULL);
    f8_table t = {0};
    ck_assert_int_eq(f8_table_add(&t, &arena, 0, 0, &diag), F8_OK);
    for (uint32_t i = 0; i < t.size; i++)
        t.entry[i] = (struct f8_table_entry){~0u, 7};
    ck_assert_int_eq(count(&t, 5, 6), 0);
    ck_assert_int_eq(f8_table_add(&t, &arena, 5, 1, &diag), F8_ERR_INTERNAL);
    ck_assert_str_eq(diag.text, "a table of 64 entries is full");
    t.used = t.size; /* the table grows, into one that takes them all */
    diag = (f8_diag){0};
    ck_assert_int_eq(f8_table_add(&t, &arena, 5, 1, &diag), F8_OK);
    ck_assert_uint_ge(t.size, 2 * t.used);
    f8_arena_end(&arena);
}
END_TEST

static void *no_memory(void *user, size_t size, size_t align)
{
    (void)size, (void)align;
    return *(int *)user ? NULL : aligned_alloc(16, (size + 15) / 16 * 16);
}

static void give_back(void *user, void *p, size_t size)
{
    (void)user, (void)size;
    free(p);
}

START_TEST(what_cant_grow_stays)
{
    int full = 0;
    const f8_allocator a = {no_memory, give_back, &full};
    f8_arena arena;
    f8_diag diag = {0};
    f8_map m = {0};
    uint32_t n = 0;
    f8_arena_init(&arena, &a);
    for (; n < 32; n++)
        ck_assert_int_eq(f8_map_set(&m, &arena, n, n + 1, &diag), F8_OK);
    full = 1;
    while (f8_map_set(&m, &arena, n, n + 1, &diag) == F8_OK) /* what is left of a chunk */
        ck_assert_uint_lt(++n, 1 << 20);
    ck_assert_int_eq(diag.status, F8_ERR_MEMORY);
    ck_assert_uint_eq(f8_map_get(&m, n), 0);
    for (uint32_t i = 0; i < n; i++)
        ck_assert_uint_eq(f8_map_get(&m, i), i + 1);
    f8_arena_end(&arena);
}
END_TEST

START_TEST(a_map_has_the_last_value)
{
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    f8_map m = {0};
    uint32_t want[ITEMS] = {0};
    for (uint32_t i = 0; i < 3 * ITEMS; i++) {
        const uint32_t key = i * 2654435761u % ITEMS;
        ck_assert_uint_eq(f8_map_get(&m, (uint64_t)key << 20), want[key]);
        want[key] = i % 7; /* 0 takes the key away */
        ck_assert_int_eq(f8_map_set(&m, &arena, (uint64_t)key << 20, want[key], NULL), F8_OK);
    }
    for (uint32_t key = 0; key < ITEMS; key++)
        ck_assert_uint_eq(f8_map_get(&m, (uint64_t)key << 20), want[key]);
    f8_map_clear(&m);
    ck_assert_uint_eq(f8_map_get(&m, 0), 0);
    f8_arena_end(&arena);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("table");
    TCase *t = tcase_create("table");
    tcase_add_test(t, finds_each_item_once);
    tcase_add_test(t, a_full_table_is_a_failure);
    tcase_add_test(t, what_cant_grow_stays);
    tcase_add_test(t, a_map_has_the_last_value);
    suite_add_tcase(s, t);
    return s;
}
