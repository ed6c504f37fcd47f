/* What groups cost, estimated from the target's rates and speeds (ir/target.h): for choosing what
 * to recompute, and for `plan`. Ratios between kinds of kernels are meant to be right.
 *
 * A row kernel moves what its phases read and write, and does the scalar operations of its nodes. A
 * GEMM does its operations at the rate of its operands' format; attention does two products forward
 * and five backward over the pairs that it sees. Each takes the longer of arithmetic and bytes on a
 * GPU, their sum on a host, and a launch in addition. */
#ifndef F8_COST_H
#define F8_COST_H

#include "ir/lowered.h"
#include "ir/recipe.h"
#include "ir/target.h"

/* Scalar operations per element of a pointwise op, from its f32 form (ir/ops.def). A scalar
 * function counts all of its operations. In any other form, divisions, roots, and IEEE maxima and
 * minima count. A form without any of these counts 1, and so does an op without a form. */
enum { F8_WORK_DIVISION = 8 }; /* what a division or a root counts */
double f8_op_work(f8_op op);

/* 10^12 operations a second of a GEMM whose operands are scaled so. 0: the target has no such GEMM.
 */
double f8_cost_rate(const f8_rates *r, f8_scaling scaling);

/* Seconds of group `index` of func->lowered; neither places nor the order are needed. 0 for a
 * concatenation whose parts are computed in place. */
double f8_cost_group(const f8_func *f, const f8_target *target, uint32_t index);

/* The sum over all groups. */
double f8_cost_function(const f8_func *f, const f8_target *target);

/* Writes into each group what it is estimated to cost, for who looks on. Returns the sum of
 * seconds. */
double f8_cost_note(f8_func *f, const f8_target *target);

/* Seconds of computing a value in a kernel of its own. `node` lists the nodes to compute,
 * ascending; the last is the value, or what it is a PROJECT of. Operands that are not in the list
 * are read from memory. */
double f8_cost_nodes(const f8_graph *g, const f8_target *target, const f8_ref *node, uint32_t n);

/* Seconds, 0 or more, that a kernel takes longer if it also computes a value, where it computes
 * phase `p` anyway. `node` as above, without whole groups. What both compute or read is done once.
 * F8_ERR_MEMORY. */
f8_status f8_cost_added(const f8_graph *g, const f8_target *target, const f8_phase *p,
                        const f8_ref *node, uint32_t n, f8_arena *scratch, f8_diag *diag,
                        double *seconds);

#endif
