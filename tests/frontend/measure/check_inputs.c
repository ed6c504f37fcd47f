/* Operands by distribution: that they repeat, that they follow it, and that their scales bring them
 * back to it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/measure/operands.h"
#include "ir/base/hash.h"
#include "ir/num/fp8.h"
#include "tests/shared/kernel/gemm_problem.h"
#include "tests/shared/suite.h"

static const f8_dtype dtypes[] = {F8_F32, F8_BF16, F8_E4M3, F8_E5M2};
enum { N_DTYPES = 4, MANY = 1 << 20 };

static void *room(int64_t bytes)
{
    void *p = aligned_alloc(64, ((size_t)bytes + 127) / 64 * 64);
    ck_assert_ptr_nonnull(p);
    return p;
}

static double value_of(f8_dtype dtype, const void *data, int64_t i)
{
    uint32_t bits = 0;
    const size_t size = f8_dtype_size(dtype);
    memcpy(&bits, (const char *)data + (size_t)i * size, size);
    return (double)f8_decode(dtype, bits);
}

/* ---- fills ---- */

START_TEST(names)
{
    for (f8_inputs i = 0; i < F8_N_INPUTS; i++)
        ck_assert_int_eq(f8_inputs_by_name(f8_inputs_name(i)), i);
    ck_assert_str_eq(f8_inputs_name(F8_INPUTS_INTEGERS), "integers");
    ck_assert_ptr_null(f8_inputs_name(F8_N_INPUTS));
    ck_assert_int_eq(f8_inputs_by_name("gauss"), F8_N_INPUTS);
    ck_assert_int_eq(f8_inputs_by_name(""), F8_N_INPUTS);
}
END_TEST

/* Equal arguments give equal bytes, fewer elements their beginning and nothing behind it, and other
 * seeds others. */
START_TEST(fills_repeat)
{
    enum { N = 5001, LESS = 1234 };
    char *x = room(N * 4), *y = room(N * 4);
    for (int d = 0; d < N_DTYPES; d++)
        for (f8_inputs i = 0; i < F8_N_INPUTS; i++) {
            const size_t size = f8_dtype_size(dtypes[d]);
            int64_t other = 0;
            memset(x, 0x5a, N * 4);
            memset(y, 0x5a, N * 4);
            f8_operand_fill(i, dtypes[d], 7, x, N);
            f8_operand_fill(i, dtypes[d], 7, y, LESS);
            ck_assert(!memcmp(x, y, LESS * size));
            ck_assert(y[LESS * size] == 0x5a);
            f8_operand_fill(i, dtypes[d], 8, y, N);
            for (int64_t e = 0; e < N; e++)
                other += memcmp(x + (size_t)e * size, y + (size_t)e * size, size) != 0;
            ck_assert(i == F8_INPUTS_ZEROS ? other == 0 : other > N / 2);
        }
    free(x);
    free(y);
}
END_TEST

/* The bytes on any machine and of any compiler: with others, other operands would be measured. */
START_TEST(fills_are_these)
{
    enum { N = 40001 };
    char *x = room(N * 4), text[33];
    f8_hasher h;
    f8_hasher_begin(&h);
    for (int d = 0; d < N_DTYPES; d++)
        for (f8_inputs i = 0; i < F8_N_INPUTS; i++) {
            f8_operand_fill(i, dtypes[d], 35, x, N);
            f8_hasher_add(&h, x, N * f8_dtype_size(dtypes[d]));
            f8_operand_fill_scales(i, dtypes[d], F8_F32, 35, x, N);
            f8_hasher_add(&h, x, N * 4);
            f8_operand_fill_scales(i, dtypes[d], F8_E8M0, 35, x, N);
            f8_hasher_add(&h, x, N);
        }
    free(x);
    ck_assert_str_eq(f8_hash_text(f8_hasher_end(&h), text), "71b1ba7f51f55082401e4c45d75862b3");
}
END_TEST

typedef struct moments {
    double mean, deviation, least, most;
} moments;

static moments moments_of(const double *x, int64_t n)
{
    moments m = {0, 0, x[0], x[0]};
    for (int64_t i = 0; i < n; i++) {
        m.mean += x[i] / (double)n;
        m.deviation += x[i] * x[i] / (double)n;
        m.least = fmin(m.least, x[i]);
        m.most = fmax(m.most, x[i]);
    }
    m.deviation = sqrt(m.deviation - m.mean * m.mean);
    return m;
}

/* What the standard deviation of the codes is to be. */
static double deviation_of(f8_inputs inputs, f8_dtype dtype)
{
    const double most = f8_dtype_is_fp8(dtype) ? (double)f8_dtype_max(dtype) : 0;
    switch (inputs) {
    case F8_INPUTS_NORMAL: return most > 0 ? most / 4.25 : 1;
    case F8_INPUTS_UNIFORM: return (most > 0 ? most : 1) / sqrt(3);
    case F8_INPUTS_INTEGERS: return sqrt(60. / 9);
    default: return 0;
    }
}

/* The largest value: of the rounding upwards of quantile 1 - 2^-16 to E4M3's and E5M2's maximum. */
static double most_of(f8_inputs inputs, f8_dtype dtype)
{
    if (inputs == F8_INPUTS_INTEGERS || inputs == F8_INPUTS_ZEROS)
        return inputs == F8_INPUTS_ZEROS ? 0 : 4;
    if (f8_dtype_is_fp8(dtype))
        return (double)f8_dtype_max(dtype);
    return inputs == F8_INPUTS_UNIFORM ? 1 : 4.17;
}

