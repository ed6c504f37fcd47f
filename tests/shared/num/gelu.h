/* GELU by its definitions, in double precision (Hendrycks & Gimpel, arXiv 1606.08415). */
#ifndef TEST_GELU_H
#define TEST_GELU_H

#include <math.h>

/* erfc keeps its digits where x is far below 0. */
static inline double test_gelu_erf(double x)
{
    return x / 2 * erfc(-x / sqrt(2));
}

/* What tanh gets. */
static inline double test_gelu_inner(double x)
{
    return sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
}

static inline double test_gelu_tanh(double x)
{
    return x / 2 * (1 + tanh(test_gelu_inner(x)));
}

#endif
