/* What every f32 is in E4M3, E5M2 and E8M0, worked out from the values of these formats alone: the
 * sorted list of them, the exact middle between neighbours, ties to the even code. It shares no
 * method with ir/num/fp8.c, which divides by the step of a binade, nor with ir/num/scalar.def,
 * which adds to bit patterns.
 *
 * As every conversion is monotone in |x|, the oracle is a few hundred runs of consecutive f32 bit
 * patterns with one code each: all 2^32 inputs can be looked at in seconds. */
#ifndef F8_TESTS_CODEC_ORACLE_H
#define F8_TESTS_CODEC_ORACLE_H

#include "ir/base/type.h"

/* Format and saturation, in every combination. */
typedef struct codec_way {
    const char *name;
    f8_dtype format;
    bool saturate;
} codec_way;
enum { CODEC_WAYS = 6 };
extern const codec_way codec_ways[CODEC_WAYS];

enum { CODEC_MAX_VALUES = 256, CODEC_MAX_RUNS = 520 };

/* Run r is the inputs from first[r] to first[r + 1] - 1, as bit patterns; first[n] is 2^32. */
typedef struct codec_oracle {
    double value[CODEC_MAX_VALUES]; /* not negative, ascending: value[c] is code c */
    uint32_t n_values;
    uint64_t first[CODEC_MAX_RUNS + 1];
    uint8_t code[CODEC_MAX_RUNS];
    uint32_t n;
} codec_oracle;

void codec_oracle_make(codec_oracle *o, const codec_way *way);

/* code[i] for the f32 whose bits are in[i]. Quick where neighbours are in one run. */
void codec_oracle_codes(const codec_oracle *o, const uint32_t *in, size_t n, uint8_t *code);

#endif
