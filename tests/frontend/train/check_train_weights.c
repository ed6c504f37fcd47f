/* `fp8c train --weights`: a training begins with the parameters of files. Its first loss is that of
 * `eval` with them, to the bit; its folder says what they were and goes on without them; nothing is
 * left where they do not fit. check_export.c has files with FP8 codes. */
#include <jansson.h>
#include <unistd.h>

#include "frontend/fp8c.h"
#include "ir/base/hash.h"
#include "tests/shared/api/train_case.h"
#include "tests/shared/suite.h"

enum { ROWS = 2, COLUMNS = 16 };

static char weights[PATH], constant[PATH];

static void setup(void)
{
    static char letters[TEXT];
    train_setup("lr = 1e-2");
    memset(letters, 'a', sizeof letters);
    snprintf(constant, sizeof constant, "%s", f8_cli_write("constant", letters, sizeof letters));
    snprintf(weights, sizeof weights, "%s", f8_cli_temp("weights"));
    f8_cli_ok(F8_CLI("train", file, "--data", data, "--steps", "6", "--recipe", "delayed", "--save",
                     weights));
}

static json_t *json_of(const char *path)
{
    json_t *j = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(j);
    return j;
}

/* The record of step `step` in a folder: the caller's. */
static json_t *step_of(const char *of, int64_t step)
{
    size_t n;
    char *all = f8_cli_read(in(of, "steps.jsonl"), &n), *save;
    json_t *found = NULL;
    for (char *line = strtok_r(all, "\n", &save); line && !found;
         line = strtok_r(NULL, "\n", &save)) {
        json_t *r = json_loads(line, 0, NULL);
        if (!strcmp(json_string_value(json_object_get(r, "event")), "step") &&
            json_integer_value(json_object_get(r, "step")) == step)
            found = json_incref(r);
        json_decref(r);
    }
    free(all);
    ck_assert_ptr_nonnull(found);
    return found;
}

static double loss_of(const char *of, int64_t step)
{
    json_t *r = step_of(of, step);
    const double loss = strtod(json_string_value(json_object_get(r, "loss_hex")), NULL);
    json_decref(r);
    return loss;
}

/* The loss of a batch of one letter, in a program for inference. */
static double eval_loss(const char *recipe)
{
    static const char *const ports[] = {"tokens", "targets"};
    fp8c_context *ctx;
    fp8c_module *m;
    fp8c_program *p;
    size_t n;
    char *text = f8_cli_read(file, &n);
    const char *files[] = {weights};
    const fp8c_compile_options o = {
        .struct_size = sizeof o, .recipe = recipe, .threads = 1, .inference = 1};
    const fp8c_load_options load = {.struct_size = sizeof load, .files = files, .n_files = 1};
    ck_assert_int_eq(fp8c_context_create(NULL, &ctx), FP8C_OK);
    ck_assert_int_eq(fp8c_module_parse(ctx, text, n, file, NULL, 0, &m), FP8C_OK);
    ck_assert_msg(fp8c_compile(m, &o, &p) == FP8C_OK, "%s", fp8c_context_message(ctx));
    ck_assert_msg(fp8c_program_load_weights(p, &load) == FP8C_OK, "%s", fp8c_context_message(ctx));
    const int eval = fp8c_program_function(p, "eval");
    for (int k = 0; k < 2; k++) {
        int32_t *ids = fp8c_program_buffer(p, eval, FP8C_INPUT,
                                           fp8c_program_find_port(p, eval, FP8C_INPUT, ports[k]));
        for (int i = 0; i < ROWS * COLUMNS; i++)
            ids[i] = 'a';
    }
    ck_assert_int_eq(fp8c_program_run(p, eval), FP8C_OK);
    const float loss = *(const float *)fp8c_program_buffer(
        p, eval, FP8C_OUTPUT, fp8c_program_find_port(p, eval, FP8C_OUTPUT, "loss"));
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    free(text);
    return (double)loss;
}

START_TEST(first_loss_is_evals)
{
    static const char *const recipes[] = {"f32", "bf16", "current", "rowwise", "block", "mxfp8"};
    const char *recipe = recipes[_i];
    f8_cli_ok(F8_CLI("train", file, "--data", constant, "--steps", "2", "--recipe", recipe,
                     "--weights", weights, "--run", folder));
    f8_cli_ok(F8_CLI("train", file, "--data", constant, "--steps", "2", "--recipe", recipe, "--run",
                     straight));
    ck_assert_msg(loss_of(folder, 1) == eval_loss(recipe), "%s: %.17g, and eval has %.17g", recipe,
                  loss_of(folder, 1), eval_loss(recipe));
    ck_assert(loss_of(straight, 1) != loss_of(folder, 1));
}
END_TEST

/* Moments, counts and histories begin anew: with them in the file a training is the one without. */
START_TEST(states_begin_anew)
{
    f8_cli_ok(F8_CLI("train", file, "--data", data, "--steps", "3", "--recipe", "delayed",
                     "--weights", weights, "--run", folder));
    f8_cli_ok(F8_CLI("train", file, "--data", data, "--steps", "3", "--recipe", "delayed",
                     "--weights", weights, "--ignore", "fp8c.state.*", "--run", straight));
    for (int64_t i = 1; i <= 3; i++)
        ck_assert(loss_of(folder, i) == loss_of(straight, i));
}
END_TEST

