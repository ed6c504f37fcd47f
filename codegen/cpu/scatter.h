/* The scatter kernel of the CPU (kernel_scatter.h). A task is a block of F8_SCATTER_COLUMNS columns
 * over all positions, so tasks never meet and every element's additions keep their order. */
#ifndef F8_CODEGEN_CPU_SCATTER_H
#define F8_CODEGEN_CPU_SCATTER_H

#include "codegen/cpu/llvm.h"
#include "ir/base/type.h"

enum { F8_SCATTER_COLUMNS = 64 };

f8_status f8_cpu_scatter_emit(f8_llvm_module *m, f8_dtype dy, const char *symbol, f8_diag *d);
int64_t f8_cpu_scatter_tasks(int64_t columns);

#endif
