/* The CPU target against the interpreter on random graphs: see tests/shared/graphs/differential.h.
 */
#include <stdlib.h>

#include "tests/shared/graphs/differential.h"
#include "tests/shared/suite.h"

START_TEST(targets_agree)
{
    uint64_t n;
    const int failed = f8_differential_run(&(f8_differential){.target = "cpu", .graphs = 300}, &n);
    ck_assert_msg(failed == 0, "%d of %llu graphs failed", failed, (unsigned long long)n);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("differential");
    TCase *t = tcase_create("differential");
    tcase_set_timeout(t, 3000);
    tcase_add_test(t, targets_agree);
    suite_add_tcase(s, t);
    setenv("CK_FORK", "no", 1); /* one check for leaks, at the end */
    return s;
}
