/* The emulator's driver and NVRTC as libraries: limits of launches, architectures, options and
 * errors of compilation, streams and graphs, memory, failures on request. */
#include "tests/emulator/driver.h"
#include "tests/shared/cuda/emulator.h"
#include "tests/shared/suite.h"

#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static emu e;

static void setup(void)
{
    emu_open(&e);
}

static void teardown(void)
{
    emu_close(&e);
}

/* ---- launches ---- */

START_TEST(launch_limits)
{
    CUmodule module;
    CUfunction f;
    int value;
    struct {
        CUdeviceptr a, b, c;
        int64_t n, tasks;
    } p = {0, 0, 0, 0, 0};
    void *params[] = {&p};
    emu_load(&e, emu_add_text, "add", &module, &f);
    ck_assert_int_eq(e.cu.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, e.stream, params, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(e.cu.cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 49153, e.stream, params, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(
        e.cu.cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 * 1024 + 1),
        CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(
        e.cu.cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 * 1024), 0);
    ck_assert_int_eq(e.cu.cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 227 * 1024, e.stream, params, NULL),
                     0);
    ck_assert_int_eq(e.cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, f, 64, 100 * 1024),
                     0);
    ck_assert_int_eq(value, 2);
    ck_assert_int_eq(e.cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, f, 64, 0), 0);
    ck_assert_int_eq(value, 16); /* registers */
    emu_load(
        &e,
        "#include \"fp8c.cuh\"\nstruct k_params { f8_u64 x; };\n"
        "F8_KERNEL(k, 32, 1) { F8_SHARED(float, a, 100); F8_SHARED(f8_u8, b, 1); a[0] = b[0]; }\n"
        "struct j_params { f8_u64 x; };\n"
        "F8_KERNEL(j, 32, 1) { F8_SHARED(float, a, 10); a[0] = 1; }\n",
        "k", &module, &f);
    ck_assert_int_eq(e.cu.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f), 0);
    ck_assert_int_eq(value, 512 + 128);
    ck_assert_int_eq(e.cu.cuModuleGetFunction(&f, module, "j"), 0);
    ck_assert_int_eq(e.cu.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f), 0);
    ck_assert_int_eq(value, 128);
    ck_assert_int_eq(e.cu.cuModuleGetFunction(&f, module, "i"), CUDA_ERROR_NOT_FOUND);
}
END_TEST

/* A block of parameters of which the kernel reads less than it declares: the driver copies all of
 * it, at once. Where the block's memory ends before its type does, that is a fault. */
static const char roomy_text[] =
    "#include \"fp8c.cuh\"\n"
    "struct roomy_params { f8_i64 n; float *x; f8_i64 unused[254]; };\n"
    "F8_KERNEL(roomy, 32, 1)\n"
    "{\n"
    "    if (f8_thread() == 0)\n"
    "        p.x[0] = (float)p.n;\n"
    "}\n";
enum { ROOMY_BYTES = 256 * 8 };

/* In a process of its own, the parameters being the last `room` bytes before memory that nobody may
 * read: whether it comes through. */
static bool launch_survives(CUfunction f, CUdeviceptr x, size_t room)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *base = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert(base != MAP_FAILED && page >= ROOMY_BYTES);
    ck_assert_int_eq(mprotect(base + page, page, PROT_NONE), 0);
    char *p = base + page - room;
    memcpy(p, &(int64_t){5}, 8);
    memcpy(p + 8, &x, sizeof x);
    void *params[] = {p};
    fflush(NULL);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        if (!freopen("/dev/null", "w",
                     stderr)) /* a sanitizer's report of what is meant to happen */
            _exit(3);
        _exit(e.cu.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, e.stream, params, NULL) != CUDA_SUCCESS);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    munmap(base, 2 * page);
    ck_assert_msg(!WIFEXITED(status) || WEXITSTATUS(status) != 3, "no /dev/null");
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

START_TEST(parameters_are_read_whole)
{
    CUmodule module;
    CUfunction f;
    CUdeviceptr x;
    emu_load(&e, roomy_text, "roomy", &module, &f);
    ck_assert_int_eq(e.cu.cuMemAlloc_v2(&x, 256), 0);
    ck_assert(launch_survives(f, x, ROOMY_BYTES));
    ck_assert(!launch_survives(f, x, ROOMY_BYTES - 8));
    ck_assert(!launch_survives(f, x, 16)); /* all that the kernel looks at */
    ck_assert_int_eq(e.cu.cuMemFree_v2(x), 0);
}
END_TEST

