/* Statistics and dumps on a CUDA target: the interpreter's bits. On the emulator, or with
 * FP8C_TEST_GPU on this machine's GPU. */
#include "frontend/fp8c_diagnose.h"
#include "tests/shared/api/first_case.h"
#include "tests/shared/api/statistics_case.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

/* The recipes whose GEMMs every CUDA target has. */
START_TEST(figures_have_the_interpreters_bits)
{
    static const char *const everywhere[] = {"bf16", "delayed", "current", "fake"};
    const char *name = everywhere[_i];
    exact gpu, interpreted;
    run_exact(&gpu, "cuda", name, "mxfp8", 0, true);
    run_exact(&interpreted, "reference", name, "mxfp8", 0, true);
    ck_assert_int_gt(same_results(&gpu, &interpreted, name), 7); /* loss, stats, six values */
    fp8c_statistic s = {.struct_size = sizeof s}, t = s;
    int n = 0;
    for (; fp8c_program_statistic(gpu.p, gpu.f, n, &s) == FP8C_OK; n++) {
        ck_assert_int_eq(fp8c_program_statistic(interpreted.p, interpreted.f, n, &t), FP8C_OK);
        ck_assert_str_eq(s.name, t.name);
        ck_assert(!memcmp(&s.amin, &t.amin, sizeof s.amin) &&
                  !memcmp(&s.mse, &t.mse, sizeof s.mse));
    }
    ck_assert_int_gt(n, 8);
    end_exact(&gpu);
    end_exact(&interpreted);
}
END_TEST

/* ---- the first step of `delayed`, whose figures these often are ---- */

START_TEST(first_step)
{
    static void (*const check[])(const char *) = {first_is_currents, first_by_histories,
                                                  first_keeps_bits};
    check[_i]("cuda");
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("statistics on CUDA");
    TCase *t = tcase_create("statistics on CUDA");
    exact_coarse = !f8_test_gpu_emulated();
    tcase_set_timeout(t, 600);
    tcase_add_loop_test(t, figures_have_the_interpreters_bits, 0, 4);
    tcase_add_loop_test(t, first_step, 0, 3);
    suite_add_tcase(s, t);
    return s;
}
