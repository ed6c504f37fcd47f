/* amax and quantize by blocks (ir/num/granularity.h), in primitives: see blocks.c. */
#ifndef F8_BLOCKS_H
#define F8_BLOCKS_H

#include "ir/num/granularity.h"
#include "ir/ir.h"

/* amax of x (f32 or bf16) in each block: f8_granularity_type's shape, f32. */
f8_ref f8_amax_of(f8_graph *g, f8_ref x, f8_granularity grain);

/* Whether kernels spread scales of this granularity themselves (quantize and dequantize stay as
 * they are). */
bool f8_blocks_are_primitive(f8_granularity grain);

/* encode(x * s): s has a number for each block. `attr` are quantize's format and saturate. */
f8_ref f8_quantize_blocks(f8_graph *g, f8_ref x, f8_ref s, f8_granularity grain,
                          const f8_attr attr[2]);
/* decode(q) * s in f32; s is f32 or E8M0. */
f8_ref f8_dequantize_blocks(f8_graph *g, f8_ref q, f8_ref s, f8_granularity grain);

/* s [blocks, ..], a number for each block of b rows, as [rows, ..] with the other axes in one. */
f8_ref f8_spread_rows(f8_graph *g, f8_ref s, int64_t b, int64_t rows);

#endif
