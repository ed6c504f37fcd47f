/* Algorithm f64, for small products of f32: an element is the f64 sum in the order of k, rounded
 * once, whatever the layouts of the operands, the number of threads and the tuning. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/num/fp8.h"
#include "runtime/cpu/gemm_internal.h"
#include "tests/shared/kernel/gemm_problem.h"
#include "tests/shared/suite.h"

static gemm_setup g;
static uint32_t seed = 5;

static void setup(void)
{
    gemm_setup_make(&g);
}

static void teardown(void)
{
    gemm_setup_end(&g);
}

static f8_gemm_desc small_desc(const int64_t s[3], int form)
{
    f8_gemm_desc d = {.m = s[0], .n = s[1], .k = s[2], .a = F8_F32, .b = F8_F32};
    d.trans_a = form & 1, d.trans_b = form & 2, d.accumulate = form & 4;
    gemm_set_strides(&d, form & 8 ? 3 : 0);
    return d;
}

/* Sums in f64, one term after the other. With `accumulate` the rounded sum is added to C in f32. */
static void check_exact(const gemm_problem *p, const float *c)
{
    const f8_gemm_desc *d = &p->desc;
    for (int64_t i = 0; i < d->m; i++)
        for (int64_t j = 0; j < d->n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < d->k; k++)
                sum += p->a_values[i * d->k + k] * p->b_values[j * d->k + k];
            const float want = d->accumulate ? p->c0[i * d->ldc + j] + (float)sum : (float)sum;
            const float got = c[i * d->ldc + j];
            ck_assert_msg(f8_bits(got) == f8_bits(want),
                          "%d x %d x %d [%d, %d]: %.9g, and the sum in f64 is %.9g", (int)d->m,
                          (int)d->n, (int)d->k, (int)i, (int)j, (double)got, (double)want);
        }
}

static const int64_t shapes[][3] = {{1, 1, 1},   {3, 3, 32},   {13, 31, 32}, {5, 7, 13},
                                    {2, 300, 9}, {200, 1, 70}, {1, 1, 9000}, {20, 25, 31},
                                    {9, 3, 600}, {4, 8, 256},  {4, 8, 257}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

START_TEST(exact_sums)
{
    for (int form = 0; form < 16; form++) {
        gemm_problem p = gemm_problem_make(small_desc(shapes[_i], form), &seed);
        ck_assert_uint_eq(f8_gemm_choose(g.lib, &p.desc), F8_GEMM_F64);
        gemm_problem_check(&g, &p);
        float *c = gemm_problem_run(&g, &p, 3, 2);
        check_exact(&p, c);
        free(c);
        gemm_problem_end(&p);
    }
}
END_TEST

/* One f32 operand is enough. */
START_TEST(one_of_f32)
{
    static const f8_dtype narrow[] = {F8_BF16, F8_E4M3, F8_E5M2};
    for (int i = 0; i < 6; i++) {
        f8_gemm_desc d = small_desc((int64_t[]){6, 20, 40}, i);
        *(i % 2 ? &d.a : &d.b) = narrow[i / 2];
        gemm_problem p = gemm_problem_make(d, &seed);
        ck_assert_uint_eq(f8_gemm_choose(g.lib, &p.desc), F8_GEMM_F64);
        float *c = gemm_problem_run(&g, &p, 1, 0);
        check_exact(&p, c);
        free(c);
        gemm_problem_end(&p);
    }
}
END_TEST

/* Every product of a batch. All share one B. */
START_TEST(batch)
{
    enum { M = 4, N = 5, K = 37, BATCH = 9 };
    float a[BATCH * M * K], b[N * K], c[BATCH * M * N];
    for (int i = 0; i < BATCH * M * K; i++)
        a[i] = sinf((float)i);
    for (int i = 0; i < N * K; i++)
        b[i] = cosf((float)i);
    const f8_gemm_desc d = {.m = M, .n = N, .k = K, .lda = K, .ldb = K, .ldc = N,
                            .batch = BATCH, .stride_a = M * K, .stride_c = M * N,
                            .trans_b = true};
    f8_gemm *gemm;
    ck_assert_int_eq(f8_gemm_prepare(g.lib, &d, 3, &gemm, NULL), F8_OK);
    ck_assert_uint_eq(f8_gemm_algorithm_of(gemm), F8_GEMM_F64);
    void *ws = aligned_alloc(64, f8_gemm_workspace(gemm) + 64);
    ck_assert_int_eq(f8_gemm_run(gemm, g.pools[3], a, b, c, NULL, NULL, ws), F8_OK);
    for (int i = 0; i < BATCH * M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum += (double)a[i * K + k] * (double)b[j * K + k];
            ck_assert(f8_bits(c[i * N + j]) == f8_bits((float)sum));
        }
    free(ws);
    f8_gemm_release(gemm);
}
END_TEST

/* No term is skipped: NaN or Inf times zero is NaN. A sum that f32 can't hold is Inf. */
START_TEST(special_values)
{
    f8_gemm_desc d = small_desc((int64_t[]){5, 9, 8}, 0);
    gemm_problem p = gemm_problem_make(d, &seed);
    float *a = p.a, *b = p.b;
    for (size_t i = 0; i < p.b_count; i++)
        b[i] = i % 9 == 3 ? 0 : 1;
    a[0 * 8 + 2] = INFINITY;
    a[1 * 8 + 3] = NAN;
    b[4 * 9 + 7] = NAN;
    a[4 * 8 + 0] = a[4 * 8 + 1] = 3e38f;
    float *c = gemm_problem_run(&g, &p, 1, 0);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 9; j++) {
            const float x = c[i * 9 + j];
            if (i == 1 || j == 7 || (i == 0 && j == 3))
                ck_assert(isnan(x));
            else if (i == 0 || (i == 4 && j != 3))
                ck_assert(isinf(x));
            else
                ck_assert(isfinite(x));
        }
    free(c);
    gemm_problem_end(&p);
}
END_TEST

