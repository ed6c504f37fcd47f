/* A burn finds what computes wrong, and nothing where all is right: through fp8c_diagnose.h, as
 * `fp8c doctor --burn`, and with a kernel that the test makes wrong (tests/faults/flip_kernel.c).
 */
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/fp8c.h"
#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_machine.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/stub_library.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 120 };

static const char shortest[] = "0.01"; /* one round */

static void setup(void)
{
    f8_cli_setup();
    f8_stub_setup();
    setenv("FP8C_CUDA_PATH", f8_cli_temp("nothing"), 1); /* what a machine has is not the tests' */
}

static void teardown(void)
{
    f8_stub_teardown();
    f8_cli_teardown();
}

static void says(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "'%s' is not in: %s", part, text);
}

/* The records of a command's output, each with an event. */
static json_t *records(const char *text)
{
    json_t *all = json_array();
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        json_t *r = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        ck_assert_msg(r != NULL, "no JSON: %s", line);
        json_array_append_new(all, r);
    }
    return all;
}

static const json_t *record(const json_t *all, const char *event, const char *name)
{
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *r = json_array_get(all, i);
        const char *its = json_string_value(json_object_get(r, "name"));
        if (!strcmp(json_string_value(json_object_get(r, "event")), event) &&
            (!name || (its && !strcmp(its, name))))
            return r;
    }
    ck_abort_msg("no record %s of %s", event, name ? name : "any name");
}

static json_int_t number(const json_t *r, const char *field)
{
    const json_t *value = json_object_get(r, field);
    ck_assert_msg(json_is_integer(value), "%s is no integer", field);
    return json_integer_value(value);
}

/* ---- through fp8c_diagnose.h ---- */

static int heard, limit;

static int progress(void *user, const fp8c_progress *p)
{
    (void)user;
    if (strcmp(p->phase, "burn") != 0)
        return 0;
    ck_assert(p->done <= p->total && (p->done < p->total) == (*p->item != 0));
    return ++heard > limit;
}

static fp8c_context *context(void)
{
    const fp8c_context_options options = {.struct_size = sizeof options, .progress = progress};
    fp8c_context *ctx;
    heard = 0;
    limit = 1 << 30;
    ck_assert_int_eq(fp8c_context_create(&options, &ctx), FP8C_OK);
    return ctx;
}

static fp8c_burn_info burn(fp8c_context *ctx, const fp8c_burn_options *options, fp8c_burn **b)
{
    fp8c_burn_info info = {.struct_size = sizeof info};
    ck_assert_msg(fp8c_doctor_burn(ctx, options, b) == FP8C_OK, "%s", fp8c_context_message(ctx));
    fp8c_burn_report(*b, &info);
    return info;
}

/* Each kind of work is there, and was compared in each round. */
START_TEST(all_is_right)
{
    static const char *const kinds[] = {
        "GEMM f32 fprop",   "GEMM bf16 dgrad",  "GEMM current wgrad",
        "GEMM block fprop", "GEMM mxfp8 wgrad", "attention",
        "softmax",          "layernorm",        "quantize",
        "sum_of_columns",   "parameter"};
    const fp8c_burn_options options = {
        .struct_size = sizeof options, .threads = 2, .seconds = 0.01};
    fp8c_context *ctx = context();
    fp8c_burn *b;
    const fp8c_burn_info info = burn(ctx, &options, &b);
    fp8c_burn_result r = {.struct_size = sizeof r};
    size_t found = 0;
    int64_t comparisons = 0;
    ck_assert(info.finished && !info.failure && info.rounds >= 1 && info.wrong == 0);
    ck_assert_str_eq(info.target, "cpu");
    ck_assert(info.threads == 2 && info.seconds > 0 && info.busy > 0 && info.bytes > 0);
    ck_assert(info.first_flops > 0 && info.last_flops > 0);
    for (int i = 0; fp8c_burn_result_at(b, i, &r) == FP8C_OK; i++) {
        ck_assert_msg(!r.skipped && r.comparisons == info.rounds, "%s", r.name);
        ck_assert(*r.step && !r.wrong && !r.first && !r.first_round);
        comparisons += r.comparisons;
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            found += !strcmp(r.name, kinds[k]);
    }
    ck_assert_int_eq(comparisons, info.comparisons);
    ck_assert_uint_eq(found, sizeof kinds / sizeof *kinds);
    ck_assert_int_gt(heard, 1);
    fp8c_burn_destroy(b);
    fp8c_context_destroy(ctx);
}
END_TEST

