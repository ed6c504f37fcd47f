/* `fp8c train`, `fp8c doctor` and a burn beside a GPU that says something of its health, by the
 * stand-in of NVML. */
#include <jansson.h>

#include "tests/shared/api/train_case.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 240 };

static void setup(void)
{
    train_setup("lr = 0.01");
    f8_test_gpu_emulated();
    setenv("FP8C_EMULATOR_OPTIMIZE", "0", 1);
}

static void nvml_says(const char *text)
{
    setenv("FP8C_EMULATOR_NVML", f8_cli_write("nvml", text, strlen(text)), 1);
}

/* The records of a text with this event. */
static json_t *events(const char *text, const char *event)
{
    json_t *all = json_array();
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        json_t *r = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        ck_assert_msg(r != NULL, "no JSON: %s", line);
        if (!strcmp(json_string_value(json_object_get(r, "event")), event))
            json_array_append(all, r);
        json_decref(r);
    }
    return all;
}

static const char *text_of(const json_t *r, const char *field)
{
    const char *text = json_string_value(json_object_get(r, field));
    ck_assert_msg(text != NULL, "no text %s", field);
    return text;
}

static json_int_t number(const json_t *r, const char *field)
{
    ck_assert_msg(json_is_integer(json_object_get(r, field)), "no integer %s", field);
    return json_integer_value(json_object_get(r, field));
}

/* Once without what NVML says: the records of the steps are the same but for their times. */
START_TEST(no_nvml)
{
    const f8_cli_result r =
        F8_CLI("train", file, "--data", data, "--steps", "2", "--target", "cuda", "--json", "-");
    f8_cli_ok(r);
    json_t *told = events(r.out, "health"), *summary = events(r.out, "health_summary");
    ck_assert(json_array_size(told) == 0 && json_array_size(summary) == 0);
    json_decref(told);
    json_decref(summary);
}
END_TEST

START_TEST(an_xid)
{
    nvml_says("xid 48\ntemperature 60\nclock 1500\nmax_clock 1980\n");
    f8_cli_result r =
        F8_CLI("train", file, "--data", data, "--steps", "2", "--target", "cuda", "--run", folder);
    ck_assert_int_eq(r.code, 0);
    ck_assert_str_eq(r.err, "fp8c: warning: GPU 0 (0000:10:00.0): XID 48: an error of memory that "
                            "ECC could not correct\n");
    size_t n;
    char *steps = f8_cli_read(in(folder, "steps.jsonl"), &n);
    json_t *told = events(steps, "health"), *summary = events(steps, "health_summary");
    ck_assert(json_array_size(told) == 1 && json_array_size(summary) == 1);
    const json_t *e = json_array_get(told, 0), *s = json_array_get(summary, 0);
    ck_assert_int_eq(number(e, "step"), 1);
    ck_assert_int_eq(number(e, "number"), 48);
    ck_assert(json_is_true(json_object_get(e, "fault")));
    ck_assert_str_eq(text_of(e, "name"), "xids");
    ck_assert_int_eq(number(s, "step"), 2);
    ck_assert_int_eq(number(s, "faults"), 1);
    ck_assert_int_eq(number(json_object_get(s, "values"), "temperature_most"), 60);
    ck_assert_str_eq(text_of(s, "source"), "NVML, driver 580.65.06");
    json_decref(told);
    json_decref(summary);
    free(steps);
    r = F8_CLI("report", folder, "-o", f8_cli_temp("page.html"), "--json", "-");
    f8_cli_ok(r);
    told = events(r.out, "run");
    ck_assert_int_eq(number(json_array_get(told, 0), "health"), 1);
    json_decref(told);
    char *page = f8_cli_read(f8_cli_temp("page.html"), &n);
    ck_assert(strstr(page, "XID 48: an error of memory") != NULL);
    free(page);
}
END_TEST

/* What happened before a run fails is told all the same. */
START_TEST(a_run_that_fails)
{
    nvml_says("xid 79\n");
    setenv("FP8C_EMULATOR_FAIL", "cuGraphLaunch:2:719", 1);
    const f8_cli_result r =
        F8_CLI("train", file, "--data", data, "--steps", "2", "--target", "cuda", "--json", "-");
    ck_assert_int_eq(r.code, 1);
    ck_assert_msg(strstr(r.err, "XID 79: the GPU has fallen off the bus\n") != NULL, "%s", r.err);
    json_t *told = events(r.out, "health");
    ck_assert_uint_eq(json_array_size(told), 1);
    json_decref(told);
}
END_TEST

START_TEST(a_burn)
{
    nvml_says("xid 31\ntemperature 71\nclock 1500\nmax_clock 1980\n");
    const f8_cli_result r = F8_CLI("doctor", "--burn", "0.01", "--target", "cuda");
    ck_assert_int_eq(r.code, 1);
    ck_assert_msg(strstr(r.out, " 0 wrong\n") != NULL, "%s", r.out);
    ck_assert(strstr(r.out, "GPU 0 (0000:10:00.0): 71 C, at most 71; 1500 MHz, at least 1500, of "
                            "1980\n") != NULL);
    ck_assert(strstr(r.out, "GPU 0 (0000:10:00.0): FAULT: XID 31: a kernel's access") != NULL);
}
END_TEST

START_TEST(doctor)
{
    nvml_says("temperature 71\necc_corrected 3\nremapped 1 0 0 0\n");
    const f8_cli_result r = F8_CLI("doctor", "-v", "--target", "reference");
    f8_cli_ok(r);
    ck_assert_msg(strstr(r.out, "  temperature          71\n") != NULL, "%s", r.out);
    ck_assert(strstr(r.out, "  ecc corrected        3\n    memory errors that ECC corrected\n"));
    ck_assert(strstr(r.out, "  remap pending        0\n"));
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("train_health");
    TCase *t = tcase_create("train_health");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, train_teardown);
    tcase_add_test(t, no_nvml);
    tcase_add_test(t, an_xid);
    tcase_add_test(t, a_run_that_fails);
    tcase_add_test(t, a_burn);
    tcase_add_test(t, doctor);
    suite_add_tcase(s, t);
    return s;
}
