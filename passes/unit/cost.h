/* What groups cost, estimated from the target's rates and speeds (ir/target.h): for choosing what
 * to compute again, and for `plan`. Ratios between kinds of kernels are meant to be right.
 *
 * A row program moves what its phases read and write and does the scalar operations its nodes stand
 * for; a GEMM does its operations at the rate of its operands' format, attention two products
 * forward and five backward over the pairs it sees. Each takes the longer of arithmetic and bytes
 * on a GPU, their sum on a host, and a launch besides. */
#ifndef F8_COST_H
#define F8_COST_H

#include "ir/lowered.h"
#include "ir/recipe.h"
#include "ir/target.h"

/* Scalar operations an element of a pointwise op, from its f32 form (ir/ops.def). A function counts
 * all of its operations. Of any other form, divisions, roots, and IEEE maxima and minima count; a
 * form without any of these counts 1. So does an op without a form. */
enum { F8_WORK_DIVISION = 8 }; /* what a division or a root counts */
double f8_op_work(f8_op op);

/* 10^12 operations a second of a GEMM whose operands are scaled so. 0: the target has none. */
double f8_cost_rate(const f8_rates *r, f8_scaling scaling);

/* Seconds of group `index` of func->lowered (neither places nor the order are needed). 0 for a
 * concatenation of parts that are made where it lies. */
double f8_cost_group(const f8_func *f, const f8_target *target, uint32_t index);

/* The sum over all groups. */
double f8_cost_function(const f8_func *f, const f8_target *target);

/* Seconds of computing `value` in a kernel of its own: of `node` (ascending, the last of them
 * `value`, or what it is a PROJECT of), reading from memory what of their operands is not among
 * them. */
double f8_cost_nodes(const f8_graph *g, const f8_target *target, const f8_ref *node, uint32_t n);

/* Seconds, 0 or more, that computing a value so adds to a kernel that computes phase `p` anyway:
 * `node` as above, without whole groups. What both compute, and read, is done once. F8_ERR_MEMORY.
 */
f8_status f8_cost_added(const f8_graph *g, const f8_target *target, const f8_phase *p,
                        const f8_ref *node, uint32_t n, f8_arena *scratch, f8_diag *diag,
                        double *seconds);

#endif
