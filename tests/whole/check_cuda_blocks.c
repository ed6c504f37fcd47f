/* As check_blocks.c, on CUDA: four blocks as four programs equal the four as one program's pair.
 * The emulator runs two steps under `delayed`; with FP8C_TEST_GPU this machine's GPU runs 20 steps
 * of every recipe that it has. */
#include "tests/shared/api/blocks_case.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

static bool emulated;
static blocks one, four;

/* Whether the device's FP8 GEMMs have the recipe's scales. The rules in place of `auto` name scales
 * that no device has all of. */
static bool has(fp8c_context *ctx, const char *name)
{
    static char text[16384];
    fp8c_program *p;
    fp8c_compile_options o = recipe(name);
    o.target = "cuda";
    o.pair = o.plan_only = 1;
    blocks_text(text, sizeof text, name, 0, 1, CUT_NONE, "");
    fp8c_module *m = parse(ctx, text);
    const fp8c_status status = fp8c_compile(m, &o, &p);
    fp8c_module_destroy(m);
    fp8c_program_destroy(p);
    ck_assert_msg(status == FP8C_OK || status == FP8C_ERR_UNSUPPORTED, "%s",
                  fp8c_context_message(ctx));
    return status == FP8C_OK && strcmp(name, "auto");
}

START_TEST(four_programs_equal_one)
{
    const char *name = emulated ? "delayed" : fp8c_name(FP8C_NAME_RECIPE, _i);
    fp8c_context *ctx = new_context();
    if (!has(ctx, name)) {
        fp8c_context_destroy(ctx);
        return;
    }
    blocks_how how = {.target = "cuda", .recipe = name, .cut = CUT_PROBED};
    blocks_begin(&one, ctx, &how);
    how.four = true;
    blocks_begin(&four, ctx, &how);
    for (int i = 0; i < (emulated ? 2 : 20); i++) {
        blocks_step(&one);
        blocks_step(&four);
        const char *what = blocks_differ(&one, &four);
        ck_assert_msg(!what, "%s: step %d: %s differs", name, i, what);
    }
    blocks_end(&one);
    blocks_end(&four);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    emulated = f8_test_gpu_emulated();
    int n = 0;
    while (!emulated && fp8c_name(FP8C_NAME_RECIPE, n))
        n++;
    Suite *s = suite_create("cuda_blocks");
    TCase *t = tcase_create("cuda_blocks");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, four_programs_equal_one, 0, emulated ? 1 : n);
    suite_add_tcase(s, t);
    return s;
}
