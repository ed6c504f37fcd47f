/* The exact product of operands, and how far a result may be off: see operands.h.
 *
 * The bound. u is 2^-24; S is the sum of the absolute products with their scales, and of the
 * absolute old C and bias. A factor 1 + d, |d| <= u, stands for each rounding. A product of the sum
 * meets k - 1 of them in additions, whatever their order, one where the products are rounded
 * themselves, one each in adding old C and bias, and four for scales: one of each operand's element
 * (or else one of the scales' product), one of the scaled sum. So n = k + 6 and the error is at
 * most n u S / (1 - n u) (Higham, Accuracy and Stability of Numerical Algorithms, 2002,
 * section 3.1). For sums n u S will do (Jeannerod, Rump, SIAM J. Matrix Anal. Appl. 34(2), 2013);
 * for the few others the bound has k + 8. The double sums are off by (k + 3) 2^-53 S, which is
 * within that, too.
 *
 * Tensor cores cut the terms of a sum off, each by up to 2^-23 of the largest; a group of g
 * products has g + 1 terms, so k products have at most 2 k. Those of Hopper cut FP8 products off at
 * 13 bits below the largest of 32 products and the sum: 33 2^-13 S for each 32. Promoting to f32
 * every 128 begins anew: 4 times that of the whole S (DeepSeek-V3, arXiv 2412.19437,
 * section 3.3.2). A bf16 result is rounded to half of the distance of its neighbours.
 *
 * Operands filled by inputs.c are far from what underflows, so the bound has no term for that. */
#include "frontend/measure/operands.h"

#include <math.h>

#include "ir/num/fp8.h"

enum { SAMPLES = 4096, PANEL = 16 /* of k */ };

/* ---- an operand ---- */

typedef struct operand {
    const void *data;
    f8_dtype dtype, scale_dtype;
    int64_t rows, cols; /* as stored */
    bool k_is_rows;
    const void *scale; /* NULL: none */
    f8_granularity grain;
    int64_t scale_cols;
    float value[256]; /* of FP8 codes */
} operand;

static void describe(operand *x, const f8_product *p, bool second)
{
    const int64_t outer = second ? p->n : p->m;
    x->data = second ? p->b_data : p->a_data;
    x->dtype = second ? p->b : p->a;
    x->k_is_rows = second ? !p->trans_b : p->trans_a;
    x->rows = x->k_is_rows ? p->k : outer;
    x->cols = x->k_is_rows ? outer : p->k;
    x->scale = second ? p->b_scale : p->a_scale;
    x->scale_dtype = p->scale;
    x->grain = second ? p->grain_b : p->grain_a;
    x->scale_cols = f8_granularity_blocks(x->grain.cols, x->cols);
    for (uint32_t code = 0; code < 256 && f8_dtype_is_fp8(x->dtype); code++)
        x->value[code] = f8_decode(x->dtype, code);
}

static inline float value_at(const operand *x, int64_t at)
{
    if (x->dtype == F8_F32)
        return ((const float *)x->data)[at];
    if (x->dtype == F8_BF16)
        return f8_from_bits((uint32_t)((const uint16_t *)x->data)[at] << 16);
    return x->value[((const uint8_t *)x->data)[at]];
}

static double scale_at(const operand *x, int64_t row, int64_t col)
{
    if (!x->scale)
        return 1;
    const int64_t at = f8_granularity_block(x->grain.rows, row) * x->scale_cols +
                       f8_granularity_block(x->grain.cols, col);
    return (double)(x->scale_dtype == F8_E8M0 ? f8_e8m0_to_f32(((const uint8_t *)x->scale)[at])
                                              : ((const float *)x->scale)[at]);
}

/* Where the block of `size` (0: all) that holds `at` ends, at most at `end`. */
static int64_t end_of_block(int64_t size, int64_t at, int64_t end)
{
    const int64_t next = size ? (at / size + 1) * size : end;
    return next < end ? next : end;
}

/* ---- decoding ---- */

