/* One attention problem for tests: tensors (perhaps views with gaps), the compiled kernel, running
 * its tasks, a plain double-precision reference with error bounds, and what of it any target's
 * kernels are held to: functions named att_check fail the running Check test. */
#ifndef F8_TESTS_ATTENTION_CASE_H
#define F8_TESTS_ATTENTION_CASE_H

#include "codegen/cpu/attention.h"
#include "codegen/cpu/link.h"
#include "runtime/base/blob.h"

/* The mask and the seed come last; they have no elements where there are none. */
enum { T_Q, T_K, T_V, T_O, T_LSE, T_DO, T_DQ, T_DK, T_DV, T_MASK, T_SEED, T_COUNT };
extern const char *const att_name[T_COUNT]; /* "q", "k"... */

typedef struct att_tensor {
    uint8_t *memory, *base; /* base: past a margin; the canary is wherever no element lies */
    size_t bytes;           /* of memory */
    int64_t stride, heads;
    /* The reference [b][t][head][d] (lse: [b][h][t], with an f32 mask [b][h][2][t]) and what it may
     * be off by. */
    double *value, *bound;
} att_tensor;

/* What the arithmetic is allowed: relative errors of p and ds as they enter a product (bf16: 2^-8),
 * of a product's sum for each term, of exp. */
typedef struct att_errors {
    double left, term, exp;
} att_errors;

typedef struct att_case {
    f8_attention_desc desc;
    att_errors errors; /* att_make: the CPU's */
    att_tensor t[T_COUNT];
    f8_link_image image[2]; /* forward, backward */
    f8_blob blob[2];
    f8_cpu_phase phase[2][F8_ATTENTION_MAX_PHASES];
    int n_phases[2];
    double compile_seconds[2];
    f8_arena arena;
} att_case;

/* Scale 1 / sqrt(D), as many keys as queries, no mask, no strides yet. */
f8_attention_desc att_shape(f8_dtype dtype, int64_t B, int64_t T, int64_t H, int64_t Hkv, int64_t D,
                            bool causal);
/* The shape with a mask; `axes` has a letter for every axis that is not broadcast: "bhqk". */
f8_attention_desc att_masked(f8_attention_desc shape, f8_attention_masking masking,
                             const char *axes);
/* The arguments of a kernel in their order. Returns how many. */
int att_order(const f8_attention_desc *desc, bool backward, int order[T_COUNT]);
/* For messages; good until this thread's next call. */
const char *att_describe(const f8_attention_desc *d);

/* A mask hides about a third, and all from the first query of every sequence and head that it has.
 * An f32 mask with a row for each query has rows of large finite numbers, too.
 * gap: elements between tokens beyond the heads. Strides in `desc` are set here. Nothing is
 * compiled when llvm is NULL. Exits with a message when something fails. */
void att_make(att_case *c, f8_llvm *llvm, const f8_attention_desc *desc, int64_t gap,
              uint64_t seed);
void att_free(att_case *c);

/* How many tokens a tensor has, and where in lse a query is, its row d. */
int64_t att_tokens(const f8_attention_desc *x, int tensor);
int64_t att_lse_at(const f8_attention_desc *x, int64_t b, int64_t t, int64_t head, int64_t d);

double att_get(const att_case *c, int tensor, int64_t b, int64_t t, int64_t head, int64_t d);
void att_put(att_case *c, int tensor, int64_t b, int64_t t, int64_t head, int64_t d, double x);

/* Run all tasks of a direction: on `parts` pieces of the task range, in descending order if
 * `reverse`. Scratch is checked for writes beyond its size. */
void att_run(att_case *c, bool backward, int parts, bool reverse);
/* Run one phase's tasks [begin, end) with the caller's scratch. */
void att_tasks(const att_case *c, bool backward, int phase, int64_t begin, int64_t end,
               void *scratch);

void att_clear(att_case *c, int tensor); /* back to the canary */
/* Elements outside the tensor still hold the canary. */
bool att_canary(const att_case *c, int tensor);

/* Fill value and bound of o and lse; then (from what o and lse of the case hold) dq, dk, dv. */
void att_reference_forward(att_case *c);
void att_reference_backward(att_case *c);

/* A result is within the bounds of the reference, and nothing around it was written. */
void att_check(const att_case *c, int tensor);
/* Whether head h of token t of the first sequence is NaN: all of its elements, or none. */
bool att_row_is_nan(const att_case *c, int tensor, int64_t t, int64_t h);

/* For a causal shape of one head and more than 70 tokens: key 0 scores -Inf, key 70 +Inf; and what
 * forward must make of it. */
void att_put_infinite_scores(att_case *c);
void att_check_infinite_scores(const att_case *c);

#endif
