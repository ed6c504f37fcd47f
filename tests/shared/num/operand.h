/* How well an operand of a GEMM was quantized: what was read back from an executed step (`keep`)
 * against the value that was quantized. Tests and bench/bench_recipes.c use the same measure. */
#ifndef F8_TEST_OPERAND_H
#define F8_TEST_OPERAND_H

#include <stdbool.h>

#include "ir/base/type.h"

/* A kept operand: x [R, C] in f32 (leading axes flattened), its codes, and 1 / scale for each block
 * of them, f32 or f8e8m0, laid out as `amax` of that granularity gives it (ir/num/granularity.h).
 */
typedef struct f8_operand_view {
    f8_type x_type, q_type, scale_type;
    const float *x;
    const uint8_t *q;
    const void *scale_inv;
} f8_operand_view;

typedef struct f8_operand_stats {
    double sqnr; /* dB: 10 log10(sum x^2 / sum (x - q scale_inv)^2); +inf when nothing is lost */
    double underflow; /* share of the elements that are not 0 and have a code that is */
    double overflow;  /* share with |x| > the format's maximum * scale_inv */
    double range;     /* the largest |q| over the format's maximum */
    f8_dtype format;
} f8_operand_stats;

/* False when the shapes are no operand's: codes unlike x, or a grid of scales that fits no block of
 * 1, 32 or 128 rows or columns, or all. */
bool f8_operand_measure(const f8_operand_view *v, f8_operand_stats *out);

/* What an operand's name in a program says: "LINEAR.KIND", then ".N" for another of its kind, then
 * ".row", ".column" or ".RxC" where it is not the tensor that has one scale. */
typedef struct f8_operand_name_parts {
    int linear;       /* length of the linear's name */
    const char *kind; /* "x", "w", "dy" */
    const char *role; /* of x and dy, by the axis that is summed over: "fprop", "dgrad", "wgrad";
                         NULL: of both GEMMs that have this operand, or of w */
} f8_operand_name_parts;

/* False for a name that is no operand's. */
bool f8_operand_name_split(const char *name, f8_operand_name_parts *out);

#endif
