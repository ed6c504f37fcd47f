/* The reference interpreter: which elements dropout drops, for attention. */
#include <math.h>

#include "codegen/reference/interp.h"

/* pcg3d of ir/num/scalar.def, its third word, written a second time. */
uint32_t f8_interp_random(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t v[3] = {a, b, c};
    for (int i = 0; i < 3; i++)
        v[i] = v[i] * 1664525u + 1013904223u;
    for (int round = 0; round < 2; round++) {
        v[0] += v[1] * v[2];
        v[1] += v[2] * v[0];
        v[2] += v[0] * v[1];
        for (int i = 0; i < 3 && round == 0; i++)
            v[i] ^= v[i] >> 16;
    }
    return v[2];
}

bool f8_interp_drops(uint32_t column, uint32_t row, uint32_t key, double p)
{
    const int64_t dropped = (int64_t)floor(p * 4294967296.0); /* of all words */
    return (int64_t)(f8_interp_random(column, row, key) ^ 0x80000000u) < dropped;
}
