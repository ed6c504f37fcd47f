/* Printing single instructions of a kernel description as LLVM IR: what cpu_rows.c's loops are
 * filled with. Internal to the CPU's printer. */
#ifndef F8_CODEGEN_CPU_PRINT_H
#define F8_CODEGEN_CPU_PRINT_H

#include "codegen/kernel/kernel.h"
#include "codegen/cpu/llvm.h"

enum { F8_CPU_UNROLL_MOST = 4 };

typedef struct f8_cpu_printer {
    f8_llvm_module *m;
    const f8_kernel *k;
    f8_ll_phase phase;
    LLVMValueRef *base; /* by buffer: its first element */
    LLVMValueRef
        *pointer; /* by buffer: this row's first element (base where there is no row term) */
    LLVMValueRef *absent;           /* by buffer: a gather's "no such row", i1; else NULL */
    LLVMValueRef *ints;             /* by run-time integer */
    LLVMValueRef *scalar;           /* by instruction: values without a column extent */
    LLVMValueRef *vector;           /* by instruction: values at p->column, valid inside one body */
    LLVMValueRef *unrolled[F8_CPU_UNROLL_MOST]; /* the same, of each vector of an unrolled body */
    LLVMValueRef *partial; /* by instruction: a column reduction's accumulator row in scratch */
    LLVMValueRef *blocks;  /* by instruction: values of blocks of columns in scratch, a word each */
    LLVMValueRef
        *sizes; /* by instruction: a BLOCKAMAX's magnitudes of a row in scratch; past its end 0 */
    bool in_blocks; /* column and mask count blocks: a vector is of so many of them */
    bool *needed;                   /* by instruction: what the current stage's loop evaluates */
    LLVMValueRef lanes;             /* row sums' lanes in scratch */
    int64_t near_row;               /* words of a near slot */
    LLVMValueRef row, column, mask; /* mask NULL: all lanes */
    int32_t stage;
} f8_cpu_printer;

/* Allocate the tables and load arguments and integers. */
f8_status f8_cpu_printer_begin(f8_cpu_printer *p, f8_arena *arena, f8_diag *d);
/* pointer[] and absent[] for p->row. */
void f8_cpu_row_pointers(f8_cpu_printer *p);

void f8_cpu_print_scalar(f8_cpu_printer *p, uint32_t n); /* fills scalar[n] */
void f8_cpu_store_scalar(f8_cpu_printer *p, uint32_t n);

/* Fills vector[n]: from its near slot when an earlier stage made it, else computed (and kept, if
 * this is the stage that does). */
void f8_cpu_print_vector(f8_cpu_printer *p, uint32_t n);
void f8_cpu_store_vector(f8_cpu_printer *p, uint32_t n);
/* Values of blocks in scratch: of one block, or of a vector of them from it on; and vector[n]
 * there. */
LLVMValueRef f8_cpu_block(f8_cpu_printer *p, uint32_t n, LLVMValueRef block, bool vector);
void f8_cpu_set_blocks(f8_cpu_printer *p, uint32_t n);
/* vector[n], or a value without columns in all lanes. */
LLVMValueRef f8_cpu_vector(f8_cpu_printer *p, uint32_t n);

#endif
