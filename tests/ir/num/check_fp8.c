/* The number formats: published golden vectors, the edges, every code decoded, and every encoder
 * against an oracle that does not look at bits. The oracle searches all representable values for
 * the nearest. check_codecs.c tests more inputs of FP8 and E8M0, up to all. */
#include "ir/num/fp8.h"
#include "tests/shared/suite.h"

#include <math.h>
#include <stdlib.h>

typedef struct golden {
    float in;
    int e4m3_sat, e4m3, e5m2_sat, e5m2; /* -1: not given */
} golden;

static float up(float x)
{
    return nextafterf(x, INFINITY);
}

START_TEST(golden_vectors)
{
    const golden rows[] = {
        {464, 0x7e, 0x7e, 0x5f, 0x5f},
        {up(464), 0x7e, 0x7f, 0x5f, 0x5f},
        {nextafterf(61440, 0), 0x7e, 0x7f, 0x7b, 0x7b},
        {61440, 0x7e, 0x7f, 0x7b, 0x7c},
        {INFINITY, 0x7e, 0x7f, 0x7b, 0x7c},
        {-INFINITY, 0xfe, 0xff, 0xfb, 0xfc},
        {NAN, 0x7f, 0x7f, 0x7f, 0x7f},
        {-NAN, 0x7f, 0x7f, 0x7f, 0x7f},
        {0.0f, 0x00, 0x00, 0x00, 0x00},
        {-0.0f, 0x80, 0x80, 0x80, 0x80},
        {0x1p-10f, 0x00, 0x00, -1, -1},
        {up(0x1p-10f), 0x01, 0x01, -1, -1},
        {3 * 0x1p-10f, 0x02, 0x02, -1, -1},
        {5 * 0x1p-10f, 0x02, 0x02, -1, -1},
        {15 * 0x1p-10f, 0x08, 0x08, -1, -1},
        {0x1p-17f, 0x00, 0x00, 0x00, 0x00},
        {up(0x1p-17f), 0x00, 0x00, 0x01, 0x01},
        {3 * 0x1p-17f, 0x00, 0x00, 0x02, 0x02},
        {7 * 0x1p-17f, 0x00, 0x00, 0x04, 0x04},
        {-0x1p-10f, 0x80, 0x80, 0x94, 0x94},
        {1.0625f, 0x38, 0x38, -1, -1},
        {1.1875f, 0x3a, 0x3a, -1, -1},
        {1.125f, -1, -1, 0x3c, 0x3c},
        {1.375f, -1, -1, 0x3e, 0x3e},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const golden *g = &rows[i];
        if (g->e4m3 >= 0) {
            ck_assert_msg(f8_f32_to_e4m3(g->in, true) == g->e4m3_sat, "e4m3 sat %a", g->in);
            ck_assert_msg(f8_f32_to_e4m3(g->in, false) == g->e4m3, "e4m3 %a", g->in);
        }
        if (g->e5m2 >= 0) {
            ck_assert_msg(f8_f32_to_e5m2(g->in, true) == g->e5m2_sat, "e5m2 sat %a", g->in);
            ck_assert_msg(f8_f32_to_e5m2(g->in, false) == g->e5m2, "e5m2 %a", g->in);
        }
    }
}
END_TEST

START_TEST(golden_e8m0)
{
    const struct {
        float in;
        int sat, plain;
    } rows[] = {
        {0, 0x00, 0x00},
        {0x1p-149f, 0x00, 0x00},
        {0x1p-127f, 0x00, 0x00},
        {up(0x1p-127f), 0x01, 0x01},
        {0x1p-126f, 0x01, 0x01},
        {up(0x1p-126f), 0x02, 0x02},
        {1, 0x7f, 0x7f},
        {up(1), 0x80, 0x80},
        {0x1p127f, 0xfe, 0xfe},
        {up(0x1p127f), 0xfe, 0xff},
        {INFINITY, 0xfe, 0xff},
        {NAN, 0xff, 0xff},
        {-NAN, 0xff, 0xff},
        {-1, 0x7f, 0x7f}, /* the sign is ignored */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ck_assert_msg(f8_f32_to_e8m0(rows[i].in, true) == rows[i].sat, "sat %a", rows[i].in);
        ck_assert_msg(f8_f32_to_e8m0(rows[i].in, false) == rows[i].plain, "%a", rows[i].in);
    }
}
END_TEST

/* What ir/num/fp8.h says of zeros, subnormal inputs, Inf and NaN, in every format; code_2_127 and
 * _133 are those of 2^-127 and 2^-133. */
