/* The pass `instrument`: entry points that watch the operands and results of the linears' GEMMs. */
#ifndef F8_INSTRUMENT_H
#define F8_INSTRUMENT_H

#include "passes/unit/pass.h"

/* micro_step.stats and micro_step.dump, and further results of micro_step, where the options ask
 * for them. F8_ERR_INPUT: a pattern matches nothing. */
f8_status f8_pass_instrument(f8_unit *u);

#endif
