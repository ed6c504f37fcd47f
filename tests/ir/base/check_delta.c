/* Deltas between byte strings. A delta that is made reads back byte for byte, whatever was
 * inserted, removed or changed. It is small where little is new. A damaged one is refused, and
 * nothing outside it is read (under ASan). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/delta.h"
#include "tests/shared/suite.h"

enum { MOST = 20000, ROUNDS = 300 };

static uint64_t state;

static uint64_t draw(void) /* xorshift64* */
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1du;
}

static void fill(uint8_t *to, size_t n)
{
    const unsigned kinds = 1 + (unsigned)(draw() % 255); /* repeats in some, none in others */
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)(draw() % kinds);
}

/* The base with some bytes changed, put in and taken out. */
static size_t edit(const uint8_t *base, size_t n, uint8_t *to)
{
    size_t m = 0;
    const uint64_t every = 20 + draw() % 2000;
    for (size_t i = 0; i < n && m < MOST - 64; i++) {
        const uint64_t what = draw() % (3 * every);
        if (what == 0)
            for (size_t k = draw() % 40; k > 0; k--)
                to[m++] = (uint8_t)draw();
        if (what == 1)
            i += draw() % 40;
        if (i < n)
            to[m++] = what == 2 ? (uint8_t)draw() : base[i];
    }
    return m;
}

static void read_back(const uint8_t *base, size_t n_base, const uint8_t *bytes, size_t n,
                      const uint8_t *delta, size_t size)
{
    size_t whole;
    uint8_t *copy = malloc(size),
            *out = malloc(n + 1); /* exact, so that ASan sees what is beyond */
    memcpy(copy, delta, size);
    ck_assert(f8_delta_size(copy, size, n, &whole) && whole == n);
    ck_assert(!f8_delta_size(copy, size, n - 1, &whole));
    ck_assert(f8_delta_apply(base, n_base, copy, size, out, n) && !memcmp(out, bytes, n));
    free(copy);
    for (int i = 0; i < 40;
         i++) { /* shorter, and with a bit the other way: never beyond, never more */
        const size_t part = (size_t)(draw() % (size + 1));
        uint8_t *bad = malloc(part + 1);
        memcpy(bad, delta, part);
        if (i % 2 && part)
            bad[draw() % part] ^= (uint8_t)(1u << draw() % 8);
        const bool fine = f8_delta_apply(base, n_base, bad, part, out, n);
        ck_assert(!fine || part == size || i % 2);
        free(bad);
    }
    free(out);
}

START_TEST(rounds)
{
    static uint8_t base[MOST], bytes[MOST];
    state = 0x8d0c + (uint64_t)_i;
    int made = 0;
    for (int r = 0; r < ROUNDS; r++) {
        const size_t n_base = (size_t)(draw() % (MOST / 2));
        f8_arena arena;
        f8_diag diag = {0};
        uint8_t *delta;
        size_t size;
        fill(base, n_base);
        size_t n = edit(base, n_base, bytes);
        if (r % 10 == 0)
            fill(bytes, n = (size_t)(draw() % 3000)); /* nothing in common */
        f8_arena_init(&arena, NULL);
        ck_assert_int_eq(f8_delta_make(base, n_base, bytes, n, &arena, &delta, &size, &diag),
                         F8_OK);
        ck_assert((delta != NULL) == (size < n));
        if (delta) {
            read_back(base, n_base, bytes, n, delta, size);
            made++;
        }
        f8_arena_end(&arena);
    }
    ck_assert_msg(made > ROUNDS / 2, "seed %d: %d of %d", _i, made, (int)ROUNDS);
}
END_TEST

/* Equal bytes are one copy; a shift costs no more. */
START_TEST(small)
{
    static uint8_t base[MOST], bytes[MOST];
    state = 7;
    f8_arena arena;
    f8_diag diag = {0};
    uint8_t *delta;
    size_t size;
    for (size_t i = 0; i < MOST; i++)
        base[i] = (uint8_t)draw();
    f8_arena_init(&arena, NULL);
    ck_assert_int_eq(f8_delta_make(base, MOST, base, MOST, &arena, &delta, &size, &diag), F8_OK);
    ck_assert_uint_le(size, 10);
    memcpy(bytes + 5, base, MOST - 5);
    memset(bytes, 'x', 5);
    ck_assert_int_eq(f8_delta_make(base, MOST, bytes, MOST, &arena, &delta, &size, &diag), F8_OK);
    ck_assert_uint_le(size, 20);
    read_back(base, MOST, bytes, MOST, delta, size);
    ck_assert_int_eq(f8_delta_make(base, 0, bytes, MOST, &arena, &delta, &size, &diag), F8_OK);
    ck_assert(!delta && size == MOST);
    f8_arena_end(&arena);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("delta");
    TCase *t = tcase_create("delta");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, rounds, 0, 3);
    tcase_add_test(t, small);
    suite_add_tcase(s, t);
    return s;
}
