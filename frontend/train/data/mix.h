/* Numbers that look random, from a number: the draws of batches. */
#ifndef F8_MIX_H
#define F8_MIX_H

#include <stdint.h>

static inline uint64_t f8_mix(uint64_t x) /* splitmix64 */
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
