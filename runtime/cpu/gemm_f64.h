/* Products of f32 whose sums are in f64. The product of two f32 is exact in f64, so neither fused
 * multiply-adds nor the width of vectors change a bit: an element of C is the sum in the order of
 * k, rounded once to f32. That is what target `reference` computes. */
#ifndef F8_GEMM_F64_H
#define F8_GEMM_F64_H

#include <stdbool.h>
#include <stdint.h>

/* C = A B, or C + that: A [m, k], B [k, n], all row-major with row strides. Needs AVX2 and FMA. */
void f8_gemm_f64_tile(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                      int64_t ldb, bool add, float *c, int64_t ldc);

#endif
