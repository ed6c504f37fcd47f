/* `fp8c triage`: trainings with a fault that is put in (tests/faults/), and the verdict about them;
 * and folders that it can say nothing about. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/shared/api/train_case.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 120 };

static json_t *record; /* of the last triage */

static void setup(void)
{
    static char faulty[PATH];
    train_setup("lr = 1e-2");
    const ssize_t n = readlink("/proc/self/exe", faulty, sizeof faulty - 20);
    ck_assert(n > 0);
    faulty[n] = 0;
    strcpy(strrchr(faulty, '/'), "/fp8c_faulty");
    setenv("FP8C", faulty, 1);
    unsetenv("FP8C_FAULT");
}

static void teardown(void)
{
    json_decref(record);
    record = NULL;
    train_teardown();
}

static void put(const char *fault)
{
    if (fault)
        setenv("FP8C_FAULT", fault, 1);
    else
        unsetenv("FP8C_FAULT");
}

/* 12 steps under `delayed`, a checkpoint every 5, with a fault. */
static void train(const char *fault, bool fingerprints)
{
    put(fault);
    const char *every = fingerprints ? "1" : "100";
    f8_cli_result r =
        F8_CLI("train", file, "--data", data, "--recipe", "delayed", "--steps", "12", "--run",
               folder, "--save-every", "5", "--keep", "9", "--fingerprint-every", every);
    ck_assert_msg(r.code == 0, "exit %d: %s", r.code, r.err);
    put(NULL);
}

/* Asks about a step; NULL: about the one of the records. A fault that lasts is still there. */
static f8_cli_result triage(const char *step, const char *fault)
{
    put(fault);
    f8_cli_result r = step ? F8_CLI("triage", folder, "--step", step, "--json", "-")
                           : F8_CLI("triage", folder, "--json", "-");
    put(NULL);
    ck_assert_msg(r.code == 0, "exit %d: %s", r.code, r.err);
    json_decref(record);
    record = json_loads(r.out, 0, NULL);
    ck_assert_msg(record != NULL, "no JSON: %s", r.out);
    char path[4200];
    snprintf(path, sizeof path, "%s/verdict.json", folder);
    json_t *kept = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(json_equal(kept, record), "the run keeps another verdict");
    json_decref(kept);
    return r;
}

static const char *text(const char *key)
{
    return json_string_value(json_object_get(record, key));
}

static void is(const char *class, int step)
{
    ck_assert_msg(!strcmp(text("class"), class) &&
                      json_integer_value(json_object_get(record, "step")) == step,
                  "not %s in step %d: %s", class, step, json_dumps(record, 0));
}

static void is_at(const char *function, const char *op, const char *value)
{
    const char *keys[] = {"function", "op", "value"}, *want[] = {function, op, value};
    for (int i = 0; i < 3; i++)
        ck_assert_str_eq(
            json_string_value(json_object_get(json_object_get(record, "value"), keys[i])), want[i]);
}

static void is_row(const char *input, int place)
{
    const json_t *row = json_object_get(record, "row");
    ck_assert_msg(json_integer_value(json_object_get(row, "place")) == place &&
                      !strcmp(json_string_value(json_object_get(row, "input")), input),
                  "not row %d of '%s': %s", place, input, json_dumps(record, 0));
}

/* ---- faults ---- */

START_TEST(gemm_every_time)
{
    const char *fault = "kind=gemm,value=up.fprop,step=7,when=always,factor=100";
    train(fault, true);
    triage("9", fault);
    is("persistent", 7);
    is_at("micro_step", "up.fprop", "up.fprop");
    ck_assert_ptr_nonnull(strstr(text("text"), "Under bf16 it is wrong, too."));
    /* it began before a newer checkpoint */
    triage("12", fault);
    is("persistent", 7);
    /* the device is another now: then it was wrong once, for all that can be known */
    triage("9", NULL);
    is("transient", 7);
}
END_TEST

