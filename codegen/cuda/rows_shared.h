/* What a row kernel has in shared memory: tiles, values that threads keep for themselves, and rings
 * of what rows are loaded from. print.h says what they are. Internal to rows_layout.c. */
#ifndef F8_CODEGEN_CUDA_ROWS_SHARED_H
#define F8_CODEGEN_CUDA_ROWS_SHARED_H

#include "codegen/cuda/print.h"

/* The bytes that the blocks of a multiprocessor may have in all. */
int64_t f8_cuda_shared_most(const f8_target *target);

/* The bytes of one stage's tiles: of the stage that needs most. */
int64_t f8_cuda_tile_bytes(const f8_kernel *k, const f8_cuda_layout *l);

/* Rows that are not whole would be read again, from memory, to recompute what is kept near. Values
 * are kept instead behind l->shared, where there is room: first those that are bf16, then f32. */
void f8_cuda_keep_own(const f8_target *target, const f8_kernel *k, f8_cuda_layout *l);

/* Lets rows come through a ring, if shared memory has room for two chunks a row beside what is kept
 * there. Tiles are of two or three vectors where there is room, so that more threads have columns to
 * add, and so are chunks; then there are two sets of tiles. false: there is no ring, and nothing
 * changes. */
bool f8_cuda_choose_ring(const f8_target *target, const f8_kernel *k, f8_cuda_layout *l);

#endif
