/* CUDA's libraries without a GPU: our declarations against the toolkit's headers, where libraries
 * are looked for, the messages when they are missing, NVRTC. Needs a C compiler. Tests that need
 * the toolkit are skipped where it is not installed. */
#include "codegen/cuda/emit.h"
#include "runtime/cuda/api.h"
#include "runtime/cuda/device.h"
#include "tests/shared/stub_library.h"
#include "tests/shared/suite.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static f8_cuda *create(const f8_cuda_paths *paths)
{
    f8_diag d = {0};
    f8_cuda *c = NULL;
    ck_assert_msg(f8_cuda_create(paths, NULL, &c, &d) == F8_OK, "%s", d.text);
    return c;
}

static void contains(const char *text, const char *part)
{
    ck_assert_msg(text && strstr(text, part), "'%s' is not in: %s", part, text ? text : "(none)");
}

/* ---- declarations ---- */

/* Members are added behind `blocking`. */
#define NCCL_CONFIG                                                                                \
    "_Static_assert(__builtin_offsetof(ncclConfig_t, size) == 0, \"\");\n"                         \
    "_Static_assert(__builtin_offsetof(ncclConfig_t, magic) == 8, \"\");\n"                        \
    "_Static_assert(__builtin_offsetof(ncclConfig_t, version) == 12, \"\");\n"                     \
    "_Static_assert(__builtin_offsetof(ncclConfig_t, blocking) == 16, \"\");\n"

/* The layout of a launch with an attribute. */
#define LAUNCH                                                                                     \
    "_Static_assert(sizeof(CUlaunchAttribute) == 72 && sizeof(CUlaunchConfig) == 56, \"\");\n"     \
    "_Static_assert(__builtin_offsetof(CUlaunchAttribute, value) == 8, \"\");\n"                   \
    "_Static_assert(__builtin_offsetof(CUlaunchAttribute, "                                        \
    "value.programmaticStreamSerializationAllowed) == 8, \"\");\n"                                 \
    "_Static_assert(__builtin_offsetof(CUlaunchConfig, sharedMemBytes) == 24, \"\");\n"            \
    "_Static_assert(__builtin_offsetof(CUlaunchConfig, hStream) == 32, \"\");\n"                   \
    "_Static_assert(__builtin_offsetof(CUlaunchConfig, attrs) == 40, \"\");\n"                     \
    "_Static_assert(__builtin_offsetof(CUlaunchConfig, numAttrs) == 48, \"\");\n"

/* Of the product, and of the emulator beyond it. */
static const char agreement[] =
    "#include <cuda.h>\n#include <nvrtc.h>\n#include <cublasLt.h>\n#ifdef NCCL\n#include <nccl.h>\n"
    "#else\ntypedef int ncclResult_t, ncclDataType_t, ncclRedOp_t;\ntypedef struct ncclComm "
    "*ncclComm_t;\n"
    "typedef struct { char internal[128]; } ncclUniqueId;\n"
    "typedef struct { int blocking; } ncclConfig_t;\n#endif\n"
    "#define F8_CUDA_API_TOOLKIT\n#include \"tests/emulator/api.h\"\n"
    "#define V(n, v) _Static_assert((int)(n) == (v), #n);\n"
    "F8_CUDA_VALUES(V) F8_NVRTC_VALUES(V) F8_CUBLASLT_VALUES(V)\n"
    "F8_EMU_CUDA_VALUES(V) F8_EMU_NVRTC_VALUES(V) F8_EMU_CUBLASLT_VALUES(V)\n"
    "#define P(r, n, p) _Static_assert(__builtin_types_compatible_p(__typeof__(&n), r(*) p), #n);\n"
    "F8_CUDA_SYMBOLS(P) F8_CUDA_MORE_SYMBOLS(P) F8_NVRTC_SYMBOLS(P) F8_CUBLASLT_SYMBOLS(P)\n" LAUNCH
    "#ifdef NCCL\nF8_NCCL_VALUES(V) F8_NCCL_SYMBOLS(P)\n" NCCL_CONFIG "#endif\n"
    "_Static_assert(sizeof(cublasLtMatmulAlgo_t) == ALGO, \"\");\n"
    "_Static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == RESULT, \"\");\n"
    "_Static_assert(sizeof(CUdeviceptr) == 8 && sizeof(CUresult) == sizeof(int), \"\");\n"
    "_Static_assert(sizeof(cublasStatus_t) == sizeof(int) && sizeof(cudaDataType) == sizeof(int), "
    "\"\");\n";

