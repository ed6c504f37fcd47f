/* What a process says of the machine that it measures on. Internal to frontend/. */
#ifndef F8_MEASURE_MACHINE_H
#define F8_MEASURE_MACHINE_H

#include "frontend/measure/measure.h"
#include "frontend/program.h"

/* What is the same in all processes, of a program that is compiled for the target and threads.
 * `commit` is the command's (cli_commit of frontend/cli/cli.h: the library does not know it), as
 * are `command` and `inputs`. `gemms` describes the GEMM library ("oneDNN 2.6.3 (avx512)"), `peers`
 * others ("" for none). Texts lie in `arena`. threads: 0 where the target is no CPU. */
f8_status f8_measure_describe(const fp8c_program *p, const char *commit, const char *command,
                              const char *inputs, const char *gemms, const char *peers,
                              f8_arena *arena, f8_measure_about *out, f8_diag *diag);
/* A process that begins now: id, date, load, CPUs. */
f8_status f8_measure_begin(f8_arena *arena, f8_measure_process *out, f8_diag *diag);
/* Measure the limits of the program's machine now: on a CPU its units and memory
 * (runtime/cpu/peak.h), about 0.3 s; of a GPU its data sheet's, which do not change. */
f8_status f8_measure_find_limits(const fp8c_program *p, f8_measure_limits *out, f8_diag *diag);
/* A GPU's clocks, power and temperature now, by NVML; zeros where there is none. */
void f8_measure_find_clocks(const fp8c_program *p, f8_measure_clocks *out);
/* (caches.c) The bytes that the last caches of this machine's CPUs hold together; 0: not known.
 * `root` stands before /sys: "". glibc's _SC_LEVEL3_CACHE_SIZE is no answer: on AMD's CPUs it counts
 * all of a socket, ten times what a CPU reaches, also where a virtual machine has two of them. */
double f8_measure_cache_bytes(const char *root);
/* The unit that multiplies operands of these dtypes: "f32", "bf16", "fp8"; "": not known. On a CPU
 * the algorithm (f8_gemm_algorithm) decides. A plan that was compiled for this machine has
 * F8_GEMM_AUTO, which says nothing: f8_limits_algorithm (frontend/limits.h) knows what a step
 * takes. */
const char *f8_measure_unit(const fp8c_program *p, uint32_t algorithm, f8_dtype a, f8_dtype b);

#endif
