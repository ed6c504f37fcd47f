/* Reductions over ranks, as exchanges and local arithmetic. The order of a sum follows from the
 * ranks alone: rank 0's number is the first, and the others are added one by one. So how a sum is
 * exchanged changes no bit. */
#ifndef F8_COLLECTIVES_H
#define F8_COLLECTIVES_H

#include "ir/ir.h"

/* The sum of x, f32 or bf16, over the ranks, as f32 of x's shape; `amax`: the largest magnitude, where NaN wins. A small
 * x is gathered whole. Of a large one each rank reduces a part, and the parts are gathered: the
 * bytes of a ring, 2 (ranks-1) / ranks times those of x. name: of the collectives, for listings, or
 * NULL. */
f8_ref f8_all_reduced(f8_graph *g, f8_ref x, int64_t ranks, bool amax, const char *name);
/* x of rank `root`. A small x is gathered whole. Of a large one the root sends each rank a part, and
 * the parts are gathered. */
f8_ref f8_broadcast_from(f8_graph *g, f8_ref x, int64_t ranks, int64_t root, const char *name);
/* x [ranks, n], f32 or bf16: the sum of its rows, as f32 (`amax`: their largest magnitudes), [n], from the first row to
 * the last. */
f8_ref f8_join_rows(f8_graph *g, f8_ref x, bool amax);
/* x [ranks, ..]: this rank's row of the sum, [..]. */
f8_ref f8_reduce_scattered(f8_graph *g, f8_ref x, int64_t ranks, bool amax, const char *name);

#endif
