/* The GPU's libraries and one device: see device.h. */
#include "runtime/cuda/internal.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "ir/base/format.h"

/* ---- the primary context ---- */

/* The devices whose primary context is kept for the process, as bits by ordinal. cuBLASLt and cuDNN
 * stay mapped until the process ends (runtime/base/dynlib.h), and keep state in that context. If it
 * were destroyed, their state would point to nothing. So one retain of it is never released. The
 * bits are static because no context of fp8c lives as long as the process. No result depends on
 * them. */
static _Atomic uint64_t kept;

static uint64_t bit_of(CUdevice device)
{
    return device >= 0 && device < 64 ? (uint64_t)1 << device : 0;
}

static f8_status retain(f8_cuda *c, int ordinal, f8_diag *d)
{
    CUcontext context = NULL;
    unsigned flags;
    int active = 0;
    F8_TRY(f8_cuda_check(c, c->cu.cuDevicePrimaryCtxGetState(c->device, &flags, &active), d,
                         "cuDevicePrimaryCtxGetState of device %d", ordinal));
    if (!active) /* somebody has reset the device: what was retained is gone */
        atomic_fetch_and(&kept, ~bit_of(c->device));
    F8_TRY(f8_cuda_check(c, c->cu.cuDevicePrimaryCtxRetain(&context, c->device), d,
                         "cuDevicePrimaryCtxRetain of device %d", ordinal));
    c->context = context;
    return F8_OK;
}

/* Whether a fault on the device has left the context of no further use. */
static bool is_lost(f8_cuda *c)
{
    size_t free, all;
    if (f8_cuda_enter(c, NULL) != F8_OK)
        return true;
    const bool lost = c->cu.cuMemGetInfo_v2(&free, &all) != CUDA_SUCCESS;
    f8_cuda_leave(c);
    return lost;
}

/* The first retain of a device that ends, once a library may have state there, is the one that the
 * process keeps. A context that is lost is not kept: nothing can run there again, and its memory
 * comes back only with its end. */
static void release(f8_cuda *c)
{
    const uint64_t bit = bit_of(c->device);
    const bool has_state = c->library[F8_CUDA_CUBLASLT].file.handle ||
                           c->library[F8_CUDA_CUDNN].file.handle ||
                           c->library[F8_CUDA_NCCL].file.handle;
    if (!c->context)
        return;
    if (is_lost(c)) {
        if (atomic_fetch_and(&kept, ~bit) & bit)
            c->cu.cuDevicePrimaryCtxRelease_v2(c->device);
    } else if (has_state && !(atomic_fetch_or(&kept, bit) & bit)) {
        return;
    }
    c->cu.cuDevicePrimaryCtxRelease_v2(c->device);
}

/* ---- life ---- */

f8_status f8_cuda_create(const f8_cuda_paths *paths, const f8_allocator *allocator, f8_cuda **out,
                         f8_diag *diag)
{
    *out = NULL;
    const f8_allocator a = allocator ? *allocator : f8_default_allocator();
    f8_cuda *c = a.alloc(a.user, sizeof *c, 16);
    if (!c)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       sizeof *c);
    *c = (f8_cuda){.allocator = a};
    f8_arena_init(&c->memory, &c->allocator);
    c->folders = f8_cuda_folders(paths, &c->memory);
    if (!c->folders || pthread_mutex_init(&c->lock, NULL) != 0) {
        const f8_status status = c->folders
                                     ? f8_fail(diag, F8_ERR_IO, F8_NOWHERE, "can't make a mutex")
                                     : f8_arena_status(&c->memory, diag);
        f8_arena_end(&c->memory);
        a.free(a.user, c, sizeof *c);
        return status;
    }
    *out = c;
    return F8_OK;
}

void f8_cuda_destroy(f8_cuda *c)
{
    if (!c)
        return;
    /* Results are of no use here: after a lost device every call fails, and there is nothing to
     * undo. */
    if (c->handle && f8_cuda_enter(c, NULL) == F8_OK) {
        c->lt.cublasLtDestroy(c->handle);
        f8_cuda_leave(c);
    }
    release(c);
    for (int i = 0; i < F8_CUDA_N_LIBRARIES; i++)
        f8_dynlib_close(&c->library[i].file);
    pthread_mutex_destroy(&c->lock);
    f8_arena_end(&c->memory);
    const f8_allocator a = c->allocator;
    a.free(a.user, c, sizeof *c);
}

