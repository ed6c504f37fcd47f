/* The scatter kernel of the CPU (codegen/kernel/scatter.h). A task is a block of F8_SCATTER_COLUMNS
 * columns over all positions. So no two tasks write the same element, and the additions to each
 * element keep their order. */
#ifndef F8_CODEGEN_CPU_SCATTER_H
#define F8_CODEGEN_CPU_SCATTER_H

#include "codegen/cpu/llvm.h"
#include "ir/base/type.h"

enum { F8_SCATTER_COLUMNS = 64 };

f8_status f8_cpu_scatter_emit(f8_llvm_module *m, f8_dtype dy, const char *symbol, f8_diag *d);
int64_t f8_cpu_scatter_tasks(int64_t columns);

#endif
