/* Runs a lowered function: kernels by their descriptions (kernel_desc.h), every other group by the
 * interpreter's ops, in one arena at the places that `memory` chose. The results have the
 * interpreter's bits, also those of GEMMs, since both sum in the same order. */
#ifndef F8_TESTS_PROGRAM_RUN_H
#define F8_TESTS_PROGRAM_RUN_H

#include "ir/lowered.h"
#include "ir/target.h"

/* in, out: by port, as f8_reference_run takes them (ports of variables included). */
f8_status f8_program_run(const f8_func *f, const f8_target *target, const void *const *in,
                         void *const *out, f8_diag *diag);

#endif
