/* Text under construction, and the files of text inside the library: see cuda_text.h. */
#include "codegen/cuda_text.h"

#include <stdarg.h>

#include "ir/format.h"

/* The assembler takes in the file itself, so there is one copy. The Makefile knows that this object
 * depends on all of these files. */
#define EMBED(NAME, FILE)                                                                          \
    __asm__(".section .rodata\n"                                                                   \
            ".global " #NAME "\n"                                                                  \
            ".hidden " #NAME "\n"                                                                  \
            ".type " #NAME ", @object\n" #NAME ":\n"                                               \
            ".incbin \"codegen/" FILE "\"\n"                                                       \
            ".byte 0\n"                                                                            \
            ".size " #NAME ", . - " #NAME "\n"                                                     \
            ".previous\n");

EMBED(f8_cuda_header, "fp8c.cuh")
EMBED(f8_cuda_rows_text, "cuda_rows.cuh")
EMBED(f8_cuda_attention_common, "cuda_attention.cuh")
EMBED(f8_cuda_attention_forward, "cuda_attention_forward.cuh")
EMBED(f8_cuda_attention_backward, "cuda_attention_backward.cuh")
EMBED(f8_cuda_attention_f32, "cuda_attention_f32.cuh")

void f8_text_add(f8_text *t, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = f8_vformat(NULL, 0, format, args);
    va_end(args);
    char *grown = n < 0 ? NULL : f8_arena_grow(t->arena, t->s, t->n, &t->room, t->n + (size_t)n + 1, 1);
    if (grown) {
        t->s = grown;
        f8_vformat(t->s + t->n, (size_t)n + 1, format, again);
        t->n += (size_t)n;
    }
    va_end(again);
}
