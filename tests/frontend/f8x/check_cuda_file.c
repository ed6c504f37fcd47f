/* .f8x files for GPUs. What was compiled for an architecture, without a device, runs on a device of
 * it with the bits of a program compiled there, and is refused on another. On the emulator, or with
 * FP8C_TEST_GPU on a GPU. */
#include "frontend/fp8c_diagnose.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

static bool emulated;

/* tests/shared/api/api.h's of 16 rows, which FP8 GEMMs take without padding. */
static fp8c_module *parse_model(fp8c_context *ctx)
{
    char text[sizeof model + 16];
    const char *from = model;
    size_t n = 0;
    for (const char *at; (at = strstr(from, "i32[8]")); from = at + 6)
        n += (size_t)sprintf(text + n, "%.*si32[16]", (int)(at - from), from);
    strcpy(text + n, from);
    return parse(ctx, text);
}

static void setup(void)
{
    f8_cli_setup();
}

static const char *architecture(fp8c_context *ctx, const fp8c_module *m)
{
    static char name[32];
    fp8c_compile_options o = recipe("bf16");
    o.target = "cuda";
    o.plan_only = 1;
    fp8c_program *p = compile(ctx, m, &o);
    snprintf(name, sizeof name, "%s", fp8c_program_target(p));
    fp8c_program_destroy(p);
    return name;
}

static const char *file_for(fp8c_context *ctx, const fp8c_module *m, const char *const *target,
                            int n, const char *recipe_name)
{
    const char *path = f8_cli_temp("gpu.f8x");
    fp8c_compile_options o[4];
    for (int i = 0; i < n; i++) {
        o[i] = recipe(recipe_name);
        o[i].target = target[i];
    }
    ck_assert_msg(fp8c_compile_file(m, o, (size_t)n, path) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    return path;
}

static void same_variables(fp8c_program *a, fp8c_program *b)
{
    fp8c_variable v;
    int n = 0;
    for (; fp8c_program_variable(a, n, &v) == FP8C_OK; n++) {
        const size_t bytes = (size_t)fp8c_type_bytes(&v.type);
        char *x = malloc(bytes), *y = malloc(bytes);
        ck_assert(fp8c_program_read(a, n, x) == FP8C_OK && fp8c_program_read(b, n, y) == FP8C_OK);
        ck_assert_msg(!memcmp(x, y, bytes), "%s differs", v.name);
        free(x);
        free(y);
    }
    ck_assert_int_gt(n, 0);
}

static const char *const recipes[] = {"bf16", "delayed"};

START_TEST(same_results)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse_model(ctx);
    const char *sm = architecture(ctx, m);
    const bool cpu = f8_test_has_cpu("a file that has the CPU's code as well");
    const char *path = file_for(ctx, m, cpu ? (const char *const[]){"cpu:x86-64-v3", sm} : &sm,
                                cpu ? 2 : 1, recipes[_i]);
    fp8c_compile_options o = recipe(recipes[_i]);
    o.target = sm;
    fp8c_program *direct = compile(ctx, m, &o), *opened;
    fp8c_module_destroy(m);
    ck_assert_msg(fp8c_program_open(ctx, path, NULL, &opened) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    ck_assert_str_eq(fp8c_program_target(opened), sm); /* before the CPU */
    fp8c_program *const both[] = {direct, opened};
    float loss[2] = {0};
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(fp8c_program_initialize(both[i], 1) == FP8C_OK, "%s",
                      fp8c_context_message(ctx));
        for (int k = 0; k < 2; k++)
            loss[i] = train_step(both[i]);
    }
    ck_assert_mem_eq(&loss[0], &loss[1], sizeof loss[0]);
    same_variables(direct, opened);
    fp8c_device device = {.struct_size = sizeof device};
    ck_assert_int_eq(fp8c_program_device(opened, &device), FP8C_OK);
    fp8c_kernel x, y;
    int n = 0;
    for (; fp8c_program_kernel(direct, n, &x) == FP8C_OK; n++) {
        ck_assert_int_eq(fp8c_program_kernel(opened, n, &y), FP8C_OK);
        ck_assert(!strcmp(x.name, y.name) && !strcmp(x.symbol, y.symbol) && x.hash == y.hash &&
                  x.image == y.image && x.launches == y.launches && x.threads == y.threads &&
                  y.seconds == 0);
    }
    ck_assert_int_gt(n, 0);
    fp8c_program_destroy(direct);
    fp8c_program_destroy(opened);
    fp8c_context_destroy(ctx);
}
END_TEST

