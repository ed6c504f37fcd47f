/* `fp8c train` from end to end, on a GPT small enough for many runs. Other programs rely on its
 * records. Its bits depend only on the module, the recipe, the seed and the text. What is wrong
 * with the data is reported before anything is written. */
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

#define GPT "frontend/models/gpt.f8"
#define SMALL "-D", "B=2", "-D", "T=32", "-D", "L=1", "-D", "C=32", "-D", "H=2"

enum { TIMEOUT = 900, STEPS = 4, TAIL = 2, TEXT = 6000, LINEARS = 4 };

static const char *make_text(void)
{
    return f8_cli_write_words("text", TEXT);
}

/* ---- one run ---- */

typedef struct run {
    double loss[STEPS], final_loss, heldout_loss;
    int steps, summaries;
    json_t *summary; /* the last */
    char *state;
    size_t state_bytes;
} run;

static void end(run *r)
{
    json_decref(r->summary);
    free(r->state);
}

static double number(const json_t *record, const char *field)
{
    const json_t *v = json_object_get(record, field);
    ck_assert_msg(json_is_number(v), "no number '%s'", field);
    return json_number_value(v);
}

static void read_step(run *r, const json_t *record)
{
    ck_assert(json_is_integer(json_object_get(record, "step")));
    ck_assert_int_eq(number(record, "step"), r->steps % STEPS + 1);
    ck_assert(json_is_real(json_object_get(record, "loss")));
    ck_assert_double_gt(number(record, "tokens_per_second"), 0);
    ck_assert_double_gt(number(record, "grad_norm"), 0);
    ck_assert_double_gt(number(record, "lr"), 0);
    ck_assert_double_ge(number(record, "seed"), 1);
    ck_assert(json_is_false(json_object_get(record, "skipped")));
    r->loss[r->steps++ % STEPS] = number(record, "loss");
}

static void read_records(run *r, char *text)
{
    for (char *save, *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        json_t *record = json_loads(line, 0, NULL);
        ck_assert_msg(record != NULL, "no JSON: %s", line);
        const char *event = json_string_value(json_object_get(record, "event"));
        ck_assert_ptr_nonnull(event);
        if (!strcmp(event, "step")) {
            read_step(r, record);
        } else if (strncmp(event, "profile", 7) != 0) {
            ck_assert_str_eq(event, "summary");
            json_decref(r->summary);
            r->summary = json_incref(record);
            r->summaries++;
        }
        json_decref(record);
    }
}

/* Train for STEPS steps with three more arguments (NULL: fewer). */
static run train(const char *recipe, const char *a, const char *b, const char *c)
{
    run r = {0};
    const char *json = f8_cli_temp("records"), *state = f8_cli_temp("state");
    char steps[8];
    snprintf(steps, sizeof steps, "%d", STEPS);
    remove(state);
    const f8_cli_result done =
        F8_CLI("train", GPT, "--data", make_text(), "--steps", steps, SMALL, "--recipe", recipe,
               "--json", json, "--save-state", state, a, b, c);
    ck_assert_msg(done.code == 0, "exit %d: %s", done.code, done.err);
    ck_assert_str_eq(done.err, ""); /* no bar where there is no terminal */
    ck_assert_msg(strstr(done.out, recipe) && strstr(done.out, "losses in nats per byte"), "%s",
                  done.out);
    size_t n;
    char *text = f8_cli_read(json, &n);
    read_records(&r, text);
    free(text);
    ck_assert_int_ge(r.summaries, 1);
    ck_assert_int_eq(r.steps, r.summaries * STEPS);
    r.final_loss = number(r.summary, "final_loss");
    r.heldout_loss = number(r.summary, "heldout_loss");
    r.state = f8_cli_read(state, &r.state_bytes);
    return r;
}

/* ---- records ---- */

