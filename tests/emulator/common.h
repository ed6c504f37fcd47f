/* What all stand-ins share: the environment, failures on request, notes, a hash. Each library has
 * its own copy of common.c. The environment is read at every call, so that a test can change it. */
#ifndef F8_EMU_COMMON_H
#define F8_EMU_COMMON_H

#include "tests/emulator/api.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The integer in an environment variable, or `otherwise`. */
int64_t f8_emu_setting(const char *name, int64_t otherwise);

/* FP8C_EMULATOR_FAIL=<function>[:n[:code]]: whether this call of `function` is the one to fail,
 * counted from when the variable got its present value. A version's suffix (_v2) may be left out.
 * *code: the one asked for, else as it was. */
bool f8_emu_fails(const char *function, int *code);

/* To stderr if FP8C_EMULATOR_VERBOSE is set. */
void f8_emu_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

uint64_t f8_emu_hash(uint64_t seed, const void *bytes, size_t n); /* FNV-1a, by words */

#endif
