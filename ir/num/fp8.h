/* Number formats: conversions between f32 and the narrow types, one value at a time.
 *
 * These functions define every conversion in fp8c: the scalar functions (ir/num/scalar.h) and all
 * generated code must give the same bits (of a NaN: the same class). Encoding rounds once, to
 * nearest, ties to even (E8M0: upward). Decoding is exact.
 *
 *            bias   largest finite     smallest normal / subnormal   Inf        NaN
 *   bf16     127    3.39e38   0x7f7f   2^-126 / 2^-133               0x7f80     0x7f81..0x7fff
 *   f16       15    65504     0x7bff   2^-14  / 2^-24                0x7c00     0x7c01..0x7fff
 *   E4M3FN     7    448       0x7e     2^-6   / 2^-9                 none       0x7f
 *   E5M2      15    57344     0x7b     2^-14  / 2^-16                0x7c       0x7d..0x7f
 *   E8M0     127    2^127     0xfe     2^-127 / none, unsigned       none       0xff
 *
 * `saturate` is CUDA's SATFINITE: what overflows, Inf included, becomes the largest finite value of
 * its sign. Without it, what overflows becomes Inf, or NaN of its sign where the format has no Inf.
 * NaN always gives NaN: E4M3 and E5M2 0x7f, E8M0 0xff, f16 0x7e00 (the sign is dropped), bf16 the
 * input's upper half made quiet.
 *
 * Zeros keep their sign, and so does what rounds to zero. E8M0 has neither sign nor zero: both
 * zeros give 0x00, which is 2^-127. A subnormal f32 is a value like any other; nothing is flushed.
 * E4M3, E5M2 and f16 round it to the zero of its sign, bf16 to a multiple of 2^-133; E8M0 gives
 * 0x00 up to 2^-127 and 0x01 above. Decoding keeps the sign of Inf and zero, and a NaN gives a
 * NaN. */
#ifndef F8_FP8_H
#define F8_FP8_H

#include "ir/base/type.h"

uint8_t f8_f32_to_e4m3(float x, bool saturate);
uint8_t f8_f32_to_e5m2(float x, bool saturate);
/* The smallest power of two >= |x|. The sign is ignored, and 0 gives 0x00, which is 2^-127. */
uint8_t f8_f32_to_e8m0(float x, bool saturate);
uint16_t f8_f32_to_f16(float x);
uint16_t f8_f32_to_bf16(float x);

float f8_e4m3_to_f32(uint8_t code);
float f8_e5m2_to_f32(uint8_t code);
float f8_e8m0_to_f32(uint8_t code);
float f8_f16_to_f32(uint16_t code);
float f8_bf16_to_f32(uint16_t code);

/* x rounded to bf16 and back. */
float f8_round_bf16(float x);

/* The bits of x in the dtype d, in the low bits of the result; f32 gives the bits of x itself.
 * `saturate` applies to f16 and bf16 too. 0 if d is not a float dtype. */
uint32_t f8_encode(f8_dtype d, float x, bool saturate);
/* The exact value of an encoding; NaN if d is not a float dtype. */
float f8_decode(f8_dtype d, uint32_t bits);

/* The largest finite value of a float dtype (448 for E4M3); 0 for the others. */
float f8_dtype_max(f8_dtype d);

/* The bits of a float and back. */
static inline uint32_t f8_bits(float x)
{
    union {
        float f;
        uint32_t u;
    } v = {.f = x};
    return v.u;
}

static inline float f8_from_bits(uint32_t u)
{
    union {
        uint32_t u;
        float f;
    } v = {.u = u};
    return v.f;
}

#endif