static const char own_sizes[] =
    "#include \"runtime/cuda/api.h\"\n" NCCL_CONFIG LAUNCH
    "_Static_assert(sizeof(cublasLtMatmulAlgo_t) == ALGO, \"\");\n"
    "_Static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == RESULT, \"\");\n";

START_TEST(declarations_agree_with_the_toolkit)
{
    const char *home = getenv("CUDA_HOME");
    char include[512];
    snprintf(include, sizeof include, "%s/include", home && *home ? home : "/usr/local/cuda");
    char header[600];
    snprintf(header, sizeof header, "%s/cublasLt.h", include);
    if (access(header, R_OK) != 0) {
        test_skip("declarations against cublasLt.h", "it is not in %s (PyPI: nvidia-cublas)", include);
        return;
    }
    f8_stub_file("agree.c", agreement);
    f8_stub_file("own.c", own_sizes);
    const char *sizes = "-DALGO=64 -DRESULT=96";
    const char *nccl = getenv("NCCL_HOME"); /* it comes apart from the toolkit */
    char of_nccl[512];
    snprintf(of_nccl, sizeof of_nccl, nccl && *nccl ? "%.480s/include" : "%.480s",
             nccl && *nccl ? nccl : include);
    snprintf(header, sizeof header, "%s/nccl.h", of_nccl);
    if (access(header, R_OK) == 0) /* what marks a ncclConfig_t stands in an initializer alone */
        ck_assert(f8_stub_shell("grep -qi 0x%x '%s'", NCCL_CONFIG_MAGIC, header) == 0);
    ck_assert(f8_stub_shell("cc -std=gnu17 -fsyntax-only %s %s -I. -I'%s' -I'%s' %s", sizes,
                            access(header, R_OK) == 0 ? "-DNCCL" : "", include, of_nccl,
                            f8_stub_path("agree.c")) == 0);
    ck_assert(
        f8_stub_shell("cc -std=gnu17 -fsyntax-only %s -I. %s", sizes, f8_stub_path("own.c")) == 0);
    /* The comparison itself can fail. */
    ck_assert(
        f8_stub_shell("cc -std=gnu17 -fsyntax-only -DALGO=63 -DRESULT=96 -I. -I'%s' %s 2>/dev/null",
                      include, f8_stub_path("agree.c")) != 0);
}
END_TEST

/* ---- where libraries are looked for ---- */

static int nvrtc_major(const f8_cuda_paths *paths)
{
    f8_diag d = {0};
    f8_cuda *c = create(paths);
    int version = 0;
    ck_assert_msg(f8_cuda_nvrtc(c, &version, &d) == F8_OK, "%s", d.text);
    f8_cuda_destroy(c);
    return version / 1000;
}

START_TEST(search_order)
{
    f8_stub_nvrtc("own/lib64", "libnvrtc.so.12", 1);
    f8_stub_nvrtc("home/lib64", "libnvrtc.so.12", 2);
    f8_stub_nvrtc("path/lib", "libnvrtc.so.12", 3);
    f8_stub_nvrtc("path/lib", "libnvrtc.so.13", 4);
    f8_cuda_paths p = {f8_stub_path("own"), f8_stub_path("home"), f8_stub_path("path"), NULL, NULL};
    ck_assert_int_eq(nvrtc_major(&p), 1);
    p.fp8c_cuda_path = "";
    ck_assert_int_eq(nvrtc_major(&p), 2);
    p.cuda_home = f8_stub_path("nothing");
    ck_assert_int_eq(nvrtc_major(&p), 4); /* within one folder the newest */
    f8_stub_nvrtc("own", "libnvrtc.so.12", 5);
    p.fp8c_cuda_path = f8_stub_path("own");
    ck_assert_int_eq(nvrtc_major(&p), 5); /* the folder itself before its lib64 */
}
END_TEST

/* Wheels come last, so a library that no machine has elsewhere stands for all: a driver. */
START_TEST(wheels)
{
    const char *folder[] = {"venv/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib",
                            "user/.local/lib/python3.12/site-packages/nvidia/cu13/lib"};
    for (int i = 0; i < 2; i++) {
        f8_stub_library(folder[i], "libnvidia-ml.so.1", "F8_NVML_SYMBOLS", "");
        const f8_cuda_paths p = {.virtual_env = i ? NULL : f8_stub_path("venv"),
                                 .home = i ? f8_stub_path("user") : NULL};
        f8_cuda *c = create(&p);
        f8_cuda_library l;
        int found = 0;
        for (int k = 0; f8_cuda_describe(c, k, &l); k++)
            if (!strcmp(l.name, "NVML")) {
                found = 1;
                ck_assert_msg(l.path != NULL, "%s", l.why);
                if (!strstr(l.path, f8_stub_path("")))
                    printf("note: NVML is installed here (%s): wheels' folders come after it\n",
                           l.path);
            }
        ck_assert(found);
        f8_cuda_destroy(c);
    }
}
END_TEST

