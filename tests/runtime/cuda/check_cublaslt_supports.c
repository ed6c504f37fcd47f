/* What cuBLASLt is said to multiply on which target; needs neither a device nor the emulator. */
#include "runtime/cuda/cublaslt.h"
#include "tests/shared/suite.h"

#include <string.h>

#define SIZES(M, N, K, LDA, LDB, LDC) .m = M, .n = N, .k = K, .lda = LDA, .ldb = LDB, .ldc = LDC
#define TYPES(A, B, C) .a = F8_##A, .b = F8_##B, .c = F8_##C
#define FP8_SIZES SIZES(32, 48, 64, 64, 64, 48), .has_alpha = true
#define SMALL SIZES(3, 5, 7, 7, 5, 5)
#define TENSOR {0, 0}
#define ROW {1, 0}
#define RUNS {1, 128}
#define RUNS_T {128, 1}
#define TILES {128, 128}
#define MX {1, 32}
#define TWO_WAYS FP8_SIZES, TYPES(E4M3, E5M2, BF16), .trans_b = true
#define GRID(A, B) TWO_WAYS, .scale_a = A, .scale_b = B
#define SCALED(A, B) TWO_WAYS, .scale_layout = F8_SCALES_CUBLASLT, .scale_a = A, .scale_b = B
#define NO F8_ERR_UNSUPPORTED
#define CAN NULL, F8_OK

