/* Time that passes, for statistics: what is computed never depends on it. */
#ifndef F8_CLOCK_H
#define F8_CLOCK_H

#include <time.h>

/* Seconds since some moment; unlike the time of day they never go back. */
static inline double f8_seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
