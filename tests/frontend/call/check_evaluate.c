/* Evaluating weights from files, without the command: the loss is that of the data's own call,
 * scales are calibrated where a recipe needs them, and the record says what was evaluated. */
#include "frontend/call/evaluate.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

enum { BYTES = 4 * (256 * 32 + 32 * 32) };

static const char lm[] =
    "module lm\n"
    "dim B = 2, T = 16\n"
    "param wte: f32[256, 32] normal(0.3)\n"
    "param fc.weight: f32[32, 32] normal(0.2)\n"
    "func forward(%tokens: i32[B, T], %targets: i32[B, T]) -> (%loss: f32[]) {\n"
    "  %x = linear(embedding(wte, %tokens), fc.weight)\n"
    "  return cross_entropy(linear(%x, wte) {transpose_b = true, name = \"head\"}, %targets)\n"
    "}\n"
    "recipe \"head\" = bf16\n";

static fp8c_context *ctx;
static fp8c_module *module;
static f8_data data;
static f8_loader weights;

/* Weights of initial values, which have no scales of `delayed`. */
static void begin(void)
{
    f8_cli_setup();
    static const char *file, *text;
    fp8c_compile_options o = recipe("f32");
    const fp8c_load_options files = {.struct_size = sizeof files, .files = &file, .n_files = 1};
    const f8_data_options options = {.files = &text, .n_files = 1, .model = "lm"};
    f8_diag diag = {0};
    o.inference = 1;
    ctx = new_context();
    module = parse(ctx, lm);
    fp8c_program *p = compile(ctx, module, &o);
    file = f8_cli_temp("w.safetensors");
    ck_assert_int_eq(fp8c_program_initialize(p, 3), FP8C_OK);
    ck_assert_int_eq(fp8c_program_save(p, file, NULL), FP8C_OK);
    fp8c_program_destroy(p);
    text = f8_cli_write_words("text", 3000);
    ck_assert_msg(f8_data_open(&data, &options, &diag) == F8_OK, "%s", diag.text);
    ck_assert_msg(f8_loader_open(&weights, &files, 1, &diag) == F8_OK, "%s", diag.text);
}

static void end(void)
{
    f8_loader_close(&weights);
    f8_data_close(&data);
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    f8_cli_teardown();
}

static fp8c_compile_options inference(const char *name)
{
    fp8c_compile_options o = recipe(name);
    o.inference = 1;
    return o;
}

START_TEST(losses)
{
    const fp8c_compile_options o = inference("bf16");
    const f8_evaluating on = {.module = module, .data = &data, .weights = &weights, .seed = 1};
    fp8c_program *p = compile(ctx, module, &o);
    f8_diag diag = {0};
    f8_evaluation x;
    double loss;
    int64_t batches;
    ck_assert_msg(f8_evaluate_load(&on, &o, p, &x, &diag) == FP8C_OK, "%s", diag.text);
    ck_assert_int_eq(x.weights_bytes, BYTES);
    ck_assert_int_eq(x.calibrated, 0);
    ck_assert_int_eq(f8_evaluate(&on, p, &x, &diag), FP8C_OK);
    ck_assert_int_eq(
        f8_data_held_out(&data, p, fp8c_program_function(p, "eval"), &loss, &batches, &diag),
        FP8C_OK);
    ck_assert(x.loss == loss && x.batches == batches && loss > 0);
    ck_assert_int_eq(x.fp8_gemms, 0);
    json_t *record = f8_evaluation_record(&on, "bf16", NULL, &x);
    ck_assert(json_real_value(json_object_get(record, "heldout_loss")) == loss);
    ck_assert(json_is_null(json_object_get(record, "stored")));
    ck_assert_int_eq(json_integer_value(json_object_get(record, "tokens")), batches * 2 * 16);
    json_decref(record);
    fp8c_program_destroy(p);
}
END_TEST

START_TEST(calibrates)
{
    const fp8c_compile_options o = inference("delayed");
    f8_evaluating on = {.module = module, .data = &data, .weights = &weights, .seed = 1};
    fp8c_program *p = compile(ctx, module, &o);
    f8_diag diag = {0};
    f8_evaluation x;
    ck_assert_msg(f8_evaluate_load(&on, &o, p, &x, &diag) == FP8C_OK, "%s", diag.text);
    ck_assert_int_eq(x.calibrated, 8);
    on.calibrate = 3;
    ck_assert_msg(f8_evaluate_load(&on, &o, p, &x, &diag) == FP8C_OK, "%s", diag.text);
    ck_assert_int_eq(x.calibrated, 3);
    ck_assert_int_eq(f8_evaluate(&on, p, &x, &diag), FP8C_OK);
    ck_assert_int_eq(x.fp8_gemms, 1); /* that of fc; the head is bf16 */
    ck_assert_int_eq(x.info.fp8_gemms_planned, 1);
    fp8c_program_destroy(p);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("evaluate");
    TCase *tc = tcase_create("evaluate");
    tcase_set_timeout(tc, TIMEOUT);
    tcase_add_checked_fixture(tc, begin, end);
    tcase_add_test(tc, losses);
    tcase_add_test(tc, calibrates);
    suite_add_tcase(suite, tc);
    return suite;
}
