/* Division, square root, exp and rows that repeat of generated kernels (codegen/cuda/divide.cuh)
 * against the host's own and the scalar function, bit for bit; NaNs by class. The text is plain C
 * and included as it is, over primitives that stand for the machine's. The seeds are moved by one
 * float either way. FP8C_DIVIDE=all takes every mantissa of the divisor and every operand of the
 * root and of tanh; without it a part, chosen by the same rules. On a device the kernels of
 * check_cuda_rows.c use the same text. */
#include "ir/num/fp8.h"
#include "ir/num/scalar.h"
#include "tests/shared/suite.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define F8_DEV static inline __attribute__((unused))
typedef uint32_t f8_u32;
typedef uint64_t f8_u64;
typedef int64_t f8_i64;

F8_DEV float f8_fma(float a, float b, float c)
{
    return fmaf(a, b, c);
}

F8_DEV float f8_abs(float a)
{
    return fabsf(a);
}

/* The exact sum is s + rest. */
F8_DEV float f8_fma_up(float a, float b, float c)
{
    const float near = fmaf(a, b, c);
    const double p = (double)a * b, s = p + c, t = s - p, rest = (p - (s - t)) + (c - t);
    return (s - near) + rest > 0 ? nextafterf(near, INFINITY) : near;
}

F8_DEV float f8_reciprocal_seed(float a)
{
    return 1.0f / a;
}

F8_DEV float f8_reciprocal_root_seed(float a)
{
    return 1.0f / sqrtf(a);
}

#include "codegen/cuda/divide.cuh"

static uint64_t state = 88172645463325252u;

static uint64_t next(void) /* 64 bits: xorshift */
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static bool same(float want, float got)
{
    return f8_bits(want) == f8_bits(got) || (isnan(want) && isnan(got));
}

static void divide(float a, float b, int ulps)
{
    const float want = a / b, got = f8_divide_from(a, b, ulps);
    if (!same(want, got))
        ck_abort_msg("%a / %a is %a, not %a (seed %+d)", a, b, want, got, ulps);
}

static void divide_by_seeds(float a, float b)
{
    for (int ulps = -1; ulps <= 1; ulps++)
        divide(a, b, ulps);
}

static uint32_t stride(uint32_t part)
{
    const char *const all = getenv("FP8C_DIVIDE");
    return all && !strcmp(all, "all") ? 1 : part;
}

START_TEST(edges)
{
    static const uint32_t edge[] = {0,          1,          2,          3,          0x3fffff,
                                    0x400000,   0x400001,   0x7fffff,   0x800000,   0x800001,
                                    0xffffff,   0x1000000,  0x33ffffff, 0x34000000, 0x3f7fffff,
                                    0x3f800000, 0x3f800001, 0x40490fdb, 0x7e800000, 0x7effffff,
                                    0x7f000000, 0x7f7fffff, 0x7f800000, 0x7fc00000};
    enum { N = sizeof edge / sizeof *edge };
    for (int i = 0; i < 4 * N * N; i++)
        divide(f8_from_bits(edge[i / 4 % N] | (uint32_t)(i & 1) << 31),
               f8_from_bits(edge[i / 4 / N] | (uint32_t)(i & 2) << 30), 0);
    for (int i = 0; i < N; i++)
        for (uint32_t sign = 0; sign < 2; sign++) {
            const float a = f8_from_bits(edge[i] | sign << 31);
            ck_assert_msg(same(sqrtf(a), f8_root(a)), "root of %a", a);
        }
}
END_TEST

/* Every pair of exponents. */
START_TEST(exponents)
{
    for (uint32_t pair = 0; pair < 1 << 16; pair++)
        for (int i = 0; i < 50; i++) {
            const uint64_t r = next();
            divide(f8_from_bits((pair & 0xff) << 23 | ((uint32_t)r & 0x807fffff)),
                   f8_from_bits(pair >> 8 << 23 | ((uint32_t)(r >> 32) & 0x807fffff)), 0);
        }
}
END_TEST

/* The inverse of an odd number modulo 2^64. */
static uint64_t inverse(uint64_t odd)
{
    uint64_t x = odd;
    for (int i = 0; i < 5; i++)
        x *= 2 - odd * x;
    return x;
}

/* Dividends whose quotient by this mantissa is closest to a float or to the middle of two: q * odd
 * - rest is a multiple of 2^bits. */
static void closest(uint64_t mantissa)
{
    const uint64_t odd = mantissa >> __builtin_ctzll(mantissa), x = inverse(odd);
    for (int64_t rest = -4; rest <= 4; rest++)
        for (int bits = 24; rest && bits <= 26; bits++) {
            const uint64_t q = (x * (uint64_t)rest & ((UINT64_C(1) << bits) - 1));
            uint64_t a = (q * odd - (uint64_t)rest) >> bits;
            while (a && a < 1 << 23)
                a *= 2;
            if (a && a < 1 << 24)
                divide_by_seeds((float)a, (float)mantissa);
        }
}

START_TEST(mantissas)
{
    const uint32_t step = stride(97);
    for (uint32_t m = (uint32_t)_i; m < 1 << 23; m += 4 * step) {
        const uint64_t r = next();
        divide_by_seeds(f8_from_bits(0x3f800000 | ((uint32_t)r & 0x7fffff)),
                        f8_from_bits(0x3f800000 | m));
        closest((UINT64_C(1) << 23) + m);
    }
    divide_by_seeds(1.0f, 0x1.fffffep+0f); /* an iteration from below stays below */
}
END_TEST

