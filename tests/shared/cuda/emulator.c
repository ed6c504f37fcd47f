/* See emulator.h. */
#include "tests/shared/cuda/emulator.h"

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char emu_add_text[] =
    "#include \"fp8c.cuh\"\n"
    "struct add_params { const float *a, *b; float *c; f8_i64 n, tasks; };\n"
    "F8_KERNEL(add, 64, 1)\n"
    "{\n"
    "    for (f8_i64 task = f8_block(); task < p.tasks; task += f8_blocks()) {\n"
    "        const f8_i64 i = task * f8_threads() + f8_thread();\n"
    "        if (i < p.n)\n"
    "            p.c[i] = p.a[i] + p.b[i];\n"
    "    }\n"
    "}\n";

static void fill(void *table, const char *const *names, size_t n, const char *path, void **library)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(lib != NULL, "%s (make emulator)", dlerror());
    void **at = table;
    for (size_t i = 0; i < n; i++) {
        at[i] = dlsym(lib, names[i]);
        ck_assert_msg(at[i] != NULL, "%s has no %s", path, names[i]);
    }
    *library = lib;
}

void emu_open(emu *e)
{
    static const char *const cu[] = {F8_CUDA_SYMBOLS(F8_CUDA_API_NAME)};
    static const char *const rtc[] = {F8_NVRTC_SYMBOLS(F8_CUDA_API_NAME)};
    void *lib;
    CUcontext context;
    fill(&e->rtc, rtc, sizeof rtc / sizeof *rtc, "build/emulator/libnvrtc.so.13", &lib);
    fill(&e->cu, cu, sizeof cu / sizeof *cu, "build/emulator/libcuda.so.1", &lib);
    *(void **)&e->count = dlsym(lib, "f8_emulator_count");
    ck_assert_ptr_nonnull(e->count);
    ck_assert_int_eq(e->cu.cuInit(0), CUDA_SUCCESS);
    ck_assert_int_eq(e->cu.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    ck_assert_int_eq(e->cu.cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
    ck_assert_int_eq(e->cu.cuStreamCreate(&e->stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
}

void emu_open_gemm(f8_cublaslt_api *lt)
{
    static const char *const names[] = {F8_CUBLASLT_SYMBOLS(F8_CUDA_API_NAME)};
    void *lib;
    fill(lt, names, sizeof names / sizeof *names, "build/emulator/libcublasLt.so.13", &lib);
}

void emu_close(emu *e)
{
    CUcontext context;
    ck_assert_int_eq(e->cu.cuCtxPopCurrent_v2(&context), CUDA_SUCCESS);
    ck_assert_int_eq(e->cu.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    static const char *const kinds[] = {"allocation", "pinned", "module", "stream",
                                        "event",      "graph",  "graph_exec"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        ck_assert_int_eq(e->count(kinds[i]), 0);
}

CUdeviceptr emu_alloc(emu *e, size_t bytes)
{
    CUdeviceptr p;
    ck_assert_int_eq(e->cu.cuMemAlloc_v2(&p, bytes), CUDA_SUCCESS);
    return p;
}

CUdeviceptr emu_upload(emu *e, const void *from, size_t bytes)
{
    const CUdeviceptr p = emu_alloc(e, bytes);
    ck_assert_int_eq(e->cu.cuMemcpyHtoDAsync_v2(p, from, bytes, e->stream), CUDA_SUCCESS);
    ck_assert_int_eq(e->cu.cuStreamSynchronize(e->stream), CUDA_SUCCESS);
    return p;
}

void emu_download(emu *e, void *to, CUdeviceptr from, size_t bytes)
{
    ck_assert_int_eq(e->cu.cuMemcpyDtoHAsync_v2(to, from, bytes, e->stream), CUDA_SUCCESS);
    ck_assert_int_eq(e->cu.cuStreamSynchronize(e->stream), CUDA_SUCCESS);
}

char *emu_compile(emu *e, const char *text, const char *arch, size_t *size)
{
    nvrtcProgram p;
    size_t bytes;
    char option[64];
    snprintf(option, sizeof option, "--gpu-architecture=%s", arch);
    const char *options[] = {option,           "--fmad=false",     "--ftz=false",
                             "--prec-div=true", "--prec-sqrt=true", "--std=c++17"};
    const char *header = "", *header_name = "fp8c.cuh";
    ck_assert_int_eq(e->rtc.nvrtcCreateProgram(&p, text, "kernel.cu", 1, &header, &header_name), 0);
    const int r = e->rtc.nvrtcCompileProgram(p, 6, options);
    ck_assert_int_eq(e->rtc.nvrtcGetProgramLogSize(p, &bytes), 0);
    char *log = malloc(bytes);
    ck_assert_int_eq(e->rtc.nvrtcGetProgramLog(p, log), 0);
    ck_assert_msg(r == NVRTC_SUCCESS, "%s\n%s", e->rtc.nvrtcGetErrorString(r), log);
    free(log);
    ck_assert_int_eq(e->rtc.nvrtcGetCUBINSize(p, &bytes), 0);
    char *cubin = malloc(bytes);
    ck_assert_int_eq(e->rtc.nvrtcGetCUBIN(p, cubin), 0);
    ck_assert_int_eq(e->rtc.nvrtcDestroyProgram(&p), 0);
    if (size)
        *size = bytes;
    return cubin;
}

void emu_load(emu *e, const char *text, const char *name, CUmodule *module, CUfunction *function)
{
    char *cubin = emu_compile(e, text, "sm_90a", NULL);
    ck_assert_int_eq(e->cu.cuModuleLoadData(module, cubin), CUDA_SUCCESS);
    free(cubin);
    ck_assert_int_eq(e->cu.cuModuleGetFunction(function, *module, name), CUDA_SUCCESS);
}

int emu_run(emu *e, const char *text, const char *name, int grid, int threads, size_t shared,
            void *params)
{
    CUmodule module;
    CUfunction f;
    emu_load(e, text, name, &module, &f);
    if (shared > 48 * 1024)
        ck_assert_int_eq(e->cu.cuFuncSetAttribute(
                             f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared),
                         CUDA_SUCCESS);
    void *list[] = {params};
    ck_assert_int_eq(e->cu.cuLaunchKernel(f, (unsigned)grid, 1, 1, (unsigned)threads, 1, 1,
                                          (unsigned)shared, e->stream, list, NULL),
                     CUDA_SUCCESS);
    const int r = e->cu.cuStreamSynchronize(e->stream);
    if (!r)
        ck_assert_int_eq(e->cu.cuModuleUnload(module), CUDA_SUCCESS);
    return r;
}

char *emu_read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s", path);
    fseek(f, 0, SEEK_END);
    const long n = ftell(f);
    rewind(f);
    char *text = malloc((size_t)n + 1);
    text[fread(text, 1, (size_t)n, f)] = '\0';
    fclose(f);
    return text;
}
