/* Scaled GEMMs of the CPU: every granularity of scales, f32 and E8M0, by each algorithm, against a
 * plain loop in double over the dequantized operands. The test checks DeepGEMM's measure, equal
 * bits for any threads, and operands that are not finite. Scales that are off by one block must
 * fail the same checks. */
#include "ir/num/fp8.h"
#include "tests/shared/kernel/gemm_problem.h"
#include "tests/shared/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gemm_setup g;
static uint32_t seed = 4;

static void setup(void)
{
    gemm_setup_make(&g);
}

static void teardown(void)
{
    gemm_setup_end(&g);
}

/* How much of an operand one scale covers: rows (columns) of the result, and k. 0: all. */
typedef struct extent {
    int64_t outer, k;
} extent;

typedef struct pair {
    extent a, b;
} pair;

static const pair pairs[] = {
    {{0, 0}, {0, 0}},     {{1, 0}, {1, 0}},   {{1, 0}, {0, 0}},       {{1, 128}, {128, 128}},
    {{1, 128}, {1, 128}}, {{1, 32}, {1, 32}}, {{7, 48}, {1, 32}},     {{0, 0}, {3, 40}},
    {{200, 96}, {1, 64}}, {{5, 0}, {1, 128}}, {{1, 600}, {20, 1500}}, {{128, 128}, {1, 0}},
};

enum { N_PAIRS = sizeof pairs / sizeof *pairs };

static f8_granularity granularity(extent e, bool k_is_rows)
{
    return k_is_rows ? (f8_granularity){e.k, e.outer} : (f8_granularity){e.outer, e.k};
}

static f8_gemm_desc describe(const pair *p, const int64_t size[3], f8_dtype scale, int form)
{
    f8_gemm_desc d = {.m = size[0],
                      .n = size[1],
                      .k = size[2],
                      .trans_a = form & 1,
                      .trans_b = form >> 1 & 1,
                      .accumulate = form >> 2 & 1,
                      .a = form >> 3 & 1 ? F8_E5M2 : F8_E4M3,
                      .b = form >> 4 & 1 ? F8_E5M2 : F8_E4M3,
                      .has_alpha = true,
                      .scale = scale};
    d.scale_a = granularity(p->a, d.trans_a);
    d.scale_b = granularity(p->b, !d.trans_b);
    gemm_set_strides(&d, form % 3 ? 0 : 5);
    return d;
}

/* The CPU can do it, and the blocks can be done by it. */
static bool possible(f8_gemm_desc *d, f8_gemm_algorithm algorithm)
{
    f8_gemm *gemm;
    f8_diag diag = {0};
    d->algorithm = algorithm;
    const f8_status status = f8_gemm_prepare(g.lib, d, 1, &gemm, &diag);
    ck_assert_msg(status == F8_OK ||
                      (status == F8_ERR_UNSUPPORTED && algorithm == F8_GEMM_ONEDNN_BF16),
                  "%s", diag.text);
    f8_gemm_release(gemm);
    return status == F8_OK;
}

static const f8_gemm_algorithm algorithms[] = {F8_GEMM_ONEDNN_F32, F8_GEMM_ONEDNN_BF16};

enum { N_ALGORITHMS = sizeof algorithms / sizeof *algorithms };

/* ---- values and bits ---- */

static void *as_bf16(float *x, size_t n)
{
    uint16_t *out = malloc(n * sizeof *out);
    for (size_t i = 0; i < n; i++)
        out[i] = f8_f32_to_bf16(x[i]);
    free(x);
    return out;
}

/* Where both operands' scales are multiplied in on the way into the panels: the same bits as from
 * operands that were dequantized beforehand, to f32, or exactly to bf16. */