START_TEST(architectures)
{
    static const struct {
        const char *arch, *sm;
        int error;
    } row[] = {{"sm_90a", "90", 0},
               {"sm_90", "100", CUDA_ERROR_NO_BINARY_FOR_GPU},
               {"sm_89", "89", 0},
               {"sm_90a", "89", CUDA_ERROR_NO_BINARY_FOR_GPU},
               {"sm_100a", "100", 0},
               {"sm_120a", "120", 0},
               {"sm_120a", "100", CUDA_ERROR_NO_BINARY_FOR_GPU}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        CUmodule module = NULL;
        char *cubin = emu_compile(&e, emu_add_text, row[i].arch, NULL);
        setenv("FP8C_EMULATOR_SM", row[i].sm, 1);
        ck_assert_msg(e.cu.cuModuleLoadData(&module, cubin) == row[i].error, "%s", row[i].arch);
        free(cubin);
    }
    setenv("FP8C_EMULATOR_SM", "90", 1);
    setenv("FP8C_EMULATOR_DRIVER", "12080", 1);
    char *cubin = emu_compile(&e, emu_add_text, "sm_90a", NULL);
    CUmodule module = NULL;
    ck_assert_int_eq(e.cu.cuModuleLoadData(&module, cubin), CUDA_ERROR_INVALID_IMAGE);
    unsetenv("FP8C_EMULATOR_DRIVER");
    cubin[200] ^= 1;
    ck_assert_int_eq(e.cu.cuModuleLoadData(&module, cubin), CUDA_ERROR_INVALID_IMAGE);
    ck_assert_int_eq(
        e.cu.cuModuleLoadData(&module, "\177ELF, and what else a real one has, at length"),
        CUDA_ERROR_INVALID_IMAGE);
    free(cubin);
}
END_TEST

/* ---- NVRTC ---- */

static int compile_with(const char *const *options, int n, const char *text, char *log, size_t room)
{
    nvrtcProgram p;
    size_t bytes = 0;
    const char *header = "", *name = "fp8c.cuh";
    ck_assert_int_eq(e.rtc.nvrtcCreateProgram(&p, text, "it.cu", 1, &header, &name), 0);
    const int r = e.rtc.nvrtcCompileProgram(p, n, options);
    ck_assert_int_eq(e.rtc.nvrtcGetProgramLogSize(p, &bytes), 0);
    ck_assert_uint_le(bytes, room);
    ck_assert_int_eq(e.rtc.nvrtcGetProgramLog(p, log), 0);
    if (r) {
        size_t none;
        ck_assert_int_eq(e.rtc.nvrtcGetCUBINSize(p, &none), NVRTC_ERROR_INVALID_PROGRAM);
    }
    e.rtc.nvrtcDestroyProgram(&p);
    return r;
}

START_TEST(compile_options)
{
    static char log[65536];
    const char *options[] = {"--gpu-architecture=sm_90a", "--fmad=false", "--ftz=false"};
    ck_assert_int_eq(compile_with(options, 3, emu_add_text, log, sizeof log), 0);
    ck_assert_ptr_nonnull(strstr(log, "Compiling entry function 'add' for 'sm_90a'"));
    ck_assert_ptr_nonnull(strstr(log, "0 bytes spill stores"));
    ck_assert_ptr_nonnull(strstr(log, "emulated"));
    ck_assert_int_eq(compile_with(options, 1, emu_add_text, log, sizeof log),
                     NVRTC_ERROR_INVALID_OPTION);
    ck_assert_ptr_nonnull(strstr(log, "--fmad=false"));
    options[2] = "--use_fast_math";
    ck_assert_int_eq(compile_with(options, 3, emu_add_text, log, sizeof log),
                     NVRTC_ERROR_INVALID_OPTION);
    options[2] = "--ftz=true";
    ck_assert_int_eq(compile_with(options, 3, emu_add_text, log, sizeof log),
                     NVRTC_ERROR_INVALID_OPTION);
    options[2] = "--ftz=false";
    static const char *const unknown[] = {"sm_60", "sm_90b", "sm_89a", "compute_90", "sm_"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        char arch[64];
        snprintf(arch, sizeof arch, "--gpu-architecture=%s", unknown[i]);
        options[0] = arch;
        ck_assert_int_eq(compile_with(options, 3, emu_add_text, log, sizeof log),
                         NVRTC_ERROR_INVALID_OPTION);
    }
}
END_TEST

