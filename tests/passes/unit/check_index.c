/* Lists of items by a key, against a search in all items. */
#include "tests/shared/suite.h"

#include "passes/unit/index.h"

enum { ITEMS = 5000 };

static uint64_t key_of(uint32_t i)
{
    const uint64_t k = i * 2654435761u % 1009;
    return k % 3 ? k : k << 40; /* low bits alone must not decide */
}

START_TEST(lists_are_in_order_of_adding)
{
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    f8_index x = f8_index_in(&arena);
    for (int round = 0; round < 2; round++) { /* the second time after f8_index_clear */
        ck_assert_uint_eq(f8_index_first(&x, key_of(0)), F8_INDEX_END);
        for (uint32_t i = 0; i < ITEMS; i++)
            ck_assert(f8_index_add(&x, key_of(i)));
        for (uint32_t i = 0; i < ITEMS; i++) {
            uint32_t first = 0, next = i + 1;
            while (key_of(first) != key_of(i))
                first++;
            while (next < ITEMS && key_of(next) != key_of(i))
                next++;
            ck_assert_uint_eq(f8_index_first(&x, key_of(i)), first);
            ck_assert_uint_eq(f8_index_next(&x, i), next < ITEMS ? next : F8_INDEX_END);
        }
        ck_assert_uint_eq(f8_index_first(&x, 1 << 20), F8_INDEX_END);
        f8_index_clear(&x);
    }
    f8_arena_end(&arena);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("index");
    TCase *t = tcase_create("index");
    tcase_add_test(t, lists_are_in_order_of_adding);
    suite_add_tcase(s, t);
    return s;
}
