/* The attention kernels' text inside the library: the files themselves (cuda_attention_parts.h). */
#include "codegen/cuda_attention_parts.h"

#define TEXT(NAME, FILE)                                                                           \
    __asm__(".section .rodata\n"                                                                   \
            ".global " #NAME "\n"                                                                  \
            ".hidden " #NAME "\n"                                                                  \
            ".type " #NAME ", @object\n" #NAME ":\n"                                               \
            ".incbin \"codegen/" FILE "\"\n"                                                       \
            ".byte 0\n"                                                                            \
            ".size " #NAME ", . - " #NAME "\n"                                                     \
            ".previous\n");

TEXT(f8_cuda_attention_common, "cuda_attention.cuh")
TEXT(f8_cuda_attention_forward, "cuda_attention_forward.cuh")
TEXT(f8_cuda_attention_backward, "cuda_attention_backward.cuh")
TEXT(f8_cuda_attention_f32, "cuda_attention_f32.cuh")
