/* Conversions and f32 operations of the emulator, against the codec and the host's. */
#include "tests/shared/cuda/emulator.h"
#include "tests/shared/suite.h"

#include "ir/num/fp8.h"

#include <math.h>
#include <stdlib.h>

static emu e;

static void setup(void)
{
    emu_open(&e);
}

static void teardown(void)
{
    emu_close(&e);
}

static const char convert_text[] =
    "#include \"fp8c.cuh\"\n"
    "struct convert_params { const float *x; f8_u32 *out; f8_i64 n; };\n"
    "F8_KERNEL(convert, 128, 1)\n"
    "{\n"
    "    for (f8_i64 i = f8_block() * 128 + f8_thread(); i < p.n; i += f8_blocks() * 128) {\n"
    "        const float x = p.x[i], y = p.x[(i + 1) % p.n];\n"
    "        f8_u32 *o = p.out + i * 12;\n"
    "        o[0] = f8_e4m3x2_sat(x, y);\n"
    "        o[1] = f8_e5m2x2_sat(x, y);\n"
    "        o[2] = f8_bf16x2(x, y);\n"
    "        o[3] = f8_f16x2(x, y);\n"
    "        o[4] = f8_bits(f8_from_f16((f8_u32)i & 0xffffu));\n"
    "        o[5] = f8_bits(f8_from_bf16((f8_u32)i & 0xffffu));\n"
    "        o[6] = f8_bits(f8_maximum(x, y));\n"
    "        o[7] = f8_bits(f8_minimum(x, y));\n"
    "        o[8] = (f8_u32)f8_to_i32(x);\n"
    "        o[9] = f8_bits(f8_fma(x, y, x));\n"
    "        o[10] = f8_bits(x * y + x);\n"
    "        o[11] = f8_bits(f8_rint(x)) ^ f8_bits(f8_floor(y)) ^ f8_bits(f8_div(x, y));\n"
    "    }\n"
    "}\n";

static uint32_t nan_class(uint32_t u)
{
    return (u & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : u;
}

static uint32_t half_class(uint32_t u, uint32_t inf)
{
    return (u & 0x7fffu) > inf ? 0x7fffu : u;
}

static float maximum(float x, float y)
{
    if (isnan(x) || isnan(y))
        return NAN;
    return x == y ? (signbit(x) ? y : x) : fmaxf(x, y);
}

static float minimum(float x, float y)
{
    if (isnan(x) || isnan(y))
        return NAN;
    return x == y ? (signbit(x) ? x : y) : fminf(x, y);
}

static int32_t to_i32(float x)
{
    if (isnan(x))
        return 0;
    return x >= 0x1p31f ? INT32_MAX : x < -0x1p31f ? INT32_MIN : (int32_t)x;
}

/* NaN of e4m3 and e5m2 may carry a sign. */
static uint32_t fp8_class(uint32_t u)
{
    return (u & 0x7fu) == 0x7fu ? 0x7fu : u;
}

/* The same at every level of optimization: _i. */
START_TEST(conversions)
{
    enum { N = 1 << 17 };
    setenv("FP8C_EMULATOR_OPTIMIZE", (const char *const[]){"0", "1", "2"}[_i], 1);
    float *x = malloc(N * sizeof *x);
    uint32_t *out = malloc((size_t)N * 12 * 4), state = 99;
    for (uint32_t i = 0; i < N; i++) {
        /* Any bits; and near the formats' own ranges. */
        state = state * 1664525u + 1013904223u;
        x[i] =
            f8_from_bits(i % 2 ? state : (state & 0x807fffffu) | (100u + (state >> 8) % 50u) << 23);
        if (i % 8 == 0) /* ties */
            x[i] = f8_from_bits(f8_bits(x[i]) & 0xfff80000u);
    }
    struct {
        CUdeviceptr x, out;
        int64_t n;
    } p = {emu_upload(&e, x, N * sizeof *x), emu_alloc(&e, (size_t)N * 12 * 4), N};
    ck_assert_int_eq(emu_run(&e, convert_text, "convert", 4, 128, 0, &p), 0);
    emu_download(&e, out, p.out, (size_t)N * 12 * 4);
    for (uint32_t i = 0; i < N; i++) {
        const float a = x[i], b = x[(i + 1) % N];
        const uint32_t *o = out + (size_t)i * 12;
        const uint32_t got[14] = {fp8_class(o[0] & 0xff),
                                  fp8_class(o[0] >> 8),
                                  fp8_class(o[1] & 0xff),
                                  fp8_class(o[1] >> 8),
                                  half_class(o[2] & 0xffff, 0x7f80),
                                  half_class(o[2] >> 16, 0x7f80),
                                  half_class(o[3] & 0xffff, 0x7c00),
                                  half_class(o[3] >> 16, 0x7c00),
                                  nan_class(o[4]),
                                  nan_class(o[5]),
                                  nan_class(o[6]),
                                  nan_class(o[7]),
                                  o[8],
                                  nan_class(o[9])};
        const uint32_t want[14] = {fp8_class(f8_f32_to_e4m3(a, true)),
                                   fp8_class(f8_f32_to_e4m3(b, true)),
                                   fp8_class(f8_f32_to_e5m2(a, true)),
                                   fp8_class(f8_f32_to_e5m2(b, true)),
                                   half_class(f8_f32_to_bf16(a), 0x7f80),
                                   half_class(f8_f32_to_bf16(b), 0x7f80),
                                   half_class(f8_f32_to_f16(a), 0x7c00),
                                   half_class(f8_f32_to_f16(b), 0x7c00),
                                   nan_class(f8_bits(f8_f16_to_f32((uint16_t)i))),
                                   nan_class(f8_bits(f8_bf16_to_f32((uint16_t)i))),
                                   nan_class(f8_bits(maximum(a, b))),
                                   nan_class(f8_bits(minimum(a, b))),
                                   (uint32_t)to_i32(a),
                                   nan_class(f8_bits(fmaf(a, b, a)))};
        for (int j = 0; j < 14; j++)
            if (got[j] != want[j]) /* ck_assert writes a line for each that holds, too */
                ck_abort_msg("%d of (%a, %a): %x, not %x", j, a, b, got[j], want[j]);
        const float product = a * b;
        if (nan_class(o[10]) != nan_class(f8_bits(product + a)))
            ck_abort_msg("%a * %a + %a: %x", a, b, a, o[10]);
        const float parts[3] = {rintf(a), floorf(b), a / b};
        if (!isnan(parts[0]) && !isnan(parts[1]) && !isnan(parts[2]) &&
            o[11] != (f8_bits(parts[0]) ^ f8_bits(parts[1]) ^ f8_bits(parts[2])))
            ck_abort_msg("rint %a, floor %a or division", a, b);
    }
    free(x);
    free(out);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("emulator_arithmetic");
    TCase *tc = tcase_create("arithmetic");
    suite_add_tcase(suite, tc);
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, conversions, 0, 3);
    return suite;
}