START_TEST(records)
{
    static const struct {
        const char *recipe;
        int fp8;
    } want[] = {{"f32", 0}, {"bf16", 0}, {"delayed", 3 * LINEARS}, {"current", 3 * LINEARS}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        run r = train(want[i].recipe, NULL, NULL, NULL);
        double mean = 0;
        for (int k = STEPS - TAIL; k < STEPS; k++)
            mean += r.loss[k] / TAIL;
        ck_assert_str_eq(json_string_value(json_object_get(r.summary, "recipe")), want[i].recipe);
        ck_assert_int_eq(number(r.summary, "steps"), STEPS);
        ck_assert_double_eq_tol(r.final_loss, mean, 1e-12);
        ck_assert_int_eq(number(r.summary, "skipped"), 0);
        ck_assert_double_gt(number(r.summary, "compile_seconds"), 0);
        ck_assert_double_gt(number(r.summary, "tokens_per_second"), 0);
        ck_assert_int_eq(number(r.summary, "fp8_gemms_planned"), want[i].fp8);
        ck_assert_int_eq(number(r.summary, "fp8_gemms_executed"), want[i].fp8);
        ck_assert_double_gt(number(r.summary, "peak_bytes"), 1 << 16);
        ck_assert_double_eq(number(r.summary, "peak_bytes"),
                            number(r.summary, "planned_peak_bytes"));
        ck_assert_double_gt(number(r.summary, "unigram_entropy"), 2);
        ck_assert_double_eq_tol(r.loss[0], log(256), 0.1); /* untrained: every byte alike */
        ck_assert_double_lt(r.heldout_loss, r.loss[0]);
        end(&r);
    }
}
END_TEST

/* Two recipes in one command: two summaries, and the same losses as each alone. */
START_TEST(compare)
{
    run both = train("current", "--compare", "bf16", NULL), alone = train("bf16", NULL, NULL, NULL);
    ck_assert_int_eq(both.summaries, 2);
    ck_assert_str_eq(json_string_value(json_object_get(both.summary, "recipe")), "bf16");
    ck_assert_mem_eq(both.loss, alone.loss, sizeof alone.loss);
    ck_assert_double_eq(both.heldout_loss, alone.heldout_loss);
    end(&both);
    end(&alone);
}
END_TEST

/* Recipes with options, whose records have their canonical text, and a rule, which holds for both.
 */
START_TEST(recipes_with_options)
{
    run both = train("delayed {history = 2}", "--compare=current{margin=1,format=hybrid}",
                     "--rule=\"*.c_fc\" wgrad = bf16", NULL);
    ck_assert_int_eq(both.summaries, 2);
    ck_assert_str_eq(json_string_value(json_object_get(both.summary, "recipe")),
                     "current {margin = 1}");
    ck_assert_int_eq(number(both.summary, "fp8_gemms_planned"), 3 * LINEARS - 1);
    ck_assert_int_eq(number(both.summary, "fp8_gemms_executed"), 3 * LINEARS - 1);
    end(&both);
}
END_TEST

/* Under a budget the form for the first steps recomputes other values than micro_step. What was
 * planned is told of the form that ran: of a run of one step that is micro_step.first. */
START_TEST(planned_of_the_form_that_ran)
{
    static const char *const steps[] = {"1", "2"};
    double executed[2];
    for (int i = 0; i < 2; i++) {
        const f8_cli_result r =
            F8_CLI("train", "frontend/models/gpt.f8", "--data", make_text(), "--steps", steps[i],
                   "-D", "B=2", "--recipe", "delayed", "--memory", "0.3", "--json", "-");
        ck_assert_msg(r.code == 0, "%s", r.err);
        run records = {0};
        read_records(&records, r.out);
        executed[i] = number(records.summary, "fp8_gemms_executed");
        ck_assert_double_eq(number(records.summary, "fp8_gemms_planned"), executed[i]);
        end(&records);
    }
    ck_assert_double_ne(executed[0], executed[1]); /* else this shows nothing */
}
END_TEST