/* ---- which products ---- */

START_TEST(choice)
{
    f8_gemm_desc d = small_desc((int64_t[]){16, 32, 32}, 0); /* 2^14: not small any more */
    ck_assert_uint_eq(f8_gemm_choose(g.lib, &d), F8_GEMM_ONEDNN_F32);
    f8_diag diag = {0};
    f8_gemm *gemm;
    d.algorithm = F8_GEMM_F64;
    ck_assert_int_eq(f8_gemm_prepare(g.lib, &d, 1, &gemm, &diag), F8_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(
        strstr(diag.text, "GEMM algorithm f64 can't do f32 x f32 of this size or with scales"));
    d = small_desc((int64_t[]){16, 32, 31}, 0);
    ck_assert_uint_eq(f8_gemm_choose(g.lib, &d), F8_GEMM_F64);
    d.has_alpha = true;
    ck_assert_uint_eq(f8_gemm_choose(g.lib, &d), F8_GEMM_ONEDNN_F32);
    d.has_alpha = false, d.round_a = d.round_b = true; /* as bf16 */
    ck_assert_uint_ne(f8_gemm_choose(g.lib, &d), F8_GEMM_F64);
    d.round_b = false;
    ck_assert_uint_eq(f8_gemm_choose(g.lib, &d), F8_GEMM_F64);
    d.a = d.b = F8_BF16, d.round_a = false;
    ck_assert_uint_ne(f8_gemm_choose(g.lib, &d), F8_GEMM_F64);
}
END_TEST

/* The candidates of the tuner have the same bits. A candidate's text names the algorithm. */
START_TEST(candidates)
{
    f8_gemm_desc d = small_desc((int64_t[]){20, 50, 16}, 0), out[F8_GEMM_CANDIDATES], parsed = d;
    const int n = f8_gemm_candidates(g.lib, &d, 2, true, out);
    ck_assert_int_ge(n, 2);
    for (int i = 0; i < n; i++) {
        bool same;
        const f8_allocator al = f8_default_allocator();
        ck_assert_uint_eq(out[i].algorithm, F8_GEMM_F64);
        ck_assert_int_eq(f8_gemm_same_bits(g.lib, &d, &out[i], NULL, &al, &same, NULL), F8_OK);
        ck_assert(same);
    }
    char text[F8_CANDIDATE_TEXT];
    f8_gemm_candidate_text(&out[0], F8_GEMM_ONEDNN_F32, text);
    ck_assert_str_eq(text, "f64");
    ck_assert(f8_gemm_candidate_parse("f64 share b", &parsed));
    ck_assert_uint_eq(parsed.algorithm, F8_GEMM_F64);
    d.algorithm = F8_GEMM_ONEDNN_F32; /* a plan's own choice counts */
    f8_gemm *gemm;
    ck_assert_int_eq(f8_gemm_prepare(g.lib, &d, 1, &gemm, NULL), F8_OK);
    ck_assert_uint_eq(f8_gemm_algorithm_of(gemm), F8_GEMM_ONEDNN_F32);
    f8_gemm_release(gemm);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("gemm_f64");
    TCase *tc = tcase_create("gemm_f64");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, exact_sums, 0, N_SHAPES);
    tcase_add_test(tc, one_of_f32);
    tcase_add_test(tc, batch);
    tcase_add_test(tc, special_values);
    tcase_add_test(tc, choice);
    tcase_add_test(tc, candidates);
    suite_add_tcase(suite, tc);
    return suite;
}
