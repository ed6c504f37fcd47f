/* The .cuh files, which the text of CUDA kernels is built on, inside the library. */
#ifndef F8_CODEGEN_CUDA_TEXT_H
#define F8_CODEGEN_CUDA_TEXT_H

#include "codegen/kernel/text.h"

/* Files of this folder, each NUL-terminated. */
extern const char f8_cuda_header[];      /* fp8c.cuh */
extern const char f8_cuda_divide_text[]; /* divide.cuh, which rows.cuh needs before it */
extern const char f8_cuda_rows_text[];   /* rows.cuh */
extern const char f8_cuda_ring_text[];   /* ring.cuh */
/* attention*.cuh. Each has a guard, so a text may include it twice. */
extern const char f8_cuda_attention_common[], f8_cuda_attention_masks[],
    f8_cuda_attention_forward[], f8_cuda_attention_backward[], f8_cuda_attention_f32[];

/* The text of an image is given to NVRTC with the header beside it: its first line includes it.
 * `dependent`: kernels that may be launched before the one ahead has ended; then a line before that
 * defines F8_DEPENDENT_LAUNCH (fp8c.cuh). */
void f8_cuda_text_begin(f8_text *t, bool dependent);
/* Such a text with the header in place of that line, in the arena: it compiles as it is. NULL if
 * `text` is. */
char *f8_cuda_text_whole(f8_arena *arena, const char *text);

#endif
