/* Gradients as sums of micro-steps on a CUDA target, where the host chooses for each run whether
 * GEMMs store or add. On the emulator, or with FP8C_TEST_GPU on this machine's GPU. */
#include "tests/shared/api/sums_case.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

START_TEST(sums)
{
    sums_case("cuda", _i);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("sums on CUDA");
    TCase *t = tcase_create("sums on CUDA");
    f8_test_gpu_emulated();
    tcase_set_timeout(t, 600);
    tcase_add_loop_test(t, sums, 0, SUMS_CASES);
    suite_add_tcase(s, t);
    return s;
}
