/* Copies as CUDA kernels: strided ones, short ones, and transposes through shared memory.
 *
 * The arguments are from and to, which may not overlap; f8_cuda_copy_describe gives the integers.
 *
 * - Runs are contiguous and short; one launch may have many of them.
 * - Strided: threads walk all accesses of `access` bytes in the order of `to`.
 * - Transposing: `from` is contiguous along one axis and `to` along another. Tiles of the two axes
 *   go through shared memory, so that both sides are read and written in whole sectors. */
#ifndef F8_CODEGEN_CUDA_COPY_H
#define F8_CODEGEN_CUDA_COPY_H

#include "codegen/plan/parts.h"
#include "codegen/cuda/emit.h"

typedef enum f8_copy_kind { F8_COPY_RUN, F8_COPY_STRIDED, F8_COPY_TRANSPOSE } f8_copy_kind;

typedef struct f8_copy_desc {
    f8_copy_kind kind;
    bool wide;                  /* strided: counts need 64 bits */
    int element;                /* bytes: 1, 2, 4; strided, run: of an access, up to 16 */
    int rank;                   /* strided: axes; transposing: axes outside the two */
    int from_vector, to_vector; /* transposing: elements of one access on either side */
} f8_copy_desc;

/* Chooses the kernel for a copy: the description, the run-time integers and the number of tasks.
 * Offsets say where the two sides begin, in bytes from an address that is a multiple of 16. */
void f8_cuda_copy_describe(const f8_copy_axes *axes, int64_t from_offset, int64_t to_offset,
                           f8_copy_desc *desc, f8_copy_kernel *out);
/* The description as text: kernels with equal text are equal. */
const char *f8_cuda_copy_text(f8_arena *arena, const f8_copy_desc *desc);
/* Prints the kernel. `multi`: the multi-tensor form, which only runs have. */
void f8_cuda_copy_emit(f8_text *t, const f8_copy_desc *desc, bool multi, const char *symbol,
                       f8_cuda_launch *out);
uint32_t f8_cuda_copy_most_instances(const f8_copy_desc *desc);

#endif
