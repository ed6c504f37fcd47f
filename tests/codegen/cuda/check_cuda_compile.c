/* `fp8c compile` for CUDA targets, as a user runs it. Printing CUDA text needs no library. Code and
 * reports need NVRTC; without it those tests are skipped. Options that contradict each other are
 * refused. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/shared/api/cli.h"
#include "tests/shared/cuda/cuda_plan.h"
#include "tests/shared/suite.h"

#define MODEL "frontend/models/gpt.f8"
#define SMALL_DIMS "-D", "L=1"
#define SMALL SMALL_DIMS, "--threads", "2"

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

START_TEST(wrong_options)
{
    static const struct {
        const char *args[8], *message;
    } wrong[] = {
        {{"compile", MODEL}, "--target must name a GPU"},
        {{"compile", MODEL, "--target", "cpu"}, "--target must name a GPU"},
        {{"compile", MODEL, "--target", "sm_90a", "--emit", "sass"},
         "--emit takes llvm, cuda, ptx, cubin or report, not 'sass'; see"},
        {{"compile", MODEL, "--target", "sm_90a", "--emit", "cuba"},
         "not 'cuba' (did you mean 'cuda'?)"},
        {{"compile", MODEL, "--target", "sm_90a", "--emit", "llvm"},
         "--emit llvm writes a CPU's kernels: --target sm_90a has none"},
        {{"compile", MODEL, "--target=sm_90a", "--emit=cuda", "--json=-"},
         "--json needs --emit report"},
        {{"compile", MODEL, "--target=sm_90a", "--json=-", "-o", "x"},
         "the report goes to one place"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const f8_cli_result r = f8_cli_run(wrong[i].args);
        ck_assert_int_eq(r.code, 2);
        ck_assert_uint_eq(r.n_out, 0);
        ck_assert_msg(strstr(r.err, wrong[i].message) != NULL, "%s", r.err);
    }
    const f8_cli_result r = F8_CLI("compile", MODEL, "--target", "sm_70");
    ck_assert_int_eq(r.code, 1);
    ck_assert_ptr_nonnull(strstr(r.err, "sm_70"));
}
END_TEST

START_TEST(texts_need_no_library)
{
    setenv("FP8C_CUDA_PATH", "/no/such/folder", 1);
    f8_cli_result r = F8_CLI("compile", MODEL, "--target", "sm_90a", "--emit", "cuda", SMALL);
    ck_assert_msg(r.code == 0, "%s", r.err);
    ck_assert_int_eq(count(r.out, "#include"), 0);
    ck_assert_int_eq(count(r.out, "#define FP8C_CUH\n"), 1);
    const int kernels = count(r.out, "\nF8_KERNEL(");
    ck_assert_int_gt(kernels, 30);
    ck_assert_int_gt(count(r.out, "F8_KERNEL(attention_"), 1);
    const char *path = f8_cli_temp("kernels.cu");
    char *first = strdup(r.out);
    r = F8_CLI("compile", MODEL, "--target", "sm_90a", "--emit", "cuda", "-o", path, SMALL);
    ck_assert_int_eq(r.code, 0);
    ck_assert_uint_eq(r.n_out, 0);
    size_t n;
    char *text = f8_cli_read(path, &n);
    ck_assert_str_eq(text, first);
    free(text);
    free(first);
    static const char *const compiled[] = {"ptx", "cubin", "report"};
    for (int i = 0; i < 3; i++) {
        r = F8_CLI("compile", MODEL, "--target", "sm_90a", "--emit", compiled[i], SMALL);
        ck_assert_int_eq(r.code, 1);
        ck_assert_uint_eq(r.n_out, 0);
        ck_assert_msg(strstr(r.err, "nvrtc") && strstr(r.err, "/no/such/folder"), "%s", r.err);
    }
    r = F8_CLI("print", MODEL, "--target", "sm_90a", "--print-after", "legalize", SMALL_DIMS);
    ck_assert_msg(r.code == 0 && strstr(r.out, "func micro_step"), "%s", r.err);
    unsetenv("FP8C_CUDA_PATH");
}
END_TEST

/* NVRTC gets the text alone, and nothing beside it. */
START_TEST(texts_compile_alone)
{
    static const char *const targets[] = {"sm_90a", "sm_100a"}, *const recipes[] = {"delayed",
                                                                                    "mxfp8"};
    f8_cuda *toolkit;
    if (!cuda_plan_compiler(&toolkit)) {
        f8_cuda_destroy(toolkit);
        return;
    }
    for (int i = 0; i < 2; i++) {
        f8_arena arena;
        f8_nvrtc_result result;
        f8_diag d = {0};
        const f8_cli_result r =
            F8_CLI("compile", MODEL, "--target", targets[i], "--emit", "cuda", "--recipe",
                   recipes[i], "-D", "L=1", "-D", "C=64", "-D", "H=2");
        ck_assert_msg(r.code == 0, "%s", r.err);
        f8_arena_init(&arena, NULL);
        ck_assert_msg(f8_cuda_compile(toolkit, r.out, "kernels.cu", NULL, NULL, targets[i],
                                      (f8_nvrtc_options){.fast = true}, &arena, &result,
                                      &d) == F8_OK,
                      "%s: %s", targets[i], d.text);
        ck_assert_uint_gt(result.cubin_size, 1000);
        f8_arena_end(&arena);
    }
    f8_cuda_destroy(toolkit);
}
END_TEST

