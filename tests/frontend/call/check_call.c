/* Functions on tensors from files: where inputs come from, what messages say of those that are
 * missing, dims that take their values from files, outputs, and a tensor in a few numbers. */
#include <math.h>

#include "frontend/call/call.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

static const char two[] = "module two\n"
                          "dim B <= 8\n"
                          "param w: f32[2] ones\n"
                          "func forward(%x: f32[B, 2], %i: i32[B]) -> (%y: f32[B, 2]) {\n"
                          "  return mul(%x, w)\n"
                          "}\n";

static fp8c_context *ctx;
static fp8c_module *module;
static f8_call call;

/* A call of eval, with inputs as "NAME=FILE", whose files lie among the test's. */
static void begin(const char *x, const char *i)
{
    const char *const given[] = {x, i};
    fp8c_compile_options o = recipe("f32");
    o.inference = 1;
    ctx = new_context();
    module = parse(ctx, two);
    call = (f8_call){.shown = "two.f8",
                     .function = {"eval"},
                     .n_functions = 1,
                     .n_outputs = 1,
                     .input_option = "--input",
                     .output_option = "--output",
                     .program = compile(ctx, module, &o)};
    for (int k = 0; k < 2; k++)
        if (given[k])
            ck_assert(f8_tensor_file_parse(given[k], &call.input[call.n_inputs++]));
    char text[200];
    snprintf(text, sizeof text, "y=%s", f8_cli_temp("y.npy"));
    ck_assert(f8_tensor_file_parse(text, &call.output[0].file));
    ck_assert_int_eq(fp8c_program_initialize(call.program, 1), FP8C_OK);
}

static void end(void)
{
    f8_call_free(&call);
    fp8c_program_destroy(call.program);
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
}

/* Writes rows [n, 2] of f32 (`ints`: [n] of i32) into a file, and gives "NAME=FILE" in `text`. */
static const char *file_of(const char *name, int64_t n, bool ints, char text[200])
{
    float x[16];
    f8_diag diag = {0};
    char file[20];
    for (int k = 0; k < 16; k++)
        x[k] = (float)k;
    snprintf(file, sizeof file, "%s%d.npy", name, (int)n);
    const fp8c_type type = {ints ? FP8C_I32 : FP8C_F32, ints ? 1 : 2, {n, 2}};
    ck_assert_int_eq(
        f8_npy_write(NULL, f8_cli_temp(file), &type, x, (size_t)fp8c_type_bytes(&type), &diag),
        F8_OK);
    snprintf(text, 200, "%s=%s", name, f8_cli_temp(file));
    return text;
}

static void refused(const char *x, const char *i, const char *message)
{
    f8_diag diag = {0};
    begin(x, i);
    const fp8c_status status = f8_call_prepare(&call, &diag);
    ck_assert_int_eq(status, FP8C_ERR_INPUT);
    ck_assert_msg(strstr(*diag.text ? diag.text : fp8c_context_message(ctx), message) != NULL,
                  "'%s%s' does not say '%s'", diag.text, fp8c_context_message(ctx), message);
    end();
}

START_TEST(refusals)
{
    char x[200], i[200], other[200];
    file_of("x", 3, false, x);
    refused(x, NULL, "inputs are missing: i of eval, i32[3] (give --input NAME=FILE)");
    refused(x, file_of("z", 3, true, i), "has an input 'z', which --input gives");
    refused(x, file_of("i", 2, true, i), "axis 0 of input 'x' makes 'B' 3, but axis 0 of 'i'");
    file_of("i", 3, true, i);
    f8_diag diag = {0};
    begin(x, i);
    call.function[0] = "nothing";
    ck_assert_int_eq(f8_call_prepare(&call, &diag), FP8C_ERR_INPUT);
    ck_assert_str_eq(diag.text, "there is no function 'nothing'; there are: eval");
    end();
    /* a file that can't be read: which input it is for */
    snprintf(other, sizeof other, "x=%s", f8_cli_temp("none.npy"));
    diag = (f8_diag){0};
    begin(other, i);
    ck_assert_int_ne(f8_call_prepare(&call, &diag), FP8C_OK);
    ck_assert_str_eq(call.failed_input, "x");
    end();
}
END_TEST

START_TEST(runs)
{
    char x[200], i[200];
    int64_t dim[F8_ST_MAX_RANK];
    int32_t rank;
    float y[6];
    f8_diag diag = {0};
    begin(file_of("x", 3, false, x), file_of("i", 3, true, i));
    ck_assert_msg(f8_call_prepare(&call, &diag) == FP8C_OK, "%s", diag.text);
    ck_assert_ptr_null(call.failed_input);
    double median, least;
    ck_assert_int_eq(f8_call_repeat(&call, 3, &median, &least, &diag), FP8C_OK);
    ck_assert(0 < least && least <= median);
    ck_assert_msg(f8_call_write(&call, &diag) == FP8C_OK, "%s", diag.text);
    ck_assert_int_eq(f8_tensor_file_shape(&call.output[0].file, dim, &rank, &diag), F8_OK);
    ck_assert(rank == 2 && dim[0] == 3 && dim[1] == 2);
    const fp8c_type type = {FP8C_F32, 2, {3, 2}};
    ck_assert_int_eq(f8_tensor_file_read(&call.output[0].file, &type, y, &diag), F8_OK);
    for (int k = 0; k < 6; k++)
        ck_assert(y[k] == (float)k);
    end();
}
END_TEST

START_TEST(summaries)
{
    const float x[] = {3, NAN, -1, INFINITY};
    const uint16_t bf16[] = {0x3f80, 0xc000}; /* 1, -2 */
    f8_summary s = f8_call_summarize(&(fp8c_type){FP8C_F32, 1, {4}}, x);
    ck_assert(s.min == -1 && s.max == 3 && s.mean == 1 && s.finite == 2 && s.n == 4);
    s = f8_call_summarize(&(fp8c_type){FP8C_BF16, 1, {2}}, bf16);
    ck_assert(s.min == -2 && s.max == 1 && s.mean == -0.5);
    s = f8_call_summarize(&(fp8c_type){FP8C_F32, 1, {1}}, x + 1);
    ck_assert(s.finite == 0 && isnan(s.mean));
    ck_assert(f8_call_element(FP8C_F8E4M3, "\xff", 0) == 255);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("call");
    TCase *tc = tcase_create("call");
    tcase_set_timeout(tc, TIMEOUT);
    tcase_add_unchecked_fixture(tc, f8_cli_setup, f8_cli_teardown);
    tcase_add_test(tc, refusals);
    tcase_add_test(tc, runs);
    tcase_add_test(tc, summaries);
    suite_add_tcase(suite, tc);
    return suite;
}
