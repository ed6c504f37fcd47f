/* What the cuBLASLt stand-in computes with. Column-major, as the library is:
 *     D[m, n] = alpha * (scale_a op(A))[m, k] (scale_b op(B))[k, n] + beta * C[m, n] (+ bias[m])
 * Operands are decoded exactly, sums are f32 in an order that m, n and k alone decide, D is rounded
 * once. Scales that vary along k multiply the elements, the others the sums. */
#ifndef F8_EMU_GEMM_H
#define F8_EMU_GEMM_H

#include "tests/emulator/api.h"

#include <stdbool.h>

typedef struct f8_emu_matrix {
    void *p;
    int type;       /* CUDA_R_* */
    int64_t stride; /* elements from one column to the next */
    bool transposed; /* stored as its transpose */
    const void *scale; /* NULL: 1 */
    int mode;     /* CUBLASLT_MATMUL_MATRIX_SCALE_*: what `scale` points to, as that lays it out */
    int64_t next; /* elements to the next matrix of a batch */
} f8_emu_matrix;

typedef struct f8_emu_gemm {
    int64_t m, n, k, batch; /* f8_emu_gemm_run does the first product of a batch */
    f8_emu_matrix a, b, c, d;
    const void *bias; /* [m]; NULL: none */
    int bias_type;
    float alpha, beta;
} f8_emu_gemm;

int f8_emu_element(int type); /* bytes of an element; 0: not a type of ours */

/* Bytes of the scales of an operand that has `outer` rows (of A) or columns (of B) and this k. */
int64_t f8_emu_scale_bytes(int mode, int64_t outer, int64_t k);
/* Whether what the layout has beyond these is zero, as it must be where the mode is VEC32_UE8M0. */
bool f8_emu_scale_padding_ok(const void *scale, int mode, int64_t outer, int64_t k);

/* False when memory runs out. */
bool f8_emu_gemm_run(const f8_emu_gemm *g);

#endif