static void check_dequantized(const gemm_problem *p)
{
    const bool bf16 = p->desc.algorithm == F8_GEMM_ONEDNN_BF16;
    gemm_problem plain = *p;
    plain.desc.a = plain.desc.b = bf16 ? F8_BF16 : F8_F32;
    plain.desc.has_alpha = false;
    plain.desc.scale_a = plain.desc.scale_b = f8_per_tensor;
    plain.scale_a = plain.scale_b = NULL;
    float *a = gemm_problem_decoded(p, true, true), *b = gemm_problem_decoded(p, false, true);
    plain.a = bf16 ? as_bf16(a, p->a_count) : (void *)a;
    plain.b = bf16 ? as_bf16(b, p->b_count) : (void *)b;
    float *c = gemm_problem_run(&g, p, 1, 0), *want = gemm_problem_run(&g, &plain, 1, 0);
    ck_assert_msg(!memcmp(c, want, p->c_count * sizeof *c),
                  "bits differ from dequantized operands");
    free(c);
    free(want);
    free(plain.a);
    free(plain.b);
}

static void check_pair(const pair *x, const int64_t size[3], f8_dtype scale, int form)
{
    gemm_problem p = gemm_problem_make(describe(x, size, scale, form), &seed);
    const int64_t k = p.desc.k;
    const bool blocks = x->a.k && x->a.k < k && x->b.k && x->b.k < k;
    for (int i = 0; i < N_ALGORITHMS; i++) {
        if (!possible(&p.desc, algorithms[i]))
            continue;
        gemm_problem_check(&g, &p);
        if (blocks && (scale == F8_E8M0 || algorithms[i] == F8_GEMM_ONEDNN_F32))
            check_dequantized(&p);
    }
    gemm_problem_end(&p);
}

static const int64_t sizes[][3] = {
    {1, 1, 1},     {1, 300, 31},   {300, 1, 129},  {37, 70, 300},
    {64, 64, 128}, {130, 257, 65}, {70, 36, 1100},
};

enum { N_SIZES = sizeof sizes / sizeof *sizes };

START_TEST(granularities)
{
    int form = _i;
    for (int s = 0; s < N_SIZES; s++)
        for (int i = 0; i < 2;
             i++, form += 5) { /* 5 is odd: all transpositions come by, and all else */
            check_pair(&pairs[_i], sizes[s], F8_F32, form);
            check_pair(&pairs[_i], sizes[s], F8_E8M0, form + 3);
        }
}
END_TEST

/* More chunks than are packed at a time, either operand shared. */
START_TEST(several_rounds)
{
    static const int64_t wide[] = {130, 140, 9000}, tall[] = {140, 130, 9000};
    for (int i = 0; i < 2; i++) {
        check_pair(&pairs[3], i ? tall : wide, F8_F32, i * 7);
        check_pair(&pairs[5], i ? tall : wide, F8_E8M0, i * 6);
    }
}
END_TEST

/* Operands that are not FP8 take scales too. */
START_TEST(other_operands)
{
    static const f8_dtype dtypes[] = {F8_F32, F8_BF16};
    for (int i = 0; i < 8; i++) {
        f8_gemm_desc d = describe(&pairs[i & 4 ? 4 : 1], sizes[3], i & 1 ? F8_E8M0 : F8_F32, i);
        d.a = dtypes[i >> 1 & 1], d.b = dtypes[~i >> 1 & 1], d.round_a = d.a == F8_F32 && (i & 1);
        gemm_problem p = gemm_problem_make(d, &seed);
        gemm_problem_check(&g, &p);
        gemm_problem_end(&p);
    }
}
END_TEST

/* An array of scales that isn't given counts as ones. */
START_TEST(no_array)
{
    for (int i = 0; i < 4 * N_ALGORITHMS; i++) {
        f8_gemm_desc d = describe(&pairs[i & 1 ? 4 : 0], sizes[3], F8_F32, i);
        if (!possible(&d, algorithms[i / 4]))
            continue;
        gemm_problem p = gemm_problem_make(d, &seed);
        void **array = i & 2 ? &p.scale_a : &p.scale_b, *given = *array;
        float *scales = given;
        for (size_t j = 0; j < (i & 2 ? p.scale_a_count : p.scale_b_count); j++)
            scales[j] = 1;
        float *want = gemm_problem_run(&g, &p, 1, 0);
        *array = NULL;
        float *c = gemm_problem_run(&g, &p, 1, 0);
        ck_assert(!memcmp(c, want, p.c_count * sizeof *c));
        *array = given;
        free(c);
        free(want);
        gemm_problem_end(&p);
    }
}
END_TEST