START_TEST(edges)
{
    static const struct {
        f8_dtype dtype;
        uint32_t sign, sat_inf, inf, nan, code_2_127, code_2_133;
    } formats[] = {
        {F8_E4M3, 0x80, 0x7e, 0x7f, 0x7f, 0, 0},
        {F8_E5M2, 0x80, 0x7b, 0x7c, 0x7f, 0, 0},
        {F8_F16, 0x8000, 0x7bff, 0x7c00, 0x7e00, 0, 0},
        {F8_BF16, 0x8000, 0x7f7f, 0x7f80, 0, 0x40, 1}, /* NaN: below */
        {F8_E8M0, 0, 0xfe, 0xff, 0xff, 0, 0},
    };
    static const uint32_t nans[] = {0x7f800001, 0x7fa00000, 0x7fbfffff, 0x7fc00000, 0x7fffffff};
    const f8_dtype d = formats[_i].dtype;
    for (int k = 0; k < 4; k++) {
        const bool saturate = k & 1;
        const uint32_t side = k & 2 ? 0x80000000 : 0, sign = k & 2 ? formats[_i].sign : 0;
        const struct {
            uint32_t in, out;
        } rows[] = {
            {0, 0}, /* the zeros */
            {1, 0},
            {0x00008000, 0}, /* 2^-134: a tie of bf16 */
            {0x00010000, formats[_i].code_2_133},
            {0x00400000, formats[_i].code_2_127},
            {0x00400001, d == F8_E8M0 ? 1 : formats[_i].code_2_127},
            {0x007fffff, d == F8_E8M0 ? 1 : d == F8_BF16 ? 0x80 : 0}, /* the largest subnormal */
            {0x7f800000, saturate ? formats[_i].sat_inf : formats[_i].inf},
        };
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            const uint32_t got = f8_encode(d, f8_from_bits(rows[i].in | side), saturate);
            ck_assert_msg(got == (rows[i].out | sign), "%s of %08x: %x", f8_dtype_name(d),
                          rows[i].in | side, got);
        }
        for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
            const uint32_t in = nans[i] | side, got = f8_encode(d, f8_from_bits(in), saturate);
            ck_assert_uint_eq(got, d == F8_BF16 ? in >> 16 | 0x40 : formats[_i].nan);
            ck_assert(isnan(f8_decode(d, got)));
        }
    }
}
END_TEST

/* ---- the oracle ------------------------------------------------------------------------------ */

typedef struct oracle {
    f8_dtype dtype;
    int mantissa, bias;
    uint32_t max; /* the largest finite code without sign */
    uint32_t overflow, nan;
    uint32_t sign;
} oracle;

static const oracle oracles[] = {
    {F8_E4M3, 3, 7, 0x7e, 0x7f, 0x7f, 0x80},
    {F8_E5M2, 2, 15, 0x7b, 0x7c, 0x7f, 0x80},
    {F8_F16, 10, 15, 0x7bff, 0x7c00, 0x7e00, 0x8000},
    {F8_BF16, 7, 127, 0x7f7f, 0x7f80, 0, 0x8000},
};
enum { N_ORACLES = sizeof oracles / sizeof *oracles };

/* The definition of a binary format; codes past max give the values the format would have there. */
static double value_of(const oracle *o, uint32_t magnitude)
{
    int e = (int)(magnitude >> o->mantissa);
    double m = magnitude & ((1u << o->mantissa) - 1);
    double fraction = m / (1 << o->mantissa);
    return e ? pow(2, e - o->bias) * (1 + fraction) : pow(2, 1 - o->bias) * fraction;
}

static uint32_t nearest(const oracle *o, const double *value, float x, bool saturate)
{
    double a = fabs((double)x);
    uint32_t lo = 0, hi = o->max + 1; /* value[lo] <= a; beyond hi everything overflows */
    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;
        if (value[mid] <= a)
            lo = mid;
        else
            hi = mid;
    }
    double below = a - value[lo], above = value[hi] - a;
    uint32_t code = below < above || (below == above && lo % 2 == 0) ? lo : hi;
    if (code > o->max)
        code = saturate ? o->max : o->overflow;
    return code | (signbit(x) ? o->sign : 0);
}

/* 64 inputs for each upper half of an f32: exact, ties and their neighbours in every format. */
static uint32_t structured(uint32_t upper, uint32_t k)
{
    static const uint16_t edge[] = {0x0000, 0x0001, 0x0fff, 0x1000, 0x1001, 0x2000, 0x3000, 0x7000,
                                    0x7fff, 0x8000, 0x8001, 0x9000, 0xb000, 0xd000, 0xf000, 0xffff};
    uint32_t lower = k < 16 ? edge[k] : (upper * 40503u + k * 2654435761u) >> 16;
    return upper << 16 | (lower & 0xffff);
}

