/* The public API and the command line on a CUDA target: buffers in host and device memory, the
 * embedder's stream and allocator, compiling without a device, listings. On the emulator, or with
 * FP8C_TEST_GPU on this machine's GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "frontend/fp8c_diagnose.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/cuda/embedder.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

#define GPT "frontend/models/gpt.f8"
#define SMALL "-D", "B=2", "-D", "T=32", "-D", "L=1", "-D", "C=32", "-D", "H=2"

static bool emulated;

/* ---- programs ---- */

static fp8c_compile_options on_gpu(const char *name)
{
    fp8c_compile_options o = recipe(name);
    o.target = "cuda";
    return o;
}

typedef struct life {
    fp8c_context *ctx;
    fp8c_module *m;
    fp8c_program *p;
    int step;
} life;

static life begin(const fp8c_compile_options *o)
{
    life l = {.ctx = new_context()};
    l.m = parse(l.ctx, model);
    l.p = compile(l.ctx, l.m, o);
    l.step = fp8c_program_function(l.p, "micro_step");
    if (!o->no_device)
        ck_assert_msg(fp8c_program_initialize(l.p, 1) == FP8C_OK, "%s",
                      fp8c_context_message(l.ctx));
    return l;
}

static void end(life *l)
{
    fp8c_program_destroy(l->p);
    fp8c_module_destroy(l->m);
    fp8c_context_destroy(l->ctx);
}

START_TEST(figures)
{
    const fp8c_compile_options o = on_gpu("bf16");
    life l = begin(&o);
    fp8c_info before = {.struct_size = sizeof before}, after = before;
    fp8c_device device = {.struct_size = sizeof device};
    fp8c_program_info(l.p, &before);
    const float first = train_step(l.p);
    fp8c_program_info(l.p, &after);
    ck_assert_int_eq(after.gemms_executed - before.gemms_executed, 6);
    ck_assert_int_gt(after.kernels_executed, before.kernels_executed);
    ck_assert_int_gt(after.distinct_kernels, 3);
    ck_assert_int_gt(after.code_bytes, 0);
    ck_assert_int_gt(after.planned_bytes, 0);
    ck_assert_int_eq(after.peak_bytes, after.planned_bytes);
    ck_assert_int_eq(fp8c_program_device(l.p, &device), FP8C_OK);
    ck_assert(*device.name && device.compute_capability >= 89 && device.multiprocessors > 0);
    ck_assert(device.memory_free > 0 && device.memory_free <= device.memory &&
              device.driver >= 12000);
    char arch[16];
    snprintf(arch, sizeof arch, "sm_%d", device.compute_capability);
    ck_assert_msg(!strncmp(fp8c_program_target(l.p), arch, strlen(arch)), "%s",
                  fp8c_program_target(l.p));
    fp8c_compile_options without = o;
    without.no_device = 1;
    fp8c_program *listed = compile(l.ctx, l.m, &without);
    fp8c_program_info(listed, &before);
    ck_assert_int_eq(before.planned_bytes, after.planned_bytes);
    fp8c_program_destroy(listed);
    float last = first;
    for (int k = 0; k < 30; k++)
        last = train_step(l.p);
    ck_assert_msg(last < first / 2, "%g after %g", (double)last, (double)first);
    fp8c_variable v;
    for (int i = 0; fp8c_program_variable(l.p, i, &v) == FP8C_OK; i++)
        ck_assert_ptr_null(v.data);
    ck_assert_int_eq(fp8c_program_read(l.p, 1000, &v), FP8C_ERR_INPUT);
    said(l.ctx, "no variable 1000");
    end(&l);
}
END_TEST

