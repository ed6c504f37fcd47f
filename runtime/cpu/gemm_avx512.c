/* Decoding and storing with AVX-512: see gemm_simd.h. Tails are masked, never read or written. */
#include "runtime/cpu/gemm_simd.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

AVX512 static inline __mmask16 first(int64_t n)
{
    return n >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
}

/* ---- one vector of each source ---- */

AVX512 static inline __m512 load_f32(const void *src, int64_t i, __mmask16 m)
{
    return _mm512_maskz_loadu_ps(m, (const float *)src + i);
}

/* Add just under half of the last kept bit, plus that bit: ties go to even. NaNs are kept, made
 * quiet, since the carry could otherwise turn one into Inf. */
AVX512 static inline __m512 load_round(const void *src, int64_t i, __mmask16 m)
{
    __m512i x = _mm512_maskz_loadu_epi32(m, (const float *)src + i);
    __mmask16 nan =
        _mm512_cmp_ps_mask(_mm512_castsi512_ps(x), _mm512_castsi512_ps(x), _CMP_UNORD_Q);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
    __m512i y = _mm512_add_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(0x7fff)), odd);
    y = _mm512_mask_or_epi32(y, nan, x, _mm512_set1_epi32(0x400000));
    return _mm512_castsi512_ps(_mm512_and_si512(y, _mm512_set1_epi32((int)0xffff0000u)));
}

AVX512 static inline __m512 load_bf16(const void *src, int64_t i, __mmask16 m)
{
    __m256i x = _mm256_maskz_loadu_epi16(m, (const uint16_t *)src + i);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* E4M3's exponent and mantissa, moved to those of an f16, stand for the value times 2^-8,
 * subnormals included; only NaN (all ones) has to be put in. Sign extension brings the sign to bit
 * 15 and, in the way, to bit 14. */
AVX512 static inline __m512 load_e4m3(const void *src, int64_t i, __mmask16 m)
{
    __m128i codes = _mm_maskz_loadu_epi8(m, (const uint8_t *)src + i);
    __m256i x = _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7);
    __m256i ones = _mm256_set1_epi16(0x3f80);
    __mmask16 nan = _mm256_cmpeq_epi16_mask(_mm256_and_si256(x, ones), ones);
    x = _mm256_and_si256(x, _mm256_set1_epi16((short)0xbf80));
    x = _mm256_mask_mov_epi16(x, nan, _mm256_set1_epi16(0x7e00));
    return _mm512_mul_ps(_mm512_cvtph_ps(x), _mm512_set1_ps(256.0f));
}

/* E5M2 is the upper half of an f16. */
AVX512 static inline __m512 load_e5m2(const void *src, int64_t i, __mmask16 m)
{
    __m128i x = _mm_maskz_loadu_epi8(m, (const uint8_t *)src + i);
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(x), 8));
}

/* ---- blocks ---- */

#define X(e, bytes, suffix)                                                                       \
    AVX512 static void decode_##suffix(float *dst, int64_t ld_dst, const void *src,               \
                                       int64_t ld_src, int64_t rows, int64_t cols)                \
    {                                                                                             \
        int64_t whole = cols / 16 * 16;                                                           \
        __mmask16 tail = first(cols - whole);                                                     \
        for (int64_t r = 0; r < rows; r++, dst += ld_dst) {                                       \
            int64_t from = r * ld_src;                                                            \
            for (int64_t c = 0; c < whole; c += 16)                                               \
                _mm512_storeu_ps(dst + c, load_##suffix(src, from + c, (__mmask16)0xffff));       \
            if (tail)                                                                             \
                _mm512_mask_storeu_ps(dst + whole, tail, load_##suffix(src, from + whole, tail)); \
        }                                                                                         \
    }
F8_GEMM_SOURCES(X)
#undef X

AVX512 static void narrow(uint16_t *dst, int64_t ld_dst, const float *src, int64_t ld_src,
                          int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++, dst += ld_dst, src += ld_src)
        for (int64_t c = 0; c < cols; c += 16) {
            __mmask16 m = first(cols - c);
            __m512i x = _mm512_srli_epi32(_mm512_maskz_loadu_epi32(m, src + c), 16);
            _mm256_mask_storeu_epi16(dst + c, m, _mm512_cvtepi32_epi16(x));
        }
}

AVX512 static void pairs(uint16_t *dst, const float *src, int64_t ld_src)
{
    for (int c = 0; c < F8_PAIR_COLS; c += 16) {
        __m512i even = _mm512_srli_epi32(_mm512_loadu_si512(src + c), 16);
        __m512i odd = _mm512_loadu_si512(src + ld_src + c);
        _mm512_storeu_si512(dst + 2 * c, _mm512_mask_blend_epi16(0xaaaaaaaa, even, odd));
    }
}

AVX512 static inline __m512 scaled(const float *t, const float *col, __m512 row, __mmask16 m)
{
    __m512 alpha = _mm512_mul_ps(row, _mm512_maskz_loadu_ps(m, col));
    return _mm512_mul_ps(alpha, _mm512_maskz_loadu_ps(m, t));
}

AVX512 static void store(float *c, int64_t ldc, const float *t, int64_t ldt, const float *row,
                         const float *col, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++, c += ldc, t += ldt) {
        __m512 factor = _mm512_set1_ps(row[r]);
        for (int64_t i = 0; i < cols; i += 16) {
            __mmask16 m = first(cols - i);
            _mm512_mask_storeu_ps(c + i, m, scaled(t + i, col + i, factor, m));
        }
    }
}

