/* Scalar functions: they are well formed; each conversion has the bits of the codec of
 * ir/num/fp8.h; each function stays within the error that its table row states; the evaluator gives
 * the same bits with and without the machine's fused multiply-add. */
#include "ir/num/scalar.h"
#include "tests/shared/num/gelu.h"
#include "tests/shared/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 16 };

static bool is_nan_bits(uint32_t u)
{
    return (u & 0x7fffffff) > 0x7f800000;
}

static bool same_f32(uint32_t a, uint32_t b)
{
    return a == b || (is_nan_bits(a) && is_nan_bits(b));
}

START_TEST(well_formed)
{
    const f8_scalar_body *p = f8_scalar_function((f8_sfn)_i);
    uint8_t kind[F8_SCALAR_MAX_VALUES] = {p->arg_kind};
    ck_assert_int_eq(p->n_args, 1);
    ck_assert_int_le(p->n_args + p->n_instrs, F8_SCALAR_MAX_VALUES);
    bool used[F8_SCALAR_MAX_VALUES] = {false};
    for (int k = 0; k < p->n_instrs; k++) {
        const f8_sinstr *s = &p->instrs[k];
        const f8_sop_info *info = f8_scalar_op(s->op);
        for (int j = 0; j < 3; j++) {
            if (j >= info->n_args) {
                ck_assert_msg(s->arg[j] == 0, "%s: %d", p->name, k);
                continue;
            }
            ck_assert_msg(s->arg[j] < k + 1, "%s: instruction %d before its operand", p->name, k);
            ck_assert_msg(kind[s->arg[j]] == info->arg[j], "%s: kind at %d", p->name, k);
            used[s->arg[j]] = true;
        }
        kind[k + 1] = info->result;
    }
    ck_assert_int_eq(kind[p->result], p->result_kind);
    used[p->result] = true;
    for (int k = 0; k <= p->n_instrs; k++)
        ck_assert_msg(used[k], "%s: value %d is dead", p->name, k);
}
END_TEST

/* ---- conversions ----------------------------------------------------------------------------- */

/* 64 inputs for each upper half of an f32: exact, ties and their neighbours in every format. */
static uint32_t structured(uint32_t upper, uint32_t k)
{
    static const uint16_t edge[] = {0x0000, 0x0001, 0x0fff, 0x1000, 0x1001, 0x2000, 0x3000, 0x7000,
                                    0x7fff, 0x8000, 0x8001, 0x9000, 0xb000, 0xd000, 0xf000, 0xffff};
    uint32_t lower = k < 16 ? edge[k] : (upper * 40503u + k * 2654435761u) >> 16;
    return upper << 16 | (lower & 0xffff);
}

static uint32_t in[CHUNK], out[CHUNK], other[CHUNK];

static const f8_dtype narrow[] = {F8_BF16, F8_F16, F8_E4M3, F8_E5M2, F8_E8M0};
enum { N_NARROW = sizeof narrow / sizeof *narrow };

START_TEST(encoders_match)
{
    f8_dtype d = narrow[_i / 2];
    bool saturate = _i % 2;
    f8_sfn fn = f8_scalar_encode_fn(d, saturate);
    if (fn == F8_SFN_COUNT)
        return;
    for (uint32_t k = 0; k < 64; k++) { /* k = 0: every bf16 value */
        for (uint32_t u = 0; u < CHUNK; u++)
            in[u] = structured(u, k);
        f8_scalar_eval(fn, in, out, CHUNK);
        for (uint32_t u = 0; u < CHUNK; u++) {
            uint32_t want = f8_encode(d, f8_from_bits(in[u]), saturate);
            if (out[u] != want)
                ck_abort_msg("%s of %08x: %x, want %x", f8_scalar_function(fn)->name, in[u], out[u],
                             want);
        }
    }
}
END_TEST

