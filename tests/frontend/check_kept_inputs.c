/* Inputs that are kept: the copies are what the last runs were given, and a run on them again gives
 * the same bits, on a CPU and on the reference target.
 * check_cuda_memory has those of a GPU. */
#include "frontend/fp8c_diagnose.h"
#include "tests/shared/api/api_run.h"
#include "tests/shared/suite.h"

#include <string.h>

enum { BYTES = 256, KEPT = 3, RUNS = 5 };

static const fp8c_dim small[] = {{"B", 2}, {"T", 16}, {"L", 1}, {"C", 32}, {"H", 2}};
static const char *const targets[] = {"cpu", "reference"};

static void open_gpt(f8_api_run *r, const char *target)
{
    const f8_api_setup setup = {.file = "frontend/models/gpt.f8",
                                .dims = small,
                                .n_dims = sizeof small / sizeof *small,
                                .options = {.target = target, .threads = 2}};
    ck_assert_msg(f8_api_open(r, &setup), "%s", r->failed);
}

static int input(const f8_api_run *r, const char *name)
{
    const int i = fp8c_program_find_port(r->program, r->step, FP8C_INPUT, name);
    ck_assert_int_ge(i, 0);
    return i;
}

static size_t bytes_of(const f8_api_run *r, int index)
{
    fp8c_port port;
    ck_assert_int_eq(fp8c_program_port(r->program, r->step, FP8C_INPUT, index, &port), FP8C_OK);
    return (size_t)fp8c_type_bytes(&port.type);
}

/* The loss of batch `number`; its tokens are copied to `tokens`. */
static float run(f8_api_run *r, uint64_t number, unsigned char *tokens)
{
    const int at = input(r, "tokens");
    f8_api_batch(r, BYTES, number);
    memcpy(tokens, fp8c_program_buffer(r->program, r->step, FP8C_INPUT, at), bytes_of(r, at));
    ck_assert_int_eq(fp8c_program_run(r->program, r->step), FP8C_OK);
    return *(float *)f8_api_buffer(r, r->step, FP8C_OUTPUT, "loss", NULL);
}

START_TEST(the_last_runs)
{
    f8_api_run r;
    unsigned char tokens[RUNS][4096];
    float loss[RUNS];
    open_gpt(&r, targets[_i]);
    const int at = input(&r, "tokens"), targets_at = input(&r, "targets");
    const size_t bytes = bytes_of(&r, at);
    ck_assert_uint_le(bytes, sizeof tokens[0]);
    ck_assert_int_eq(fp8c_program_keep_inputs(r.program, r.step, KEPT), FP8C_OK);
    ck_assert_ptr_null(fp8c_program_kept_input(r.program, r.step, 0, at));
    for (int k = 0; k < RUNS; k++)
        loss[k] = run(&r, (uint64_t)k, tokens[k]);
    for (int back = 0; back < KEPT; back++)
        ck_assert_mem_eq(fp8c_program_kept_input(r.program, r.step, back, at),
                         tokens[RUNS - 1 - back], bytes);
    ck_assert_ptr_null(fp8c_program_kept_input(r.program, r.step, KEPT, at));
    /* the run before the last once more: no update came between */
    const int32_t back = 1;
    memcpy(fp8c_program_buffer(r.program, r.step, FP8C_INPUT, at),
           fp8c_program_kept_input(r.program, r.step, back, at), bytes);
    memcpy(fp8c_program_buffer(r.program, r.step, FP8C_INPUT, targets_at),
           fp8c_program_kept_input(r.program, r.step, back, targets_at), bytes);
    ck_assert_int_eq(fp8c_program_run(r.program, r.step), FP8C_OK);
    ck_assert_mem_eq(f8_api_buffer(&r, r.step, FP8C_OUTPUT, "loss", NULL), &loss[RUNS - 2],
                     sizeof *loss);
    f8_api_close(&r);
}
END_TEST

