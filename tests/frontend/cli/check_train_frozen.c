/* `fp8c train --frozen PATTERN --stored RECIPE`: what a run keeps, goes on with, saves and refuses;
 * the same by fp8c_train.h; `eval`, `explain` and `plan` of such models. */
#include <jansson.h>

#include "frontend/checkpoint/safetensors.h"
#include "frontend/fp8c_train.h"
#include "tests/shared/api/train_case.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 300 };

static const char lora[] =
    "module lora\n"
    "dim B = 2, T = 16, C = 48, F = 80, R = 16, V = 128\n"
    "param wte: f32[V, C] normal(0.3)\n"
    "param base.up: f32[C, F] normal(0.1)\n"
    "param base.down: f32[C, F] normal(0.1)\n"
    "param lora.a: f32[C, R] normal(0.1)\n"
    "param lora.b: f32[R, F] zeros\n"
    "func forward(%tokens: i32[B, T], %targets: i32[B, T]) -> (%loss: f32[]) {\n"
    "  %x = embedding(wte, %tokens)\n"
    "  %h = gelu(add(linear(%x, base.up), linear(linear(%x, lora.a), lora.b)))\n"
    "  %y = add(%x, linear(%h, base.down) {transpose_b = true})\n"
    "  return cross_entropy(linear(%y, wte) {transpose_b = true, name = \"head\"}, %targets)\n"
    "}\n"
    "optimizer adamw {lr = 1e-2, weight_decay = 0.1, clip = 1}\n"
    "recipe \"lora.*\" = bf16\n"
    "recipe \"head\" = bf16\n";

#define FROZEN "--frozen", "wte", "--frozen", "base.*"
#define TRAIN "train", file, "--data", data, FROZEN, "--steps", "6"

static void setup(void)
{
    train_setup("lr = 1e-2");
    snprintf(file, sizeof file, "%s", f8_cli_write("lora.f8", lora, sizeof lora - 1));
}

/* The bytes of a tensor of a safetensors file, which the caller frees. */
static void *tensor(const char *path, const char *name, size_t *n)
{
    f8_st_file f = {0};
    f8_diag diag = {0};
    ck_assert_msg(f8_st_open(&f, path, NULL, &diag) == F8_OK, "%s", diag.text);
    const f8_st_tensor *t = f8_st_find(&f, name);
    ck_assert_msg(t != NULL, "%s has no %s", path, name);
    *n = (size_t)t->bytes;
    void *bytes = malloc(*n + 1);
    ck_assert_int_eq(f8_st_read(&f, t, bytes, &diag), F8_OK);
    f8_st_close(&f);
    return bytes;
}

static bool same_tensor(const char *a, const char *b, const char *name)
{
    size_t n[2];
    void *x = tensor(a, name, &n[0]), *y = tensor(b, name, &n[1]);
    const bool same = n[0] == n[1] && !memcmp(x, y, n[0]);
    free(x);
    free(y);
    return same;
}

static bool same_files(const char *a, const char *b)
{
    size_t n[2];
    char *x = f8_cli_read(a, &n[0]), *y = f8_cli_read(b, &n[1]);
    const bool same = n[0] == n[1] && !memcmp(x, y, n[0]);
    free(x);
    free(y);
    return same;
}

/* A run that stops and goes on has the bits of one that does not; what is frozen has its first. */
START_TEST(goes_on)
{
    const char *stored = _i ? "delayed" : NULL;
    char state[2][PATH], saved[2][PATH];
    for (int i = 0; i < 2; i++) {
        snprintf(state[i], sizeof state[i], "%s", f8_cli_temp(i ? "state1" : "state0"));
        snprintf(saved[i], sizeof saved[i], "%s", f8_cli_temp(i ? "saved1" : "saved0"));
    }
    f8_cli_ok(F8_CLI(TRAIN, "--recipe", "delayed", "--save-state", state[0], "--save", saved[0],
                     stored ? "--stored" : NULL, stored));
    f8_cli_ok(F8_CLI(TRAIN, "--recipe", "delayed", "--run", folder, "--stop-at", "2",
                     "--fingerprint-every", "1", stored ? "--stored" : NULL, stored));
    f8_cli_fails(F8_CLI("train", "--resume", folder, "--frozen", "wte"), 1, "--frozen");
    f8_cli_fails(F8_CLI("train", "--resume", folder, "--stored", "block"), 1, "--stored");
    f8_cli_ok(F8_CLI("train", "--resume", folder, "--save-state", state[1]));
    ck_assert(same_files(state[0], state[1]));
    f8_cli_ok(F8_CLI("train", file, "--data", data, FROZEN, "--recipe", "delayed", "--steps", "1",
                     "--save", saved[1], stored ? "--stored" : NULL, stored));
    ck_assert(same_tensor(saved[0], saved[1], "base.up"));
    ck_assert(same_tensor(saved[0], saved[1], "wte"));
    ck_assert(!same_tensor(saved[0], saved[1], "lora.a"));
}
END_TEST

static double number_of(const char *path, const char *event, const char *name)
{
    FILE *from = fopen(path, "r");
    double found = -1;
    json_t *r;
    ck_assert_ptr_nonnull(from);
    while ((r = json_loadf(from, JSON_DISABLE_EOF_CHECK, NULL))) {
        if (!strcmp(json_string_value(json_object_get(r, "event")), event))
            found = json_number_value(json_object_get(r, name));
        json_decref(r);
    }
    fclose(from);
    return found;
}

