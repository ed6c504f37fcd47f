/* Single instructions of a kernel description as LLVM IR; rows.c has the loops around them.
 * Internal to the printer for the CPU. */
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
    LLVMValueRef *pointer; /* by buffer: the first element of this row; base without a row term */
    LLVMValueRef *absent;           /* by buffer: i1, true if a gather has no such row; else NULL */
    LLVMValueRef *ints;             /* by run-time integer */
    LLVMValueRef *scalar;           /* by instruction: values without a column extent */
    LLVMValueRef *vector; /* by instruction: values at p->column, valid inside one loop body */
    LLVMValueRef *unrolled[F8_CPU_UNROLL_MOST]; /* the same for each vector of an unrolled body */
    /* by instruction: the row of accumulators of a column reduction, in scratch */
    LLVMValueRef *partial;
    /* by instruction: values of blocks of columns, in scratch, one word each */
    LLVMValueRef *blocks;
    /* by instruction: the magnitudes of a row for a BLOCKAMAX, in scratch; 0 past the end of the
     * row */
    LLVMValueRef *sizes;
    /* The maxima of a row of the current stage, in order: running; as a loop carries them; whose.
     */
    LLVMValueRef *carry, *carried;
    uint32_t *owner;
    bool in_blocks; /* `column` and `mask` count blocks: a vector holds values of blocks */
    bool *needed; /* by instruction: whether the loop of the current stage evaluates it */
    LLVMValueRef lanes;             /* the lanes of row sums, in scratch */
    int64_t near_row;               /* words of a slot of near memory */
    LLVMValueRef row, column, mask; /* mask NULL: all lanes are on */
    int32_t stage;
} f8_cpu_printer;

/* Allocates the tables, and loads arguments and integers. */
f8_status f8_cpu_printer_begin(f8_cpu_printer *p, f8_arena *arena, f8_diag *d);
/* Sets pointer[] and absent[] for p->row. */
void f8_cpu_row_pointers(f8_cpu_printer *p);

void f8_cpu_print_scalar(f8_cpu_printer *p, uint32_t n); /* sets scalar[n] */
/* Element `column` (i64) of the row of a buffer whose elements are floats. */
LLVMValueRef f8_cpu_element(f8_cpu_printer *p, int32_t buffer, LLVMValueRef column);
void f8_cpu_store_scalar(f8_cpu_printer *p, uint32_t n);

/* Sets vector[n]: loaded from its slot of near memory if an earlier stage computed it, else
 * computed, and kept if this stage keeps it. */
void f8_cpu_print_vector(f8_cpu_printer *p, uint32_t n);
void f8_cpu_store_vector(f8_cpu_printer *p, uint32_t n);
/* Values of blocks in scratch: loads that of one block, or a vector of them from it on;
 * f8_cpu_set_blocks stores vector[n]. */
LLVMValueRef f8_cpu_block(f8_cpu_printer *p, uint32_t n, LLVMValueRef block, bool vector);
void f8_cpu_set_blocks(f8_cpu_printer *p, uint32_t n);
/* vector[n], or a value without columns in all lanes. */
LLVMValueRef f8_cpu_vector(f8_cpu_printer *p, uint32_t n);

#endif
