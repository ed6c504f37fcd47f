/* Attention on the CPU (kernel_attention.h): forward and backward kernels, tile by tile, the T x T
 * scores never stored.
 *
 * Everything is f32 inside; only the results are rounded (to nearest even) to `dtype`, lse is
 * f32. Sums are chains of fused multiply-adds in order of d, of keys within blocks of 48
 * (rescaled from block to block by the online softmax), or of queries: one order, whatever the
 * machine, the number of threads or the split into tasks. Keys a query may not see are never
 * touched for it: their NaN or Inf does not reach it. A NaN in a query's row gives NaN in that
 * row; a row whose scores are all -Inf, or hold +Inf, gives NaN as the formula does. */
#ifndef F8_CODEGEN_CPU_ATTENTION_H
#define F8_CODEGEN_CPU_ATTENTION_H

#include "codegen/kernel/attention.h"
#include "codegen/cpu/llvm.h"

enum { F8_ATTENTION_MAX_PHASES = 2 };

/* Emit the kernel into `m`: functions symbol_0, symbol_1, ... one for each phase, described in
 * phases[0..*n_phases). F8_ERR_UNSUPPORTED for a dtype or size this emitter does not take. */
f8_status f8_cpu_attention_emit(f8_llvm_module *m, const f8_attention_desc *desc, bool backward,
                                const char *symbol, f8_cpu_phase *phases, int *n_phases,
                                f8_diag *d);

/* Only tasks and scratch of those phases: what they will be, with no code made. */
f8_status f8_cpu_attention_sizes(const f8_attention_desc *desc, bool backward, f8_cpu_phase *phases,
                                 int *n_phases, f8_diag *d);

#endif
