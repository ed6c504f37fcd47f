/* The f32 that conversions to FP8 are tested on, the same for every test and every peer.
 *
 * All 2^32 with FP8C_CODECS=all in the environment, else 2^24 structured ones: for each upper half
 * of an f32 (sign, exponent, seven bits of mantissa: a bf16 value) 256 lower halves. These are 0,
 * every power of two, what lies at most two ulp from them and from the next upper half, then
 * others spread over all 2^16 by `codec_seed`. Every border between two codes is an upper half with
 * 0 or 1 below it, so all ties and their neighbours, all bf16 values, subnormals, infinities and
 * NaNs with many payloads are among them. */
#ifndef F8_TESTS_CODEC_INPUTS_H
#define F8_TESTS_CODEC_INPUTS_H

#include <stdbool.h>
#include <stdint.h>

enum { CODEC_CHUNK = 1 << 20 };

bool codec_all(void); /* all 2^32 */
uint32_t codec_chunks(void);
void codec_inputs(uint32_t chunk, uint32_t *in); /* CODEC_CHUNK bit patterns */
extern const uint32_t codec_seed;

#endif
