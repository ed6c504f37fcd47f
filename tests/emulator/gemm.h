/* What the cuBLASLt stand-in computes with. Column-major, as the library is:
 *     D[m, n] = alpha * scale_a * scale_b * op(A)[m, k] op(B)[k, n] + beta * C[m, n] (+ bias[m])
 * Operands are decoded exactly, sums are f32 in an order that m, n and k alone decide, D is rounded once. */
#ifndef F8_EMU_GEMM_H
#define F8_EMU_GEMM_H

#include "tests/emulator/api.h"

#include <stdbool.h>

typedef struct f8_emu_matrix {
    void *p;
    int type;       /* CUDA_R_* */
    int64_t stride; /* elements from one column to the next */
    bool transposed; /* stored as its transpose */
    const float *scale; /* NULL: 1 */
    bool scale_each;    /* a scale for each row of A, each column of B */
} f8_emu_matrix;

typedef struct f8_emu_gemm {
    int64_t m, n, k;
    f8_emu_matrix a, b, c, d;
    const void *bias; /* [m]; NULL: none */
    int bias_type;
    float alpha, beta;
} f8_emu_gemm;

int f8_emu_element(int type); /* bytes of an element; 0: not a type of ours */

/* False when memory runs out. */
bool f8_emu_gemm_run(const f8_emu_gemm *g);

#endif
