/* The table of targets: see target.h. */
#include "ir/target.h"

#include <stdio.h>
#include <string.h>

/* FP8 GEMMs of cuBLASLt must be TN on Ada, Hopper and consumer Blackwell; its documentation (13.0,
 * "cublasLtMatmul", FP8 rules) lifts that for compute capability 10.0. By the same documentation
 * only Hopper has scales of rows and of 128-element blocks, and only Blackwell has E8M0 scales.
 *
 * gemm_multiple is what TMA needs of 16-bit elements, 16 bytes: cuBLASLt 13.1 on an H200 takes six
 * to seven times as long for 2048 x 50257 x 768 and 2048 x 768 x 50257 as with 50264, whatever the
 * strides, and 50272 or 50304 are no faster. Before sm_90 there is no TMA. */
#define CUDA(text, number, device, tn, hopper, blackwell, rate, speed)                             \
    {.name = text,                                                                                 \
     .kind = F8_TARGET_CUDA,                                                                       \
     .sm = number,                                                                                 \
     device,                                                                                       \
     .gemm_bf16 = true,                                                                            \
     .fp8_tn = tn,                                                                                 \
     .transposed_stores = true,                                                                    \
     .fp8_rows = hopper,                                                                           \
     .fp8_blocks = hopper,                                                                         \
     .fp8_mx = blackwell,                                                                          \
     .fp8_multiple = 16,                                                                           \
     .row_bytes = 16,                                                                              \
     .gemm_multiple = (number) >= 90 ? 8 : 1,                                                      \
     .near_columns = 8192,                                                                         \
     .near_values = 64,                                                                            \
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
     .gemm_multiple = 1,                                                                           \
     .near_columns = INT64_MAX,                                                                    \
     .near_values = UINT32_MAX,                                                                    \
     .rates = {0.4, 0.4, 0.4, 0.4, 0.4, 0.02},                                                     \
     .speeds = HOST_SPEEDS,                                                                        \
     .head_bytes = (int64_t)128 << 20}

#define RATES(...) {__VA_ARGS__}

/* first_driver is the CUDA version of the first driver for the architecture (NVIDIA's "CUDA
 * Toolkit, Driver, and Architecture Matrix"). */
#define DEVICE(first_driver, large, processors, megabytes)                                         \
    .driver = first_driver, .shared_large = large, .multiprocessors = processors,                  \
    .cache_bytes = (int64_t)(megabytes) << 20

/* Speeds of GPUs; nothing is measured. FP32 TFLOP/s without tensor cores come from data sheets
 * (L40S 91.6, H100 SXM 67, B200 75, RTX 5090 104.8). A multiply-add counts as two, so half of that
 * is scalar operations a second. These are assumed for all:
 *
 *     0.7     the part of the dense peak that large GEMMs reach; for f32, of the FP32 peak
 *     0.85    the part of the memory's rate that row kernels reach
 *     0.5     the part of the lanes' slots with an operation that counts; the others hold loads,
 *             stores and addresses
 *     2.5 us  the shortest kernel within a graph, with the gap to the next
 *     8       how many small kernels share a launch (codegen/plan/merge.c: GPT-2's update is 18
 *             launches of 349 kernels, its micro_step 149 of 328)
 *
 * Attention uses our own kernels, which follow FlashAttention-2. FlashAttention-3's paper (arXiv
 * 2407.08608) measured FlashAttention-2 on an H100 SXM at 2048 tokens, with heads of 128: forward
 * 298 TFLOP/s causal, 362 without mask; backward 291 without mask, so 240 causal if the mask costs
 * as much. Where mma.sync reaches the peak (sm_89, sm_120), the shares of it are those on A100: 0.6
 * and 0.5 (FlashAttention-2, arXiv 2307.08691: 0.5 to 0.73 and up to 0.63). B200: the H100's times
 * 1.12, the ratio of multiprocessors. Our backward computes seven products that are counted as
 * five, so it has 5/7 of the rate. */
#define SPEEDS(fp32, forward, backward)                                                            \
    {.gemm = 0.7,                                                                                  \
     .gemm_f32 = 0.7 * (fp32),                                                                     \
     .blocks = 1,                                                                                  \
     .attention = (forward),                                                                       \
     .attention_grad = (backward) * 5.0 / 7,                                                       \
     .vector = 0.5 * (fp32) / 2,                                                                   \
     .memory = 0.85,                                                                               \
     .launch = 2.5e-6,                                                                             \
     .overlap = true,                                                                              \
     .conversions = true,                                                                          \
     .merged = 8}

