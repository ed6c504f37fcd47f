/* `fp8c report` as people call it: what it writes and prints, a run that was really trained, and
 * folders that it can't read. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/shared/api/cli.h"
#include "tests/shared/api/report_case.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 300, PATH = 4096 };

static const f8_report_case healthy = {.layers = 2,
                                       .steps = 120,
                                       .every = 4,
                                       .seed = 1,
                                       .recipe = "delayed"},
                            ill = {.layers = 2,
                                   .steps = 120,
                                   .every = 4,
                                   .seed = 2,
                                   .recipe = "delayed",
                                   .bad_from = 40,
                                   .loss_from = 85};
static char page[PATH], records[PATH], trace[PATH];

static void setup(void)
{
    f8_cli_setup();
    setenv("FP8C_CACHE_DIR", "", 1);
    snprintf(page, sizeof page, "%s", f8_cli_temp("page.html"));
    snprintf(records, sizeof records, "%s", f8_cli_temp("records.jsonl"));
    snprintf(trace, sizeof trace, "%s", f8_cli_temp("trace.json"));
}

static void teardown(void)
{
    static const char *const names[] = {"good", "bad", "run"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        f8_cli_forget(f8_cli_temp(names[i]));
    f8_cli_teardown();
}

static void says(const char *text, const char *words)
{
    ck_assert_msg(strstr(text, words) != NULL, "'%s' is not in: %s", words, text);
}

/* ---- what is written ---- */

/* The records of a kind, in an array. */
static json_t *records_of(const char *text, const char *event)
{
    json_t *all = json_array();
    for (const char *end; (end = strchr(text, '\n')); text = end + 1) {
        json_t *record = json_loadb(text, (size_t)(end - text), JSON_REJECT_DUPLICATES, NULL);
        ck_assert_msg(record != NULL, "no record: %.*s", (int)(end - text), text);
        if (!strcmp(json_string_value(json_object_get(record, "event")), event))
            json_array_append(all, record);
        json_decref(record);
    }
    return all;
}

static const char *text_at(const json_t *all, size_t i, const char *name)
{
    const char *text = json_string_value(json_object_get(json_array_get(all, i), name));
    ck_assert_msg(text != NULL, "record %zu has no %s", i, name);
    return text;
}

static json_int_t int_at(const json_t *all, size_t i, const char *name)
{
    const json_t *x = json_object_get(json_array_get(all, i), name);
    ck_assert_msg(json_is_integer(x), "record %zu has no %s", i, name);
    return json_integer_value(x);
}

START_TEST(writes_and_prints)
{
    const char *good = f8_report_case_write("good", &healthy),
               *bad = f8_report_case_write("bad", &ill);
    size_t n;
    f8_cli_result r = F8_CLI("report", good, bad, "-o", page, "--json", records);
    ck_assert_msg(r.code == 0 && !r.n_err, "%s", r.err);
    says(r.out, "good: 120 steps, final loss ");
    says(r.out, "bad beside good: the loss parts at step 85, 1 of 12 tensors part; first\n");
    says(r.out, "\n  h.1.mlp.x: step 40, underflow ");
    says(r.out, "page.html: the page, 0.");
    char *text = f8_cli_read(page, &n);
    says(text, "<!DOCTYPE html>");
    free(text);
    text = f8_cli_read(records, &n);
    json_t *runs = records_of(text, "run"), *parts = records_of(text, "part"),
           *parted = records_of(text, "parted"), *tensors = records_of(text, "tensor");
    ck_assert_uint_eq(json_array_size(runs), 2);
    ck_assert_str_eq(text_at(runs, 1, "run"), "bad");
    ck_assert_int_eq(int_at(runs, 1, "steps"), 120);
    ck_assert_int_eq(int_at(runs, 1, "watched"), 30);
    ck_assert_uint_eq(json_array_size(parts), 1);
    ck_assert_int_eq(int_at(parts, 0, "step"), 85);
    ck_assert_uint_eq(json_array_size(parted), 1);
    ck_assert_str_eq(text_at(parted, 0, "tensor"), F8_REPORT_BAD);
    ck_assert_int_eq(int_at(parted, 0, "underflow_step"), 40);
    ck_assert_int_eq(int_at(parted, 0, "mse_step"), 40);
    ck_assert_uint_eq(json_array_size(tensors), 2 * 2 * 2 * 4);
    json_decref(runs);
    json_decref(parts);
    json_decref(parted);
    json_decref(tensors);
    free(text);
}
END_TEST

