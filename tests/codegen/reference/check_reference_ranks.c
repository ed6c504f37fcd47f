/* Reductions over ranks as the interpreter evaluates them by itself, before any pass expands them:
 * in the order of the ranks. And what it says when an exchange fails. */
#include <math.h>
#include <string.h>

#include "codegen/reference/reference.h"
#include "frontend/text/parse.h"
#include "tests/shared/suite.h"

enum { RANKS = 3, N = 5, RANK = 1 };

/* What each rank has: sums that depend on their order, a NaN, an infinity, zeros with signs. */
static const float x[RANKS][N] = {
    {1e8f, -INFINITY, 0.5f, -0.0f, 3}, {1, -2, NAN, -0.0f, -4}, {-1e8f, 7, 0.25f, -0.0f, 0}};

/* Of all_to_all each rank has a row of its own for every other: x and the number of the row. */
static float row(int rank, int to, int i)
{
    return x[rank][i] + (float)to;
}

static f8_status all_gather(void *user, const void *send, void *receive, int64_t bytes,
                            f8_diag *diag)
{
    (void)user, (void)diag;
    ck_assert_int_eq(bytes, sizeof x[0]);
    ck_assert_mem_eq(send, x[RANK], sizeof x[0]);
    memcpy(receive, x, sizeof x);
    return F8_OK;
}

static f8_status all_to_all(void *user, const void *send, void *receive, int64_t bytes,
                            f8_diag *diag)
{
    (void)user, (void)diag, (void)send;
    ck_assert_int_eq(bytes, sizeof x[0]);
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < N; i++)
            ((float *)receive)[r * N + i] = row(r, RANK, i);
    return F8_OK;
}

static f8_status broken(void *user, const void *send, void *receive, int64_t bytes, f8_diag *diag)
{
    (void)user, (void)send, (void)receive, (void)bytes;
    return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "no more");
}

static const f8_comm comm = {
    .rank = RANK, .ranks = RANKS, .all_gather = all_gather, .all_to_all = all_to_all};

static const char text[] =
    "module m\n"
    "func f(%x: f32[5], %m: f32[3, 5]) -> (%sum: f32[5], %most: f32[5], %part: f32[5]) {\n"
    "  return all_reduce(%x) {ranks = 3}, all_reduce(%x) {ranks = 3, reduce = \"amax\"}, "
    "reduce_scatter(%m) {ranks = 3}\n}\n";

static f8_status run(const f8_comm *c, float out[3][N], f8_diag *diag)
{
    f8_arena arena;
    f8_module *m;
    float rows[RANKS][N];
    f8_arena_init(&arena, NULL);
    ck_assert_int_eq(f8_parse(text, strlen(text), "t", NULL, 0, &arena, diag, &m), F8_OK);
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < N; i++)
            rows[r][i] = row(RANK, r, i);
    const f8_status status =
        f8_reference_run_rank(&m->func[0], (const void *[]){x[RANK], rows},
                              (void *[]){out[0], out[1], out[2]}, c, NULL, diag);
    f8_arena_end(&arena);
    return status;
}

static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a);
}

START_TEST(reduced)
{
    float out[3][N];
    f8_diag diag = {0};
    ck_assert_msg(run(&comm, out, &diag) == F8_OK, "%s", diag.text);
    for (int i = 0; i < N; i++) {
        const float sum = x[0][i] + x[1][i] + x[2][i],
                    part = row(0, RANK, i) + row(1, RANK, i) + row(2, RANK, i);
        float most = 0;
        for (int r = 0; r < RANKS; r++)
            most = isnan(x[r][i]) || isnan(most) ? NAN : fmaxf(most, fabsf(x[r][i]));
        ck_assert_msg(same(out[0][i], sum), "%d: %g is not %g", i, out[0][i], sum);
        ck_assert_msg(same(out[1][i], most), "%d: %g is not %g", i, out[1][i], most);
        ck_assert_msg(same(out[2][i], part), "%d: %g is not %g", i, out[2][i], part);
    }
}
END_TEST

START_TEST(failed)
{
    float out[3][N];
    f8_diag diag = {0};
    const f8_comm cut = {.rank = RANK, .ranks = RANKS, .all_gather = broken, .all_to_all = broken};
    ck_assert_int_eq(run(&cut, out, &diag), F8_ERR_LIBRARY);
    ck_assert_str_eq(diag.text, "no more");
    diag = (f8_diag){0};
    ck_assert_int_eq(run(NULL, out, &diag), F8_ERR_INPUT);
    ck_assert_str_eq(diag.text, "the program was compiled for 3 ranks, but it runs on 1");
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("reference_ranks");
    TCase *c = tcase_create("ranks");
    tcase_add_test(c, reduced);
    tcase_add_test(c, failed);
    suite_add_tcase(suite, c);
    return suite;
}
