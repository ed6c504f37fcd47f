/* The reference target: a plain interpreter of the graph, one op at a time, no plan and no fusion.
 *
 * f8_reference_run computes in f32 with the canonical reduction orders (ir/README.md) and the
 * scalar programs: what the other targets must equal by memcmp, but for GEMM and attention, whose
 * sums are taken here in double and rounded once. f8_reference_run_f64 computes everything in
 * double with no rounding at casts: for finite differences. */
#ifndef F8_REFERENCE_H
#define F8_REFERENCE_H

#include "ir/ir.h"

/* in[i], out[i]: buffers of the function's ports, row-major, of the ports' types. Results are
 * written after everything is computed, so an out buffer may be the in buffer of the same variable.
 * Works on any verified function, composites included or decomposed. Memory comes from `allocator`
 * (NULL: the default) and is freed before the call returns; a value is freed after its last use. */
f8_status f8_reference_run(const f8_func *f, const void *const *in, void *const *out,
                           const f8_allocator *allocator, f8_diag *diag);

/* The same in double: f32, bf16 and f16 ports are buffers of double, i32 and bool ports as they
 * are. FP8 values are refused. */
f8_status f8_reference_run_f64(const f8_func *f, const void *const *in, void *const *out,
                               const f8_allocator *allocator, f8_diag *diag);

/* Evaluate one node from the values of its operands, for tests that check a target op by op:
 * value[k] are operand k's elements, result[i] receives result i. */
f8_status f8_reference_node(const f8_graph *g, f8_ref r, const void *const *value,
                            void *const *result, const f8_allocator *allocator, f8_diag *diag);

#endif