START_TEST(decoders_match)
{
    f8_dtype d = narrow[_i];
    f8_sfn fn = f8_scalar_decode_fn(d);
    uint32_t n = f8_dtype_size(d) == 1 ? 0x100 : 0x10000;
    for (uint32_t u = 0; u < n; u++)
        in[u] = u;
    f8_scalar_eval(fn, in, out, n);
    for (uint32_t u = 0; u < n; u++)
        ck_assert_msg(same_f32(out[u], f8_bits(f8_decode(d, u))), "%s of %x: %08x",
                      f8_scalar_function(fn)->name, u, out[u]);
    if (n == 0x100) { /* what stands above the code does not count */
        for (uint32_t u = 0; u < n; u++)
            in[u] = u | 0xabcdef00;
        f8_scalar_eval(fn, in, other, n);
        ck_assert(!memcmp(out, other, n * sizeof *out));
    }
}
END_TEST

START_TEST(round_bf16_matches)
{
    for (uint32_t k = 0; k < 64; k++) {
        for (uint32_t u = 0; u < CHUNK; u++)
            in[u] = structured(u, k);
        f8_scalar_eval(F8_FN_ROUND_BF16, in, out, CHUNK);
        for (uint32_t u = 0; u < CHUNK; u++)
            if (out[u] != f8_bits(f8_round_bf16(f8_from_bits(in[u]))))
                ck_abort_msg("%08x gives %08x", in[u], out[u]);
    }
}
END_TEST

/* x + y of two finite bf16, rounded once: to odd where a double does not hold the sum, which keeps
 * what the last rounding needs, then to bf16. */
static float rounded_once(float x, float y)
{
    double s = (double)x + y;
    const double t = s - x, rest = (x - (s - t)) + (y - t);
    uint64_t u;
    int exponent;
    memcpy(&u, &s, sizeof u);
    if (rest != 0 && u % 2 == 0)
        s = nextafter(s, rest > 0 ? INFINITY : -INFINITY);
    if (s == 0)
        return (float)s;
    frexp(s, &exponent);
    const double unit = ldexp(1, exponent < -125 ? -133 : exponent - 8);
    return (float)(rint(s / unit) * unit); /* at least 2^128: Inf */
}

/* Kernels add two bf16 with one rounding (codegen/cuda/rows_words.c), the others as f32, which is
 * then rounded: the same bits. Every bf16 is added to some of all and some of a like exponent. */
START_TEST(bf16_sums_round_once)
{
    const uint32_t begin = 20261128;
    uint32_t seed = begin, different = 0;
    for (uint32_t a = 0; a < 1 << 16; a++)
        for (uint32_t n = 0; n < 256; n++) {
            seed = seed * 1664525u + 1013904223u;
            const uint16_t b = (uint16_t)(n % 2 ? seed >> 16 : a + (int)(seed >> 20) - 2048);
            const float x = f8_bf16_to_f32((uint16_t)a), y = f8_bf16_to_f32(b);
            if (!isfinite(x) || !isfinite(y))
                continue;
            float want = rounded_once(x, y), got = f8_round_bf16(x + y);
            different += memcmp(&want, &got, sizeof got) != 0;
        }
    ck_assert_msg(different == 0, "seed %u: %u sums differ", begin, different);
}
END_TEST

/* ---- functions ------------------------------------------------------------------------------- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double gelu_erf_slope(double x)
{
    return erfc(-x / sqrt(2)) / 2 + x * exp(-x * x / 2) / sqrt(2 * M_PI);
}

static double gelu_tanh_slope(double x)
{
    if (fabs(x) > 30) /* 0 Inf below */
        return x > 0;
    const double u = test_gelu_inner(x), slope = sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
    return (1 + tanh(u)) / 2 + x / 2 * slope / (cosh(u) * cosh(u));
}

static double silu(double x)
{
    return x * sigmoid(x);
}

static double silu_slope(double x)
{
    return sigmoid(x) + (fabs(x) > 700 ? 0 : x * sigmoid(x) * sigmoid(-x));
}

/* Where a function is measured: |x| <= limit, x >= least. `absolute`: its error is in units of
 * 2^-24 of the larger of 1 and the result. */
