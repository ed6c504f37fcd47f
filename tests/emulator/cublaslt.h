/* The contents of the cuBLASLt stand-in's descriptors, and the products that it supports. */
#ifndef F8_EMU_CUBLASLT_H
#define F8_EMU_CUBLASLT_H

#include "tests/emulator/api.h"

#include <stdbool.h>

enum { F8_EMU_LT_ALIGNED = 16 }; /* bytes: where FP8 operands begin, and their rows */

struct f8_cublaslt_matmul_desc {
    int compute, scale_type, trans_a, trans_b, epilogue, fast, bias_type, mode_a, mode_b;
    const void *scale_a, *scale_b, *bias;
};

struct f8_cublaslt_layout {
    int type;
    int64_t rows, columns, stride, batch, next; /* next: elements to the batch's next matrix */
};

typedef struct f8_emu_lt_problem {
    const struct f8_cublaslt_matmul_desc *desc;
    const struct f8_cublaslt_layout *a, *b, *c, *d;
    int sm;
    int64_t m, n, k;
} f8_emu_lt_problem;

/* NOT_SUPPORTED, with a note that says why. */
cublasStatus_t f8_emu_lt_refuse(const char *why);
/* Fills in m, n and k; INVALID_VALUE when the extents don't agree. */
cublasStatus_t f8_emu_lt_shape(f8_emu_lt_problem *p);
/* What no algorithm does is refused. */
cublasStatus_t f8_emu_lt_check(const f8_emu_lt_problem *p);

static inline bool f8_emu_lt_is_fp8(int type)
{
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

#endif
