/* Targets, as far as passes and kernel descriptions must know them: one row of facts each.
 *
 * "cuda", the device that is present, has no row. A caller that can ask the device gets the row of
 * its compute capability from f8_target_for_sm. */
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

/* Rates that `auto` compares recipes by: 10^12 operations a second of GEMMs, by the format and
 * scales of their operands, and 10^12 bytes a second of memory. */
typedef struct f8_rates {
    double bf16, fp8, fp8_rows, fp8_blocks, fp8_mx, memory;
} f8_rates;

/* What passes/unit/cost.c estimates seconds with, in addition to the rates. The ratios between
 * kinds of kernels matter, not the seconds themselves. */
typedef struct f8_speeds {
    double gemm;      /* the part of the rate of their operands that GEMMs reach */
    double gemm_f32;  /* 10^12 operations a second of GEMMs that keep f32 operands as they are */
    double operands;  /* 10^12 bytes a second of operands that GEMMs pack first; 0: none */
    double blocks;    /* the part of `gemm` that is left with f32 scales of blocks along k */
    double attention, attention_grad; /* 10^12 operations a second of products */
    double softmax;   /* scalar operations for each pair of query and key; 0: included above */
    double vector;    /* 10^12 scalar operations (ir/num/scalar.h) a second in row kernels */
    double memory;    /* the part of the memory's rate that kernels reach */
    double launch;    /* seconds of a kernel that does almost nothing */
    bool overlap;     /* memory and arithmetic overlap: the longer time counts, otherwise the sum */
    bool conversions; /* a conversion to or from a narrow format is one operation */
    int32_t merged;   /* how many flat kernels, or phases after a kernel's first, share a launch */
} f8_speeds;

typedef struct f8_target {
    const char *name; /* "cpu", "reference", "sm_90a" */
    f8_target_kind kind;
    int sm;                   /* CUDA: compute capability * 10, 90 */
    bool gemm_rounds;         /* GEMMs can round f32 operands to bf16 as they read them */
    bool gemm_bf16;           /* GEMMs may write bf16, rounded once from the f32 sum */
    bool fp8_tn;              /* FP8 GEMMs want k to be the contiguous axis of both operands */
    bool transposed_stores;   /* row kernels can also write the transpose of a result */
    bool fp8_rows;            /* FP8 GEMMs take a scale for each row and column of the result */
    bool fp8_blocks;          /* they take f32 scales of 1 x 128 runs along k and 128 x 128 tiles */
    bool fp8_mx;              /* they take E8M0 scales of 1 x 32 runs along k */
    bool fp8_two_tiled;       /* they take 128 x 128 tiles for both operands */
    bool fp8_e5m2_pair;       /* both operands of an FP8 GEMM may be f8e5m2 */
    int32_t fp8_multiple;     /* m, n and k of an FP8 GEMM are multiples of this */
    int32_t row_bytes;        /* arena rows that GEMMs read begin at multiples of this many bytes */
    int32_t gemm_multiple;    /* bf16 GEMMs are slow unless m, n and k are multiples of this */
    int64_t near_columns;     /* row kernels keep values near only in rows of at most so many */
    uint32_t near_values;     /* and of a row at most so many, but for those that are rolled */
    f8_rates rates;
    f8_speeds speeds;
    int driver;               /* CUDA: the first driver that runs it, as its CUDA version */
    bool shared_large;        /* CUDA: a block may have 227 KiB of shared memory, not just 99 */
    int32_t multiprocessors;
    int64_t cache_bytes;      /* half of the L2 cache: each half holds a copy */
    int64_t head_bytes;       /* a head's logits are cut into chunks of rows of about this size */
} f8_target;

/* What a target's FP8 GEMMs lack for two operands with these kinds of scales: a sum of bits, 0 if
 * they lack nothing. */
enum {
    F8_LACKS_PAIR = 1, /* the only bit then: no target combines these two kinds */
    F8_LACKS_ROWS = 2,
    F8_LACKS_BLOCKS = 4,
    F8_LACKS_TWO_TILED = 8,
    F8_LACKS_MX = 16,
};
unsigned f8_target_lacks(const f8_target *t, f8_scale_kind a, f8_scale_kind b);

/* Whether the target's GEMMs add a bf16 bias to the f32 sum before they round it to bf16. `b` is
 * the kind of the second operand's scales, F8_SCALED_TENSOR for operands without scales. */
bool f8_target_adds_bias(const f8_target *t, f8_scale_kind b);

/* The row of that name; NULL if there is none. */
const f8_target *f8_target_by_name(const char *name);
/* The row for a device of this compute capability (90: 9.0); NULL when there is none. */
const f8_target *f8_target_for_sm(int sm);
/* Row number `index`; NULL past the last. */
const f8_target *f8_target_at(size_t index);

#endif