START_TEST(kernel_once)
{
    train("kind=flip,function=update,value=up,step=4,element=9,bit=20", true);
    triage("5", NULL);
    is("transient", 4);
    const json_t *value = json_object_get(record, "value");
    ck_assert_str_eq(json_string_value(json_object_get(value, "function")), "update");
    ck_assert_str_eq(json_string_value(json_object_get(value, "kind")), "kernel");
    ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(value, "value")), "up"));
    /* a checkpoint is newer than the fault */
    triage("8", NULL);
    is("transient", 4);
    ck_assert_int_eq(json_integer_value(json_object_get(record, "checkpoint")), 0);
}
END_TEST

START_TEST(once_without_fingerprints)
{
    train("kind=gemm,value=up.wgrad,step=8,factor=50", false);
    triage("10", NULL);
    is("transient", 8);
    ck_assert(json_is_null(json_object_get(record, "value")));
    ck_assert_ptr_nonnull(strstr(text("advice"), "--fingerprint-every"));
}
END_TEST

START_TEST(inf_in_memory)
{
    train("kind=inf,value=up,step=7,element=3", true);
    triage(NULL, NULL); /* the loss of step 7 is not finite */
    is("memory", 7);
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(record, "value"), "value")),
                     "up");
}
END_TEST

/* Rows of floats as a .npy file. `n` elements from `first` on are `bad`. */
static const char *write_rows(const char *name, int rows, int columns, int first, int n_bad,
                              float bad)
{
    char head[128];
    float x[200 * 16];
    ck_assert_int_le(rows * columns, 200 * 16);
    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    const int n =
        snprintf(head + 10, sizeof head - 10,
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows, columns);
    head[10 + n] = ' ';
    head[sizeof head - 1] = '\n';
    for (int i = 0; i < rows * columns; i++)
        x[i] = i >= first && i < first + n_bad ? bad : (float)(i * 37 % 64) / 64;
    FILE *f = fopen(f8_cli_temp(name), "wb");
    ck_assert(f && fwrite(head, sizeof head, 1, f) == 1 &&
              fwrite(x, sizeof *x * (size_t)(rows * columns), 1, f) == 1 && !fclose(f));
    return f8_cli_temp(name);
}

START_TEST(nan_in_file)
{
    static const char model[] = "module m\nparam w: f32[16, 16] normal(0.1)\n"
                                "func forward(%x: f32[2, 16]) -> (%loss: f32[]) {\n"
                                "  %y = linear(%x, w)\n"
                                "  %s = reduce_sum(reshape(mul(%y, %y)) {shape = [32]})\n"
                                "  return reshape(%s) {shape = []}\n}\n"
                                "optimizer adamw {lr = 1e-3}\n";
    char rows[PATH + 10], at[20];
    const char *of = f8_cli_write("rows.f8", model, sizeof model - 1);
    snprintf(rows, sizeof rows, "x=%s", write_rows("x.npy", 40, 16, 16 * 11 + 5, 1, NAN));
    f8_cli_result r = F8_CLI("train", of, "--batch", rows, "--steps", "18", "--run", folder,
                             "--recipe", "current", "--save-every", "6", "--keep", "9");
    ck_assert_msg(r.code == 0, "exit %d: %s", r.code, r.err);
    triage(NULL, NULL);
    snprintf(at, sizeof at, "of step %d ",
             (int)json_integer_value(json_object_get(record, "step")));
    ck_assert_str_eq(text("class"), "input");
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(record, "value"), "value")),
                     "x");
    ck_assert_ptr_nonnull(strstr(text("advice"), at));
    is_row("x", 11);
    unlink(f8_cli_temp("x.npy"));
}
END_TEST

/* -Inf in an input may be meant, as in a mask that is added to scores. It is not blamed for a step
 * that is good, nor, if good steps have it, for a bad one. */
