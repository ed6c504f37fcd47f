/* Conversions between f32 and the narrow formats, written to be obviously right, not fast. The
 * formats with a sign share one encoder and one decoder; a small struct says how they differ. */
#include "ir/num/fp8.h"

#include <math.h>

/* A binary format with a sign, `exponent` and `mantissa` bits. Codes below are without the sign. */
typedef struct format {
    int exponent, mantissa;
    uint32_t max; /* the largest finite code */
    uint32_t inf; /* what overflow gives without saturation: Inf, or NaN where there is none */
} format;

static const format E4M3 = {4, 3, 0x7e, 0x7f};
static const format E5M2 = {5, 2, 0x7b, 0x7c};
static const format F16 = {5, 10, 0x7bff, 0x7c00};
static const format BF16 = {8, 7, 0x7f7f, 0x7f80};

static int bias(const format *f)
{
    return (1 << (f->exponent - 1)) - 1;
}

/* |x| as a code, for x that is not NaN. Within one binade codes are evenly spaced. A mantissa that
 * rounds up to 2^mantissa carries into the exponent, which is the next code. */
static uint32_t encode_magnitude(const format *f, float x, bool saturate)
{
    if (isinf(x))
        return saturate ? f->max : f->inf;
    if (x == 0)
        return 0;
    double a = fabs((double)x);
    int e = ilogb(a);
    if (e < 1 - bias(f))
        e = 1 - bias(f); /* subnormals have the spacing of the first binade */
    /* Exact: a 24-bit mantissa times a power of two, far inside double's range. rint ties to even
     * in the default rounding mode, and an even quotient is an even code. */
    double steps = rint(ldexp(a, f->mantissa - e));
    uint32_t code = (uint32_t)steps + ((uint32_t)(e + bias(f) - 1) << f->mantissa);
    if (code > f->max)
        return saturate ? f->max : f->inf;
    return code;
}

static uint32_t encode(const format *f, float x, bool saturate)
{
    uint32_t sign = signbit(x) ? 1u << (f->exponent + f->mantissa) : 0;
    return encode_magnitude(f, x, saturate) | sign;
}

/* `inf` and above are the non-finite codes: the first is Inf unless it is all ones (E4M3FN). */
static float decode(const format *f, uint32_t code)
{
    int width = f->exponent + f->mantissa;
    uint32_t sign = code >> width & 1, magnitude = code & ((1u << width) - 1);
    if (magnitude > f->max) {
        bool is_inf = magnitude == f->inf && f->inf != (1u << width) - 1;
        return f8_from_bits((is_inf ? 0x7f800000u : 0x7fc00000u) | sign << 31);
    }
    int e = (int)(magnitude >> f->mantissa), m = (int)(magnitude & ((1u << f->mantissa) - 1));
    if (e == 0)
        e = 1;
    else
        m |= 1 << f->mantissa;
    float value = (float)ldexp(m, e - bias(f) - f->mantissa); /* exact: every value is an f32 */
    return sign ? -value : value;
}

uint8_t f8_f32_to_e4m3(float x, bool saturate)
{
    return isnan(x) ? 0x7f : (uint8_t)encode(&E4M3, x, saturate);
}

uint8_t f8_f32_to_e5m2(float x, bool saturate)
{
    return isnan(x) ? 0x7f : (uint8_t)encode(&E5M2, x, saturate);
}

uint8_t f8_f32_to_e8m0(float x, bool saturate)
{
    if (isnan(x))
        return 0xff;
    double a = fabs((double)x);
    if (a <= 0x1p-127)
        return 0x00;
    if (a > 0x1p127)
        return saturate ? 0xfe : 0xff;
    int e = ilogb(a); /* 2^e <= a < 2^(e + 1) */
    return (uint8_t)(e + 127 + (a > ldexp(1, e)));
}

static uint16_t encode_f16(float x, bool saturate)
{
    return isnan(x) ? 0x7e00 : (uint16_t)encode(&F16, x, saturate);
}

static uint16_t encode_bf16(float x, bool saturate)
{
    if (isnan(x))
        return (uint16_t)(f8_bits(x) >> 16 | 0x40);
    return (uint16_t)encode(&BF16, x, saturate);
}

uint16_t f8_f32_to_f16(float x)
{
    return encode_f16(x, false);
}

uint16_t f8_f32_to_bf16(float x)
{
    return encode_bf16(x, false);
}

float f8_e4m3_to_f32(uint8_t code)
{
    return decode(&E4M3, code);
}

float f8_e5m2_to_f32(uint8_t code)
{
    return decode(&E5M2, code);
}

float f8_e8m0_to_f32(uint8_t code)
{
    return code == 0xff ? f8_from_bits(0x7fc00000) : (float)ldexp(1, code - 127);
}

float f8_f16_to_f32(uint16_t code)
{
    return decode(&F16, code);
}

float f8_bf16_to_f32(uint16_t code)
{
    return f8_from_bits((uint32_t)code << 16); /* bf16 is the upper half of f32, NaNs included */
}

float f8_round_bf16(float x)
{
    return f8_bf16_to_f32(f8_f32_to_bf16(x));
}

uint32_t f8_encode(f8_dtype d, float x, bool saturate)
{
    switch (d) {
    case F8_F32: return f8_bits(x);
    case F8_BF16: return encode_bf16(x, saturate);
    case F8_F16: return encode_f16(x, saturate);
    case F8_E4M3: return f8_f32_to_e4m3(x, saturate);
    case F8_E5M2: return f8_f32_to_e5m2(x, saturate);
    case F8_E8M0: return f8_f32_to_e8m0(x, saturate);
    default: return 0;
    }
}

float f8_decode(f8_dtype d, uint32_t bits)
{
    switch (d) {
    case F8_F32: return f8_from_bits(bits);
    case F8_BF16: return f8_bf16_to_f32((uint16_t)bits);
    case F8_F16: return f8_f16_to_f32((uint16_t)bits);
    case F8_E4M3: return f8_e4m3_to_f32((uint8_t)bits);
    case F8_E5M2: return f8_e5m2_to_f32((uint8_t)bits);
    case F8_E8M0: return f8_e8m0_to_f32((uint8_t)bits);
    default: return f8_from_bits(0x7fc00000);
    }
}

float f8_dtype_max(f8_dtype d)
{
    switch (d) {
    case F8_F32: return 0x1.fffffep127f;
    case F8_BF16: return 0x1.fep127f;
    case F8_F16: return 65504;
    case F8_E4M3: return 448;
    case F8_E5M2: return 57344;
    case F8_E8M0: return 0x1p127f;
    default: return 0;
    }
}
