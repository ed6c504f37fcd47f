/* Products of f32 whose sums are in f64. The product of two f32 is exact in f64, so neither fused
 * multiply-adds nor the width of vectors change a bit: an element of A B is the sum in the order of
 * k, rounded once to f32. Target `reference` computes the same bits. But where A B is added to C,
 * the reference adds in f64 and rounds once; here the rounded element is added in f32. */
#ifndef F8_GEMM_F64_H
#define F8_GEMM_F64_H

#include <stdbool.h>
#include <stdint.h>

/* C = A B, or with `add` C += A B. A is [m, k], B [k, n], C [m, n], row-major; lda, ldb and ldc are
 * the elements from one row to the next. On x86-64 it needs AVX2 and FMA. */
void f8_gemm_f64_tile(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                      int64_t ldb, bool add, float *c, int64_t ldc);

#endif
