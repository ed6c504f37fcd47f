/* Reductions of row programs as LLVM IR: sums and maxima of rows, maxima of blocks of columns, and
 * what is reduced over the rows of a block. Internal to the CPU's printer; cpu_rows.c has the loops
 * around them. */
#ifndef F8_CODEGEN_CPU_REDUCE_H
#define F8_CODEGEN_CPU_REDUCE_H

#include "codegen/cpu/print.h"

/* Words of a row in scratch: whole vectors of the widest kind. */
int64_t f8_cpu_padded(int64_t cols);
LLVMValueRef f8_cpu_const_mask(f8_llvm_module *m, int64_t count); /* of the first lanes */

/* SUM n of a row: its lanes in scratch; one vector at p->column more; the sum. */
void f8_cpu_start_sum(f8_cpu_printer *p, uint32_t n);
void f8_cpu_add_to_sum(f8_cpu_printer *p, uint32_t n, LLVMValueRef x);
LLVMValueRef f8_cpu_finish_sum(f8_cpu_printer *p, uint32_t n);

/* MAX and AMAX are carried through the loop over columns as a vector; AMAX as bits without the
 * sign. */
bool f8_cpu_carried(const f8_kinstr *i);
LLVMValueRef f8_cpu_max_identity(f8_llvm_module *m, uint8_t op);
LLVMValueRef f8_cpu_join_max(f8_llvm_module *m, uint8_t op, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef f8_cpu_without_sign(f8_llvm_module *m, LLVMValueRef x);
LLVMValueRef f8_cpu_finish_max(f8_cpu_printer *p, uint8_t op, LLVMValueRef v); /* of its lanes */

/* blocks[n] of BLOCKAMAX n, once all magnitudes of the row are in sizes[n]. */
void f8_cpu_finish_blocks(f8_cpu_printer *p, uint32_t n);

/* The accumulators of blocks of `block` rows: no rows yet; and to row `at` of the results. */
void f8_cpu_start_partials(f8_cpu_printer *p, int64_t block);
void f8_cpu_store_partials(f8_cpu_printer *p, int64_t block, LLVMValueRef at);

#endif
