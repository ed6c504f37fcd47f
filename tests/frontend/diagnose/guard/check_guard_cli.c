/* `fp8c train --guard`: what each mode says, records and leaves behind, for a run that diverges and
 * for one with a NaN in its data. */
#include <math.h>

#include "tests/shared/api/data_case.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

static const char classifier[] = "module classifier\n"
                                 "dim B = 4\n"
                                 "param w: f32[6, 16] normal(0.5)\n"
                                 "param v: f32[16, 3] normal(0.5)\n"
                                 "func forward(%x: f32[B, 6], %label: i32[B]) -> f32[] {\n"
                                 "  return cross_entropy(linear(tanh(linear(%x, w)), v), %label)\n"
                                 "}\n"
                                 "optimizer adamw {lr = 0.05}\n";

enum { TIMEOUT = 120, ROWS = 48, COLUMNS = 6, NAN_ROW = 20 };

/* In each row one of three pairs of columns is large. With a NaN or not. */
static const char *write_x(const char *name, bool with_nan)
{
    int64_t bits[ROWS * COLUMNS];
    uint32_t random = 7;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        float x = (float)test_random(&random) * 0x1p-24f +
                  (i % COLUMNS / 2 == i / COLUMNS % 3 ? 2.0f : 0.0f);
        uint32_t b;
        if (with_nan && i == NAN_ROW * COLUMNS + 2)
            x = NAN;
        memcpy(&b, &x, sizeof b);
        bits[i] = b;
    }
    char path[512];
    snprintf(path, sizeof path, "x=%s",
             write_npy(name, "<f4", "48, 6", bits, (size_t)(ROWS * COLUMNS), 4));
    return keep(path);
}

static const char *good, *bad, *labels;

static void setup(void)
{
    int64_t label[ROWS];
    char path[512];
    f8_cli_setup();
    model = keep(f8_cli_write("classifier.f8", classifier, strlen(classifier)));
    for (int i = 0; i < ROWS; i++)
        label[i] = i % 3;
    snprintf(path, sizeof path, "label=%s",
             write_npy("label.npy", "<i4", "48,", label, ROWS, sizeof(int32_t)));
    labels = keep(path);
    good = write_x("good.npy", false);
    bad = write_x("bad.npy", true);
}

#define TRAIN_ON(x, ...)                                                                           \
    F8_CLI("train", model, "--batch", x, "--batch", labels, "--recipe", "f32", "--threads", "1",   \
           __VA_ARGS__)

/* The records of an event in a run's folder. */
static json_t *records(const char *folder, const char *event)
{
    char path[512];
    size_t n;
    snprintf(path, sizeof path, "%s/steps.jsonl", folder);
    char *text = f8_cli_read(path, &n);
    json_t *all = json_array();
    for (char *save, *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        json_t *record = json_loads(line, 0, NULL);
        ck_assert_msg(record != NULL, "no JSON: %s", line);
        if (!strcmp(json_string_value(json_object_get(record, "event")), event))
            json_array_append(all, record);
        json_decref(record);
    }
    free(text);
    return all;
}

static json_int_t integer(const json_t *record, const char *name)
{
    return json_integer_value(json_object_get(record, name));
}

static const char *string(const json_t *record, const char *name)
{
    return json_string_value(json_object_get(record, name));
}

static bool has_checkpoint(const char *folder, json_int_t step, const char *suffix)
{
    char path[512];
    snprintf(path, sizeof path, "%s/checkpoint-%d.safetensors%s", folder, (int)step, suffix);
    return access(path, F_OK) == 0;
}

static void says(const f8_cli_result *r, const char *words)
{
    ck_assert_msg(strstr(r->err, words) != NULL, "no '%s' in: %s", words, r->err);
}

/* ---- a NaN in the data ---- */

