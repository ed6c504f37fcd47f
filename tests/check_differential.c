/* The CPU target against the reference interpreter, on random graphs: tests/shared/differential.h. */
#include <check.h>
#include <stdlib.h>

#include "tests/shared/differential.h"

START_TEST(targets_agree)
{
    uint64_t n;
    const int failed = f8_differential_run(&(f8_differential){.target = "cpu", .graphs = 600}, &n);
    ck_assert_msg(failed == 0, "%d of %llu graphs failed", failed, (unsigned long long)n);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("differential");
    TCase *t = tcase_create("differential");
    tcase_set_timeout(t, 3000);
    tcase_add_test(t, targets_agree);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_set_fork_status(r, CK_NOFORK);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
