/* Attention on the CPU (codegen/kernel/attention.h): forward and backward kernels that work tile by
 * tile and never store the T x T scores.
 *
 * Everything is f32 inside. Only the results are rounded (to nearest even) to `dtype`; lse is f32.
 * Sums are chains of fused multiply-adds: in order of d, of keys within blocks of 48 (rescaled from
 * block to block by the online softmax), or of queries. This order does not depend on the machine,
 * the number of threads or the split into tasks. Keys that a query may not see are never accessed
 * for it, so their NaN or Inf does not reach it. A NaN in the row of a query gives NaN in that row.
 * A row whose scores are all -Inf, or include +Inf, gives NaN as the formula does. */
#ifndef F8_CODEGEN_CPU_ATTENTION_H
#define F8_CODEGEN_CPU_ATTENTION_H

#include "codegen/kernel/attention.h"
#include "codegen/cpu/llvm.h"

enum { F8_ATTENTION_MAX_PHASES = 2 };

/* Emits the kernel into `m`: functions symbol_0, symbol_1, ..., one for each phase, described in
 * phases[0..*n_phases). F8_ERR_UNSUPPORTED: this emitter does not take the dtype or size. */
f8_status f8_cpu_attention_emit(f8_llvm_module *m, const f8_attention_desc *desc, bool backward,
                                const char *symbol, f8_cpu_phase *phases, int *n_phases,
                                f8_diag *d);

/* Computes only the tasks and scratch of those phases; makes no code. */
f8_status f8_cpu_attention_sizes(const f8_attention_desc *desc, bool backward, f8_cpu_phase *phases,
                                 int *n_phases, f8_diag *d);

#endif
