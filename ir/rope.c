/* Tables of rotary embeddings: see rope.h. libm's double functions are within an ulp, so all but
 * about one value in 2^28 round to the nearest f32. All targets of a process share the result. */
#include "ir/rope.h"

#include <math.h>

#include "ir/internal.h"

static const double two_pi = 6.28318530717958647692;

f8_rope f8_rope_of(const f8_node *n)
{
    return (f8_rope){.base = f8_node_attr(n, F8_A_BASE)->f,
                     .factor = f8_node_attr(n, F8_A_FACTOR)->f,
                     .low = f8_node_attr(n, F8_A_LOW_FREQ_FACTOR)->f,
                     .high = f8_node_attr(n, F8_A_HIGH_FREQ_FACTOR)->f,
                     .original = (double)f8_node_attr(n, F8_A_ORIGINAL_MAX_POSITION)->i};
}

void f8_rope_attrs(const f8_rope *r, f8_attr attr[F8_ROPE_ATTRS])
{
    attr[0] = F8_FLOAT(F8_A_BASE, r->base);
    attr[1] = F8_FLOAT(F8_A_FACTOR, r->factor);
    attr[2] = F8_FLOAT(F8_A_LOW_FREQ_FACTOR, r->low);
    attr[3] = F8_FLOAT(F8_A_HIGH_FREQ_FACTOR, r->high);
    attr[4] = F8_INT(F8_A_ORIGINAL_MAX_POSITION, (int64_t)r->original);
}

/* The angle by which pair i of a head of `size` elements turns a position. */
static double frequency(int64_t i, int64_t size, const f8_rope *r)
{
    const double f = pow(r->base, -2.0 * (double)i / (double)size);
    if (r->factor == 1)
        return f;
    const double turns = r->original * f / two_pi;
    if (turns < r->low)
        return f / r->factor;
    if (turns > r->high)
        return f;
    const double smooth = (turns - r->low) / (r->high - r->low);
    return (1 - smooth) * f / r->factor + smooth * f;
}

double f8_rope_entry(f8_op op, int64_t t, int64_t d, int64_t size, const f8_rope *r)
{
    const int64_t half = size / 2;
    const double angle = (double)t * frequency(d % half, size, r);
    if (op == F8_OP_ROPE_COS)
        return cos(angle);
    return d < half ? -sin(angle) : sin(angle);
}

void f8_rope_table(f8_op op, int64_t rows, int64_t size, const f8_rope *r, float *out)
{
    for (int64_t t = 0; t < rows; t++)
        for (int64_t d = 0; d < size; d++)
            out[t * size + d] = (float)f8_rope_entry(op, t, d, size, r);
}

f8_status f8_infer_rope_table(f8_graph *g, const f8_node *n)
{
    const f8_rope r = f8_rope_of(n);
    if (!(r.base > 0) || !isfinite(r.base))
        return f8_infer_fail(g, n, NULL, "base = %g is not positive", r.base);
    if (!(r.factor >= 1) || !isfinite(r.factor))
        return f8_infer_fail(g, n, NULL, "factor = %g is not 1 or more", r.factor);
    if (!(r.low > 0) || !(r.high > r.low) || !isfinite(r.high))
        return f8_infer_fail(g, n, NULL,
                             "low_freq_factor = %g must be positive, and high_freq_factor = %g "
                             "greater",
                             r.low, r.high);
    if (r.original < 1)
        return f8_infer_fail(g, n, NULL, "original_max_position = %.0f is not positive",
                             r.original);
    return F8_OK;
}
