/* The judge of products whose scales lie far from 1: what is right in an order that a target may
 * take passes, and what is wrong is found. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/shared/kernel/judge_case.h"

static const char *const scaled[][3] = {
    {"%a: f8e4m3[6, 256], %s: f32[], %b: f8e4m3[256, 5], %t: f32[]", "tensor", "tensor"},
    {"%a: f8e4m3[6, 256], %s: f32[6, 1], %b: f8e4m3[256, 5], %t: f32[1, 5]", "row", "column"},
    {"%a: f8e4m3[6, 256], %s: f32[6, 2], %b: f8e4m3[256, 5], %t: f32[2, 1]", "block(1,128)",
     "block(128,128)"}};
enum { SCALED = sizeof scaled / sizeof scaled[0] };

/* How a target may compute a block of k: it multiplies the sum by a's scale and then by b's, or the
 * other way round, or by the product of both; or as the page says. */
typedef enum order { A_FIRST, B_FIRST, BOTH, AS_WRITTEN, ORDERS } order;

static float in_order(order o, double sum, float a, float b)
{
    const float x = (float)sum;
    switch (o) {
    case A_FIRST: return x * a * b;
    case B_FIRST: return x * b * a;
    case BOTH: return a * b * x;
    default: return (float)((double)a * (double)b * sum);
    }
}

/* `magnitudes`: of the terms, their sum. */
static float scaled_at(const fixture *x, order o, int64_t row, int64_t column, double *magnitudes)
{
    float all = 0;
    *magnitudes = 0;
    for (int64_t k = 0; k < 256; k += 128) {
        const float a = scale_at(x, 0, F8_A_SCALE_A, row, k);
        const float b = scale_at(x, 2, F8_A_SCALE_B, k, column);
        double sum = 0;
        for (int64_t i = k; i < k + 128; i++) {
            const double term = (double)in(x, 0, row * 256 + i) * (double)in(x, 2, i * 5 + column);
            sum += term;
            *magnitudes += fabs(term) * (double)a * (double)b;
        }
        all += in_order(o, sum, a, b);
    }
    return all;
}

/* A product whose scales are about `a` and `b`, computed in an order. Row 1 is zeros. Returns for
 * how many elements the sum of magnitudes may overflow. */
static int start_scaled(fixture *x, int i, float a, float b, order o)
{
    char op[160];
    const float by[2] = {a, b};
    int large = 0;
    snprintf(op, sizeof op,
             "scaled_matmul(%%a, %%s, %%b, %%t) {scale_a = \"%s\", scale_b = \"%s\"}", scaled[i][1],
             scaled[i][2]);
    start(x, scaled[i][0], "f32[6, 5]", op, 3);
    for (uint32_t side = 0; side < 2; side++)
        for (int64_t e = 0; e < f8_type_elements(type_of(x, 2 * side + 1)); e++)
            ((float *)(uintptr_t)x->operand[2 * side + 1])[e] *= by[side];
    memset((uint8_t *)(uintptr_t)x->operand[0] + 256, 0, 256);
    for (int64_t e = 0; e < 30; e++) {
        double magnitudes;
        ((float *)x->got[0])[e] = scaled_at(x, o, e / 5, e % 5, &magnitudes);
        large += magnitudes >= (double)(FLT_MAX / 4);
    }
    return large;
}

static const float far[][2] = {{1e25f, 1e25f},   {2e19f, 2e19f},     {1e19f, 1e19f},
                               {1e-25f, 1e-25f}, {0x1p-128f, 1e30f}, {1e35f, 1e-34f},
                               {1e-36f, 1e35f},  {1e-20f, 1e-20f},   {1, 1}};
enum { FAR = sizeof far / sizeof far[0] };

/* No order of multiplying scales in is called wrong of a target whose order we don't know; of the
 * CPU the one that loses nothing is right, and everything is judged that can be an f32. */
START_TEST(orders_of_scales)
{
    for (int i = 0; i < SCALED * ORDERS; i++) {
        fixture x;
        const int large = start_scaled(&x, i / ORDERS, far[_i][0], far[_i][1], (order)(i % ORDERS));
        ASSERT_OK(&x, F8_SUMS_EMULATED);
        ASSERT_OK(&x, F8_SUMS_GPU);
        if (i % ORDERS == AS_WRITTEN) {
            ASSERT_OK(&x, F8_SUMS_F32);
            ck_assert_int_le(x.j.unbounded, large);
        }
        finish(&x);
    }
}
END_TEST

/* Of zeros a NaN is wrong, as is a result of ordinary size that is 1% off. */
START_TEST(wrong_with_far_scales)
{
    for (int i = 0; i < SCALED; i++) {
        fixture x;
        const int large = start_scaled(&x, i, far[_i][0], far[_i][1], AS_WRITTEN);
        float *got = x.got[0];
        got[7] = NAN;
        ck_assert(!judge(&x, F8_SUMS_F32));
        ck_assert_int_eq(x.j.at, 7);
        got[7] = 0;
        const bool flushed = i == 2 && far[_i][0] < FLT_MIN; /* all factors of A are subnormal */
        if (!large && !flushed && fabsf(got[13]) > 1e-20f) {
            got[13] *= 1.01f;
            ck_assert(!judge(&x, F8_SUMS_F32));
            ck_assert_int_eq(x.j.at, 13);
            got[13] *= 1e6f;
            ck_assert(!judge(&x, F8_SUMS_GPU) || x.j.unbounded > 0);
        }
        finish(&x);
    }
}
END_TEST

/* As flushed_factors of check_judge.c: a code times its E8M0 scale is a factor. */
START_TEST(flushed_scaled_factors)
{
    fixture x;
    start(
        &x, "%a: f8e4m3[1, 64], %s: f8e8m0[1, 2], %b: f8e4m3[64, 1], %t: f8e8m0[2, 1]", "f32[1, 1]",
        "scaled_matmul(%a, %s, %b, %t) {scale_a = \"block(1,32)\", scale_b = \"block(32,1)\"}", 1);
    uint8_t *const *operand = (uint8_t *const *)x.operand;
    memset(operand[0], 0, 64);
    memset(operand[2], 0x38, 64); /* 1 */
    operand[0][0] = 0x38;
    operand[1][0] = 0, operand[1][1] = 127;   /* 2^-127 */
    operand[3][0] = 191, operand[3][1] = 127; /* 2^64 */
    *(float *)x.got[0] = 0;
    ASSERT_OK(&x, F8_SUMS_F32);
    *(float *)x.got[0] = 0x1p-63f;
    ASSERT_OK(&x, F8_SUMS_F32);
    *(float *)x.got[0] = 0x1.1p-62f;
    ck_assert(!judge(&x, F8_SUMS_F32));
    operand[1][0] = 1; /* 2^-126 */
    *(float *)x.got[0] = 0;
    ck_assert(!judge(&x, F8_SUMS_F32));
    finish(&x);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("judge of scales");
    TCase *t = tcase_create("judge of scales");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, orders_of_scales, 0, FAR);
    tcase_add_loop_test(t, wrong_with_far_scales, 0, FAR);
    tcase_add_test(t, flushed_scaled_factors);
    suite_add_tcase(s, t);
    return s;
}
