/* The arenas of plans that are carried out: the next one takes the memory of those that ended. */
#include "passes/remat/space.h"
#include "tests/shared/suite.h"

#include <stdlib.h>
#include <string.h>

static size_t taken; /* bytes that the outer arena has */

static void *count_alloc(void *user, size_t size, size_t align)
{
    (void)user;
    taken += size;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void count_free(void *user, void *p, size_t size)
{
    (void)user;
    taken -= size;
    free(p);
}

/* About 10 MB in arrays of many sizes, the same ones in every round. They start as zeros. */
static void fill(f8_arena *a)
{
    for (size_t i = 1; i <= 100; i++) {
        const size_t n = 2000 * i;
        uint8_t *bytes = F8_NEW_ARRAY(a, uint8_t, n);
        ck_assert_ptr_nonnull(bytes);
        for (size_t k = 0; k < n; k++)
            ck_assert(bytes[k] == 0);
        memset(bytes, 0xff, n);
    }
}

START_TEST(memory_is_used_again)
{
    enum { ALIVE = 3, ROUNDS = 20 };
    f8_arena outer;
    f8_arena *space[ALIVE];
    f8_arena_init(&outer, &(f8_allocator){count_alloc, count_free, NULL});
    f8_remat_spaces *s = f8_remat_spaces_make(&outer);
    ck_assert_ptr_nonnull(s);
    for (int i = 0; i < ALIVE; i++) {
        space[i] = f8_remat_space(s);
        ck_assert_ptr_nonnull(space[i]);
        fill(space[i]);
    }
    const size_t before = taken;
    for (int i = 0; i < ROUNDS; i++) {
        f8_arena_end(space[i % ALIVE]);
        fill(space[i % ALIVE]);
    }
    ck_assert_uint_eq(taken, before);
    f8_arena_end(&outer);
    ck_assert_uint_eq(taken, 0);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("remat_space");
    TCase *tc = tcase_create("remat_space");
    tcase_add_test(tc, memory_is_used_again);
    suite_add_tcase(suite, tc);
    return suite;
}
