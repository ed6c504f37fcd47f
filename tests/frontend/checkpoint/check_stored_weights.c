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

/* ---- scales in bf16, as others write them ---- */

static bool is_scale(const f8_st_tensor *t)
{
    return strstr(t->name, "_scale_inv") != NULL;
}

typedef struct rewriting {
    f8_st_file from;
    bool bf16; /* the scales, which are powers of two */
} rewriting;

/* The bytes of a tensor. Codes are halved, so that to quantize their values would give others. */
static f8_status fill(void *user, size_t index, void *to, f8_diag *diag)
{
    const rewriting *w = user;
    const f8_st_tensor *t = &w->from.tensor[index];
    uint16_t wide[64];
    if (is_scale(t) && w->bf16) {
        ck_assert_uint_le(t->bytes, sizeof wide);
        const f8_status status = f8_st_read(&w->from, t, wide, diag);
        for (uint64_t i = 0; i < t->bytes / 4; i++)
            memcpy((uint16_t *)to + i, &wide[2 * i + 1], 2);
        return status;
    }
    const f8_status status = f8_st_read(&w->from, t, to, diag);
    for (uint64_t i = 0; t->dtype == F8_ST_F8_E4M3 && i < t->bytes; i++)
        ((uint8_t *)to)[i] -= (((uint8_t *)to)[i] & 0x78) > 8 ? 8 : 0;
    return status;
}

static void rewrite(const char *from, const char *to, bool bf16)
{
    rewriting w = {.bf16 = bf16};
    f8_st_tensor tensor[16];
    f8_diag diag = {0};
    ck_assert_msg(f8_st_open(&w.from, from, NULL, &diag) == F8_OK, "%s", diag.text);
    ck_assert_uint_le(w.from.n, 16);
    for (size_t i = 0; i < w.from.n; i++) {
        tensor[i] = w.from.tensor[i];
        tensor[i].dtype = bf16 && is_scale(&tensor[i]) ? F8_ST_BF16 : tensor[i].dtype;
    }
    const f8_st_contents contents = {.tensor = tensor, .n = w.from.n, .fill = fill, .user = &w};
    ck_assert_msg(f8_st_write(to, &contents, NULL, &diag) == F8_OK, "%s", diag.text);
    f8_st_close(&w.from);
}

/* Scales that widen to the program's are taken with their codes, and nothing is quantized anew. */
START_TEST(bf16_scales)
{
    static const char under[] = "block {pow2 = true}";
    fp8c_context *ctx = new_context();
    fp8c_program *p[2];
    char codes[4096], path[4096];
    snprintf(codes, sizeof codes, "%s", f8_cli_temp("codes"));
    write_file(ctx, codes, under);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s", f8_cli_temp(i ? "bf16" : "f32"));
        rewrite(codes, path, i);
        p[i] = load(ctx, under, under, path);
    }
    same_stored(p[0], p[1], "scales in bf16");
    fp8c_program_destroy(p[0]);
    fp8c_program_destroy(p[1]);
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
    tcase_add_test(t, bf16_scales);
    tcase_add_loop_test(t, goes_on, 0, N_RECIPES);
    tcase_add_test(t, compiled_file);
    suite_add_tcase(s, t);
    return s;
}
