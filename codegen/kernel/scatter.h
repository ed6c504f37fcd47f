/* The scatter kernel, EMBEDDING_GRAD: what every target computes, and its arguments.
 *
 *     for n in order of position: table[ids[n], :] += dy[n, :]
 *
 * Ids outside [0, V) are skipped.
 *
 * args: table f32 [V, C], ids i32 [N], dy f32 or bf16 [N, C]. ints: N, V, C, the row stride of
 * table, the row stride of dy. */
#ifndef F8_CODEGEN_KERNEL_SCATTER_H
#define F8_CODEGEN_KERNEL_SCATTER_H

enum { F8_SCATTER_INTS = 5 };

#endif
