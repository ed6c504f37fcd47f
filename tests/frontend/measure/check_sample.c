/* Which elements of a result the measure looks at: 4,096, or all of a small one; some of each row
 * and of each column; with another seed others. Operands are zeros here, so an element that is not
 * is wrong. */
#include <stdlib.h>

#include "frontend/measure/operands.h"
#include "tests/shared/suite.h"

typedef struct result {
    f8_product p;
    float *operands, *c;
} result;

static result make(int64_t m, int64_t n)
{
    const int64_t most = m > n ? m : n;
    result r = {.p = {.m = m, .n = n, .k = 1}};
    r.operands = calloc((size_t)most, sizeof(float));
    r.c = calloc((size_t)(m * n), sizeof(float));
    ck_assert(r.operands && r.c);
    r.p.a_data = r.p.b_data = r.operands;
    return r;
}

static void end(result *r)
{
    free(r->operands);
    free(r->c);
}

/* Whether a result is wrong where `n` elements from `at` on, `stride` apart, are wrong. */
static bool is_found(result *r, int64_t at, int64_t stride, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        r->c[at + i * stride] = 1;
    const bool found = f8_product_error(&r->p, r->c, seed) > 1;
    for (int64_t i = 0; i < n; i++)
        r->c[at + i * stride] = 0;
    return found;
}

static int seeds_that_find(result *r, int64_t at)
{
    int found = 0;
    for (uint64_t seed = 0; seed < 100; seed++)
        found += is_found(r, at, 1, 1, seed);
    return found;
}

START_TEST(each_of_few)
{
    static const int64_t sizes[][2] = {{1, 1}, {1, 4096}, {4096, 1}, {64, 64}, {3, 700}};
    for (int s = 0; s < 5; s++) {
        result r = make(sizes[s][0], sizes[s][1]);
        const int64_t n = r.p.m * r.p.n;
        ck_assert(f8_product_error(&r.p, r.c, 1) == 0);
        for (int64_t i = 0; i < n; i += n > 64 ? 61 : 1)
            ck_assert(is_found(&r, i, 1, 1, 1) && is_found(&r, n - 1 - i, 1, 1, 2));
        end(&r);
    }
}
END_TEST

START_TEST(each_row_and_column)
{
    static const int64_t sizes[][2] = {{300, 500}, {4096, 2}, {2, 4096}, {5000, 3}};
    for (int s = 0; s < 4; s++) {
        result r = make(sizes[s][0], sizes[s][1]);
        for (int64_t row = 0; row < r.p.m && r.p.m <= 4096; row += r.p.m > 9 ? 23 : 1)
            ck_assert(is_found(&r, row * r.p.n, 1, r.p.n, (uint64_t)row));
        for (int64_t col = 0; col < r.p.n; col += r.p.n > 9 ? 23 : 1)
            ck_assert(is_found(&r, col, r.p.n, r.p.m, (uint64_t)col));
        end(&r);
    }
}
END_TEST

/* 4,096 of 150,000 elements are 2.7 of 100, and 4,096 of 10,000 rows are 41 of 100: within 5
 * deviations. */
START_TEST(seeds_choose)
{
    result r = make(300, 500);
    const int elements = seeds_that_find(&r, 77 * 500 + 123);
    end(&r);
    r = make(10000, 1);
    const int rows = seeds_that_find(&r, 9999);
    end(&r);
    ck_assert_msg(elements >= 1 && elements <= 11, "%d", elements);
    ck_assert_msg(rows >= 17 && rows <= 65, "%d", rows);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("sample");
    TCase *t = tcase_create("sample");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, each_of_few);
    tcase_add_test(t, each_row_and_column);
    tcase_add_test(t, seeds_choose);
    suite_add_tcase(s, t);
    return s;
}
