/* The table of targets: see target.h. */
#include "ir/target.h"

#include <string.h>

/* FP8 GEMMs of cuBLASLt are TN only on Ada, Hopper and consumer Blackwell; its documentation (13.0,
 * "cublasLtMatmul", FP8 rules) lifts that for compute capability 10.0. Scales of rows and of
 * 128-element blocks are Hopper's alone there, E8M0 scales Blackwell's. */
#define CUDA(text, number, tn, hopper, blackwell, rate, speed)                                     \
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
     .rates = rate,                                                                                \
     .speeds = speed,                                                                              \
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
     .speeds = HOST_SPEEDS,                                                                        \
     .head_bytes = (int64_t)128 << 20}

#define RATES(...) {__VA_ARGS__}

/* Assumed of every GPU: large GEMMs reach 0.7 of the dense peak, row kernels 0.85 of the memory's rate and one
 * instruction in every second slot of the FP32 lanes (half of the data sheet's FP32 FLOP/s, a multiply-add being two,
 * is the number of slots). A launch inside a graph is 2.5 us. Attention is given in shares of the bf16 peak. */
#define SPEEDS(peak, fp32, forward, backward)                                                      \
    {.gemm = 0.7,                                                                                  \
     .gemm_f32 = 0.7 * (fp32),                                                                     \
     .attention = (forward) * (peak),                                                              \
     .attention_grad = (backward) * (peak),                                                        \
     .vector = 0.5 * (fp32) / 2,                                                                   \
     .memory = 0.85,                                                                               \
     .launch = 2.5e-6,                                                                             \
     .conversions = true}

#define HOST_SPEEDS                                                                                \
    {.gemm = 3,                                                                                    \
     .gemm_f32 = 0.36,                                                                             \
     .pack = 0.003,                                                                                \
     .attention = 0.25,                                                                            \
     .attention_grad = 0.25,                                                                       \
     .vector = 0.1,                                                                                \
     .memory = 1,                                                                                  \
     .launch = 2e-6}

/* Rates are dense peaks of data sheets (L40S, H100 SXM, B200, RTX 5090), nothing measured here; 0 where there is
 * no such GEMM. Blocks on Hopper: DeepGEMM's 1550 TFLOP/s at 4096 x 7168 x 16384. On a host FP8 is emulated: a
 * GEMM takes as long in any format, so what is left to weigh is memory. */
static const f8_target targets[] = {
    HOST("cpu", F8_TARGET_CPU),
    HOST("reference", F8_TARGET_REFERENCE),
    CUDA("sm_89", 89, true, false, false, RATES(362, 733, 0, 0, 0, 0.864), SPEEDS(362, 91.6, 0.6, 0.5)),
    CUDA("sm_90a", 90, true, true, false, RATES(989, 1979, 1979, 1550, 0, 3.35), SPEEDS(989, 66.9, 0.35, 0.25)),
    CUDA("sm_100a", 100, false, false, true, RATES(2250, 4500, 0, 0, 4500, 8), SPEEDS(2250, 75, 0.2, 0.15)),
    CUDA("sm_120a", 120, true, false, true, RATES(209, 419, 0, 0, 419, 1.79), SPEEDS(209, 104.8, 0.6, 0.5)),
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
