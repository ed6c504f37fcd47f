/* A clock for statistics. No result that is computed depends on it. */
#ifndef F8_CLOCK_H
#define F8_CLOCK_H

#include <time.h>

/* Seconds since an arbitrary moment. They never go back, as the time of day may. */
static inline double f8_seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