START_TEST(encode_is_nearest)
{
    const oracle *o = &oracles[_i];
    double *value = malloc((o->max + 2) * sizeof *value);
    ck_assert_ptr_nonnull(value);
    for (uint32_t c = 0; c <= o->max + 1; c++)
        value[c] = value_of(o, c);
    for (uint32_t upper = 0; upper < 0x10000; upper++)
        for (uint32_t k = 0; k < 64; k++) {
            float x = f8_from_bits(structured(upper, k));
            for (int saturate = 0; saturate < 2; saturate++) {
                uint32_t got = f8_encode(o->dtype, x, saturate);
                uint32_t want = nearest(o, value, x, saturate);
                if (isnan(x))
                    want = o->nan ? o->nan : f8_bits(x) >> 16 | 0x40;
                if (got != want)
                    ck_abort_msg("%s of %a: %x, want %x", f8_dtype_name(o->dtype), x, got, want);
            }
        }
    free(value);
}
END_TEST

START_TEST(decode_every_code)
{
    const oracle *o = &oracles[_i];
    for (uint32_t code = 0; code < 2 * o->sign; code++) {
        float got = f8_decode(o->dtype, code);
        uint32_t magnitude = code & (o->sign - 1);
        bool negative = code & o->sign;
        if (magnitude > o->max) {
            bool inf = o->dtype != F8_E4M3 && magnitude == o->overflow;
            ck_assert_msg(inf ? isinf(got) && !!signbit(got) == negative : isnan(got), "%x", code);
            continue;
        }
        double want = value_of(o, magnitude);
        ck_assert_msg(fabs((double)got) == want && !!signbit(got) == negative, "%x", code);
        ck_assert_uint_eq(f8_encode(o->dtype, got, false), code);
        ck_assert_uint_eq(f8_encode(o->dtype, got, true), code);
    }
    ck_assert(f8_dtype_max(o->dtype) == (float)value_of(o, o->max));
}
END_TEST

START_TEST(e8m0_every_code)
{
    for (uint32_t code = 0; code < 0xff; code++) {
        float v = f8_e8m0_to_f32((uint8_t)code);
        ck_assert((double)v == pow(2, (int)code - 127));
        ck_assert_uint_eq(f8_f32_to_e8m0(v, false), code);
        ck_assert_uint_eq(f8_f32_to_e8m0(up(v), false), code + 1);
        if (code > 1)
            ck_assert_uint_eq(f8_f32_to_e8m0(nextafterf(v, 0), false), code);
    }
    ck_assert(isnan(f8_e8m0_to_f32(0xff)));
    ck_assert(f8_dtype_max(F8_E8M0) == 0x1p127f);
}
END_TEST

/* Rounding to bf16 first would round twice: the dtype-to-dtype path must not do so. */
START_TEST(no_double_rounding)
{
    float x = 1.0625f + 0x1p-20f; /* just above a tie of E4M3; bf16 puts it on the tie */
    ck_assert_uint_eq(f8_f32_to_e4m3(x, true), 0x39);
    ck_assert_uint_eq(f8_f32_to_e4m3(f8_round_bf16(x), true), 0x38);
}
END_TEST

START_TEST(other_dtypes)
{
    ck_assert_uint_eq(f8_encode(F8_F32, -1.5f, true), 0xbfc00000);
    ck_assert(f8_decode(F8_F32, 0xbfc00000) == -1.5f);
    ck_assert(f8_dtype_max(F8_F32) == 0x1.fffffep127f);
    ck_assert(f8_dtype_max(F8_I32) == 0);
    ck_assert_uint_eq(f8_encode(F8_BOOL, 1, true), 0);
    ck_assert(isnan(f8_decode(F8_I32, 1)));
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("fp8");
    TCase *t = tcase_create("formats");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, golden_vectors);
    tcase_add_test(t, golden_e8m0);
    tcase_add_loop_test(t, edges, 0, 5);
    tcase_add_loop_test(t, encode_is_nearest, 0, N_ORACLES);
    tcase_add_loop_test(t, decode_every_code, 0, N_ORACLES);
    tcase_add_test(t, e8m0_every_code);
    tcase_add_test(t, no_double_rounding);
    tcase_add_test(t, other_dtypes);
    suite_add_tcase(s, t);
    return s;
}
