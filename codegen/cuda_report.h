/* What ptxas says of a kernel: read from a compiler's log (--ptxas-options=-v). */
#ifndef F8_CODEGEN_CUDA_REPORT_H
#define F8_CODEGEN_CUDA_REPORT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct f8_cuda_report {
    int64_t registers; /* of a thread */
    int64_t shared;    /* bytes of a block, without dynamic ones */
    int64_t stack;     /* bytes of a thread: its kernel's and of functions not inlined */
    int64_t spill_stores, spill_loads; /* bytes */
} f8_cuda_report;

/* false when the log (may be NULL) says nothing of an entry function of that name. */
bool f8_cuda_report_read(const char *log, const char *symbol, f8_cuda_report *out);

#endif
