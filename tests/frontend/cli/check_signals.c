/* SIGINT and SIGTERM at any moment of a training, and a full device as stdout: what was to be
 * written is whole or not there, no temporary file is left, and the user is told. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/shared/api/train_case.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 300 };

static char out[PATH], reference[PATH], json[PATH];

static void setup(void)
{
    /* The learning rate is constant, so that the state after n steps does not depend on how many
     * were to follow. */
    train_setup("lr = 1e-3");
    snprintf(out, sizeof out, "%s", f8_cli_temp("out.safetensors"));
    snprintf(reference, sizeof reference, "%s", f8_cli_temp("reference.safetensors"));
    snprintf(json, sizeof json, "%s", f8_cli_temp("records"));
}

/* ---- what is left ---- */

static void nothing_left_over(void)
{
    f8_cli_whole(f8_cli_temp(""));
}

/* The checkpoint is the one that a training of n steps writes, byte for byte. */
static void is_checkpoint_of(long n)
{
    char steps[24];
    size_t bytes, want_bytes;
    snprintf(steps, sizeof steps, "%ld", n);
    ck_assert_int_eq(
        F8_CLI("train", file, "--data", data, "--steps", steps, "--save", reference).code, 0);
    char *got = f8_cli_read(out, &bytes), *want = f8_cli_read(reference, &want_bytes);
    ck_assert_msg(bytes == want_bytes && !memcmp(got, want, bytes),
                  "not the checkpoint of step %ld", n);
    free(got);
    free(want);
}

static void says(f8_cli_result r, const char *words)
{
    ck_assert_msg(strstr(r.err, words) != NULL, "'%s' is not in: %s", words, r.err);
}

static void was_interrupted(f8_cli_result r, int number)
{
    ck_assert_msg(r.code == 128 + number, "exit %d, signal %d: %s", r.code, number, r.err);
    ck_assert_msg(r.n_err && r.err[r.n_err - 1] == '\n', "%s", r.err);
    ck_assert_str_eq(r.out, "");
    nothing_left_over();
}

/* What it says of the checkpoint is so. Returns the step; 0: none was written. */
static long saved_as_said(f8_cli_result r, long steps)
{
    struct stat s;
    char want[200];
    const char *said = strstr(r.err, "interrupted after step ");
    const long n = said ? atol(said + strlen("interrupted after step ")) : 0;
    if (!said) {
        says(r, "interrupted before the first step: ");
        says(r, "out.safetensors is not written\n");
        ck_assert_msg(stat(out, &s), "%s", r.err);
        return 0;
    }
    snprintf(want, sizeof want, "interrupted after step %ld of %ld under bf16: ", n, steps);
    says(r, want);
    snprintf(want, sizeof want, "out.safetensors has the checkpoint of step %ld under bf16\n", n);
    says(r, want);
    ck_assert_msg(!strstr(strstr(r.err, want) + 1, "\n") || r.err[r.n_err - 1] == '\n', "%s",
                  r.err);
    is_checkpoint_of(n);
    return n;
}

/* ---- training ---- */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* At random moments of a training that would go on for long: while it starts, compiles and trains.
 */
START_TEST(at_any_moment)
{
    const int times = f8_cli_sanitized() ? 6 : 14;
    uint32_t seed = 5;
    printf("at_any_moment: seed %u\n", seed);
    f8_cli_result one = F8_CLI("train", file, "--data", data, "--steps", "1");
    const double start = seconds();
    one = F8_CLI("train", file, "--data", data, "--steps", "1"); /* its kernels are cached */
    const double whole = seconds() - start;
    f8_cli_ok(one);
    const char *const args[] = {"train",   file,     "--data", data, "--steps",
                                "1000000", "--save", out,      NULL};
    int none = 0, some = 0;
    for (int i = 0; i < times; i++) {
        const int number = i % 2 ? SIGTERM : SIGINT;
        const long pause = (long)(4e6 * whole * (test_random(&seed) % 1000) / 1000);
        unlink(out);
        const f8_cli_result r = f8_cli_run_signals(
            (f8_cli_signal[]){{.number = number, .caught = true, .pause = pause}, {0}}, args);
        was_interrupted(r, number);
        if (saved_as_said(r, 1000000))
            some++;
        else
            none++;
    }
    printf("at_any_moment: %d checkpoints, %d times before the first step\n", some, none);
}
END_TEST

