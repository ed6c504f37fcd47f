/* The pipeline, and its passes of one file. */
#ifndef F8_PIPELINE_H
#define F8_PIPELINE_H

#include "passes/unit/pass.h"

/* Run the whole pipeline over the module's `forward` function. */
f8_status f8_run_passes(f8_unit *u);
/* Names of the passes in order; NULL past the end. */
const char *f8_pass_name(size_t index);

f8_status f8_pass_ids(f8_unit *u); /* casts i64 values to i32 where they come in */
/* forward: activations to the recipe's dtype, linears to matmul with role fprop and a name */
f8_status f8_pass_precision(f8_unit *u);
f8_status f8_pass_chunk(f8_unit *u); /* the head and its cross-entropy, chunk by chunk of rows */
f8_status f8_pass_decompose(f8_unit *u);    /* composites to primitives */
f8_status f8_pass_canonicalize(f8_unit *u); /* rewrites, CSE by hash-consing, DCE */

#endif
