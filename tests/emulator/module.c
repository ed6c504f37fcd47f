/* Modules made by the NVRTC stand-in: loading, kernels, their attributes and limits, launching. */
#include "tests/emulator/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct CUfunc_st {
    struct CUmod_st *module;
    const f8_emu_kernel *kernel;
    uint32_t static_bytes; /* its arrays in shared memory, as the device counts them */
    uint32_t placed_bytes; /* and as they are laid out here */
    int dynamic_limit;
};

struct CUmod_st {
    f8_emu_object object;
    void *library;
    int fd; /* of the file in memory: kept, since the loader knows libraries by path,
               /proc/self/fd/N */
    const f8_emu_image *image;
    struct CUfunc_st *function;
    size_t n_functions;
};

static int64_t launches;
enum { REGISTERS = 64 }; /* what every kernel claims to use */

int64_t f8_emu_launches(void)
{
    return launches;
}

/* ---- loading ---- */

/* "sm_90" runs on 9.0 and later minors, "sm_90a" on 9.0 alone. */
static bool runs_here(const char *arch)
{
    char *end;
    const long sm = strncmp(arch, "sm_", 3) == 0 ? strtol(arch + 3, &end, 10) : 0;
    const int here = f8_emulator_sm();
    if (!sm)
        return false;
    return *end == 'a' ? sm == here : sm / 10 == here / 10 && sm % 10 <= here % 10;
}