START_TEST(nowhere_to_write)
{
    const f8_cli_result r = F8_CLI("compile", MODEL, "--target", "sm_90a", "--emit", "cuda", "-o",
                                   "/no/such/folder/kernels.cu", SMALL);
    ck_assert_int_eq(r.code, 1);
    ck_assert_ptr_nonnull(strstr(r.err, "/no/such/folder/kernels.cu"));
}
END_TEST

/* A disk that fills up on the way leaves no part of a text behind. */
START_TEST(no_half_file)
{
    const char *path = f8_cli_temp("half.cu");
    struct rlimit before, little;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    little = before;
    little.rlim_cur = 16384;
    signal(SIGXFSZ, SIG_IGN); /* as the command inherits it: writing fails */
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &little), 0);
    f8_cli_result r =
        F8_CLI("compile", MODEL, "--target", "sm_90a", "--emit", "cuda", "-o", path, SMALL);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    ck_assert_int_eq(r.code, 1);
    ck_assert_msg(strstr(r.err, "half.cu: error: File too large") != NULL, "%s", r.err);
    ck_assert_int_ne(access(path, F_OK), 0);
    r = F8_CLI("compile", MODEL, "--target", "sm_90a", "--emit", "cuda", "-o", "/dev/full", SMALL);
    ck_assert_int_eq(r.code, 1);
    ck_assert_msg(strstr(r.err, "/dev/full: error: No space left on device") != NULL, "%s", r.err);
    ck_assert_int_eq(access("/dev/full", F_OK), 0);
}
END_TEST

/* Whether NVRTC was found; its absence is said. */
static bool compiled(const f8_cli_result *r)
{
    if (r->code == 0)
        return true;
    ck_assert_int_eq(r->code, 1);
    ck_assert_msg(strstr(r->err, "nvrtc") != NULL, "%s", r->err);
    test_skip("compiling for a GPU", "%.*s (PyPI: nvidia-cuda-nvrtc)", (int)strcspn(r->err, "\n"), r->err);
    return false;
}

START_TEST(code)
{
    f8_cli_result r = F8_CLI("compile", MODEL, "--target", "sm_89", "--emit", "cubin", SMALL);
    if (!compiled(&r))
        return;
    ck_assert_uint_gt(r.n_out, 1000);
    ck_assert(!memcmp(r.out,
                      "\x7f"
                      "ELF",
                      4));
    ck_assert_int_eq(count(r.out + 4, "\x7f"
                                      "ELF"),
                     0); /* one image */
    r = F8_CLI("compile", MODEL, "--target", "sm_89", "--emit", "ptx", SMALL);
    ck_assert_int_eq(r.code, 0);
    ck_assert_int_eq(count(r.out, ".target sm_89"), 1);
    ck_assert_int_gt(count(r.out, ".visible .entry"), 30);
}
END_TEST

START_TEST(report)
{
    const f8_cli_result r = F8_CLI("compile", MODEL, "--target", "sm_90a", "--json", "-", SMALL);
    if (!compiled(&r))
        return;
    int kernels = 0, total = 0;
    json_int_t launches = 0;
    for (char *line = strtok(r.out, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *record = json_loads(line, 0, NULL);
        ck_assert_msg(record != NULL, "%s", line);
        const char *event = json_string_value(json_object_get(record, "event"));
        ck_assert_ptr_nonnull(event);
        if (!strcmp(event, "kernel")) {
            kernels++;
            launches += json_integer_value(json_object_get(record, "launches"));
            ck_assert_int_gt(json_integer_value(json_object_get(record, "registers")), 0);
            ck_assert_int_gt(json_integer_value(json_object_get(record, "threads")), 0);
            ck_assert_ptr_nonnull(json_string_value(json_object_get(record, "symbol")));
        } else {
            ck_assert_str_eq(event, "kernels");
            ck_assert_str_eq(json_string_value(json_object_get(record, "target")), "sm_90a");
            total = (int)json_integer_value(json_object_get(record, "distinct_kernels"));
            ck_assert_int_eq(json_integer_value(json_object_get(record, "launches")), launches);
        }
        json_decref(record);
    }
    ck_assert_int_gt(kernels, 30);
    ck_assert_int_eq(kernels, total);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_compile");
    TCase *t = tcase_create("compile");
    tcase_set_timeout(t, 600);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_test(t, wrong_options);
    tcase_add_test(t, texts_need_no_library);
    tcase_add_test(t, texts_compile_alone);
    tcase_add_test(t, nowhere_to_write);
    tcase_add_test(t, no_half_file);
    tcase_add_test(t, code);
    tcase_add_test(t, report);
    suite_add_tcase(s, t);
    return s;
}