START_TEST(nowhere_else)
{
    f8_diag d = {0};
    f8_cuda_paths p = {.fp8c_cuda_path = f8_stub_path("empty"), .cuda_home = f8_stub_path("home")};
    f8_stub_nvrtc("home/lib64", "libnvrtc.so.13", 13);
    f8_cuda *c = create(&p);
    int version;
    ck_assert_int_eq(f8_cuda_nvrtc(c, &version, &d), F8_ERR_LIBRARY);
    char want[512];
    snprintf(want, sizeof want,
             "can't load NVRTC (libnvrtc.so.13, libnvrtc.so.12): looked in %s, %s/lib64, %s/lib; "
             "`fp8c doctor` says how to get it",
             f8_stub_path("empty"), f8_stub_path("empty"), f8_stub_path("empty"));
    ck_assert_str_eq(d.text, want);
    f8_diag again = {0};
    ck_assert_int_eq(f8_cuda_nvrtc(c, &version, &again), F8_ERR_LIBRARY);
    ck_assert_str_eq(again.text, want);
    f8_cuda_destroy(c);
}
END_TEST

/* The whole list is in the message; and where that is longer than a message, describe has it all.
 */
START_TEST(every_place_is_named)
{
    char deep[900];
    memset(deep, 'd', sizeof deep - 1);
    deep[0] = '/';
    deep[sizeof deep - 1] = '\0';
    const f8_cuda_paths p = {
        .cuda_home = "/first", .cuda_path = deep, .virtual_env = "/v", .home = "/h"};
    f8_cuda *c = create(&p);
    f8_cuda_library l;
    int checked = 0;
    for (int i = 0; f8_cuda_describe(c, i, &l); i++) {
        ck_assert(l.name && (l.path || l.why));
        if (l.path)
            continue;
        checked++;
        contains(l.why, "/first/lib64, /first/lib, /ddd");
        contains(l.why, "the loader's path, /usr/local/cuda/lib64, /usr/local/cuda/lib, "
                        "/usr/local/cuda-*/lib64");
        contains(l.why, "/v/lib/python3*/site-packages/nvidia/*/lib, "
                        "/h/.local/lib/python3*/site-packages/nvidia/*/lib");
        contains(l.why, "/usr/lib/python3*/dist-packages/nvidia/*/lib");
    }
    if (!checked)
        test_skip("the message about a missing library", "every library is installed here");
    f8_cuda_destroy(c);
}
END_TEST

START_TEST(a_file_that_does_not_load)
{
    f8_diag d = {0};
    f8_stub_file("bad/libnvrtc.so.13", "no library");
    const f8_cuda_paths p = {.fp8c_cuda_path = f8_stub_path("bad")};
    f8_cuda *c = create(&p);
    int version;
    ck_assert_int_eq(f8_cuda_nvrtc(c, &version, &d), F8_ERR_LIBRARY);
    contains(d.text, "/bad/lib; ");
    contains(d.text, "/bad/libnvrtc.so.13 does not load (");
    f8_cuda_destroy(c);
    /* It does not stand in the way of one that does. */
    f8_stub_nvrtc("bad/lib64", "libnvrtc.so.12", 12);
    ck_assert_int_eq(nvrtc_major(&p), 12);
}
END_TEST

START_TEST(a_library_that_lacks_a_function)
{
    f8_diag d = {0};
    f8_stub_library("lacks", "libnvrtc.so.13", "F8_NCCL_SYMBOLS", "");
    const f8_cuda_paths p = {.fp8c_cuda_path = f8_stub_path("lacks")};
    f8_cuda *c = create(&p);
    int version;
    ck_assert_int_eq(f8_cuda_nvrtc(c, &version, &d), F8_ERR_LIBRARY);
    contains(d.text, "lacks/libnvrtc.so.13 has no symbol nvrtcGetErrorString");
    f8_cuda_destroy(c);
}
END_TEST

/* ---- drivers that are of no use ---- */

static void device_fails(const char *folder, f8_status status, const char *const *parts)
{
    const f8_cuda_paths p = {.fp8c_cuda_path = f8_stub_path(folder)};
    f8_cuda *c = create(&p);
    for (int times = 0; times < 2; times++) { /* the first answer is every later one */
        f8_diag d = {0};
        ck_assert_int_eq(f8_cuda_device(c, 0, &d), status);
        for (int i = 0; parts[i]; i++)
            contains(d.text, parts[i]);
    }
    f8_cuda_facts facts;
    f8_diag d = {0};
    ck_assert_int_eq(f8_cuda_device_facts(c, &facts, &d), F8_ERR_INPUT);
    f8_cuda_destroy(c);
}

