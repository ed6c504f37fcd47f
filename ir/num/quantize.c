/* Quantizing on the host: see quantize.h. The formulas of scales are written twice: here, and in
 * the graph (passes/unit/formulas.c: f8_scale_of_amax; passes/scale/operand.c: scale_inv and E8M0).
 * Tests compare them bit for bit. */
#include "ir/num/quantize.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "ir/num/fp8.h"
#include "ir/num/scalar.h"

int64_t f8_quantizer_scales(const f8_quantizer *q, int64_t rows, int64_t cols)
{
    return f8_granularity_blocks(q->grain.rows, rows) * f8_granularity_blocks(q->grain.cols, cols);
}

/* ---- amax ---- */

void f8_matrix_amax(f8_granularity grain, const float *x, int64_t rows, int64_t cols, float *amax)
{
    const int64_t across = f8_granularity_blocks(grain.cols, cols);
    const int64_t width = grain.cols ? grain.cols : cols;
    memset(amax, 0, (size_t)(f8_granularity_blocks(grain.rows, rows) * across) * sizeof *amax);
    for (int64_t r = 0; r < rows; r++) {
        float *to = amax + f8_granularity_block(grain.rows, r) * across;
        for (int64_t first = 0; first < cols; first += width, to++) {
            const int64_t end = cols - first < width ? cols : first + width;
            uint32_t most = f8_bits(*to);
            for (int64_t c = first; c < end; c++)
                most = f8_amax_bits(most, x[r * cols + c]);
            *to = f8_from_bits(most);
        }
    }
}

/* ---- scales ---- */

static float scale_of(const f8_quantizer *q, float amax)
{
    const float top = (float)ldexp((double)f8_dtype_max(q->format), (int)-q->margin);
    if (!(amax > 0) || !isfinite(amax))
        return 1;
    const float scale = f8_minimum(top / amax, FLT_MAX);
    return q->pow2 ? f8_from_bits(f8_pow2_floor_bits(f8_bits(scale))) : scale;
}

void f8_scales_of(const f8_quantizer *q, const float *amax, int64_t n, float *scale, float *inv)
{
    const float over_max = 1.0f / f8_dtype_max(q->format);
    for (int64_t i = 0; i < n; i++) {
        const float most = amax[i];
        float s, v;
        if (q->mx) {
            v = f8_e8m0_to_f32(f8_f32_to_e8m0(most * over_max, false));
            s = 1.0f / v;
        } else {
            s = scale_of(q, most);
            v = 1.0f / s + (most - most);
        }
        if (scale)
            scale[i] = s;
        if (inv)
            inv[i] = v;
    }
}

/* ---- codes ---- */

double f8_scales_product(float a, float b)
{
    enum { DROPPED = 53 - 24 }; /* bits of the mantissa */
    union {
        double d;
        uint64_t u;
    } x = {.d = (double)a * (double)b}; /* exact */
    if (!isfinite(x.d))
        return x.d;
    x.u += (1u << (DROPPED - 1)) - 1 + (x.u >> DROPPED & 1);
    x.u &= ~(((uint64_t)1 << DROPPED) - 1);
    return x.d;
}

void f8_matrix_encode(const f8_quantizer *q, const float *x, int64_t rows, int64_t cols,
                      const float *scale, uint8_t *codes)
{
    const int64_t across = f8_granularity_blocks(q->grain.cols, cols);
    for (int64_t r = 0; r < rows; r++) {
        const float *s = scale + f8_granularity_block(q->grain.rows, r) * across;
        for (int64_t c = 0; c < cols; c++)
            codes[r * cols + c] = (uint8_t)f8_encode(
                q->format, x[r * cols + c] * s[f8_granularity_block(q->grain.cols, c)], true);
    }
}

/* ---- errors ---- */

/* Rounds to the nearest value of the format, ties to even, saturating, without a branch: adding and
 * subtracting 1.5 * 2^23 steps of y's binade rounds y to a multiple of the step. */
typedef struct rounding {
    uint32_t least; /* bits of the smallest normal */
    float magic;    /* 1.5 * 2^23 * 2^-mantissa bits */
    float max;      /* the largest value of the format */
    float over;     /* above this a value no longer rounds to max: half a step more */
} rounding;

static rounding rounding_of(f8_dtype format)
{
    const float max = f8_dtype_max(format);
    return format == F8_E4M3 ? (rounding){(127u - 6u) << 23, 0x1.8p20f, max, max + 16}
                             : (rounding){(127u - 14u) << 23, 0x1.8p21f, max, max + 4096};
}

static inline float rounded(const rounding *r, float y)
{
    y = y > 2 * r->max ? 2 * r->max : y < -2 * r->max ? -2 * r->max : y;
    const uint32_t binade = f8_bits(y) & 0x7f800000u;
    const float big = f8_from_bits(binade > r->least ? binade : r->least) * r->magic;
    const float near = (y + big) - big;
    return near > r->max ? r->max : near < -r->max ? -r->max : near;
}

/* Dequantize n elements that share one scale, and add their errors to *e. */
static void run(const rounding *r, const float *x, int64_t n, float scale, float inv, float *out,
                f8_quantize_error *e)
{
    float signal = 0, noise = 0; /* the run is short, so f32 is enough for an estimate */
    int32_t nonzero = 0, underflow = 0, overflow = 0;
    for (int64_t i = 0; i < n; i++) {
        const float y = x[i] * scale, near = rounded(r, y), back = near * inv, off = back - x[i];
        out[i] = back;
        signal += x[i] * x[i];
        noise += off * off;
        nonzero += x[i] != 0;
        underflow += (x[i] != 0) & (near == 0);
        overflow += fabsf(y) > r->over;
    }
    e->signal += (double)signal;
    e->noise += (double)noise;
    e->nonzero += nonzero;
    e->underflow += underflow;
    e->overflow += overflow;
    e->n += n;
}

void f8_matrix_dequantized(const f8_quantizer *q, const float *x, int64_t rows, int64_t cols,
                           const float *scale, const float *inv, float *dequantized,
                           f8_quantize_error *e)
{
    f8_quantize_error unused = {0};
    const rounding r = rounding_of(q->format);
    const int64_t across = f8_granularity_blocks(q->grain.cols, cols);
    const int64_t width = q->grain.cols ? q->grain.cols : cols;
    enum { CHUNK = 4096 };
    for (int64_t row = 0; row < rows; row++)
        for (int64_t first = 0; first < cols;) {
            const int64_t block = first / width,
                          end = (block + 1) * width < cols ? (block + 1) * width : cols;
            const int64_t n = end - first < CHUNK ? end - first : CHUNK;
            const int64_t at =
                f8_granularity_block(q->grain.rows, row) * across + (across > 1 ? block : 0);
            run(&r, x + row * cols + first, n, scale[at], inv[at], dequantized + row * cols + first,
                e ? e : &unused);
            first += n;
        }
}