/* Within large GEMMs: oneDNN may have the stack pointer in the heap, where a handler would do
 * damage. */
START_TEST(while_it_multiplies)
{
    const char *const args[] = {"train",  file,    "--data",   data,    "--steps", "1000000",
                                "-D",     "C=512", "-D",       "T=128", "-D",      "B=8",
                                "--json", json,    "--recipe", "f32",   NULL};
    uint32_t seed = 7;
    printf("while_it_multiplies: seed %u\n", seed);
    for (int i = 0; i < (f8_cli_sanitized() ? 2 : 12); i++) {
        unlink(json);
        const f8_cli_signal in_step_2 = {.number = SIGINT,
                                         .path = json,
                                         .words = "\"step\":1,",
                                         .pause = (long)(test_random(&seed) % 30000)};
        was_interrupted(f8_cli_run_signals((f8_cli_signal[]){in_step_2, {0}}, args), SIGINT);
    }
}
END_TEST

/* While the checkpoint is being written, at the end of a training. */
START_TEST(while_it_saves)
{
    const char *const args[] = {"train", file,    "--data", data, "--steps", "2",
                                "-D",    "C=256", "--save", out,  NULL};
    static const int number[] = {SIGINT, SIGTERM};
    for (int i = 0; i < 4; i++) {
        unlink(out);
        const f8_cli_result r = f8_cli_run_signals(
            (f8_cli_signal[]){{.number = number[i % 2], .temporary = "out."}, {0}}, args);
        nothing_left_over();
        if (r.code == 0 || r.out[0]) /* it was faster; a signal may come after the table */
            continue;
        was_interrupted(r, number[i % 2]);
        says(r, "interrupted after step 2 of 2 under bf16: ");
        says(r, "has the checkpoint of step 2 under bf16\n");
    }
}
END_TEST

/* In a step of many micro-steps: after the first signal the step is finished and saved. A second
 * one ends at once, and nothing is saved. Two at the same time are one: `timeout` sends them so. */
START_TEST(a_second_signal)
{
    const char *const args[] = {"train", file, "--data", data,     "--steps", "100", "--json",
                                json,    "-D", "A=5000", "--save", out,       NULL};
    struct stat s;
    const f8_cli_signal in_step_2 = {.number = SIGINT, .path = json, .words = "\"step\":1,"};
    f8_cli_result r = f8_cli_run_signals((f8_cli_signal[]){in_step_2, {0}}, args);
    was_interrupted(r, SIGINT);
    says(r, "interrupted: this step is finished and saved; once more ends at once\n");
    says(r, "has the checkpoint of step ");
    ck_assert(!stat(out, &s));
    unlink(out);
    unlink(json);
    r = f8_cli_run_signals(
        (f8_cli_signal[]){in_step_2,
                          {.number = SIGTERM, .words = "once more ends at once\n", .pause = 60000},
                          {0}},
        args);
    was_interrupted(r, SIGTERM);
    says(r, "interrupted again: ended at once\n");
    ck_assert(stat(out, &s));
    unlink(json);
    r = f8_cli_run_signals(
        (f8_cli_signal[]){{.number = SIGSTOP, .path = json, .words = "\"step\":1,"},
                          {.number = SIGINT},
                          {.number = SIGTERM},
                          {.number = SIGCONT},
                          {0}},
        args);
    ck_assert_msg(r.code == 128 + SIGINT || r.code == 128 + SIGTERM, "%d: %s", r.code, r.err);
    says(r, "has the checkpoint of step ");
    ck_assert(!stat(out, &s));
    nothing_left_over();
}
END_TEST

