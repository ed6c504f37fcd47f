/* Attention as a kernel: what every target computes, and the arguments of the kernel.
 *
 * Forward, for head h of batch b and its key/value head g = h / (H / Hkv):
 *     s[i][j] = scale * sum_d q[i][d] k[j][d] + mask[i][j],  j < Tk, and j <= i when causal
 *     o[i]    = sum_j exp(s[i][j] - lse[i]) v[j],  lse[i] = log sum_j exp(s[i][j])
 * A bool mask stands for 0 where it is true and for -Inf (whatever the score) where it is false.
 * What a mask hides has weight 0, but v of it is multiplied by this 0: a NaN there is not hidden.
 * With a mask, a query whose scores are all -Inf has o = 0, lse = +Inf and no gradient. Backward
 * gives dq, dk and dv from do, o and lse. dk and dv are sums over the query heads of their group.
 * Its probabilities are exp(s - lse), and lse is rounded to f32: what large scores lose is in
 * ir/README.md, "Cross-entropy, and attention, of large logits".
 *
 * An f32 mask may be as large as it likes, so with one s is an f32, the sum rounded once, and lse
 * is two rows of f32: top[i] = max_j s[i][j] and rest[i] = log sum_j exp(s[i][j] - top[i]).
 * Backward takes exp((s - top) - rest). A query that sees nothing has top = 0 and rest = +Inf;
 * where rest is NaN, top is, too.
 *
 * Arguments (args of the kernel ABI; no ints):
 *     forward:  q, k, v, [mask,] [seed,] o, lse
 *     backward: q, k, v, o, lse, do, [mask,] [seed,] dq, dk, dv
 * The seed is one i32.
 * Element (b, t, head, d) of a tensor lies at base + (b * T + t) * stride + head * D + d, so views
 * into [B, T, 3C] need only their stride and base. k, v, dk and dv have Tk in the place of T. lse
 * is f32[B, H, T], with an f32 mask f32[B, H, 2, T]. Results overlap nothing else. */
#ifndef F8_CODEGEN_KERNEL_ATTENTION_H
#define F8_CODEGEN_KERNEL_ATTENTION_H

#include "ir/base/status.h"
#include "ir/base/type.h"

/* bool is one byte: true is not 0. ADD is f32. */
typedef enum f8_attention_masking { F8_MASK_NONE, F8_MASK_BOOL, F8_MASK_ADD } f8_attention_masking;

typedef struct f8_attention_desc {
    f8_dtype dtype; /* F8_F32 or F8_BF16: q k v o do dq dk dv */
    int64_t B, T, Tk, H, Hkv, D; /* T queries, Tk keys; H % Hkv == 0, 1 <= D <= 512 */
    bool causal;                 /* query i sees the keys up to i, whatever T and Tk */
    f8_attention_masking masking;
    float scale;
    double dropout; /* 0 to below 1; 0: none */
    int64_t stream; /* of the dropout */
    struct {        /* elements between tokens, at least heads * D */
        int64_t q, k, v, o, dout, dq, dk, dv;
    } stride; /* forward uses the first four */
    struct { /* elements of the mask between batches, heads, queries and keys; 0: broadcast */
        int64_t b, h, q, k;
    } mask;
} f8_attention_desc;

/* How many f32 of lse a query has. */
int64_t f8_attention_lse_rows(const f8_attention_desc *desc);

/* With dropout the weight of query i and key j in o is dropped where the i32
 * random_bits(j, (b * H + h) * T + i, random_bits(seed, stream, 0)) is below the limit; else it is
 * multiplied by the factor, 1 / (1 - dropout). lse is as without. The limit of no dropout is
 * INT32_MIN. */
int32_t f8_attention_drop_limit(const f8_attention_desc *desc);
float f8_attention_drop_factor(const f8_attention_desc *desc);

/* Checks that every target makes. F8_ERR_INPUT: a size is below 1, the number of heads is no
 * multiple of the number of kv heads, or the stride between tokens is shorter than the heads of a
 * token. */
f8_status f8_attention_check_sizes(const f8_attention_desc *desc, f8_diag *d);
f8_status f8_attention_check_strides(const f8_attention_desc *desc, bool backward, f8_diag *d);

/* The pairs of a query and a key that it sees; masks do not count. */
double f8_attention_pairs(int64_t queries, int64_t keys, bool causal);
/* Twice the number of multiply-adds of the kernel, for rates. */
double f8_attention_flops(const f8_attention_desc *desc, bool backward);

#endif
