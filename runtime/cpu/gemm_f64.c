/* Tiles whose sums are in f64: see gemm_f64.h. */
#include "runtime/cpu/gemm_f64.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))

enum { ROWS = 4, COLS = 8 }; /* of C that one pass over k sums */

/* Lanes below n. */
AVX2 static inline __m128i lanes(int64_t n)
{
    const int most = n > 4 ? 4 : n < 0 ? 0 : (int)n;
    return _mm_cmpgt_epi32(_mm_set1_epi32(most), _mm_setr_epi32(0, 1, 2, 3));
}

AVX2 static inline void put(float *c, __m128i mask, __m256d sum, bool add)
{
    __m128 x = _mm256_cvtpd_ps(sum);
    if (add)
        x = _mm_add_ps(_mm_maskload_ps(c, mask), x);
    _mm_maskstore_ps(c, mask, x);
}

/* rows <= ROWS, cols <= COLS. Where there are fewer rows, the last one is summed several times. */
AVX2 static void sum_block(const float *a, int64_t lda, const float *b, int64_t ldb, bool add,
                           float *c, int64_t ldc, int64_t rows, int64_t cols, int64_t k)
{
    const __m128i left = lanes(cols), right = lanes(cols - 4);
    const float *row[ROWS];
    __m256d sum[ROWS][2];
    for (int r = 0; r < ROWS; r++) {
        row[r] = a + (r < rows ? r : rows - 1) * lda;
        sum[r][0] = sum[r][1] = _mm256_setzero_pd();
    }
    for (int64_t i = 0; i < k; i++, b += ldb) {
        const __m256d x = _mm256_cvtps_pd(_mm_maskload_ps(b, left));
        const __m256d y = _mm256_cvtps_pd(_mm_maskload_ps(b + 4, right));
        for (int r = 0; r < ROWS; r++) {
            const __m256d w = _mm256_set1_pd((double)row[r][i]);
            sum[r][0] = _mm256_fmadd_pd(w, x, sum[r][0]);
            sum[r][1] = _mm256_fmadd_pd(w, y, sum[r][1]);
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        put(c + r * ldc, left, sum[r][0], add);
        put(c + r * ldc + 4, right, sum[r][1], add);
    }
}

void f8_gemm_f64_tile(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                      int64_t ldb, bool add, float *c, int64_t ldc)
{
    for (int64_t j = 0; j < n; j += COLS)
        for (int64_t i = 0; i < m; i += ROWS)
            sum_block(a + i * lda, lda, b + j, ldb, add, c + i * ldc + j, ldc,
                      m - i < ROWS ? m - i : ROWS, n - j < COLS ? n - j : COLS, k);
}

#else

void f8_gemm_f64_tile(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                      int64_t ldb, bool add, float *c, int64_t ldc)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += (double)a[i * lda + l] * (double)b[l * ldb + j];
            c[i * ldc + j] = add ? c[i * ldc + j] + (float)sum : (float)sum;
        }
}

#endif
