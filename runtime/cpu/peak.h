/* What this machine's CPUs can do at most, measured when it is asked for: the limits that a profile
 * compares with. */
#ifndef F8_CPU_PEAK_H
#define F8_CPU_PEAK_H

#include "ir/base/status.h"

typedef struct f8_cpu_peak {
    double bytes; /* a second that a copy of memory larger than most caches reads and writes */
    double flops; /* a second of f32 multiply-adds in registers, each two; 0: no AVX2 and FMA */
    double flops_bf16;     /* of products of bf16, added in f32; 0: no unit for them */
    const char *bf16_unit; /* "AMX", "AVX512_BF16", "" */
} f8_cpu_peak;

/* Measures all of it on `threads` threads; 0 is as in f8_pool_options. It takes a quarter of a
 * second and 128 MiB, and gives the best of a few rounds: other work on the machine makes them all
 * smaller. The system is asked to let this process use AMX, where there is AMX; if it refuses, the
 * unit is the next one. F8_ERR_MEMORY, and the errors of f8_pool_create. */
f8_status f8_cpu_peak_measure(int threads, const f8_allocator *allocator, f8_cpu_peak *out,
                              f8_diag *diag);

#endif