/* The file of that name stays as it was; and of several recipes, the checkpoint is the first's. */
START_TEST(what_was_there)
{
    const char *const args[] = {"train",  file, "--data", data,     "--steps", "1000000",
                                "--save", out,  "-D",     "A=2000", "-v",      NULL};
    size_t n;
    f8_cli_write("out.safetensors", "before", 6);
    f8_cli_result r =
        f8_cli_run_signals((f8_cli_signal[]){{.number = SIGTERM, .words = "fp8c: "}, {0}}, args);
    was_interrupted(r, SIGTERM);
    if (strstr(r.err, "before the first step")) {
        char *text = f8_cli_read(out, &n);
        ck_assert_str_eq(text, "before");
        free(text);
    }
    const char *const both[] = {"train",  file,     "--data", data,        "--steps",
                                "3000",   "--json", json,     "--compare", "f32",
                                "--save", out,      NULL};
    r = f8_cli_run_signals(
        (f8_cli_signal[]){
            {.number = SIGINT, .path = json, .words = "\"f32\",\"seed\":1,\"step\":1,"}, {0}},
        both);
    was_interrupted(r, SIGINT);
    says(r, " of 3000 under f32: ");
    says(r, "out.safetensors has the checkpoint of step 3000 under bf16\n");
    is_checkpoint_of(3000);
}
END_TEST

START_TEST(without_save)
{
    const char *const args[] = {"train",   file,     "--data", data, "--steps",
                                "1000000", "--json", json,     NULL};
    const f8_cli_result r = f8_cli_run_signals(
        (f8_cli_signal[]){{.number = SIGTERM, .path = json, .words = "\"step\":3,"}, {0}}, args);
    was_interrupted(r, SIGTERM);
    says(r, "interrupted after step ");
    says(r, " of 1000000 under bf16\n");
}
END_TEST

/* The table of budgets ends with a whole line: an interrupt is no budget that can't be met. */
START_TEST(in_a_table)
{
    const char *const args[] = {"plan", GPT, "-v", NULL};
    const f8_cli_result r = f8_cli_run_signals(
        (f8_cli_signal[]){{.number = SIGINT, .words = "fp8c: module gpt for cpu", .pause = 20000},
                          {0}},
        args);
    ck_assert_msg(r.code == 128 + SIGINT, "%d: %s", r.code, r.err);
    says(r, "interrupted\n");
    ck_assert_msg(!strstr(r.out, "callback") && !strstr(r.err, "callback"), "%s%s", r.out, r.err);
    ck_assert(!r.n_out || r.out[r.n_out - 1] == '\n');
}
END_TEST

/* ---- a full device ---- */

static void full(const char *const *args)
{
    const f8_cli_result r = f8_cli_run_full(args);
    ck_assert_msg(r.code == 1, "%s: exit %d: %s", args[0], r.code, r.err);
    ck_assert_str_eq(r.err, "error: stdout: No space left on device\n");
}

START_TEST(full_stdout)
{
    struct stat s;
    if (stat("/dev/full", &s)) {
        test_skip("a full device", "there is no /dev/full");
        return;
    }
    ck_assert_int_eq(F8_CLI("train", file, "--data", data, "--steps", "1", "--save", out).code, 0);
    full((const char *const[]){"check", GPT, NULL});
    full((const char *const[]){"print", GPT, NULL}); /* more than the buffer of stdout holds */
    full((const char *const[]){"print", "frontend/models/mpt_1b.f8", NULL});
    full((const char *const[]){"print", GPT, "--print-after", "scaling", SMALL, NULL});
    full((const char *const[]){"plan", file, "--recipe", "f32", NULL});
    full((const char *const[]){"explain", GPT, "--kernels", SMALL, NULL});
    full((const char *const[]){"train", file, "--data", data, "--steps", "1", NULL});
    full((const char *const[]){"eval", file, "--data", data, "--weights", out, NULL});
    full((const char *const[]){"help", NULL});
    full((const char *const[]){"help", "--man", NULL});
    full((const char *const[]){"completion", "bash", NULL});
    full((const char *const[]){"doctor", "--target", "reference", NULL});
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("signals");
    TCase *t = tcase_create("signals");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, train_teardown);
    tcase_add_test(t, at_any_moment);
    tcase_add_test(t, while_it_multiplies);
    tcase_add_test(t, while_it_saves);
    tcase_add_test(t, a_second_signal);
    tcase_add_test(t, what_was_there);
    tcase_add_test(t, without_save);
    tcase_add_test(t, in_a_table);
    tcase_add_test(t, full_stdout);
    suite_add_tcase(s, t);
    return s;
}
