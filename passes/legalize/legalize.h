/* The pass `legalize`. */
#ifndef F8_LEGALIZE_H
#define F8_LEGALIZE_H

#include "passes/unit/pass.h"

f8_status f8_pass_legalize(f8_unit *u); /* what the target's kernels and GEMMs need */

#endif