/* ---- the controls: wrong scales must show ---- */

/* Every scale one place on. */
static void *rotated(const void *scales, size_t n, size_t size)
{
    char *out = malloc(n * size);
    memcpy(out, (const char *)scales + size, (n - 1) * size);
    memcpy(out + (n - 1) * size, scales, size);
    return out;
}

/* C with the scales of one operand off by a block; free it. */
static float *run_off_by_a_block(const gemm_problem *p, bool of_a)
{
    gemm_problem off = *p;
    void *scales =
        rotated(of_a ? p->scale_a : p->scale_b, of_a ? p->scale_a_count : p->scale_b_count,
                f8_dtype_size(p->desc.scale));
    *(of_a ? &off.scale_a : &off.scale_b) = scales;
    float *c = gemm_problem_run(&g, &off, 1, 0);
    free(scales);
    return c;
}

START_TEST(off_by_a_block)
{
    static const int64_t size[] = {40, 150, 300};
    char text[120];
    for (int i = 0; i < 4 * N_ALGORITHMS; i++) {
        gemm_problem p =
            gemm_problem_make(describe(&pairs[_i], size, i & 1 ? F8_E8M0 : F8_F32, i * 7), &seed);
        if (possible(&p.desc, algorithms[i / 4]))
            for (int of_a = 0; of_a < 2; of_a++) {
                if ((of_a ? p.scale_a_count : p.scale_b_count) < 2)
                    continue;
                float *c = run_off_by_a_block(&p, of_a);
                const int64_t wrong = gemm_problem_wrong(&p, c, text);
                ck_assert_msg(wrong > size[0] * size[1] / 2,
                              "scales of %c off by a block: %d wrong", of_a ? 'A' : 'B',
                              (int)wrong);
                free(c);
            }
        gemm_problem_end(&p);
    }
}
END_TEST

/* ---- DeepGEMM's measure ---- */

static const double limit = 1e-3;

static void check_difference(gemm_problem *p)
{
    for (int i = 0; i < N_ALGORITHMS; i++) {
        if (!possible(&p->desc, algorithms[i]))
            continue;
        float *c = gemm_problem_run(&g, p, 2, 2);
        const double d = gemm_problem_difference(p, c);
        ck_assert_msg(d < limit, "K = %d: %g", (int)p->desc.k, d);
        free(c);
        if (p->scale_a_count < 2)
            continue;
        c = run_off_by_a_block(p, true);
        ck_assert_msg(gemm_problem_difference(p, c) > limit, "scales off by a block pass");
        free(c);
    }
}

/* Of what recipes have: tensor, row, block, block's dgrad, mxfp8. */
START_TEST(difference)
{
    static const int of[] = {0, 1, 3, 4, 5};
    static const int64_t ks[] = {128, 2048, 16384};
    for (int i = 0; i < 5 * 3; i++) {
        const int64_t size[] = {24, 40, ks[i / 5]};
        const f8_dtype scale = i % 5 == 4 ? F8_E8M0 : F8_F32;
        gemm_problem p = gemm_problem_make(describe(&pairs[of[i % 5]], size, scale, i * 3), &seed);
        check_difference(&p);
        gemm_problem_end(&p);
    }
}
END_TEST

/* ---- what is not finite ---- */

/* Row 2 of A is zeros; its last scale (all that share it: others as well) isn't finite. B likewise
 * in column 3. */
