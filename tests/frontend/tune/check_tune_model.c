/* fp8c tune FILE.f8: what it prints, the files that it writes, and attention. */
#include <unistd.h>

#include "tests/shared/api/api.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

#include <jansson.h>

static char database[128];

static void setup(void)
{
    f8_cli_setup();
    snprintf(database, sizeof database, "%s", f8_cli_temp("tuning.db"));
    setenv("FP8C_TUNING", database, 1);
    setenv("FP8C_CACHE_DIR", f8_cli_temp("cache"), 0);
}

/* Records of an event in JSON Lines, and of them those whose `key` is `value` (NULL: all). */
static int count_records(const char *path, const char *event, const char *key, const char *value)
{
    FILE *f = fopen(path, "r");
    int n = 0;
    ck_assert_ptr_nonnull(f);
    for (json_t *r; (r = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)); json_decref(r)) {
        const char *is = key ? json_string_value(json_object_get(r, key)) : NULL;
        n += !strcmp(json_string_value(json_object_get(r, "event")), event) &&
             (!key || (is && !strcmp(is, value)));
    }
    fclose(f);
    return n;
}

static int count_lines(const char *path)
{
    size_t size;
    char *text = f8_cli_read(path, &size);
    int n = 0;
    for (size_t i = 0; i < size; i++)
        n += text[i] == '\n';
    free(text);
    return n;
}

/* A path that lasts: f8_cli_temp's does not. */
typedef struct lasting {
    char text[256];
} lasting;

static lasting last(const char *path)
{
    lasting l;
    snprintf(l.text, sizeof l.text, "%s", path);
    return l;
}

/* The files of a model's step: all problems and ways, the tuner's records, and --diff of two. */
START_TEST(files_of_a_model)
{
    const lasting model_file = last(f8_cli_write("tiny.f8", model, strlen(model))),
                  files[] = {last(f8_cli_temp("a.jsonl")), last(f8_cli_temp("b.jsonl")),
                             last(f8_cli_temp("a.csv")), last(f8_cli_temp("a.md")),
                             last(f8_cli_temp("a.json"))};
    const char *file = model_file.text, *a = files[0].text, *b = files[1].text,
               *csv = files[2].text, *tables = files[3].text, *t4 = files[4].text;
    f8_cli_result r = F8_CLI("tune", file, "--recipe", "current", "--runs", "3", "--threads", "1",
                             "--json", a, "--csv", csv, "--markdown", tables, "--t4", t4);
    f8_cli_ok(r);
    ck_assert_msg(!strncmp(r.out, "first step  ", 12), "%s", r.out);
    ck_assert_msg(strstr(r.out, "\nstep: ") && strstr(r.out, " problems timed, 0 lacking"), "%s",
                  r.out);
    ck_assert_ptr_nonnull(strstr(r.out, "\nsaved in "));
    const int problems = count_records(a, "tune", NULL, NULL),
              ways = count_records(a, "timing", "cache", "step");
    ck_assert_int_gt(problems, 10);
    ck_assert_int_gt(ways, 50);
    ck_assert_int_eq(count_records(a, "timing", "kind", "model"), problems);
    ck_assert_int_eq(count_records(a, "tuned", NULL, NULL), 1);
    ck_assert_int_eq(count_records(a, "benchmark", NULL, NULL), 1);
    ck_assert_int_eq(count_records(a, "process", NULL, NULL), 1);
    ck_assert_int_eq(count_records(a, "headline", "cache", "step"), 1);
    ck_assert_int_eq(count_lines(csv), ways + 1);
    ck_assert_int_gt(count_lines(tables), ways);
    json_t *all = json_load_file(t4, 0, NULL);
    ck_assert_int_eq(json_array_size(json_object_get(all, "results")), ways);
    json_decref(all);
    f8_cli_ok(F8_CLI("tune", file, "--recipe", "current", "--runs", "3", "--threads", "1",
                     "--again", "--json", b));
    r = F8_CLI("tune", "--diff", a, "--diff", b);
    f8_cli_ok(r);
    char want[64];
    snprintf(want, sizeof want, "\n%d problems in both, ", problems);
    ck_assert_msg(strstr(r.out, want) != NULL, "%s", r.out);
    ck_assert_msg(strstr(r.out, "\nfc.fprop: gemm ") != NULL, "%s", r.out);
}
END_TEST

