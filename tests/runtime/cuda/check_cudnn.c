/* Attention by cuDNN: values against a reference in double within derived bounds, the same bits
 * every time, which engine is taken, what is refused and why, calls that fail. It runs on the
 * emulator's device with the stand-in (tests/emulator/cudnn), or on a GPU with the library itself.
 * Where the library is installed but there is no device, its engines must accept our graphs. */
#include "tests/shared/cuda/cudnn_case.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cuda/internal.h"

static cuda_device device;
static f8_cudnn cudnn;
static int64_t (*alive)(void); /* the stand-in's descriptors and handles; NULL on a GPU */

static void contains(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part), "'%s' is not in: %s", part, text);
}

static void open_all(void)
{
    f8_diag d = {0};
    cuda_device_open(&device);
    ck_assert_msg(f8_cudnn_find(device.cuda, &cudnn, &d) == F8_OK, "%s", d.text);
    ck_assert_msg(f8_cuda_enter(device.cuda, &d) == F8_OK, "%s", d.text);
    ck_assert_msg(f8_cudnn_start(&cudnn, &d) == F8_OK, "%s", d.text);
    void *lib = dlopen("libcudnn.so.9", RTLD_LAZY | RTLD_NOLOAD);
    void *count = lib ? dlsym(lib, "f8_emulator_cudnn_count") : NULL;
    memcpy(&alive, &count, sizeof count);
}

static void close_all(void)
{
    unsetenv("FP8C_EMULATOR_FAIL");
    f8_cudnn_close(&cudnn);
    if (alive)
        ck_assert_int_eq(alive(), 0);
    f8_cuda_leave(device.cuda);
    cuda_device_close(&device);
}

/* With T at a multiple of 128 where the library at hand wants that. */
static f8_cudnn_attention_desc shape(int64_t B, int64_t T, int64_t H, int64_t Hkv, int64_t D,
                                     bool causal)
{
    T = cudnn.version <= 91500 ? f8_aligned(T, 128) : T;
    const int64_t q = H * D, kv = Hkv * D;
    return (f8_cudnn_attention_desc){.B = B,
                                     .T = T,
                                     .H = H,
                                     .Hkv = Hkv,
                                     .D = D,
                                     .causal = causal,
                                     .scale = 1 / sqrtf((float)D),
                                     .stride = {q, kv, kv, q, q, q, kv, kv}};
}

static f8_cudnn_attention *prepare(const f8_cudnn_attention_desc *x, bool backward,
                                   const f8_cudnn_choice *choice)
{
    f8_diag d = {0};
    f8_cudnn_attention *a;
    f8_cudnn_attention_desc y = *x;
    y.backward = backward;
    ck_assert_msg(f8_cudnn_attention_prepare(&cudnn, &y, choice, NULL, &a, &d) == F8_OK, "%s: %s",
                  cudnn_case_describe(x), d.text);
    return a;
}

static void run(cudnn_case *c, bool backward)
{
    f8_diag d = {0};
    void *pointers[CASE_TENSORS];
    f8_cudnn_ref arguments;
    f8_cudnn_attention *a = prepare(&c->desc, backward, NULL);
    void *workspace = cudnn_case_room(c, f8_cudnn_attention_workspace(a));
    cudnn_case_pointers(c, pointers);
    ck_assert_msg(f8_cudnn_attention_bind(a, pointers, workspace, &arguments, &d) == F8_OK, "%s",
                  d.text);
    ck_assert_msg(f8_cudnn_attention_run(a, arguments, NULL, &d) == F8_OK, "%s", d.text);
    cudnn_case_fetch(c);
    cudnn_case_release(c, workspace);
    f8_cudnn_destroy(&cudnn, &arguments);
    f8_cudnn_attention_destroy(a);
}

/* ---- numbers ---- */