/* Host memory bound is copied, device memory used in place; NULL goes back to the program's own. */
START_TEST(binding)
{
    driver d = open_driver();
    const fp8c_compile_options o = on_gpu("bf16");
    life l = begin(&o);
    const int tokens = fp8c_program_find_port(l.p, l.step, FP8C_INPUT, "tokens");
    const int loss = fp8c_program_find_port(l.p, l.step, FP8C_OUTPUT, "loss");
    fill_batch(l.p, l.step);
    void *own = fp8c_program_buffer(l.p, l.step, FP8C_INPUT, tokens);
    const float *own_loss = fp8c_program_buffer(l.p, l.step, FP8C_OUTPUT, loss);
    ck_assert_int_eq(fp8c_program_run(l.p, l.step), FP8C_OK);
    const float want = *own_loss;
    static _Alignas(64) int32_t mine[ROWS + 16];
    static _Alignas(64) float out[16];
    memcpy(mine, own, ROWS * sizeof *mine);
    memset(own, 0, ROWS * sizeof *mine);
    ck_assert_int_eq(fp8c_program_bind(l.p, l.step, FP8C_INPUT, tokens, mine), FP8C_OK);
    ck_assert_int_eq(fp8c_program_bind(l.p, l.step, FP8C_OUTPUT, loss, out), FP8C_OK);
    ck_assert_int_eq(fp8c_program_run(l.p, l.step), FP8C_OK);
    ck_assert_mem_eq(out, &want, sizeof want);

    void *there = device_alloc(&d, 256), *result = device_alloc(&d, 256);
    ck_assert_int_eq(d.cuMemcpyHtoDAsync_v2((uintptr_t)there, mine, ROWS * sizeof *mine, d.stream),
                     0);
    ck_assert_int_eq(d.cuStreamSynchronize(d.stream), 0);
    memset(mine, 0, sizeof mine);
    ck_assert_int_eq(fp8c_program_bind(l.p, l.step, FP8C_INPUT, tokens, there), FP8C_OK);
    ck_assert_int_eq(fp8c_program_bind(l.p, l.step, FP8C_OUTPUT, loss, result), FP8C_OK);
    for (int i = 0; i < 2; i++) {
        float got = 0;
        ck_assert_msg(fp8c_program_run(l.p, l.step) == FP8C_OK, "%s", fp8c_context_message(l.ctx));
        ck_assert_int_eq(d.cuMemcpyDtoHAsync_v2(&got, (uintptr_t)result, sizeof got, d.stream), 0);
        ck_assert_int_eq(d.cuStreamSynchronize(d.stream), 0);
        ck_assert_mem_eq(&got, &want, sizeof want);
    }
    ck_assert_int_eq(fp8c_program_bind(l.p, l.step, FP8C_INPUT, tokens, NULL), FP8C_OK);
    ck_assert_int_eq(fp8c_program_bind(l.p, l.step, FP8C_OUTPUT, loss, NULL), FP8C_OK);
    ck_assert_ptr_eq(fp8c_program_buffer(l.p, l.step, FP8C_INPUT, tokens), own);
    fill_batch(l.p, l.step);
    ck_assert_int_eq(fp8c_program_run(l.p, l.step), FP8C_OK);
    ck_assert_mem_eq(own_loss, &want, sizeof want);
    device_free(&d, there, 256);
    device_free(&d, result, 256);
    end(&l);
    close_driver(&d);
}
END_TEST

/* The embedder's stream and device memory: the same bits, nothing kept, nothing allocated in a run.
 */
START_TEST(embedded)
{
    driver d = open_driver();
    fp8c_compile_options o = on_gpu("bf16");
    life own = begin(&o);
    o.stream = d.stream;
    o.device_alloc = device_alloc;
    o.device_free = device_free;
    o.device_user = &d;
    life theirs = begin(&o);
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(theirs.p, &info);
    ck_assert_int_gt(d.live, 0);
    ck_assert_int_eq(info.peak_bytes, (int64_t)d.bytes);
    const long before = d.allocations;
    const int update = fp8c_program_function(theirs.p, "update");
    const int loss = fp8c_program_find_port(theirs.p, theirs.step, FP8C_OUTPUT, "loss");
    for (int i = 0; i < 3; i++) {
        const float want = train_step(own.p);
        fill_batch(theirs.p, theirs.step);
        ck_assert_int_eq(fp8c_program_run(theirs.p, theirs.step), FP8C_OK);
        ck_assert_int_eq(fp8c_program_run(theirs.p, update), FP8C_OK);
        ck_assert_int_eq(fp8c_program_wait(theirs.p), FP8C_OK);
        ck_assert_mem_eq(fp8c_program_buffer(theirs.p, theirs.step, FP8C_OUTPUT, loss), &want,
                         sizeof want);
    }
    ck_assert_int_eq(d.allocations, before);
    end(&theirs);
    ck_assert(d.live == 0 && d.bytes == 0);
    end(&own);
    close_driver(&d);
}
END_TEST

