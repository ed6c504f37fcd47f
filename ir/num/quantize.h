/* Quantizing a matrix on the host, for weights that are exported and for estimating errors. The
 * scales and codes have the same bits as those of a compiled graph (amax, fp8_scale and quantize in
 * ops.def).
 *
 * x is [rows, cols], row-major. Scales lie as the grid of ir/num/granularity.h, row-major. The
 * functions run on the calling thread and allocate nothing. */
#ifndef F8_QUANTIZE_H
#define F8_QUANTIZE_H

#include "ir/num/granularity.h"

typedef struct f8_quantizer {
    f8_granularity grain;
    f8_dtype format; /* F8_E4M3 or F8_E5M2 */
    bool mx;         /* scales are E8M0: amax / max of the format, rounded up to a power of two */
    bool pow2;       /* f32 scales, rounded down to a power of two */
    int64_t margin;
} f8_quantizer;

/* How many scales a matrix has. */
int64_t f8_quantizer_scales(const f8_quantizer *q, int64_t rows, int64_t cols);

/* The largest |x| of each block, with NaN > Inf > finite. */
void f8_matrix_amax(f8_granularity grain, const float *x, int64_t rows, int64_t cols, float *amax);

/* Of n amaxes: the factors to multiply by before encoding, and their inverses (NaN where the amax
 * is not finite). With mx, inv is exactly the value of the E8M0 scale. scale or inv may be NULL,
 * and either may be the array amax. */
void f8_scales_of(const f8_quantizer *q, const float *amax, int64_t n, float *scale, float *inv);

/* What the scales of a product's two operands multiply its sum by: a * b, rounded to the 24 bits of
 * an f32 (to nearest, ties to even), with the exponent of a double. So it is never Inf or 0 because
 * of its size, as the f32 product may be where the result is an ordinary number. Where the f32
 * product is normal it is the same number. */
double f8_scales_product(float a, float b);

/* encode(x * scale), saturating. */
void f8_matrix_encode(const f8_quantizer *q, const float *x, int64_t rows, int64_t cols,
                      const float *scale, uint8_t *codes);

/* What quantizing does to values, without the codes. */
typedef struct f8_quantize_error {
    double signal, noise;         /* sums of x^2 and of (dequantized - x)^2 */
    int64_t n, nonzero;           /* elements; elements that are not 0 */
    int64_t underflow;            /* elements that are not 0 and became 0 */
    int64_t overflow;             /* elements that saturated: too large to round to the maximum */
} f8_quantize_error;

/* dequantized [rows, cols] = decode(encode(x * scale)) * inv. x must be finite. Adds to *e unless
 * it is NULL. */
void f8_matrix_dequantized(const f8_quantizer *q, const float *x, int64_t rows, int64_t cols,
                           const float *scale, const float *inv, float *dequantized,
                           f8_quantize_error *e);

#endif