/* The command of the records measures the same: it has what changes the program, and not where
 * results go. */
START_TEST(command_of_a_model)
{
    const lasting model_file = last(f8_cli_write("tiny.f8", model, strlen(model))),
                  records = last(f8_cli_temp("a.jsonl"));
    const char *file = model_file.text, *a = records.text;
    char want[512];
    f8_cli_ok(F8_CLI("tune", file, "--recipe", "delayed {history = 4}", "--threads", "1", "--runs",
                     "2", "--only", "fc*", "--same-bits", "--no-fuse", "--time", "60", "--database",
                     f8_cli_temp("other.db"), "--json", a));
    snprintf(
        want, sizeof want,
        "fp8c tune %s --recipe 'delayed {history = 4}' --threads 1 --no-fuse --only 'fc*' --runs 2 "
        "--same-bits",
        file);
    ck_assert_int_eq(count_records(a, "benchmark", "command", want), 1);
    ck_assert_int_gt(count_records(a, "timing", "command", want), 4);
}
END_TEST

/* What can't be written is told before anything is timed. */
START_TEST(files_nowhere)
{
    const char *file = f8_cli_write("tiny.f8", model, strlen(model));
    f8_cli_fails(F8_CLI("tune", file, "--csv", "/nowhere/x.csv"), 1, "/nowhere/x.csv");
    ck_assert_int_eq(access(database, F_OK), -1);
    f8_cli_fails(F8_CLI("tune", file, "--processes", "2"), 2, "with FILE.f8, tune");
}
END_TEST

/* Attention has one way. It is found by its step's name and by the word, and is timed. */
START_TEST(attention)
{
    static const char text[] =
        "module attentive\n"
        "param wte: f32[16, 16] normal(0.5)\n"
        "func forward(%tokens: i32[1, 16], %targets: i32[1, 16]) -> (%loss: f32[]) {\n"
        "  %x = embedding(wte, %tokens)\n"
        "  %mixed = attention(%x, %x, %x) {heads = 2}\n"
        "  return cross_entropy(linear(%mixed, wte) {transpose_b = true, name = \"head\"}, "
        "%targets)\n"
        "}\n"
        "optimizer adamw {lr = 0.05}\n";
    const lasting model_file = last(f8_cli_write("attentive.f8", text, strlen(text))),
                  records = last(f8_cli_temp("a.jsonl"));
    const char *file = model_file.text, *a = records.text;
    for (int turn = 0; turn < 2; turn++) {
        const f8_cli_result r =
            F8_CLI("tune", file, "--kernels", "att*", "--runs", "5", "--json", a);
        f8_cli_ok(r);
        ck_assert_ptr_nonnull(strstr(r.out, turn
                                                ? "\n2 problems: for 0 a candidate is faster than "
                                                  "the model's choice; 0 candidates timed, 2 timed "
                                                  "earlier"
                                                : "; 2 candidates timed, 0 timed earlier"));
        ck_assert_ptr_nonnull(strstr(r.out, " GFLOP/s "));
        ck_assert_int_eq(count_records(a, "timing", "state", "timed"), 2);
    }
    const f8_cli_result r = F8_CLI("tune", file, "--kernels", "mixed");
    f8_cli_ok(r);
    ck_assert_ptr_nonnull(strstr(r.out, "\n1 problem: for 0 "));
    f8_cli_fails(F8_CLI("tune", file, "--kernels", "nothing*"), 1,
                 "no row kernel and no attention of a step is named 'nothing*'");
    f8_cli_ok(F8_CLI("tune", file, "--runs", "1", "--json", a));
    ck_assert_int_gt(count_records(a, "tune", NULL, NULL), 5);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("tune_model");
    TCase *t = tcase_create("tune_model");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_add_test(t, files_of_a_model);
    tcase_add_test(t, command_of_a_model);
    tcase_add_test(t, files_nowhere);
    tcase_add_test(t, attention);
    suite_add_tcase(s, t);
    return s;
}
