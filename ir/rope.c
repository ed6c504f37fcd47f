/* Tables of rotary embeddings: see rope.h. libm's double functions are within an ulp, so all but
 * about one value in 2^28 round to the nearest f32. All targets of a process share the result. */
#include "ir/rope.h"

#include <math.h>

/* Angle of position t and pair i of a head of `size` elements: t * base^(-2i / size). */
static double rope_angle(int64_t t, int64_t i, int64_t size, double base)
{
    return (double)t * pow(base, -2.0 * (double)i / (double)size);
}

double f8_rope_entry(f8_op op, int64_t t, int64_t d, int64_t size, double base)
{
    const int64_t half = size / 2;
    const double angle = rope_angle(t, d % half, size, base);
    if (op == F8_OP_ROPE_COS)
        return cos(angle);
    return d < half ? -sin(angle) : sin(angle);
}

void f8_rope_table(f8_op op, int64_t rows, int64_t size, double base, float *out)
{
    for (int64_t t = 0; t < rows; t++)
        for (int64_t d = 0; d < size; d++)
            out[t * size + d] = (float)f8_rope_entry(op, t, d, size, base);
}