/* The CPU's code where there is no GPU for the other's. */
START_TEST(another_gpu)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse_model(ctx);
    const char *sm = architecture(ctx, m), *other = strcmp(sm, "sm_89") ? "sm_89" : "sm_90a";
    fp8c_open_options o = {.struct_size = sizeof o};
    fp8c_program *p;
    const char *path = file_for(ctx, m, (const char *const[]){other}, 1, "bf16");
    ck_assert_int_eq(fp8c_program_open(ctx, path, NULL, &p), FP8C_ERR_UNSUPPORTED);
    said(ctx, "it has code for");
    said(ctx, other);
    said(ctx, sm);
    o.target = "cuda";
    ck_assert_int_eq(fp8c_program_open(ctx, path, &o, &p), FP8C_ERR_UNSUPPORTED);
    said(ctx, other);
    said(ctx, sm);
    o.target = other;
    ck_assert_int_eq(fp8c_program_open(ctx, path, &o, &p), FP8C_ERR_UNSUPPORTED);
    said(ctx, "can't run on device 0");
    o.no_device = 1;
    ck_assert_int_eq(fp8c_program_open(ctx, path, &o, &p), FP8C_OK);
    ck_assert_str_eq(fp8c_program_target(p), other);
    fp8c_program_destroy(p);
    if (f8_test_has_cpu("a file with the CPU's code and another GPU's")) {
        path = file_for(ctx, m, (const char *const[]){other, "cpu"}, 2, "bf16");
        ck_assert_msg(fp8c_program_open(ctx, path, NULL, &p) == FP8C_OK, "%s",
                      fp8c_context_message(ctx));
        ck_assert_str_eq(fp8c_program_target(p), "cpu");
        fp8c_program_destroy(p);
    }
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(no_gpu)
{
    if (!emulated) {
        test_skip("a machine without a GPU", "this one has a GPU");
        return;
    }
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse_model(ctx);
    fp8c_program *p;
    const char *path = file_for(ctx, m, (const char *const[]){"sm_90a"}, 1, "bf16");
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    setenv("FP8C_EMULATOR_DEVICES", "0", 1);
    ctx = new_context();
    ck_assert_int_eq(fp8c_program_open(ctx, path, NULL, &p), FP8C_ERR_UNSUPPORTED);
    said(ctx, "it has code only for sm_90a: ");
    unsetenv("FP8C_EMULATOR_DEVICES");
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(same_bytes)
{
    size_t n, k;
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse_model(ctx);
    static const char *const targets[] = {"sm_90a", "sm_100a"};
    char *first = f8_cli_read(file_for(ctx, m, targets, 2, "delayed"), &n);
    char *second = f8_cli_read(file_for(ctx, m, targets, 2, "delayed"), &k);
    ck_assert(n == k && !memcmp(first, second, n));
    free(first);
    free(second);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    emulated = f8_test_gpu_emulated();
    Suite *s = suite_create("cuda file");
    TCase *t = tcase_create("cuda file");
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, same_results, 0, sizeof recipes / sizeof *recipes);
    tcase_add_test(t, another_gpu);
    tcase_add_test(t, no_gpu);
    tcase_add_test(t, same_bytes);
    suite_add_tcase(s, t);
    return s;
}
