/* Decoding and storing with AVX2: see gemm_simd.h. The same steps as gemm_avx512.c, where they are
 * explained; tails go through the scalar definitions. */
#include "runtime/cpu/gemm_simd.h"

#if defined(__x86_64__)
#include "ir/num/fp8.h"

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2,f16c")))

/* ---- eight elements of each source, and one ---- */

AVX2 static inline __m256 load_f32(const void *src, int64_t i)
{
    return _mm256_loadu_ps((const float *)src + i);
}

AVX2 static inline __m256 load_round(const void *src, int64_t i)
{
    __m256 f = load_f32(src, i);
    __m256i x = _mm256_castps_si256(f);
    __m256 nan = _mm256_cmp_ps(f, f, _CMP_UNORD_Q);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));
    __m256i y = _mm256_add_epi32(_mm256_add_epi32(x, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(x, _mm256_set1_epi32(0x400000));
    y = _mm256_blendv_epi8(y, quiet, _mm256_castps_si256(nan));
    return _mm256_castsi256_ps(_mm256_and_si256(y, _mm256_set1_epi32((int)0xffff0000u)));
}

AVX2 static inline __m256 load_bf16(const void *src, int64_t i)
{
    __m128i x = _mm_loadu_si128((const __m128i *)((const uint16_t *)src + i));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

AVX2 static inline __m256 load_e4m3(const void *src, int64_t i)
{
    __m128i codes = _mm_loadl_epi64((const __m128i *)((const uint8_t *)src + i));
    __m128i x = _mm_slli_epi16(_mm_cvtepi8_epi16(codes), 7);
    __m128i ones = _mm_set1_epi16(0x3f80);
    __m128i nan = _mm_cmpeq_epi16(_mm_and_si128(x, ones), ones);
    x = _mm_and_si128(x, _mm_set1_epi16((short)0xbf80));
    x = _mm_or_si128(x, _mm_and_si128(nan, _mm_set1_epi16(0x7e00)));
    return _mm256_mul_ps(_mm256_cvtph_ps(x), _mm256_set1_ps(256.0f));
}

AVX2 static inline __m256 load_e5m2(const void *src, int64_t i)
{
    __m128i raw = _mm_loadl_epi64((const __m128i *)((const uint8_t *)src + i));
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(raw), 8));
}

static inline float one_f32(const void *src, int64_t i)
{
    return ((const float *)src)[i];
}

static inline float one_round(const void *src, int64_t i)
{
    return f8_round_bf16(((const float *)src)[i]);
}

static inline float one_bf16(const void *src, int64_t i)
{
    return f8_bf16_to_f32(((const uint16_t *)src)[i]);
}

static inline float one_e4m3(const void *src, int64_t i)
{
    return f8_e4m3_to_f32(((const uint8_t *)src)[i]);
}

static inline float one_e5m2(const void *src, int64_t i)
{
    return f8_e5m2_to_f32(((const uint8_t *)src)[i]);
}

/* ---- blocks ---- */

#define X(e, bytes, suffix)                                                                       \
    AVX2 static void decode_##suffix(float *dst, int64_t ld_dst, const void *src, int64_t ld_src, \
                                     int64_t rows, int64_t cols)                                  \
    {                                                                                             \
        for (int64_t r = 0; r < rows; r++, dst += ld_dst) {                                       \
            int64_t from = r * ld_src, c = 0;                                                     \
            for (; c + 8 <= cols; c += 8)                                                         \
                _mm256_storeu_ps(dst + c, load_##suffix(src, from + c));                          \
            for (; c < cols; c++)                                                                 \
                dst[c] = one_##suffix(src, from + c);                                             \
        }                                                                                         \
    }
F8_GEMM_SOURCES(X)
#undef X

static uint16_t upper(float x)
{
    return (uint16_t)(f8_bits(x) >> 16);
}

AVX2 static void narrow(uint16_t *dst, int64_t ld_dst, const float *src, int64_t ld_src,
                        int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++, dst += ld_dst, src += ld_src) {
        int64_t c = 0;
        for (; c + 16 <= cols; c += 16) {
            __m256i lo = _mm256_loadu_si256((const __m256i *)(src + c));
            __m256i hi = _mm256_loadu_si256((const __m256i *)(src + c + 8));
            __m256i both =
                _mm256_packus_epi32(_mm256_srli_epi32(lo, 16), _mm256_srli_epi32(hi, 16));
            _mm256_storeu_si256((__m256i *)(dst + c), _mm256_permute4x64_epi64(both, 0xd8));
        }
        for (; c < cols; c++)
            dst[c] = upper(src[c]);
    }
}

