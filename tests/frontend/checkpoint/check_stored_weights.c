/* Weights of files for a base that is stored as FP8 codes in a program that trains: values are
 * quantized; codes are taken bit for bit where their scales are of the recipe's kind, and else
 * count for their values. Checkpoints of such a program say how they store what. */
#include "frontend/checkpoint/safetensors.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/api/lora_case.h"
#include "tests/shared/suite.h"

static const char *const recipes[] = {"current", "delayed", "block", "rowwise", "mxfp8"};
enum { N_RECIPES = sizeof recipes / sizeof *recipes, ALIKE = 3 };

static void must(fp8c_program *p, fp8c_context *ctx, fp8c_status status)
{
    ck_assert_msg(status == FP8C_OK, "%s", fp8c_context_message(ctx));
    ck_assert_ptr_nonnull(p);
}

/* Writes a file with the weights of seed 7: as values, or as codes of a recipe with scales. */
static void write_file(fp8c_context *ctx, const char *path, const char *stored)
{
    fp8c_module *m = parse(ctx, lora_text);
    fp8c_compile_options o = recipe("f32");
    o.inference = 1;
    fp8c_program *p = compile(ctx, m, &o);
    must(p, ctx, fp8c_program_initialize(p, 7));
    if (stored) {
        fp8c_stored s;
        fp8c_variable v;
        o.stored = stored;
        fp8c_program *codes = compile(ctx, m, &o);
        must(codes, ctx, fp8c_program_initialize(codes, 7));
        for (int i = 0; fp8c_program_stored(codes, i, &s) == FP8C_OK; i++) {
            size_t n = 0;
            fp8c_program_variable(codes, s.variable, &v);
            float *value = lora_read(p, v.name, &n);
            must(codes, ctx, fp8c_program_quantize(codes, s.variable, value, NULL));
            free(value);
        }
        fp8c_program_destroy(p);
        p = codes;
    }
    must(p, ctx, fp8c_program_save(p, path, NULL));
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
}

/* The base of a file; adapters keep what they begin with. */
static fp8c_program *load(fp8c_context *ctx, const char *under, const char *stored,
                          const char *path)
{
    static const char *const adapters[] = {"lora.*"};
    const fp8c_load_options o = {.struct_size = sizeof o,
                                 .files = &path,
                                 .n_files = 1,
                                 .ignore = adapters,
                                 .n_ignore = 1,
                                 .allow_missing = adapters,
                                 .n_allow_missing = 1};
    fp8c_program *p = lora_open(ctx, (fp8c_compile_options){.recipe = under, .stored = stored});
    must(p, ctx, fp8c_program_load_weights(p, &o));
    return p;
}

static void same_stored(fp8c_program *a, fp8c_program *b, const char *what)
{
    fp8c_stored s;
    fp8c_variable v;
    int n = 0;
    for (; fp8c_program_stored(a, n, &s) == FP8C_OK; n++)
        for (int k = 0; k < 2; k++) {
            fp8c_program_variable(a, k ? s.scale_variable : s.variable, &v);
            ck_assert_msg(lora_same(a, b, v.name), "%s: %s", what, v.name);
        }
    ck_assert_int_eq(n, 2);
}

/* From values and from codes of the same recipe: the same codes, those of an export. Where fprop
 * and dgrad scale the weight alike, the training is that of a program that keeps the values. */
START_TEST(values_and_codes)
{
    const char *under = recipes[_i];
    fp8c_context *ctx = new_context();
    char values[4096], codes[4096];
    snprintf(values, sizeof values, "%s", f8_cli_temp("values"));
    snprintf(codes, sizeof codes, "%s", f8_cli_temp("codes"));
    write_file(ctx, values, NULL);
    write_file(ctx, codes, under);
    fp8c_program *p[2] = {load(ctx, under, under, values), load(ctx, under, under, codes)};
    same_stored(p[0], p[1], under);
    lora_train_both(p, under);
    fp8c_program_destroy(p[0]);
    p[0] = load(ctx, under, NULL, values);
    if (_i < ALIKE) {
        fp8c_program *q[2] = {p[0], load(ctx, under, under, values)};
        lora_train_both(q, under);
        fp8c_program_destroy(q[1]);
    }
    fp8c_program_destroy(p[0]);
    fp8c_program_destroy(p[1]);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Codes with other scales are those of their values: what a program that keeps values makes of the
 * file. */
START_TEST(other_scales)
{
    const char *under = recipes[_i];
    fp8c_context *ctx = new_context();
    for (int i = 0; i < N_RECIPES; i++) {
        char path[4096], what[64];
        if (i == _i || (_i < 2 && i < 2)) /* a tensor's scale is a tensor's */
            continue;
        snprintf(path, sizeof path, "%s", f8_cli_temp("codes"));
        snprintf(what, sizeof what, "%s from %s", under, recipes[i]);
        write_file(ctx, path, recipes[i]);
        fp8c_program *p[2] = {load(ctx, under, NULL, path), load(ctx, under, under, path)};
        lora_train_both(p, what);
        fp8c_program_destroy(p[0]);
        fp8c_program_destroy(p[1]);
        remove(path);
    }
    fp8c_context_destroy(ctx);
}
END_TEST

/* A checkpoint of the program itself, in the middle of a training. */
START_TEST(goes_on)
{
    const char *under = recipes[_i];
    fp8c_context *ctx = new_context();
    const fp8c_compile_options o = {.recipe = under, .stored = under};
    char path[4096];
    snprintf(path, sizeof path, "%s", f8_cli_temp("checkpoint"));
    fp8c_program *p[2] = {lora_open(ctx, o), lora_open(ctx, o)};
    for (int u = 0; u < 2; u++) {
        lora_run(p[0], "micro_step", u);
        lora_update(p[0]);
    }
    must(p[0], ctx, fp8c_program_save(p[0], path, NULL));
    must(p[1], ctx, fp8c_program_initialize(p[1], 77));
    must(p[1], ctx, fp8c_program_load(p[1], path, 0, NULL));
    same_stored(p[0], p[1], under);
    lora_train_both(p, under);
    fp8c_program_destroy(p[0]);
    fp8c_program_destroy(p[1]);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A file that is compiled ahead of time stores them, too, and begins with the same values. */
START_TEST(compiled_file)
{
    const char *path = f8_cli_temp("lora.f8x");
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, lora_text);
    fp8c_compile_options o = recipe("block");
    o.stored = "block";
    o.frozen = LORA_BASE;
    const fp8c_open_options how = {.struct_size = sizeof how, .threads = 1};
    fp8c_program *p[2] = {lora_open(ctx, o), NULL};
    must(p[0], ctx, fp8c_compile_file(m, &o, 1, path));
    must(p[0], ctx, fp8c_program_open(ctx, path, &how, &p[1]));
    must(p[1], ctx, fp8c_program_initialize(p[1], 5));
    same_stored(p[0], p[1], "an opened file");
    lora_train_both(p, "an opened file");
    fp8c_program_destroy(p[0]);
    fp8c_program_destroy(p[1]);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("stored_weights");
    TCase *t = tcase_create("stored_weights");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_loop_test(t, values_and_codes, 0, N_RECIPES);
    tcase_add_loop_test(t, other_scales, 0, ALIKE);
    tcase_add_loop_test(t, goes_on, 0, N_RECIPES);
    tcase_add_test(t, compiled_file);
    suite_add_tcase(s, t);
    return s;
}
