/* What groups cost, estimated from the target's rates: for choosing what to compute again, and for `plan`.
 *
 * A kernel takes the longer of moving its bytes and doing its arithmetic, a GEMM its operations at the rate of its
 * operands' format, attention its operations; each a launch besides. */
#ifndef F8_COST_H
#define F8_COST_H

#include "ir/program.h"
#include "ir/target.h"

/* Seconds of group `index` of func->program (neither places nor the order are needed). 0 for a concatenation of parts
 * that are made where it lies. */
double f8_cost_group(const f8_func *f, const f8_target *target, uint32_t index);

/* Seconds of computing `value` in a kernel of its own: of `node` (ascending, the last of them `value`, or what it is a
 * PROJECT of), reading from memory what of their operands is not among them. */
double f8_cost_nodes(const f8_graph *g, const f8_target *target, const f8_ref *node, uint32_t n);

#endif