/* Records on stdout are alone there, and so is a page. */
START_TEST(to_stdout)
{
    const char *good = f8_report_case_write("good", &healthy);
    f8_cli_result r = F8_CLI("report", good, "--json", "-", "-o", page);
    ck_assert_msg(r.code == 0, "%s", r.err);
    json_t *runs = records_of(r.out, "run");
    ck_assert_uint_eq(json_array_size(runs), 1);
    json_decref(runs);
    r = F8_CLI("report", good, "-o", "-");
    ck_assert_msg(r.code == 0 && !strncmp(r.out, "<!DOCTYPE html>", 15), "%s", r.err);
    ck_assert_str_eq(r.out + r.n_out - 8, "</html>\n");
}
END_TEST

/* ---- the trace ---- */

static double sum_of(const json_t *all, const char *name, bool functions)
{
    size_t i;
    json_t *e;
    double sum = 0;
    json_array_foreach (all, i, e) {
        const char *category = json_string_value(json_object_get(e, "cat"));
        if (category && !strcmp(category, "function") == functions)
            sum += json_number_value(json_object_get(e, name));
    }
    return sum;
}

/* Two micro-steps of 1 + 2 ms and an update of 4 ms; eval is no part of a step, and
 * micro-steps of watched steps are counted, but not shown. */
START_TEST(traces_a_step)
{
    static const char profile[] =
        "{\"event\":\"profile\",\"function\":\"eval\",\"kind\":\"gemm\",\"name\":\"e\",\"runs\":3,"
        "\"seconds\":9,\"bytes_read\":1,\"bytes_written\":1}\n"
        "{\"event\":\"profile\",\"function\":\"micro_step\",\"kind\":\"gemm\",\"name\":\"a\","
        "\"runs\":"
        "20,\"seconds\":0.001,\"bytes_read\":1,\"bytes_written\":1}\n"
        "{\"event\":\"profile\",\"function\":\"micro_step\",\"kind\":\"kernel\",\"name\":"
        "\"\\\"b\\\"\","
        "\"runs\":18,\"seconds\":0.002,\"bytes_read\":1,\"bytes_written\":1}\n"
        "{\"event\":\"profile\",\"function\":\"update\",\"kind\":\"kernel\",\"name\":\"u\","
        "\"runs\":"
        "10,\"seconds\":0.004,\"bytes_read\":1,\"bytes_written\":1}\n";
    const char *good = f8_report_case_write("good", &healthy);
    f8_report_case_put(good, "profile.jsonl", profile, false);
    f8_cli_result r = F8_CLI("report", good, "--trace", trace);
    ck_assert_msg(r.code == 0, "%s", r.err);
    json_t *all = json_load_file(trace, JSON_REJECT_DUPLICATES, NULL),
           *events = json_object_get(all, "traceEvents");
    ck_assert_uint_eq(json_array_size(events), 1 + 5 + 3);
    ck_assert(fabs(sum_of(events, "dur", false) - 1e4) < 1e-6);
    ck_assert(fabs(sum_of(events, "dur", true) - 1e4) < 1e-6);
    /* one after the other: 0, 1, 3, 4, 6 ms */
    ck_assert(fabs(sum_of(events, "ts", false) - 1.4e4) < 1e-6);
    json_decref(all);
}
END_TEST

/* A collective goes on beside steps, on a track of its own: from 3 ms after its start, which is at
 * 1 ms, to 9 ms. The run waits for 4 ms, after two steps of 1 and 4 ms. A second one starts with
 * the first. */