/* The mean of n values is within 6 deviations / sqrt(n) of 0 except once in 5e8. Their deviation is
 * within 1% in f32 and bf16: 6 / sqrt(2 n) = 0.4%, and 0.03% for the tails that are missing. FP8
 * has 3 or 2 bits behind the first: rounding adds to the variance at most 2^-8 / 3 or 2^-6 / 3 of
 * it. */
START_TEST(distributions)
{
    void *raw = room(MANY * 4);
    double *x = room(MANY * 8);
    for (int d = 0; d < N_DTYPES; d++)
        for (f8_inputs i = 0; i < F8_N_INPUTS; i++) {
            const double deviation = deviation_of(i, dtypes[d]), most = most_of(i, dtypes[d]);
            f8_operand_fill(i, dtypes[d], 11, raw, MANY);
            for (int64_t e = 0; e < MANY; e++) {
                x[e] = value_of(dtypes[d], raw, e);
                require(isfinite(x[e]), "element %d is not finite", (int)e);
            }
            const moments m = moments_of(x, MANY);
            ck_assert_msg(fabs(m.mean) <= 6 * deviation / sqrt(MANY), "%s: mean %g",
                          f8_inputs_name(i), m.mean);
            ck_assert_msg(fabs(m.deviation - deviation) <= 0.01 * deviation, "%s: %g, not %g",
                          f8_inputs_name(i), m.deviation, deviation);
            ck_assert_msg(m.least >= -most && m.most <= most, "%s: %g..%g", f8_inputs_name(i),
                          m.least, m.most);
            ck_assert_msg(m.least <= -0.99 * most && m.most >= 0.99 * most, "%s: %g..%g",
                          f8_inputs_name(i), m.least, m.most);
        }
    free(raw);
    free(x);
}
END_TEST

static int ascending(const void *x, const void *y)
{
    const float a = *(const float *)x, b = *(const float *)y;
    return (a > b) - (a < b);
}

/* Kolmogorov's distance from the distribution that is meant. Beyond 2.5 / sqrt(n) it is once in
 * 1e5; the table's steps add 2^-15 at most. */
START_TEST(follows_the_distribution)
{
    float *x = room(MANY * 4);
    for (f8_inputs inputs = F8_INPUTS_NORMAL; inputs <= F8_INPUTS_UNIFORM; inputs++) {
        double distance = 0;
        f8_operand_fill(inputs, F8_F32, 3, x, MANY);
        qsort(x, MANY, sizeof *x, ascending);
        for (int i = 0; i < MANY; i++) {
            const double v = (double)x[i];
            const double p = inputs == F8_INPUTS_NORMAL ? erfc(-v / sqrt(2)) / 2 : (v + 1) / 2;
            distance = fmax(distance, fabs(p - (i + 0.5) / MANY));
        }
        ck_assert_msg(distance < 2.5 / sqrt(MANY) + 0x1p-15, "%s: %g", f8_inputs_name(inputs),
                      distance);
    }
    free(x);
}
END_TEST

/* Each of the nine is one ninth within 6 deviations; no zero has a sign. */
START_TEST(integers)
{
    uint8_t *x = room(MANY);
    int64_t n[9] = {0};
    f8_operand_fill(F8_INPUTS_INTEGERS, F8_E4M3, 5, x, MANY);
    for (int64_t i = 0; i < MANY; i++) {
        const double v = (double)f8_e4m3_to_f32(x[i]);
        require(v == rint(v) && fabs(v) <= 4 && x[i] != 0x80, "element %d is %g", (int)i, v);
        n[(int)v + 4]++;
    }
    for (int v = 0; v < 9; v++)
        ck_assert_msg(fabs((double)n[v] - MANY / 9.) < 6 * sqrt(MANY * 8 / 81.), "%d: %d times",
                      v - 4, (int)n[v]);
    free(x);
}
END_TEST

/* Scales bring the deviation back to that of the distribution within a factor of 2, and neighbours
 * differ by 9/8 to 2. */
START_TEST(scales)
{
    enum { N = 1000 };
    float x[N];
    uint8_t e8m0[N];
    for (int d = 0; d < N_DTYPES; d++)
        for (f8_inputs i = 0; i < F8_N_INPUTS; i++) {
            const double ratio =
                i == F8_INPUTS_ZEROS ? 1 : deviation_of(i, dtypes[d]) / deviation_of(i, F8_F32);
            const bool vary = i == F8_INPUTS_NORMAL || i == F8_INPUTS_UNIFORM;
            for (int kind = 0; kind < 2; kind++) {
                f8_operand_fill_scales(i, dtypes[d], kind ? F8_E8M0 : F8_F32, 9,
                                       kind ? (void *)e8m0 : (void *)x, N);
                for (int e = 0; e < N && kind; e++)
                    x[e] = f8_e8m0_to_f32(e8m0[e]);
                for (int e = 0; e < N; e++) {
                    const double back = (double)x[e] * ratio;
                    const double near = e ? (double)fmaxf(x[e] / x[e - 1], x[e - 1] / x[e]) : 1.5;
                    require(vary ? back > 0.25 && back <= 2 : x[e] == 1, "scale %d: %g", e, back);
                    require(!vary || (near > 1.1249 && near <= 2), "neighbours: %g", near);
                }
            }
        }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("inputs");
    TCase *t = tcase_create("inputs");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, names);
    tcase_add_test(t, fills_repeat);
    tcase_add_test(t, fills_are_these);
    tcase_add_test(t, distributions);
    tcase_add_test(t, follows_the_distribution);
    tcase_add_test(t, integers);
    tcase_add_test(t, scales);
    suite_add_tcase(s, t);
    return s;
}
