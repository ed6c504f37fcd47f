/* Dependent launches in the emulator: a kernel that may begin before the one ahead has ended is
 * found out if it touches device memory first, or ends without having waited; and such a launch is
 * captured only right behind a kernel. */
#include "tests/shared/cuda/emulator.h"
#include "tests/shared/suite.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static emu e;
static CUresult (*launch_ex)(const CUlaunchConfig *, CUfunction, void **, void **);

static void setup(void)
{
    emu_open(&e);
    void *library = dlopen("build/emulator/libcuda.so.1", RTLD_NOW);
    ck_assert_ptr_nonnull(library);
    *(void **)&launch_ex = dlsym(library, "cuLaunchKernelEx");
    ck_assert_ptr_nonnull(*(void **)&launch_ex);
}

static void teardown(void)
{
    emu_close(&e);
}

/* Doubles x; WAIT stands before, or the header puts it there. */
static const char text_of[] =
    "%s"
    "#include \"fp8c.cuh\"\n"
    "struct twice_params { float *x; f8_i64 n; };\n"
    "F8_KERNEL(twice, 64, 1)\n"
    "{\n"
    "    F8_SHARED(float, at, 64);\n"
    "    %s;\n"
    "    for (f8_i64 i = f8_block() * 64; i < p.n; i += f8_blocks() * 64) {\n"
    "        at[f8_thread()] = p.x[i + f8_thread()];\n"
    "        f8_sync();\n"
    "        p.x[i + f8_thread()] = at[f8_thread()] + at[f8_thread()];\n"
    "    }\n"
    "}\n";

enum { N = 640, GRID = 3 };
#define DEFINE "#define F8_DEPENDENT_LAUNCH\n"

typedef struct twice_params {
    CUdeviceptr x;
    int64_t n;
} twice_params;

static CUresult launch(CUfunction f, twice_params *p, int id, int allowed)
{
    void *params[] = {p};
    CUlaunchAttribute a = {.id = id, .value.programmaticStreamSerializationAllowed = allowed};
    const CUlaunchConfig c = {GRID, 1, 1, 64, 1, 1, 0, e.stream, &a, 1};
    return launch_ex(&c, f, params, NULL);
}

enum { SERIALIZATION = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION };

/* How the launch of such a text ended; x is then checked. */
static int run(const char *define, const char *wait, int allowed)
{
    char text[2048];
    float x[N];
    CUmodule module;
    CUfunction f;
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    snprintf(text, sizeof text, text_of, define, wait);
    emu_load(&e, text, "twice", &module, &f);
    twice_params p = {emu_upload(&e, x, sizeof x), N};
    ck_assert_int_eq(launch(f, &p, SERIALIZATION, allowed), 0);
    const int error = e.cu.cuStreamSynchronize(e.stream);
    if (error)
        return error;
    emu_download(&e, x, p.x, sizeof x);
    for (int i = 0; i < N; i++)
        ck_assert_msg(x[i] == (float)(2 * i), "%d: %g", i, x[i]);
    return 0;
}

static const char *const seeds[] = {"0", "3", "17"};
enum { SEEDS = 3 };

START_TEST(those_that_wait)
{
    setenv("FP8C_EMULATOR_SEED", seeds[_i], 1);
    const int64_t before = e.count("dependent launch");
    ck_assert_int_eq(run(DEFINE, "(void)0", 1), 0);
    ck_assert_int_eq(run("", "f8_await_before(); f8_allow_next()", 1), 0);
    ck_assert_int_eq(run("", "at[f8_thread()] = 0; f8_allow_next(); f8_await_before()", 1), 0);
    ck_assert_int_eq(e.count("dependent launch") - before, 3);
    ck_assert_int_eq(run("", "(void)0", 0), 0); /* an ordinary launch needs no wait */
    ck_assert_int_eq(e.count("dependent launch") - before, 3);
}
END_TEST

/* Each reads, writes or ends too early: in one thread, in one block, in all. */
static const char *const faults[] = {
    "(void)0",
    "if (f8_thread() != 63) f8_await_before()",
    "if (f8_block() != 1) f8_await_before()",
    "if (p.x[0] == 0) f8_await_before(); else f8_await_before()",
    "if (f8_thread() == 5) p.x[1] = 0; f8_await_before()",
    "if (f8_block() == 2) return; f8_await_before()",
    "f8_allow_next(); f8_sync()",
};

START_TEST(those_that_do_not)
{
    for (int s = 0; s < SEEDS; s++) {
        setenv("FP8C_EMULATOR_SEED", seeds[s], 1);
        ck_assert_msg(run("", faults[_i], 1) == CUDA_ERROR_LAUNCH_FAILED, "%s, seed %s", faults[_i],
                      seeds[s]);
        emu_close(&e);
        setup();
    }
}
END_TEST

START_TEST(captures)
{
    char text[2048];
    float x[N] = {0};
    CUmodule module;
    CUfunction f;
    CUgraph graph;
    snprintf(text, sizeof text, text_of, DEFINE, "(void)0");
    emu_load(&e, text, "twice", &module, &f);
    twice_params p = {emu_upload(&e, x, sizeof x), N};
    void *params[] = {&p};
    for (int copies = 0; copies < 2; copies++) {
        ck_assert_int_eq(e.cu.cuStreamBeginCapture_v2(e.stream, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
        ck_assert_int_eq(launch(f, &p, SERIALIZATION, 1), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        ck_assert_int_eq(e.cu.cuLaunchKernel(f, GRID, 1, 1, 64, 1, 1, 0, e.stream, params, NULL),
                         0);
        if (copies)
            ck_assert_int_eq(e.cu.cuMemsetD8Async(p.x, 0, 4, e.stream), 0);
        ck_assert_int_eq(launch(f, &p, SERIALIZATION, 1),
                         copies ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : 0);
        setenv("FP8C_EMULATOR_DRIVER", "12020", 1);
        ck_assert_int_eq(launch(f, &p, SERIALIZATION, 1), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        unsetenv("FP8C_EMULATOR_DRIVER");
        ck_assert_int_eq(e.cu.cuStreamEndCapture(e.stream, &graph), 0);
        ck_assert_int_eq(e.cu.cuGraphDestroy(graph), 0);
    }
}
END_TEST

START_TEST(refused)
{
    char text[2048];
    CUmodule module;
    CUfunction f;
    snprintf(text, sizeof text, text_of, DEFINE, "(void)0");
    emu_load(&e, text, "twice", &module, &f);
    twice_params p = {emu_alloc(&e, 4 * N), N};
    ck_assert_int_eq(launch(f, &p, 2, 1), CUDA_ERROR_NOT_SUPPORTED); /* another attribute */
    setenv("FP8C_EMULATOR_SM", "89", 1);
    ck_assert_int_eq(launch(f, &p, SERIALIZATION, 1), CUDA_ERROR_NOT_SUPPORTED);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("dependent launches");
    TCase *t = tcase_create("dependent launches");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, those_that_wait, 0, SEEDS);
    tcase_add_loop_test(t, those_that_do_not, 0, sizeof faults / sizeof *faults);
    tcase_add_test(t, captures);
    tcase_add_test(t, refused);
    suite_add_tcase(s, t);
    return s;
}
