/* `fp8c tune --model-only`: one way of a GEMM is timed, nothing is chosen, and what the database
 * has of other ways is left alone. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

static void setup(void)
{
    f8_cli_setup();
    setenv("FP8C_TUNING", f8_cli_temp("tuning.db"), 1);
    f8_cli_use_small_caches();
    setenv("FP8C_CACHE_DIR", f8_cli_temp("cache"), 0);
}

/* What a file has: timings by kind, the processes of the model's way, and whether a best is known.
 */
typedef struct counts {
    int model, candidates, chosen;
    size_t processes;
    bool best;
} counts;

static counts read(const char *path)
{
    counts n = {0};
    json_t *r;
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    for (; (r = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)); json_decref(r)) {
        const char *event = json_string_value(json_object_get(r, "event"));
        if (!strcmp(event, "headline"))
            n.best = json_is_number(json_object_get(r, "best"));
        if (strcmp(event, "timing") != 0)
            continue;
        const bool model = !strcmp(json_string_value(json_object_get(r, "kind")), "model");
        n.model += model;
        n.candidates += !model;
        n.chosen += json_is_true(json_object_get(r, "chosen"));
        if (model)
            n.processes = json_array_size(json_object_get(r, "processes"));
    }
    fclose(f);
    return n;
}

static counts tune(const char *more, const char *processes)
{
    const char *records = f8_cli_temp("records.jsonl");
    f8_cli_ok(F8_CLI("tune", "--gemm", "64x96x160:bf16", "--runs", "1", "--threads", "1", "--json",
                     records, "--processes", processes, more));
    return read(records);
}

static int count_rows(const char *row)
{
    const char *rows = f8_cli_temp("rows.jsonl");
    char key[64], line[16384];
    int n = 0;
    snprintf(key, sizeof key, "\"row\":\"%s\"", row);
    f8_cli_ok(F8_CLI("tune", "--export", rows));
    FILE *f = fopen(rows, "r");
    while (f && fgets(line, sizeof line, f))
        n += strstr(line, key) != NULL;
    ck_assert_ptr_nonnull(f);
    fclose(f);
    return n;
}

START_TEST(one_way)
{
    counts n = tune("--model-only", "1");
    ck_assert(n.model == 1 && n.candidates == 0 && n.chosen == 0 && n.processes == 1 && !n.best);
    ck_assert_int_eq(count_rows("choice"), 0);
    ck_assert_int_eq(count_rows("timing"), 1);
    n = tune("--same-bits", "1"); /* the others, beside the model's way again */
    ck_assert(n.model == 1 && n.candidates > 0 && n.chosen == 1 && n.best);
    const int rows = count_rows("timing");
    ck_assert_int_eq(count_rows("choice"), 1);
    n = tune("--model-only", "3"); /* the database has two */
    ck_assert(n.model == 1 && n.candidates == 0 && n.chosen == 0 && n.processes == 3 && !n.best);
    ck_assert_int_eq(count_rows("choice"), 1);
    ck_assert_int_eq(count_rows("timing"), rows);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("model_only");
    TCase *t = tcase_create("one way");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_add_test(t, one_way);
    suite_add_tcase(s, t);
    return s;
}