/* x rounded once to bf16, to nearest, ties to even; x is finite. First it is cut off to an f32,
 * with the last bit set if that lost any: so the second rounding is that of x itself.
 * f8_f32_to_bf16 would take ten times as long, and operands may have 1e9 elements. */
static uint16_t round_bf16(double x)
{
    const float near = (float)x;
    uint32_t bits = f8_bits(near);
    bits = (bits - (fabs((double)near) > fabs(x))) | ((double)near != x);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void decode_run(const operand *x, int64_t begin, int64_t end, double scale, f8_dtype to,
                       void *out)
{
    if (to == F8_F32)
        for (int64_t i = begin; i < end; i++)
            ((float *)out)[i] = (float)((double)value_at(x, i) * scale);
    else
        for (int64_t i = begin; i < end; i++)
            ((uint16_t *)out)[i] = round_bf16((double)value_at(x, i) * scale);
}

void f8_product_decode(const f8_product *p, bool second, f8_dtype to, void *out)
{
    operand x;
    describe(&x, p, second);
    if (!x.grain.rows && !x.grain.cols)
        x.scale = NULL;
    for (int64_t row = 0; row < x.rows; row++)
        for (int64_t col = 0, end; col < x.cols; col = end) {
            end = end_of_block(x.scale ? x.grain.cols : 0, col, x.cols);
            decode_run(&x, row * x.cols + col, row * x.cols + end, scale_at(&x, row, col), to, out);
        }
}

/* ---- a sample of C ---- */

/* Rows of op(A), or columns of op(B), in ascending order, and some of k of them. */
typedef struct lines {
    operand x;
    int64_t at[SAMPLES];
    double panel[SAMPLES][PANEL];
} lines;

/* Element e is in row a.at[e] and in column b.at[column[e]]. */
typedef struct sample {
    lines a, b;
    uint16_t column[SAMPLES];
    double sum[SAMPLES], size[SAMPLES]; /* of the products; of their absolute values */
    int n;
} sample;

static uint64_t next_random(uint64_t *state) /* splitmix64 */
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* One of each SAMPLES'th part of them; each at least once, where there are no more. */
static void draw_lines(lines *l, int64_t n, uint64_t *state)
{
    for (int64_t e = 0; e < SAMPLES; e++) {
        const int64_t begin = e * n / SAMPLES, end = (e + 1) * n / SAMPLES;
        l->at[e] = begin;
        if (end > begin + 1)
            l->at[e] += (int64_t)(next_random(state) % (uint64_t)(end - begin));
    }
}

/* A Latin hypercube (McKay, Beckman, Conover 1979), so that no row and no column is passed over.
 * Both are read in ascending order: along lines of memory, whichever way an operand is stored. */
static void draw(sample *s, const f8_product *p, uint64_t seed)
{
    const bool all = p->m <= SAMPLES && p->n <= SAMPLES && p->m * p->n <= SAMPLES;
    uint64_t state = seed;
    s->n = all ? (int)(p->m * p->n) : SAMPLES;
    for (int e = 0; e < s->n; e++) {
        s->column[e] = (uint16_t)e;
        s->a.at[e] = e / p->n;
        s->b.at[e] = e % p->n;
    }
    if (all)
        return;
    draw_lines(&s->a, p->m, &state);
    draw_lines(&s->b, p->n, &state);
    for (int e = SAMPLES - 1; e > 0; e--) {
        const uint64_t other = next_random(&state) % (uint64_t)(e + 1);
        const uint16_t column = s->column[e];
        s->column[e] = s->column[other];
        s->column[other] = column;
    }
}

/* ---- the exact product ---- */

static void read_codes(lines *l, int n, int64_t k, int64_t width)
{
    const operand *x = &l->x;
    if (x->k_is_rows)
        for (int64_t i = 0; i < width; i++)
            for (int e = 0; e < n; e++)
                l->panel[e][i] = (double)value_at(x, (k + i) * x->cols + l->at[e]);
    else
        for (int e = 0; e < n; e++)
            for (int64_t i = 0; i < width; i++)
                l->panel[e][i] = (double)value_at(x, l->at[e] * x->cols + k + i);
}

static void multiply_scales(lines *l, int n, int64_t k, int64_t width)
{
    const operand *x = &l->x;
    const int64_t block = x->k_is_rows ? x->grain.rows : x->grain.cols;
    for (int64_t i = 0, end; i < width && x->scale; i = end) {
        end = end_of_block(block, k + i, k + width) - k;
        for (int e = 0; e < n; e++) {
            const double scale =
                x->k_is_rows ? scale_at(x, k + i, l->at[e]) : scale_at(x, l->at[e], k + i);
            for (int64_t j = i; j < end; j++)
                l->panel[e][j] *= scale;
        }
    }
}

static void read_panel(lines *l, int n, int64_t k, int64_t width)
{
    read_codes(l, n, k, width);
    multiply_scales(l, n, k, width);
}

static void multiply(sample *s, int64_t k)
{
    for (int e = 0; e < s->n; e++)
        s->sum[e] = s->size[e] = 0;
    for (int64_t first = 0; first < k; first += PANEL) {
        const int64_t width = k - first < PANEL ? k - first : PANEL;
        read_panel(&s->a, s->n, first, width);
        read_panel(&s->b, s->n, first, width);
        for (int e = 0; e < s->n; e++) {
            const double *a = s->a.panel[e], *b = s->b.panel[s->column[e]];
            for (int64_t i = 0; i < width; i++) {
                s->sum[e] += a[i] * b[i];
                s->size[e] += fabs(a[i] * b[i]);
            }
        }
    }
}

/* ---- how far a result is off ---- */

/* How far a sum of k products may be off, as a part of the sum of their absolute values. */
static double share(f8_sums sums, int64_t k)
{
    const double groups = (double)((k + 31) / 32), cut = 33 * 0x1p-13;
    switch (sums) {
    case F8_SUMS_F32: return (double)(k + 8) * 0x1p-24;
    case F8_SUMS_CUT: return (double)(2 * k + 8) * 0x1p-23;
    case F8_SUMS_FP8: return (double)(k + 8) * 0x1p-23 + fmin(groups, 4) * cut;
    default: return 8 * 0x1p-23 + groups * cut;
    }
}

/* Half of the distance between two bf16 at x. */
static double half_bf16(double x)
{
    return x > 0 ? ldexp(1, (x < 0x1p-126 ? -126 : ilogb(x)) - 8) : 0;
}

static double error_of(const f8_product *p, const sample *s, int e, const void *c)
{
    const int64_t column = s->b.at[s->column[e]], at = s->a.at[e] * p->n + column;
    const double sum = p->sum ? (double)p->sum[at] : 0;
    const double bias = p->bias ? (double)f8_bf16_to_f32(p->bias[column]) : 0;
    const double exact = s->sum[e] + sum + bias;
    double bound = share(p->sums, p->k) * (s->size[e] + fabs(sum) + fabs(bias));
    if (p->c == F8_BF16)
        bound += half_bf16(fabs(exact) + bound);
    const double got = (double)(p->c == F8_BF16 ? f8_bf16_to_f32(((const uint16_t *)c)[at])
                                                : ((const float *)c)[at]);
    const double off = fabs(got - exact);
    return off == 0 ? 0 : isfinite(off) && bound > 0 ? off / bound : INFINITY;
}

double f8_product_error(const f8_product *p, const void *c, uint64_t seed)
{
    const f8_allocator allocator = f8_default_allocator();
    sample *s = allocator.alloc(allocator.user, sizeof *s, 64);
    double worst = 0;
    if (!s)
        return NAN;
    describe(&s->a.x, p, false);
    describe(&s->b.x, p, true);
    draw(s, p, seed);
    multiply(s, p->k);
    for (int e = 0; e < s->n; e++)
        worst = fmax(worst, error_of(p, s, e, c));
    allocator.free(allocator.user, s, sizeof *s);
    return worst;
}
