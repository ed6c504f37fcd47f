/* See suite.h. The exit code is 0 where all tests passed, 1 where one failed, and 77 where the
 * program could run none. */
#include "tests/shared/suite.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { NOTHING_RAN = 77 };

void test_skip(const char *what, const char *why, ...)
{
    va_list args;
    va_start(args, why);
    printf("skipped: %s: ", what);
    vprintf(why, args);
    printf("\n");
    fflush(stdout); /* a test's process may end without it */
    va_end(args);
}

/* Instead of Check's own (tests/test.mk says why). */
void __wrap__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line)
{
    (void)file, (void)line;
}

int main(void)
{
    setenv("CK_DEFAULT_TIMEOUT", "60", 0); /* not 4 seconds: other programs may have the CPUs */
    Suite *suite = f8_suite();
    if (!suite)
        return NOTHING_RAN;
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
