/* The scatter kernel of CUDA: EMBEDDING_GRAD, with the arguments and integers of
 * codegen/kernel/scatter.h.
 *
 * A row of the table gets its additions in the order of positions, so one block must make them all.
 * A task is F8_CUDA_SCATTER_POSITIONS positions. Each warp finds out whether its position is the
 * first one of its id. For each that is, the whole block collects the later positions of that id in
 * order and adds their rows, with the sums in registers. Rows of different ids never meet. */
#ifndef F8_CODEGEN_CUDA_SCATTER_H
#define F8_CODEGEN_CUDA_SCATTER_H

#include "codegen/cuda/emit.h"

enum { F8_CUDA_SCATTER_POSITIONS = 8 };

/* dy: f32 or bf16, else F8_ERR_UNSUPPORTED. */
f8_status f8_cuda_scatter_emit(f8_text *t, f8_dtype dy, const char *symbol, f8_cuda_launch *out,
                               f8_diag *d);
int64_t f8_cuda_scatter_tasks(int64_t positions);

#endif