static fp8c_compile_options listing(const char *target)
{
    fp8c_compile_options o = recipe("bf16");
    o.target = target;
    o.no_device = 1;
    o.listings = 1;
    return o;
}

/* Compiling for an architecture needs its compiler and no device: listings and figures, but no
 * runs. */
START_TEST(no_device)
{
    static const char *const targets[] = {"sm_89", "sm_90a", "sm_100a", "sm_120a"};
    if (emulated)
        setenv("FP8C_EMULATOR_DEVICES", "0", 1);
    for (int i = 0; i < 4; i++) {
        const fp8c_compile_options o = listing(targets[i]);
        life l = begin(&o);
        ck_assert_str_eq(fp8c_program_target(l.p), targets[i]);
        fp8c_step s;
        fp8c_variable v;
        fp8c_image image;
        fp8c_device device = {.struct_size = sizeof device};
        ck_assert_int_eq(fp8c_program_step(l.p, l.step, 0, &s), FP8C_OK);
        ck_assert_int_eq(fp8c_program_image(l.p, 0, &image), FP8C_OK);
        ck_assert(strstr(image.cuda, "F8_KERNEL") && image.ptx && image.log &&
                  image.cubin_size > 0);
        ck_assert_int_eq(fp8c_program_image(l.p, 1000, &image), FP8C_ERR_INPUT);
        ck_assert_ptr_null(fp8c_program_buffer(l.p, l.step, FP8C_INPUT, 0));
        ck_assert_int_eq(fp8c_program_variable(l.p, 0, &v), FP8C_OK);
        ck_assert_ptr_null(v.data);
        ck_assert_int_eq(fp8c_program_run(l.p, l.step), FP8C_ERR_INPUT);
        said(l.ctx, "compiled with no_device");
        ck_assert_int_eq(fp8c_program_initialize(l.p, 1), FP8C_ERR_INPUT);
        ck_assert_int_eq(fp8c_program_wait(l.p), FP8C_ERR_INPUT);
        ck_assert_int_eq(fp8c_program_read(l.p, 0, &v), FP8C_ERR_INPUT);
        ck_assert_int_eq(fp8c_program_write(l.p, 0, &v), FP8C_ERR_INPUT);
        ck_assert_int_eq(fp8c_program_bind(l.p, l.step, FP8C_INPUT, 0, NULL), FP8C_ERR_INPUT);
        ck_assert_int_eq(fp8c_program_device(l.p, &device), FP8C_ERR_INPUT);
        end(&l);
    }
    unsetenv("FP8C_EMULATOR_DEVICES");
}
END_TEST

START_TEST(names)
{
    static const char *const want[] = {"cpu",           "reference", "sm_89", "sm_90a",
                                       "sm_100a",       "sm_120a",   "cuda",  "cpu:x86-64-v3",
                                       "cpu:x86-64-v4", "cpu:native"};
    const int n = sizeof want / sizeof *want;
    for (int i = 0; i < n; i++)
        ck_assert_str_eq(fp8c_name(FP8C_NAME_TARGET, i), want[i]);
    ck_assert_ptr_null(fp8c_name(FP8C_NAME_TARGET, n));
    ck_assert_ptr_null(fp8c_name(FP8C_NAME_TARGET, -1));
}
END_TEST

/* ---- the command line ---- */

/* The digits of the held-out loss in records. */
static void copy_loss(const char *records, char to[64])
{
    static const char field[] = "\"heldout_loss\":";
    const char *at = strstr(records, field);
    ck_assert_msg(at && sscanf(at + sizeof field - 1, "%63[-+.0-9e]", to) == 1,
                  "no held-out loss: %s", records);
}

