/* The codec against CUDA's own conversions on the host (cuda_fp8.h), where that header is
 * installed: code for code over the inputs of shared/num/codec_inputs.h, and every code decoded.
 * Both follow the same rules:
 *
 *                     ours                       the header's
 *   E4M3, E5M2        to nearest, ties to even   __nv_cvt_float_to_fp8
 *   E8M0              upward                     __nv_cvt_float_to_e8m0, cudaRoundPosInf
 *   saturating, not                              __NV_SATFINITE, __NV_NOSAT
 *   a NaN             7f, 7f, ff: no sign        the same from f32 (from double it keeps the sign)
 *   a NaN decoded     by class                   E4M3 and E5M2 7fff as f16, E8M0 7fff as bf16
 */
#include "tests/shared/num/codec_run.h"
#include "tests/shared/suite.h"

#include <math.h>
#include <stdio.h>

#if __has_include(<cuda_fp8.h>)
#include <cuda_fp8.h>

#include "ir/num/fp8.h"

static void header(const codec_way *way, const uint32_t *in, uint8_t *code)
{
    const __nv_saturation_t saturate = way->saturate ? __NV_SATFINITE : __NV_NOSAT;
    const __nv_fp8_interpretation_t format = way->format == F8_E4M3 ? __NV_E4M3 : __NV_E5M2;
    if (way->format == F8_E8M0)
        for (size_t i = 0; i < CODEC_CHUNK; i++)
            code[i] = __nv_cvt_float_to_e8m0(f8_from_bits(in[i]), saturate, cudaRoundPosInf);
    else
        for (size_t i = 0; i < CODEC_CHUNK; i++)
            code[i] = __nv_cvt_float_to_fp8(f8_from_bits(in[i]), saturate, format);
}

START_TEST(encode)
{
    codec_compare("codec against cuda_fp8.h", &codec_ways[_i], codec_of_ir, header);
}
END_TEST

static float decoded(f8_dtype format, uint8_t code)
{
    if (format == F8_E8M0)
        return f8_bf16_to_f32(__nv_cvt_e8m0_to_bf16raw(code).x);
    return f8_f16_to_f32(
        __nv_cvt_fp8_to_halfraw(code, format == F8_E4M3 ? __NV_E4M3 : __NV_E5M2).x);
}

START_TEST(decode)
{
    static const f8_dtype formats[] = {F8_E4M3, F8_E5M2, F8_E8M0};
    for (uint32_t code = 0; code < 256; code++) {
        const float got = f8_decode(formats[_i], code), want = decoded(formats[_i], (uint8_t)code);
        ck_assert_msg(f8_bits(got) == f8_bits(want) || (isnan(got) && isnan(want)),
                      "%s %02x: %a, not %a", f8_dtype_name(formats[_i]), code, got, want);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("codecs against cuda_fp8.h");
    TCase *t = tcase_create("codecs");
    tcase_add_loop_test(t, encode, 0, CODEC_WAYS);
    tcase_add_loop_test(t, decode, 0, 3);
    return codec_suite(s, t);
}

#else

Suite *f8_suite(void)
{
    test_skip("the codec against CUDA's own", "there is no cuda_fp8.h (CUDA_INCLUDE; PyPI: nvidia-cuda-runtime)");
    return NULL;
}

#endif
