/* The text of CUDA kernels: under construction, and the files that every kernel's text is built on. */
#ifndef F8_CODEGEN_CUDA_TEXT_H
#define F8_CODEGEN_CUDA_TEXT_H

#include "ir/status.h"

/* Text under construction, in an arena; failure sticks in the arena. */
typedef struct f8_text {
    f8_arena *arena;
    char *s;
    size_t n, room;
} f8_text;
void f8_text_add(f8_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Files of this folder, each NUL-terminated. */
extern const char f8_cuda_header[];    /* fp8c.cuh */
extern const char f8_cuda_rows_text[]; /* cuda_rows.cuh */
/* cuda_attention*.cuh. Each guards itself against being given twice. */
extern const char f8_cuda_attention_common[], f8_cuda_attention_forward[],
    f8_cuda_attention_backward[], f8_cuda_attention_f32[];

#endif