static CUresult check_cubin(const f8_emu_cubin *cubin)
{
    if (memcmp(cubin->magic, F8_EMU_MAGIC, sizeof cubin->magic) != 0 ||
        f8_emu_hash(0, cubin + 1, cubin->size) != cubin->hash)
        return CUDA_ERROR_INVALID_IMAGE;
    if (!runs_here(cubin->arch)) {
        f8_emu_note("a module for %s, the device is sm_%d", cubin->arch, f8_emulator_sm());
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    if (f8_emu_setting("FP8C_EMULATOR_DRIVER", 13000) / 1000 < cubin->toolkit / 1000) {
        f8_emu_note("a module of toolkit %d, the driver is of an older one", cubin->toolkit);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    return CUDA_SUCCESS;
}

/* A file in memory, so that each load is a library of its own. */
static void *load(const f8_emu_cubin *cubin, int fd)
{
    const char *bytes = (const char *)(cubin + 1);
    size_t left = cubin->size;
    void *library = NULL;
    while (fd >= 0 && left) {
        const ssize_t n = write(fd, bytes, left);
        if (n <= 0)
            break;
        bytes += n;
        left -= (size_t)n;
    }
    if (fd >= 0 && !left) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            f8_emu_note("%s", dlerror());
    }
    return library;
}

/* A redzone before each array and after the last. */
static void place_arrays(const f8_emu_image *image, struct CUfunc_st *f)
{
    uint32_t at = F8_EMU_REDZONE;
    for (f8_emu_array *const *a = image->array; a < image->array_end; a++)
        if (strcmp((*a)->body, f->kernel->body) == 0) {
            (*a)->offset = at;
            const uint32_t bytes = ((*a)->bytes + 127) / 128 * 128;
            at += bytes + F8_EMU_REDZONE;
            f->static_bytes += bytes;
        }
    f->placed_bytes = at;
}

/* Arrays declared outside of a kernel's own body would have nowhere to be. */
static bool arrays_have_kernels(const f8_emu_image *image)
{
    for (f8_emu_array *const *a = image->array; a < image->array_end; a++) {
        bool found = false;
        for (f8_emu_kernel *const *k = image->kernel; k < image->kernel_end && !found; k++)
            found = strcmp((*k)->body, (*a)->body) == 0;
        if (!found) {
            f8_emu_note("F8_SHARED in %s, which is no kernel", (*a)->body);
            return false;
        }
    }
    return true;
}

static CUresult load_module(CUmodule *out, const void *bytes)
{
    const f8_emu_cubin *cubin = bytes;
    if (!cubin || !out)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult r = check_cubin(cubin);
    if (r)
        return r;
    struct CUmod_st *m = f8_emu_object_new(F8_EMU_MODULE, sizeof *m);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->fd = memfd_create("module", MFD_CLOEXEC);
    m->library = load(cubin, m->fd);
    m->image = m->library ? dlsym(m->library, "f8_emu_image_of_text") : NULL;
    const size_t n = m->image ? (size_t)(m->image->kernel_end - m->image->kernel) : 0;
    m->function = calloc(n + 1, sizeof *m->function);
    if (!m->image || !m->function || m->image->version != F8_EMU_IMAGE_VERSION ||
        !arrays_have_kernels(m->image)) {
        f8_emu_object_free(m);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    m->n_functions = n;
    for (size_t i = 0; i < n; i++) {
        m->function[i] = (struct CUfunc_st){.module = m, .kernel = m->image->kernel[i]};
        place_arrays(m->image, &m->function[i]);
        if (m->function[i].static_bytes > F8_EMU_SHARED_DEFAULT) { /* what ptxas refuses */
            f8_emu_note("%s: %u bytes in arrays in shared memory, allowed %d",
                        m->function[i].kernel->name, m->function[i].static_bytes,
                        F8_EMU_SHARED_DEFAULT);
            f8_emu_object_free(m);
            return CUDA_ERROR_INVALID_IMAGE;
        }
        const int left = F8_EMU_SHARED_DEFAULT - (int)m->function[i].static_bytes;
        m->function[i].dynamic_limit = left > 0 ? left : 0;
    }
    *out = m;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    F8_EMU_ENTER(F8_EMU_UNSAFE);
    return load_module(module, image);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, int *option,
                            void **value)
{
    F8_EMU_ENTER(F8_EMU_UNSAFE);
    (void)option;
    (void)value;
    return n ? CUDA_ERROR_NOT_SUPPORTED : load_module(module, image);
}

void f8_emu_module_close(void *module)
{
    struct CUmod_st *m = module;
    if (m->library)
        dlclose(m->library);
    if (m->fd >= 0)
        close(m->fd);
    free(m->function);
}

CUresult cuModuleUnload(CUmodule module)
{
    F8_EMU_ENTER(F8_EMU_UNSAFE);
    f8_emu_wait_all(f8_emu_current());
    return f8_emu_object_destroy(module, F8_EMU_MODULE);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    if (!f8_emu_object_lives(module, F8_EMU_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; i < module->n_functions; i++)
        if (strcmp(module->function[i].kernel->name, name) == 0) {
            *function = &module->function[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

/* ---- attributes ---- */

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction f)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = f->kernel->threads; break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = (int)f->static_bytes; break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = 0; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = REGISTERS; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = f->dynamic_limit; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute which, int value)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    const f8_emu_device *d = f8_emu_device_now();
    if (which != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!d || value < 0 || value > d->optin - (int)f->static_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    f->dynamic_limit = value;
    return CUDA_SUCCESS;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction f, int threads,
                                                     size_t dynamic_shared)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    const f8_emu_device *d = f8_emu_device_now();
    if (!d || threads < 1)
        return CUDA_ERROR_INVALID_VALUE;
    const int64_t shared = (int64_t)f->static_bytes + (int64_t)dynamic_shared;
    const int by_shared = (int)(d->per_sm / (shared + F8_EMU_SHARED_RESERVED));
    const int by_registers = 65536 / (REGISTERS * threads);
    *blocks = least(least(d->threads / threads, by_shared), least(by_registers, d->blocks));
    if (threads > f->kernel->threads || shared > d->optin)
        *blocks = 0;
    return CUDA_SUCCESS;
}

/* ---- launching ---- */

size_t f8_emu_kernel_params(const f8_emu_kernel_call *call)
{
    return call->function->kernel->params;
}

int f8_emu_kernel_run(const f8_emu_kernel_call *call)
{
    const struct CUfunc_st *f = call->function;
    const int64_t seed = f8_emu_setting("FP8C_EMULATOR_SEED", 0);
    launches++;
    const f8_emu_launch launch = {
        .kernel = f->kernel,
        .context = f->module->image->context,
        .params = call->params,
        .blocks = call->blocks,
        .threads = call->threads,
        .static_bytes = f->placed_bytes,
        .dynamic_bytes = call->shared,
        .array = f->module->image->array,
        .array_end = f->module->image->array_end,
        /* Never 0, and another for every launch. */
        .seed = seed ? 2 * ((uint64_t)seed * 0x2545f4914f6cdd1du + (uint64_t)launches) + 1 : 0,
    };
    return f8_emu_run(&launch);
}

CUresult cuLaunchKernel(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream s, void **params, void **extra)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    if (!f || extra || !params || !params[0] || !grid_x || grid_x > INT32_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1) {
        f8_emu_note("%s: only one-dimensional launches are emulated", f->kernel->name);
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* A real device takes fewer threads than __launch_bounds__ says; our kernels rely on the
     * number. */
    if (block_x != (unsigned)f->kernel->threads) {
        f8_emu_note("%s: blocks of %u threads, declared %d", f->kernel->name, block_x,
                    f->kernel->threads);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (shared > (unsigned)f->dynamic_limit) {
        f8_emu_note("%s: %u bytes of dynamic shared memory, allowed %d", f->kernel->name, shared,
                    f->dynamic_limit);
        return CUDA_ERROR_INVALID_VALUE;
    }
    const f8_emu_device *d = f8_emu_device_now();
    if (!d || f->static_bytes + shared > (unsigned)d->optin)
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    f8_emu_kernel_call call = {f, grid_x, block_x, shared, malloc(f->kernel->params)};
    if (!call.params)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(call.params, params[0], f->kernel->params);
    return f8_emu_enqueue_kernel(s, &call);
}
