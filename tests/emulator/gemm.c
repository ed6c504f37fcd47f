/* See gemm.h. Panels of A (ROWS high) and of B (COLUMNS wide) are decoded to f32, DEPTH of k at a
 * time; one block of ROWS x COLUMNS is summed in registers. Compiled with contraction: how products
 * and sums round together is the library's own affair. */
#include "tests/emulator/gemm.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 16, COLUMNS = 6, DEPTH = 256, WIDTH = 768 };

typedef float lanes __attribute__((vector_size(ROWS * sizeof(float))));

int f8_emu_element(int type)
{
    switch (type) {
    case CUDA_R_32F: return 4;
    case CUDA_R_16BF: return 2;
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2: return 1;
    default: return 0;
    }
}

/* ---- decoding ---- */

static float bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static float decode_fp8(uint32_t code, int mantissa, int bias, uint32_t first_special)
{
    const uint32_t rest = code & 0x7f, exponent = rest >> mantissa;
    const float sign = code & 0x80 ? -1.0f : 1.0f;
    if (rest >= first_special) /* E4M3: 0x7f is NaN; E5M2: 0x7c is Inf, beyond are NaNs */
        return bits((code & 0x80) << 24 | 0x7f800000u | (rest == 0x7c ? 0u : 0x400000u));
    const uint32_t fraction = rest & ((1u << mantissa) - 1);
    const float one = bits((uint32_t)(127 - bias + (exponent ? (int)exponent : 1)) << 23);
    const float value = (float)fraction / (float)(1 << mantissa) + (exponent ? 1.0f : 0.0f);
    return sign * value * one;
}

static float fp8_table[2][256];

static void fill_tables(void)
{
    for (uint32_t code = 0; code < 256; code++) {
        fp8_table[0][code] = decode_fp8(code, 3, 7, 0x7f);
        fp8_table[1][code] = decode_fp8(code, 2, 15, 0x7c);
    }
}

static float load(const void *p, int type, int64_t i)
{
    float x;
    switch (type) {
    case CUDA_R_32F: memcpy(&x, (const char *)p + i * 4, 4); return x;
    case CUDA_R_16BF: return bits((uint32_t)((const uint16_t *)p)[i] << 16);
    case CUDA_R_8F_E4M3: return fp8_table[0][((const uint8_t *)p)[i]];
    default: return fp8_table[1][((const uint8_t *)p)[i]];
    }
}

static uint16_t to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return x != x ? 0x7fff : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* ---- scales: the library's documentation, "Scaling factors layouts", "1D Block Scaling Factors
 * Layout" ---- */

enum {
    ROWWISE = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
    MX = CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0,
    RUNS = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
    TILES = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
};

static int64_t up(int64_t x, int64_t multiple)
{
    return (x + multiple - 1) / multiple * multiple;
}

/* Elements of k that share a scale; 0: all. */
static int64_t block_of(int mode)
{
    return mode == MX ? 32 : mode == RUNS || mode == TILES ? 128 : 0;
}

static int64_t blocks_of(int mode, int64_t k)
{
    const int64_t block = block_of(mode);
    return block ? up(k, block) / block : 1;
}

int64_t f8_emu_scale_bytes(int mode, int64_t outer, int64_t k)
{
    const int64_t blocks = blocks_of(mode, k);
    switch (mode) {
    case ROWWISE: return outer * 4;
    case MX: return up(outer, 128) * up(blocks, 4);
    case RUNS: return outer * blocks * 4;
    case TILES: return up(outer, 128) / 128 * up(blocks, 4) * 4;
    default: return 4;
    }
}

/* Where the scale of row `outer` and block `inner` of k is. */
static int64_t scale_at(int mode, int64_t outer, int64_t inner, int64_t rows, int64_t blocks)
{
    switch (mode) {
    case ROWWISE: return outer;
    case MX: {
        const int64_t tile = outer / 128 * (up(blocks, 4) / 4) + inner / 4;
        return tile * 512 + outer % 128 % 32 * 16 + outer % 128 / 32 * 4 + inner % 4;
    }
    case RUNS: return inner * rows + outer;
    case TILES: return outer / 128 * up(blocks, 4) + inner;
    default: return 0;
    }
}

static float scale_of(const f8_emu_matrix *x, int64_t outer, int64_t inner, int64_t rows, int64_t k)
{
    if (!x->scale)
        return 1.0f;
    const int64_t at = scale_at(x->mode, outer, inner, rows, blocks_of(x->mode, k));
    if (x->mode != MX)
        return ((const float *)x->scale)[at];
    const uint32_t code = ((const uint8_t *)x->scale)[at]; /* 2^(code - 127); FF is NaN */
    return bits(code == 0xff ? 0x7fc00000u : code ? code << 23 : 0x00400000u);
}

bool f8_emu_scale_padding_ok(const void *scale, int mode, int64_t outer, int64_t k)
{
    const int64_t blocks = blocks_of(mode, k);
    for (int64_t o = 0; scale && mode == MX && o < up(outer, 128); o++)
        for (int64_t i = 0; i < up(blocks, 4); i++)
            if ((o >= outer || i >= blocks) &&
                ((const uint8_t *)scale)[scale_at(mode, o, i, outer, blocks)] != 0)
                return false;
    return true;
}

/* ---- packing: panel after panel of [k][high], zeros beyond the matrix ---- */

/* `count` vectors of `all` along the panel from `first`; at[i, k] = vector first + i, element k0 +
 * k of k. */
