/* Recomputation changes no bit on CUDA targets. Models are trained at budgets down to the least
 * possible and compared with themselves without a budget (shared/remat/remat_case.h). The emulator
 * runs as Hopper and as Blackwell. With FP8C_TEST_GPU this machine's GPU runs the recipes that it
 * has, with larger models and more steps. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/shared/cuda/cuda_device.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/remat/remat_case.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 900 };

static const char *const emulated_sm[] = {"90", "100"};
static bool emulated;

/* On these targets an FP8 GEMM needs a weight whose sizes are multiples of 16. The rows of the
 * second model's activations are no multiple, so they are padded. */
static const struct {
    const char *file, *small, *large;
} models[] = {
    {"frontend/models/gpt.f8", "B=1 T=32 C=64 H=2 L=2 V=64", "B=4 T=256 C=256 H=4 L=4 V=256"},
    {"frontend/models/llama_block.f8", "B=1 T=31 C=32 F=80 H=2 KV=1 L=2 V=64",
     "B=4 T=256 C=256 F=688 H=4 KV=2 L=4 V=256"},
};

/* In the emulator, where a compiler is busy for seconds with each program, those with a device: 1
 * is Hopper. */
static const struct {
    const char *recipe;
    int model, emulated;
} cases[] = {
    {"delayed", 0, 1}, {"delayed", 1, 2}, {"block", 0, 1}, {"rowwise", 1, 1},       {"mxfp8", 1, 2},
    {"current", 0, 2}, {"bf16", 1, 1},    {"f32", 0, 0},   {"rowwise_gw_hp", 1, 0}, {"fake", 0, 0},
};
enum { CASES = sizeof cases / sizeof *cases };

static bool has(const f8_target *t, const char *recipe)
{
    f8_diag diag = {0};
    f8_recipe r;
    ck_assert_int_eq(f8_recipe_parse(recipe, F8_NOWHERE, &r, &diag), F8_OK);
    switch (r.scaling) {
    case F8_SCALING_ROWWISE: return t->fp8_rows;
    case F8_SCALING_BLOCK: return t->fp8_blocks;
    case F8_SCALING_MX: return t->fp8_mx;
    default: return true;
    }
}

static void train(const remat_model *model, bool whole)
{
    static const remat_way ways[] = {
        {.name = "the least", .least = true},
        {.name = "a share of 0.5", .share = 0.5},
        {.name = "a checkpoint at each layer", .checkpoint = "x.*", .follows = true},
    };
    const int steps = emulated ? 3 : 50, n = !emulated ? 3 : whole ? 2 : 1;
    remat_case c;
    remat_open(&c, model);
    for (int i = 0; i < n; i++) {
        remat_way way = ways[i];
        way.follows |= !whole;
        remat_add(&c, &way);
    }
    for (int i = 0; i < steps; i++)
        ck_assert_msg(remat_micro_steps(&c, 1 + i % 2) && remat_update(&c), "%s", c.difference);
    remat_check(&c);
    remat_close(&c);
}

START_TEST(budgets)
{
    cuda_device d;
    if (emulated && !cases[_i].emulated) {
        test_skip(cases[_i].recipe, "it takes a GPU: too long in the emulator");
        return;
    }
    if (emulated)
        setenv("FP8C_EMULATOR_SM", emulated_sm[cases[_i].emulated - 1], 1);
    cuda_device_open(&d);
    const remat_model model = {.file = models[cases[_i].model].file,
                               .dims = emulated ? models[cases[_i].model].small
                                                : models[cases[_i].model].large,
                               .recipe = cases[_i].recipe,
                               .cuda = d.cuda,
                               .target = d.target};
    ck_assert_msg(!emulated || has(d.target, model.recipe), "%s has no %s", d.target->name,
                  model.recipe);
    if (!has(d.target, model.recipe))
        test_skip(model.recipe, "%s lacks it", d.target->name);
    else
        train(&model, !emulated || _i == 0);
    cuda_device_close(&d);
}
END_TEST

Suite *f8_suite(void)
{
    emulated = f8_test_gpu_emulated();
    Suite *s = suite_create("cuda remat");
    TCase *t = tcase_create("budgets");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, budgets, 0, CASES);
    suite_add_tcase(s, t);
    return s;
}