START_TEST(traces_collectives)
{
#define TIMED(kind, name, seconds, more)                                                           \
    "{\"event\":\"profile\",\"function\":\"micro_step\",\"kind\":\"" kind "\",\"name\":\"" name    \
    "\",\"runs\":20,\"seconds\":" seconds ",\"bytes_read\":1,\"bytes_written\":1" more "}\n"
    static const char profile[] =
        TIMED("gemm", "a", "0.001", "") TIMED("collective", "c", "0.005", ",\"queued\":0.003")
            TIMED("collective", "d", "0.001", ",\"queued\":0.008") TIMED("kernel", "b", "0.004", "")
                TIMED("wait", "c", "0.004", "");
    static const struct {
        const char *name;
        int track;
        double begin, seconds;
    } want[] = {{"a", 1, 0, 1e3},   {"c", 2, 4e3, 5e3}, {"d", 2, 9e3, 1e3},
                {"b", 1, 1e3, 4e3}, {"c", 1, 5e3, 4e3}, {"micro_step", 1, 0, 9e3}};
    const char *good = f8_report_case_write("good", &healthy);
    f8_report_case_put(good, "profile.jsonl", profile, false);
    f8_cli_result r = F8_CLI("report", good, "--trace", trace);
    ck_assert_msg(r.code == 0, "%s", r.err);
    json_t *all = json_load_file(trace, JSON_REJECT_DUPLICATES, NULL),
           *events = json_object_get(all, "traceEvents");
    const char *name;
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(
            json_unpack(json_array_get(events, 1 + i), "{s{ss}}", "args", "name", &name), 0);
        ck_assert_str_eq(name, i ? "collectives" : "steps");
    }
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        double begin, seconds;
        int track;
        ck_assert_int_eq(json_unpack(json_array_get(events, 3 + i), "{ss sF sF si}", "name", &name,
                                     "ts", &begin, "dur", &seconds, "tid", &track),
                         0);
        ck_assert_str_eq(name, want[i].name);
        ck_assert_int_eq(track, want[i].track);
        ck_assert_msg(fabs(begin - want[i].begin) < 1e-6 && fabs(seconds - want[i].seconds) < 1e-6,
                      "%s: %g, %g us", name, begin, seconds);
    }
    json_decref(all);
    f8_report_case_put(good, "profile.jsonl",
                       TIMED("collective", "c", "0.005", ",\"queued\":\"long\""), false);
    f8_cli_fails(F8_CLI("report", good, "--trace", trace), 1, "is no record of a profile");
}
END_TEST

/* ---- a run that was trained ---- */

/* Of `delayed`: few values are at their worst in the first step, where most of the gradient of an
 * attention would be zero under scales of 1. */
static void check_first_step(void)
{
    size_t n;
    int values = 0, in_first = 0;
    char *text = f8_cli_read(records, &n);
    json_t *all = records_of(text, "tensor"), *r;
    json_array_foreach (all, n, r) {
        const char *name = json_string_value(json_object_get(r, "tensor"));
        if (!json_is_string(json_object_get(r, "quantized")) ||
            strcmp(json_string_value(json_object_get(r, "quantized")), "delayed"))
            continue;
        const double underflow = json_number_value(json_object_get(r, "most_underflow"));
        const bool first = json_integer_value(json_object_get(r, "most_underflow_step")) == 1;
        ck_assert_msg(!first || underflow < 0.05, "%s: %g underflows in step 1", name, underflow);
        in_first += json_integer_value(json_object_get(r, "least_sqnr_step")) == 1;
        values++;
    }
    ck_assert_msg(values == 12 && 2 * in_first <= values, "%d of %d are worst in step 1", in_first,
                  values);
    json_decref(all);
    free(text);
}

/* Of two runs of a small model: the mean loss that train prints is the page's and the records', and
 * operands that are scaled otherwise are compared. */
START_TEST(of_two_granularities)
{
    static const char *const recipe[] = {"current", "block"};
    char data[PATH], run[2][PATH], trained[PATH];
    double final[2];
    size_t n;
    snprintf(data, sizeof data, "%s", f8_cli_write_words("text", 6000));
    snprintf(trained, sizeof trained, "%s", f8_cli_temp("trained"));
    for (int i = 0; i < 2; i++) {
        snprintf(run[i], sizeof run[i], "%s", f8_cli_temp(recipe[i]));
        f8_cli_ok(F8_CLI("train", "frontend/models/gpt.f8", "-D", "B=2", "-D", "T=32", "-D", "L=1",
                         "-D", "C=32", "-D", "H=2", "--data", data, "--steps", "5", "--recipe",
                         recipe[i], "--run", run[i], "--stats", "h.*", "--every", "1", "--json",
                         trained));
        char *text = f8_cli_read(trained, &n);
        json_t *all = records_of(text, "summary");
        final[i] = json_number_value(json_object_get(json_array_get(all, 0), "final_loss"));
        ck_assert(final[i] > 0);
        json_decref(all);
        free(text);
    }
    f8_cli_result r = F8_CLI("report", run[0], run[1], "-o", page, "--json", records);
    ck_assert_msg(r.code == 0 && !r.n_err, "%s", r.err);
    char *text = f8_cli_read(records, &n);
    json_t *runs = records_of(text, "run"), *parts = records_of(text, "part");
    for (size_t i = 0; i < 2; i++)
        ck_assert_double_eq_tol(
            json_number_value(json_object_get(json_array_get(runs, i), "final_loss")), final[i],
            1e-12);
    ck_assert_int_eq(int_at(parts, 0, "compared"), 4 * 5); /* x and dy have two series each */
    json_decref(runs);
    json_decref(parts);
    free(text);
    for (int i = 0; i < 2; i++)
        f8_cli_forget(run[i]);
}
END_TEST

