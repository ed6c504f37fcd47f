/* Targets, as far as passes and kernel descriptions must know them: one row of facts each.
 *
 * A name "cuda" (the device present) is no row: whoever can ask the device turns its compute
 * capability into a row's name with f8_target_for_sm. */
#ifndef F8_TARGET_H
#define F8_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/num/scale_layout.h"

typedef enum f8_target_kind {
    F8_TARGET_CPU,
    F8_TARGET_REFERENCE, /* interprets nodes one by one */
    F8_TARGET_CUDA
} f8_target_kind;

/* What `auto` weighs recipes with: 10^12 operations a second of GEMMs, by what their operands are,
 * and 10^12 bytes a second of memory. */
typedef struct f8_rates {
    double bf16, fp8, fp8_rows, fp8_blocks, fp8_mx, memory;
} f8_rates;

/* What passes/unit/cost.c estimates seconds with, beside the rates. Ratios between kinds of kernels
 * count, not the seconds. */
typedef struct f8_speeds {
    double gemm;      /* what GEMMs reach, in terms of the rate of their operands */
    double gemm_f32;  /* 10^12 operations a second of GEMMs that keep f32 operands as they are */
    double operands;  /* 10^12 bytes a second of operands that GEMMs pack first; 0: none are */
    double blocks;    /* f32 scales of blocks along k: what is left of `gemm` */
    double attention, attention_grad; /* 10^12 operations a second of products */
    double softmax;   /* scalar operations a pair of query and key besides; 0: among the above */
    double vector;    /* 10^12 scalar operations (ir/num/scalar.h) a second in row kernels */
    double memory;    /* what kernels reach, in terms of the memory's rate */
    double launch;    /* seconds of a kernel that does next to nothing */
    bool overlap;     /* bytes move while operations are done: the longer counts, else their sum */
    bool conversions; /* a conversion to or from a narrow format is one operation */
    int32_t merged;   /* flat kernels, and phases after a kernel's first: so many share a launch */
} f8_speeds;

typedef struct f8_target {
    const char *name; /* "cpu", "reference", "sm_90a" */
    f8_target_kind kind;
    int sm;                   /* CUDA: compute capability * 10, 90 */
    bool gemm_rounds;         /* GEMMs round f32 operands to bf16 on the way in */
    bool gemm_bf16;           /* GEMMs may write bf16, rounded once from the f32 sum */
    bool fp8_tn;              /* FP8 GEMMs want k to be the contiguous axis of both operands */
    bool transposed_stores;   /* row programs can write a result's transpose as well */
    bool fp8_rows; /* FP8 GEMMs take a scale for each row of the result and each column */
    bool fp8_blocks;          /* and f32 scales of 1 x 128 runs along k and of 128 x 128 tiles */
    bool fp8_mx;              /* and E8M0 scales of 1 x 32 runs along k */
    bool fp8_two_tiled;       /* and tiles on both sides: 128 x 128 by 128 x 128 */
    bool fp8_e5m2_pair;       /* both operands of an FP8 GEMM may be f8e5m2 */
    int32_t fp8_multiple;     /* m, n and k of an FP8 GEMM are multiples of this */
    int32_t row_bytes; /* rows of arena matrices that GEMMs read begin at multiples of this */
    int64_t
        near_columns; /* row kernels may keep values near for rows of at most this many columns */
    f8_rates rates;
    f8_speeds speeds;
    int driver;               /* CUDA: the first that runs it, as the CUDA version it serves */
    bool shared_large;        /* CUDA: a block may have 227 KiB of shared memory, not 99 */
    int32_t multiprocessors;
    int64_t cache_bytes;      /* half the second level of cache: each half has a copy */
    int64_t head_bytes;       /* a head's logits are cut into chunks of rows of about this size */
} f8_target;

/* What a target's FP8 GEMMs lack for operands with these two kinds of scales: bits, 0 where they
 * lack nothing. */
enum {
    F8_LACKS_PAIR = 1, /* alone: no target has these two beside each other */
    F8_LACKS_ROWS = 2,
    F8_LACKS_BLOCKS = 4,
    F8_LACKS_TWO_TILED = 8,
    F8_LACKS_MX = 16,
};
unsigned f8_target_lacks(const f8_target *t, f8_scale_kind a, f8_scale_kind b);

/* NULL for an unknown name. */
const f8_target *f8_target_by_name(const char *name);
/* The row for a device of this compute capability (90: 9.0); NULL when there is none. */
const f8_target *f8_target_for_sm(int sm);
/* Each in turn; NULL past the last. */
const f8_target *f8_target_at(size_t index);

#endif
