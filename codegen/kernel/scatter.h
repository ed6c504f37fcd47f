/* The scatter kernel, EMBEDDING_GRAD: what every target computes, and the arguments it gets.
 *
 *     for n in order of position: table[ids[n], :] += dy[n, :]
 *
 * Ids outside [0, V) are skipped.
 *
 * args: table f32 [V, C], ids i32 [N], dy [N, C] (f32 or bf16); ints: N, V, C, row stride of table,
 * of dy. */
#ifndef F8_CODEGEN_KERNEL_SCATTER_H
#define F8_CODEGEN_KERNEL_SCATTER_H

enum { F8_SCATTER_INTS = 5 };

#endif