static const struct {
    f8_sfn fn;
    double (*exact)(double);
    float limit, least;
    bool absolute;
} functions[] = {
    {F8_FN_EXP, exp, INFINITY, -INFINITY, false},
    {F8_FN_LOG, log, INFINITY, -INFINITY, false},
    {F8_FN_TANH, tanh, INFINITY, -INFINITY, false},
    {F8_FN_ERF, erf, INFINITY, -INFINITY, false},
    {F8_FN_SIN, sin, 0x1p21f, -INFINITY, false},
    {F8_FN_COS, cos, 0x1p21f, -INFINITY, false},
    {F8_FN_SIGMOID, sigmoid, INFINITY, -88, false},
    {F8_FN_GELU_ERF, test_gelu_erf, INFINITY, -INFINITY, true},
    {F8_FN_GELU_TANH, test_gelu_tanh, INFINITY, -INFINITY, true},
    {F8_FN_GELU_ERF_SLOPE, gelu_erf_slope, 0x1p64f, -INFINITY, true},
    {F8_FN_GELU_TANH_SLOPE, gelu_tanh_slope, 0x1p64f, -INFINITY, true},
    {F8_FN_SIGMOID_BF16, sigmoid, INFINITY, -87, false},
    {F8_FN_SILU_BF16, silu, INFINITY, -INFINITY, true},
    {F8_FN_SILU_BF16_SLOPE, silu_slope, 0x1p64f, -INFINITY, true},
    {F8_FN_TANH_BF16, tanh, INFINITY, -INFINITY, false},
};
enum { N_FUNCTIONS = sizeof functions / sizeof *functions };

/* |got - exact| in units in the last place of the exact result; 0 when both are the same special
 * value, Inf when only one is. */
static double ulp_error(float got, double exact, bool absolute)
{
    float rounded = (float)exact;
    if (isnan(exact) || isnan(got))
        return isnan(exact) && isnan(got) ? 0 : INFINITY;
    if (isinf(rounded) || isinf(got))
        return rounded == got || nextafterf(rounded, 0) == got || nextafterf(got, 0) == rounded
                   ? 0 : INFINITY;
    if (absolute)
        return fabs((double)got - exact) * 0x1p24 / fmax(1, fabs(exact));
    if (exact == 0)
        return got == 0 && !signbit(got) == !signbit(exact) ? 0 : INFINITY;
    int e = ilogb(exact) < -126 ? -126 : ilogb(exact);
    return fabs((double)got - exact) / ldexp(1, e - 23);
}

static double measure(int f, const uint32_t *bits, size_t n, uint32_t *where)
{
    double worst = 0;
    f8_scalar_eval(functions[f].fn, bits, out, n);
    for (size_t i = 0; i < n; i++) {
        float x = f8_from_bits(bits[i]);
        if (fabsf(x) > functions[f].limit || x < functions[f].least)
            continue;
        double e = ulp_error(f8_from_bits(out[i]), functions[f].exact(x), functions[f].absolute);
        if (e > worst) {
            worst = e;
            *where = bits[i];
        }
    }
    return worst;
}

/* Every 1021st float: all exponents, both signs, NaNs, about 8000 in each binade. */
START_TEST(error_everywhere)
{
    const f8_scalar_body *p = f8_scalar_function(functions[_i].fn);
    uint32_t where = 0;
    for (uint64_t u = 0; u < 1ull << 32;) {
        size_t n = 0;
        for (; n < CHUNK && u < 1ull << 32; u += 1021)
            in[n++] = (uint32_t)u;
        double e = measure(_i, in, n, &where);
        ck_assert_msg(e <= p->max_ulp, "%s(%a): %g ulp", p->name, f8_from_bits(where), e);
    }
}
END_TEST

/* Every float next to the places where the functions switch pieces, saturate, overflow or reduce to
 * something tiny. */