START_TEST(compile_errors)
{
    static char log[65536];
    const char *options[] = {"--gpu-architecture=sm_90a", "--fmad=false"};
    static const char *const wrong[] = {
        "#include \"fp8c.cuh\"\nstruct k_params { f8_u64 x; };\n\nF8_KERNEL(k, 32, 1) { "
        "undeclared(); }\n",
        /* What only the toolkit has, or only the host. */
        "#include \"fp8c.cuh\"\nstruct k_params { f8_u64 x; };\n\nF8_KERNEL(k, 32, 1) { "
        "__syncthreads(); }\n",
        "#include \"fp8c.cuh\"\nstruct k_params { f8_u64 x; };\n\nF8_KERNEL(k, 32, 1) { "
        "threadIdx.x; }\n",
        "#include \"fp8c.cuh\"\n\n\n#include <stdio.h>\n",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_int_eq(compile_with(options, 2, wrong[i], log, sizeof log),
                         NVRTC_ERROR_COMPILATION);
        ck_assert_msg(strstr(log, "it.cu:4") != NULL, "%s", log);
    }
}
END_TEST

/* ---- streams, graphs, memory, failures on request ---- */

START_TEST(graphs)
{
    enum { N = 64 };
    float a[N], b[N], c[N];
    for (int i = 0; i < N; i++) {
        a[i] = (float)i;
        b[i] = 1;
    }
    CUmodule module;
    CUfunction f;
    emu_load(&e, emu_add_text, "add", &module, &f);
    struct {
        CUdeviceptr a, b, c;
        int64_t n, tasks;
    } p = {emu_alloc(&e, sizeof a), emu_upload(&e, b, sizeof b), emu_alloc(&e, sizeof c), N, 1};
    void *params[] = {&p};
    CUgraph graph;
    CUgraphExec exec;
    float *host;
    ck_assert_int_eq(e.cu.cuMemAllocHost_v2((void **)&host, 2 * sizeof a), 0);
    ck_assert_int_eq(e.cu.cuStreamBeginCapture_v2(e.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                     0);
    ck_assert_int_eq(e.cu.cuMemcpyHtoDAsync_v2(p.a, host, sizeof a, e.stream), 0);
    ck_assert_int_eq(e.cu.cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, e.stream, params, NULL), 0);
    ck_assert_int_eq(e.cu.cuMemcpyDtoHAsync_v2(host + N, p.c, sizeof c, e.stream), 0);
    p.n = 0; /* parameters were copied */
    ck_assert_int_eq(e.cu.cuStreamEndCapture(e.stream, &graph), 0);
    ck_assert(isnan(host[N]));
    ck_assert_int_eq(e.cu.cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
    ck_assert_int_eq(e.cu.cuGraphDestroy(graph), 0);
    for (int run = 0; run < 3; run++) {
        for (int i = 0; i < N; i++)
            host[i] = a[i] + (float)run;
        ck_assert_int_eq(e.cu.cuGraphLaunch(exec, e.stream), 0);
        ck_assert_int_eq(e.cu.cuStreamSynchronize(e.stream), 0);
        for (int i = 0; i < N; i++)
            ck_assert(host[N + i] == (float)(i + run + 1));
    }
    ck_assert_int_eq(e.cu.cuGraphExecDestroy(exec), 0);
    ck_assert_int_eq(e.cu.cuGraphLaunch(exec, e.stream), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_int_eq(e.cu.cuMemFreeHost(host), 0);
}
END_TEST

/* Lazy streams work when somebody waits for them, in the order of their events. */
START_TEST(lazy_streams)
{
    setenv("FP8C_EMULATOR_LAZY", "1", 1);
    CUdeviceptr p;
    CUstream other;
    CUevent event;
    uint32_t from = 1, to = 0, value;
    ck_assert_int_eq(e.cu.cuMemAlloc_v2(&p, 8), 0);
    ck_assert_int_eq(e.cu.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), 0);
    ck_assert_int_eq(e.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), 0);
    ck_assert_int_eq(e.cu.cuMemcpyHtoDAsync_v2(p, &from, 4, e.stream), 0);
    from = 2; /* too early: the copy was not done yet */
    ck_assert_int_eq(e.cu.cuMemcpyDtoHAsync_v2(&to, p, 4, other), 0);
    ck_assert_int_eq(e.cu.cuStreamSynchronize(other), 0);
    ck_assert_uint_eq(to, 0xffffffff); /* nobody waited: fresh memory */
    ck_assert_int_eq(e.cu.cuEventRecord(event, e.stream), 0);
    from = 3;
    ck_assert_int_eq(e.cu.cuMemcpyHtoDAsync_v2(p + 4, &from, 4, e.stream), 0);
    ck_assert_int_eq(e.cu.cuStreamWaitEvent(other, event, 0), 0);
    ck_assert_int_eq(e.cu.cuMemcpyDtoHAsync_v2(&to, p, 4, other), 0);
    ck_assert_int_eq(e.cu.cuMemcpyDtoHAsync_v2(&value, p + 4, 4, other), 0);
    ck_assert_int_eq(e.cu.cuStreamSynchronize(other), 0);
    ck_assert_uint_eq(to, 3);
    ck_assert_uint_eq(value, 0xffffffff); /* what came after the event is still to be done */
    ck_assert_int_eq(e.cu.cuMemcpyDtoHAsync_v2(&value, p + 4, 4, NULL), 0);
    ck_assert_uint_eq(value, 3); /* the default stream waits for all */
    ck_assert_int_eq(e.cu.cuStreamWaitEvent(other, (CUevent)&value, 0), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_int_eq(e.cu.cuEventDestroy_v2(event), 0);
    ck_assert_int_eq(e.cu.cuStreamDestroy_v2(other), 0);
    ck_assert_int_eq(e.cu.cuMemFree_v2(p), 0);
    unsetenv("FP8C_EMULATOR_LAZY");
}
END_TEST

START_TEST(capture_forbids)
{
    CUgraph graph;
    CUdeviceptr more;
    ck_assert_int_eq(e.cu.cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ck_assert_int_eq(e.cu.cuStreamBeginCapture_v2(e.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                     0);
    ck_assert_int_eq(e.cu.cuMemAlloc_v2(&more, 16), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ck_assert_int_eq(e.cu.cuStreamEndCapture(e.stream, &graph),
                     CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ck_assert_int_eq(e.cu.cuStreamBeginCapture_v2(e.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                     0);
    ck_assert_int_eq(e.cu.cuStreamSynchronize(e.stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ck_assert_int_eq(e.cu.cuStreamEndCapture(e.stream, &graph),
                     CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ck_assert_int_eq(e.cu.cuStreamBeginCapture_v2(e.stream, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
    ck_assert_int_eq(e.cu.cuMemAlloc_v2(&more, 16), 0);
    ck_assert_int_eq(e.cu.cuStreamEndCapture(e.stream, &graph), 0);
    ck_assert_int_eq(e.cu.cuGraphDestroy(graph), 0);
    ck_assert_int_eq(e.cu.cuStreamEndCapture(e.stream, &graph), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(memory)
{
    CUdeviceptr p, q;
    size_t free_bytes, total;
    unsigned type;
    uint8_t byte = 0;
    setenv("FP8C_EMULATOR_MEMORY", "1000000", 1);
    ck_assert_int_eq(e.cu.cuMemAlloc_v2(&p, 600000), 0);
    ck_assert_uint_eq(p % 256, 0);
    ck_assert_int_eq(e.cu.cuMemAlloc_v2(&q, 600000), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_int_eq(e.cu.cuMemGetInfo_v2(&free_bytes, &total), 0);
    ck_assert_uint_eq(total, 1000000);
    ck_assert_uint_eq(free_bytes, 1000000 - (600000 + 255) / 256 * 256);
    ck_assert_int_eq(
        e.cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 599999), 0);
    ck_assert_uint_eq(type, CU_MEMORYTYPE_DEVICE);
    ck_assert_int_eq(e.cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                (CUdeviceptr)(uintptr_t)&byte),
                     CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(e.cu.cuMemcpyDtoHAsync_v2(&byte, p + 599999, 1, e.stream), 0);
    ck_assert_int_eq(e.cu.cuMemcpyDtoHAsync_v2(&byte, p + 600000, 1, e.stream),
                     CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(e.cu.cuMemcpyHtoDAsync_v2(p + 599999, &byte, 2, e.stream),
                     CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(e.cu.cuMemFree_v2(p + 16), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(e.cu.cuMemFree_v2(p), 0);
    ck_assert_int_eq(e.cu.cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(e.cu.cuMemAlloc_v2(&q, 600000), 0);
    ck_assert_uint_ne(p, q); /* an address is never used again */
    ck_assert_int_eq(e.count("allocation"), 1);
}
END_TEST

START_TEST(failures_on_request)
{
    CUdeviceptr p;
    size_t a, b;
    setenv("FP8C_EMULATOR_FAIL", "cuMemAlloc:2", 1);
    ck_assert_int_eq(e.cu.cuMemAlloc_v2(&p, 16), 0);
    ck_assert_int_eq(e.cu.cuMemAlloc_v2(&p, 16), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_int_eq(e.cu.cuMemAlloc_v2(&p, 16), 0);
    setenv("FP8C_EMULATOR_FAIL", "nvrtcCompileProgram", 1);
    const char *options[] = {"--gpu-architecture=sm_90a", "--fmad=false"};
    static char log[65536];
    ck_assert_int_eq(compile_with(options, 2, emu_add_text, log, sizeof log),
                     NVRTC_ERROR_INTERNAL_ERROR);
    setenv("FP8C_EMULATOR_FAIL", "cuStreamSynchronize:1:700",
           1); /* a device in trouble: it sticks */
    ck_assert_int_eq(e.cu.cuStreamSynchronize(e.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    unsetenv("FP8C_EMULATOR_FAIL");
    ck_assert_int_eq(e.cu.cuMemGetInfo_v2(&a, &b), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(no_device)
{
    emu_close(&e);
    setenv("FP8C_EMULATOR_DEVICES", "0", 1);
    ck_assert_int_eq(e.cu.cuInit(0), CUDA_ERROR_NO_DEVICE);
    unsetenv("FP8C_EMULATOR_DEVICES");
    setenv("FP8C_EMULATOR_DRIVER", "12020", 1);
    int version;
    ck_assert_int_eq(e.cu.cuDriverGetVersion(&version), 0);
    ck_assert_int_eq(version, 12020);
    emu_open(&e);
}
END_TEST

/* ---- the default stream under its name, and the record ---- */

static CUstream named(uintptr_t handle)
{
    return (CUstream)handle; /* NOLINT: a name of cuda.h, not an address */
}

/* CU_STREAM_LEGACY is ordered with streams that are not created with CU_STREAM_NON_BLOCKING. */
START_TEST(legacy_stream)
{
    uint8_t zero = 0, got = 9;
    CUstream ordered;
    setenv("FP8C_EMULATOR_LAZY", "1", 1);
    ck_assert_int_eq(e.cu.cuStreamCreate(&ordered, CU_STREAM_DEFAULT), 0);
    for (int i = 0; i < 2; i++) { /* e.stream is not ordered with it */
        const CUdeviceptr x = emu_upload(&e, &zero, 1), y = emu_upload(&e, &zero, 1);
        CUstream s = i ? e.stream : ordered, legacy = named(F8_EMULATOR_LEGACY);
        ck_assert_int_eq(e.cu.cuMemsetD8Async(x, 1, 1, s), 0);
        ck_assert_int_eq(e.cu.cuMemcpyDtoDAsync_v2(y, x, 1, legacy), 0);
        ck_assert_int_eq(e.cu.cuMemsetD8Async(x, 2, 1, s), 0); /* behind the copy, if ordered */
        ck_assert_int_eq(e.cu.cuStreamSynchronize(s), 0);
        ck_assert_int_eq(e.cu.cuMemcpyDtoHAsync_v2(&got, y, 1, legacy), 0);
        ck_assert_int_eq(e.cu.cuStreamSynchronize(legacy), 0);
        ck_assert_uint_eq(got, i ? 2 : 1);
        ck_assert_int_eq(e.cu.cuMemFree_v2(x), 0);
        ck_assert_int_eq(e.cu.cuMemFree_v2(y), 0);
    }
    ck_assert_int_eq(e.cu.cuStreamDestroy_v2(ordered), 0);
    ck_assert_int_eq(
        e.cu.cuStreamBeginCapture_v2(named(F8_EMULATOR_LEGACY), CU_STREAM_CAPTURE_MODE_RELAXED),
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ck_assert_int_eq(e.cu.cuStreamDestroy_v2(named(F8_EMULATOR_LEGACY)), CUDA_ERROR_INVALID_HANDLE);
    unsetenv("FP8C_EMULATOR_LAZY");
}
END_TEST

START_TEST(record)
{
    static const char *const kinds[] = {"set", "copy", "set", "copy", "set"};
    const uintptr_t streams[] = {F8_EMULATOR_PER_THREAD, F8_EMULATOR_LEGACY, 0, 0,
                                 F8_EMULATOR_LEGACY};
    void *lib = dlopen("build/emulator/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void (*begin)(void);
    int (*recorded)(int, f8_emulator_work *);
    int64_t (*waits)(const char *);
    *(void **)&begin = dlsym(lib, "f8_emulator_record");
    *(void **)&recorded = dlsym(lib, "f8_emulator_recorded");
    *(void **)&waits = dlsym(lib, "f8_emulator_waits");
    ck_assert(begin && recorded && waits);
    const CUdeviceptr x = emu_alloc(&e, 16);
    void *pinned;
    char pageable[16];
    CUgraph graph;
    CUgraphExec exec;
    f8_emulator_work w;
    ck_assert_int_eq(e.cu.cuMemAllocHost_v2(&pinned, 16), 0);
    memset(pinned, 0, 16);
    begin();
    ck_assert_int_eq(e.cu.cuMemsetD8Async(x, 1, 1, named(F8_EMULATOR_PER_THREAD)), 0);
    ck_assert_int_eq(e.cu.cuMemcpyHtoDAsync_v2(x, pinned, 16, named(F8_EMULATOR_LEGACY)), 0);
    ck_assert_int_eq(e.cu.cuMemsetD8Async(x, 1, 1, NULL), 0);
    ck_assert_int_eq(waits(NULL), 0);
    ck_assert_int_eq(e.cu.cuMemcpyDtoHAsync_v2(pageable, x, 16, NULL), 0);
    ck_assert_int_eq(e.cu.cuStreamBeginCapture_v2(e.stream, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
    ck_assert_int_eq(e.cu.cuMemsetD8Async(x, 1, 1, e.stream), 0); /* not yet */
    ck_assert_int_eq(e.cu.cuStreamEndCapture(e.stream, &graph), 0);
    ck_assert_int_eq(e.cu.cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
    ck_assert_int_eq(e.cu.cuGraphLaunch(exec, named(F8_EMULATOR_LEGACY)), 0);
    ck_assert_int_eq(e.cu.cuStreamSynchronize(e.stream), 0);
    for (int i = 0; i < 5; i++) {
        ck_assert(recorded(i, &w));
        ck_assert_str_eq(w.kind, kinds[i]);
        ck_assert_uint_eq((uintptr_t)w.stream, streams[i]);
        ck_assert_int_eq(w.graph, i == 4);
    }
    ck_assert(!recorded(5, &w) && !recorded(-1, &w));
    ck_assert_int_eq(waits("pageable copy"), 1);
    ck_assert_int_eq(waits("cuStreamSynchronize"), 1);
    ck_assert_int_eq(e.cu.cuMemFree_v2(x), 0);
    ck_assert_int_eq(waits("free"), 1);
    ck_assert_int_eq(waits(NULL), 3);
    ck_assert_int_eq(waits("another"), -1);
    begin();
    ck_assert(!recorded(0, &w) && waits(NULL) == 0);
    ck_assert_int_eq(e.cu.cuGraphExecDestroy(exec), 0);
    ck_assert_int_eq(e.cu.cuGraphDestroy(graph), 0);
    ck_assert_int_eq(e.cu.cuMemFreeHost(pinned), 0);
    dlclose(lib);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("emulator_api");
    TCase *tc = tcase_create("emulator_api");
    suite_add_tcase(suite, tc);
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, launch_limits);
    tcase_add_test(tc, parameters_are_read_whole);
    tcase_add_test(tc, architectures);
    tcase_add_test(tc, compile_options);
    tcase_add_test(tc, compile_errors);
    tcase_add_test(tc, graphs);
    tcase_add_test(tc, lazy_streams);
    tcase_add_test(tc, capture_forbids);
    tcase_add_test(tc, memory);
    tcase_add_test(tc, failures_on_request);
    tcase_add_test(tc, no_device);
    tcase_add_test(tc, legacy_stream);
    tcase_add_test(tc, record);
    return suite;
}
