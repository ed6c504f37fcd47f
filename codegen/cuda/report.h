/* The registers and spills of a kernel, read from a compiler's log (--ptxas-options=-v). */
#ifndef F8_CODEGEN_CUDA_REPORT_H
#define F8_CODEGEN_CUDA_REPORT_H

#include "codegen/plan/options.h"

/* False if the log (may be NULL) has nothing about an entry function of that name. */
bool f8_cuda_report_read(const char *log, const char *symbol, f8_cuda_report *out);

#endif