static const int64_t shapes[][5] = {
    /* B, T, H, Hkv, D */
    {1, 2, 1, 1, 64},    {2, 64, 2, 2, 64}, {1, 65, 4, 2, 64},
    {1, 128, 2, 1, 128}, {2, 40, 6, 2, 80}, {1, 100, 3, 1, 32},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

START_TEST(numbers)
{
    const int64_t *s = shapes[_i / 2];
    f8_cudnn_attention_desc x = shape(s[0], s[1], s[2], s[3], s[4], _i & 1);
    x.scale *= _i % 3 ? 1.0f : 0.5f;
    cudnn_case c;
    printf("seed %d\n", _i + 1);
    cudnn_case_make(&c, &device, &x, _i % 4 * 8, (uint64_t)_i + 1);
    run(&c, false);
    cudnn_case_forward(&c);
    cudnn_case_compare(&c, F8_CUDNN_O);
    cudnn_case_compare(&c, CASE_LSE);
    run(&c, true);
    cudnn_case_backward(&c);
    for (int t = F8_CUDNN_DQ; t <= F8_CUDNN_DV; t++)
        cudnn_case_compare(&c, t);
    cudnn_case_free(&c);
}
END_TEST

/* The bounds are not so wide that a wrong scale or a wrong mask would pass. */
START_TEST(bounds_see_mistakes)
{
    for (int k = 0; k < 2; k++) {
        f8_cudnn_attention_desc x = shape(1, 64, 2, 2, 64, true);
        cudnn_case c;
        cudnn_case_make(&c, &device, &x, 0, 99);
        if (k)
            c.desc.causal = false;
        else
            c.desc.scale *= 1.05f;
        run(&c, false);
        c.desc.causal = true;
        c.desc.scale = x.scale;
        cudnn_case_forward(&c);
        int64_t off = 0;
        for (int64_t n = 0; n < x.B * x.H * x.T; n++) {
            float lse;
            memcpy(&lse, c.t[CASE_LSE].host + n * 4, 4);
            off += fabs((double)lse - c.t[CASE_LSE].value[n]) > c.t[CASE_LSE].bound[n];
        }
        ck_assert_msg(off > x.B * x.H * x.T / 2, "mistake %d: only %lld rows off", k,
                      (long long)off);
        cudnn_case_free(&c);
    }
}
END_TEST

/* Run twice, and twice from a captured graph: the same bits in every result. */
START_TEST(same_bits_every_time)
{
    f8_diag d = {0};
    f8_cudnn_attention_desc x = shape(2, 96, 4, 2, 64, true);
    cudnn_case c;
    cudnn_case_make(&c, &device, &x, 8, 5);
    f8_cudnn_attention *a[2] = {prepare(&c.desc, false, NULL), prepare(&c.desc, true, NULL)};
    void *pointers[CASE_TENSORS], *room[2];
    f8_cudnn_ref arguments[2];
    uint8_t *first[CASE_TENSORS] = {0};
    cudnn_case_pointers(&c, pointers);
    for (int k = 0; k < 2; k++) {
        room[k] = cudnn_case_room(&c, f8_cudnn_attention_workspace(a[k]));
        ck_assert_int_eq(f8_cudnn_attention_bind(a[k], pointers, room[k], &arguments[k], &d),
                         F8_OK);
    }
    const f8_cuda_api *cu = &device.cuda->cu;
    CUstream s;
    CUgraph graph;
    CUgraphExec exec;
    ck_assert_int_eq(cu->cuStreamCreate(&s, CU_STREAM_NON_BLOCKING), 0);
    ck_assert_int_eq(cu->cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), 0);
    for (int k = 0; k < 2; k++)
        ck_assert_msg(f8_cudnn_attention_run(a[k], arguments[k], s, &d) == F8_OK, "%s", d.text);
    ck_assert_int_eq(cu->cuStreamEndCapture(s, &graph), 0);
    ck_assert_int_eq(cu->cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
    for (int round = 0; round < 4; round++) {
        static const int results[] = {F8_CUDNN_O, CASE_LSE, F8_CUDNN_DQ, F8_CUDNN_DK, F8_CUDNN_DV};
        for (int i = 0; i < 5; i++)
            cudnn_case_clear(&c, results[i]);
        for (int k = 0; round < 2 && k < 2; k++)
            ck_assert_int_eq(f8_cudnn_attention_run(a[k], arguments[k], s, &d), F8_OK);
        if (round >= 2)
            ck_assert_int_eq(cu->cuGraphLaunch(exec, s), 0);
        ck_assert_int_eq(cu->cuStreamSynchronize(s), 0);
        cudnn_case_fetch(&c);
        for (int i = 0; i < 5; i++) {
            const size_t bytes = (size_t)c.t[results[i]].bytes;
            if (!first[i])
                first[i] = memcpy(malloc(bytes), c.t[results[i]].host, bytes);
            ck_assert_msg(!memcmp(first[i], c.t[results[i]].host, bytes), "round %d, result %d",
                          round, i);
        }
    }
    cu->cuGraphExecDestroy(exec);
    cu->cuGraphDestroy(graph);
    cu->cuStreamDestroy_v2(s);
    for (int k = 0; k < 2; k++) {
        f8_cudnn_destroy(&cudnn, &arguments[k]);
        f8_cudnn_attention_destroy(a[k]);
        cudnn_case_release(&c, room[k]);
    }
    for (int i = 0; i < CASE_TENSORS; i++)
        free(first[i]);
    cudnn_case_free(&c);
}
END_TEST

/* ---- the engine ---- */

/* The stand-in's list begins with an engine that does not repeat and one that refuses every plan.
 */
START_TEST(the_first_reproducible_engine_is_taken)
{
    if (!alive) {
        test_skip("the choice of an engine", "a GPU's list of engines is its own");
        return;
    }
    f8_cudnn_attention_desc x = shape(2, 64, 2, 2, 64, true);
    char text[F8_CUDNN_TEXT];
    f8_cudnn_attention *a = prepare(&x, false, NULL);
    f8_cudnn_attention_text(a, text);
    ck_assert_str_eq(text, "cudnn 9.19.0 engine 2 k24=7");
    const f8_cudnn_engine taken = *f8_cudnn_attention_engine(a);
    f8_cudnn_attention_destroy(a);

    a = prepare(&x, false, &(f8_cudnn_choice){.fixed = &taken}); /* as recorded */
    f8_cudnn_attention_text(a, text);
    ck_assert_str_eq(text, "cudnn 9.19.0 engine 2 k24=7");
    f8_cudnn_attention_destroy(a);

    const struct {
        f8_cudnn_choice choice;
        bool backward;
        const char *why;
    } refused[] = {
        {{.fixed = &(f8_cudnn_engine){.id = 90}}, false, "engine 90 is not deterministic"},
        {{.fixed = &(f8_cudnn_engine){.id = 91}}, false, "engine 91 refuses"},
        {{.fixed = &(f8_cudnn_engine){.id = 2}}, false, "settings"},
        {{.fixed = &taken}, true, "engine 2"},
        {{.workspace_limit = 100},
         false,
         "none of 3 engines takes this attention: cuDNN: engine 90"},
        {{.fixed = &taken, .workspace_limit = 100},
         false,
         "engine 2 wants a workspace of 256 bytes, 100 are allowed"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        f8_diag d = {0};
        x.backward = refused[i].backward;
        ck_assert_int_eq(f8_cudnn_attention_prepare(&cudnn, &x, &refused[i].choice, NULL, &a, &d),
                         F8_ERR_UNSUPPORTED);
        ck_assert_ptr_null(a);
        contains(d.text, refused[i].why);
    }
}
END_TEST

START_TEST(backward_keeps_its_workspace_apart)
{
    f8_cudnn_attention_desc x = shape(2, 64, 2, 2, 64, true);
    f8_cudnn_attention *a = prepare(&x, true, NULL);
    ck_assert_int_ge(f8_cudnn_attention_workspace(a), 2 * 2 * 64 * 4); /* delta at least */
    ck_assert_int_eq(f8_cudnn_attention_workspace(a) % 256, 0);
    if (alive) {
        char text[F8_CUDNN_TEXT];
        f8_cudnn_attention_text(a, text);
        ck_assert_str_eq(text, device.facts.sm / 10 == 10 ? "cudnn 9.19.0 engine 5 k24=31 k14=2"
                                                          : "cudnn 9.19.0 engine 6 k24=26");
    }
    f8_cudnn_attention_destroy(a);
}
END_TEST

/* ---- what is refused ---- */

START_TEST(what_is_not_supported_says_why)
{
    const f8_cudnn_attention_desc good = shape(2, 128, 4, 2, 64, true);
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
        contains(d.text, rows[i].why);
    }
}
END_TEST

START_TEST(arguments_are_checked)
{
    f8_diag d = {0};
    f8_cudnn_attention_desc x = shape(1, 64, 1, 1, 64, false);
    cudnn_case c;
    cudnn_case_make(&c, &device, &x, 0, 1);
    f8_cudnn_attention *a = prepare(&c.desc, false, NULL);
    void *pointers[CASE_TENSORS], *room = cudnn_case_room(&c, 4096);
    cudnn_case_pointers(&c, pointers);
    f8_cudnn_ref arguments;
    ck_assert_int_eq(f8_cudnn_attention_run(a, NULL, NULL, &d), F8_ERR_INTERNAL);
    contains(d.text, "before start and bind");
    for (int bad = 0; bad < 3; bad++) {
        void *p[CASE_TENSORS];
        memcpy(p, pointers, sizeof p);
        if (bad < 2)
            p[F8_CUDNN_V] = bad ? (char *)p[F8_CUDNN_V] + 2 : NULL;
        d = (f8_diag){0};
        ck_assert_int_eq(
            f8_cudnn_attention_bind(a, p, (char *)room + (bad == 2 ? 16 : 0), &arguments, &d),
            F8_ERR_INPUT);
        ck_assert_ptr_null(arguments);
        contains(d.text, bad == 2 ? "256-byte aligned" : "argument 2 is not 16-byte aligned");
    }
    f8_cudnn_attention_destroy(a);
    cudnn_case_release(&c, room);
    cudnn_case_free(&c);
}
END_TEST

/* ---- calls that fail ---- */

static void *fail_alloc(void *user, size_t size, size_t align)
{
    (void)user, (void)size, (void)align;
    return NULL;
}

/* Every call of the library fails once: a status, a message, nothing left behind. */
START_TEST(every_call_may_fail)
{
    static const char *const functions[] = {"cudnnBackendCreateDescriptor",
                                            "cudnnBackendSetAttribute", "cudnnBackendFinalize",
                                            "cudnnBackendGetAttribute"};
    if (!alive) {
        test_skip("failing calls of cuDNN", "a GPU's library does not fail on request");
        return;
    }
    f8_cudnn_attention_desc x = shape(1, 64, 2, 1, 64, true);
    x.backward = _i & 1;
    const int64_t before = alive();
    int failed = 0;
    for (int n = 1, worked = 0; !worked; n++) {
        f8_diag d = {0};
        f8_cudnn_attention *a;
        cuda_device_fail(functions[_i / 2], n);
        const f8_status s = f8_cudnn_attention_prepare(&cudnn, &x, NULL, NULL, &a, &d);
        cuda_device_fail(NULL, 0);
        worked = s == F8_OK; /* there is no call of that number */
        failed += !worked;
        if (!worked) {
            ck_assert_msg(s == F8_ERR_LIBRARY, "call %d: %s", n, d.text);
            contains(d.text, "asked to fail");
        }
        f8_cudnn_attention_destroy(a);
        ck_assert_int_eq(alive(), before);
    }
    ck_assert_int_gt(failed, 3);

    f8_diag d = {0};
    f8_cudnn_attention *a;
    const f8_allocator none = {fail_alloc, NULL, NULL};
    ck_assert_int_eq(f8_cudnn_attention_prepare(&cudnn, &x, NULL, &none, &a, &d), F8_ERR_MEMORY);
    ck_assert_int_eq(alive(), before);
}
END_TEST

START_TEST(running_may_fail)
{
    if (!alive) {
        test_skip("failing runs of cuDNN", "a GPU's library does not fail on request");
        return;
    }
    f8_diag d = {0};
    f8_cudnn other = cudnn;
    cuda_device_fail("cudnnCreate", 1);
    ck_assert_int_eq(f8_cudnn_start(&other, &d), F8_ERR_LIBRARY);
    contains(d.text, "cuDNN: cudnnCreate: CUDNN_STATUS_INTERNAL_ERROR: asked to fail");

    static const char *const functions[] = {"cudnnSetStream", "cudnnBackendExecute"};
    f8_cudnn_attention_desc x = shape(1, 64, 1, 1, 64, false);
    cudnn_case c;
    cudnn_case_make(&c, &device, &x, 0, 1);
    f8_cudnn_attention *a = prepare(&c.desc, false, NULL);
    void *pointers[CASE_TENSORS], *room = cudnn_case_room(&c, 4096);
    cudnn_case_pointers(&c, pointers);
    f8_cudnn_ref arguments;
    ck_assert_int_eq(f8_cudnn_attention_bind(a, pointers, room, &arguments, &d), F8_OK);
    for (int i = 0; i < 2; i++) {
        d = (f8_diag){0};
        cuda_device_fail(functions[i], 1);
        ck_assert_int_eq(f8_cudnn_attention_run(a, arguments, NULL, &d), F8_ERR_LIBRARY);
        contains(d.text, functions[i]);
    }
    cuda_device_fail(NULL, 0);
    ck_assert_int_eq(f8_cudnn_attention_run(a, arguments, NULL, &d), F8_OK);
    f8_cudnn_destroy(&cudnn, &arguments);
    f8_cudnn_attention_destroy(a);
    cudnn_case_release(&c, room);
    cudnn_case_free(&c);
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
    contains(d.text, "cuDNN 9.10.2 is too old for attention: 9.11 or later");
    unsetenv("FP8C_EMULATOR_CUDNN");
    cuda_device_close(&device);
    cuda_device_open(&device); /* the first answer to where it is counts */
    static const char *const nowhere[] = {"/nonexistent/lib", NULL};
    const char *const *folders = device.cuda->folders;
    device.cuda->folders = nowhere;
    d = (f8_diag){0};
    ck_assert_int_eq(f8_cudnn_find(device.cuda, &cudnn, &d), F8_ERR_LIBRARY);
    contains(d.text, "libcudnn.so.9");
    contains(d.text, "/nonexistent/lib");
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
        test_skip("the real cuDNN", "%s", d.text);
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
    for (int k = 0; k < 2 * N_SHAPES; k++) {
        const int64_t *s = shapes[k / 2];
        if (k % 5 && sm != 90)
            continue; /* all of them for one, for time */
        f8_cudnn_attention_desc x = shape(s[0], s[1], s[2], s[3], s[4], k & 1);
        char text[2][F8_CUDNN_TEXT];
        for (int again = 0; again < (k ? 1 : 2); again++)
            for (int backward = 0; backward < 2; backward++) {
                f8_cudnn_attention *a = prepare(&x, backward, NULL);
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
    f8_cudnn_attention_desc x = shape(1, 128, 2, 2, 64, true);
    x.backward = true;
    const f8_cudnn_choice wrong = {.fixed = &(f8_cudnn_engine){.id = 98765}};
    ck_assert_int_ne(f8_cudnn_attention_prepare(&cudnn, &x, &wrong, NULL, &a, &d), F8_OK);
    contains(d.text, "cuDNN: ");
    const f8_cudnn_choice narrow = {.workspace_limit = 1000};
    d = (f8_diag){0};
    ck_assert_int_eq(f8_cudnn_attention_prepare(&cudnn, &x, &narrow, NULL, &a, &d),
                     F8_ERR_UNSUPPORTED);
    contains(d.text, "1000 are allowed");
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
        test_skip("declarations against cudnn.h", "it is not in %s", include);
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
    Suite *s = suite_create("cudnn");
    TCase *t = tcase_create("device");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, open_all, close_all);
    tcase_add_loop_test(t, numbers, 0, 2 * N_SHAPES);
    tcase_add_test(t, bounds_see_mistakes);
    tcase_add_test(t, same_bits_every_time);
    tcase_add_test(t, the_first_reproducible_engine_is_taken);
    tcase_add_test(t, backward_keeps_its_workspace_apart);
    tcase_add_test(t, arguments_are_checked);
    tcase_add_loop_test(t, every_call_may_fail, 0, 8);
    tcase_add_test(t, running_may_fail);
    suite_add_tcase(s, t);
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
