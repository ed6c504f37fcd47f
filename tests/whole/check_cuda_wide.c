/* Kernels with many parameters. A kernel that reads more values than a launch has room for is
 * split, and the parts give the interpreter's bits. The test runs in the emulator only, because
 * NVRTC takes about a minute for each of these kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/program.h"
#include "tests/shared/api/api.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

enum { ROWS_OF_X = 6, COLUMNS = 8, MOST = 500 };

static float values[MOST][ROWS_OF_X * COLUMNS];
static fp8c_tensor_view view[MOST], *in[MOST];
static int64_t shape[] = {ROWS_OF_X, COLUMNS};

/* The sum of n inputs, each times the sums of its rows. */
static char *text_of(int n)
{
    char *text = malloc(256 + (size_t)n * 128), *at = stpcpy(text, "module wide\nfunc forward(");
    for (int i = 0; i < n; i++)
        at += sprintf(at, "%s%%x%d: f32[%d, %d]", i ? ", " : "", i, ROWS_OF_X, COLUMNS);
    at += sprintf(at, ") -> f32[%d, %d] {\n  %%v0 = mul(%%x0, reduce_sum(%%x0) {axis = -1})\n",
                  ROWS_OF_X, COLUMNS);
    for (int i = 1; i < n; i++)
        at += sprintf(at, "  %%v%d = add(%%v%d, mul(%%x%d, reduce_sum(%%x%d) {axis = -1}))\n", i,
                      i - 1, i, i);
    sprintf(at, "  return %%v%d\n}\n", n - 1);
    return text;
}

static bool emulated;

static void prepare(void)
{
    emulated = f8_test_gpu_emulated();
    for (int i = 0; i < MOST; i++) {
        for (int k = 0; k < ROWS_OF_X * COLUMNS; k++)
            values[i][k] = (float)((i * 31 + k * 7) % 23 - 11) / 8;
        in[i] = &view[i];
        view[i] = (fp8c_tensor_view){.data = values[i],
                                     .device = {.type = 1},
                                     .ndim = 2,
                                     .dtype = {.code = 2, .bits = 32, .lanes = 1},
                                     .shape = shape};
    }
}

/* The most 64-bit words that a launch of one instance takes. */
static uint32_t widest(const fp8c_program *p)
{
    uint32_t most = 0;
    const f8_plan *plan = &p->now->plan;
    for (uint32_t f = 0; f < plan->n_funcs; f++)
        for (uint32_t i = 0; i < plan->func[f].n_steps; i++)
            for (uint32_t k = 0; k < plan->func[f].step[i].n_phases; k++) {
                const f8_launch *l = &plan->func[f].step[i].phase[k].launch;
                most = l->n_args + l->n_ints > most ? l->n_args + l->n_ints : most;
            }
    return most;
}

static uint32_t run(const char *target, const char *text, int n, float *out)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, text);
    fp8c_compile_options o = recipe("f32");
    o.target = target;
    o.inference = 1;
    fp8c_program *p = compile(ctx, m, &o);
    const uint32_t most = strcmp(target, "reference") ? widest(p) : 0;
    fp8c_tensor_view to = view[0], *result = &to;
    to.data = out;
    ck_assert_msg(fp8c_program_call(p, fp8c_program_function(p, "eval"),
                                    (const fp8c_tensor_view *const *)in, (size_t)n,
                                    (const fp8c_tensor_view *const *)&result, 1) == FP8C_OK,
                  "%s", fp8c_context_message(ctx));
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    return most;
}

/* With the result these take 446 words, 448 words, and several launches. */
static const int inputs[] = {222, 223, MOST};

START_TEST(of_many_inputs)
{
    if (!emulated) {
        test_skip("kernels of 222 inputs", "NVRTC takes about a minute for each");
        return;
    }
    float got[ROWS_OF_X * COLUMNS], want[ROWS_OF_X * COLUMNS];
    char *text = text_of(inputs[_i]);
    const uint32_t words = run("cuda", text, inputs[_i], got);
    run("reference", text, inputs[_i], want);
    ck_assert(!memcmp(got, want, sizeof got));
    ck_assert_uint_lt(words, F8_MULTI_WORDS);
    ck_assert_msg(words > 400, "the largest launch has %u words", words); /* and is no smaller */
    free(text);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_wide");
    TCase *t = tcase_create("cuda_wide");
    tcase_set_timeout(t, 300);
    tcase_add_unchecked_fixture(t, prepare, NULL);
    tcase_add_loop_test(t, of_many_inputs, 0, sizeof inputs / sizeof *inputs);
    suite_add_tcase(s, t);
    return s;
}