static void poison(gemm_problem *p, bool of_a, uint32_t bits)
{
    const f8_gemm_desc *d = &p->desc;
    const bool k_is_rows = of_a ? d->trans_a : !d->trans_b;
    const int64_t outer = of_a ? 2 : 3, ld = of_a ? d->lda : d->ldb, last = d->k - 1;
    const f8_granularity gr = of_a ? d->scale_a : d->scale_b;
    const int64_t columns = k_is_rows ? (of_a ? d->m : d->n) : d->k;
    for (int64_t k = 0; k < d->k; k++)
        ((uint8_t *)(of_a ? p->a : p->b))[k_is_rows ? k * ld + outer : outer * ld + k] = 0;
    const int64_t row = f8_granularity_block(gr.rows, k_is_rows ? last : outer);
    const int64_t col = f8_granularity_block(gr.cols, k_is_rows ? outer : last);
    const int64_t at = row * (f8_granularity_block(gr.cols, columns - 1) + 1) + col;
    void *scales = of_a ? p->scale_a : p->scale_b;
    if (d->scale == F8_E8M0)
        ((uint8_t *)scales)[at] = 0xff;
    else
        ((float *)scales)[at] = f8_from_bits(bits);
}

/* C is finite where all products are. It is NaN where the scale is, and where 0 meets one that
 * isn't finite; elsewhere an infinite scale may give either. */
static void check_not_finite(const gemm_problem *p, const float *c, bool of_a, bool nan)
{
    const f8_gemm_desc *d = &p->desc;
    for (int64_t i = 0; i < d->m; i++)
        for (int64_t j = 0; j < d->n; j++) {
            const float x = c[i * d->ldc + j];
            bool finite = true;
            for (int64_t k = 0; k < d->k; k++)
                finite = finite && isfinite(p->a_values[i * d->k + k] * p->b_values[j * d->k + k]);
            const bool good = finite                            ? isfinite(x)
                              : nan || (of_a ? i == 2 : j == 3) ? isnan(x)
                                                                : !isfinite(x);
            require(good, "[%d,%d] is %g", (int)i, (int)j, (double)x);
        }
}

START_TEST(not_finite)
{
    static const uint32_t bits[] = {0x7fc00000, 0x7f800000, 0xff800000};
    for (int i = 0; i < 2 * 3 * 2 * N_ALGORITHMS; i++) {
        const bool of_a = i & 1;
        const f8_dtype scale = i >> 1 & 1 ? F8_E8M0 : F8_F32;
        f8_gemm_desc d = describe(&pairs[_i], sizes[3], scale, i * 5 & ~4);
        if (!possible(&d, algorithms[i >> 2 & 1]))
            continue;
        gemm_problem p = gemm_problem_make(d, &seed);
        poison(&p, of_a, bits[i / 8]);
        gemm_problem_dequantize(&p);
        float *c = gemm_problem_run(&g, &p, 1, 0);
        check_not_finite(&p, c, of_a, scale == F8_E8M0 || i / 8 == 0);
        free(c);
        gemm_problem_end(&p);
    }
}
END_TEST

/* The smallest E8M0 scale, 2^-127, with one of 2^126: codes of 2 make 2 * 2^-127 * 2 * 2^126 = 2.
 */
START_TEST(smallest_scale)
{
    for (int i = 0; i < 2 * N_ALGORITHMS; i++) {
        f8_gemm_desc d = describe(&pairs[i & 1 ? 5 : 0], sizes[3], F8_E8M0, 0);
        if (!possible(&d, algorithms[i / 2]))
            continue;
        gemm_problem p = gemm_problem_make(d, &seed);
        memset(p.a, 0x40, p.a_count);
        memset(p.b, 0x40, p.b_count);
        memset(p.scale_a, 0x00, p.scale_a_count);
        memset(p.scale_b, 0xfd, p.scale_b_count);
        float *c = gemm_problem_run(&g, &p, 1, 0);
        for (int64_t e = 0; e < d.m * d.n; e++) {
            const float x = c[e / d.n * d.ldc + e % d.n];
            require(x == 2 * (float)d.k, "%g", (double)x);
        }
        free(c);
        gemm_problem_end(&p);
    }
}
END_TEST

/* ---- far from 1 ---- */

