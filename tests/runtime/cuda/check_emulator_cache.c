/* The emulator's cache of compiled kernels: a kernel is compiled once, whichever text it comes in;
 * a change of anything that it uses compiles it again, and what runs is the changed one; what does
 * not compile is refused, also beside kernels that are cached; many processes fill one cache. */
#include "tests/shared/cuda/emulator.h"
#include "tests/shared/suite.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static emu e;
static int64_t (*compiler_runs)(void);

static void setup(void)
{
    emu_open(&e);
    void *lib = dlopen("build/emulator/libnvrtc.so.13", RTLD_NOW | RTLD_LOCAL);
    ck_assert_ptr_nonnull(lib);
    *(void **)&compiler_runs = dlsym(lib, "f8_emulator_compiler_runs");
    ck_assert_ptr_nonnull(compiler_runs);
}

static void teardown(void)
{
    emu_close(&e);
}

/* ---- texts ---- */

/* Kernel "sum" uses all of this but `aside`; kernel "other" uses `deep` alone. No two runs of the
 * test have the same SALT, so nothing is cached before. */
static const char parts[] = "#include \"fp8c.cuh\"\n"
                            "#define ADDED 100\n"
                            "/* A comment; with \"quotes { and 'braces. */\n"
                            "enum { SALT = %s, IN_ENUM = 1000 };\n"
                            "typedef struct pair { f8_i64 first, second; } pair;\n"
                            "static constexpr f8_i64 constant = 10000;\n"
                            "template <int S> F8_DEV f8_i64 times(f8_i64 x) { return S * x; }\n"
                            "template <> F8_DEV f8_i64 times<3>(f8_i64 x) { return 300000 * x; }\n"
                            "F8_DEV f8_i64 deep(f8_i64 x) { return x + 2000000; }\n"
                            "F8_DEV f8_i64 shallow(f8_i64 x)\n{\n    return deep(x);\n}\n"
                            "F8_DEV f8_i64 by_type(f8_i64 x) { return x; }\n"
                            "F8_DEV f8_i64 by_type(float x) { return (f8_i64)x + 10000000; }\n"
                            "F8_DEV f8_i64 aside(f8_i64 x) { return x + SALT; }\n";
static const char sum_kernel[] = "struct sum_params { f8_i64 *to; f8_i64 x; };\n"
                                 "F8_KERNEL(sum, 32, 1)\n"
                                 "{\n"
                                 "    F8_SHARED(f8_i64, kept, 1);\n"
                                 "    const pair two = {ADDED + IN_ENUM, constant + times<3>(1)};\n"
                                 "    if (f8_thread() == 0) {\n"
                                 "        kept[0] = two.first + two.second + shallow(0) + "
                                 "by_type(1.0f) + (f8_i64)f8_abs(-1.0f);\n"
                                 "        p.to[0] = kept[0] + SALT - SALT + p.x;\n"
                                 "    }\n"
                                 "}\n";
static const char other_kernel[] =
    "struct other_params { f8_i64 *to; f8_i64 x; };\n"
    "F8_KERNEL(other, 32, 1)\n{\n    p.to[0] = deep(p.x) + SALT - SALT;\n}\n";
enum { SUM = 12311102, OTHER = 2000000 };

/* Of the text, with `old` replaced by `new` once. The caller frees. */
static char *text_of(bool sum, bool other, const char *old, const char *new)
{
    char *text, *changed, salt[32];
    snprintf(salt, sizeof salt, "%d", (int)getpid());
    const char *at = strstr(parts, "%s");
    ck_assert_int_gt(asprintf(&text, "%.*s%s%s%s%s", (int)(at - parts), parts, salt, at + 2,
                              sum ? sum_kernel : "", other ? other_kernel : ""),
                     0);
    if (!old)
        return text;
    const char *place = strstr(text, old);
    ck_assert_msg(place != NULL, "%s", old);
    ck_assert_int_gt(
        asprintf(&changed, "%.*s%s%s", (int)(place - text), text, new, place + strlen(old)), 0);
    free(text);
    return changed;
}