START_TEST(command_line)
{
    static char text[4000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "abcdefgh \n"[i * i % 10];
    f8_cli_result r =
        F8_CLI("train", GPT, "--data", f8_cli_write("text", text, sizeof text), "--steps", "2",
               SMALL, "--recipe", "delayed", "--target", "cuda", "--json", f8_cli_temp("json"),
               "--save-state", f8_cli_temp("state"), "--save", f8_cli_temp("weights"));
    ck_assert_msg(r.code == 0, "%s", r.err);
    ck_assert(strstr(r.out, "\non ") && strstr(r.out, " (sm_") &&
              strstr(r.out, " multiprocessors, "));
    size_t n;
    char *json = f8_cli_read(f8_cli_temp("json"), &n);
    ck_assert_msg(strstr(json, "\"target\": \"sm_") || strstr(json, "\"target\":\"sm_"), "%s",
                  json);
    char trained[64], served[64];
    copy_loss(json, trained);
    free(json);
    free(f8_cli_read(f8_cli_temp("state"), &n));
    ck_assert_uint_gt(n, 100000);
    r = F8_CLI("eval", GPT, "--data", f8_cli_temp("text"), "--weights", f8_cli_temp("weights"),
               SMALL, "--recipe", "delayed", "--target", "cuda", "--json", "-");
    ck_assert_msg(r.code == 0, "%s", r.err);
    copy_loss(r.out, served);
    ck_assert_str_eq(served, trained);
    r = F8_CLI("export", GPT, SMALL, "--weights", f8_cli_temp("weights"), "--recipe", "delayed",
               "-o", f8_cli_temp("fp8"));
    ck_assert_msg(r.code == 0, "%s", r.err);
    r = F8_CLI("eval", GPT, "--data", f8_cli_temp("text"), "--weights", f8_cli_temp("fp8"), SMALL,
               "--recipe", "delayed", "--target", "cuda", "--json", "-");
    ck_assert_msg(r.code == 0, "%s", r.err);
    copy_loss(r.out, served);
    ck_assert_str_eq(served, trained);
    r = F8_CLI("explain", GPT, "--target", "sm_100a", "--recipe", "current", "--kernels", SMALL);
    ck_assert_msg(r.code == 0, "%s", r.err);
    ck_assert_ptr_nonnull(strstr(r.out, "\ntarget sm_100a: 5 linears; of their GEMMs in a "
                                        "micro-step 12 are planned in FP8, 3 not"));
    r = F8_CLI("check", GPT, "--target", "sm_89", "--recipe", "delayed", SMALL);
    ck_assert_msg(r.code == 0, "%s", r.err);
    r = F8_CLI("print", GPT, "--target", "sm_120a", "--print-after", "legalize", "--recipe",
               "delayed", SMALL);
    ck_assert_msg(r.code == 0 && strstr(r.out, "scaled_matmul"), "%s", r.err);
    /* by cuDNN, where it is: a step of its own */
    r = F8_CLI("explain", GPT, "--target", "sm_90a", "--attention", "cudnn", "--kernels", SMALL);
    ck_assert_msg(emulated ? r.code == 0 && strstr(r.out, "\nattention ")
                           : r.code == 0 || strstr(r.err, "cuDNN"), "%s%s", r.err, r.out);
    r = F8_CLI("explain", GPT, "--target", "cpu", "--attention", "cudnn");
    ck_assert(r.code == 1 && strstr(r.err, "attention 'cudnn' needs a CUDA target"));
    r = F8_CLI("explain", GPT, "--target", "sm_90a", "--attention", "mine");
    ck_assert(r.code == 1 && strstr(r.err, "no attention 'mine': there are table, own and cudnn"));
    r = F8_CLI("check", GPT, "--attention", "mine");
    ck_assert(r.code == 1 && strstr(r.err, "no attention 'mine'"));
    r = F8_CLI("check", GPT, "--target", "cuda", "--device", "63");
    ck_assert_msg(r.code == 1 && strstr(r.err, "no CUDA device 63"), "%s", r.err);
}
END_TEST

Suite *f8_suite(void)
{
    emulated = f8_test_gpu_emulated();
    Suite *s = suite_create("cuda api");
    TCase *t = tcase_create("cuda api");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_test(t, names);
    tcase_add_test(t, figures);
    tcase_add_test(t, binding);
    tcase_add_test(t, embedded);
    tcase_add_test(t, no_device);
    tcase_add_test(t, command_line);
    suite_add_tcase(s, t);
    return s;
}
