/* What every test program defines: its suite. main.c, which is linked into each program, runs it.
 */
#ifndef F8_TEST_SUITE_H
#define F8_TEST_SUITE_H

#include <check.h>

/* NULL says that the program can run nothing on this machine; it has then called test_skip. */
Suite *f8_suite(void);

/* Says that a test, or a part of one, was not run, and why: prints "skipped: WHAT: WHY". The test
 * returns after it. tests/run counts these lines. A choice to save time is no reason to call it. */
void test_skip(const char *what, const char *why, ...) __attribute__((format(printf, 2, 3)));

#endif
