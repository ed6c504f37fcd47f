/* `fp8c train --stats` and `--dump`: what is recorded and when, that nothing else changes, and what
 * is refused. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/api/train_case.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 300 };

static void setup(void)
{
    train_setup("lr = 1e-2");
}

/* The records of statistics of a folder, a line each. */
static char *statistics(const char *of)
{
    size_t n, size;
    char *all = f8_cli_read(in(of, "steps.jsonl"), &n), *text, *save;
    FILE *to = open_memstream(&text, &size);
    for (char *line = strtok_r(all, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (strstr(line, "\"event\":\"stats\""))
            fprintf(to, "%s\n", line);
    fclose(to);
    free(all);
    return text;
}

/* How many of them are of that step and tensor (NULL: any), each with the fields of one. */
static int count(const char *text, int step, const char *tensor)
{
    int n = 0;
    for (const char *at = text; *at; at = strchr(at, '\n') + 1) {
        json_t *r = json_loadb(at, (size_t)(strchr(at, '\n') - at), 0, NULL);
        ck_assert_ptr_nonnull(r);
        ck_assert(json_is_integer(json_object_get(r, "elements")) &&
                  json_real_value(json_object_get(r, "amax")) > 0 &&
                  json_object_get(r, "scale_wanted"));
        const json_t *used = json_object_get(r, "used"), *form = json_object_get(r, "format");
        ck_assert(json_is_string(form) ? json_real_value(used) > 0 && json_real_value(used) <= 1
                                       : json_is_null(used));
        const bool named =
            !tensor || !strcmp(json_string_value(json_object_get(r, "tensor")), tensor);
        n += named && json_integer_value(json_object_get(r, "step")) == step;
        json_decref(r);
    }
    return n;
}

static void same_file(const char *a, const char *b)
{
    size_t n, m;
    char *x = f8_cli_read(a, &n), *y = f8_cli_read(b, &m);
    ck_assert_msg(n == m && !memcmp(x, y, n), "%s and %s differ", a, b);
    free(x);
    free(y);
}

START_TEST(watching_changes_nothing)
{
    char plain[PATH], watched[PATH];
    snprintf(plain, sizeof plain, "%s", f8_cli_temp("plain"));
    snprintf(watched, sizeof watched, "%s", f8_cli_temp("watched"));
    f8_cli_result r = F8_CLI("train", file, "--data", data, "--steps", "7", "--recipe", "delayed",
                             "-D", "A=2", "--save-state", plain);
    ck_assert_msg(!r.code, "%s", r.err);
    r = F8_CLI("train", file, "--data", data, "--steps", "7", "--recipe", "delayed", "-D", "A=2",
               "--save-state", watched, "--run", folder, "--stats", "*", "--every", "3",
               "--stats-recipe", "block", "--dump", "up.x,head.*", "--dump-steps", "3:4");
    ck_assert_msg(!r.code, "%s", r.err);
    same_file(plain, watched);
    char *text = statistics(folder);
    const int all = count(text, 1, NULL);
    ck_assert_int_ge(all, 12); /* two linears, six values each; and what if */
    static const int wanted[] = {0, 1, 0, 1, 0, 0, 1, 0};
    for (int step = 0; step < 8; step++)
        ck_assert_int_eq(count(text, step, NULL), wanted[step] ? all : 0);
    ck_assert_int_eq(count(text, 3, "up.x"), 1);
    ck_assert_int_eq(count(text, 3, "head.dw"), 1);
    ck_assert_int_eq(count(text, 3, "up.w.128x128@block"), 1);
    free(text);
    for (int step = 1; step < 8; step++) {
        char name[60];
        snprintf(name, sizeof name, "dump-%d.safetensors", step);
        ck_assert_int_eq(there(folder, name), step == 3 || step == 4);
    }
}
END_TEST

/* The statistics of a run that stopped and went on are those of one that did not stop. */
START_TEST(resumed)
{
#define WATCHED                                                                                    \
    "--data", data, "--steps", "6", "--recipe", "delayed", "--stats", "*", "--every", "2"
    f8_cli_result r = F8_CLI("train", file, WATCHED, "--run", straight);
    ck_assert_msg(!r.code, "%s", r.err);
    r = F8_CLI("train", file, WATCHED, "--run", folder, "--stop-at", "3");
    ck_assert_msg(!r.code, "%s", r.err);
    r = F8_CLI("train", "--resume", folder);
    ck_assert_msg(!r.code, "%s", r.err);
    char *a = statistics(straight), *b = statistics(folder);
    ck_assert_int_gt(count(a, 6, NULL), 0);
    ck_assert_str_eq(a, b);
    free(a);
    free(b);
}
END_TEST

START_TEST(records_of_several_runs)
{
    f8_cli_result r = F8_CLI("train", file, "--data", data, "--steps", "2", "--recipe", "delayed",
                             "--compare", "bf16", "--stats", "up.dy", "--json", "-");
    ck_assert_msg(!r.code, "%s", r.err);
    int quantized = 0, plain = 0;
    for (char *save, *line = strtok_r(r.out, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (strstr(line, "\"event\":\"stats\"")) {
            quantized += strstr(line, "\"quantized\":\"delayed\"") != NULL;
            plain += strstr(line, "\"quantized\":null") != NULL;
        }
    ck_assert_int_eq(quantized, 1); /* the first step */
    ck_assert_int_eq(plain, 1);
}
END_TEST

START_TEST(refused)
{
#define TRAIN "train", file, "--data", data, "--steps", "2", "--recipe", "delayed"
#define FOLDER TRAIN, "--run", folder
    f8_cli_fails(F8_CLI(TRAIN, "--stats", "*"), 2,
                 "without --json, --run and --resume, train does not use '--stats'");
    f8_cli_fails(F8_CLI(FOLDER, "--every", "2"), 2, "--every is for --stats PATTERN");
    f8_cli_fails(F8_CLI(FOLDER, "--stats-recipe", "block"), 2, "--stats-recipe is for --stats");
    f8_cli_fails(F8_CLI(FOLDER, "--dump", "*"), 2, "--dump needs --dump-steps FIRST:LAST");
    f8_cli_fails(F8_CLI(FOLDER, "--dump-steps", "1:2"), 2, "--dump-steps is for --dump");
    static const char *const steps[] = {"3", "3:", ":3", "3:2", "0:2", "1:2x", "a:b"};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        f8_cli_fails(F8_CLI(FOLDER, "--dump", "*", "--dump-steps", steps[i]), 2,
                     "FIRST:LAST was expected");
    f8_cli_fails(F8_CLI(TRAIN, "--dump", "*", "--dump-steps", "1:2"), 2, "does not use '--dump'");
    f8_cli_fails(F8_CLI(FOLDER, "--stats", "mlp.*"), 1,
                 "stats: 'mlp.*' matches no operand and no result of a linear's GEMM; they have "
                 "names such as 'up.x'");
    f8_cli_fails(F8_CLI(FOLDER, "--dump", "mlp.*", "--dump-steps", "1:2"), 1,
                 "dump: 'mlp.*' matches no operand");
    f8_cli_fails(F8_CLI(FOLDER, "--stats", "*", "--stats-recipe", "delayed"), 1,
                 "does not scale a value by its own amax");
    ck_assert(!there(folder, "run.json"));
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("stats");
    TCase *t = tcase_create("stats");
    tcase_add_checked_fixture(t, setup, train_teardown);
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_test(t, watching_changes_nothing);
    tcase_add_test(t, resumed);
    tcase_add_test(t, records_of_several_runs);
    tcase_add_test(t, refused);
    suite_add_tcase(s, t);
    return s;
}