START_TEST(error_at_edges)
{
    static const float edge[] = {
        0,     0x1p-149f,  0x1p-126f,       0x1p-24f,   0.3465736f, 0.70710677f, 1,
        1.25f, 1.4142135f, 3.95f,           4.46875f,   4.71875f,   5.875f,      9.01f,
        10,    87,         88.376f,         88.72284f,  87.33655f,  103.27893f,  103.97208f,
        104,   1.5707964f, 3.1415927f,      6.2831855f, 355,        710,         51471.855f,
        1e5f,  0x1p21f,    0x1.fffffep127f, INFINITY};
    const f8_scalar_body *p = f8_scalar_function(functions[_i].fn);
    for (size_t k = 0; k < sizeof edge / sizeof *edge; k++) {
        uint32_t center = f8_bits(edge[k]), where = 0;
        for (uint32_t sign = 0; sign < 2; sign++) {
            for (uint32_t i = 0; i < 0x2000; i++) {
                int64_t u = (int64_t)center + i - 0x1000;
                in[i] = (u < 0 ? 0 : (uint32_t)u) | sign << 31;
            }
            double e = measure(_i, in, 0x2000, &where);
            ck_assert_msg(e <= p->max_ulp, "%s(%a): %g ulp", p->name, f8_from_bits(where), e);
        }
    }
}
END_TEST

/* All bf16 inputs: what a linear that precedes an activation gives. */
START_TEST(error_of_bf16)
{
    const f8_scalar_body *p = f8_scalar_function(functions[_i].fn);
    uint32_t where = 0;
    for (uint32_t u = 0; u < CHUNK; u++)
        in[u] = u << 16;
    const double e = measure(_i, in, CHUNK, &where);
    ck_assert_msg(e <= p->max_ulp && (!functions[_i].absolute || e >= 0.9 * p->max_ulp),
                  "%s(%a): %g", p->name, f8_from_bits(where), e);
}
END_TEST

static void expect(f8_sfn fn, float x, float want)
{
    float got = f8_scalar_f32(fn, x);
    ck_assert_msg(same_f32(f8_bits(got), f8_bits(want)), "%s(%a) = %a, want %a",
                  f8_scalar_function(fn)->name, x, got, want);
}