START_TEST(json_alone_on_stdout)
{
    f8_cli_result r = F8_CLI("train", GPT, "--data", make_text(), "--steps", "4", SMALL, "--json",
                             "-", "--profile");
    ck_assert_msg(r.code == 0, "%s", r.err);
    ck_assert_ptr_nonnull(strstr(r.err, "\nprofile: "));
    run records = {0};
    read_records(&records, r.out);
    ck_assert_int_eq(records.steps, STEPS);
    end(&records);
}
END_TEST

/* No line is longer than the terminal: one that is could not be drawn over. */
static void lines_fit(const char *err)
{
    enum { COLUMNS = 80 };
    for (const char *at = err, *end; (end = strstr(at, "\033[K")); at = end + 3) {
        const char *from = end;
        while (from > at && from[-1] != '\r')
            from--;
        ck_assert_msg(end - from < COLUMNS, "%.*s", (int)(end - from), from);
    }
}

/* On a terminal a bar with the loss, the rates, the time left and the memory, redrawn in its line,
 * and now and then a line that stays. */
START_TEST(progress_on_a_terminal)
{
    const char *const args[] = {"train", GPT, "--data", make_text(), "--steps", "25", SMALL, NULL};
    const f8_cli_result r = f8_cli_run_on_terminal(args);
    ck_assert_msg(r.code == 0, "%s", r.err);
    const char *end = strstr(r.err, "####] 25/25  loss "), *left;
    ck_assert_msg(end && strstr(end, "  lr 6e-05  ") && r.err[0] == '\r', "%s", r.err);
    ck_assert_msg((left = strstr(end, " tokens/s  0 s left  ")) && strstr(left, " MiB\033[K"), "%s",
                  r.err);
    lines_fit(r.err);
    int lines = 0;
    for (const char *at = r.err; (at = strchr(at, '\n')); at++)
        lines++;
    ck_assert_msg(lines == 10 + 1, "%d lines: %s", lines, r.err);
    const char *line = strstr(r.err, "bf16  step 25  loss ");
    ck_assert_msg(line && strstr(line, "  gradient norm ") && strstr(line, "  lr 6e-05  skipped 0"),
                  "%s", r.err);
    ck_assert(line < end && strstr(r.err, "bf16  step 3  loss ") < line);
    ck_assert_ptr_nonnull(strstr(r.out, "losses in nats per byte"));
}
END_TEST

/* ---- bits ---- */

static void same(const run *a, const run *b, const char *recipe, const char *what)
{
    for (int i = 0; i < STEPS; i++)
        ck_assert_msg(!memcmp(&a->loss[i], &b->loss[i], sizeof(double)),
                      "%s, %s: loss of step %d is %.17g, was %.17g", recipe, what, i + 1,
                      b->loss[i], a->loss[i]);
    ck_assert_msg(a->heldout_loss == b->heldout_loss, "%s, %s: held-out loss", recipe, what);
    ck_assert_msg(a->state_bytes == b->state_bytes && !memcmp(a->state, b->state, a->state_bytes),
                  "%s, %s: the state differs", recipe, what);
}

/* The same command twice; any number of threads; without fusion: the same losses and state. */
START_TEST(same_bits)
{
    static const char *const recipes[] = {"delayed", "f32", "bf16", "current"};
    static const char *const variants[][2] = {{NULL, NULL},
                                              {"--threads", "1"},
                                              {"--threads", "2"},
                                              {"--threads", "3"},
                                              {"--no-fuse", NULL}};
    const int n = f8_cli_sanitized() ? 1 : 4;
    for (int i = 0; i < n; i++) {
        run first = train(recipes[i], NULL, NULL, NULL);
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
            run r = train(recipes[i], variants[v][0], variants[v][1], NULL);
            same(&first, &r, recipes[i], variants[v][0] ? variants[v][0] : "again");
            end(&r);
        }
        end(&first);
    }
}
END_TEST

