/* What the library does with all options of a compile alike, by the rows of options.def. Internal to
 * frontend/. */
#ifndef F8_FRONTEND_OPTIONS_H
#define F8_FRONTEND_OPTIONS_H

#include "frontend/fp8c.h"
#include "ir/base/status.h"
#include "ir/base/hash.h"

/* F8_ERR_INPUT: an option is given without one that it needs, or with one that excludes it. */
f8_status f8_options_check(const fp8c_compile_options *o, f8_diag *diag);
/* F8_ERR_INPUT: one is given that fp8c_compile_file does not take. */
f8_status f8_options_check_file(const fp8c_compile_options *o, f8_diag *diag);

/* Copies what `o` points to into the arena, and leaves out what only a first compile needs. */
void f8_options_keep(fp8c_compile_options *own, const fp8c_compile_options *o, f8_arena *arena);

/* Of the options of the program to come, those that its calibration compiles with, under the
 * default recipe. */
fp8c_compile_options f8_options_for_calibration(const fp8c_compile_options *o);

/* Adds the values that all ranks must have alike. */
void f8_options_hash(const fp8c_compile_options *o, f8_hasher *h);

#endif
