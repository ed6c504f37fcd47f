/* What the machine of a program can do at most: what a profile compares the steps with. */
#ifndef F8_LIMITS_H
#define F8_LIMITS_H

#include "frontend/program.h"

typedef struct f8_limits {
    double bytes;            /* a second, of memory; 0: not known */
    double flops;            /* a second of f32 multiply-adds, on a CPU; 0: not known */
    double flops_bf16;       /* of a CPU's unit for bf16; 0: not known, or there is none */
    const f8_target *target; /* a GPU: the row of its architecture; NULL: it is none */
    char from[160];          /* how they are known, and what else is; "" if they are not */
} f8_limits;

/* On a CPU they are measured now (runtime/cpu/peak.h), on a GPU they are its architecture's in
 * ir/target.c. Nothing is known of the reference target. */
f8_status f8_limits_find(const fp8c_program *p, f8_limits *out, f8_diag *diag);

/* The most that step `index` of a function can do: operations a second of one with products, bytes
 * a second of another. 0: not known, as for a GEMM by a unit that nobody has measured. */
double f8_limits_of(const f8_limits *limits, const fp8c_program *p, int function, int index);

/* The algorithm (f8_gemm_algorithm) that a GEMM of a CPU takes: a plan that was compiled for this
 * machine leaves the choice to the executor. F8_GEMM_AUTO: not known. */
uint32_t f8_limits_algorithm(const fp8c_program *p, int function, int index);

#endif