START_TEST(names_the_input)
{
    const char *folder = keep(f8_cli_temp("run"));
    f8_cli_result r = TRAIN_ON(bad, "--steps", "12", "--run", folder, "--save-every", "1", "--keep",
                               "20", "--guard", "stop");
    ck_assert_msg(r.code == 1, "%d: %s", r.code, r.err);
    says(&r, "fp8c: error: f32, seed 1, step ");
    says(&r, ": the loss is not finite: input 'x' has nan at element ");
    says(&r, " (1 of 24)\n");
    says(&r, "fp8c train --resume ");
    json_t *all = records(folder, "warning"), *w = json_array_get(all, 0);
    ck_assert_uint_eq(json_array_size(all), 1);
    const json_int_t step = integer(w, "step");
    ck_assert(step >= 1 && step <= 12 && integer(w, "since") == step);
    ck_assert_str_eq(string(w, "kind"), "loss_nonfinite");
    ck_assert_str_eq(string(w, "tensor"), "x");
    ck_assert_str_eq(string(w, "role"), "input");
    ck_assert(json_is_null(json_object_get(w, "value"))); /* JSON has no NaN */
    json_decref(all);
    ck_assert(has_checkpoint(folder, step - 1, "") && !has_checkpoint(folder, step, ""));
    r = F8_CLI("train", "--resume", folder); /* it stops there again */
    ck_assert_int_eq(r.code, 1);
    r = F8_CLI("train", "--resume", folder, "--guard", "triage");
    ck_assert_int_eq(r.code, 1);
    char triage[520];
    snprintf(triage, sizeof triage, "  fp8c triage %s\n", folder);
    says(&r, triage);
    ck_assert_msg(strstr(r.out, "verdict: ") != NULL, "%s%s", r.out, r.err);
    r = F8_CLI("train", "--resume", folder, "--guard", "warn");
    ck_assert_msg(r.code == 0, "%s", r.err);
    says(&r, "fp8c: warning: f32, seed 1, step ");
    ck_assert(has_checkpoint(folder, 12, ""));
}
END_TEST

/* The rows of a micro-step that is not the last of its step. Without a folder nothing is saved. */
START_TEST(names_it_in_any_micro_step)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", classifier);
    strcat(text, "accumulate 3\n");
    model = keep(f8_cli_write("accumulates.f8", text, strlen(text)));
    const char *saved = keep(f8_cli_temp("saved.safetensors"));
    const f8_cli_result r = TRAIN_ON(bad, "--steps", "4", "--guard", "stop", "--save", saved);
    ck_assert_msg(r.code == 1, "%d: %s", r.code, r.err);
    says(&r, ": the loss is not finite: input 'x' has nan at element ");
    says(&r, "nothing is saved");
    ck_assert(access(saved, F_OK));
}
END_TEST

/* ---- a run that diverges ---- */

/* Watching changes no bit, also where micro-steps are run once more to look at their gradients. */
START_TEST(changes_no_bit)
{
    static const char root[] =
        "module root\n"
        "dim B = 4\n"
        "param w: f32[6, 3] normal(0.5)\n"
        "param z: f32[4] zeros\n"
        "state seen: f32[] zeros\n"
        "func forward(%x: f32[B, 6], %label: i32[B]) -> (%loss: f32[]) {\n"
        "  %r = reshape(reduce_sum(sqrt(mul(z, z))) {axis = 0}) {shape = []}\n"
        "  return add(cross_entropy(linear(%x, w), %label), %r), seen <- add(seen, 1)\n"
        "}\n"
        "optimizer adamw {lr = 0.05}\n"
        "accumulate 2\n";
    const char *state[2] = {keep(f8_cli_temp("off")), keep(f8_cli_temp("warn"))};
    char *bytes[2];
    size_t n[2];
    model = keep(f8_cli_write("root.f8", root, strlen(root)));
    for (int i = 0; i < 2; i++) {
        const f8_cli_result r = TRAIN_ON(good, "--steps", "12", "--guard", i ? "warn" : "off",
                                         "--save-state", state[i]);
        ck_assert_msg(r.code == 0, "%s", r.err);
        if (i)
            ck_assert_str_eq(r.err, "fp8c: warning: f32, seed 1, step 1: the norm of the gradients "
                                    "is not finite: gradient 'grad.z' has nan at element 0 (4 of "
                                    "4)\n");
        else
            ck_assert_str_eq(r.err, "");
        bytes[i] = f8_cli_read(state[i], &n[i]);
    }
    ck_assert(n[0] == n[1] && !memcmp(bytes[0], bytes[1], n[0]));
    free(bytes[0]);
    free(bytes[1]);
}
END_TEST

/* The checkpoint from before the first alarm outlives --keep, also when the run goes on. What was
 * saved from there on gets another name when the run is stopped. */
