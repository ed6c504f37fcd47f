/* See codec_inputs.h. */
#include "tests/shared/num/codec_inputs.h"

#include <stdlib.h>
#include <string.h>

const uint32_t codec_seed = 20260801;

bool codec_all(void)
{
    const char *s = getenv("FP8C_CODECS");
    return s && !strcmp(s, "all");
}

uint32_t codec_chunks(void)
{
    return codec_all() ? 1u << 12 : 1u << 4;
}

static uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* The k-th lower half of 256: 2^p - 2 to 2^p + 2 for p = 1 to 16, modulo 2^16; then one out of each
 * of 176 parts of 372. */
static uint32_t lower(uint32_t upper, uint32_t k)
{
    enum { NEAR = 5 * 16, PART = 0x10000 / (256 - NEAR) };
    if (k < NEAR)
        return ((2u << k / 5) + k % 5 - 2) & 0xffff;
    return (k - NEAR) * PART + mix(upper << 8 ^ k ^ codec_seed) % PART;
}

void codec_inputs(uint32_t chunk, uint32_t *in)
{
    const uint32_t base = chunk * CODEC_CHUNK;
    const bool every = codec_all();
    for (uint32_t i = 0; i < CODEC_CHUNK; i++) {
        const uint32_t upper = (base + i) >> 8;
        in[i] = every ? base + i : upper << 16 | lower(upper, (base + i) & 0xff);
    }
}