/* All scales of an operand times `by`. */
static void multiply_scales(void *scales, size_t n, float by)
{
    for (size_t i = 0; i < n; i++)
        ((float *)scales)[i] *= by;
}

static void zero_row(const gemm_problem *p, int64_t row)
{
    const f8_gemm_desc *d = &p->desc;
    for (int64_t k = 0; k < d->k; k++)
        ((uint8_t *)p->a)[d->trans_a ? k * d->lda + row : row * d->lda + k] = 0;
}

/* Within (k + 8) 2^-24 of the sum of magnitudes, and half of the smallest f32 for the result. Where
 * scales come in blocks along k, an element times its scale may be subnormal: half of the smallest
 * f32 of each, times the other. So may the sum up to each k be, whose addition then loses half of
 * the smallest f32. Sums that may overflow are no matter of this test. */
static void check_far(const gemm_problem *p, const float *c, bool blocks)
{
    const f8_gemm_desc *d = &p->desc;
    for (int64_t i = 0; i < d->m; i++)
        for (int64_t j = 0; j < d->n; j++) {
            const double *a = p->a_values + i * d->k, *b = p->b_values + j * d->k;
            double want = 0, sum = 0, lost = 0;
            for (int64_t k = 0; k < d->k; k++) {
                want += a[k] * b[k];
                sum += fabs(a[k] * b[k]);
                lost += blocks ? 0x1p-150 * (fabs(a[k]) + fabs(b[k]) + 1) : 0;
            }
            const float got = c[i * d->ldc + j];
            const double allowed = (double)(d->k + 8) * 0x1p-24 * sum + lost + 0x1p-150;
            require(sum >= 0x1p126 || fabs((double)got - want) <= allowed,
                    "[%d,%d] is %g, not %g +- %g", (int)i, (int)j, (double)got, want, allowed);
        }
}

/* The product of the operands' scales overflows or underflows, while the result need not. */
START_TEST(far_scales)
{
    static const float far[][2] = {{1e25f, 1e25f},   {2e19f, 2e19f},     {1e19f, 3e19f},
                                   {1e-25f, 1e-25f}, {0x1p-128f, 1e30f}, {1e35f, 1e-36f},
                                   {1e-36f, 1e35f},  {1e-20f, 1e-19f}};
    for (size_t i = 0; i < sizeof far / sizeof *far * N_ALGORITHMS; i++) {
        const float *by = far[i / N_ALGORITHMS];
        f8_gemm_desc d = describe(&pairs[_i], sizes[3], F8_F32, (int)i * 3 & ~4);
        if (!possible(&d, algorithms[i % N_ALGORITHMS]))
            continue;
        gemm_problem p = gemm_problem_make(d, &seed);
        multiply_scales(p.scale_a, p.scale_a_count, by[0]);
        multiply_scales(p.scale_b, p.scale_b_count, by[1]);
        zero_row(&p, 2);
        gemm_problem_dequantize(&p);
        float *c = gemm_problem_run(&g, &p, 1, 0);
        check_far(&p, c, _i >= 3);
        free(c);
        gemm_problem_end(&p);
    }
}
END_TEST

/* Powers of two change no bit of a mantissa: neither where they are nor beside it. */
START_TEST(one_far_scale)
{
    for (int i = 0; i < 2 * N_ALGORITHMS; i++) {
        f8_gemm_desc d = describe(&pairs[1], sizes[3], F8_F32, i / 2 * 4);
        const float by = i & 1 ? 0x1p-110f : 0x1p100f;
        d.accumulate = false;
        if (!possible(&d, algorithms[i / 2]))
            continue;
        gemm_problem p = gemm_problem_make(d, &seed);
        float *near = gemm_problem_run(&g, &p, 1, 0);
        ((float *)p.scale_a)[3] *= by;
        ((float *)p.scale_b)[5] *= by;
        float *far = gemm_problem_run(&g, &p, 1, 0);
        for (int64_t e = 0; e < d.m * d.n; e++) {
            const int64_t row = e / d.n, column = e % d.n, at = row * d.ldc + column;
            const float times = (row == 3 ? by : 1) * (column == 5 ? by : 1);
            const float want = row == 3 && column == 5 ? near[at] * by * by : near[at] * times;
            require(f8_bits(far[at]) == f8_bits(want), "[%d,%d] is %a, not %a", (int)row,
                    (int)column, (double)far[at], (double)want);
        }
        free(near);
        free(far);
        gemm_problem_end(&p);
    }
}
END_TEST