/* Subnormal quotients: any, and just between two floats. */
START_TEST(subnormals)
{
    const uint32_t step = stride(23);
    for (uint32_t m = 0; m < 1 << 23; m += step) {
        const uint64_t r = next();
        const uint32_t of_a = 1 + r % 40, of_b = of_a + 126 - (uint32_t)(r >> 8) % 26;
        divide_by_seeds(f8_from_bits(of_a << 23 | ((uint32_t)(r >> 32) & 0x7fffff)),
                        f8_from_bits(of_b << 23 | m));
        const float few = f8_from_bits(0x3f800000 | (m & 0x7fff00));
        const float odd = (float)(1 + 2 * ((r >> 40) & 0xff)); /* odd * few is exact */
        const float high = (float)(1 << (r >> 20) % 8);
        divide_by_seeds(odd * few * 0x1p-100f, few * 0x1p50f * high);
        divide_by_seeds(odd * few * 0x1p-120f, few * 0x1p26f * high);
    }
}
END_TEST

START_TEST(roots)
{
    const uint32_t step = stride(613);
    for (uint64_t x = 0; x <= UINT32_MAX; x += step) {
        const float a = f8_from_bits((uint32_t)x);
        ck_assert_msg(same(sqrtf(a), f8_root(a)), "root of %a", a);
    }
    for (uint32_t x = 0; x < 1 << 24; x += step)
        for (int ulps = -2; ulps <= 2; ulps++) {
            const float a = f8_from_bits(0x3f800000 + x);
            ck_assert_msg(same(sqrtf(a), f8_root_from(a, ulps)), "root of %a (%+d)", a, ulps);
        }
}
END_TEST

/* e / (e + 2) for every e that tanh can have, exp(2 |x|) - 1: all floats up to exp(20), of which
 * this takes a part. Below 2^-25 the divisor is 2. */
START_TEST(near)
{
    const uint32_t step = stride(101), most = f8_bits(0x1p29f);
    for (uint32_t u = 0; u <= most; u += step) {
        const float e = f8_from_bits(u < 0x800000 ? u & ~1u : u); /* a subnormal one is 2 |x| */
        for (int ulps = -1; ulps <= 1; ulps++)
            ck_assert_msg(same(e / (e + 2.0f), f8_quotient_of(e, e + 2.0f, ulps).nearest),
                          "%a / %a", e, e + 2.0f);
    }
    ck_assert(isnan(f8_divide_near(NAN, NAN)));
}
END_TEST

/* exp of 16 or less against the scalar function; and the logarithm of a softmax's sum, which is at
 * least 1 but for few roundings, is hardly negative (is_below in print.c). */
START_TEST(below)
{
    const uint32_t step = stride(1021);
    for (uint64_t x = 0x80000000; x <= UINT32_MAX; x += step) {
        const float a = f8_from_bits((uint32_t)x), want = f8_scalar_f32(F8_FN_EXP, a);
        ck_assert_msg(same(want, f8_exp_below(a)), "exp of %a", a);
    }
    for (uint32_t x = 0; x <= f8_bits(16); x += step) {
        const float a = f8_from_bits(x), want = f8_scalar_f32(F8_FN_EXP, a);
        ck_assert_msg(same(want, f8_exp_below(a)), "exp of %a", a);
    }
    ck_assert(same(f8_scalar_f32(F8_FN_EXP, 16), f8_exp_below(16)));
    ck_assert(f8_exp_below(0) == 1);
    ck_assert(f8_scalar_f32(F8_FN_LOG, 0x1.fffep-1f) > -1);
    for (uint32_t x = f8_bits(1.0f); x <= f8_bits(INFINITY); x += step)
        ck_assert(f8_scalar_f32(F8_FN_LOG, f8_from_bits(x)) >= 0);
}
END_TEST

/* Whole numbers of every length, and their neighbours. */
static int64_t whole(int bits)
{
    const uint64_t most = bits < 63 ? ((uint64_t)1 << bits) - 1 : INT64_MAX;
    const uint64_t n = next() % 4 == 0 ? most - next() % 3 : next() & most;
    return (int64_t)(n > most ? most : n);
}

static void repeats(int64_t row, int64_t div, int64_t mod)
{
    const int64_t want = row / div % mod, got = f8_period(row, div, mod);
    ck_assert_msg(want == got, "%lld / %lld %% %lld is %lld, not %lld", (long long)row,
                  (long long)div, (long long)mod, (long long)want, (long long)got);
}

START_TEST(rows_that_repeat)
{
    for (int i = 0; i < 1000000; i++) {
        const int64_t row = whole((int)(next() % 64)), div = whole((int)(next() % 64));
        repeats(row, div ? div : 1, whole((int)(1 + next() % 63)) | 1);
        repeats(row, 1 + div / 2, 1 + whole((int)(next() % 40)));
    }
    repeats(INT64_MAX, 1, INT64_MAX);
    repeats(INT64_MAX, INT64_MAX, 1);
    repeats(INT64_MAX - 1, INT64_MAX, 2);
    repeats((int64_t)1 << 62, (int64_t)1 << 31, 3);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda divide");
    TCase *t = tcase_create("cuda divide");
    tcase_set_timeout(t, 600);
    tcase_add_test(t, edges);
    tcase_add_test(t, exponents);
    tcase_add_loop_test(t, mantissas, 0, 4);
    tcase_add_test(t, subnormals);
    tcase_add_test(t, roots);
    tcase_add_test(t, near);
    tcase_add_test(t, below);
    tcase_add_test(t, rows_that_repeat);
    suite_add_tcase(s, t);
    return s;
}
