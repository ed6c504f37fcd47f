/* Blocks of an operand into panels: see gemm_simd.h.
 *
 * A transposed operand is decoded a strip at a time into a buffer that stays in L1 and transposed
 * from there in registers, so each stored element is read once, in order. */
#include "runtime/cpu/gemm_scales.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum {
    STRIP = 64, /* stored columns decoded at a time: with the rows of a panel they go to, in L1 */
    STRIP_LD = STRIP + 16, /* off the power of two, or the 16 rows would share cache sets */
    PAIR_COLS = F8_PAIR_COLS,
    PAIR_ROWS = 32,
};

int f8_gemm_source_bytes(f8_gemm_source s)
{
    static const uint8_t bytes[] = {
#define X(e, bytes, suffix) bytes,
        F8_GEMM_SOURCES(X)
#undef X
    };
    return bytes[s];
}

static const void *element(const f8_gemm_operand *x, int64_t stored_row, int64_t stored_col)
{
    int64_t index = stored_row * x->ld + stored_col;
    return (const char *)x->base + index * f8_gemm_source_bytes(x->source);
}

static int64_t at_most(int64_t n, int64_t most)
{
    return n < most ? n : most;
}

/* dst[r][c] = X[row + r][col + c], as stored, scaled */
static void decode(const f8_gemm_simd *simd, const f8_gemm_operand *x, int64_t row, int64_t col,
                   int64_t rows, int64_t cols, float *dst, int64_t ld_dst)
{
    if (!x->scales) {
        simd->decode[x->source](dst, ld_dst, element(x, row, col), x->ld, rows, cols);
        return;
    }
    for (int64_t r = 0; r < rows; r += F8_SCALE_ROWS) /* a block at a time, scaled while in L1 */
        for (int64_t c = 0; c < cols; c += F8_SCALE_COLS) {
            int64_t nr = at_most(rows - r, F8_SCALE_ROWS), nc = at_most(cols - c, F8_SCALE_COLS);
            float *to = dst + r * ld_dst + c;
            simd->decode[x->source](to, ld_dst, element(x, row + r, col + c), x->ld, nr, nc);
            f8_gemm_scales_apply(simd, x->scales, row + r, col + c, nr, nc, to, ld_dst);
        }
}

/* dst[r][c] = X[col + c][row + r] for r < rows <= STRIP, c < cols <= F8_TRANSPOSE_ROWS */
static void pack_strip(const f8_gemm_simd *simd, const f8_gemm_operand *x, int64_t row, int64_t col,
                       int64_t rows, int64_t cols, float *dst, int64_t ld_dst)
{
    if (x->source == F8_SRC_F32 && !x->scales) {
        simd->transpose(dst, ld_dst, element(x, col, row), x->ld, cols, rows);
        return;
    }
    _Alignas(64) float strip[F8_TRANSPOSE_ROWS * STRIP_LD];
    decode(simd, x, col, row, cols, rows, strip, STRIP_LD);
    simd->transpose(dst, ld_dst, strip, STRIP_LD, cols, rows);
}

static void pack_transposed(const f8_gemm_simd *simd, const f8_gemm_operand *x, int64_t row,
                            int64_t col, int64_t rows, int64_t cols, float *dst, int64_t ld_dst)
{
    for (int64_t r = 0; r < rows; r += STRIP)
        for (int64_t c = 0; c < cols; c += F8_TRANSPOSE_ROWS) {
            pack_strip(simd, x, row + r, col + c, at_most(rows - r, STRIP),
                       at_most(cols - c, F8_TRANSPOSE_ROWS), dst + r * ld_dst + c, ld_dst);
        }
}

void f8_gemm_pack(const f8_gemm_simd *simd, const f8_gemm_operand *x, int64_t row, int64_t col,
                  int64_t rows, int64_t cols, float *dst, int64_t ld_dst)
{
    if (x->trans)
        pack_transposed(simd, x, row, col, rows, cols, dst, ld_dst);
    else
        decode(simd, x, row, col, rows, cols, dst, ld_dst);
}

/* ---- bf16 panels: the upper halves of exact f32 values ---- */

void f8_gemm_pack_bf16(const f8_gemm_simd *simd, const f8_gemm_operand *x, int64_t row, int64_t col,
                       int64_t rows, int64_t cols, uint16_t *dst, int64_t ld_dst)
{
    _Alignas(64) float block[PAIR_ROWS * PAIR_COLS];
    for (int64_t r = 0; r < rows; r += PAIR_ROWS) {
        int64_t nr = at_most(rows - r, PAIR_ROWS);
        for (int64_t c = 0; c < cols; c += PAIR_COLS) {
            int64_t nc = at_most(cols - c, PAIR_COLS);
            f8_gemm_pack(simd, x, row + r, col + c, nr, nc, block, PAIR_COLS);
            simd->narrow(dst + r * ld_dst + c, ld_dst, block, PAIR_COLS, nr, nc);
        }
        for (int64_t i = 0; i < nr && cols < ld_dst; i++)
            memset(dst + (r + i) * ld_dst + cols, 0, (size_t)(ld_dst - cols) * sizeof *dst);
    }
}

void f8_gemm_pack_pairs(const f8_gemm_simd *simd, const f8_gemm_operand *x, int64_t row,
                        int64_t col, int64_t rows, int64_t cols, uint16_t *dst)
{
    _Alignas(64) float block[PAIR_ROWS * PAIR_COLS];
    for (int64_t c = 0; c < cols; c += PAIR_COLS) {
        int64_t nc = at_most(cols - c, PAIR_COLS);
        for (int64_t r = 0; r < rows; r += PAIR_ROWS, dst += PAIR_ROWS * PAIR_COLS) {
            int64_t nr = at_most(rows - r, PAIR_ROWS);
            if (nr < PAIR_ROWS || nc < PAIR_COLS)
                memset(block, 0, sizeof block);
            f8_gemm_pack(simd, x, row + r, col + c, nr, nc, block, PAIR_COLS);
            for (int i = 0; i < PAIR_ROWS; i += 2)
                simd->pairs(dst + i * PAIR_COLS, block + i * PAIR_COLS, PAIR_COLS);
        }
    }
}

/* ---- which table ---- */

const f8_gemm_simd *f8_gemm_simd_choose(const char **missing)
{
    *missing = "";
#if defined(__x86_64__)
    unsigned a, b, c = 0, d;
    __cpuid(1, a, b, c, d);
    __builtin_cpu_init(); /* asks the operating system as well: registers it doesn't save don't
                             count */
    if (!__builtin_cpu_supports("avx2"))
        *missing = "AVX2";
    else if (!__builtin_cpu_supports("fma"))
        *missing = "FMA";
    else if (!(c & bit_F16C))
        *missing = "F16C";
    else if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return f8_gemm_simd_avx512();
    else
        return f8_gemm_simd_avx2();
#else
    *missing = "x86-64";
#endif
    return NULL;
}
