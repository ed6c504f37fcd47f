/* What a run and its triage load: if all kernels are in the cache, nothing needs LLVM (44 MB). */
#include <glob.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/shared/api/train_case.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 300 };

/* Each test has a cache of its own, which is empty at first. */
static void setup(void)
{
    unsetenv("FP8C_CACHE_DIR");
    train_setup("lr = 1e-2");
}

/* Whether a run of the command loads a library whose name begins with `name`, by the words of the
 * dynamic loader. The run ends well and warns of nothing. */
static bool loads(const char *name, const char *const *args)
{
    const char *prefix = f8_cli_temp("loader");
    char pattern[PATH + 100];
    glob_t reports;
    size_t n;
    snprintf(pattern, sizeof pattern, "%s.*", prefix);
    ck_assert(!setenv("LD_DEBUG", "files", 1) && !setenv("LD_DEBUG_OUTPUT", prefix, 1));
    const f8_cli_result r = f8_cli_run(args);
    ck_assert(!unsetenv("LD_DEBUG") && !unsetenv("LD_DEBUG_OUTPUT"));
    ck_assert_msg(r.code == 0 && !strstr(r.err, "warning"), "exit code %d: %s", r.code, r.err);
    ck_assert_int_eq(glob(pattern, 0, NULL, &reports), 0);
    bool found = false, any = false;
    for (size_t i = 0; i < reports.gl_pathc; i++) {
        char *text = f8_cli_read(reports.gl_pathv[i], &n);
        /* its own report: the compiler that the emulator starts writes one, too */
        if (strstr(text, "libjansson.so")) {
            any = true;
            found = found || strstr(text, name);
        }
        free(text);
        ck_assert(!unlink(reports.gl_pathv[i]));
    }
    globfree(&reports);
    ck_assert_msg(any, "the loader does not say what it loads");
    return found;
}

static json_t *versions(void)
{
    json_t *info = json_load_file(in(folder, "run.json"), 0, NULL),
           *all = json_incref(json_object_get(info, "versions"));
    ck_assert(json_is_string(json_object_get(all, "fp8c")));
    json_decref(info);
    return all;
}

static const char *const begin[] = {"train", file,   "--data",    data, "--steps", "3",
                                    "--run", folder, "--stop-at", "2",  NULL};

START_TEST(cpu)
{
    ck_assert(loads("libLLVM", begin)); /* it compiles */
    json_t *first = versions();
    const char *llvm = json_string_value(json_object_get(first, "LLVM 19"));
    ck_assert(llvm && !strncmp(llvm, "19.", 3) && strstr(llvm, ", for "));
    ck_assert(json_is_string(json_object_get(first, "oneDNN 2")));
    f8_cli_forget(folder);
    ck_assert_msg(!loads("libLLVM", begin), "a run that compiles nothing loads LLVM");
    json_t *second = versions();
    ck_assert(json_equal(first, second));
    json_decref(first);
    json_decref(second);
    ck_assert_msg(!loads("libLLVM", (const char *const[]){"train", "--resume", folder, NULL}),
                  "a run that goes on loads LLVM");
}
END_TEST

START_TEST(triage)
{
    const char *const args[] = {"triage", folder, "--step", "1", NULL};
    loads("libLLVM", begin);
    loads("libLLVM", args); /* it compiles with a witness */
    ck_assert_msg(!loads("libLLVM", args), "triage loads LLVM");
}
END_TEST

START_TEST(reference)
{
    const char *const args[] = {"train", file,   "--data",   data,        "--steps", "1",
                                "--run", folder, "--target", "reference", NULL};
    ck_assert_msg(!loads("libLLVM", args), "target reference loads LLVM");
    json_t *all = versions();
    ck_assert_int_eq((int)json_object_size(all), 1);
    json_decref(all);
}
END_TEST

START_TEST(gpu)
{
    const char *const args[] = {"train", file,   "--data",   data,   "--steps", "1",
                                "--run", folder, "--target", "cuda", NULL};
    f8_test_gpu_emulated();
    ck_assert_msg(!loads("libLLVM", args), "target cuda loads LLVM");
    json_t *all = versions();
    ck_assert(json_is_string(json_object_get(all, "NVRTC")));
    ck_assert(!json_object_get(all, "LLVM 19") && !json_object_get(all, "oneDNN 2"));
    json_decref(all);
}
END_TEST

Suite *f8_suite(void)
{
    const TTest *const tests[] = {cpu, triage, reference, gpu};
    static const char *const names[] = {"cpu", "triage", "reference", "gpu"};
    Suite *s = suite_create("loads");
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        TCase *t = tcase_create(names[i]);
        tcase_set_timeout(t, TIMEOUT);
        tcase_add_checked_fixture(t, setup, train_teardown);
        tcase_add_test(t, tests[i]);
        suite_add_tcase(s, t);
    }
    return s;
}
