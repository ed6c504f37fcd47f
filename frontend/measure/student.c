/* Student's t distribution: see student.h. */
#include "frontend/measure/student.h"

#include <math.h>

enum { MOST_STEPS = 10000 };

static double not_zero(double x)
{
    return fabs(x) < 1e-300 ? 1e-300 : x;
}

/* The continued fraction of the incomplete beta function (DLMF 8.17.22) by the modified method of
 * Lentz (1976), which goes on from the front and never divides by 0. It converges fast for x below
 * (a + 1) / (a + b + 2). */
static double fraction(double x, double a, double b)
{
    double c = 1, d = 0, f = 1;
    for (int step = 1; step <= MOST_STEPS; step++) {
        const int m = step / 2;
        const double term = step % 2 ? -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
                                     : m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        d = 1 / not_zero(1 + term * d);
        c = not_zero(1 + term / c);
        f *= c * d;
        if (fabs(c * d - 1) < 3e-16)
            break;
    }
    return 1 / f;
}

/* The regularized incomplete beta function I_x(a, b), where `y` is 1 - x. */
static double beta(double x, double y, double a, double b)
{
    int sign;
    if (!(x > 0))
        return isnan(x) ? x : 0;
    if (!(y > 0))
        return 1;
    const double scale = lgamma_r(a + b, &sign) - lgamma_r(a, &sign) - lgamma_r(b, &sign);
    const double front = exp(scale + a * log(x) + b * log(y));
    return x < (a + 1) / (a + b + 2) ? front * fraction(x, a, b) / a
                                     : 1 - front * fraction(y, b, a) / b;
}

double f8_student_p(double t, double freedom)
{
    const double square = t * t / freedom;
    return isinf(square) ? 0 : beta(1 / (1 + square), square / (1 + square), freedom / 2, 0.5);
}

double f8_student_t(double level, double freedom)
{
    double low = 0, high = 1;
    while (1 - f8_student_p(high, freedom) < level && high < 1e300)
        high *= 2;
    for (int i = 0; i < 200 && low < high; i++) {
        const double middle = low + (high - low) / 2;
        if (1 - f8_student_p(middle, freedom) < level)
            low = middle;
        else
            high = middle;
    }
    return high;
}