START_TEST(the_folder_keeps_them)
{
    char hash[33];
    f8_cli_ok(F8_CLI("train", file, "--data", data, "--steps", "6", "--weights", weights, "--run",
                     straight));
    f8_cli_ok(F8_CLI("train", file, "--data", data, "--steps", "6", "--weights", weights, "--run",
                     folder, "--stop-at", "2"));
    json_t *run = json_of(in(folder, "run.json")),
           *is = json_array_get(json_object_get(run, "weights"), 0);
    size_t n;
    char *bytes = f8_cli_read(weights, &n);
    ck_assert_str_eq(json_string_value(json_object_get(is, "file")), weights);
    ck_assert_int_eq(json_integer_value(json_object_get(is, "bytes")), (json_int_t)n);
    ck_assert_str_eq(json_string_value(json_object_get(is, "hash")),
                     f8_hash_text(f8_hash_bytes(bytes, n), hash));
    ck_assert_int_eq(json_array_size(json_object_get(run, "weights")), 1);
    json_decref(run);
    free(bytes);
    ck_assert_int_eq(unlink(weights), 0);
    f8_cli_ok(F8_CLI("train", "--resume", folder));
    for (int64_t i = 1; i <= 6; i++)
        ck_assert(loss_of(folder, i) == loss_of(straight, i));
}
END_TEST

/* Each seed begins with them, and so does what recipe auto measures. */
START_TEST(every_seed_and_auto)
{
    const f8_cli_result r = F8_CLI("train", file, "--data", constant, "--steps", "1", "--weights",
                                   weights, "--recipe", "bf16", "--seeds", "2", "--json", "-");
    f8_cli_ok(r);
    ck_assert_ptr_nonnull(strstr(r.out, "\"event\":\"weights\""));
    json_t *first = NULL;
    char *save, *text = strdup(r.out);
    int steps = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *j = json_loads(line, 0, NULL);
        if (!strcmp(json_string_value(json_object_get(j, "event")), "step")) {
            json_t *loss = json_object_get(j, "loss_hex");
            loss = loss ? loss : json_object_get(j, "loss");
            ck_assert(!first || json_equal(first, loss));
            json_decref(first);
            first = json_incref(loss);
            steps++;
        }
        json_decref(j);
    }
    ck_assert_int_eq(steps, 2);
    json_decref(first);
    free(text);
    f8_cli_ok(F8_CLI("train", file, "--data", constant, "--steps", "1", "--weights", weights,
                     "--recipe", "auto", "--run", folder));
    f8_cli_ok(F8_CLI("train", file, "--data", constant, "--steps", "1", "--recipe", "auto", "--run",
                     straight));
    size_t a_size, b_size;
    char *a = f8_cli_read(in(folder, "decisions.jsonl"), &a_size),
         *b = f8_cli_read(in(straight, "decisions.jsonl"), &b_size);
    ck_assert_msg(a_size != b_size || memcmp(a, b, a_size), "auto measured the initial values");
    free(a);
    free(b);
}
END_TEST

static void refused(f8_cli_result r, int code, const char *what)
{
    ck_assert_msg(r.code == code && strstr(r.err, what), "exit %d: %s does not say '%s'", r.code,
                  r.err, what);
    ck_assert(access(folder, F_OK));
}

START_TEST(what_is_refused)
{
#define TRAIN(...)                                                                                 \
    F8_CLI("train", file, "--data", data, "--steps", "1", "--run", folder, __VA_ARGS__)
    f8_cli_result r = TRAIN("--weights", weights, "-D", "C=32");
    refused(r, 1, "error: the file does not hold the weights of ");
    ck_assert_ptr_nonnull(strstr(r.err, "  different   wte  F32 [128, 16], not F32 [128, 32]\n"));
    ck_assert_ptr_nonnull(strstr(r.err, "  different   up  F32 [16, 16], not F32 [32, 32]\n"));
    refused(TRAIN("--weights", weights, "--ignore", "up"), 1, "  missing     up  F32 [16, 16]");
    refused(TRAIN("--weights", weights, "--map", "up=down"), 1, "  unexpected  up  F32 [16, 16]");
    refused(TRAIN("--weights", weights, "--map", "nope=up"), 1, "nope");
    refused(TRAIN("--weights", weights, "--allow-missing", "nope"), 1, "nope");
    refused(TRAIN("--weights", "nowhere"), 1, "nowhere: error: ");
    refused(TRAIN("--weights", data), 1, "error: ");
    refused(TRAIN("--map", "up=down"), 2, "--map is of the tensors of --weights");
    refused(TRAIN("--ignore", "up"), 2, "--ignore is of the tensors of --weights");
    refused(TRAIN("--allow-missing", "up"), 2, "--allow-missing is of the tensors of --weights");
    f8_cli_ok(F8_CLI("train", file, "--data", data, "--steps", "1", "--run", straight));
    refused(F8_CLI("train", "--resume", straight, "--weights", weights), 2, "give one of the two");
#undef TRAIN
    f8_cli_ok(F8_CLI("train", file, "--data", data, "--steps", "1", "--run", folder, "--weights",
                     weights, "--ignore", "up", "--allow-missing", "up"));
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("train weights");
    TCase *t = tcase_create("train weights");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, setup, train_teardown);
    tcase_add_loop_test(t, first_loss_is_evals, 0, 6);
    tcase_add_test(t, states_begin_anew);
    tcase_add_test(t, the_folder_keeps_them);
    tcase_add_test(t, every_seed_and_auto);
    tcase_add_test(t, what_is_refused);
    suite_add_tcase(s, t);
    return s;
}
