/* The rotation of rotary position embeddings (Su et al., arXiv 2104.09864): the tables behind the
 * ops rope_cos and rope_sin, computed in one place so that every target holds the same bits. */
#ifndef F8_ROPE_H
#define F8_ROPE_H

#include "ir/ir.h"

/* Element [t, d] of the table of `op` (F8_OP_ROPE_COS or F8_OP_ROPE_SIN), unrounded: the cosine, or
 * the sine, negated in the first half. The f32 table has each of these rounded once. */
double f8_rope_entry(f8_op op, int64_t t, int64_t d, int64_t size, double base);

/* Fill out[rows * size] with the f32 table. */
void f8_rope_table(f8_op op, int64_t rows, int64_t size, double base, float *out);

#endif