START_TEST(no_driver)
{
    device_fails("none", F8_ERR_LIBRARY,
                 (const char *[]){"can't load the CUDA driver (libcuda.so.1): looked in ",
                                  "/none/lib64", NULL});
}
END_TEST

START_TEST(driver_too_old)
{
    f8_stub_driver("old", 12080, 0);
    f8_stub_nvrtc("old", "libnvrtc.so.13", 13);
    device_fails(
        "old", F8_ERR_LIBRARY,
        (const char *[]){"the driver is too old: it serves CUDA 12.8, but the NVRTC found is 13.0",
                         "update the driver", "point CUDA_HOME at a toolkit of CUDA 12", NULL});
    /* cuBLASLt is asked too: its major version is CUDA's. */
    f8_stub_driver("half", 12080, 0);
    f8_stub_library("half", "libcublasLt.so.13", "F8_CUBLASLT_SYMBOLS",
                    "#include <stddef.h>\nsize_t cublasLtGetVersion(void) { return 130100; }\n");
    device_fails("half", F8_ERR_LIBRARY,
                 (const char *[]){"it serves CUDA 12.8, but the cuBLASLt found is 13.1.0", NULL});
    /* A minor version behind is no reason. */
    f8_stub_driver("minor", 12040, 100);
    f8_stub_nvrtc("minor", "libnvrtc.so.12", 12);
    device_fails("minor", F8_ERR_LIBRARY, (const char *[]){"no CUDA device", NULL});
}
END_TEST

START_TEST(driver_without_device)
{
    f8_stub_driver("bare", 13000, 100); /* CUDA_ERROR_NO_DEVICE */
    device_fails("bare", F8_ERR_LIBRARY,
                 (const char *[]){"no CUDA device: the driver (CUDA 13.0", "no GPU", NULL});
    f8_stub_driver("broken", 13000, 999);
    device_fails("broken", F8_ERR_LIBRARY, (const char *[]){"cuInit: CUDA error 999", NULL});
    f8_stub_driver("zero", 13000, 0); /* cuDeviceGetCount leaves 0 */
    device_fails("zero", F8_ERR_LIBRARY, (const char *[]){"no CUDA device", NULL});
}
END_TEST

/* ---- NVRTC, the real one ---- */

static const char text[] =
    "#include \"fp8c.cuh\"\n"
    "struct k_params { float *y; const float *x; f8_i64 n, tasks; };\n"
    "F8_KERNEL(k, 128, 1)\n{\n"
    "    for (f8_i64 task = f8_block(); task < p.tasks; task += f8_blocks()) {\n"
    "        const f8_i64 i = task * 128 + f8_thread();\n"
    "        if (i < p.n)\n"
    "            p.y[i] = p.x[i] * p.x[i] + 1.0f / p.x[i];\n"
    "    }\n}\n";

static f8_cuda *real_nvrtc(void)
{
    const f8_cuda_paths p = {.cuda_home = getenv("CUDA_HOME"), .cuda_path = getenv("CUDA_PATH")};
    f8_cuda *c = create(&p);
    int version;
    f8_diag d = {0};
    if (f8_cuda_nvrtc(c, &version, &d) == F8_OK)
        return c;
    test_skip("compiling with NVRTC", "%s (PyPI: nvidia-cuda-nvrtc)", d.text);
    f8_cuda_destroy(c);
    return NULL;
}

START_TEST(nvrtc_compiles_for_every_target)
{
    f8_cuda *c = real_nvrtc();
    for (size_t i = 0; c && f8_target_at(i / 2); i++) {
        const f8_target *t = f8_target_at(i / 2);
        const bool fast = i % 2;
        if (t->kind != F8_TARGET_CUDA)
            continue;
        f8_arena a;
        f8_arena_init(&a, NULL);
        f8_diag d = {0};
        f8_nvrtc_result r;
        const f8_nvrtc_options o = {.want_ptx = true, .fast = fast};
        ck_assert_msg(f8_cuda_compile(c, text, "k.cu", f8_cuda_header, "fp8c.cuh", t->name, o, &a,
                                      &r, &d) == F8_OK,
                      "%s: %s", t->name, d.text);
        ck_assert(r.cubin_size > 4 && !memcmp(r.cubin, "\177ELF", 4));
        contains(r.log, "registers");
        if (!fast)
            contains(r.log, "0 bytes spill stores");
        char line[40];
        snprintf(line, sizeof line, ".target %s", t->name);
        contains(r.ptx, line);
        /* As the flags want it, however it is compiled: no contraction, IEEE division, no flushing
         * of denormals. */
        contains(r.ptx, "mul.rn.f32");
        contains(r.ptx, "add.rn.f32");
        ck_assert(!strstr(r.ptx, "fma.rn.f32") && !strstr(r.ptx, "ftz"));
        ck_assert(strstr(r.ptx, "div.rn.f32") || strstr(r.ptx, "rcp.rn.f32"));
        f8_arena_end(&a);
    }
    f8_cuda_destroy(c);
}
END_TEST

