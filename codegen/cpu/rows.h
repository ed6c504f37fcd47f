/* The CPU's printer of kernel descriptions: one LLVM function per kernel, ABI in codegen/README.md.
 *
 * Tasks. Flat kernels: chunks of F8_CPU_CHUNK elements. Kernels with column sums: blocks of 64
 * rows. Others: as many rows as make about F8_CPU_CHUNK elements twice over. All are functions of
 * the description, its variant and ints[0] alone, so no result depends on threads. */
#ifndef F8_CODEGEN_CPU_ROWS_H
#define F8_CODEGEN_CPU_ROWS_H

#include "codegen/kernel/kernel.h"
#include "codegen/cpu/llvm.h"

enum { F8_CPU_CHUNK = 16384 };

/* Tasks of a launch whose ints[0] is `extent`. */
int64_t f8_cpu_rows_tasks(const f8_kernel *k, int64_t extent);
/* Bytes of scratch a thread needs. */
int64_t f8_cpu_rows_scratch(const f8_kernel *k);
/* Print the kernel as function `symbol` of the module. */
f8_status f8_cpu_rows_emit(f8_llvm_module *m, const f8_kernel *k, const char *symbol,
                           f8_arena *arena, f8_diag *d);

#endif