/* What was counted before the callback said stop is kept. */
START_TEST(stopped_early)
{
    const fp8c_burn_options options = {.struct_size = sizeof options, .seconds = 1000};
    fp8c_context *ctx = context();
    fp8c_burn *b;
    limit = 3; /* three jobs: nine results of GEMMs */
    const fp8c_burn_info info = burn(ctx, &options, &b);
    ck_assert(!info.finished && !info.failure && info.rounds == 0 && info.wrong == 0);
    ck_assert_int_eq(info.comparisons, 9);
    fp8c_burn_destroy(b);
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(wrong_options)
{
    static const struct {
        fp8c_burn_options options;
        const char *says;
    } bad[] = {
        {{.struct_size = 0}, "struct_size"},
        {{.struct_size = sizeof(fp8c_burn_options), .seconds = -1}, "seconds is -1"},
        {{.struct_size = sizeof(fp8c_burn_options), .threads = 257}, "threads is 257"},
        {{.struct_size = sizeof(fp8c_burn_options), .target = "abacus"}, "abacus"},
        {{.struct_size = sizeof(fp8c_burn_options), .target = "cuda"}, "libcuda.so.1"},
    };
    fp8c_context *ctx = context();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fp8c_burn *b;
        ck_assert_int_ne(fp8c_doctor_burn(ctx, &bad[i].options, &b), FP8C_OK);
        ck_assert_ptr_null(b);
        says(fp8c_context_message(ctx), bad[i].says);
    }
    fp8c_burn_destroy(NULL);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- as a command ---- */

START_TEST(the_command)
{
    const f8_cli_result r = F8_CLI("doctor", "--burn", shortest);
    f8_cli_ok(r);
    says(r.out, "  GEMM current dgrad       w.dgrad ");
    says(r.out, " 0 wrong\n");
    says(r.out, "cpu: no result was wrong\n");
    f8_cli_fails(F8_CLI("doctor", "--burn", shortest, "--target", "cuda"), 1,
                 "error: cuda can't burn: the CUDA driver: ");
    f8_cli_fails(F8_CLI("doctor", "--threads", "1"), 2, "without --burn");
    f8_cli_fails(F8_CLI("doctor", "--burn", "0"), 2, "bad value for --burn");
}
END_TEST

START_TEST(interrupted)
{
    static const char *const args[] = {"doctor", "--burn", "1000", NULL};
    const f8_cli_signal signals[] = {{.number = SIGINT, .caught = true, .pause = 1500000}, {0}};
    const f8_cli_result r = f8_cli_run_signals(signals, args);
    ck_assert_int_eq(r.code, 128 + SIGINT);
    says(r.err, "interrupted");
    /* While it prepares it has counted nothing. */
    ck_assert_msg(strstr(r.out, "stopped early") || !*r.out, "%s", r.out);
    ck_assert_ptr_null(strstr(r.out, "WRONG"));
}
END_TEST

/* sm_90 has no scales of MX: that is said, and is no failure. */
START_TEST(emulated_gpu)
{
    unsetenv("FP8C_CUDA_PATH");
    f8_test_gpu_emulated();
    const f8_cli_result r = F8_CLI("doctor", "--burn", shortest, "--target", "cuda", "--json", "-");
    f8_cli_ok(r);
    json_t *all = records(r.out);
    const json_t *info = record(all, "burn", NULL);
    ck_assert_int_eq(number(info, "wrong"), 0);
    ck_assert_int_ge(number(info, "rounds"), 1);
    ck_assert_int_eq(number(record(all, "burn_result", "GEMM block wgrad"), "comparisons"),
                     number(info, "rounds"));
    says(json_string_value(json_object_get(record(all, "burn_result", "GEMM mxfp8"), "skipped")),
         "scales of MX exist on sm_100a and sm_120a");
    ck_assert(json_is_true(json_object_get(record(all, "summary", NULL), "works")));
    json_decref(all);
}
END_TEST

START_TEST(a_gpu_that_fails)
{
    unsetenv("FP8C_CUDA_PATH");
    f8_test_gpu_emulated();
    setenv("FP8C_EMULATOR_FAIL", "cuGraphLaunch:3:719", 1);
    const f8_cli_result r = F8_CLI("doctor", "--burn", shortest, "--target", "cuda");
    ck_assert_int_eq(r.code, 1);
    says(r.out, "  a run FAILED: ");
    says(r.out, "cuda: something is WRONG\n");
}
END_TEST

/* Results come from the GPU's memory: of those with as many bytes as a softmax each is damaged. */
START_TEST(a_wrong_gpu)
{
    static const char driver[] =
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stddef.h>\n"
        "int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, void *s)\n{\n"
        "    __typeof__(&cuMemcpyDtoHAsync_v2) real = dlsym(RTLD_NEXT, \"cuMemcpyDtoHAsync_v2\");\n"
        "    const int r = real(to, from, bytes, s);\n"
        "    if (!r && bytes == 144 * 128 * 4)\n"
        "        ((unsigned char *)to)[bytes - 2] ^= 1;\n    return r;\n}\n";
    unsetenv("FP8C_CUDA_PATH");
    f8_test_gpu_emulated();
    f8_stub_over_emulator("driver", driver);
    const f8_cli_result r = F8_CLI("doctor", "--burn", shortest, "--target", "cuda", "--json", "-");
    ck_assert_int_eq(r.code, 1);
    json_t *all = records(r.out);
    const json_t *bad = record(all, "burn_result", "softmax");
    ck_assert_int_eq(number(bad, "wrong"), number(bad, "comparisons"));
    ck_assert_int_eq(number(bad, "first_element"), 144 * 128 - 1);
    says(json_string_value(json_object_get(bad, "first")), "[143, 127] is ");
    ck_assert_int_eq(number(record(all, "burn_result", "GEMM f32 wgrad"), "wrong"), 0);
    json_decref(all);
}
END_TEST

/* ---- a kernel that computes wrong ---- */

static json_t *burn_wrong(const char *kernel, const char *once)
{
    const char *fp8c = "fp8c_wrong_kernel";
    char path[512];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    ck_assert(n > 0);
    path[n] = 0;
    strcpy(strrchr(path, '/') + 1, fp8c);
    setenv("FP8C", path, 1);
    setenv("FP8C_TEST_FLIP_KERNEL", kernel, 1);
    if (once)
        setenv("FP8C_TEST_FLIP_ONCE", once, 1);
    const f8_cli_result r = F8_CLI("doctor", "--burn", shortest, "--target", "cpu", "--json", "-");
    ck_assert_int_eq(r.code, strcmp(kernel, "no kernel") != 0);
    ck_assert_str_eq(r.err, "");
    return records(r.out);
}

START_TEST(a_wrong_kernel)
{
    json_t *all = burn_wrong("embedding of g", _i ? "1" : NULL);
    const json_t *info = record(all, "burn", NULL), *bad = record(all, "burn_result", "embedding"),
                 *good = record(all, "burn_result", "softmax");
    const char *first = json_string_value(json_object_get(bad, "first"));
    ck_assert_int_eq(number(bad, "wrong"), _i ? 1 : number(info, "rounds"));
    ck_assert_int_eq(number(info, "wrong"), number(bad, "wrong"));
    ck_assert_int_eq(number(good, "wrong"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(bad, "step")), "embedding of g");
    ck_assert_int_eq(number(bad, "first_round"), 1);
    ck_assert_int_eq(number(bad, "first_element"), 3);
    ck_assert_int_eq(number(bad, "first_count"), 1);
    says(first, "round 1: [0, 3] is ");
    says(first, "; 1 of ");
    ck_assert(json_is_false(json_object_get(record(all, "summary", NULL), "works")));
    json_decref(all);
}
END_TEST

/* The program alone, without a fault, is right. */
START_TEST(no_wrong_kernel)
{
    json_t *all = burn_wrong("no kernel", NULL);
    ck_assert_int_eq(number(record(all, "burn", NULL), "wrong"), 0);
    json_decref(all);
}
END_TEST

/* The reference has the known answers, too, to the bit. */
START_TEST(the_reference)
{
    const f8_cli_result r =
        F8_CLI("doctor", "--burn", shortest, "--target", "reference", "--json", "-");
    json_t *all = records(r.out);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *first = json_object_get(json_array_get(all, i), "first");
        ck_assert_msg(!first || json_is_null(first), "%s: %s",
                      json_string_value(json_object_get(json_array_get(all, i), "name")),
                      json_string_value(first));
    }
    ck_assert_int_eq(number(record(all, "burn", NULL), "wrong"), 0);
    ck_assert_int_eq(r.code, 0);
    json_decref(all);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("burn");
    TCase *t = tcase_create("burn");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, all_is_right);
    tcase_add_test(t, stopped_early);
    tcase_add_test(t, wrong_options);
    tcase_add_test(t, the_command);
    tcase_add_test(t, interrupted);
    tcase_add_test(t, emulated_gpu);
    tcase_add_test(t, a_gpu_that_fails);
    tcase_add_test(t, a_wrong_gpu);
    tcase_add_test(t, the_reference);
    tcase_add_loop_test(t, a_wrong_kernel, 0, 2);
    tcase_add_test(t, no_wrong_kernel);
    suite_add_tcase(s, t);
    return s;
}
