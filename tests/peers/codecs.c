/* The codec and the inputs it is tested on, as a shared object for tests/peers/codecs.py. */
#include "ir/num/fp8.h"
#include "tests/shared/num/codec_inputs.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT uint32_t peer_seed(void);
EXPORT uint32_t peer_chunk_size(void);
EXPORT uint32_t peer_chunks(void);
EXPORT void peer_inputs(uint32_t chunk, uint32_t *in);
/* format: 0 E4M3, 1 E5M2, 2 E8M0. Not saturating. */
EXPORT void peer_encode(int format, const uint32_t *in, uint32_t n, uint8_t *code);
EXPORT void peer_decode(int format, float value[256]);

static const f8_dtype formats[] = {F8_E4M3, F8_E5M2, F8_E8M0};

uint32_t peer_seed(void)
{
    return codec_seed;
}

uint32_t peer_chunk_size(void)
{
    return CODEC_CHUNK;
}

uint32_t peer_chunks(void)
{
    return codec_chunks();
}

void peer_inputs(uint32_t chunk, uint32_t *in)
{
    codec_inputs(chunk, in);
}

void peer_encode(int format, const uint32_t *in, uint32_t n, uint8_t *code)
{
    for (uint32_t i = 0; i < n; i++)
        code[i] = (uint8_t)f8_encode(formats[format], f8_from_bits(in[i]), false);
}

void peer_decode(int format, float value[256])
{
    for (uint32_t code = 0; code < 256; code++)
        value[code] = f8_decode(formats[format], code);
}
