/* The first steps of a training under `delayed`, while amax histories are empty: on the CPU and on
 * the interpreter. check_cuda_statistics.c has them on CUDA. */
#include "tests/shared/api/first_case.h"
#include "tests/shared/suite.h"

static const char *const targets[] = {"cpu", "reference"};

START_TEST(is_currents)
{
    first_is_currents(targets[_i]);
}
END_TEST

START_TEST(by_histories)
{
    first_by_histories(targets[_i]);
}
END_TEST

START_TEST(keeps_bits)
{
    first_keeps_bits(targets[_i]);
}
END_TEST

START_TEST(has_no_eval)
{
    first_has_no_eval(targets[_i]);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("first step");
    TCase *t = tcase_create("first step");
    tcase_set_timeout(t, 600);
    tcase_add_loop_test(t, is_currents, 0, 2);
    tcase_add_loop_test(t, by_histories, 0, 2);
    tcase_add_loop_test(t, keeps_bits, 0, 2);
    tcase_add_loop_test(t, has_no_eval, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