static const struct {
    const char *target;
    f8_gemm_desc desc;
    const char *why; /* NULL: it can */
    f8_status status;
} can[] = {
    {"sm_90a", {FP8_SIZES, TYPES(E4M3, E4M3, BF16), .trans_b = true}, CAN},
    {"sm_89", {FP8_SIZES, TYPES(E4M3, E4M3, F32), .trans_b = true, .accumulate = true}, CAN},
    {"sm_120a", {FP8_SIZES, TYPES(E5M2, E4M3, F32), .trans_b = true, .fast_accumulate = true}, CAN},
    {"sm_90a", {FP8_SIZES, TYPES(E5M2, E5M2, F32), .trans_b = true}, "two f8e5m2 operands", NO},
    {"sm_90a", {FP8_SIZES, TYPES(E4M3, E4M3, F32)}, "k as the contiguous axis of both", NO},
    {"sm_90a",
     {FP8_SIZES, TYPES(E4M3, E4M3, F32), .trans_a = true, .trans_b = true},
     "this one has trans_a = true, trans_b = true",
     NO},
    {"sm_100a", {FP8_SIZES, TYPES(E4M3, E4M3, F32)}, CAN},
    {"sm_100a", {FP8_SIZES, TYPES(E4M3, E4M3, F32), .trans_a = true, .trans_b = true}, CAN},
    {"sm_90a",
     {SIZES(33, 48, 64, 64, 64, 48), TYPES(E4M3, E4M3, F32), .trans_b = true},
     "m must be a multiple of 16 on sm_90a; it is 33",
     NO},
    {"sm_90a",
     {SIZES(32, 40, 64, 64, 64, 40), TYPES(E4M3, E4M3, F32), .trans_b = true},
     "n must be a multiple of 16 on sm_90a; it is 40",
     NO},
    {"sm_90a",
     {SIZES(32, 48, 56, 64, 64, 48), TYPES(E4M3, E4M3, F32), .trans_b = true},
     "k must be a multiple of 16 on sm_90a; it is 56",
     NO},
    {"sm_90a",
     {SIZES(32, 48, 64, 72, 64, 48), TYPES(E4M3, E4M3, F32), .trans_b = true},
     "lda must be a multiple of 16 on sm_90a; it is 72",
     NO},
    {"sm_90a",
     {SIZES(32, 48, 64, 64, 72, 48), TYPES(E4M3, E4M3, F32), .trans_b = true},
     "ldb must be a multiple of 16 on sm_90a; it is 72",
     NO},
    {"sm_90a",
     {SIZES(32, 48, 64, 64, 64, 50), TYPES(E4M3, E4M3, BF16), .trans_b = true},
     "ldc is 50 of bf16",
     NO},
    {"sm_90a", {FP8_SIZES, TYPES(E4M3, BF16, F32), .trans_b = true}, "f8e4m3 x bf16", NO},
    {"sm_90a",
     {FP8_SIZES, TYPES(E4M3, E4M3, E4M3), .trans_b = true},
     "can't write f8e4m3: only f32 and bf16",
     NO},
    /* scales: rows and f32 blocks are sm_90a's, E8M0 the later ones' */
    {"sm_90a", {GRID(ROW, ROW)}, CAN},
    {"sm_90a", {SCALED(RUNS, RUNS), .accumulate = true}, "before it adds it to a bf16 C", NO},
    {"sm_90a", {SCALED(RUNS, TILES)}, CAN},
    {"sm_90a", {SCALED(ROW, ROW), .bias = true}, CAN},
    {"sm_90a", {SCALED(TENSOR, TENSOR), .bias = true}, CAN},
    {"sm_90a", {SCALED(RUNS, TILES), .bias = true}, "add no bias where scales cover blocks", NO},
    {"sm_100a", {SCALED(MX, MX), .scale = F8_E8M0, .bias = true}, "add no bias", NO},
    {"sm_90a", {SCALED(TILES, RUNS)}, CAN},
    {"sm_90a", {SCALED(ROW, ROW), .fast_accumulate = true}, CAN},
    {"sm_100a", {SCALED(MX, MX), .scale = F8_E8M0}, CAN},
    {"sm_120a", {SCALED(MX, MX), .scale = F8_E8M0}, CAN},
    {"sm_89", {SCALED(ROW, ROW)}, "on sm_89 take no scale for each row and column", NO},
    {"sm_100a", {SCALED(ROW, ROW)}, "on sm_100a take no scale for each row", NO},
    {"sm_120a", {SCALED(RUNS, TILES)}, "on sm_120a take no scales of blocks of 128", NO},
    {"sm_90a", {SCALED(MX, MX), .scale = F8_E8M0}, "on sm_90a take no f8e8m0 scales", NO},
    {"sm_90a", {SCALED(TILES, TILES)}, "two operands with scales of 128 x 128", NO},
    {"sm_90a", {SCALED(TENSOR, ROW)}, "scaled in two ways", NO},
    {"sm_90a", {SCALED(ROW, RUNS)}, "scaled in two ways", NO},
    {"sm_90a", {SCALED(MX, MX)}, "with f32 scales of block(1,32) and block(1,32)", NO},
    {"sm_100a", {SCALED(ROW, ROW), .scale = F8_E8M0}, "with f8e8m0 scales of row and row", NO},
    {"sm_90a", {SCALED(RUNS_T, RUNS)}, "scales of block(128,1) and block(1,128)", NO},
    {"sm_90a", {GRID(RUNS, RUNS)}, "these are a grid", NO},
    {"sm_90a", {SCALED(RUNS, RUNS), .fast_accumulate = true}, "no fast accumulation", NO},
    {"sm_100a", {GRID(MX, MX), .scale = F8_E8M0}, "these are a grid", NO},
    {"sm_90a", {SMALL, TYPES(F32, F32, F32)}, CAN},
    {"sm_90a", {SMALL, TYPES(BF16, BF16, BF16)}, CAN},
    {"sm_90a", {SMALL, TYPES(BF16, BF16, F32), .accumulate = true}, CAN},
    {"sm_90a",
     {SMALL, TYPES(BF16, BF16, BF16), .accumulate = true},
     "before it adds it to a bf16 C",
     NO},
    {"sm_90a", {SMALL, TYPES(BF16, BF16, BF16), .bias = true}, CAN},
    {"sm_90a",
     {SMALL, TYPES(BF16, BF16, F32), .bias = true},
     "a bias is added where C is bf16",
     NO},
    {"sm_90a", {SMALL, TYPES(F32, F32, BF16)}, "can't write bf16: only f32", NO},
    {"sm_90a", {SMALL, TYPES(F32, BF16, F32)}, "f32 x bf16", NO},
    {"sm_90a", {SMALL, TYPES(F16, F16, F32)}, "f16 x f16", NO},
    {"sm_90a", {SMALL, TYPES(F32, F32, F32), .has_alpha = true}, "by FP8 GEMMs only", NO},
    {"sm_90a", {SMALL, TYPES(BF16, BF16, F32), .has_alpha = true}, "by FP8 GEMMs only", NO},
    {"sm_90a", {SMALL, TYPES(F32, F32, F32), .round_a = true}, "does not round", NO},
    {"sm_90a", {SMALL, TYPES(F32, F32, F32), .algorithm = F8_GEMM_ONEDNN_F32}, "onednn-f32", NO},
    {"sm_90a",
     {SIZES(3, 5, 7, 6, 5, 5), TYPES(F32, F32, F32)},
     "row strides 6, 5, 5 are less than its columns 7, 5, 5",
     F8_ERR_INPUT},
    {"sm_90a", {SIZES(0, 5, 7, 7, 5, 5), TYPES(F32, F32, F32)}, "m = 0", F8_ERR_INPUT},
    {"sm_90a", {SIZES(1, 1, 1l << 31, 1l << 31, 1, 1), TYPES(F32, F32, F32)}, "2^31 - 1", NO},
    {"cpu", {SMALL, TYPES(F32, F32, F32)}, "this is for cpu", NO},
};

START_TEST(cublaslt_supports)
{
    f8_diag d = {0};
    const f8_status status =
        f8_cublaslt_supports(f8_target_by_name(can[_i].target), &can[_i].desc, &d);
    ck_assert_msg(status == can[_i].status, "case %d: %s", _i, d.text);
    if (can[_i].why)
        ck_assert_msg(strstr(d.text, can[_i].why) != NULL, "case %d: %s", _i, d.text);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cublaslt_supports");
    TCase *t = tcase_create("supports");
    tcase_add_loop_test(t, cublaslt_supports, 0, sizeof can / sizeof *can);
    suite_add_tcase(s, t);
    return s;
}
