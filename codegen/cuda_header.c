/* fp8c.cuh inside the library: the file itself, taken in by the assembler, so that there is one copy. */
#include "codegen/cuda.h"

__asm__(".section .rodata\n"
        ".global f8_cuda_header\n"
        ".hidden f8_cuda_header\n"
        ".type f8_cuda_header, @object\n"
        "f8_cuda_header:\n"
        ".incbin \"codegen/fp8c.cuh\"\n"
        ".byte 0\n"
        ".size f8_cuda_header, . - f8_cuda_header\n"
        ".previous\n");
