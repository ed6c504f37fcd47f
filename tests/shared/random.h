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

/* What the op random_bits must give: pcg3d as Jarzynski & Olano print it (JCGT 9(3), 2020); its
 * third word. */
static inline uint32_t test_pcg3d(uint32_t x, uint32_t y, uint32_t z)
{
    x = x * 1664525u + 1013904223u;
    y = y * 1664525u + 1013904223u;
    z = z * 1664525u + 1013904223u;
    x += y * z;
    y += z * x;
    z += x * y;
    x ^= x >> 16u;
    y ^= y >> 16u;
    z ^= z >> 16u;
    x += y * z;
    y += z * x;
    return z + x * y;
}

#endif