START_TEST(inf_that_is_meant)
{
    static const char model[] =
        "module m\nparam w: f32[16, 16] normal(0.1)\n"
        "func forward(%mask: f32[2, 16], %x: f32[2, 16]) -> (%loss: f32[]) {\n"
        "  %y = linear(add(exp(%mask), %x), w)\n"
        "  %s = reduce_sum(reshape(mul(%y, %y)) {shape = [32]})\n"
        "  return reshape(%s) {shape = []}\n}\n"
        "optimizer adamw {lr = 1e-3}\n";
    char rows[PATH + 10], mask[PATH + 10], of[PATH];
    snprintf(of, sizeof of, "%s", f8_cli_write("rows.f8", model, sizeof model - 1));
    snprintf(rows, sizeof rows, "x=%s", write_rows("x.npy", 40, 16, 0, 0, 0));
    snprintf(mask, sizeof mask, "mask=%s", write_rows("mask.npy", 40, 16, 0, 640, -INFINITY));
    f8_cli_result r =
        F8_CLI("train", of, "--batch", rows, "--batch", mask, "--steps", "3", "--run", folder);
    ck_assert_msg(r.code == 0, "exit %d: %s", r.code, r.err);
    triage("3", NULL);
    is("healthy", 3);
    f8_cli_forget(folder);
    r = F8_CLI("train", of, "--batch", rows, "--batch", mask, "--steps", "9", "--run", folder,
               "--lr", "1e4");
    ck_assert_msg(strstr(r.err, "explodes") != NULL, "%s", r.err);
    triage(NULL, NULL);
    is("learning_rate", 2);
    unlink(f8_cli_temp("x.npy"));
    unlink(f8_cli_temp("mask.npy"));
}
END_TEST

/* A row that the codes of `delayed` clip: the loss hardly moves, and the scale gives the alarm.
 * Guards compare scales from their ninth look on; the row comes before. It may also come into the
 * replay again. */
START_TEST(outlier_in_file)
{
    static const char model[] =
        "module m\nparam w: f32[16, 16] normal(1)\n"
        "func forward(%x: f32[8, 16]) -> (%loss: f32[]) {\n"
        "  %y = linear(%x, w)\n"
        "  %q = mul(%y, %y)\n"
        "  %s = reduce_sum(reshape(div(%q, add(%q, 1.0))) {shape = [128]})\n"
        "  return reshape(%s) {shape = []}\n}\n"
        "optimizer adamw {lr = 1e-3}\n";
    static const float sizes[] = {1e5F, 1e30F};
    char rows[PATH + 10], of[PATH];
    snprintf(of, sizeof of, "%s", f8_cli_write("rows.f8", model, sizeof model - 1));
    for (int i = 0; i < 2; i++) {
        snprintf(rows, sizeof rows, "x=%s",
                 write_rows("x.npy", 80, 16, 16 * 11, i ? 1 : 16, sizes[i]));
        f8_cli_result r = F8_CLI("train", of, "--batch", rows, "--steps", "10", "--run", folder,
                                 "--recipe", "delayed", "--save-every", "2", "--keep", "9");
        ck_assert_msg(r.code == 0 && strstr(r.err, "the scale of 'w.x' is"), "%s", r.err);
        triage(NULL, NULL);
        ck_assert_msg(!strcmp(text("class"), "data"), "not data: %s", json_dumps(record, 0));
        ck_assert_int_lt(json_integer_value(json_object_get(record, "step")), 9);
        is_row("x", 11);
        ck_assert_ptr_nonnull(strstr(text("text"), "(row 11 of x.npy)"));
        f8_cli_forget(folder);
    }
    unlink(f8_cli_temp("x.npy"));
}
END_TEST

/* An operand that FP8 can't hold, at any granularity: in bf16 its linear is right. Another one is
 * all zeros, so it has no SQNR, and FP8 takes nothing of it. */
START_TEST(wide_operand)
{
    static const char model[] =
        "module m\nparam w: f32[16, 16] normal(1)\nparam z: f32[16, 16] normal(1)\n"
        "func forward(%x: f32[8, 16]) -> (%loss: f32[]) {\n"
        "  %y = linear(exp(mul(%x, 40.0)), w)\n"
        "  %q = abs(add(%y, linear(mul(%x, 0.0), z)))\n"
        "  %s = reduce_sum(reshape(div(%q, add(%q, 1.0))) {shape = [128]})\n"
        "  return reshape(%s) {shape = []}\n}\n"
        "optimizer adamw {lr = 1e-3}\n";
    static const char *const recipes[] = {"delayed", "current"};
    char rows[PATH + 10], of[PATH];
    snprintf(of, sizeof of, "%s", f8_cli_write("rows.f8", model, sizeof model - 1));
    snprintf(rows, sizeof rows, "x=%s", write_rows("x.npy", 80, 16, 0, 0, 0));
    for (int i = 0; i < 2; i++) {
        f8_cli_result r = F8_CLI("train", of, "--batch", rows, "--steps", "4", "--run", folder,
                                 "--recipe", recipes[i], "--stats", "*", "--every", "1");
        ck_assert_msg(r.code == 0 && strstr(r.err, "of 'w.x' underflows"), "%s", r.err);
        triage(NULL, NULL);
        is("fp8", 1);
        ck_assert_ptr_nonnull(strstr(text("text"), "FP8 takes worst is 'w.x': SQNR "));
        ck_assert_ptr_nonnull(strstr(text("advice"), "recipe \"w\" = bf16"));
        f8_cli_forget(folder);
    }
    unlink(f8_cli_temp("x.npy"));
}
END_TEST

