/* Sums over k as tensor cores make them, cut off and promoted, are within the bound for them, and
 * those of Hopper's FP8 beyond the bound of f32. */
#include <math.h>
#include <stdlib.h>

#include "frontend/measure/operands.h"
#include "ir/num/fp8.h"
#include "tests/shared/suite.h"

enum { M = 16, N = 24, K = 2048, GROUP = 32 };

static struct {
    uint8_t a[M * K], b[N * K];
    float c[M * N];
} x;

/* Without signs, so that what is cut off adds up. */
static void fill(f8_inputs inputs)
{
    f8_operand_fill(inputs, F8_E4M3, 1, x.a, M * K);
    f8_operand_fill(inputs, F8_E4M3, 2, x.b, N * K);
    for (int i = 0; i < M * K; i++)
        x.a[i] &= 0x7f;
    for (int i = 0; i < N * K; i++)
        x.b[i] &= 0x7f;
}

/* v without what is below 2^-bits of 2^exponent. */
static double cut(double v, int exponent, int bits)
{
    return ldexp(trunc(ldexp(v, bits - exponent)), exponent - bits);
}

/* Adds 32 products to a sum: each term is cut off `bits` below the largest. */
static double add_group(double sum, const uint8_t *a, const uint8_t *b, int bits)
{
    double product[GROUP], most = fabs(sum);
    for (int i = 0; i < GROUP; i++) {
        product[i] = (double)f8_e4m3_to_f32(a[i]) * (double)f8_e4m3_to_f32(b[i]);
        most = fmax(most, fabs(product[i]));
    }
    const int exponent = most > 0 ? ilogb(most) : 0;
    double total = cut(sum, exponent, bits);
    for (int i = 0; i < GROUP; i++)
        total += cut(product[i], exponent, bits);
    return total;
}

static void multiply(int bits, int promoted)
{
    for (int e = 0; e < M * N; e++) {
        const uint8_t *a = x.a + e / N * K, *b = x.b + e % N * K;
        double part = 0;
        x.c[e] = 0;
        for (int k = 0; k < K; k += GROUP) {
            part = add_group(part, a + k, b + k, bits);
            if ((k + GROUP) % promoted == 0) {
                x.c[e] += (float)part;
                part = 0;
            }
        }
    }
}

static double error(f8_sums sums)
{
    const f8_product p = {.m = M,
                          .n = N,
                          .k = K,
                          .a = F8_E4M3,
                          .b = F8_E4M3,
                          .c = F8_F32,
                          .trans_b = true,
                          .a_data = x.a,
                          .b_data = x.b,
                          .sums = sums};
    return f8_product_error(&p, x.c, 1);
}

static const struct {
    f8_sums sums;
    int bits, promoted;
} kinds[] = {{F8_SUMS_CUT, 23, K}, {F8_SUMS_FP8, 13, 128}, {F8_SUMS_FAST, 13, K}};

START_TEST(tensor_cores)
{
    for (f8_inputs i = F8_INPUTS_NORMAL; i <= F8_INPUTS_INTEGERS; i++) {
        fill(i);
        multiply(kinds[_i].bits, kinds[_i].promoted);
        ck_assert_double_lt(error(kinds[_i].sums), 1);
    }
}
END_TEST

/* What the promotion is for: without it the sum is wrong by more than it may be with it, and both
 * are wrong by more than f32. */
START_TEST(bounds_tell_them_apart)
{
    fill(F8_INPUTS_UNIFORM);
    multiply(13, K);
    ck_assert_double_gt(error(F8_SUMS_FP8), 1);
    multiply(13, 128);
    ck_assert_double_gt(error(F8_SUMS_F32), 1);
    ck_assert_double_gt(error(F8_SUMS_CUT), 1);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("sums");
    TCase *t = tcase_create("sums");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, tensor_cores, 0, 3);
    tcase_add_test(t, bounds_tell_them_apart);
    suite_add_tcase(s, t);
    return s;
}
