/* See rank_gpu.h. */
#include "frontend/fp8c_ranks.h"
#include "tests/shared/api/rank_gpu.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

bool rank_gpus(const char *what)
{
    if (f8_test_gpu_emulated()) {
        setenv("FP8C_EMULATOR_DEVICES", "8", 1);
        return true;
    }
    test_skip(what, "several ranks need as many GPUs");
    return false;
}

fp8c_status rank_gpu_join(fp8c_context *ctx, const fp8c_comm *comm, double seconds,
                          fp8c_nccl **nccl, fp8c_comm *out)
{
    const fp8c_nccl_options o = {
        .struct_size = sizeof o, .device = comm->rank, .over = comm, .seconds = seconds};
    out->struct_size = sizeof *out;
    return fp8c_nccl_open(ctx, &o, out, nccl);
}

static void no_communicator_left(void)
{
    void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    int64_t (*count)(void) = NULL;
    if (!lib)
        return;
    *(void **)&count = dlsym(lib, "f8_emulator_communicators");
    ck_assert_msg(count() == 0, "%lld communicators are left", (long long)count());
    dlclose(lib);
}

void rank_gpu_nothing_left(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int64_t (*count)(const char *) = NULL;
    static const char *const kinds[] = {"stream", "event", "graph", "graph_exec", "allocation"};
    ck_assert_ptr_nonnull(lib);
    *(void **)&count = dlsym(lib, "f8_emulator_count");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        ck_assert_msg(count(kinds[i]) == 0, "%lld of kind %s are left", (long long)count(kinds[i]),
                      kinds[i]);
    dlclose(lib);
    no_communicator_left();
}
