/* Tiles whose sums are in f64: see gemm_f64.h. */
#include "runtime/cpu/gemm_f64.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))
#define UNROLL _Pragma("GCC unroll 4") /* else the sums lie in memory */

/* The sums of ROWS x COLS elements of C stay in registers. DEPTH: the most terms of k for which
 * rows of A are widened at once. */
enum { ROWS = 4, COLS = 8, DEPTH = 256 };

/* ROWS rows of A as f64, at most DEPTH elements of each. If A has fewer rows left, its last row is
 * repeated. */
typedef struct wide_rows {
    _Alignas(32) double row[ROWS][DEPTH];
} wide_rows;

AVX2 static void widen(wide_rows *to, const float *a, int64_t lda, int64_t rows, int64_t k)
{
    for (int r = 0; r < ROWS; r++) {
        const float *from = a + (r < rows ? r : rows - 1) * lda;
        int64_t i = 0;
        for (; i + 4 <= k; i += 4)
            _mm256_store_pd(to->row[r] + i, _mm256_cvtps_pd(_mm_loadu_ps(from + i)));
        for (; i < k; i++)
            to->row[r][i] = (double)from[i];
    }
}

/* Which of four columns of B or C are read and written. */
typedef struct quad {
    bool whole;   /* all four; `mask` is not used */
    __m128i mask; /* else those whose bits are set */
} quad;

/* The first n columns of four. */
AVX2 static inline quad quad_of(int64_t n)
{
    const int most = n < 0 ? 0 : (int)n;
    return (quad){n >= 4, _mm_cmpgt_epi32(_mm_set1_epi32(most), _mm_setr_epi32(0, 1, 2, 3))};
}

AVX2 static inline __m128 get(const float *x, quad q)
{
    return q.whole ? _mm_loadu_ps(x) : _mm_maskload_ps(x, q.mask);
}

AVX2 static inline void put(float *c, quad q, __m256d sum, bool add)
{
    const __m128 x = _mm256_cvtpd_ps(sum), y = add ? _mm_add_ps(get(c, q), x) : x;
    if (q.whole)
        _mm_storeu_ps(c, y);
    else
        _mm_maskstore_ps(c, q.mask, y);
}

/* C[rows, cols] of at most ROWS x COLS elements, and the operands that it is the product of. */
typedef struct block {
    const float *a, *b;
    float *c;
    int64_t lda, ldb, ldc, rows, cols, k;
    bool add;
} block;

/* Computes a block of C. a: the block's rows of A, widened by the caller if k is at most DEPTH. */
AVX2 static inline __attribute__((always_inline)) void sum_block(const block *x, wide_rows *a,
                                                                 quad left, quad right)
{
    const float *b = x->b;
    __m256d sum[ROWS][2];
    UNROLL for (int r = 0; r < ROWS; r++) sum[r][0] = sum[r][1] = _mm256_setzero_pd();
    for (int64_t from = 0; from < x->k; from += DEPTH) {
        const int64_t n = x->k - from < DEPTH ? x->k - from : DEPTH;
        if (x->k > DEPTH)
            widen(a, x->a + from, x->lda, x->rows, n);
        for (int64_t i = 0; i < n; i++, b += x->ldb) {
            const __m256d y = _mm256_cvtps_pd(get(b, left));
            const __m256d z = _mm256_cvtps_pd(get(b + 4, right));
            UNROLL for (int r = 0; r < ROWS; r++)
            {
                const __m256d w = _mm256_broadcast_sd(&a->row[r][i]);
                sum[r][0] = _mm256_fmadd_pd(w, y, sum[r][0]);
                sum[r][1] = _mm256_fmadd_pd(w, z, sum[r][1]);
            }
        }
    }
    UNROLL for (int r = 0; r < ROWS; r++)
    {
        if (r >= x->rows)
            break;
        put(x->c + r * x->ldc, left, sum[r][0], x->add);
        put(x->c + r * x->ldc + 4, right, sum[r][1], x->add);
    }
}

AVX2 static void sum_whole(const block *x, wide_rows *a)
{
    const quad whole = {.whole = true};
    sum_block(x, a, whole, whole);
}

AVX2 static void sum_part(const block *x, wide_rows *a)
{
    quad left = quad_of(x->cols), right = quad_of(x->cols - 4);
    left.whole = right.whole = false;
    sum_block(x, a, left, right);
}

void f8_gemm_f64_tile(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                      int64_t ldb, bool add, float *c, int64_t ldc)
{
    wide_rows wide;
    for (int64_t i = 0; i < m; i += ROWS) {
        block x = {.a = a + i * lda, .lda = lda, .ldb = ldb, .ldc = ldc, .k = k, .add = add};
        x.rows = m - i < ROWS ? m - i : ROWS;
        if (k <= DEPTH)
            widen(&wide, x.a, lda, x.rows, k);
        for (int64_t j = 0; j < n; j += COLS) {
            x.b = b + j;
            x.c = c + i * ldc + j;
            x.cols = n - j < COLS ? n - j : COLS;
            (x.cols == COLS ? sum_whole : sum_part)(&x, &wide);
        }
    }
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
