/* Compares codes, input by input, over all inputs of codec_inputs.h. */
#ifndef F8_TESTS_CODEC_RUN_H
#define F8_TESTS_CODEC_RUN_H

#include <check.h>

#include "tests/shared/num/codec_inputs.h"
#include "tests/shared/num/codec_oracle.h"

/* Codes of a chunk of f32 bit patterns; called on several threads. */
typedef void codec_fn(const codec_way *way, const uint32_t *in, uint8_t *code);

codec_fn codec_of_ir;     /* f8_encode */
codec_fn codec_of_oracle; /* codec_oracle.h */

/* Both functions over all inputs, a chunk at a time on every CPU; then codec_tally_check. */
void codec_compare(const char *who, const codec_way *way, codec_fn *got, codec_fn *want);

typedef struct codec_tally {
    uint64_t inputs, wrong;
    uint32_t bits; /* the first wrong one */
    uint8_t got, want;
} codec_tally;

void codec_tally_add(codec_tally *t, const uint32_t *in, const uint8_t *got, const uint8_t *want,
                     size_t n);
/* Prints a line; fails the running Check test unless every input was seen and none is wrong. */
void codec_tally_check(const codec_tally *t, const char *who, const codec_way *way);

/* The suite with its one case. Without FP8C_CODECS=all no test may take more than 120 s. */
Suite *codec_suite(Suite *s, TCase *t);

#endif
