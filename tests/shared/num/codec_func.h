/* The conversions as a module that targets compile: a chunk of f32 in, the codes of every
 * conversion out. */
#ifndef F8_TESTS_CODEC_FUNC_H
#define F8_TESTS_CODEC_FUNC_H

#include "tests/shared/passes/passes.h"
#include "tests/shared/num/codec_inputs.h"
#include "tests/shared/num/codec_oracle.h"

/* x f32[CODEC_CHUNK] as a matrix -> result i in the format of codec_ways[i]. A module of its own in
 * u->arena, u->diag and u->options set before, with all passes run that f8_build_plan needs. Fails
 * the running Check test on an error. */
void codec_func(f8_unit *u);

#endif