START_TEST(what_is_not_kept)
{
    f8_api_run r;
    unsigned char tokens[4096];
    fp8c_port port;
    open_gpt(&r, "cpu");
    const int at = input(&r, "tokens");
    run(&r, 0, tokens);
    ck_assert_ptr_null(fp8c_program_kept_input(r.program, r.step, 0, at));
    ck_assert_int_eq(fp8c_program_keep_inputs(r.program, r.step, 2), FP8C_OK);
    run(&r, 1, tokens);
    for (int i = 0; fp8c_program_port(r.program, r.step, FP8C_INPUT, i, &port) == FP8C_OK; i++)
        ck_assert_int_eq(fp8c_program_kept_input(r.program, r.step, 0, i) != NULL,
                         port.variable < 0);
    ck_assert_ptr_null(fp8c_program_kept_input(r.program, r.step, -1, at));
    ck_assert_ptr_null(fp8c_program_kept_input(r.program, 99, 0, at));
    ck_assert_int_eq(fp8c_program_keep_inputs(r.program, r.step, 0), FP8C_OK);
    ck_assert_ptr_null(fp8c_program_kept_input(r.program, r.step, 0, at));
    ck_assert_int_eq(fp8c_program_keep_inputs(r.program, 99, 1), FP8C_ERR_INPUT);
    ck_assert_str_eq(fp8c_context_message(r.ctx), "error: the program has no function 99");
    ck_assert_int_eq(fp8c_program_keep_inputs(r.program, r.step, -1), FP8C_ERR_INPUT);
    ck_assert_str_eq(fp8c_context_message(r.ctx), "error: keep_inputs: -1 runs can't be kept");
    f8_api_close(&r);
}
END_TEST

/* ---- memory ---- */

static fp8c_program *open_external(fp8c_context *ctx, const char *text)
{
    fp8c_module *m;
    fp8c_program *p;
    fp8c_compile_options o = {
        .struct_size = sizeof o, .target = "cpu", .external = "*", .inference = 1, .threads = 1};
    ck_assert_msg(fp8c_module_parse(ctx, text, strlen(text), "kept.f8", NULL, 0, &m) == FP8C_OK,
                  "%s", fp8c_context_message(ctx));
    ck_assert_msg(fp8c_compile(m, &o, &p) == FP8C_OK, "%s", fp8c_context_message(ctx));
    fp8c_module_destroy(m);
    return p;
}

/* 2^30 times 2^34 bytes are 2^64: a product that wraps is 0. */
START_TEST(too_many)
{
    fp8c_context *ctx;
    ck_assert_int_eq(fp8c_context_create(NULL, &ctx), FP8C_OK);
    fp8c_program *p = open_external(ctx, "module big\n"
                                         "func forward(%x: f32[65536, 65536]) -> "
                                         "(%y: f32[65536, 65536]) {\n  return add(%x, %x)\n}\n");
    const int32_t many[] = {1 << 29, 1 << 30, INT32_MAX};
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        ck_assert_int_eq(fp8c_program_keep_inputs(p, 0, many[i]), FP8C_ERR_MEMORY);
        ck_assert_msg(strstr(fp8c_context_message(ctx), "out of memory") != NULL, "%s",
                      fp8c_context_message(ctx));
    }
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A run that was refused for want of an input was none. */
START_TEST(unbound)
{
    static const float x[4] = {1, 2, 3, 4};
    float y[4];
    fp8c_context *ctx;
    ck_assert_int_eq(fp8c_context_create(NULL, &ctx), FP8C_OK);
    fp8c_program *p = open_external(ctx, "module small\nfunc forward(%x: f32[4], %z: f32[4]) -> "
                                         "(%y: f32[4]) {\n  return add(%x, %z)\n}\n");
    ck_assert_int_eq(fp8c_program_keep_inputs(p, 0, 2), FP8C_OK);
    ck_assert_int_eq(fp8c_program_bind(p, 0, FP8C_INPUT, 0, (void *)(uintptr_t)x), FP8C_OK);
    ck_assert_int_eq(fp8c_program_bind(p, 0, FP8C_OUTPUT, 0, y), FP8C_OK);
    ck_assert_int_eq(fp8c_program_run(p, 0), FP8C_ERR_INPUT);
    ck_assert_ptr_null(fp8c_program_kept_input(p, 0, 0, 0));
    ck_assert_ptr_null(fp8c_program_kept_input(p, 0, 0, 1));
    ck_assert_int_eq(fp8c_program_bind(p, 0, FP8C_INPUT, 1, (void *)(uintptr_t)x), FP8C_OK);
    ck_assert_msg(fp8c_program_run(p, 0) == FP8C_OK, "%s", fp8c_context_message(ctx));
    ck_assert_mem_eq(fp8c_program_kept_input(p, 0, 0, 1), x, sizeof x);
    ck_assert_ptr_null(fp8c_program_kept_input(p, 0, 1, 1));
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("kept inputs");
    TCase *t = tcase_create("ring");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, the_last_runs, 0, sizeof targets / sizeof *targets);
    tcase_add_test(t, what_is_not_kept);
    tcase_add_test(t, too_many);
    tcase_add_test(t, unbound);
    suite_add_tcase(s, t);
    return s;
}
