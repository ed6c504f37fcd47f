/* The table of targets: see target.h. */
#include "ir/target.h"

#include <string.h>

/* FP8 GEMMs of cuBLASLt are TN only on Ada, Hopper and consumer Blackwell; its documentation (13.0,
 * "cublasLtMatmul", FP8 rules) lifts that for compute capability 10.0. */
#define CUDA(text, number, tn)                                                              \
    {.name = text, .kind = F8_TARGET_CUDA, .sm = number, .gemm_bf16 = true, .fp8_tn = tn,    \
     .transposed_stores = true, .fp8_multiple = 16, .row_bytes = 16, .near_columns = 8192,  \
     .head_bytes = (int64_t)512 << 20}

static const f8_target targets[] = {
    {.name = "cpu", .kind = F8_TARGET_CPU, .gemm_rounds = true, .fp8_multiple = 1, .row_bytes = 1,
     .near_columns = INT64_MAX, .head_bytes = (int64_t)128 << 20},
    {.name = "reference", .kind = F8_TARGET_REFERENCE, .gemm_rounds = true, .fp8_multiple = 1,
     .row_bytes = 1, .near_columns = INT64_MAX, .head_bytes = (int64_t)128 << 20},
    CUDA("sm_89", 89, true),
    CUDA("sm_90a", 90, true),
    CUDA("sm_100a", 100, false),
    CUDA("sm_120a", 120, true),
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
