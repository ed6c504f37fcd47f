/* Failures on a CUDA target: each is a status with a message, the context still serves the CPU and
 * can be destroyed, and nothing leaks (this runs under ASan too). On the emulator only: a GPU does
 * not fail on request. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/shared/api/api.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

#define GPT "frontend/models/gpt.f8"

enum { RECORDED = 4096 };

static fp8c_compile_options on(const char *target)
{
    fp8c_compile_options o = recipe("bf16");
    o.target = target;
    return o;
}

/* The context of a failure is as good as new: it compiles and runs on the CPU. */
static void still_serves(fp8c_context *ctx)
{
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = on("reference");
    fp8c_program *p = compile(ctx, m, &o);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    ck_assert(train_step(p) > 0);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
}

/* Compile under a setting of the emulator; the status, and each of the words in the message. */
static void refused(const char *name, const char *value, const char *target, fp8c_status want,
                    const char *const *words)
{
    setenv(name, value, 1);
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    const fp8c_compile_options o = on(target);
    fp8c_program *p;
    const fp8c_status status = fp8c_compile(m, &o, &p);
    ck_assert_msg(status == want, "%s=%s: status %d, not %d: %s", name, value, (int)status,
                  (int)want, fp8c_context_message(ctx));
    ck_assert_ptr_null(p);
    for (; *words; words++)
        said(ctx, *words);
    still_serves(ctx);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    unsetenv(name);
}
#define REFUSED(name, value, target, want, ...) \
    refused(name, value, target, want, (const char *const[]){__VA_ARGS__, NULL})

START_TEST(devices)
{
    REFUSED("FP8C_EMULATOR_DEVICES", "0", "cuda", FP8C_ERR_LIBRARY, "no CUDA device",
            "sees no GPU");
    REFUSED("FP8C_EMULATOR_DEVICES", "0", "sm_90a", FP8C_ERR_LIBRARY, "no CUDA device");
    REFUSED("FP8C_EMULATOR_DRIVER", "11080", "cuda", FP8C_ERR_LIBRARY, "driver is too old", "11.8");
    REFUSED("FP8C_EMULATOR_DRIVER", "12090", "cuda", FP8C_ERR_LIBRARY, "driver is too old", "12.9",
            "13");
    REFUSED("FP8C_EMULATOR_SM", "80", "cuda", FP8C_ERR_UNSUPPORTED, "compute capability 8.0",
            "sm_89, sm_90a, ");
    REFUSED("FP8C_EMULATOR_SM", "89", "sm_90a", FP8C_ERR_UNSUPPORTED,
            "code for sm_90a can't run on device 0", "sm_89");
    REFUSED("FP8C_EMULATOR_FAIL", "cuInit::100", "cuda", FP8C_ERR_LIBRARY, "no CUDA device");
}
END_TEST

START_TEST(ordinals)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = on("cuda");
    fp8c_program *p;
    o.device = 1;
    ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_INPUT);
    said(ctx, "no CUDA device 1");
    o.device = -1;
    ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_INPUT);
    said(ctx, "device -1: an ordinal is 0 or more");
    o.device = 0;
    o.device_free = (void (*)(void *, void *, size_t))1;
    ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_INPUT);
    said(ctx, "device_alloc and device_free are a pair: give both or neither");
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(memory)
{
    REFUSED("FP8C_EMULATOR_MEMORY", "4096", "cuda", FP8C_ERR_MEMORY, "out of device memory",
            "bytes were wanted", "are free", "wte f32[16, 32] (2048)");
    for (int n = 1; n <= 4; n++) {
        char spec[32];
        snprintf(spec, sizeof spec, "cuMemAlloc:%d", n);
        REFUSED("FP8C_EMULATOR_FAIL", spec, "cuda", FP8C_ERR_MEMORY, "out of device memory",
                "wanted for");
    }
}
END_TEST

/* The compiler's own words come along; so does whose kernel it was. */
START_TEST(compilers)
{
    REFUSED("FP8C_EMULATOR_FAIL", "nvrtcCompileProgram:1:6", "cuda", FP8C_ERR_INTERNAL,
            "does not compile for sm_90a");
    REFUSED("FP8C_EMULATOR_FAIL", "nvrtcCreateProgram", "cuda", FP8C_ERR_LIBRARY,
            "nvrtcCreateProgram");
    REFUSED("FP8C_EMULATOR_FAIL", "cuModuleLoadData", "cuda", FP8C_ERR_LIBRARY, "cuModuleLoadData");
    REFUSED("FP8C_EMULATOR_FAIL", "cublasLtCreate", "cuda", FP8C_ERR_LIBRARY, "cublasLtCreate");
}
END_TEST

/* A device that fails in a run poisons the program and nothing else. */
static void fails_in_a_run(const char *spec, const char *word)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    const fp8c_compile_options o = on("cuda");
    fp8c_program *p = compile(ctx, m, &o);
    ck_assert_msg(fp8c_program_initialize(p, 1) == FP8C_OK, "%s", fp8c_context_message(ctx));
    const int step = fp8c_program_function(p, "micro_step");
    fill_batch(p, step);
    setenv("FP8C_EMULATOR_FAIL", spec, 1);
    const fp8c_status status = fp8c_program_run(p, step);
    unsetenv("FP8C_EMULATOR_FAIL");
    ck_assert_msg(status == FP8C_ERR_LIBRARY, "%s: status %d: %s", spec, (int)status,
                  fp8c_context_message(ctx));
    said(ctx, word);
    ck_assert_int_eq(fp8c_program_run(p, step), FP8C_ERR_LIBRARY);
    said(ctx, "failed on the device before");
    said(ctx, word);
    char state[4096];
    ck_assert_int_ne(fp8c_program_read(p, 0, state), FP8C_OK);
    fp8c_program_destroy(p);
    still_serves(ctx);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}

