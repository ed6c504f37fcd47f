/* The witness on a CUDA target: the bits of plain runs, and every step is judged right. On the
 * emulator, or with FP8C_TEST_GPU on this machine's GPU. */
#include "tests/shared/api/witness_case.h"
#include "tests/shared/api/witness_far.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

static const char *const recipes[] = {"bf16", "delayed"};

START_TEST(agrees)
{
    witness_agrees("cuda", recipes[_i], 1);
}
END_TEST

/* Those that the emulator's GPU has. */
static const char *const far_recipes[] = {"bf16", "delayed", "current", "rowwise", "block"};
enum { FAR_RECIPES = sizeof far_recipes / sizeof *far_recipes };

START_TEST(agrees_far_from_1)
{
    witness_far_agrees("cuda", far_recipes[_i]);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("witness on CUDA");
    TCase *t = tcase_create("witness on CUDA");
    f8_test_gpu_emulated();
    tcase_set_timeout(t, 600);
    tcase_add_loop_test(t, agrees, 0, 2);
    tcase_add_loop_test(t, agrees_far_from_1, 0, FAR_RECIPES);
    suite_add_tcase(s, t);
    return s;
}
