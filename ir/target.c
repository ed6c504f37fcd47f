/* The table of targets: see target.h. */
#include "ir/target.h"

#include <string.h>

/* FP8 GEMMs of cuBLASLt are TN only on Ada, Hopper and consumer Blackwell; its documentation (13.0,
 * "cublasLtMatmul", FP8 rules) lifts that for compute capability 10.0. Scales of rows and of
 * 128-element blocks are Hopper's alone there, E8M0 scales Blackwell's. */
#define CUDA(text, number, tn, hopper, blackwell, ...)                                             \
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
     .rates = __VA_ARGS__,                                                                         \
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
     .rates = {0.4, 0.4, 0.4, 0.4, 0.4, 0.02},                                                     \
     .head_bytes = (int64_t)128 << 20}

/* Rates are dense peaks of data sheets (L40S, H100 SXM, B200, RTX 5090), nothing measured here; 0 where there is
 * no such GEMM. Blocks on Hopper: DeepGEMM's 1550 TFLOP/s at 4096 x 7168 x 16384. On a host FP8 is emulated: a
 * GEMM takes as long in any format, so what is left to weigh is memory. */
static const f8_target targets[] = {
    HOST("cpu", F8_TARGET_CPU),
    HOST("reference", F8_TARGET_REFERENCE),
    CUDA("sm_89", 89, true, false, false, {362, 733, 0, 0, 0, 0.864}),
    CUDA("sm_90a", 90, true, true, false, {989, 1979, 1979, 1550, 0, 3.35}),
    CUDA("sm_100a", 100, false, false, true, {2250, 4500, 0, 0, 4500, 8}),
    CUDA("sm_120a", 120, true, false, true, {209, 419, 0, 0, 419, 1.79}),
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
