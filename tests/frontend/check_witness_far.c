/* The witness on the CPU calls nothing wrong where tensors lie far from 1, under any recipe. */
#include "tests/shared/api/witness_far.h"
#include "tests/shared/suite.h"

static const char *const recipes[] = {"bf16",          "delayed", "current", "rowwise",
                                      "rowwise_gw_hp", "block",   "mxfp8",   "fake"};
enum { RECIPES = sizeof recipes / sizeof *recipes };

START_TEST(agrees_far_from_1)
{
    witness_far_agrees("cpu", recipes[_i]);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("witness far from 1");
    TCase *t = tcase_create("witness far from 1");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, agrees_far_from_1, 0, RECIPES);
    suite_add_tcase(s, t);
    return s;
}