/* No element of the row stands out: the row is found by halves. */
START_TEST(row_by_halves)
{
    static const char model[] = "module m\nparam w: f32[16, 16] normal(0.1)\n"
                                "func forward(%x: f32[8, 16]) -> (%loss: f32[]) {\n"
                                "  %y = linear(%x, w)\n"
                                "  %q = add(reduce_sum(mul(%x, %x)) {axis = 1}, mul(reduce_sum(%y) "
                                "{axis = 1}, 0.01))\n"
                                "  %s = reduce_sum(reshape(exp(%q)) {shape = [8]})\n"
                                "  return reshape(%s) {shape = []}\n}\n"
                                "optimizer adamw {lr = 1e-4}\n";
    char rows[PATH + 10];
    const char *of = f8_cli_write("rows.f8", model, sizeof model - 1);
    snprintf(rows, sizeof rows, "x=%s", write_rows("x.npy", 200, 16, 16 * 67, 16, 2));
    f8_cli_result r = F8_CLI("train", of, "--batch", rows, "--steps", "22", "--run", folder,
                             "--recipe", "bf16", "--save-every", "8", "--keep", "9");
    ck_assert_msg(r.code == 0 && strstr(r.err, "the loss explodes"), "%s", r.err);
    triage(NULL, NULL);
    ck_assert_msg(!strcmp(text("class"), "data"), "not data: %s", json_dumps(record, 0));
    is_row("", 67);
    unlink(f8_cli_temp("x.npy"));
}
END_TEST

/* Update gives the history of an operand a wrong amax, whose scale is judged in the same step: its
 * loss is right, and only the alarm is not raised again. */
START_TEST(alarm_alone)
{
    train("kind=flip,function=update,value=fp8.amax_history,step=8,element=20,bit=30", false);
    triage(NULL, NULL);
    is("transient", 9);
    ck_assert_str_eq(text("differs_in"), "scale");
    ck_assert_ptr_nonnull(strstr(text("text"), "another scale of 'head.x'"));
}
END_TEST

static void copy(const char *from, const char *to)
{
    size_t n;
    char *bytes = f8_cli_read(from, &n);
    FILE *f = fopen(to, "wb");
    ck_assert(f && fwrite(bytes, 1, n, f) == n && !fclose(f));
    free(bytes);
}

/* A checkpoint that is whole by its own checksum, and not that of the run. */
START_TEST(changed_checkpoint)
{
    const char *name = "checkpoint-10.safetensors";
    train("kind=flip,function=update,value=up,step=10,element=9,bit=22", false);
    copy(in(folder, name), f8_cli_temp("other"));
    f8_cli_forget(folder);
    train(NULL, false);
    copy(f8_cli_temp("other"), in(folder, name));
    ck_assert_int_eq(unlink(in(folder, "checkpoint-12.safetensors")), 0);
    f8_cli_result r = F8_CLI("train", "--resume", folder);
    ck_assert_msg(r.code == 0, "exit %d: %s", r.code, r.err);
    triage("11", NULL);
    is("memory", 11);
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(record, "value"), "value")),
                     "up");
    unlink(f8_cli_temp("other"));
}
END_TEST

