/* Quantizing a matrix on the host: the same scales and codes, bit for bit, as a compiled graph's
 * (amax, fp8_scale, quantize in ops.def), for weights that are exported and for estimating errors.
 *
 * x is [rows, cols], row-major. Scales lie as ir/num/granularity.h's grid, row-major. One thread;
 * nothing is allocated. */
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

/* max |x| of each block, NaN > Inf > finite. */
void f8_matrix_amax(f8_granularity grain, const float *x, int64_t rows, int64_t cols, float *amax);

/* From n amaxes: what to multiply by before encoding, and the inverse (NaN where the amax is not
 * finite). With mx inv is exactly the E8M0 scale's value. Either may be NULL; amax may be one of
 * them. */
void f8_scales_of(const f8_quantizer *q, const float *amax, int64_t n, float *scale, float *inv);

/* encode(x * scale), saturating. */
void f8_matrix_encode(const f8_quantizer *q, const float *x, int64_t rows, int64_t cols,
                      const float *scale, uint8_t *codes);

/* What quantizing does to values, without the codes. */
typedef struct f8_quantize_error {
    double signal, noise;         /* sums of x^2 and of (dequantized - x)^2 */
    int64_t n, nonzero;           /* elements; those that are not 0 */
    int64_t underflow,
        overflow; /* that became 0; that saturated: too large to round to the format's maximum */
} f8_quantize_error;

/* dequantized [rows, cols] = decode(encode(x * scale)) * inv; adds to *e where it is not NULL.
 * Finite x. */
void f8_matrix_dequantized(const f8_quantizer *q, const float *x, int64_t rows, int64_t cols,
                           const float *scale, const float *inv, float *dequantized,
                           f8_quantize_error *e);

#endif