START_TEST(nvrtc_says_what_is_wrong)
{
    f8_cuda *c = real_nvrtc();
    f8_arena a;
    f8_arena_init(&a, NULL);
    f8_nvrtc_result r;
    f8_diag d = {0}, unknown = {0};
    if (c) {
        ck_assert_int_eq(f8_cuda_compile(c, "int x;\n/* gelu of line 7 */ int y = z;\n", "unit.cu",
                                         NULL, NULL, "sm_90a", (f8_nvrtc_options){0}, &a, &r, &d),
                         F8_ERR_INTERNAL);
        contains(d.text, "kernel text 'unit.cu' does not compile for sm_90a:\nunit.cu(2): error:");
        contains(d.text, "/* gelu of line 7 */ int y = z;"); /* the line itself */
        contains(r.log, "unit.cu(2): error:");
        ck_assert(!r.cubin);
        ck_assert_int_eq(f8_cuda_compile(c, text, "k.cu", f8_cuda_header, "fp8c.cuh", "sm_20",
                                         (f8_nvrtc_options){0}, &a, &r, &unknown),
                         F8_ERR_UNSUPPORTED);
        contains(unknown.text, "can't compile for sm_20; it knows sm_");
    }
    f8_arena_end(&a);
    f8_cuda_destroy(c);
}
END_TEST

typedef struct job {
    f8_cuda *cuda;
    f8_arena arena;
    f8_nvrtc_result result;
    f8_status status;
} job;

static void *compile_one(void *user)
{
    job *j = user;
    f8_arena_init(&j->arena, NULL);
    j->status = f8_cuda_compile(j->cuda, text, "k.cu", f8_cuda_header, "fp8c.cuh", "sm_90a",
                                (f8_nvrtc_options){0}, &j->arena, &j->result, NULL);
    return NULL;
}

/* Loading is under way in all of them at once; the code is the same. */
START_TEST(nvrtc_from_several_threads)
{
    enum { N = 4 };
    const f8_cuda_paths p = {.cuda_home = getenv("CUDA_HOME"), .cuda_path = getenv("CUDA_PATH")};
    f8_cuda *c = real_nvrtc();
    if (!c)
        return;
    f8_cuda_destroy(c);
    c = create(&p);
    job j[N];
    pthread_t thread[N];
    for (int i = 0; i < N; i++) {
        j[i] = (job){.cuda = c};
        ck_assert(pthread_create(&thread[i], NULL, compile_one, &j[i]) == 0);
    }
    for (int i = 0; i < N; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(j[i].status, F8_OK);
        ck_assert(j[i].result.cubin_size == j[0].result.cubin_size &&
                  !memcmp(j[i].result.cubin, j[0].result.cubin, j[0].result.cubin_size));
    }
    for (int i = 0; i < N; i++)
        f8_arena_end(&j[i].arena);
    f8_cuda_destroy(c);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_libraries");
    TCase *t = tcase_create("libraries");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, f8_stub_setup, f8_stub_teardown);
    tcase_add_test(t, declarations_agree_with_the_toolkit);
    tcase_add_test(t, search_order);
    tcase_add_test(t, wheels);
    tcase_add_test(t, nowhere_else);
    tcase_add_test(t, every_place_is_named);
    tcase_add_test(t, a_file_that_does_not_load);
    tcase_add_test(t, a_library_that_lacks_a_function);
    tcase_add_test(t, no_driver);
    tcase_add_test(t, driver_too_old);
    tcase_add_test(t, driver_without_device);
    suite_add_tcase(s, t);
    t = tcase_create("nvrtc");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, nvrtc_compiles_for_every_target);
    tcase_add_test(t, nvrtc_says_what_is_wrong);
    tcase_add_test(t, nvrtc_from_several_threads);
    suite_add_tcase(s, t);
    return s;
}
