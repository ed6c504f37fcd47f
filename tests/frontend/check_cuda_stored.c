/* A frozen base stored as FP8 codes, on GPUs: the bits of a training that quantizes the base in
 * each step, and the losses of the interpreter. On the emulator, as each device whose recipes
 * differ, or with FP8C_TEST_GPU on this machine's GPU. */
#include <math.h>
#include <stdlib.h>

#include "tests/shared/api/lora_case.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

static bool emulated;

static const struct {
    const char *sm, *recipe, *stored;
    bool as_values; /* the program without `stored` has the same bits */
} cases[] = {
    {"90", "delayed", "delayed", true}, {"90", "current", "current", true},
    {"90", "block", "block", true},     {"90", "rowwise", "rowwise", false},
    {"120", "mxfp8", "mxfp8", false},   {"120", "delayed", "delayed", true},
    {"90", "bf16", "block", false},
};
enum { N_CASES = sizeof cases / sizeof *cases };

START_TEST(trains)
{
    if (emulated)
        setenv("FP8C_EMULATOR_SM", cases[_i].sm, 1);
    else if (strcmp(cases[_i].sm, "90"))
        return;
    const char *under = cases[_i].recipe, *stored = cases[_i].stored;
    fp8c_context *ctx = new_context();
    fp8c_compile_options o = {.recipe = under, .stored = stored, .target = "cuda"}, other = o;
    if (cases[_i].as_values)
        other.stored = NULL;
    else
        other.no_fuse = 1;
    fp8c_program *p[2] = {lora_open(ctx, other), lora_open(ctx, o)};
    o.target = "reference";
    fp8c_program *reference = lora_open(ctx, o);
    for (int u = 0; u < LORA_UPDATES; u++) {
        const float want = lora_run(reference, "micro_step", u),
                    loss = lora_run(p[1], "micro_step", u);
        lora_update(reference);
        lora_update(p[1]);
        ck_assert_msg(fabsf(want - loss) <= 2e-3f * want, "%s: a loss of %.9g, and of %.9g", under,
                      (double)loss, (double)want);
    }
    ck_assert_int_eq(fp8c_program_initialize(p[1], 5), FP8C_OK);
    lora_train_both(p, under);
    fp8c_program_destroy(reference);
    fp8c_program_destroy(p[0]);
    fp8c_program_destroy(p[1]);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_stored");
    TCase *t = tcase_create("cuda_stored");
    emulated = f8_test_gpu_emulated();
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, trains, 0, N_CASES);
    suite_add_tcase(s, t);
    return s;
}
