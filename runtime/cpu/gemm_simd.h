/* The element work around a GEMM: decoding operands into panels and adding tiles to C.
 *
 * One table of functions per instruction set; all give the same bits, and those of ir/num/fp8.h
 * (NaNs: the same class). Lengths count elements; nothing is read or written beyond them. */
#ifndef F8_GEMM_SIMD_H
#define F8_GEMM_SIMD_H

#include <stdbool.h>
#include <stdint.h>

/* How an operand's elements become f32: X(enumerator, bytes each, suffix of its decoder) */
#define F8_GEMM_SOURCES(X)    \
    X(F8_SRC_F32, 4, f32)     \
    X(F8_SRC_ROUND, 4, round) \
    X(F8_SRC_BF16, 2, bf16)   \
    X(F8_SRC_E4M3, 1, e4m3)   \
    X(F8_SRC_E5M2, 1, e5m2)

typedef enum f8_gemm_source {
#define X(e, bytes, suffix) e,
    F8_GEMM_SOURCES(X)
#undef X
        F8_SRC_COUNT
} f8_gemm_source;

enum { F8_TRANSPOSE_ROWS = 16, F8_PAIR_COLS = 64 };

typedef struct f8_gemm_simd {
    const char *name;
    /* dst[r][c] = value of src[r][c]; F8_SRC_ROUND rounds f32 to bf16, to nearest, ties to even.
     * Strides in elements, here and below. */
    void (*decode[F8_SRC_COUNT])(float *dst, int64_t ld_dst, const void *src, int64_t ld_src,
                                 int64_t rows, int64_t cols);
    /* dst[c][r] = src[r][c] for r < rows <= F8_TRANSPOSE_ROWS, c < cols. */
    void (*transpose)(float *dst, int64_t ld_dst, const float *src, int64_t ld_src, int64_t rows,
                      int64_t cols);
    /* dst[r][c] = the upper half of src[r][c]: its bf16, where that is exact. */
    void (*narrow)(uint16_t *dst, int64_t ld_dst, const float *src, int64_t ld_src, int64_t rows,
                   int64_t cols);
    /* dst[2 * c + r] = the upper half of src[r][c] for r < 2, c < F8_PAIR_COLS. */
    void (*pairs)(uint16_t *dst, const float *src, int64_t ld_src);
    /* c[r][i] = (row[r] * col[i]) * t[r][i] (t may be c), or c[r][i] + that; every operation
     * rounds. */
    void (*store)(float *c, int64_t ldc, const float *t, int64_t ldt, const float *row,
                  const float *col, int64_t rows, int64_t cols);
    void (*add)(float *c, int64_t ldc, const float *t, int64_t ldt, const float *row,
                const float *col, int64_t rows, int64_t cols);
} f8_gemm_simd;

/* The best table for this CPU; NULL when it lacks what the least needs, with the missing features'
 * names in `missing`. */
const f8_gemm_simd *f8_gemm_simd_choose(const char **missing);

/* NULL where the compiler does not target x86-64. Callers check the CPU first. */
const f8_gemm_simd *f8_gemm_simd_avx2(void);   /* needs AVX2, FMA and F16C */
const f8_gemm_simd *f8_gemm_simd_avx512(void); /* needs AVX-512 F, BW, DQ and VL */

/* A matrix operand op(X): where it lies and how it is read. */
typedef struct f8_gemm_operand {
    const void *base;
    int64_t ld; /* row stride of the array as stored, elements */
    f8_gemm_source source;
    bool trans; /* op(X)[r][c] is X[c][r] */
    const struct f8_gemm_scales *scales; /* multiplied in while packing; NULL: none */
} f8_gemm_operand;

int f8_gemm_source_bytes(f8_gemm_source s);

/* dst[r][c] = op(X)[row + r][col + c] for r < rows, c < cols, as f32 with row stride ld_dst, times
 * its scale if X has scales: one rounding. */
void f8_gemm_pack(const f8_gemm_simd *simd, const f8_gemm_operand *x, int64_t row, int64_t col,
                  int64_t rows, int64_t cols, float *dst, int64_t ld_dst);
/* The same block, exact in bf16, as bf16 values with row stride ld_dst; columns from cols to ld_dst
 * are zeros. */
void f8_gemm_pack_bf16(const f8_gemm_simd *simd, const f8_gemm_operand *x, int64_t row, int64_t col,
                       int64_t rows, int64_t cols, uint16_t *dst, int64_t ld_dst);
/* The same block in oneDNN's BA16a64b2a: [cols/64][rows/32][16][64][2] bf16, padded with zeros. */
void f8_gemm_pack_pairs(const f8_gemm_simd *simd, const f8_gemm_operand *x, int64_t row,
                        int64_t col, int64_t rows, int64_t cols, uint16_t *dst);

#endif