static void pack(const f8_emu_matrix *x, bool k_contiguous, int64_t all, int64_t k, int64_t first,
                 int64_t count, int64_t k0, int64_t depth, int high, float *to)
{
    const int64_t step_i = k_contiguous ? x->stride : 1, step_k = k_contiguous ? 1 : x->stride;
    const int64_t block = x->scale ? block_of(x->mode) : 0;
    float scale[ROWS > COLUMNS ? ROWS : COLUMNS];
    for (int64_t panel = 0; panel < count; panel += high)
        for (int64_t j = k0; j < k0 + depth; j++) {
            for (int i = 0; block && i < high && (j == k0 || j % block == 0); i++)
                scale[i] =
                    panel + i < count ? scale_of(x, first + panel + i, j / block, all, k) : 0.0f;
            for (int i = 0; i < high; i++, to++) {
                *to = 0.0f;
                if (panel + i >= count)
                    continue;
                *to = load(x->p, x->type, (first + panel + i) * step_i + j * step_k);
                if (block)
                    *to *= scale[i];
            }
        }
}

/* sum[j][i] += sum over k of a[k][i] b[k][j], for one CPU: written out thrice, since gcc splits
 * vectors before it makes a function's clones. */
#define BLOCK(name, cpu)                                                                           \
    __attribute__((target(cpu))) static void name(const float *a, const float *b, int64_t depth,   \
                                                  float *sum)                                      \
    {                                                                                              \
        lanes s[COLUMNS];                                                                          \
        memcpy(s, sum, sizeof s);                                                                  \
        for (int64_t k = 0; k < depth; k++, a += ROWS, b += COLUMNS) {                             \
            lanes column;                                                                          \
            memcpy(&column, a, sizeof column);                                                     \
            for (int j = 0; j < COLUMNS; j++)                                                      \
                s[j] += column * b[j];                                                             \
        }                                                                                          \
        memcpy(sum, s, sizeof s);                                                                  \
    }
BLOCK(block_avx512, "avx512f")
BLOCK(block_avx2, "avx2,fma")
BLOCK(block_any, "sse2")

typedef void block_function(const float *a, const float *b, int64_t depth, float *sum);

static block_function *choose_block(void)
{
    if (__builtin_cpu_supports("avx512f"))
        return block_avx512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? block_avx2 : block_any;
}

/* ---- the result ---- */

/* The factor of a sum. */
static float outer_scale(const f8_emu_matrix *x, int64_t i, int64_t rows)
{
    return block_of(x->mode) ? 1.0f : scale_of(x, i, 0, rows, 1);
}

/* A block of sums to D, its upper left corner at [i0, j0]. */
static void finish(const f8_emu_gemm *g, const float *sum, int64_t i0, int64_t j0)
{
    for (int64_t j = j0; j < j0 + COLUMNS && j < g->n; j++)
        for (int64_t i = i0; i < i0 + ROWS && i < g->m; i++) {
            const float scale =
                g->alpha * (outer_scale(&g->a, i, g->m) * outer_scale(&g->b, j, g->n));
            float x = scale * sum[(j - j0) * ROWS + (i - i0)];
            if (g->beta != 0.0f)
                x += g->beta * load(g->c.p, g->c.type, j * g->c.stride + i);
            if (g->bias)
                x += load(g->bias, g->bias_type, i);
            const int64_t at = j * g->d.stride + i;
            if (g->d.type == CUDA_R_32F)
                ((float *)g->d.p)[at] = x;
            else
                ((uint16_t *)g->d.p)[at] = to_bf16(x);
        }
}

/* All of k for `width` columns from j0: sums stay in `sums`, block after block, until k is done. */
static void strip(const f8_emu_gemm *g, int64_t j0, int64_t width, float *a, float *b, float *sums)
{
    block_function *block = choose_block();
    const int64_t blocks_m = up(g->m, ROWS) / ROWS, blocks_n = up(width, COLUMNS) / COLUMNS;
    memset(sums, 0, (size_t)(blocks_m * blocks_n * ROWS * COLUMNS) * sizeof *sums);
    for (int64_t k0 = 0; k0 < g->k; k0 += DEPTH) {
        const int64_t depth = g->k - k0 < DEPTH ? g->k - k0 : DEPTH;
        pack(&g->b, !g->b.transposed, g->n, g->k, j0, width, k0, depth, COLUMNS, b);
        for (int64_t i = 0; i < blocks_m; i++) {
            const int64_t height = g->m - i * ROWS < ROWS ? g->m - i * ROWS : ROWS;
            pack(&g->a, g->a.transposed, g->m, g->k, i * ROWS, height, k0, depth, ROWS, a);
            for (int64_t j = 0; j < blocks_n; j++)
                block(a, b + j * COLUMNS * depth, depth,
                      sums + (i * blocks_n + j) * ROWS * COLUMNS);
        }
    }
    for (int64_t i = 0; i < blocks_m; i++)
        for (int64_t j = 0; j < blocks_n; j++)
            finish(g, sums + (i * blocks_n + j) * ROWS * COLUMNS, i * ROWS, j0 + j * COLUMNS);
}

bool f8_emu_gemm_run(const f8_emu_gemm *g)
{
    const int64_t width = g->n < WIDTH ? up(g->n, COLUMNS) : WIDTH;
    const size_t panels = (size_t)DEPTH * (size_t)(ROWS + width);
    float *work = malloc((panels + (size_t)(up(g->m, ROWS) * width)) * sizeof *work);
    if (!work)
        return false;
    fill_tables();
    for (int64_t j = 0; j < g->n; j += WIDTH)
        strip(g, j, g->n - j < WIDTH ? g->n - j : WIDTH, work, work + DEPTH * ROWS, work + panels);
    free(work);
    return true;
}
