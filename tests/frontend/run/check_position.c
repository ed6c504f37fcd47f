/* A state saved and loaded with its position: a training that goes on from it has the bits of one
 * that never stopped. */
#include <inttypes.h>

#include "tests/shared/api/api.h"
#include "tests/shared/api/api_run.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

enum { BYTES = 256, STEPS = 6, STOP = 3 };

static const fp8c_dim dims[] = {{"B", 2}, {"T", 32}, {"C", 32}, {"H", 2}, {"L", 1}};
static const char *const recipes[] = {"bf16", "delayed", "block"};

static void begin(f8_api_run *r, const char *recipe_name)
{
    const f8_api_setup setup = {.file = "frontend/models/gpt.f8",
                                .dims = dims,
                                .n_dims = 5,
                                .options = {.recipe = recipe_name, .threads = 2}};
    ck_assert_msg(f8_api_open(r, &setup), "%s", r->failed);
}

static void steps(f8_api_run *r, uint64_t first, uint64_t end)
{
    for (uint64_t s = first; s < end; s++) {
        f8_api_step(r, BYTES, s);
        ck_assert_msg(!r->failed, "%s", r->failed);
    }
}

START_TEST(goes_on_bit_for_bit)
{
    f8_api_run straight, stopped, on;
    const fp8c_position at = {
        .struct_size = sizeof at, .step = STOP, .seed = UINT64_MAX, .batch = STOP};
    fp8c_position back = {.struct_size = sizeof back};
    char path[4096];
    snprintf(path, sizeof path, "%s", f8_cli_temp("state.safetensors"));
    begin(&straight, recipes[_i]);
    begin(&stopped, recipes[_i]);
    begin(&on, recipes[_i]);
    steps(&straight, 0, STEPS);
    steps(&stopped, 0, STOP);
    ck_assert_msg(fp8c_program_save(stopped.program, path, &at) == FP8C_OK, "%s",
                  fp8c_context_message(stopped.ctx));
    ck_assert_msg(fp8c_program_load(on.program, path, 0, &back) == FP8C_OK, "%s",
                  fp8c_context_message(on.ctx));
    ck_assert(!memcmp(&at, &back, sizeof at));
    ck_assert_pstr_eq(f8_api_differs(&stopped, &on), NULL);
    steps(&on, back.batch, STEPS);
    ck_assert_pstr_eq(f8_api_differs(&straight, &on), NULL);
    f8_api_close(&straight);
    f8_api_close(&stopped);
    f8_api_close(&on);
}
END_TEST

static void fails(f8_api_run *r, const char *path, fp8c_status status, const char *says)
{
    fp8c_position at = {.struct_size = sizeof at, .step = 7};
    ck_assert_int_eq(fp8c_program_load(r->program, path, 0, &at), status);
    said(r->ctx, says);
    ck_assert_int_eq(at.step, 7);
}

/* The checksum is of all variables, so a load of parameters alone can't be compared with it. */
static void refuses_parameters_alone(f8_api_run *r, const char *path)
{
    fp8c_position at = {.struct_size = sizeof at};
    ck_assert_int_eq(fp8c_program_load(r->program, path, 1, &at), FP8C_ERR_INPUT);
    said(r->ctx, "a position is of all variables");
}

START_TEST(refused)
{
    f8_api_run a, b;
    fp8c_position at = {.struct_size = sizeof at, .step = -1};
    char path[4096];
    snprintf(path, sizeof path, "%s", f8_cli_temp("state.safetensors"));
    begin(&a, "delayed");
    begin(&b, "delayed");
    ck_assert_int_eq(fp8c_program_save(a.program, path, &at), FP8C_ERR_INPUT);
    said(a.ctx, "step -1 is negative");
    steps(&a, 0, 1);
    ck_assert_int_eq(fp8c_program_save(a.program, path, NULL), FP8C_OK);
    fails(&b, path, FP8C_ERR_INPUT, "it has no position in a training");
    f8_api_run fresh;
    begin(&fresh, "delayed");
    ck_assert_pstr_eq(f8_api_differs(&b, &fresh), NULL); /* nothing changed */
    f8_api_close(&fresh);
    at.step = 1;
    ck_assert_int_eq(fp8c_program_save(a.program, path, &at), FP8C_OK);
    refuses_parameters_alone(&b, path);
    size_t n;
    char *bytes = f8_cli_read(path, &n);
    bytes[n - 5] ^= 1; /* of a tensor */
    f8_cli_write("state.safetensors", bytes, n);
    free(bytes);
    fails(&b, path, FP8C_ERR_INPUT, "its values do not have its checksum");
    fails(&b, f8_cli_temp("none.safetensors"), FP8C_ERR_IO, "No such file");
    f8_api_close(&a);
    f8_api_close(&b);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("position");
    TCase *t = tcase_create("position");
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, goes_on_bit_for_bit, 0, 3);
    tcase_add_test(t, refused);
    suite_add_tcase(s, t);
    return s;
}
