/* Small matrix kernels inside a module: register-blocked products, packing, storing.
 *
 * All work on f32 in scratch memory, in vectors of 16 whatever the machine; AVX2 holds one in two
 * registers. Each element of a result is one chain of fused multiply-adds in order of depth. So the
 * bits do not depend on tile sizes or on the width of the vectors.
 *
 * Each f8_mk_* makes one internal function of the module and returns it. */
#ifndef F8_CODEGEN_CPU_MICROKERNEL_H
#define F8_CODEGEN_CPU_MICROKERNEL_H

#include "codegen/cpu/llvm.h"

enum {
    F8_MK_LANES = 16,
    F8_MK_BLOCK = 48, /* rows of a block: whole tiles of 6, 8 or 16 rows, and whole vectors */
};

/* Which part of a block product c[row][:] = sum over depth of a[row][depth] * b[depth][:] is
 * computed. The triangles are exact, not masked: a factor outside them is never read, so a NaN
 * there has no effect. */
typedef enum f8_mk_part {
    F8_MK_FULL,
    F8_MK_UPTO, /* depth <= row */
    F8_MK_FROM, /* depth >= row */
} f8_mk_part;

typedef enum f8_mk_init {
    F8_MK_ZERO,  /* c = product */
    F8_MK_ADD,   /* c = c + product */
    F8_MK_SCALE, /* c = c * factor[row] + product */
} f8_mk_init;

typedef struct f8_mk_gemm {
    f8_mk_part part;
    f8_mk_init init;
    int width;                        /* columns, in vectors, 1..4 (see f8_mk_width) */
    int64_t a_row, a_depth;           /* elements between a's rows and along its depth */
    int64_t b_depth, c_row;           /* elements between b's and c's rows */
} f8_mk_gemm;

/* The widest product, at most `vectors` wide, that the registers of this machine hold well.
 * Products of this width split `vectors` into about equal parts. */
int f8_mk_width(const f8_llvm_module *m, int vectors);

/* void(ptr c, ptr a, ptr b, i64 rows, i64 depth, ptr factor): rows is rounded up to whole tiles,
 * at most F8_MK_BLOCK. factor, f32[rows], is read with F8_MK_SCALE only. */
LLVMValueRef f8_mk_gemm_function(f8_llvm_module *m, const char *name, const f8_mk_gemm *g);

/* void(ptr to, ptr from, i64 rows): to f32[48][columns rounded up to 16] = from
 * dtype[rows][columns], `stride` elements between its rows; zeros elsewhere. dtype is F32 or
 * BF16. */
LLVMValueRef f8_mk_pack_function(f8_llvm_module *m, const char *name, f8_dtype dtype,
                                 int64_t columns, int64_t stride);

/* void(ptr to, ptr from): to f32[padded][48] = transpose of from f32[48][padded]; padded % 16 ==
 * 0. */
LLVMValueRef f8_mk_transpose_function(f8_llvm_module *m, const char *name, int64_t padded);

/* void(ptr to, ptr from, i64 rows, ptr factor): to dtype[rows][columns] = from f32[rows][padded] *
 * factor[row], rounded to nearest even; `stride` elements between to's rows. */
LLVMValueRef f8_mk_store_function(f8_llvm_module *m, const char *name, f8_dtype dtype,
                                  int64_t columns, int64_t stride);

#endif
