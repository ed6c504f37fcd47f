/* The .cuh files inside the library: see text.h. */
#include "codegen/cuda/text.h"

/* The assembler includes the file itself, so there is one copy of it. The Makefile knows that this
 * object depends on all of these files. */
#define EMBED(NAME, FILE)                                                                          \
    __asm__(".section .rodata\n"                                                                   \
            ".global " #NAME "\n"                                                                  \
            ".hidden " #NAME "\n"                                                                  \
            ".type " #NAME ", @object\n" #NAME ":\n"                                               \
            ".incbin \"codegen/cuda/" FILE "\"\n"                                                  \
            ".byte 0\n"                                                                            \
            ".size " #NAME ", . - " #NAME "\n"                                                     \
            ".previous\n");

EMBED(f8_cuda_header, "fp8c.cuh")
EMBED(f8_cuda_divide_text, "divide.cuh")
EMBED(f8_cuda_rows_text, "rows.cuh")
EMBED(f8_cuda_attention_common, "attention.cuh")
EMBED(f8_cuda_attention_forward, "attention_forward.cuh")
EMBED(f8_cuda_attention_backward, "attention_backward.cuh")
EMBED(f8_cuda_attention_f32, "attention_f32.cuh")