/* Speeds of a host, fitted to the groups of bench/bench_cost.c on two cores of a Sapphire Rapids
 * with AMX (the least of 25 rounds, a shared machine). GEMMs run at 1.8 TFLOP/s, and packing their
 * operands takes 10 GB/s in addition; with blocks of scales along k GEMMs reach two thirds of that
 * (runtime/cpu has the same ratio). f32 GEMMs run by AVX-512, as bench/results has them. Attention
 * was timed at heads of 16 to 64 (bench_attention); its softmax costs what its exp does. Memory
 * runs at 100 GB/s, which is mostly cache. */
#define HOST_SPEEDS                                                                                \
    {.gemm = 4.5,                                                                                  \
     .gemm_f32 = 0.38,                                                                             \
     .operands = 0.01,                                                                             \
     .blocks = 0.65,                                                                               \
     .attention = 0.34,                                                                            \
     .attention_grad = 0.355,                                                                      \
     .softmax = 23,                                                                                \
     .vector = 0.14,                                                                               \
     .memory = 5,                                                                                  \
     .launch = 0.5e-6,                                                                             \
     .merged = 1}

/* Rates are dense peaks of data sheets (L40S, H100 SXM, B200, RTX 5090), not measured here; 0 means
 * that there is no such GEMM. Blocks on Hopper: DeepGEMM's 1550 TFLOP/s at 4096 x 7168 x 16384. A
 * host emulates FP8, so a GEMM takes equally long in any format and only memory differs. */
static const f8_target targets[] = {
    HOST("cpu", F8_TARGET_CPU),
    HOST("reference", F8_TARGET_REFERENCE),
    CUDA("sm_89", 89, DEVICE(11080, false, 142, 24), true, false, false,
         RATES(362, 733, 0, 0, 0, 0.864), SPEEDS(91.6, 217, 181)),
    CUDA("sm_90a", 90, DEVICE(12000, true, 132, 25), true, true, false,
         RATES(989, 1979, 1979, 1550, 0, 3.35), SPEEDS(67, 298, 240)),
    CUDA("sm_100a", 100, DEVICE(12080, true, 148, 60), false, false, true,
         RATES(2250, 4500, 0, 0, 4500, 8), SPEEDS(75, 334, 269)),
    CUDA("sm_120a", 120, DEVICE(12080, false, 188, 48), true, false, true,
         RATES(209, 419, 0, 0, 419, 1.79), SPEEDS(104.8, 125, 105)),
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

unsigned f8_target_lacks(const f8_target *t, f8_scale_kind a, f8_scale_kind b)
{
    const bool blocks = (a == F8_SCALED_RUNS || a == F8_SCALED_TILES) &&
                        (b == F8_SCALED_RUNS || b == F8_SCALED_TILES);
    if (a == F8_SCALED_OTHER || (a != b && !blocks))
        return F8_LACKS_PAIR;
    if (blocks)
        return (t->fp8_blocks ? 0 : F8_LACKS_BLOCKS) |
               (t->fp8_two_tiled || a == F8_SCALED_RUNS || a != b ? 0 : F8_LACKS_TWO_TILED);
    if (a == F8_SCALED_ROWS)
        return t->fp8_rows ? 0 : F8_LACKS_ROWS;
    return a == F8_SCALED_MX && !t->fp8_mx ? F8_LACKS_MX : 0;
}

/* cuBLASLt's epilogue BIAS, by the scales of the operands. Its documentation ("cublasLtMatmul",
 * table of FP8 types) has a bf16 bias where D is bf16, for one scale of the tensor and for scales
 * of rows. Of blocks it says nothing, so those rows stay false until a GPU has shown the bits: the
 * sum is then f32 in memory, and a row kernel adds the bias. All versions that are accepted (12.9
 * and later) agree. */
bool f8_target_adds_bias(const f8_target *t, f8_scale_kind b)
{
    static const bool adds[] = {
        [F8_SCALED_TENSOR] = true, [F8_SCALED_ROWS] = true, [F8_SCALED_RUNS] = false,
        [F8_SCALED_TILES] = false, [F8_SCALED_MX] = false,  [F8_SCALED_OTHER] = false,
    };
    return t->gemm_bf16 && adds[b];
}
