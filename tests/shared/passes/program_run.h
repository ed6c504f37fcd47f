/* Runs a placed program as it stands: kernels by their descriptions (kernel_desc.h), every other
 * group by the reference interpreter's ops, all of it in one arena at the places that memory chose.
 * What it computes must be what the interpreter computes of the graph, bit by bit: GEMMs too, as
 * both sum alike. */
#ifndef F8_TESTS_PROGRAM_RUN_H
#define F8_TESTS_PROGRAM_RUN_H

#include "ir/lowered.h"
#include "ir/target.h"

/* in, out: by port, as f8_reference_run takes them (ports of variables included). */
f8_status f8_program_run(const f8_func *f, const f8_target *target, const void *const *in,
                         void *const *out, f8_diag *diag);

#endif