/* A feature that no row has, and an epsilon that is 0 in f32: 0 / 0 in the first update. */
START_TEST(epsilon)
{
    static const char model[] = "module m\nparam w: f32[16, 16] normal(0.1)\n"
                                "func forward(%x: f32[2, 16]) -> (%loss: f32[]) {\n"
                                "  %y = linear(mul(%x, 0.0), w)\n"
                                "  %s = reduce_sum(reshape(mul(%y, %y)) {shape = [32]})\n"
                                "  return reshape(%s) {shape = []}\n}\n"
                                "optimizer adamw {lr = 1e-3, eps = 1e-46}\n";
    char rows[PATH + 10];
    const char *of = f8_cli_write("rows.f8", model, sizeof model - 1);
    snprintf(rows, sizeof rows, "x=%s", write_rows("x.npy", 40, 16, 0, 0, 0));
    f8_cli_result r =
        F8_CLI("train", of, "--batch", rows, "--steps", "4", "--run", folder, "--recipe", "bf16");
    ck_assert_msg(r.code == 0, "exit %d: %s", r.code, r.err);
    triage(NULL, NULL);
    is("epsilon", 2);
    unlink(f8_cli_temp("x.npy"));
}
END_TEST

START_TEST(healthy)
{
    train(NULL, true);
    triage("8", NULL);
    is("healthy", 8);
    ck_assert(json_is_null(json_object_get(record, "value")));
    ck_assert_int_gt(json_integer_value(json_object_get(record, "judged")), 20);
    ck_assert_int_eq(json_array_size(json_object_get(record, "trials")), 0);
}
END_TEST

/* ---- what it can't do ---- */

static void flip_byte(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    ck_assert(f && !fseek(f, at, SEEK_END));
    const int c = fgetc(f);
    ck_assert(c != EOF && !fseek(f, at, SEEK_END) && fputc(c ^ 1, f) != EOF && !fclose(f));
}

START_TEST(damaged)
{
    train("kind=gemm,value=up.wgrad,step=8,factor=50", true);
    flip_byte(in(folder, "checkpoint-5.safetensors"), -40);
    const f8_cli_result r = triage("9", NULL);
    ck_assert_ptr_nonnull(strstr(r.err, "checkpoint-5.safetensors: warning: passed over: "));
    is("transient", 8);
    is_at("micro_step", "up.wgrad", "up.wgrad");
    ck_assert_int_eq(json_integer_value(json_object_get(record, "passed_over")), 1);
    ck_assert_ptr_nonnull(strstr(text("text"), "1 newer checkpoint is damaged"));
    /* no other is left */
    ck_assert_int_eq(unlink(in(folder, "checkpoint-0.safetensors")), 0);
    f8_cli_fails(F8_CLI("triage", folder, "--step", "9", "--json", "-"), 1,
                 "it has no checkpoint that is whole, of before that step");
}
END_TEST

START_TEST(bad_use)
{
    f8_cli_fails(F8_CLI("triage", f8_cli_temp("none")), 1, "none");
    f8_cli_fails(F8_CLI("triage", file), 1, "m.f8");
    f8_cli_fails(F8_CLI("triage"), 2, "triage");
    train(NULL, false);
    f8_cli_fails(F8_CLI("triage", folder), 1, "no record says that a step is bad");
    f8_cli_fails(F8_CLI("triage", folder, "--step", "13"), 1, "there is no record of that step");
    f8_cli_fails(F8_CLI("triage", folder, "--step", "0"), 2, "--step");
    f8_cli_fails(F8_CLI("triage", folder, "--steps", "9"), 2, "--steps");
    ck_assert_int_eq(unlink(in(folder, "checkpoint-0.safetensors")), 0);
    f8_cli_fails(F8_CLI("triage", folder, "--step", "5", "--json", "-"), 1, "no checkpoint");
}
END_TEST

/* What was trained under another recipe has other bits, and no device was wrong. */
START_TEST(changed)
{
    train(NULL, false);
    f8_cli_result r = F8_CLI("train", "--resume", folder, "--recipe", "bf16", "--steps", "16");
    ck_assert_msg(r.code == 0, "exit %d: %s", r.code, r.err);
    triage("14", NULL);
    is("healthy", 14);
    ck_assert_int_eq(json_integer_value(json_object_get(record, "checkpoint")), 12);
    f8_cli_fails(F8_CLI("triage", folder, "--step", "9", "--json", "-"), 1,
                 "from step 13 on it was trained under other conditions");
    /* going on as before changes nothing */
    r = F8_CLI("train", "--resume", folder, "--stop-at", "16");
    triage("14", NULL);
    is("healthy", 14);
}
END_TEST