START_TEST(special_values)
{
    const float inf = INFINITY;
    for (int f = 0; f < N_FUNCTIONS; f++) {
        expect(functions[f].fn, NAN, NAN);
        expect(functions[f].fn, -NAN, NAN);
        expect(functions[f].fn, f8_from_bits(0x7f800001), NAN);
    }
    for (int k = 0; k < 2; k++) { /* far off GELU is x or 0, however large x is */
        const f8_sfn value = k ? F8_FN_GELU_TANH : F8_FN_GELU_ERF,
                     slope = k ? F8_FN_GELU_TANH_SLOPE : F8_FN_GELU_ERF_SLOPE;
        expect(value, 0, 0), expect(slope, 0, 0.5f);
        expect(value, 4.75f, 4.75f), expect(value, -4.75f, 0);
        expect(value, 1e30f, 1e30f), expect(value, -1e30f, 0);
        expect(value, inf, inf), expect(value, -inf, NAN);
        expect(slope, 4.75f, 1), expect(slope, -4.75f, 0);
        expect(slope, inf, 1), expect(slope, -inf, 0);
    }
    expect(F8_FN_SILU_BF16, 0, 0), expect(F8_FN_SILU_BF16_SLOPE, 0, 0.5f);
    for (float x = 100; x < inf; x *= 1e9f) {
        expect(F8_FN_SILU_BF16, x, x), expect(F8_FN_SILU_BF16, -x, 0);
        expect(F8_FN_SILU_BF16_SLOPE, x, 1), expect(F8_FN_SILU_BF16_SLOPE, -x, 0);
        expect(F8_FN_SIGMOID_BF16, x, 1);
    }
    expect(F8_FN_SILU_BF16, inf, inf), expect(F8_FN_SILU_BF16, -inf, NAN);
    expect(F8_FN_SILU_BF16_SLOPE, inf, 1), expect(F8_FN_SILU_BF16_SLOPE, -inf, 0);
    expect(F8_FN_SIGMOID_BF16, 0, 0.5f), expect(F8_FN_SIGMOID_BF16, inf, 1);
    /* the least result is that of -87: positive, so that its logarithm is finite */
    expect(F8_FN_SIGMOID_BF16, -inf, f8_scalar_f32(F8_FN_SIGMOID_BF16, -87));
    ck_assert(f8_scalar_f32(F8_FN_SIGMOID_BF16, -inf) >= 0x1p-126f);
    expect(F8_FN_EXP, 0, 1), expect(F8_FN_EXP, -0.0f, 1);
    expect(F8_FN_EXP, inf, inf), expect(F8_FN_EXP, -inf, 0);
    expect(F8_FN_EXP, 1e30f, inf), expect(F8_FN_EXP, -1e30f, 0);
    expect(F8_FN_EXP, -103.5f, 0x1p-149f);
    expect(F8_FN_LOG, 1, 0), expect(F8_FN_LOG, inf, inf);
    expect(F8_FN_LOG, 0, -inf), expect(F8_FN_LOG, -0.0f, -inf);
    expect(F8_FN_LOG, -1, NAN), expect(F8_FN_LOG, -inf, NAN), expect(F8_FN_LOG, -0x1p-149f, NAN);
    for (int sign = -1; sign <= 1; sign += 2) {
        float s = (float)sign;
        expect(F8_FN_TANH, s * 0.0f, s * 0.0f), expect(F8_FN_TANH, s * inf, s);
        expect(F8_FN_TANH, s * 0x1p-149f, s * 0x1p-149f), expect(F8_FN_TANH, s * 20, s);
        expect(F8_FN_TANH_BF16, s * 0.0f, s * 0.0f);
        expect(F8_FN_TANH_BF16, s * 0x1p-149f, s * 0x1p-149f);
        expect(F8_FN_TANH_BF16, s * inf, f8_scalar_f32(F8_FN_TANH_BF16, s * 5.875f));
        expect(F8_FN_ERF, s * 0.0f, s * 0.0f), expect(F8_FN_ERF, s * inf, s);
        expect(F8_FN_ERF, s * 4, s), expect(F8_FN_ERF, s * 0x1p127f, s);
        expect(F8_FN_SIN, s * 0.0f, s * 0.0f), expect(F8_FN_COS, s * 0.0f, 1);
        expect(F8_FN_SIN, s * inf, NAN), expect(F8_FN_COS, s * inf, NAN);
        expect(F8_FN_SIN, s * 0x1.000002p21f, NAN), expect(F8_FN_COS, s * 1e30f, NAN);
    }
    expect(F8_FN_SIGMOID, 0, 0.5f), expect(F8_FN_SIGMOID, inf, 1), expect(F8_FN_SIGMOID, -inf, 0);
    expect(F8_FN_SIGMOID, -89, 0); /* flushed: stated in scalar.def */
}
END_TEST

/* Odd functions are odd bit for bit, and none leaves its range, or turns around by more than its
 * error, where it saturates. */
START_TEST(shape)
{
    static const f8_sfn odd[] = {F8_FN_TANH, F8_FN_ERF, F8_FN_SIN, F8_FN_TANH_BF16};
    for (size_t k = 0; k < sizeof odd / sizeof *odd; k++) {
        for (uint32_t u = 0; u < CHUNK; u++)
            in[u] = u << 15 | (u * 2654435761u >> 17);
        f8_scalar_eval(odd[k], in, out, CHUNK);
        for (uint32_t u = 0; u < CHUNK; u++)
            in[u] |= 0x80000000;
        f8_scalar_eval(odd[k], in, other, CHUNK);
        for (uint32_t u = 0; u < CHUNK; u++)
            ck_assert(same_f32(out[u] ^ 0x80000000, other[u]) ||
                      (is_nan_bits(out[u]) && is_nan_bits(other[u])));
    }
    static const struct {
        f8_sfn fn;
        float from, to;
    } range[] = {{F8_FN_TANH, 7, 11}, {F8_FN_ERF, 3, 4.5f}, {F8_FN_EXP, 88, 89}};
    for (size_t k = 0; k < sizeof range / sizeof *range; k++) {
        for (uint32_t u = 0; u < CHUNK; u++)
            in[u] = f8_bits(range[k].from + (range[k].to - range[k].from) * ((float)u / CHUNK));
        f8_scalar_eval(range[k].fn, in, out, CHUNK);
        for (uint32_t u = 1; u < CHUNK; u++) {
            float a = f8_from_bits(out[u - 1]), b = f8_from_bits(out[u]);
            float b2 = nextafterf(nextafterf(b, INFINITY), INFINITY);
            ck_assert_msg(a <= b2, "%a", f8_from_bits(in[u]));
            ck_assert(range[k].fn == F8_FN_EXP || b <= 1);
        }
    }
}
END_TEST