START_TEST(of_a_training)
{
    const char *folder = f8_cli_temp("run");
    char data[PATH], run[PATH];
    size_t n;
    snprintf(run, sizeof run, "%s", folder);
    snprintf(data, sizeof data, "%s", f8_cli_write_words("text", 6000));
    f8_cli_result r = F8_CLI("train", "frontend/models/gpt.f8", "-D", "B=2", "-D", "T=32", "-D",
                             "L=1", "-D", "C=32", "-D", "H=2", "--data", data, "--steps", "4",
                             "--recipe", "delayed", "--run", run, "--eval-every", "2", "--stats",
                             "h.*", "--every", "2", "--stats-recipe", "block");
    ck_assert_msg(r.code == 0, "%s", r.err);
    r = F8_CLI("report", run, "-o", page, "--trace", trace, "--json", records);
    ck_assert_msg(r.code == 0 && !r.n_err, "%s", r.err);
    says(r.out, "run: 4 steps, final loss ");
    says(r.out, " tensors watched at 3 steps\n"); /* 1, 2 and 4 */
    check_first_step();
    char *text = f8_cli_read(page, &n);
    says(text, "\"plan\":{\"memory\":{");
    says(text, "\"profile\":[{");
    free(text);
    json_t *all = json_load_file(trace, JSON_REJECT_DUPLICATES, NULL),
           *events = json_object_get(all, "traceEvents");
    const double steps = sum_of(events, "dur", false), functions = sum_of(events, "dur", true);
    ck_assert(steps > 0 && fabs(steps - functions) < 1e-6 * steps);
    json_decref(all);
    f8_cli_ok(F8_CLI("train", "--resume", run, "--steps", "4")); /* a report changes nothing */
}
END_TEST

/* ---- what can't be read ---- */

/* Refused with exit 1 and words about it; the page that was there stays, no records are begun. */
static void refused(const char *const *folders, const char *words)
{
    const char *args[10] = {"report", "-o", f8_cli_write("page.html", "before", 6), "--json",
                            records};
    size_t n, k = 5;
    struct stat s;
    for (; *folders; folders++)
        args[k++] = *folders;
    f8_cli_fails(f8_cli_run(args), 1, words);
    char *text = f8_cli_read(page, &n);
    ck_assert_str_eq(text, "before");
    free(text);
    ck_assert_msg(stat(records, &s) != 0, "records were begun");
}
#define REFUSED(words, ...) refused((const char *const[]){__VA_ARGS__, NULL}, words)

START_TEST(no_run)
{
    const char *good = f8_report_case_write("good", &healthy);
    char missing[PATH];
    snprintf(missing, sizeof missing, "%s", f8_cli_temp("nothing"));
    REFUSED("nothing: error: No such file or directory", missing);
    REFUSED("file: error: it is not a folder", f8_cli_write("file", "x", 1));
    REFUSED("nothing: error: No such file or directory", good, missing);
    const char *bad = f8_report_case_write("bad", &healthy);
    char path[PATH + 20];
    snprintf(path, sizeof path, "%s/run.json", bad);
    unlink(path);
    REFUSED("bad: error: it is no folder of a run: it has no run.json", good, bad);
    f8_report_case_put(bad, "run.json",
                       "{\"format\":\"fp8c run\",\"version\":2,\"versions\":{\"fp8c\":\"0\"}}",
                       false);
    REFUSED("run.json: error: the folder has a format that this fp8c does not read", bad);
    f8_report_case_put(bad, "run.json", "{\"format\":\"other\",\"version\":1}", false);
    REFUSED("run.json: error: it does not describe a run of fp8c", bad);
    f8_report_case_put(bad, "run.json", "{\"format\":", false);
    REFUSED("run.json: error: it is not JSON: line 1", bad);
}
END_TEST