AVX512 static void add(float *c, int64_t ldc, const float *t, int64_t ldt, const float *row,
                       const float *col, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++, c += ldc, t += ldt) {
        __m512 factor = _mm512_set1_ps(row[r]);
        for (int64_t i = 0; i < cols; i += 16) {
            __mmask16 m = first(cols - i);
            __m512 sum =
                _mm512_add_ps(_mm512_maskz_loadu_ps(m, c + i), scaled(t + i, col + i, factor, m));
            _mm512_mask_storeu_ps(c + i, m, sum);
        }
    }
}

/* ---- 16 x 16 transpose in registers ----
 * Loops over registers must be unrolled, or the registers live in memory. */

#define UNROLL _Pragma("GCC unroll 16")

AVX512 static inline __m512 pairs_lo(__m512 x, __m512 y)
{
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
}

AVX512 static inline __m512 pairs_hi(__m512 x, __m512 y)
{
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
}

/* Lanes of 4 columns, gathered from rows row, row + 4, row + 8 and row + 12: loading them with a
 * masked broadcast does half of the transpose without the one port that shuffles. */
AVX512 static inline __attribute__((always_inline)) __m512 gather_lanes(const float *src,
                                                                        int64_t ld)
{
    __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(src));
    v = _mm512_mask_broadcast_f32x4(v, 0x00f0, _mm_loadu_ps(src + 4 * ld));
    v = _mm512_mask_broadcast_f32x4(v, 0x0f00, _mm_loadu_ps(src + 8 * ld));
    return _mm512_mask_broadcast_f32x4(v, 0xf000, _mm_loadu_ps(src + 12 * ld));
}

/* dst[c][0..16) = src[0..16)[c] for c < 4 */
AVX512 static inline __attribute__((always_inline)) void
transpose_16x4(float *dst, int64_t ld_dst, const float *src, int64_t ld_src)
{
    __m512 r[4], t[4];
    UNROLL for (int i = 0; i < 4; i++) r[i] = gather_lanes(src + i * ld_src, ld_src);
    t[0] = _mm512_unpacklo_ps(r[0], r[1]);
    t[1] = _mm512_unpackhi_ps(r[0], r[1]);
    t[2] = _mm512_unpacklo_ps(r[2], r[3]);
    t[3] = _mm512_unpackhi_ps(r[2], r[3]);
    _mm512_storeu_ps(dst, pairs_lo(t[0], t[2]));
    _mm512_storeu_ps(dst + ld_dst, pairs_hi(t[0], t[2]));
    _mm512_storeu_ps(dst + 2 * ld_dst, pairs_lo(t[1], t[3]));
    _mm512_storeu_ps(dst + 3 * ld_dst, pairs_hi(t[1], t[3]));
}

AVX512 static void transpose(float *dst, int64_t ld_dst, const float *src, int64_t ld_src,
                             int64_t rows, int64_t cols)
{
    int64_t c = 0;
    if (rows == 16)
        for (; c + 4 <= cols; c += 4)
            transpose_16x4(dst + c * ld_dst, ld_dst, src + c, ld_src);
    for (; c < cols; c++)
        for (int64_t r = 0; r < rows; r++)
            dst[c * ld_dst + r] = src[r * ld_src + c];
}

const f8_gemm_simd *f8_gemm_simd_avx512(void)
{
    static const f8_gemm_simd table = {
        .name = "avx512",
        .decode =
            {
#define X(e, bytes, suffix) [e] = decode_##suffix,
                F8_GEMM_SOURCES(X)
#undef X
            },
        .transpose = transpose,
        .narrow = narrow,
        .pairs = pairs,
        .store = store,
        .add = add,
    };
    return &table;
}

#else

const f8_gemm_simd *f8_gemm_simd_avx512(void)
{
    return 0;
}

#endif