/* ---- the evaluator --------------------------------------------------------------------------- */

START_TEST(portable_is_the_same)
{
    const f8_scalar_body *p = f8_scalar_function((f8_sfn)_i);
    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t u = 0; u < CHUNK; u++)
            in[u] = structured(u, 20 + k);
        f8_scalar_eval((f8_sfn)_i, in, out, CHUNK);
        f8_scalar_eval_portable((f8_sfn)_i, in, other, CHUNK);
        for (uint32_t u = 0; u < CHUNK; u++)
            ck_assert_msg(p->result_kind == F8_KIND_F ? same_f32(out[u], other[u])
                                                      : out[u] == other[u],
                          "%s of %08x", p->name, in[u]);
    }
}
END_TEST

START_TEST(lengths_and_in_place)
{
    for (uint32_t u = 0; u < 200; u++)
        in[u] = f8_bits((float)u / 16 - 6);
    f8_scalar_eval(F8_FN_EXP, in, other, 200);
    for (size_t n = 0; n < 200; n++) {
        memcpy(out, in, 200 * sizeof *in);
        f8_scalar_eval(F8_FN_EXP, out, out, n);
        ck_assert(!memcmp(out, other, n * sizeof *out));
        ck_assert(!memcmp(out + n, in + n, (200 - n) * sizeof *out));
    }
}
END_TEST

static uint32_t op3(f8_sop op, uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t y;
    f8_scalar_op_eval(op, &a, &b, &c, &y, 1);
    return y;
}

static float opf(f8_sop op, float a, float b, float c)
{
    return f8_from_bits(op3(op, f8_bits(a), f8_bits(b), f8_bits(c)));
}

START_TEST(float_operations)
{
    const float inf = INFINITY, eps = 0x1p-23f;
    ck_assert(opf(F8_S_FMA, 1 + eps, 1 + eps, -(1 + 2 * eps)) == 0x1p-46f);
    ck_assert(opf(F8_S_FMA, 0x1p-100f, 0x1p-100f, 1) == 1);
    ck_assert(opf(F8_S_FRINT, 2.5f, 0, 0) == 2 && opf(F8_S_FRINT, -3.5f, 0, 0) == -4);
    ck_assert(signbit(opf(F8_S_FRINT, -0.25f, 0, 0)));
    ck_assert(opf(F8_S_FFLOOR, -0.25f, 0, 0) == -1);
    ck_assert(opf(F8_S_FSQRT, 2, 0, 0) == sqrtf(2) && isnan(opf(F8_S_FSQRT, -1, 0, 0)));
    ck_assert(opf(F8_S_FDIV, 0x1p-126f, 2, 0) == 0x1p-127f); /* subnormals stay */
    ck_assert_uint_eq(op3(F8_S_FNEG, 0, 0, 0), 0x80000000);
    ck_assert_uint_eq(op3(F8_S_FLT, f8_bits(1), f8_bits(2), 0), 1);
    ck_assert_uint_eq(op3(F8_S_FLE, f8_bits(NAN), f8_bits(2), 0), 0);
    ck_assert_uint_eq(op3(F8_S_FEQ, f8_bits(0.0f), f8_bits(-0.0f), 0), 1);
    ck_assert_uint_eq(op3(F8_S_ISNAN, f8_bits(NAN), 0, 0), 1);
    ck_assert_uint_eq(op3(F8_S_FMAX, f8_bits(-0.0f), f8_bits(0.0f), 0), 0);
    ck_assert_uint_eq(op3(F8_S_FMAX, f8_bits(0.0f), f8_bits(-0.0f), 0), 0);
    ck_assert_uint_eq(op3(F8_S_FMIN, f8_bits(0.0f), f8_bits(-0.0f), 0), 0x80000000);
    ck_assert(f8_maximum(-inf, 1) == 1 && f8_maximum(1, -inf) == 1 && f8_minimum(inf, 1) == 1);
    ck_assert(isnan(f8_maximum(NAN, inf)) && isnan(f8_maximum(inf, NAN)));
    ck_assert(isnan(f8_minimum(NAN, -inf)) && isnan(f8_minimum(-inf, NAN)));
    ck_assert(isnan(opf(F8_S_FMAX, 1, NAN, 0)) && isnan(opf(F8_S_FMIN, NAN, 1, 0)));
    uint32_t amax = f8_amax_bits(f8_amax_bits(0, -3), 2);
    ck_assert(f8_from_bits(amax) == 3);
    ck_assert(is_nan_bits(f8_amax_bits(f8_amax_bits(amax, -NAN), inf)));
}
END_TEST

