/* Modules made by the NVRTC stand-in: loading, kernels, their attributes and limits, launching. */
#include "tests/emulator/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct CUfunc_st {
    struct CUmod_st *module;
    const f8_emu_kernel *kernel;
    f8_emu_context **context;
    f8_emu_array **array;
    unsigned n_arrays;
    uint32_t static_bytes; /* its arrays in shared memory, as the device counts them */
    uint32_t placed_bytes; /* and as they are laid out here */
    int dynamic_limit;
    int apart; /* launches that were (block.h) */
};

struct CUmod_st {
    f8_emu_object object;
    unsigned char *memory; /* of all pieces */
    size_t bytes;
    struct CUfunc_st *function;
    size_t n_functions;
};

static int64_t launches, dependent_launches;
enum { REGISTERS = 64 }; /* what every kernel claims to use */
/* So many launches of a kernel take memory out of reach, which takes long. Whether a kernel waits
 * does not depend on the launch. */
enum { MOST_APART = 4 };

int64_t f8_emu_launches(bool dependent)
{
    return dependent ? dependent_launches : launches;
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

static size_t page_aligned(size_t n)
{
    return (n + F8_EMU_PAGE - 1) / F8_EMU_PAGE * F8_EMU_PAGE;
}

static size_t memory_of(const f8_emu_piece *p)
{
    return page_aligned(p->code) + page_aligned(p->data);
}

static const f8_emu_piece *next_piece(const f8_emu_piece *p)
{
    return (const f8_emu_piece *)((const char *)p + p->bytes);
}

/* A piece at its place in memory. What it calls is in libm, or in libc. */
static bool load_piece(const f8_emu_piece *p, unsigned char *to, struct CUfunc_st *f)
{
    static void *library;
    if (!library)
        library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    const unsigned char *from = (const unsigned char *)(p + 1);
    memcpy(to, from, p->code);
    memcpy(to + page_aligned(p->code), from + p->code, p->data);
    const unsigned *array = (const unsigned *)(const void *)(from + p->code + p->data);
    unsigned at;
    for (unsigned i = 0; i < p->n_arrays; i++) {
        memcpy(&at, array + i, sizeof at);
        f->array[i] = (f8_emu_array *)(void *)(to + at);
    }
    const unsigned *address = array + p->n_arrays;
    for (unsigned i = 0; i < p->n_addresses; i++) {
        uint64_t value;
        memcpy(&at, address + i, sizeof at);
        memcpy(&value, to + at, sizeof value);
        value += (uint64_t)(uintptr_t)to;
        memcpy(to + at, &value, sizeof value);
    }
    for (unsigned i = 0; i < p->n_functions; i++) {
        f8_emu_function function;
        memcpy(&function, (const char *)(address + p->n_addresses) + i * sizeof function,
               sizeof function);
        void *found = library ? dlsym(library, function.name) : NULL;
        if (!found) {
            f8_emu_note("a kernel calls '%s', which is not there", function.name);
            return false;
        }
        memcpy(to + function.at, &found, sizeof found);
    }
    f->kernel = (const f8_emu_kernel *)(const void *)(to + p->kernel);
    f->context = (f8_emu_context **)(void *)(to + p->context);
    f->n_arrays = p->n_arrays;
    return !p->code || mprotect(to, page_aligned(p->code), PROT_READ | PROT_EXEC) == 0;
}

/* A redzone before each array and after the last. */
static void place_arrays(struct CUfunc_st *f)
{
    uint32_t at = F8_EMU_REDZONE;
    for (unsigned i = 0; i < f->n_arrays; i++) {
        f->array[i]->offset = at;
        const uint32_t bytes = (f->array[i]->bytes + 127) / 128 * 128;
        at += bytes + F8_EMU_REDZONE;
        f->static_bytes += bytes;
    }
    f->placed_bytes = at;
}

/* The kernels of all pieces. Arrays declared outside of a kernel's own body would have nowhere to
 * be. */
static bool load_pieces(struct CUmod_st *m, const f8_emu_piece *first, const f8_emu_piece *end)
{
    for (const f8_emu_piece *p = first; p < end; p = next_piece(p)) {
        if (p->version != F8_EMU_PIECE_VERSION || p->bytes < sizeof *p)
            return false;
        if (p->orphan[0]) {
            f8_emu_note("F8_SHARED in %s, which is no kernel", p->orphan);
            return false;
        }
        m->bytes += memory_of(p);
        m->n_functions++;
    }
    m->function = calloc(m->n_functions + 1, sizeof *m->function);
    m->memory =
        m->bytes ? mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                 : NULL;
    if (!m->function || m->memory == MAP_FAILED)
        return false;
    unsigned char *to = m->memory;
    struct CUfunc_st *f = m->function;
    for (const f8_emu_piece *p = first; p < end; to += memory_of(p), p = next_piece(p), f++) {
        f->module = m;
        f->array = calloc(p->n_arrays + 1, sizeof(f8_emu_array *));
        if (!f->array || !load_piece(p, to, f))
            return false;
        place_arrays(f);
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
    const char *first = (const char *)(cubin + 1);
    if (!load_pieces(m, (const f8_emu_piece *)(const void *)first,
                     (const f8_emu_piece *)(const void *)(first + cubin->size))) {
        f8_emu_object_free(m);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    for (size_t i = 0; i < m->n_functions; i++) {
        struct CUfunc_st *f = &m->function[i];
        if (f->static_bytes > F8_EMU_SHARED_DEFAULT) { /* what ptxas refuses */
            f8_emu_note("%s: %u bytes in arrays in shared memory, allowed %d", f->kernel->name,
                        f->static_bytes, F8_EMU_SHARED_DEFAULT);
            f8_emu_object_free(m);
            return CUDA_ERROR_INVALID_IMAGE;
        }
        f->dynamic_limit = F8_EMU_SHARED_DEFAULT - (int)f->static_bytes;
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
    if (m->memory && m->memory != MAP_FAILED)
        munmap(m->memory, m->bytes);
    for (size_t i = 0; i < m->n_functions && m->function; i++)
        free(m->function[i].array);
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
    struct CUfunc_st *f = call->function;
    const int64_t seed = f8_emu_setting("FP8C_EMULATOR_SEED", 0);
    launches++;
    dependent_launches += call->dependent;
    const f8_emu_launch launch = {
        .kernel = f->kernel,
        .context = f->context,
        .params = call->params,
        .blocks = call->blocks,
        .threads = call->threads,
        .static_bytes = f->placed_bytes,
        .dynamic_bytes = call->shared,
        .array = f->array,
        .n_arrays = f->n_arrays,
        /* Never 0, and another for every launch. */
        .dependent = call->dependent,
        .apart = call->dependent && f->apart++ < MOST_APART,
        .reach = f8_emu_memory_reach,
        .seed = seed ? 2 * ((uint64_t)seed * 0x2545f4914f6cdd1du + (uint64_t)launches) + 1 : 0,
    };
    return f8_emu_run(&launch);
}

static CUresult launch(const CUlaunchConfig *c, CUfunction f, void **params, void **extra,
                       bool dependent)
{
    const unsigned grid_x = c->gridDimX, block_x = c->blockDimX, shared = c->sharedMemBytes;
    if (!f || extra || !params || !params[0] || !grid_x || grid_x > INT32_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (c->gridDimY != 1 || c->gridDimZ != 1 || c->blockDimY != 1 || c->blockDimZ != 1) {
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
    f8_emu_kernel_call call = {f, grid_x, block_x, shared, malloc(f->kernel->params), dependent};
    if (!call.params)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(call.params, params[0], f->kernel->params);
    return f8_emu_enqueue_kernel(c->hStream, &call);
}

CUresult cuLaunchKernel(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream s, void **params, void **extra)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    const CUlaunchConfig c = {.gridDimX = grid_x,
                              .gridDimY = grid_y,
                              .gridDimZ = grid_z,
                              .blockDimX = block_x,
                              .blockDimY = block_y,
                              .blockDimZ = block_z,
                              .sharedMemBytes = shared,
                              .hStream = s};
    return launch(&c, f, params, extra, false);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
    F8_EMU_ENTER(F8_EMU_CONTEXT);
    bool dependent = false;
    for (unsigned i = 0; i < c->numAttrs; i++) {
        if (c->attrs[i].id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION ||
            f8_emulator_sm() < 90)
            return CUDA_ERROR_NOT_SUPPORTED;
        dependent = c->attrs[i].value.programmaticStreamSerializationAllowed;
    }
    return launch(c, f, params, extra, dependent);
}
