/* Copies that are not contiguous, as CUDA kernels: strided ones, and transposes through shared
 * memory.
 *
 *     args: from, to (no overlap); ints: see f8_cuda_copy_describe
 *
 * Runs: contiguous, short ones; many of them may be one launch. Strided: threads walk all accesses
 * of `access` bytes in the order of `to`. Transposing: `from` runs on along one axis and `to` along
 * another; tiles of both go through shared memory, so that either side is read or written in whole
 * sectors. */
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

/* Choose a kernel: desc, run-time integers and tasks. Offsets are where the two sides begin, in
 * bytes from something aligned to 16. */
void f8_cuda_copy_describe(const f8_copy_axes *axes, int64_t from_offset, int64_t to_offset,
                           f8_copy_desc *desc, f8_copy_kernel *out);
/* The desc as a unit's text: equal text, equal kernel. */
const char *f8_cuda_copy_text(f8_arena *arena, const f8_copy_desc *desc);
/* `multi`: the multi-tensor form, of runs only. */
void f8_cuda_copy_emit(f8_text *t, const f8_copy_desc *desc, bool multi, const char *symbol,
                       f8_cuda_launch *out);
uint32_t f8_cuda_copy_most_instances(const f8_copy_desc *desc);

#endif
