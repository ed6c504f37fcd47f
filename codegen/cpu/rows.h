/* The printer of kernel descriptions for the CPU: one LLVM function for each kernel.
 * codegen/cpu/README.md has the ABI.
 *
 * Tasks. A task of a flat kernel has F8_CPU_CHUNK elements. A task of a kernel that reduces columns
 * has f8_kernel_task_rows rows. Other tasks have as many rows as hold about twice F8_CPU_CHUNK
 * elements. This follows from the description, its configuration and ints[0] alone, so no result
 * depends on threads. */
#ifndef F8_CODEGEN_CPU_ROWS_H
#define F8_CODEGEN_CPU_ROWS_H

#include "codegen/kernel/kernel.h"
#include "codegen/cpu/llvm.h"

enum { F8_CPU_CHUNK = 16384 };

/* The number of tasks of a launch with ints[0] == extent. */
int64_t f8_cpu_rows_tasks(const f8_kernel *k, int64_t extent);
/* Bytes of scratch for each thread. */
int64_t f8_cpu_rows_scratch(const f8_kernel *k);
/* Prints the kernel as function `symbol` of the module. */
f8_status f8_cpu_rows_emit(f8_llvm_module *m, const f8_kernel *k, const char *symbol,
                           f8_arena *arena, f8_diag *d);

#endif
