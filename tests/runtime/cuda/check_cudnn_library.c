/* Attention by cuDNN, without a device: what is refused and why, libraries that are old or missing,
 * our declarations beside the header's. Where the library is installed, its engines must accept our
 * graphs. */
#include "tests/shared/cuda/cudnn_case.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cuda/internal.h"

static cuda_device device;
static f8_cudnn cudnn;

/* ---- what is refused ---- */

START_TEST(what_is_not_supported_says_why)
{
    const f8_cudnn_attention_desc good = cudnn_case_shape(&cudnn, 2, 128, 4, 2, 64, true);
    f8_cudnn_attention_desc bad[10];
    for (int i = 0; i < 10; i++)
        bad[i] = good;
    bad[0].D = 60;
    bad[1].D = 136;
    bad[1].stride.q = bad[1].stride.k = bad[1].stride.v = bad[1].stride.o = 4 * 136;
    bad[2].stride.k += 4;
    bad[3].stride.v -= 8;
    bad[4].H = 3;
    bad[5].backward = true, bad[5].T = 1;
    bad[6].backward = true, bad[6].T = 130;
    bad[7].backward = true;
    bad[8].backward = true, bad[8].stride.dk += 2;
    const struct {
        int version, sm, desc;
        f8_status status;
        const char *why;
    } rows[] = {
        {91900, 90, 9, F8_OK, ""},
        {91900, 90, 1, F8_OK, ""},
        {91900, 90, 6, F8_OK, ""},
        {91900, 90, 7, F8_OK, ""},
        {90900, 90, 9, F8_ERR_UNSUPPORTED, "9.11 or later"},
        {91900, 75, 9, F8_ERR_UNSUPPORTED, "8.0 or later"},
        {91900, 90, 0, F8_ERR_UNSUPPORTED, "multiple of 8"},
        {91900, 89, 1, F8_ERR_UNSUPPORTED, "at most 128"},
        {91900, 90, 2, F8_ERR_UNSUPPORTED, "stride between tokens"},
        {91900, 90, 3, F8_ERR_INPUT, "overlap"},
        {91900, 90, 4, F8_ERR_INPUT, "sizes"},
        {91900, 90, 5, F8_ERR_UNSUPPORTED, "two tokens"},
        {91500, 90, 6, F8_ERR_UNSUPPORTED, "multiple of 128"},
        {91700, 100, 7, F8_ERR_UNSUPPORTED, "from cuDNN 9.18"},
        {91900, 90, 8, F8_ERR_UNSUPPORTED, "stride between tokens"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        f8_diag d = {0};
        ck_assert_msg(f8_cudnn_attention_supports(rows[i].version, rows[i].sm, &bad[rows[i].desc],
                                                  &d) == rows[i].status,
                      "row %zu: %s", i, d.text);
        cudnn_case_contains(d.text, rows[i].why);
    }
}
END_TEST

START_TEST(old_and_missing_libraries)
{
    f8_diag d = {0};
    if (!f8_test_gpu_emulated()) {
        test_skip("old and missing libraries", "a GPU's library is as it is");
        return;
    }
    cuda_device_open(&device);
    setenv("FP8C_EMULATOR_CUDNN", "91002", 1);
    ck_assert_int_eq(f8_cudnn_find(device.cuda, &cudnn, &d), F8_ERR_LIBRARY);
    cudnn_case_contains(d.text, "cuDNN 9.10.2 is too old for attention: 9.11 or later");
    unsetenv("FP8C_EMULATOR_CUDNN");
    cuda_device_close(&device);
    cuda_device_open(&device); /* the first answer to where it is counts */
    static const char *const nowhere[] = {"/nonexistent/lib", NULL};
    const char *const *folders = device.cuda->folders;
    device.cuda->folders = nowhere;
    d = (f8_diag){0};
    ck_assert_int_eq(f8_cudnn_find(device.cuda, &cudnn, &d), F8_ERR_LIBRARY);
    cudnn_case_contains(d.text, "libcudnn.so.9");
    cudnn_case_contains(d.text, "/nonexistent/lib");
    device.cuda->folders = folders;
    cuda_device_close(&device);
}
END_TEST

/* ---- the library itself, without a device ---- */

/* cuDNN's own way to describe a device that is not there. */
static const char description[] =
    "{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], "
    "\"regsPerBlock\": 65536, \"multiProcessorCount\": 132, \"warpSize\": 32, "
    "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": %d, "
    "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": 24, "
    "\"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 1536, \"pciDeviceId\": 0, "
    "\"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"smClockRateKHz\": 1500000, "
    "\"memClockRateKHz\": 2000000, \"l2CacheSize\": 50000000, \"deviceName\": \"described\", "
    "\"deviceVer\": %d, \"driverVer\": 13000, \"cudaDeviceId\": 0, \"totalGlobalMem\": "
    "80000000000}";

/* The library with a driver that has no device and says so; false where it is not installed. */
static bool open_real(int sm)
{
    static const char *const names[] = {"libcudnn.so.9", NULL}, *const nvrtc[] = {"libnvrtc.so.13",
                                                                                  NULL};
    f8_cuda_paths paths = f8_cuda_paths_from_environment();
    paths.fp8c_cuda_path = NULL;
    f8_arena memory;
    f8_dynlib lib, compiler;
    const char *why;
    f8_diag d = {0};
    f8_arena_init(&memory, NULL);
    const char *const *folders = f8_cuda_folders(&paths, &memory);
    bool found = f8_dynlib_search("cuDNN", names, folders, &memory, &lib, &why, &d) == F8_OK &&
                 f8_dynlib_search("NVRTC", nvrtc, folders, &memory, &compiler, &why, &d) == F8_OK;
    if (!found)
        test_skip("the real cuDNN", "%s (PyPI: nvidia-cudnn-cu13)", d.text);
    char temp[] = "/tmp/fp8c-XXXXXX", command[512], text[2048];
    if (found) {
        ck_assert(mkdtemp(temp) != NULL);
        snprintf(command, sizeof command,
                 "cc -std=gnu17 -shared -fPIC -Wl,-soname,libcuda.so.1 -o %s/libcuda.so.1 "
                 "tests/emulator/cudnn/driver_alone.c",
                 temp);
        ck_assert_int_eq(system(command), 0);
        snprintf(command, sizeof command, "%s/libcuda.so.1", temp);
        ck_assert_msg(dlopen(command, RTLD_NOW | RTLD_GLOBAL) != NULL, "%s", dlerror());
        snprintf(command, sizeof command, "rm -r %s", temp);
        ck_assert_int_eq(system(command), 0);
        ck_assert_msg(f8_cudnn_open(&lib, sm, &cudnn, &d) == F8_OK, "%s", d.text);
        snprintf(text, sizeof text, description, sm == 90 || sm == 100 ? 232448 : 101376, sm * 10);
        ck_assert_msg(f8_cudnn_describe(&cudnn, text, &d) == F8_OK, "%s", d.text);
    }
    f8_arena_end(&memory);
    return found;
}

/* The real engines recognise the graphs, for every architecture: kernels are compiled, not run. */
START_TEST(the_library_knows_the_graphs)
{
    static const int sms[] = {89, 90, 100, 120};
    const int sm = sms[_i];
    if (!open_real(sm))
        return;
    if (sm / 10 == 10 && cudnn.version < 91800) {
        test_skip("cuDNN's backward on compute capability 10",
                  "it is reproducible from cuDNN 9.18 on, and this one is older");
        f8_cudnn_close(&cudnn);
        return;
    }
    for (int k = 0; k < 2 * CASE_SHAPES; k++) {
        const int64_t *s = cudnn_case_shapes[k / 2];
        if (k % 5 && sm != 90)
            continue; /* all of them for one, for time */
        f8_cudnn_attention_desc x = cudnn_case_shape(&cudnn, s[0], s[1], s[2], s[3], s[4], k & 1);
        char text[2][F8_CUDNN_TEXT];
        for (int again = 0; again < (k ? 1 : 2); again++)
            for (int backward = 0; backward < 2; backward++) {
                f8_cudnn_attention *a = cudnn_case_prepare(&cudnn, &x, backward, NULL);
                char t[F8_CUDNN_TEXT];
                f8_cudnn_attention_text(a, t);
                if (!again)
                    memcpy(text[backward], t, sizeof t);
                ck_assert_str_eq(text[backward], t); /* the choice repeats */
                f8_cudnn_attention_destroy(a);
            }
        if (k % 5 == 0)
            printf("sm_%d %s: forward %s, backward %s\n", sm, cudnn_case_describe(&x), text[0],
                   text[1]);
    }
    f8_cudnn_close(&cudnn);
}
END_TEST

/* It refuses what is no attention: an engine that it does not have, D too large. */
START_TEST(the_library_refuses)
{
    if (!open_real(90))
        return;
    f8_diag d = {0};
    f8_cudnn_attention *a;
    f8_cudnn_attention_desc x = cudnn_case_shape(&cudnn, 1, 128, 2, 2, 64, true);
    x.backward = true;
    const f8_cudnn_choice wrong = {.fixed = &(f8_cudnn_engine){.id = 98765}};
    ck_assert_int_ne(f8_cudnn_attention_prepare(&cudnn, &x, &wrong, NULL, &a, &d), F8_OK);
    cudnn_case_contains(d.text, "cuDNN: ");
    const f8_cudnn_choice narrow = {.workspace_limit = 1000};
    d = (f8_diag){0};
    ck_assert_int_eq(f8_cudnn_attention_prepare(&cudnn, &x, &narrow, NULL, &a, &d),
                     F8_ERR_UNSUPPORTED);
    cudnn_case_contains(d.text, "1000 are allowed");
    f8_cudnn_close(&cudnn);
}
END_TEST

/* ---- declarations ---- */

static const char agreement[] =
    "#include <cudnn.h>\n#define F8_CUDA_API_TOOLKIT\n#include \"runtime/cuda/cudnn_api.h\"\n"
    "#define V(n, v) _Static_assert((int)(n) == (v) + OFF, #n);\nF8_CUDNN_VALUES(V)\n"
    "#define P(r, n, p) _Static_assert(__builtin_types_compatible_p(__typeof__(&n), r(*) p), #n);\n"
    "F8_CUDNN_SYMBOLS(P)\n"
    "_Static_assert(sizeof(cudnnStatus_t) == sizeof(int), \"\");\n"
    "_Static_assert(sizeof(cudnnBackendAttributeName_t) == sizeof(int), \"\");\n";

START_TEST(declarations_agree_with_the_toolkit)
{
    const char *home = getenv("CUDA_HOME");
    char include[512], path[600], command[1400], temp[] = "/tmp/fp8c-XXXXXX";
    snprintf(include, sizeof include, "%s/include", home && *home ? home : "/usr/local/cuda");
    snprintf(path, sizeof path, "%s/cudnn.h", include);
    if (access(path, R_OK) != 0) {
        test_skip("declarations against cudnn.h", "it is not in %s (PyPI: nvidia-cudnn-cu13)", include);
        return;
    }
    ck_assert(mkdtemp(temp) != NULL);
    snprintf(path, sizeof path, "%s/agree.c", temp);
    FILE *f = fopen(path, "w");
    ck_assert(f && fputs(agreement, f) >= 0 && fclose(f) == 0);
    for (int off = 0; off < 2; off++) { /* the comparison itself can fail */
        snprintf(command, sizeof command,
                 "cc -std=gnu17 -fsyntax-only -DOFF=%d -I. -isystem '%s' %s 2>/dev/null", off,
                 include, path);
        ck_assert_msg((system(command) != 0) == off, "%s", command);
    }
    snprintf(command, sizeof command, "rm -r %s", temp);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cudnn_library");
    TCase *alone = tcase_create("no device");
    tcase_set_timeout(alone, 300);
    tcase_add_test(alone, what_is_not_supported_says_why);
    tcase_add_test(alone, old_and_missing_libraries);
    tcase_add_test(alone, declarations_agree_with_the_toolkit);
    tcase_add_loop_test(alone, the_library_knows_the_graphs, 0, 4);
    tcase_add_test(alone, the_library_refuses);
    suite_add_tcase(s, alone);
    return s;
}
