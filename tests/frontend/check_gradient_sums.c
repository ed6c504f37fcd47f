/* Gradients as sums of micro-steps: on the CPU and on the interpreter. check_cuda_gradient_sums.c
 * has them on CUDA. */
#include "tests/shared/api/sums_case.h"
#include "tests/shared/suite.h"

START_TEST(on_a_cpu)
{
    sums_case("cpu", _i);
}
END_TEST

START_TEST(interpreted)
{
    sums_case("reference", _i);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("sums");
    TCase *t = tcase_create("sums");
    tcase_set_timeout(t, 600);
    tcase_add_loop_test(t, on_a_cpu, 0, SUMS_CASES);
    tcase_add_loop_test(t, interpreted, 0, SUMS_CASES);
    suite_add_tcase(s, t);
    return s;
}