START_TEST(on_reference)
{
    f8_cli_result r = F8_CLI("train", file, "--data", data, "--target", "reference", "--steps", "1",
                             "--run", folder);
    ck_assert_msg(r.code == 0, "exit %d: %s", r.code, r.err);
    f8_cli_fails(F8_CLI("triage", folder, "--step", "1", "--json", "-"), 1,
                 "it was trained on target reference, which nothing can judge");
}
END_TEST

/* Other data give other bits, and so does another plan in fingerprints. */
START_TEST(other_data)
{
    train(NULL, true);
    FILE *to = fopen(data, "r+");
    ck_assert(to && fputc('#', to) == '#' && !fclose(to));
    f8_cli_fails(F8_CLI("triage", folder, "--step", "8", "--json", "-"), 1, "the data is ");
}
END_TEST

START_TEST(another_plan)
{
    train(NULL, true);
    f8_cli_result r = F8_CLI("train", "--resume", folder, "--no-fuse");
    ck_assert_msg(r.code == 0, "exit %d: %s", r.code, r.err);
    f8_cli_fails(F8_CLI("triage", folder, "--step", "8", "--json", "-"), 1,
                 "from step 13 on it was trained under other conditions");
}
END_TEST

/* A step that no run can have, and a fingerprint that can't be read. */
START_TEST(damaged_records)
{
    char name[PATH + 20];
    train(NULL, true);
    snprintf(name, sizeof name, "%s/steps.jsonl", folder);
    size_t n;
    char *all = f8_cli_read(name, &n), *at = strstr(all, "\"step\":7,\"function\"");
    at = at ? strstr(at, "\"values\":\"") : NULL;
    ck_assert_ptr_nonnull(at);
    memset(at + 10 + 40, 'z', 4); /* in the third value */
    /* and one that lacks a value */
    at = strstr(all, "\"step\":8,\"function\"");
    at = at ? strstr(at, "\"values\":\"") : NULL;
    ck_assert_ptr_nonnull(at);
    memmove(at + 10, at + 10 + 16, n - (size_t)(at + 10 + 16 - all));
    n -= 16;
    FILE *to = fopen(name, "w");
    ck_assert(to && fwrite(all, 1, n, to) == n && !fclose(to));
    free(all);
    triage("8", NULL);
    is("healthy", 8);
    to = fopen(name, "a");
    fputs("{\"event\":\"step\",\"step\":4611686018427387904,\"loss_hex\":\"0x1p+0\"}\n", to);
    ck_assert(!fclose(to));
    f8_cli_fails(F8_CLI("triage", folder, "--step", "8", "--json", "-"), 1,
                 "is of a step that the run does not have");
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("triage");
    TCase *faults = tcase_create("faults"), *use = tcase_create("use");
    TCase *all[] = {faults, use};
    for (int i = 0; i < 2; i++) {
        tcase_add_checked_fixture(all[i], setup, teardown);
        tcase_set_timeout(all[i], TIMEOUT);
        suite_add_tcase(s, all[i]);
    }
    tcase_add_test(faults, gemm_every_time);
    tcase_add_test(faults, kernel_once);
    tcase_add_test(faults, once_without_fingerprints);
    tcase_add_test(faults, inf_in_memory);
    tcase_add_test(faults, nan_in_file);
    tcase_add_test(faults, inf_that_is_meant);
    tcase_add_test(faults, outlier_in_file);
    tcase_add_test(faults, wide_operand);
    tcase_add_test(faults, row_by_halves);
    tcase_add_test(faults, alarm_alone);
    tcase_add_test(faults, changed_checkpoint);
    tcase_add_test(faults, epsilon);
    tcase_add_test(faults, healthy);
    tcase_add_test(use, damaged);
    tcase_add_test(use, changed);
    tcase_add_test(use, on_reference);
    tcase_add_test(use, other_data);
    tcase_add_test(use, another_plan);
    tcase_add_test(use, damaged_records);
    tcase_add_test(use, bad_use);
    return s;
}
