/* What the command prints while it works, and Ctrl-C: a compile stops in good order and leaves no
 * partial file. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

#define GPT "frontend/models/gpt.f8"
#define SMALL "-D", "B=2", "-D", "T=32", "-D", "L=1", "-D", "C=32", "-D", "H=2"

enum { TIMEOUT = 300, INTERRUPTED = 130 };

static void setup(void)
{
    f8_cli_setup();
    setenv("FP8C_CACHE_DIR", "", 1);
    unsetenv("FP8C_VERBOSE");
    unsetenv("FP8C_DUMP");
}

static void says(const char *text, const char *words, bool wanted)
{
    ck_assert_msg((strstr(text, words) != NULL) == wanted, "'%s' %s: %s", words,
                  wanted ? "is not in" : "is in", text);
}

static void level_is(f8_cli_result r, int level)
{
    ck_assert_int_eq(r.code, 0);
    says(r.err, "fp8c: module gpt for cpu: ", level >= 1);
    says(r.err, "fp8c: pass autodiff: ", level >= 2);
    ck_assert_int_eq(r.n_err == 0, level == 0);
}

START_TEST(verbose)
{
    setenv("FP8C_CACHE_DIR", f8_cli_temp("cache"), 1); /* kernels are compiled once */
    f8_cli_result r = F8_CLI("explain", GPT, SMALL, "-v", "--verbose", "-v");
    level_is(r, 2);
    says(r.err, "fp8c: kernel ", true);
    level_is(F8_CLI("explain", GPT, SMALL), 0);
    level_is(F8_CLI("explain", GPT, SMALL, "-v"), 1);
    level_is(F8_CLI("explain", GPT, SMALL, "--verbose"), 1);
    setenv("FP8C_VERBOSE", "0", 1);
    level_is(F8_CLI("explain", GPT, SMALL), 0);
    setenv("FP8C_VERBOSE", "2", 1);
    level_is(F8_CLI("explain", GPT, SMALL), 2);
    level_is(F8_CLI("explain", GPT, SMALL, "-v"), 1); /* the option stands in for the variable */
    f8_cli_fails(F8_CLI("explain", GPT, "--verbose=2"), 2, "no such option '--verbose=2'");
}
END_TEST

/* Warnings are said always. */
START_TEST(warnings)
{
    setenv("FP8C_CACHE_DIR", f8_cli_write("file", "x", 1), 1);
    f8_cli_result r = F8_CLI("explain", GPT, SMALL);
    ck_assert_int_eq(r.code, 0);
    says(r.err, "fp8c: warning: kernels are not cached: ", true);
    f8_cli_ok(F8_CLI("check", GPT));
    setenv("FP8C_VERBOSE", "much", 1);
    r = F8_CLI("check", GPT);
    ck_assert_int_eq(r.code, 0);
    says(r.err, "fp8c: warning: FP8C_VERBOSE is not 0, 1 or 2", true);
}
END_TEST

static f8_cli_result interrupted(const char *at, const char *const *args)
{
    const f8_cli_result r = f8_cli_run_interrupted(at, args);
    ck_assert_msg(r.code == INTERRUPTED, "%d: %s", r.code, r.err);
    says(r.err, "\ninterrupted\n", true);
    return r;
}

/* GPT-2's step in passes, and kernels one by one: there is much left to do when the first line is
 * said. */
START_TEST(interrupted_compiles)
{
    static const char *const model = "frontend/models/gpt2_124m.f8";
    const char *const explain[] = {"explain", model, "-v", "-v", NULL};
    const char *const plan[] = {"plan", model, "--memory", "0.5", "-v", "-v", NULL};
    ck_assert_uint_eq(interrupted("pass precision", explain).n_out, 0);
    ck_assert_uint_eq(interrupted("fp8c: kernel ", explain).n_out, 0);
    interrupted("pass group", plan);
}
END_TEST

static int files_in(const char *path, const char *part)
{
    DIR *d = opendir(path);
    int n = 0;
    struct dirent *e;
    ck_assert_ptr_nonnull(d);
    while ((e = readdir(d)))
        n += strstr(e->d_name, part) != NULL;
    closedir(d);
    return n;
}

/* What was to be written is not there, and what was there before is as it was. */
START_TEST(interrupted_outputs)
{
    char folder[512], output[600];
    size_t n;
    snprintf(folder, sizeof folder, "%s", f8_cli_temp(""));
    snprintf(output, sizeof output, "%s", f8_cli_temp("out.f8x"));
    const char *const args[] = {"compile", "frontend/models/gpt2_124m.f8", "-o", output, "-v", "-v",
                                NULL};
    interrupted("fp8c: kernel ", args);
    ck_assert_int_eq(files_in(folder, "out.f8x"), 0);
    ck_assert_str_eq(f8_cli_write("out.f8x", "before", 6), output);
    const f8_cli_result r = f8_cli_run_signals(
        (f8_cli_signal[]){{.number = SIGTERM, .words = "fp8c: kernel "}, {0}}, args);
    ck_assert_msg(r.code == 128 + SIGTERM, "%d: %s", r.code, r.err);
    says(r.err, "\ninterrupted\n", true);
    ck_assert_int_eq(files_in(folder, "out.f8x"), 1);
    char *text = f8_cli_read(output, &n);
    ck_assert_str_eq(text, "before");
    free(text);
}
END_TEST

/* On a terminal a line may come and go, or not: what else is said is whole, and JSON on stdout
 * keeps it away. */
START_TEST(on_a_terminal)
{
    const char *const wrong[] = {"explain", GPT, SMALL, "--memory", "1K", NULL};
    f8_cli_result r = f8_cli_run_on_terminal(wrong);
    ck_assert_int_eq(r.code, 1);
    says(r.err, "memory: ", true);
    ck_assert_ptr_null(strchr(r.err, 27)); /* no escape code */
    const char *const json[] = {"explain", GPT, SMALL, "--json", "-", NULL};
    r = f8_cli_run_on_terminal(json);
    ck_assert_int_eq(r.code, 0);
    ck_assert_uint_eq(r.n_err, 0);
    /* Tuning takes the seconds it is given, in which it need not compile what is there already. It
     * says how many seconds are left once it has timed something. Under a sanitizer that takes a
     * few seconds. */
    const char *const seconds = f8_cli_sanitized() ? "20" : "3";
    setenv("FP8C_CACHE_DIR", f8_cli_temp("cache"), 1);
    f8_cli_ok(F8_CLI("explain", GPT, SMALL));
    const char *const tune[] = {
        "tune", GPT, SMALL, "--time", seconds, "--database", f8_cli_temp("t.db"), NULL};
    r = f8_cli_run_on_terminal(tune);
    ck_assert_int_eq(r.code, 0);
    says(r.err, "\rtune [", true);
    says(r.err, "] ", true);
    says(r.err, " s left: ", true);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cli_progress");
    TCase *t = tcase_create("cli_progress");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_add_test(t, verbose);
    tcase_add_test(t, warnings);
    tcase_add_test(t, interrupted_compiles);
    tcase_add_test(t, interrupted_outputs);
    tcase_add_test(t, on_a_terminal);
    suite_add_tcase(s, t);
    return s;
}