/* `eval` takes the codes of a checkpoint as they are. A training begins with them, too. */
START_TEST(saved)
{
    char saved[PATH], records[PATH];
    snprintf(saved, sizeof saved, "%s", f8_cli_temp("saved"));
    snprintf(records, sizeof records, "%s", f8_cli_temp("records"));
    f8_cli_ok(F8_CLI(TRAIN, "--recipe", "block", "--stored", "block", "--save", saved, "--json",
                     records));
    const double loss = number_of(records, "summary", "heldout_loss");
    f8_cli_result r = F8_CLI("eval", file, "--data", data, "--recipe", "block", "--weights", saved,
                             "--json", records);
    f8_cli_ok(r);
    ck_assert_ptr_nonnull(strstr(r.out, "2 weights stored in FP8 under block"));
    ck_assert_double_eq(number_of(records, "eval", "heldout_loss"), loss);
    f8_cli_ok(F8_CLI(TRAIN, "--recipe", "block", "--stored", "block", "--weights", saved, "--save",
                     f8_cli_temp("again")));
    ck_assert(same_tensor(saved, f8_cli_temp("again"), "base.down"));
    ck_assert(same_tensor(saved, f8_cli_temp("again"), "base.down_scale_inv"));
    f8_cli_fails(F8_CLI("train", file, "--data", data, FROZEN, "--recipe", "block", "--weights",
                        saved, "--stored", "rowwise", "--allow-missing", "nothing.*"),
                 1, "nothing.*");
}
END_TEST

START_TEST(shown)
{
    f8_cli_result r = F8_CLI("explain", file, FROZEN, "--recipe", "rowwise", "--stored", "rowwise");
    f8_cli_ok(r);
    ck_assert_ptr_nonnull(strstr(r.out, "dgrad multiplies its dequantized values"));
    ck_assert_ptr_null(strstr(r.out, "base.up    wgrad"));
    f8_cli_ok(F8_CLI("plan", file, FROZEN, "--recipe", "delayed", "--stored", "delayed"));
    f8_cli_ok(F8_CLI("compile", file, FROZEN, "--recipe", "rowwise", "--stored", "rowwise",
                     "--target", "sm_90a", "--emit", "cuda", "-o", f8_cli_temp("text")));
    f8_cli_ok(F8_CLI("compile", file, FROZEN, "--recipe", "mxfp8", "--stored", "mxfp8", "--target",
                     "sm_120a", "--emit", "cuda", "-o", f8_cli_temp("text")));
}
END_TEST

START_TEST(refused)
{
    f8_cli_fails(F8_CLI("train", file, "--data", data, "--frozen", "base.*,bass"), 1,
                 "frozen: no parameter matches 'bass'");
    f8_cli_fails(F8_CLI("train", file, "--data", data, "--frozen", "*"), 1, "freezes all of them");
    f8_cli_fails(F8_CLI("train", file, "--data", data, "--recipe", "block", "--stored", "block"), 1,
                 "stored needs `inference` or `frozen`");
    f8_cli_fails(F8_CLI("train", file, "--data", data, "--recipe", "block", "--stored", "block",
                        "--frozen", "wte"),
                 1, "'base.up' is trained");
    f8_cli_fails(F8_CLI("train", file, "--data", data, "--frozen", ""), 2,
                 "bad value for --frozen");
}
END_TEST

/* A training by fp8c_train.h has the file of the command. */
START_TEST(library)
{
    const fp8c_compile_options compile = {.struct_size = sizeof compile,
                                          .recipe = "block",
                                          .frozen = "wte,base.*",
                                          .stored = "block"};
    const char *files[] = {data};
    char path[2][PATH];
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_training *training;
    fp8c_training_step step = {.struct_size = sizeof step};
    snprintf(path[0], sizeof path[0], "%s", f8_cli_temp("command"));
    snprintf(path[1], sizeof path[1], "%s", f8_cli_temp("library"));
    f8_cli_ok(
        F8_CLI(TRAIN, "--recipe", "block", "--stored", "block", "--seed", "3", "--save", path[0]));
    ck_assert_int_eq(fp8c_context_create(NULL, &ctx), FP8C_OK);
    ck_assert_int_eq(fp8c_module_parse(ctx, lora, sizeof lora - 1, "lora.f8", NULL, 0, &module),
                     FP8C_OK);
    const fp8c_training_options o = {.struct_size = sizeof o,
                                     .compile = &compile,
                                     .data = files,
                                     .n_data = 1,
                                     .steps = 6,
                                     .seed = 3};
    ck_assert_msg(fp8c_training_create(ctx, module, &o, &training) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(fp8c_training_run(training, &step), FP8C_OK);
    ck_assert_int_eq(fp8c_program_save(fp8c_training_program(training), path[1], NULL), FP8C_OK);
    ck_assert(same_tensor(path[0], path[1], "lora.b"));
    ck_assert(same_tensor(path[0], path[1], "base.up"));
    fp8c_training_destroy(training);
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("train_frozen");
    TCase *t = tcase_create("train_frozen");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, train_teardown);
    tcase_add_loop_test(t, goes_on, 0, 2);
    tcase_add_test(t, saved);
    tcase_add_test(t, shown);
    tcase_add_test(t, refused);
    tcase_add_test(t, library);
    suite_add_tcase(s, t);
    return s;
}
