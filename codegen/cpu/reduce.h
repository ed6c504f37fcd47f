/* Reductions of row kernels as LLVM IR: sums and maxima of rows, maxima of blocks of columns, and
 * reductions over the rows of a block. rows.c has the loops around them. Internal to the printer
 * for the CPU. */
#ifndef F8_CODEGEN_CPU_REDUCE_H
#define F8_CODEGEN_CPU_REDUCE_H

#include "codegen/cpu/print.h"

/* Words of a row in scratch, rounded up to the widest vector. */
int64_t f8_cpu_padded(int64_t cols);
/* true in the first `count` lanes */
LLVMValueRef f8_cpu_const_mask(f8_llvm_module *m, int64_t count);

/* Whether instruction n is a SUM whose terms are added, and not one that is picked: `pick` returns
 * such a sum. */
bool f8_cpu_adds(const f8_kernel *k, uint32_t n);
LLVMValueRef f8_cpu_pick(f8_cpu_printer *p, uint32_t n);
/* SUM n of a row: clears its lanes in scratch; adds the vector at p->column; returns the sum. */
void f8_cpu_start_sum(f8_cpu_printer *p, uint32_t n);
void f8_cpu_add_to_sum(f8_cpu_printer *p, uint32_t n, LLVMValueRef x);
LLVMValueRef f8_cpu_finish_sum(f8_cpu_printer *p, uint32_t n);

/* Whether the reduction is carried through the loop over columns as a vector: MAX, and AMAX as bits
 * without the sign. */
bool f8_cpu_carried(const f8_kinstr *i);
LLVMValueRef f8_cpu_max_identity(f8_llvm_module *m, uint8_t op);
LLVMValueRef f8_cpu_join_max(f8_llvm_module *m, uint8_t op, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef f8_cpu_without_sign(f8_llvm_module *m, LLVMValueRef x);
/* the maximum of the lanes */
LLVMValueRef f8_cpu_finish_max(f8_cpu_printer *p, uint8_t op, LLVMValueRef v);

/* Computes blocks[n] of BLOCKAMAX n, when all magnitudes of the row are in sizes[n]. */
void f8_cpu_finish_blocks(f8_cpu_printer *p, uint32_t n);

/* The accumulators of blocks of `block` rows: clears them; stores them as row `at` of the
 * results. */
void f8_cpu_start_partials(f8_cpu_printer *p, int64_t block);
void f8_cpu_store_partials(f8_cpu_printer *p, int64_t block, LLVMValueRef at);

#endif
