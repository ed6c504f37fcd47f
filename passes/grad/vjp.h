/* Derivative rules: for each op, the cotangents of its operands from the cotangent of its result.
 *
 * A rule is `vjp_<name>(g, y, dy, dx)`, named by the vjp column of ops.def. y is the node (or its
 * first result), dy its cotangent (shape and dtype of y), and dx has one zeroed entry per operand.
 * A rule fills dx[i] with a value of operand i's shape, in f32 or in the operand's dtype (autodiff
 * rounds, once, where the operand is narrower), or leaves 0 where the derivative is zero. It may
 * compute more than is needed; unused nodes are dropped. A failure is left in the graph's diag. */
#ifndef F8_VJP_H
#define F8_VJP_H

#include "ir/ir.h"

void f8_vjp(f8_graph *g, f8_ref y, f8_ref dy, f8_ref *dx);

/* The cotangent of a whole value, where `dy` is the cotangent of its slice [start, stop) of `axis`:
 * dy with zeros around it. */
f8_ref f8_vjp_pad(f8_graph *g, f8_ref dy, const f8_type *whole, int64_t axis, int64_t start,
                  int64_t stop);

#endif