/* ---- checked calls ---- */

static f8_status call_failed(f8_diag *diag, f8_status status, const char *call, va_list args,
                             const char *name, const char *text)
{
    char what[512];
    f8_vformat(what, sizeof what, call, args);
    return f8_fail(diag, status, F8_NOWHERE, "%s: %s (%s)", what, name, text);
}

f8_status f8_cuda_check(const f8_cuda *c, CUresult result, f8_diag *diag, const char *call, ...)
{
    if (result == CUDA_SUCCESS)
        return F8_OK;
    char number[40];
    snprintf(number, sizeof number, "CUDA error %d", result);
    const char *name = NULL, *text = NULL;
    if (c->cu.cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
        name = number;
    if (c->cu.cuGetErrorString(result, &text) != CUDA_SUCCESS || !text)
        text = "the driver has no text for it";
    va_list args;
    va_start(args, call);
    const f8_status status =
        call_failed(diag, result == CUDA_ERROR_OUT_OF_MEMORY ? F8_ERR_MEMORY : F8_ERR_LIBRARY, call,
                    args, name, text);
    va_end(args);
    return status;
}

f8_status f8_cublaslt_check(const f8_cuda *c, cublasStatus_t result, f8_diag *diag,
                            const char *call, ...)
{
    if (result == CUBLAS_STATUS_SUCCESS)
        return F8_OK;
    const char *name = c->lt.cublasLtGetStatusName(result);
    const char *text = c->lt.cublasLtGetStatusString(result);
    va_list args;
    va_start(args, call);
    const f8_status status =
        call_failed(diag, result == CUBLAS_STATUS_ALLOC_FAILED ? F8_ERR_MEMORY : F8_ERR_LIBRARY,
                    call, args, name ? name : "unknown status", text ? text : "no text for it");
    va_end(args);
    return status;
}

/* ---- once ---- */

/* The message is kept whole where it was made whole, else as the diag has it. */
static f8_status remember(f8_cuda *c, f8_cuda_once *once, f8_status status, const char *why,
                          const f8_diag *d)
{
    *once = (f8_cuda_once){true, status, NULL};
    if (status != F8_OK)
        once->why = why ? why : f8_arena_strdup(&c->memory, d->text);
    if (status != F8_OK && !once->why)
        once->why = "out of memory";
    return status;
}

static f8_status answer(const f8_cuda_once *once, f8_diag *diag)
{
    return once->status == F8_OK ? F8_OK : f8_fail(diag, once->status, F8_NOWHERE, "%s", once->why);
}

/* ---- libraries ---- */

#define NAMES(which) static const char *const which##_names[] = {which(F8_CUDA_API_NAME)}
NAMES(F8_CUDA_SYMBOLS);
NAMES(F8_CUDA_MORE_SYMBOLS);
NAMES(F8_NVRTC_SYMBOLS);
NAMES(F8_CUBLASLT_SYMBOLS);
NAMES(F8_CUDNN_SYMBOLS);
NAMES(F8_NCCL_SYMBOLS);
NAMES(F8_NVML_SYMBOLS);

static const struct {
    const char *name, *soname[3];
} libraries[] = {
#define X(e, name, ...) {name, {__VA_ARGS__}},
    F8_CUDA_LIBRARIES(X)
#undef X
};

/* A table in which what the library has not stays NULL. */
static void optional_symbols(const f8_dynlib *file, const char *const *names, size_t count,
                             void *table)
{
    for (size_t i = 0; i < count; i++) {
        void *symbol = f8_dynlib_find(file, names[i]);
        memcpy((char *)table + i * sizeof symbol, &symbol, sizeof symbol);
    }
}

static f8_status symbols(f8_cuda *c, f8_cuda_library_id id, f8_diag *d)
{
    const f8_dynlib *file = &c->library[id].file;
#define FILL(which, table)                                                                         \
    f8_dynlib_symbols(file, which##_names, sizeof which##_names / sizeof *which##_names, table, d)
    switch (id) {
    case F8_CUDA_DRIVER:
        optional_symbols(file, F8_CUDA_MORE_SYMBOLS_names,
                         sizeof F8_CUDA_MORE_SYMBOLS_names / sizeof *F8_CUDA_MORE_SYMBOLS_names,
                         &c->more);
        return FILL(F8_CUDA_SYMBOLS, &c->cu);
    case F8_CUDA_NVRTC: return FILL(F8_NVRTC_SYMBOLS, &c->nvrtc);
    case F8_CUDA_CUBLASLT: return FILL(F8_CUBLASLT_SYMBOLS, &c->lt);
    case F8_CUDA_CUDNN: return FILL(F8_CUDNN_SYMBOLS, &c->cudnn);
    case F8_CUDA_NCCL: return FILL(F8_NCCL_SYMBOLS, &c->nccl);
    case F8_CUDA_NVML: return FILL(F8_NVML_SYMBOLS, &c->nvml);
    case F8_CUDA_N_LIBRARIES: break;
    }
#undef FILL
    return F8_ERR_INTERNAL;
}

enum { NCCL_OLDEST = 21400 }; /* the first whose communicators need not block */

/* Ask a library for its version, which also proves that it answers. */
static f8_status version(f8_cuda *c, f8_cuda_library_id id, f8_diag *d)
{
    char *text = c->library[id].version;
    const size_t room = sizeof c->library[id].version;
    int v = 0, minor = 0;
    switch (id) {
    case F8_CUDA_DRIVER:
        F8_TRY(f8_cuda_check(c, c->cu.cuDriverGetVersion(&v), d, "cuDriverGetVersion"));
        c->library[id].major = v / 1000;
        c->facts.driver = v;
        snprintf(text, room, "%d.%d", v / 1000, v % 1000 / 10);
        return F8_OK;
    case F8_CUDA_NVRTC:
        if (c->nvrtc.nvrtcVersion(&v, &minor) != NVRTC_SUCCESS)
            return f8_fail(d, F8_ERR_LIBRARY, F8_NOWHERE, "nvrtcVersion failed");
        c->library[id].major = v;
        c->nvrtc_version = v * 1000 + minor * 10;
        snprintf(text, room, "%d.%d", v, minor);
        return F8_OK;
    case F8_CUDA_CUBLASLT:
        v = (int)c->lt.cublasLtGetVersion();
        c->library[id].major = v / 10000;
        snprintf(text, room, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
        return F8_OK;
    case F8_CUDA_CUDNN:
        v = (int)c->cudnn.cudnnGetVersion();
        c->library[id].major = v / 10000;
        snprintf(text, room, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
        return F8_OK;
    case F8_CUDA_NCCL:
        if (c->nccl.ncclGetVersion(&v) != 0)
            return f8_fail(d, F8_ERR_LIBRARY, F8_NOWHERE, "ncclGetVersion failed");
        c->library[id].major = v / 10000;
        snprintf(text, room, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
        return v >= NCCL_OLDEST
                   ? F8_OK
                   : f8_fail(d, F8_ERR_LIBRARY, F8_NOWHERE,
                             "NCCL 2.14 or later is needed, this is version code %d", v);
    case F8_CUDA_NVML: {
        const f8_nvml_return r = c->nvml.nvmlInit_v2();
        if (r != 0)
            return f8_fail(d, F8_ERR_LIBRARY, F8_NOWHERE, "nvmlInit_v2: %s",
                           c->nvml.nvmlErrorString(r));
        if (c->nvml.nvmlSystemGetDriverVersion(text, (unsigned)room) != 0)
            text[0] = '\0';
        c->nvml.nvmlShutdown();
        return F8_OK;
    }
    case F8_CUDA_N_LIBRARIES: break;
    }
    return F8_ERR_INTERNAL;
}

/* The lock is held. */
static f8_status load(f8_cuda *c, f8_cuda_library_id id, f8_diag *diag)
{
    f8_cuda_once *once = &c->library[id].once;
    if (!once->done) {
        f8_diag d = {0};
        const char *why = NULL;
        f8_status status = f8_dynlib_search(libraries[id].name, libraries[id].soname, c->folders,
                                            &c->memory, &c->library[id].file, &why, &d);
        if (status == F8_OK)
            status = symbols(c, id, &d);
        if (status == F8_OK)
            status = version(c, id, &d);
        if (status != F8_OK && !why)
            why =
                f8_arena_printf(&c->memory, "%s (%s): %s", libraries[id].name,
                                c->library[id].file.name ? c->library[id].file.name : "?", d.text);
        remember(c, once, status, why, &d);
    }
    return answer(once, diag);
}

f8_status f8_cuda_load(f8_cuda *c, f8_cuda_library_id id, f8_diag *diag)
{
    pthread_mutex_lock(&c->lock);
    const f8_status status = load(c, id, diag);
    pthread_mutex_unlock(&c->lock);
    return status;
}

f8_status f8_cuda_nvrtc(f8_cuda *c, int *version, f8_diag *diag)
{
    F8_TRY(f8_cuda_load(c, F8_CUDA_NVRTC, diag));
    *version = c->nvrtc_version;
    return F8_OK;
}

bool f8_cuda_describe(f8_cuda *c, int i, f8_cuda_library *out)
{
    if (i < 0 || i >= F8_CUDA_N_LIBRARIES)
        return false;
    f8_cuda_load(c, (f8_cuda_library_id)i, NULL); /* its failure is what is described */
    *out = (f8_cuda_library){
        .name = libraries[i].name,
        .path = c->library[i].file.name,
        .version = c->library[i].version[0] ? c->library[i].version : NULL,
        .major = c->library[i].major,
        .why = c->library[i].once.why,
        .refused = c->library[i].file.refused,
        .sonames = libraries[i].soname,
    };
    return true;
}

const char *const *f8_cuda_looked_in(const f8_cuda *c)
{
    return c->folders;
}

/* ---- the device ---- */

/* Minor versions of one major are compatible. The lock is held. */
static f8_status driver_serves(f8_cuda *c, f8_cuda_library_id id, f8_diag *d)
{
    if (load(c, id, NULL) != F8_OK || c->library[id].major <= c->library[F8_CUDA_DRIVER].major)
        return F8_OK; /* a library that is missing says so when it is asked for */
    return f8_fail(
        d, F8_ERR_LIBRARY, F8_NOWHERE,
        "the driver is too old: it serves CUDA %s, but the %s found is %s (%s); update the "
        "driver, or point CUDA_HOME at a toolkit of CUDA %d",
        c->library[F8_CUDA_DRIVER].version, libraries[id].name, c->library[id].version,
        c->library[id].file.name, c->library[F8_CUDA_DRIVER].major);
}

f8_status f8_cuda_served(f8_cuda *c, f8_cuda_library_id id, f8_diag *diag)
{
    pthread_mutex_lock(&c->lock);
    const f8_status status = driver_serves(c, id, diag);
    pthread_mutex_unlock(&c->lock);
    return status;
}

static f8_status read_facts(const f8_cuda *c, CUdevice device, f8_cuda_facts *facts, f8_diag *d)
{
    int major = 0, minor = 0;
    const struct {
        int which, *to;
    } attribute[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &facts->multiprocessors},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &facts->shared_per_block},
    };
    for (size_t i = 0; i < sizeof attribute / sizeof *attribute; i++)
        F8_TRY(f8_cuda_check(
            c, c->cu.cuDeviceGetAttribute(attribute[i].to, attribute[i].which, device), d,
            "cuDeviceGetAttribute"));
    facts->sm = major * 10 + minor;
    F8_TRY(f8_cuda_check(c, c->cu.cuDeviceGetName(facts->name, sizeof facts->name, device), d,
                         "cuDeviceGetName"));
    size_t bytes = 0;
    F8_TRY(f8_cuda_check(c, c->cu.cuDeviceTotalMem_v2(&bytes, device), d, "cuDeviceTotalMem"));
    facts->memory = (int64_t)bytes;
    return F8_OK;
}

/* The driver is loaded. */
static f8_status count_devices(const f8_cuda *c, int *count, f8_diag *d)
{
    *count = 0;
    const CUresult init = c->cu.cuInit(0);
    if (init == CUDA_ERROR_NO_DEVICE)
        return F8_OK;
    F8_TRY(f8_cuda_check(c, init, d, "cuInit"));
    return f8_cuda_check(c, c->cu.cuDeviceGetCount(count), d, "cuDeviceGetCount");
}

static f8_status take_device(f8_cuda *c, int ordinal, f8_diag *d)
{
    F8_TRY(load(c, F8_CUDA_DRIVER, d));
    F8_TRY(driver_serves(c, F8_CUDA_NVRTC, d));
    F8_TRY(driver_serves(c, F8_CUDA_CUBLASLT, d));
    int count;
    F8_TRY(count_devices(c, &count, d));
    if (count == 0)
        return f8_fail(d, F8_ERR_LIBRARY, F8_NOWHERE,
                       "no CUDA device: the driver (CUDA %s, %s) is here but sees no GPU",
                       c->library[F8_CUDA_DRIVER].version, c->library[F8_CUDA_DRIVER].file.name);
    if (ordinal < 0 || ordinal >= count)
        return f8_fail(d, F8_ERR_INPUT, F8_NOWHERE,
                       "no CUDA device %d: the driver sees %d, from 0 on", ordinal, count);
    F8_TRY(f8_cuda_check(c, c->cu.cuDeviceGet(&c->device, ordinal), d, "cuDeviceGet of device %d",
                         ordinal));
    F8_TRY(read_facts(c, c->device, &c->facts, d));
    return retain(c, ordinal, d);
}

f8_status f8_cuda_count(f8_cuda *c, int *count, f8_diag *diag)
{
    *count = 0;
    F8_TRY(f8_cuda_load(c, F8_CUDA_DRIVER, diag));
    return count_devices(c, count, diag);
}

f8_status f8_cuda_inspect(f8_cuda *c, int ordinal, f8_cuda_facts *out, char *pci, f8_diag *diag)
{
    int (*address)(char *text, int size, CUdevice device);
    CUdevice device;
    int count;
    F8_TRY(f8_cuda_count(c, &count, diag));
    if (ordinal < 0 || ordinal >= count)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "no CUDA device %d: the driver sees %d, from 0 on", ordinal, count);
    F8_TRY(f8_cuda_check(c, c->cu.cuDeviceGet(&device, ordinal), diag, "cuDeviceGet of device %d",
                         ordinal));
    *out = (f8_cuda_facts){.driver = c->facts.driver};
    F8_TRY(read_facts(c, device, out, diag));
    void *symbol = f8_dynlib_find(&c->library[F8_CUDA_DRIVER].file, "cuDeviceGetPCIBusId");
    memcpy(&address, &symbol, sizeof symbol);
    if (pci && (!address || address(pci, 40, device) != CUDA_SUCCESS))
        pci[0] = '\0';
    return F8_OK;
}

f8_status f8_cuda_device(f8_cuda *c, int ordinal, f8_diag *diag)
{
    pthread_mutex_lock(&c->lock);
    if (!c->device_once.done) {
        f8_diag d = {0};
        const f8_status status = take_device(c, ordinal, &d);
        const char *whole = c->library[F8_CUDA_DRIVER].once.why; /* may be longer than a diag */
        remember(c, &c->device_once, status, whole, &d);
    }
    const f8_status status = answer(&c->device_once, diag);
    pthread_mutex_unlock(&c->lock);
    return status;
}

f8_status f8_cuda_enter(f8_cuda *c, f8_diag *diag)
{
    return f8_cuda_check(c, c->cu.cuCtxPushCurrent_v2(c->context), diag, "cuCtxPushCurrent");
}

void f8_cuda_leave(f8_cuda *c)
{
    CUcontext ours;
    c->cu.cuCtxPopCurrent_v2(&ours);
}

f8_status f8_cuda_device_facts(f8_cuda *c, f8_cuda_facts *out, f8_diag *diag)
{
    *out = (f8_cuda_facts){0};
    if (!c->context)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "f8_cuda_device was not called: no CUDA device is open");
    F8_TRY(f8_cuda_enter(c, diag));
    size_t free_bytes = 0, total = 0;
    const f8_status status =
        f8_cuda_check(c, c->cu.cuMemGetInfo_v2(&free_bytes, &total), diag, "cuMemGetInfo");
    f8_cuda_leave(c);
    *out = c->facts;
    out->memory_free = (int64_t)free_bytes;
    return status;
}

f8_status f8_cuda_cublaslt(f8_cuda *c, f8_diag *diag)
{
    pthread_mutex_lock(&c->lock);
    f8_status status = load(c, F8_CUDA_CUBLASLT, diag);
    if (status == F8_OK && !c->handle_once.done) {
        f8_diag d = {0};
        f8_status made = f8_cuda_enter(c, &d);
        if (made == F8_OK) {
            made = f8_cublaslt_check(c, c->lt.cublasLtCreate(&c->handle), &d, "cublasLtCreate");
            f8_cuda_leave(c);
        }
        remember(c, &c->handle_once, made, NULL, &d);
    }
    if (status == F8_OK)
        status = answer(&c->handle_once, diag);
    pthread_mutex_unlock(&c->lock);
    return status;
}
