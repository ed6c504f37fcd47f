/* GEMMs as the tuner sees them: their texts are printed and read back, all candidates give the same
 * bits, bad texts are refused. */
#include "runtime/cpu/gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/kernel/gemm_problem.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

static gemm_setup g;
static uint32_t seed = 1;

static void setup(void)
{
    gemm_setup_make(&g);
}

static void teardown(void)
{
    gemm_setup_end(&g);
}

static const f8_dtype dtypes[] = {F8_F32, F8_BF16, F8_E4M3, F8_E5M2};
static const int64_t sizes[][3] = {{1, 1, 1},       {70, 500, 90},  {260, 200, 1100},
                                   {256, 520, 512}, {520, 64, 384}, {130, 1000, 128},
                                   {64, 96, 64}};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static f8_gemm_desc describe(int i, int form)
{
    f8_gemm_desc d = {.m = sizes[i][0],
                      .n = sizes[i][1],
                      .k = sizes[i][2],
                      .a = dtypes[form % 4],
                      .b = dtypes[(form / 4 + form) % 4],
                      .trans_a = form >> 1 & 1,
                      .trans_b = form >> 2 & 1,
                      .accumulate = form & 1,
                      .has_alpha = form % 3 == 1};
    d.round_a = d.a == F8_F32 && form % 5;
    gemm_set_strides(&d, form % 4 ? 0 : 3);
    return d;
}

/* Every candidate of the model's algorithm has the model's bits, and every other its own
 * algorithm's: nothing but the algorithm does. */
START_TEST(candidates_keep_bits)
{
    int compared = 0;
    for (int form = _i % 2; form < 12; form += 2) {
        f8_gemm_desc all[F8_GEMM_CANDIDATES];
        const f8_gemm_desc d = describe(_i, form);
        const int n = f8_gemm_candidates(g.lib, &d, 2, false, all);
        ck_assert_int_ge(n, 1);
        gemm_problem p = gemm_problem_make(d, &seed);
        float *first[32] = {NULL};
        for (int c = 0; c < n; c++) {
            ck_assert_uint_lt(all[c].algorithm, 32);
            p.desc = all[c];
            float *result = gemm_problem_run(&g, &p, 2, 2);
            if (!first[all[c].algorithm]) {
                first[all[c].algorithm] = result;
                continue;
            }
            char text[F8_CANDIDATE_TEXT];
            f8_gemm_candidate_text(&all[c], all[0].algorithm, text);
            bool same;
            f8_diag diag = {0};
            const f8_allocator al = f8_default_allocator();
            f8_gemm_desc plain = all[c];
            plain.tuning = (f8_gemm_tuning){0};
            ck_assert_int_eq(
                f8_gemm_same_bits(g.lib, &plain, &all[c], g.pools[2], &al, &same, &diag), F8_OK);
            /* what the tuner's own comparison lets through has the same bits on other data too */
            if (same)
                ck_assert_msg(!memcmp(first[all[c].algorithm], result, p.c_count * sizeof *result),
                              "%lldx%lldx%lld form %d: '%s' changes bits", (long long)d.m,
                              (long long)d.n, (long long)d.k, form, text);
            compared += same;
            free(result);
        }
        for (int i = 0; i < 32; i++)
            free(first[i]);
        gemm_problem_end(&p);
    }
    ck_assert_msg(_i == 0 || compared > 0, "no candidate kept its bits");
}
END_TEST

START_TEST(texts_and_back)
{
    int n_all = 0;
    for (int form = 0; form < 12; form++) {
        f8_gemm_desc all[F8_GEMM_CANDIDATES], d = describe(3, form);
        const int n = f8_gemm_candidates(g.lib, &d, 2, false, all);
        n_all += n;
        char seen[F8_GEMM_CANDIDATES][F8_CANDIDATE_TEXT];
        for (int c = 0; c < n; c++) {
            f8_gemm_candidate_text(&all[c], all[0].algorithm, seen[c]);
            f8_gemm_desc back = d;
            back.algorithm = all[0].algorithm;
            back.tuning.share = 2; /* is forgotten */
            ck_assert_msg(f8_gemm_candidate_parse(seen[c], &back), "%s", seen[c]);
            ck_assert_uint_eq(back.algorithm, all[c].algorithm);
            ck_assert_msg(f8_gemm_tuning_equal(&back.tuning, &all[c].tuning), "%s", seen[c]);
            for (int e = 0; e < c; e++)
                ck_assert_str_ne(seen[e], seen[c]);
        }
        ck_assert_str_eq(seen[0], "model");
    }
    ck_assert_int_gt(n_all, 12);
    f8_gemm_desc lt = describe(3, 1);
    static const char all_set[] = "cublaslt 66 tile 15 stages 35 split 2 scheme 2 swizzle 1 "
                                  "custom 3 inner 4 cluster 5";
    ck_assert(f8_gemm_candidate_parse(all_set, &lt));
    ck_assert_uint_eq(lt.tuning.lt.id, 66);
    ck_assert_uint_eq(lt.tuning.lt.split_k, 2);
    ck_assert_uint_eq(lt.tuning.lt.cluster_shape, 5);
    char text[F8_CANDIDATE_TEXT];
    f8_gemm_candidate_text(&lt, F8_GEMM_CUBLASLT, text);
    ck_assert_str_eq(text, all_set);
}
END_TEST