/* Compiles and runs: how often the compiler ran. */
static int64_t run(char *text, const char *kernel, int64_t *result)
{
    const int64_t before = compiler_runs();
    const CUdeviceptr to = emu_alloc(&e, 8);
    struct {
        CUdeviceptr to;
        int64_t x;
    } p = {to, 0};
    ck_assert_int_eq(emu_run(&e, text, kernel, 1, 32, 0, &p), 0);
    emu_download(&e, result, to, 8);
    ck_assert_int_eq(e.cu.cuMemFree_v2(to), 0);
    free(text);
    return compiler_runs() - before;
}

/* ---- tests ---- */

START_TEST(once_for_all_texts)
{
    int64_t got;
    ck_assert_int_eq(run(text_of(true, true, NULL, NULL), "sum", &got), 1);
    ck_assert_int_eq(got, SUM);
    ck_assert_int_eq(run(text_of(true, true, NULL, NULL), "other", &got), 0);
    ck_assert_int_eq(got, OTHER);
    ck_assert_int_eq(run(text_of(true, false, NULL, NULL), "sum", &got), 0);
    ck_assert_int_eq(got, SUM);
    ck_assert_int_eq(run(text_of(false, true, NULL, NULL), "other", &got), 0);
    ck_assert_int_eq(got, OTHER);
    /* Comments and spaces are no part of a kernel. */
    ck_assert_int_eq(run(text_of(true, true, "A comment", "Another"), "sum", &got), 0);
    ck_assert_int_eq(
        run(text_of(true, true, "    return deep", "\n  return /* it */ deep"), "sum", &got), 0);
    ck_assert_int_eq(got, SUM);
}
END_TEST

/* What is changed, and what each kernel gives then. */
static const struct {
    const char *old, *new;
    int64_t sum, other; /* 0: it is not compiled again */
} changes[] = {
    {"ADDED 100", "ADDED 200", SUM + 100, OTHER}, /* a line of the preprocessor is in every key */
    {"IN_ENUM = 1000", "IN_ENUM = 3000", SUM + 2000, OTHER},
    {"constant = 10000", "constant = 20000", SUM + 10000, 0},
    {"return 300000", "return 400000", SUM + 100000, 0},
    {"x + 2000000", "x + 3000000", SUM + 1000000, OTHER + 1000000},
    {"return deep(x)", "return deep(x) + 1", SUM + 1, 0},
    {"(f8_i64)x + 10000000", "(f8_i64)x + 20000000", SUM + 10000000, 0},
    {"F8_DEV f8_i64 by_type(f8_i64 x) {", "F8_DEV f8_i64 by_type(f8_i64 x, int = 0) {", SUM, 0},
    {"first, second;", "second, first;", SUM, 0},
    {"struct sum_params { f8_i64 *to; f8_i64 x;", "struct sum_params { f8_i64 *to; f8_u64 x;", SUM,
     0},
    {"kept, 1)", "kept, 2)", SUM, 0},
    {"kept[0] + SALT", "kept[0] + 7 + SALT", SUM + 7, 0},
    {"deep(p.x) + SALT", "deep(p.x) + 5 + SALT", 0, OTHER + 5},
};

START_TEST(a_change_compiles_again)
{
    int64_t got;
    run(text_of(true, true, NULL, NULL), "sum", &got);
    const char *old = changes[_i].old, *new = changes[_i].new;
    ck_assert_int_eq(run(text_of(true, true, old, new), "sum", &got), 1);
    ck_assert_int_eq(got, changes[_i].sum ? changes[_i].sum : SUM);
    ck_assert_int_eq(run(text_of(true, true, old, new), "other", &got), 0);
    ck_assert_int_eq(got, changes[_i].other ? changes[_i].other : OTHER);
    /* The kernel that does not use it was taken from the cache. */
    if (!changes[_i].other)
        ck_assert_int_eq(run(text_of(false, true, NULL, NULL), "other", &got), 0);
    /* And what was there before still is. */
    ck_assert_int_eq(run(text_of(true, true, NULL, NULL), "sum", &got), 0);
    ck_assert_int_eq(got, SUM);
}
END_TEST