START_TEST(launches)
{
    fails_in_a_run("cuLaunchKernel:1:701", "cuLaunchKernel"); /* out of resources */
    fails_in_a_run("cuLaunchKernel:3:719", "cuLaunchKernel");
    fails_in_a_run("cublasLtMatmul", "cublasLtMatmul");
}
END_TEST

START_TEST(lost_device)
{
    fails_in_a_run("cuGraphLaunch:1:719", "CUDA_ERROR_LAUNCH_FAILED");
    fails_in_a_run("cuStreamSynchronize:1:700", "CUDA_ERROR_ILLEGAL_ADDRESS");
    fails_in_a_run("cuStreamSynchronize:1:999", "CUDA_ERROR_UNKNOWN");
}
END_TEST

/* ---- no library ---- */

START_TEST(no_library)
{
    fp8c_context_options where = {.struct_size = sizeof where,
                                  .gpu_library_path = "/nonexistent/cuda"};
    fp8c_context *ctx;
    fp8c_program *p;
    ck_assert_int_eq(fp8c_context_create(&where, &ctx), FP8C_OK);
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = on("cuda");
    for (int i = 0; i < 2; i++) { /* the second time as the first */
        ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_LIBRARY);
        said(ctx, "can't load the CUDA driver (libcuda.so.1): looked in /nonexistent/cuda, "
                  "/nonexistent/cuda/lib64");
    }
    o = on("sm_90a");
    o.no_device = 1; /* needs no driver, but the compiler */
    ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_LIBRARY);
    said(ctx, "libnvrtc.so");
    said(ctx, "looked in /nonexistent/cuda, ");
    still_serves(ctx);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* The options stand in for the environment, and "" for a variable that is not set. */
START_TEST(paths)
{
    const char *emulator = getenv("FP8C_CUDA_PATH");
    char *kept = strdup(emulator);
    const fp8c_context_options given = {.struct_size = sizeof given, .gpu_library_path = kept};
    const fp8c_context_options nowhere = {.struct_size = sizeof nowhere, .gpu_library_path = "",
                                          .cuda_home = "/nonexistent/home", .cuda_path = "",
                                          .python_env = "/nonexistent/env", .home = ""};
    const fp8c_compile_options o = on("cuda");
    fp8c_context *ctx;
    fp8c_program *p;
    unsetenv("FP8C_CUDA_PATH");
    ck_assert_int_eq(fp8c_context_create(&given, &ctx), FP8C_OK);
    fp8c_module *m = parse(ctx, model);
    p = compile(ctx, m, &o);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    setenv("FP8C_CUDA_PATH", kept, 1);
    ck_assert_int_eq(fp8c_context_create(&nowhere, &ctx), FP8C_OK);
    setenv("FP8C_CUDA_PATH", "/nonexistent/later", 1); /* read when the context was made, not now */
    m = parse(ctx, model);
    if (fp8c_compile(m, &o, &p) !=
        FP8C_OK) { /* a machine with a driver has it in the loader's path */
        said(ctx, "/nonexistent/home/lib64");
        said(ctx, "/nonexistent/env/");
        ck_assert_ptr_null(strstr(fp8c_context_message(ctx), "emulator"));
        ck_assert_ptr_null(strstr(fp8c_context_message(ctx), "later"));
    }
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    setenv("FP8C_CUDA_PATH", kept, 1);
    free(kept);
}
END_TEST

START_TEST(command_line)
{
    char *kept = strdup(getenv("FP8C_CUDA_PATH"));
    setenv("FP8C_CUDA_PATH", "/nonexistent", 1);
    static char text[4000];
    memset(text, 'a', sizeof text);
    const char *data = f8_cli_write("text", text, sizeof text);
    f8_cli_result r = F8_CLI("train", GPT, "--data", data, "--target", "cuda");
    ck_assert_int_eq(r.code, 1);
    ck_assert_str_eq(r.err, GPT
                     ": error: can't load the CUDA driver (libcuda.so.1): looked in /nonexistent, "
                     "/nonexistent/lib64, /nonexistent/lib; `fp8c doctor` says how to get it\n");
    ck_assert_str_eq(r.out, "");
    ck_assert_int_eq(F8_CLI("check", GPT).code, 0);
    r = F8_CLI("explain", GPT, "--target", "sm_90a");
    ck_assert(r.code == 1 && strstr(r.err, "libnvrtc.so"));
    setenv("FP8C_CUDA_PATH", kept, 1);
    free(kept);
}
END_TEST

/* ---- host memory ---- */

static fp8c_status life_of(const void *options, counting *c, char *message, size_t room)
{
    return whole_life(c, options, message, room);
}

/* A share of all allocations; check_api.c fails every one on the CPU. */
START_TEST(host_memory)
{
    const fp8c_compile_options options = on("cuda");
    fail_each_allocation(life_of, &options, 25);
}
END_TEST

Suite *f8_suite(void)
{
    if (!f8_test_gpu_emulated()) {
        test_skip("failures of a GPU", "a GPU does not fail on request");
        return NULL;
    }
    setenv("FP8C_CACHE_DIR", "", 1); /* the compiler is to fail: so it must be asked */
    Suite *s = suite_create("cuda failures");
    TCase *t = tcase_create("cuda failures");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_test(t, devices);
    tcase_add_test(t, ordinals);
    tcase_add_test(t, memory);
    tcase_add_test(t, compilers);
    tcase_add_test(t, launches);
    tcase_add_test(t, lost_device);
    tcase_add_test(t, no_library);
    tcase_add_test(t, paths);
    tcase_add_test(t, command_line);
    tcase_add_test(t, host_memory);
    suite_add_tcase(s, t);
    return s;
}