/* ---- bad input ---- */

static void refused(f8_gemm_desc d, f8_status status, const char *text)
{
    f8_diag diag = {0};
    f8_gemm *gemm;
    ck_assert_int_eq(f8_gemm_prepare(g.lib, &d, 1, &gemm, &diag), status);
    ck_assert_ptr_null(gemm);
    ck_assert_msg(strstr(diag.text, text) != NULL, "%s", diag.text);
}

START_TEST(bad_input)
{
    const f8_gemm_desc good = describe(&pairs[3], sizes[3], F8_F32, 1);
    f8_gemm_desc d = good;
    d.scale = F8_BF16;
    refused(d, F8_ERR_INPUT, "GEMM scales can't be bf16");
    d = good, d.has_alpha = false;
    refused(d, F8_ERR_INPUT, "GEMM operand A has a granularity but no scales");
    d = good, d.scale_a = (f8_granularity){1, 0}; /* A is stored [k, m] */
    refused(d, F8_ERR_INPUT, "GEMM operand A: scales can't be \"row\"");
    d = good, d.scale_b = (f8_granularity){128, 0};
    refused(d, F8_ERR_INPUT, "GEMM operand B: scales can't be \"block(128,0)\"");
    d = good, d.scale_b = (f8_granularity){128, -1};
    refused(d, F8_ERR_INPUT, "GEMM operand B: scales can't be \"block(128,-1)\"");
    d = good, d.scale_layout = F8_SCALES_CUBLASLT;
    refused(d, F8_ERR_UNSUPPORTED, "GEMMs on the CPU take scales laid out as \"grid\" only");
    if (f8_gemm_choose(g.lib, &good) == F8_GEMM_ONEDNN_BF16) {
        d = describe(&pairs[6], sizes[3], F8_F32, 0), d.algorithm = F8_GEMM_ONEDNN_BF16;
        refused(d, F8_ERR_UNSUPPORTED,
                "onednn-bf16 can't do f8e4m3 x f8e4m3 with such blocks of scales");
        ck_assert_int_eq(f8_gemm_choose(g.lib, &d), F8_GEMM_ONEDNN_F32);
    }
    f8_gemm *x, *y;
    d = good, d.scale_b.rows = 64;
    ck_assert_int_eq(f8_gemm_prepare(g.lib, &good, 1, &x, NULL), F8_OK);
    ck_assert_int_eq(f8_gemm_prepare(g.lib, &d, 1, &y, NULL), F8_OK);
    ck_assert_ptr_ne(x, y);
    f8_gemm_release(x);
    f8_gemm_release(y);
}
END_TEST

Suite *f8_suite(void)
{
    printf("seed %u\n", seed);
    Suite *suite = suite_create("gemm_scales");
    TCase *tc = tcase_create("gemm_scales");
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, granularities, 0, N_PAIRS);
    tcase_add_test(tc, several_rounds);
    tcase_add_test(tc, other_operands);
    tcase_add_test(tc, no_array);
    tcase_add_loop_test(tc, off_by_a_block, 1, N_PAIRS);
    tcase_add_test(tc, difference);
    tcase_add_loop_test(tc, not_finite, 0, N_PAIRS);
    tcase_add_test(tc, smallest_scale);
    tcase_add_loop_test(tc, far_scales, 0, 5);
    tcase_add_test(tc, one_far_scale);
    tcase_add_test(tc, bad_input);
    suite_add_tcase(suite, tc);
    return suite;
}