START_TEST(nothing_to_show)
{
    const char *good = f8_report_case_write("good", &healthy);
    char path[PATH + 20];
    f8_report_case_put(good, "steps.jsonl", "", false);
    REFUSED("good: error: the run has no step yet: there is nothing to report", good);
    snprintf(path, sizeof path, "%s/steps.jsonl", good);
    unlink(path);
    REFUSED("good: error: the run has no steps.jsonl", good);
}
END_TEST

/* Replaces what a file of the folder has, and says where that is wrong. */
static void damaged(const char *name, const char *text, const char *words)
{
    const char *good = f8_report_case_write("good", &healthy);
    f8_report_case_put(good, name, text, false);
    REFUSED(words, good);
}

#define STEP(N) "{\"event\":\"step\",\"step\":" #N ",\"loss\":1}\n"
#define STATS(N, MORE)                                                                             \
    "{\"event\":\"stats\",\"step\":" #N ",\"tensor\":\"t\",\"operand\":\"x\"" MORE "}\n"

START_TEST(damaged_records)
{
    damaged("steps.jsonl", STEP(1) "{\"event\":\"st\n" STEP(2),
            "steps.jsonl: error: line 2 is no record: ");
    damaged("steps.jsonl", STEP(1) STEP(3), "steps.jsonl: error: line 2 is not of step 2");
    damaged("steps.jsonl", "[]\n", "steps.jsonl: error: line 1 is no record: it is no object");
    damaged("steps.jsonl", STEP(1) "{}\n", "steps.jsonl: error: line 2 is no record of a step");
    damaged("steps.jsonl", "{\"event\":\"step\",\"step\":1,\"loss\":\"1\"}\n",
            "steps.jsonl: error: line 1 has a figure that is no number");
    damaged("steps.jsonl", STATS(1, "") "\n", "steps.jsonl: error: line 2 is no record: ");
    damaged("steps.jsonl", STATS(2, "") STATS(2, ""),
            "steps.jsonl: error: line 2 is of step 2, and an earlier one of step 2");
    damaged("steps.jsonl", STATS(1, ",\"mse\":[]"),
            "steps.jsonl: error: line 1 has a 'mse' that is no number");
    damaged("steps.jsonl", "{\"event\":\"stats\",\"step\":1}\n",
            "steps.jsonl: error: line 1 does not say what tensor it is of");
    damaged("steps.jsonl", STATS(0, ""), "steps.jsonl: error: line 1 is no record of a step");
    damaged("profile.jsonl", "{\"function\":\"update\"}\n",
            "profile.jsonl: error: line 1 is no record of a profile");
    damaged("decisions.jsonl", "nothing\n", "decisions.jsonl: error: line 1 is no record: ");
    damaged("plan.json", "{", "plan.json: error: it is not JSON: line 1");
    damaged("plan.json", "{}", "plan.json: error: it does not describe a plan");
}
END_TEST

START_TEST(wrong_usage)
{
    const char *good = f8_report_case_write("good", &healthy);
    char missing[PATH];
    snprintf(missing, sizeof missing, "%s/page.html", f8_cli_temp("nothing"));
    f8_cli_fails(F8_CLI("report", good), 2,
                 "-o FILE (the page), --json FILE or --trace FILE is needed");
    f8_cli_fails(F8_CLI("report", "-o", page), 2, "an argument is missing: 'DIR ...'");
    f8_cli_fails(F8_CLI("report", good, "--recipe", "bf16"), 2, "no such option '--recipe'");
    f8_cli_fails(F8_CLI("report", good, "-o", missing), 1, "No such file or directory");
    f8_cli_fails(F8_CLI("report", good, "-o", page, "--trace", trace), 1,
                 "good: error: the run has no profile.jsonl");
    ck_assert_int_eq(access(page, F_OK), -1); /* all is made before anything is written */
    f8_cli_fails(F8_CLI("check", good, good), 2, "this command takes one file, but is also given");
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("report_cli");
    TCase *t = tcase_create("report_cli");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, writes_and_prints);
    tcase_add_test(t, to_stdout);
    tcase_add_test(t, traces_a_step);
    tcase_add_test(t, traces_collectives);
    tcase_add_test(t, of_two_granularities);
    tcase_add_test(t, of_a_training);
    tcase_add_test(t, no_run);
    tcase_add_test(t, nothing_to_show);
    tcase_add_test(t, damaged_records);
    tcase_add_test(t, wrong_usage);
    suite_add_tcase(s, t);
    return s;
}
