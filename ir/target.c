/* The table of targets: see target.h. */
#include "ir/target.h"

#include <string.h>

/* FP8 GEMMs of cuBLASLt are TN only on Ada, Hopper and consumer Blackwell; its documentation (13.0,
 * "cublasLtMatmul", FP8 rules) lifts that for compute capability 10.0. Scales of rows and of
 * 128-element blocks are Hopper's alone there, E8M0 scales Blackwell's. */
#define CUDA(text, number, tn, hopper, blackwell)                                                  \
    {.name = text,                                                                                 \
     .kind = F8_TARGET_CUDA,                                                                       \
     .sm = number,                                                                                 \
     .gemm_bf16 = true,                                                                            \
     .fp8_tn = tn,                                                                                 \
     .transposed_stores = true,                                                                    \
     .fp8_rows = hopper,                                                                           \
     .fp8_blocks = hopper,                                                                         \
     .fp8_mx = blackwell,                                                                          \
     .fp8_multiple = 16,                                                                           \
     .row_bytes = 16,                                                                              \
     .near_columns = 8192,                                                                         \
     .head_bytes = (int64_t)512 << 20}
#define HOST(text, which)                                                                          \
    {.name = text,                                                                                 \
     .kind = which,                                                                                \
     .gemm_rounds = true,                                                                          \
     .fp8_rows = true,                                                                             \
     .fp8_blocks = true,                                                                           \
     .fp8_mx = true,                                                                               \
     .fp8_two_tiled = true,                                                                        \
     .fp8_e5m2_pair = true,                                                                        \
     .fp8_multiple = 1,                                                                            \
     .row_bytes = 1,                                                                               \
     .near_columns = INT64_MAX,                                                                    \
     .head_bytes = (int64_t)128 << 20}

static const f8_target targets[] = {
    HOST("cpu", F8_TARGET_CPU),
    HOST("reference", F8_TARGET_REFERENCE),
    CUDA("sm_89", 89, true, false, false),
    CUDA("sm_90a", 90, true, true, false),
    CUDA("sm_100a", 100, false, false, true),
    CUDA("sm_120a", 120, true, false, true),
};

enum { N_TARGETS = sizeof targets / sizeof *targets };

const f8_target *f8_target_at(size_t index)
{
    return index < N_TARGETS ? &targets[index] : NULL;
}

const f8_target *f8_target_by_name(const char *name)
{
    for (size_t i = 0; i < N_TARGETS; i++)
        if (!strcmp(targets[i].name, name))
            return &targets[i];
    return NULL;
}

const f8_target *f8_target_for_sm(int sm)
{
    for (size_t i = 0; i < N_TARGETS; i++)
        if (targets[i].kind == F8_TARGET_CUDA && targets[i].sm == sm)
            return &targets[i];
    return NULL;
}
