/* The rotation of rotary position embeddings (Su et al., arXiv 2104.09864): the tables behind the
 * ops rope_cos and rope_sin, computed in one place so that every target holds the same bits. */
#ifndef F8_ROPE_H
#define F8_ROPE_H

#include "ir/ir.h"

/* The frequencies of a rotation: pair i of a head of D elements turns by base^(-2i/D) a position.
 *
 * A factor other than 1 scales them as Llama 3.1 does (rope_type "llama3" of Hugging Face). A
 * frequency f makes n = original f / 2 pi turns over the positions of the first training. Where n
 * is below low, f is divided by the factor; above high it stays; between it is
 * (1 - s) f / factor + s f, with s = (n - low) / (high - low). */
typedef struct f8_rope {
    double base, factor, low, high, original;
} f8_rope;

/* What a node of rope, rope_cos or rope_sin says, and back: these as attributes, of which there are
 * F8_ROPE_ATTRS. */
enum { F8_ROPE_ATTRS = 5 };
f8_rope f8_rope_of(const f8_node *n);
void f8_rope_attrs(const f8_rope *r, f8_attr attr[F8_ROPE_ATTRS]);

/* Element [t, d] of the table of `op` (F8_OP_ROPE_COS or F8_OP_ROPE_SIN), unrounded: the cosine, or
 * the sine, negated in the first half. The f32 table has each of these rounded once. */
double f8_rope_entry(f8_op op, int64_t t, int64_t d, int64_t size, const f8_rope *r);

/* Fill out[rows * size] with the f32 table. */
void f8_rope_table(f8_op op, int64_t rows, int64_t size, const f8_rope *r, float *out);

#endif
