/* Attention on the CPU: forward and backward kernels, tile by tile, the T x T scores never
 * stored.
 *
 * Forward, for head h of batch b and its key/value head g = h / (H / Hkv):
 *     s[i][j] = scale * sum_d q[i][d] k[j][d],  j <= i when causal
 *     o[i]    = sum_j exp(s[i][j] - lse[i]) v[j],  lse[i] = log sum_j exp(s[i][j])
 * Backward gives dq, dk, dv for do, given o and lse. dk and dv add up the query heads of their
 * group.
 *
 * Everything is f32 inside; only the results are rounded (to nearest even) to `dtype`, lse is
 * f32. Sums are chains of fused multiply-adds in order of d, of keys within blocks of 48
 * (rescaled from block to block by the online softmax), or of queries: one order, whatever the
 * machine, the number of threads or the split into tasks. Keys a query may not see are never
 * touched for it: their NaN or Inf does not reach it. A NaN in a query's row gives NaN in that
 * row; a row whose scores are all -Inf, or hold +Inf, gives NaN as the formula does.
 *
 * Arguments (args of the kernel ABI; no ints):
 *     forward:  q, k, v, o, lse
 *     backward: q, k, v, o, lse, do, dq, dk, dv
 * Element (b, t, head, d) of a tensor lies at base + (b * T + t) * stride + head * D + d, so
 * views into [B, T, 3C] need only their stride and base; lse is f32[B, H, T]. Results may not
 * overlap anything. */
#ifndef F8_CODEGEN_CPU_ATTENTION_H
#define F8_CODEGEN_CPU_ATTENTION_H

#include "codegen/llvm.h"

typedef struct f8_attention_desc {
    f8_dtype dtype; /* F8_F32 or F8_BF16: q k v o do dq dk dv */
    int64_t B, T, H, Hkv, D; /* H % Hkv == 0, 1 <= D <= 512 */
    bool causal;
    float scale;
    struct { /* elements between tokens, at least heads * D */
        int64_t q, k, v, o, dout, dq, dk, dv;
    } stride; /* forward uses the first four */
} f8_attention_desc;

enum { F8_ATTENTION_MAX_PHASES = 2 };

/* Emit the kernel into `m`: functions symbol_0, symbol_1, ... one for each phase, described in
 * phases[0..*n_phases). F8_ERR_UNSUPPORTED for a dtype or size this emitter does not take. */
f8_status f8_cpu_attention_emit(f8_llvm_module *m, const f8_attention_desc *desc, bool backward,
                                const char *symbol, f8_cpu_phase *phases, int *n_phases,
                                f8_diag *d);

/* Only tasks and scratch of those phases: what they will be, with no code made. */
f8_status f8_cpu_attention_sizes(const f8_attention_desc *desc, bool backward, f8_cpu_phase *phases,
                                 int *n_phases, f8_diag *d);

/* What no target can do, F8_ERR_INPUT: sizes below 1 or heads that are no multiple of kv heads;
 * tokens nearer to one another than their heads are long. */
f8_status f8_attention_check_sizes(const f8_attention_desc *desc, f8_diag *d);
f8_status f8_attention_check_strides(const f8_attention_desc *desc, bool backward, f8_diag *d);

/* Multiply-adds the kernel does, doubled: for rates. */
double f8_attention_flops(const f8_attention_desc *desc, bool backward);

#endif