static int compile(char *text, char *log, size_t room)
{
    nvrtcProgram p;
    size_t bytes;
    const char *options[] = {"--gpu-architecture=sm_90a", "--fmad=false"};
    const char *header = "", *name = "fp8c.cuh";
    ck_assert_int_eq(e.rtc.nvrtcCreateProgram(&p, text, "it.cu", 1, &header, &name), 0);
    const int r = e.rtc.nvrtcCompileProgram(p, 2, options);
    ck_assert_int_eq(e.rtc.nvrtcGetProgramLogSize(p, &bytes), 0);
    ck_assert_uint_le(bytes, room);
    ck_assert_int_eq(e.rtc.nvrtcGetProgramLog(p, log), 0);
    e.rtc.nvrtcDestroyProgram(&p);
    free(text);
    return r;
}

START_TEST(errors_beside_cached_kernels)
{
    static char log[65536];
    int64_t got;
    static const char *const wrong[][3] = {
        /* A function that no kernel uses, a line, a kernel, a kernel twice; each with its line. */
        {"{ return x + SALT; }", "{ return y; }", "it.cu:16"},
        {"#define ADDED", "#include <stdio.h>\n#define ADDED", "it.cu:2"},
        {"p.to[0] = deep(p.x) + SALT", "p.to[0] = missing(p.x) + SALT", "it.cu:30"},
        {"#define ADDED 100", "#define ADDED 100 )", "it.cu:"},
        {"F8_KERNEL(other, 32, 1)", "F8_KERNEL(sum, 32, 1)", "it.cu:"},
        {"struct other_params", "struct pair", "it.cu:"},
    };
    run(text_of(true, true, NULL, NULL), "sum", &got);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (int again = 0; again < 2; again++) {
            char *text = text_of(true, true, wrong[i][0], wrong[i][1]);
            ck_assert_msg(compile(text, log, sizeof log) == NVRTC_ERROR_COMPILATION, "%s",
                          wrong[i][1]);
            ck_assert_msg(strstr(log, wrong[i][2]) != NULL, "%s, not %s", log, wrong[i][2]);
        }
}
END_TEST

/* Processes that compile the same and different kernels at the same time; each runs what it asked
 * for. */
START_TEST(many_processes)
{
    enum { PROCESSES = 6, ROUNDS = 4 };
    pid_t child[PROCESSES];
    emu_close(&e);
    for (int i = 0; i < PROCESSES; i++) {
        child[i] = fork();
        ck_assert_int_ge(child[i], 0);
        if (child[i])
            continue;
        emu_open(&e);
        for (int round = 0; round < ROUNDS; round++) {
            int64_t got;
            /* Of all processes together the same four, in an order of each one's own. */
            const int which = (round + i) % ROUNDS;
            char *text = text_of(true, true, NULL, NULL), *whole, salt[64];
            snprintf(salt, sizeof salt, "SALT = %d", (int)getpid());
            const char *own = strstr(text, salt), *with = strstr(text, "deep(x);");
            ck_assert_int_gt(asprintf(&whole, "%.*sSALT = %d%.*s%d + %s", (int)(own - text), text,
                                      (int)getppid(), (int)(with - own - (long)strlen(salt)),
                                      own + strlen(salt), which, with),
                             0);
            free(text);
            run(whole, "sum", &got);
            if (got != SUM + which)
                _exit(1);
        }
        _exit(0);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        ck_assert_int_eq(waitpid(child[i], &status, 0), child[i]);
        ck_assert_int_eq(status, 0);
    }
    emu_open(&e);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("emulator_cache");
    TCase *tc = tcase_create("emulator_cache");
    suite_add_tcase(suite, tc);
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, once_for_all_texts);
    tcase_add_loop_test(tc, a_change_compiles_again, 0, sizeof changes / sizeof *changes);
    tcase_add_test(tc, errors_beside_cached_kernels);
    tcase_add_test(tc, many_processes);
    return suite;
}
