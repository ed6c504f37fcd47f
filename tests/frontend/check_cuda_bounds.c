/* Dims that are bounds on a CUDA target. Plans for different values share the device's memory, the
 * stream, prepared problems and images. Each gives the bits of a program for its value alone,
 * whatever ran before. */
#include <stdlib.h>

#include "tests/shared/api/api.h"
#include "tests/shared/api/bounds_case.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

static const fp8c_compile_options programs[] = {
    {.recipe = "delayed", .target = "cuda"},
    {.recipe = "bf16", .target = "cuda", .profile = 1},
    {.recipe = "bf16", .target = "cuda"}, /* reversed: memory that captured graphs know moves */
};

START_TEST(bits)
{
    static const int order[] = {6, 2, 5, 2, 6};
    f8_bounds_case(&programs[_i], _i == 2, order, sizeof order / sizeof *order);
}
END_TEST

/* What one value has bound is no longer bound once another has run; its graph is captured again. */
START_TEST(buffers)
{
    f8_api_run r;
    f8_bounds_open(&r, 0, false, (fp8c_compile_options){.recipe = "bf16", .target = "cuda"});
    const int port = fp8c_program_find_port(r.program, r.step, FP8C_OUTPUT, "loss");
    const float first = f8_api_step(&r, 64, 1);
    float *own = fp8c_program_buffer(r.program, r.step, FP8C_OUTPUT, port), mine = 0;
    ck_assert_int_eq(fp8c_program_bind(r.program, r.step, FP8C_OUTPUT, port, &mine), FP8C_OK);
    f8_bounds_set(&r, 3);
    ck_assert_int_eq(fp8c_program_initialize(r.program, 1), FP8C_OK);
    const float other = f8_api_step(&r, 64, 1);
    ck_assert(other > 0 && other != first && mine == 0);
    f8_bounds_set(&r, F8_BOUNDS_MOST);
    ck_assert_ptr_eq(fp8c_program_buffer(r.program, r.step, FP8C_OUTPUT, port), own);
    ck_assert_int_eq(fp8c_program_initialize(r.program, 1), FP8C_OK);
    const float again = f8_api_step(&r, 64, 1);
    ck_assert(!memcmp(&again, &first, sizeof first) && mine == 0);
    f8_api_close(&r);
}
END_TEST

/* A file's values share as those of a program compiled here do. */
START_TEST(file)
{
    f8_api_run r, opened;
    f8_bounds_open(&r, 0, false, (fp8c_compile_options){.recipe = "current", .target = "cuda"});
    const char *path = f8_cli_temp("bounds.f8x");
    const fp8c_compile_options o = {
        .struct_size = sizeof o, .recipe = "current", .target = "cuda", .values = "B=6,2"};
    ck_assert_msg(fp8c_compile_file(r.module, &o, 1, path) == FP8C_OK, "%s",
                  fp8c_context_message(r.ctx));
    opened = r;
    ck_assert_msg(fp8c_program_open(r.ctx, path, NULL, &opened.program) == FP8C_OK, "%s",
                  fp8c_context_message(r.ctx));
    ck_assert_int_eq(fp8c_program_initialize(opened.program, 1), FP8C_OK);
    for (int b = 2; b <= 6; b += 4) {
        f8_bounds_set(&r, b);
        f8_bounds_set(&opened, b);
        const float loss = f8_api_step(&opened, 64, 1), expected = f8_api_step(&r, 64, 1);
        ck_assert_msg(loss > 0 && !memcmp(&loss, &expected, sizeof loss), "%s",
                      fp8c_context_message(r.ctx));
    }
    fp8c_program_destroy(opened.program);
    f8_api_close(&r);
}
END_TEST

Suite *f8_suite(void)
{
    f8_test_gpu_emulated();
    Suite *s = suite_create("cuda bounds");
    TCase *t = tcase_create("cuda bounds");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, bits, 0, sizeof programs / sizeof *programs);
    tcase_add_test(t, buffers);
    tcase_add_test(t, file);
    tcase_add_unchecked_fixture(t, f8_cli_setup, f8_cli_teardown);
    suite_add_tcase(s, t);
    return s;
}