/* As a database of another version may have, or someone's editor. */
START_TEST(texts_that_are_none)
{
    static const char *const bad[] = {
        "", " ", "modell", "m", "m 0", "m 17", "m 4096", "m -16", "m 99999999999999999999", "n 400",
        "share", "share c", "onednn-f64", "cublaslt", "cublaslt 66", "cublaslt 66 tile 1 stages 2",
        "cublaslt 66 stages 1 tile 2 split 1 scheme 0",
        "cublaslt 66 tile 1 stages 2 split 1 scheme 0",
        "cublaslt 0 tile 1 stages 2 split 1 scheme 0 swizzle 0 custom 0 inner 0 cluster 1",
        "model  m 64", "m 64 x",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        f8_gemm_desc d = describe(1, 0), was = d;
        ck_assert_msg(!f8_gemm_candidate_parse(bad[i], &d), "'%s'", bad[i]);
        ck_assert(!memcmp(&d, &was, sizeof d));
    }
}
END_TEST

/* Descs that differ in anything that a time may depend on are different problems. */
START_TEST(problems_differ)
{
    char text[32][F8_GEMM_PROBLEM_TEXT];
    int n = 0;
    f8_gemm_desc d = describe(3, 2);
    const f8_gemm_desc base = d;
#define VARY(change)                        \
    do {                                    \
        d = base;                           \
        change;                             \
        f8_gemm_problem_text(&d, text[n++]); \
    } while (0)
    VARY((void)0);
    VARY(d.m++);
    VARY(d.n++);
    VARY(d.k++);
    VARY(d.lda++);
    VARY(d.ldb++);
    VARY(d.ldc++);
    VARY(d.a = F8_BF16);
    VARY(d.b = F8_E5M2);
    VARY(d.c = F8_BF16);
    VARY(d.trans_a = !d.trans_a);
    VARY(d.trans_b = !d.trans_b);
    VARY(d.accumulate = !d.accumulate);
    VARY(d.round_b = true);
    VARY(d.has_alpha = true);
    VARY(d.has_alpha = true; d.scale = F8_E8M0);
    VARY(d.has_alpha = true; d.scale_a.rows = 128);
    VARY(d.has_alpha = true; d.scale_b.rows = 128);
    VARY(d.has_alpha = true; d.scale_layout = F8_SCALES_CUBLASLT);
    VARY(d.fast_accumulate = true);
#undef VARY
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            ck_assert_str_ne(text[i], text[j]);
    f8_gemm_desc longest = base;
    longest.m = longest.n = longest.k = longest.lda = longest.ldb = longest.ldc = INT64_MAX;
    longest.has_alpha = longest.fast_accumulate = true;
    longest.scale_a = longest.scale_b = (f8_granularity){INT64_MAX, INT64_MAX};
    f8_gemm_problem_text(&longest, text[0]);
    ck_assert_ptr_nonnull(strstr(text[0], " fast"));
}
END_TEST

START_TEST(bad_tunings_are_refused)
{
    const f8_gemm_tuning bad[] = {
        {.m_block = 24}, {.m_block = 272}, {.n_block = 8}, {.n_block = 400}, {.share = 3}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        f8_gemm_desc d = describe(1, 0);
        f8_gemm *gemm;
        f8_diag diag = {0};
        d.tuning = bad[i];
        ck_assert_int_eq(f8_gemm_prepare(g.lib, &d, 1, &gemm, &diag), F8_ERR_INPUT);
        ck_assert_ptr_nonnull(strstr(diag.text, "multiples of 16 up to 256 and 384"));
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("tune_gemm");
    TCase *t = tcase_create("tune_gemm");
    const char *given = getenv("FP8C_TEST_SEED");
    seed = given ? (uint32_t)strtoul(given, NULL, 10) : 1;
    printf("seed %u\n", seed);
    tcase_set_timeout(t, 300);
    /* In each test's own process: a child has none of its parent's threads, and inherits a pool's
     * lock as it was at the fork. */
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, candidates_keep_bits, 0, N_SIZES);
    tcase_add_test(t, texts_and_back);
    tcase_add_test(t, texts_that_are_none);
    tcase_add_test(t, problems_differ);
    tcase_add_test(t, bad_tunings_are_refused);
    suite_add_tcase(s, t);
    return s;
}