START_TEST(seed_and_rate_matter)
{
    run a = train("bf16", "--seed", "1", NULL), b = train("bf16", "--seed", "2", NULL);
    run c = train("bf16", "--lr", "0.01", NULL);
    ck_assert(a.loss[0] != b.loss[0]);
    ck_assert(a.loss[0] == c.loss[0] && a.loss[STEPS - 1] != c.loss[STEPS - 1]);
    end(&a);
    end(&b);
    end(&c);
}
END_TEST

/* The interpreter rounds everything but the sums inside GEMM and attention as the CPU does. */
START_TEST(reference_agrees)
{
    static const char *const recipes[] = {"bf16", "delayed", "current", "f32"};
    for (int i = 0; i < 4; i++) {
        run cpu = train(recipes[i], NULL, NULL, NULL);
        run reference = train(recipes[i], "--target", "reference", NULL);
        for (int k = 0; k < STEPS; k++)
            ck_assert_msg(fabs(cpu.loss[k] / reference.loss[k] - 1) < 1e-3,
                          "%s, step %d: cpu %.9g, reference %.9g", recipes[i], k + 1, cpu.loss[k],
                          reference.loss[k]);
        ck_assert_uint_eq(cpu.state_bytes, reference.state_bytes);
        end(&cpu);
        end(&reference);
    }
}
END_TEST

/* ---- bad input ---- */

/* Exit 1 with the message, and no output file written. */
static void refused(const char *data, const char *a, const char *b, const char *message)
{
    const char *json = f8_cli_temp("unwritten.json"), *state = f8_cli_temp("unwritten.state");
    const f8_cli_result r =
        F8_CLI("train", GPT, "--data", data, SMALL, "--save-state", state, "--json", json, a, b);
    ck_assert_msg(r.code == 1 && strstr(r.err, message), "exit %d: %s", r.code, r.err);
    ck_assert_str_eq(r.out, "");
    struct stat s;
    ck_assert(stat(state, &s) != 0);
    ck_assert(stat(json, &s) != 0 || s.st_size == 0);
}

START_TEST(bad_data)
{
    refused("no/such/text", NULL, NULL, "no/such/text: error: No such file or directory");
    refused("frontend", NULL, NULL, "frontend: error: Is a directory");
    refused(f8_cli_write("empty", "", 0), NULL, NULL, "empty: error: the text has only 0 bytes");
    refused(
        f8_cli_write("short", "To be, or not to be", 19), NULL, NULL,
        "short: error: the text has only 19 bytes: a sequence takes 33, and a tenth of the text "
        "is held out, so at least 330 are needed");
    char text[400];
    memset(text, 'a', sizeof text);
    refused(f8_cli_write("329", text, 329), NULL, NULL, "the text has only 329 bytes");
    refused(f8_cli_write("byte", text, 400), "-D", "V=64",
            "byte: error: byte 97 at offset 0 is outside the model's vocabulary of 64");
    ck_assert_int_eq(
        F8_CLI("train", GPT, "--data", f8_cli_write("330", text, 330), "--steps", "1", SMALL).code,
        0);
}
END_TEST

START_TEST(bad_options)
{
    refused(make_text(), "--save", "no/such/folder/x",
            "no/such/folder/x: error: No such file or directory");
    refused(make_text(), "--save", "/dev/full", "/dev/full: error: not a regular file");
    refused(make_text(), "--compare", "fp4", "--compare 'fp4': error: no recipe 'fp4': there are ");
    refused(make_text(), "--recipe", "fp4", "--recipe 'fp4': error: no recipe 'fp4': there are ");
    refused(make_text(), "--compare", "block {pow2 = 2}",
            "--compare 'block {pow2 = 2}': error: pow2 = 2: false or true is expected");
    refused(make_text(), "--target", "tpu", "no target 'tpu'");
}
END_TEST