START_TEST(integer_operations)
{
    ck_assert_uint_eq(op3(F8_S_IADD, 0xffffffff, 2, 0), 1);
    ck_assert_uint_eq(op3(F8_S_IMUL, 0x10001, 0x10001, 0), 0x20001);
    ck_assert_uint_eq(op3(F8_S_ISAR, 0x80000000, 4, 0), 0xf8000000);
    ck_assert_uint_eq(op3(F8_S_ISHR, 0x80000000, 4, 0), 0x08000000);
    ck_assert_uint_eq(op3(F8_S_ISMIN, 0xffffffff, 1, 0), 0xffffffff);
    ck_assert_uint_eq(op3(F8_S_ISMAX, 0xffffffff, 1, 0), 1);
    ck_assert_uint_eq(op3(F8_S_IUMIN, 0xffffffff, 1, 0), 1);
    ck_assert_uint_eq(op3(F8_S_IUMAX, 0xffffffff, 1, 0), 0xffffffff);
    ck_assert_uint_eq(op3(F8_S_ILT, 0xffffffff, 1, 0), 1);
    ck_assert_uint_eq(op3(F8_S_IULT, 0xffffffff, 1, 0), 0);
    ck_assert_uint_eq(op3(F8_S_SEL_I, 1, 7, 9), 7);
    ck_assert_uint_eq(op3(F8_S_SEL_F, 0, 7, 9), 9);
    ck_assert_uint_eq(op3(F8_S_BNOT, 1, 0, 0), 0);
    ck_assert(f8_from_bits(op3(F8_S_I2F, 0xffffffff, 0, 0)) == -1);
    ck_assert_int_eq(f8_f32_to_i32(-1.9f), -1);
    ck_assert_int_eq(f8_f32_to_i32(NAN), 0);
    ck_assert_int_eq(f8_f32_to_i32(0x1p31f), INT32_MAX);
    ck_assert_int_eq(f8_f32_to_i32(-INFINITY), INT32_MIN);
    ck_assert_uint_eq(op3(F8_S_F2I, f8_bits(1e20f), 0, 0), INT32_MAX);
    ck_assert_uint_eq(op3(F8_S_F2I, f8_bits(-0x1p31f), 0, 0), 0x80000000);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("scalar");
    TCase *t = tcase_create("programs");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, well_formed, 0, F8_SFN_COUNT);
    tcase_add_loop_test(t, encoders_match, 0, 2 * N_NARROW);
    tcase_add_loop_test(t, decoders_match, 0, N_NARROW);
    tcase_add_test(t, round_bf16_matches);
    tcase_add_test(t, bf16_sums_round_once);
    tcase_add_loop_test(t, error_everywhere, 0, N_FUNCTIONS);
    tcase_add_loop_test(t, error_of_bf16, 0, N_FUNCTIONS);
    tcase_add_loop_test(t, error_at_edges, 0, N_FUNCTIONS);
    tcase_add_test(t, special_values);
    tcase_add_test(t, shape);
    tcase_add_loop_test(t, portable_is_the_same, 0, F8_SFN_COUNT);
    tcase_add_test(t, lengths_and_in_place);
    tcase_add_test(t, float_operations);
    tcase_add_test(t, integer_operations);
    suite_add_tcase(s, t);
    return s;
}
