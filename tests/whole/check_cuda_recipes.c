/* Scales and codes of every recipe on CUDA targets, bit for bit as check_recipe_bits.c tests them
 * elsewhere; no Inf or NaN is hidden. The emulator runs as each device whose recipes differ; with
 * FP8C_TEST_GPU this machine's GPU runs the recipes that it has. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/shared/cuda/cuda_device.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/recipe/recipe_check.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 600 };

/* Hopper has scales of rows and of blocks. Blackwell has MX scales: compute capability 10.0 for
 * operands of any layout, 12.0 only for operands with k contiguous, so scales are transposed too.
 */
static const char *const emulated_sm[] = {"90", "100", "120"};
static int devices = 1;
static bool emulated;

/* Sizes that are multiples of neither 128 nor 32; and small ones, for tests that compare the
 * results of products. */
static const recipe_sizes ragged = {2, 72, 144, 176}, small = {1, 48, 144, 16};

/* Those of `from` that the device has. */
static int choose(const recipe_spec *from, int n, recipe_spec *to)
{
    cuda_device d;
    cuda_device_open(&d);
    const bool has[] = {[RECIPE_TENSOR] = true,
                        [RECIPE_ROWS] = d.target->fp8_rows,
                        [RECIPE_BLOCKS] = d.target->fp8_blocks,
                        [RECIPE_MX] = d.target->fp8_mx};
    cuda_device_close(&d);
    int chosen = 0;
    for (int i = 0; i < n; i++)
        if (has[from[i].grain])
            to[chosen++] = from[i];
    return chosen;
}

static void become(int device)
{
    if (emulated)
        setenv("FP8C_EMULATOR_SM", emulated_sm[device], 1);
}

START_TEST(scales_and_codes)
{
    recipe_spec spec[RECIPE_SPECS];
    become(_i);
    const int n = choose(recipe_specs, RECIPE_SPECS - RECIPE_FAKES, spec);
    ck_assert_int_ge(n, 3);
    recipe_check_bits(spec, n, &ragged, 1, "cuda");
}
END_TEST

/* Amaxes, scales and codes see none of the zeros behind the rows. */
START_TEST(any_rows)
{
    static const recipe_sizes rows[] = {
        {1, 1, 144, 48}, {1, 7, 48, 144}, {3, 11, 144, 16}, {2, 65, 48, 32}};
    recipe_spec spec[RECIPE_SPECS];
    become(_i);
    const int n = choose(recipe_specs, RECIPE_SPECS - RECIPE_FAKES, spec);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        recipe_check_bits(spec, n, &rows[i], 4, "cuda");
}
END_TEST

START_TEST(delayed_over_steps)
{
    become(_i);
    recipe_check_delayed(recipe_delayed, RECIPE_DELAYED, &ragged, "cuda");
}
END_TEST

/* What the devices before did not have. */
START_TEST(nothing_is_laundered)
{
    static const recipe_spec plain[] = {
        {.text = "delayed"},
        {.text = "current"},
        {.text = "fake"},
        {.text = "rowwise", .grain = RECIPE_ROWS},
        {.text = "rowwise_gw_hp", .grain = RECIPE_ROWS},
        {.text = "block", .grain = RECIPE_BLOCKS},
        {.text = "mxfp8", .grain = RECIPE_MX},
    };
    enum { PLAIN = sizeof plain / sizeof *plain };
    recipe_spec spec[PLAIN];
    become(_i);
    const int n = choose(plain, PLAIN, spec);
    ck_assert_int_ge(n, 3);
    for (int i = 0; i < n; i++)
        if (_i == 0 || spec[i].grain != RECIPE_TENSOR)
            recipe_check_shown(&spec[i], &small, "cuda");
}
END_TEST

Suite *f8_suite(void)
{
    emulated = f8_test_gpu_emulated();
    if (emulated)
        devices = sizeof emulated_sm / sizeof *emulated_sm;
    Suite *s = suite_create("cuda recipes");
    TCase *t = tcase_create("recipes");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, scales_and_codes, 0, devices);
    tcase_add_loop_test(t, any_rows, 0, devices);
    tcase_add_loop_test(t, delayed_over_steps, 0, 1);
    tcase_add_loop_test(t, nothing_is_laundered, 0, devices);
    suite_add_tcase(s, t);
    return s;
}