START_TEST(bad_modules)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"module t\nparam w: f32[8, 8] ones\n"
         "func forward(%tokens: i32[2, 8], %targets: i32[2, 8]) -> (%loss: f32[]) {\n"
         "  return cross_entropy(embedding(w, %tokens), %targets)\n}\n",
         "declares no optimizer"},
        {"module t\nparam w: f32[8, 8] ones\n"
         "func forward(%words: i32[2, 8], %targets: i32[2, 8]) -> (%loss: f32[]) {\n"
         "  return cross_entropy(embedding(w, %words), %targets)\n}\n"
         "optimizer adamw { lr = 0.1 }\n",
         "train needs a function forward(%tokens, %targets)"},
        {"module t\nparam w: f32[8, 8] ones\n"
         "func forward(%tokens: i32[2, 16], %targets: i32[2, 8]) -> (%loss: f32[]) {\n"
         "  %x = slice(embedding(w, %tokens)) {axis = 1, start = 0, stop = 8}\n"
         "  return cross_entropy(%x, %targets)\n}\n"
         "optimizer adamw { lr = 0.1 }\n",
         "bad.f8: error: train needs a function forward(%tokens, %targets) with two inputs "
         "i32[B, T], whose first result is the loss"},
        {"module t\nparam w: f32[8] ones\n", "has no function 'forward'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *file = f8_cli_write("bad.f8", bad[i].text, strlen(bad[i].text));
        const f8_cli_result r = F8_CLI("train", file, "--data", make_text());
        ck_assert_msg(r.code == 1 && strstr(r.err, bad[i].message), "exit %d: %s", r.code, r.err);
        ck_assert_str_eq(r.out, "");
    }
}
END_TEST

START_TEST(full_disk)
{
    struct stat s;
    if (stat("/dev/full", &s)) {
        test_skip("a full disk", "there is no /dev/full");
        return;
    }
    f8_cli_result r = F8_CLI("train", GPT, "--data", make_text(), "--steps", "1000000", SMALL,
                             "--json", "/dev/full");
    ck_assert_int_eq(r.code, 1);
    ck_assert_str_eq(r.err, "/dev/full: error: the JSON records could not be written: "
                            "No space left on device\n");
    ck_assert_str_eq(r.out, "");
}
END_TEST

/* Said before the first step, which would take long. */
START_TEST(unwritable_state)
{
    struct stat s;
    f8_cli_result r = F8_CLI("train", GPT, "--data", make_text(), "--steps", "1000000", SMALL,
                             "--save-state", "/dev/null");
    ck_assert_int_eq(r.code, 1);
    ck_assert_str_eq(r.err, "/dev/null: error: not a regular file\n");
    ck_assert(!stat("/dev/null", &s) && S_ISCHR(s.st_mode));
    r = F8_CLI("train", GPT, "--data", make_text(), "--steps", "1000000", SMALL, "--save-state",
               "no/such/state");
    ck_assert_int_eq(r.code, 1);
    ck_assert_str_eq(r.err, "no/such/state: error: No such file or directory\n");
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("train");
    TCase *t = tcase_create("train");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_test(t, records);
    tcase_add_test(t, compare);
    tcase_add_test(t, recipes_with_options);
    tcase_add_test(t, planned_of_the_form_that_ran);
    tcase_add_test(t, json_alone_on_stdout);
    tcase_add_test(t, progress_on_a_terminal);
    tcase_add_test(t, same_bits);
    tcase_add_test(t, seed_and_rate_matter);
    tcase_add_test(t, reference_agrees);
    tcase_add_test(t, bad_data);
    tcase_add_test(t, bad_options);
    tcase_add_test(t, bad_modules);
    tcase_add_test(t, full_disk);
    tcase_add_test(t, unwritable_state);
    suite_add_tcase(s, t);
    return s;
}
