/* Scales of a GEMM's operands: which are allowed, and where they are multiplied in.
 *
 * An operand's scales are a grid over the array as stored (ir/num/granularity.h). Scales that do
 * not change along k are multiplied in after the sum: A's are a factor for each row of the result,
 * B's for each column.
 *
 * Blocks along k are multiplied in at one of two places. f32 scales in onednn-bf16: after the sums
 * of chunks of k that lie within one block of each operand, because bf16 holds a code exactly but
 * not a scaled code. All scales in onednn-f32, and E8M0 in onednn-bf16: while packing into the
 * panel. The first rounds each element once (2^-24); a power of two changes no bit of a code. */
#ifndef F8_GEMM_SCALES_H
#define F8_GEMM_SCALES_H

#include "ir/base/status.h"
#include "runtime/base/gemm_desc.h"
#include "runtime/cpu/gemm_simd.h"

typedef struct f8_gemm_scales {
    const void *data; /* row-major, contiguous; NULL: 1 everywhere */
    f8_dtype dtype;   /* F8_F32 or F8_E8M0 */
    f8_granularity granularity;
    int64_t ld; /* columns of the grid */
} f8_gemm_scales;

/* F8_ERR_UNSUPPORTED for another layout than the grid. F8_ERR_INPUT for scales that a product can't
 * have: of another dtype, one for each k, or blocks along k that span all of the other axis. */
f8_status f8_gemm_scales_check(const f8_gemm_desc *desc, f8_diag *diag);

/* One operand's scales, A's or B's. */
f8_gemm_scales f8_gemm_scales_of(const f8_gemm_desc *desc, bool is_a, const void *data);

/* Whether they come in several blocks along k. */
bool f8_gemm_scales_along_k(const f8_gemm_desc *desc, bool is_a);

/* The longest chunk of k, at most `most`, such that every end of a block of either operand's scales
 * is a multiple of it; 0 if neither has blocks along k. */
int64_t f8_gemm_scales_chunk(const f8_gemm_desc *desc, int64_t most);

/* factor[i] = the scale of stored element (first + i, at) when by_rows, else (at, first + i), for i
 * < count. */
void f8_gemm_scales_factors(const f8_gemm_scales *s, bool by_rows, int64_t first, int64_t count,
                            int64_t at, float *factor);

/* The factors of a block of C, of the sizes that gemm_desc.h allows: row[r] * col[i]. */
typedef struct f8_gemm_factors {
    float row[F8_GEMM_M_MOST], col[F8_GEMM_N_MOST];
} f8_gemm_factors;

/* c[r][i] = t[r][i] (t may be c) times its factor, or with `add` c[r][i] + that. The factor is
 * f8_scales_product of its row's and its column's, so neither overflows nor underflows; the product
 * with t is rounded once. */
void f8_gemm_scales_finish(const f8_gemm_simd *simd, const f8_gemm_factors *f, bool add, float *c,
                           int64_t ldc, const float *t, int64_t ldt, int64_t rows, int64_t cols);

enum { F8_SCALE_ROWS = 16, F8_SCALE_COLS = 64 };

/* x[r][c] *= the scale of stored element (row + r, col + c), for r < rows <= F8_SCALE_ROWS, c <
 * cols <= F8_SCALE_COLS. */
void f8_gemm_scales_apply(const f8_gemm_simd *simd, const f8_gemm_scales *s, int64_t row,
                          int64_t col, int64_t rows, int64_t cols, float *x, int64_t ld);

#endif