START_TEST(keeps_what_is_from_before)
{
    const char *warned = keep(f8_cli_temp("warned")), *stopped = keep(f8_cli_temp("stopped"));
    f8_cli_result r = TRAIN_ON(good, "--steps", "60", "--lr", "300", "--run", warned,
                               "--save-every", "1", "--stop-at", "30");
    ck_assert_msg(r.code == 0, "%s", r.err);
    says(&r, "fp8c: warning: f32, seed 1, step ");
    json_t *all = records(warned, "warning"), *w = json_array_get(all, 0);
    const json_int_t since = integer(w, "since"), step = integer(w, "step");
    ck_assert_str_eq(string(w, "kind"), "loss_explodes");
    ck_assert(since >= 1 && since < step && step < 30);
    ck_assert_double_lt(json_number_value(json_object_get(w, "limit")),
                        json_number_value(json_object_get(w, "value")));
    json_decref(all);
    for (int i = 0; i < 2; i++) {
        const int now = i ? 60 : 30;
        ck_assert(has_checkpoint(warned, since - 1, ""));
        ck_assert(has_checkpoint(warned, now - 1, "") && has_checkpoint(warned, now, ""));
        ck_assert(!has_checkpoint(warned, since, "") && !has_checkpoint(warned, now - 2, ""));
        r = i ? r : F8_CLI("train", "--resume", warned);
        ck_assert_msg(r.code == 0, "%s", r.err);
    }
    r = TRAIN_ON(good, "--steps", "60", "--lr", "300", "--run", stopped, "--save-every", "1",
                 "--guard", "stop");
    ck_assert_int_eq(r.code, 1);
    char said[100];
    snprintf(said, sizeof said, "Its newest checkpoint is that of step %d, from before\n",
             (int)since - 1);
    says(&r, said);
    ck_assert(has_checkpoint(stopped, since - 1, "") && !has_checkpoint(stopped, step, ""));
    ck_assert(!has_checkpoint(stopped, step - 1, ""));
    ck_assert(has_checkpoint(stopped, step - 1, ".suspect"));
}
END_TEST

/* A run that went on after an alarm, and is stopped by a later one, keeps what lies between. */
START_TEST(stops_at_a_later_alarm)
{
    const char *folder = keep(f8_cli_temp("run"));
    f8_cli_result r = TRAIN_ON(bad, "--steps", "60", "--run", folder, "--save-every", "1", "--keep",
                               "60", "--stop-at", "12");
    ck_assert_msg(r.code == 0, "%s", r.err);
    json_t *all = records(folder, "warning");
    const size_t before = json_array_size(all);
    ck_assert_uint_ge(before, 1); /* 12 steps take each row once */
    json_decref(all);
    r = F8_CLI("train", "--resume", folder, "--guard", "stop");
    ck_assert_msg(r.code == 1, "%d: %s", r.code, r.err);
    all = records(folder, "warning");
    ck_assert_uint_gt(json_array_size(all), before);
    const json_int_t since = integer(json_array_get(all, before), "since");
    ck_assert(since > 12 && has_checkpoint(folder, since - 1, ""));
    json_decref(all);
}
END_TEST

START_TEST(other_modes)
{
    f8_cli_fails(TRAIN_ON(good, "--guard", "perhaps"), 2,
                 "--guard perhaps: off, warn, stop or triage was expected");
    f8_cli_fails(TRAIN_ON(good, "--guard", "triage"), 2, "--guard triage needs --run DIR");
}
END_TEST

/* Scales that are too small make no step bad: there is a warning, and the run goes on. */
START_TEST(range_warns)
{
    const char *folder = keep(f8_cli_temp("range"));
    const f8_cli_result r =
        F8_CLI("train", model, "--batch", good, "--batch", labels, "--recipe",
               "current {margin = 8}", "--threads", "1", "--steps", "8", "--stats", "*", "--every",
               "1", "--guard", "stop", "--run", folder);
    ck_assert_msg(r.code == 0, "exit %d: %s", r.code, r.err);
    ck_assert_msg(strstr(r.err, "fp8c: warning: current") != NULL, "%s", r.err);
    json_t *warnings = records(folder, "warning");
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(warnings, 0), "kind")),
                     "range");
    json_decref(warnings);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("guard_cli");
    TCase *t = tcase_create("guard_cli");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_add_test(t, names_the_input);
    tcase_add_test(t, names_it_in_any_micro_step);
    tcase_add_test(t, changes_no_bit);
    tcase_add_test(t, keeps_what_is_from_before);
    tcase_add_test(t, stops_at_a_later_alarm);
    tcase_add_test(t, other_modes);
    tcase_add_test(t, range_warns);
    suite_add_tcase(s, t);
    return s;
}