AVX2 static void pairs(uint16_t *dst, const float *src, int64_t ld_src)
{
    for (int c = 0; c < F8_PAIR_COLS; c += 8) {
        __m256i even = _mm256_loadu_si256((const __m256i *)(src + c));
        __m256i odd = _mm256_loadu_si256((const __m256i *)(src + ld_src + c));
        __m256i pair = _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa);
        _mm256_storeu_si256((__m256i *)(dst + 2 * c), pair);
    }
}

AVX2 static inline __m256 scaled(const float *t, const float *col, float row)
{
    __m256 alpha = _mm256_mul_ps(_mm256_set1_ps(row), _mm256_loadu_ps(col));
    return _mm256_mul_ps(alpha, _mm256_loadu_ps(t));
}

AVX2 static void store(float *c, int64_t ldc, const float *t, int64_t ldt, const float *row,
                       const float *col, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++, c += ldc, t += ldt) {
        int64_t i = 0;
        for (; i + 8 <= cols; i += 8)
            _mm256_storeu_ps(c + i, scaled(t + i, col + i, row[r]));
        for (; i < cols; i++)
            c[i] = row[r] * col[i] * t[i];
    }
}

AVX2 static void add(float *c, int64_t ldc, const float *t, int64_t ldt, const float *row,
                     const float *col, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++, c += ldc, t += ldt) {
        int64_t i = 0;
        for (; i + 8 <= cols; i += 8) {
            __m256 sum = _mm256_add_ps(_mm256_loadu_ps(c + i), scaled(t + i, col + i, row[r]));
            _mm256_storeu_ps(c + i, sum);
        }
        for (; i < cols; i++)
            c[i] = c[i] + row[r] * col[i] * t[i];
    }
}

/* ---- transpose, 8 x 8 at a time ---- */

#define UNROLL _Pragma("GCC unroll 8")

AVX2 static inline void transpose_8(float *dst, int64_t ld_dst, const float *src, int64_t ld_src)
{
    __m256 r[8], t[8];
    UNROLL for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(src + i * ld_src);
    UNROLL for (int i = 0; i < 8; i += 2)
    {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLL for (int i = 0; i < 8; i += 4)
    {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        _mm256_storeu_ps(dst + i * ld_dst, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(dst + (i + 4) * ld_dst, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

AVX2 static void transpose(float *dst, int64_t ld_dst, const float *src, int64_t ld_src,
                           int64_t rows, int64_t cols)
{
    int64_t r8 = rows / 8 * 8, c8 = cols / 8 * 8;
    for (int64_t c = 0; c < c8; c += 8)
        for (int64_t r = 0; r < r8; r += 8)
            transpose_8(dst + c * ld_dst + r, ld_dst, src + r * ld_src + c, ld_src);
    for (int64_t c = 0; c < cols; c++)
        for (int64_t r = c < c8 ? r8 : 0; r < rows; r++)
            dst[c * ld_dst + r] = src[r * ld_src + c];
}

const f8_gemm_simd *f8_gemm_simd_avx2(void)
{
    static const f8_gemm_simd table = {
        .name = "avx2",
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

const f8_gemm_simd *f8_gemm_simd_avx2(void)
{
    return 0;
}

#endif
