/* A small random number generator, for tests whose data need a seed and nothing more. */
#ifndef F8_TESTS_RANDOM_H
#define F8_TESTS_RANDOM_H

#include <stdint.h>

/* The next 24 bits. */
static inline uint32_t test_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

#endif
