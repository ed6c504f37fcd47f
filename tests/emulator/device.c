/* The devices and their primary contexts; the start of every call; names of errors; counts of what
 * is alive. */
#include "tests/emulator/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const f8_emu_device devices[] = {
    {75, 64 << 10, 64 << 10, 1024, 16},
    {80, 163 << 10, 164 << 10, 2048, 32},
    {86, 99 << 10, 100 << 10, 1536, 16},
    {89, 99 << 10, 100 << 10, 1536, 24},
    {90, 227 << 10, 228 << 10, 2048, 32},
    {100, 227 << 10, 228 << 10, 2048, 32},
    {103, 227 << 10, 228 << 10, 2048, 32},
    {120, 99 << 10, 100 << 10, 1536, 24},
};

const f8_emu_device *f8_emu_device_now(void)
{
    const int64_t sm = f8_emu_setting("FP8C_EMULATOR_SM", 90);
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (devices[i].sm == sm)
            return &devices[i];
    return NULL;
}

int f8_emulator_sm(void)
{
    const f8_emu_device *d = f8_emu_device_now();
    return d ? d->sm : 0;
}

/* ---- state ---- */

struct CUctx_st {
    int references, error;
    bool active; /* since the last retain nobody has destroyed it */
    int64_t lost; /* how often it has been destroyed without a fault */
};
enum { MAX_CURRENT = 64 };

/* Recursive: work in a stream may ask something of the driver. */
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static bool initialized;
static struct CUctx_st primary[F8_EMU_DEVICES];
static f8_emu_object *objects;
static _Thread_local CUcontext current[MAX_CURRENT];
static _Thread_local int n_current;

static CUcontext context_now(void)
{
    return n_current ? current[n_current - 1] : NULL;
}

int f8_emu_current(void)
{
    const CUcontext c = context_now();
    return c ? (int)(c - primary) : 0;
}

int f8_emulator_current(void)
{
    const CUcontext c = context_now();
    return c ? (int)(c - primary) : -1;
}

/* What a function fails with when asked to and no code is given. */
static int usual_failure(const char *function)
{
    if (strncmp(function, "cuMemAlloc", 10) == 0 || strcmp(function, "cuMemHostAlloc") == 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_ERROR_UNKNOWN;
}

static CUresult may_enter(const char *function, f8_emu_need need)
{
    if (!initialized && strcmp(function, "cuInit") != 0 &&
        strcmp(function, "cuDriverGetVersion") != 0)
        return CUDA_ERROR_NOT_INITIALIZED;
    int code = usual_failure(function);
    if (f8_emu_fails(function, &code)) {
        f8_emu_note("%s fails as asked: %d", function, code);
        /* Those that leave a context of no further use. */
        if (code >= CUDA_ERROR_ILLEGAL_ADDRESS && code <= CUDA_ERROR_LAUNCH_FAILED &&
            code != CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
            f8_emu_stick(f8_emu_current(), code);
        return code;
    }
    if (need == F8_EMU_NO_CONTEXT)
        return CUDA_SUCCESS;
    const CUcontext c = context_now();
    if (!c)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!c->references)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (c->error)
        return c->error;
    return need == F8_EMU_UNSAFE && f8_emu_captures() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                                      : CUDA_SUCCESS;
}

CUresult f8_emu_enter(const char *function, f8_emu_need need)
{
    pthread_mutex_lock(&mutex);
    return may_enter(function, need);
}

void f8_emu_leave(const CUresult *entered)
{
    (void)entered;
    pthread_mutex_unlock(&mutex);
}

void f8_emu_pause(void)
{
    const struct timespec moment = {.tv_nsec = 20000};
    pthread_mutex_unlock(&mutex);
    nanosleep(&moment, NULL);
    pthread_mutex_lock(&mutex);
}

void f8_emu_stick(int device, int error)
{
    if (!primary[device].error)
        primary[device].error = error;
}

int f8_emu_stuck(int device)
{
    return primary[device].error;
}

/* ---- objects ---- */

void *f8_emu_object_new(f8_emu_kind kind, size_t bytes)
{
    f8_emu_object *o = calloc(1, bytes);
    if (o) {
        *o = (f8_emu_object){objects, kind, f8_emu_current()};
        objects = o;
    }
    return o;
}

bool f8_emu_object_lives(const void *object, f8_emu_kind kind)
{
    const f8_emu_object *o = objects;
    while (o && o != object)
        o = o->next;
    return o && o->kind == kind;
}

f8_emu_object *f8_emu_object_find(f8_emu_kind kind, f8_emu_object *(*test)(f8_emu_object *, void *),
                                  void *user)
{
    for (f8_emu_object *o = objects; o; o = o->next)
        if (o->kind == kind && test(o, user))
            return o;
    return NULL;
}

void f8_emu_object_free(void *object)
{
    f8_emu_object **at = &objects, *o = object;
    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    if (o->kind == F8_EMU_MODULE)
        f8_emu_module_close(o);
    else if (o->kind != F8_EMU_EVENT)
        f8_emu_graph_clear(o);
    free(o);
}

CUresult f8_emu_object_destroy(void *object, f8_emu_kind kind)
{
    if (!f8_emu_object_lives(object, kind))
        return CUDA_ERROR_INVALID_HANDLE;
    f8_emu_object_free(object);
    return CUDA_SUCCESS;
}

void f8_emu_objects_free(int device)
{
    for (f8_emu_object *o = objects, *next; o; o = next) {
        next = o->next;
        if (o->device == device)
            f8_emu_object_free(o);
    }
}

void f8_emu_lock(void)
{
    pthread_mutex_lock(&mutex);
}

void f8_emu_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

int64_t f8_emulator_count(const char *what)
{
    static const char *const name[] = {"module", "stream", "event", "graph", "graph_exec"};
    int64_t n = -1;
    pthread_mutex_lock(&mutex);
    for (int kind = 0; kind < F8_EMU_KINDS; kind++)
        if (strcmp(what, name[kind]) == 0) {
            n = 0;
            for (const f8_emu_object *o = objects; o; o = o->next)
                n += (int)o->kind == kind;
        }
    if (strcmp(what, "allocation") == 0 || strcmp(what, "byte") == 0 || strcmp(what, "pinned") == 0)
        n = f8_emu_memory_count(what);
    else if (strcmp(what, "context") == 0 || strcmp(what, "lost context") == 0) {
        n = 0;
        for (int d = 0; d < F8_EMU_DEVICES; d++)
            n += what[0] == 'c' ? primary[d].references : primary[d].lost;
    } else if (strcmp(what, "launch") == 0 || strcmp(what, "dependent launch") == 0)
        n = f8_emu_launches(what[0] == 'd');
    pthread_mutex_unlock(&mutex);
    return n;
}

/* ---- the device ---- */

static int n_devices(void)
{
    const int64_t n = f8_emu_setting("FP8C_EMULATOR_DEVICES", 1);
    return n < 0 ? 0 : n > F8_EMU_DEVICES ? F8_EMU_DEVICES : (int)n;
}

static bool is_device(CUdevice device)
{
    return device >= 0 && device < n_devices();
}

static int multiprocessors(void)
{
    const int64_t n = f8_emu_setting("FP8C_EMULATOR_MULTIPROCESSORS", F8_EMU_MULTIPROCESSORS);
    return n >= 1 && n <= 1024 ? (int)n : F8_EMU_MULTIPROCESSORS;
}

CUresult cuInit(unsigned flags)
{
    F8_EMU_ENTER(F8_EMU_NO_CONTEXT);
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!n_devices())
        return CUDA_ERROR_NO_DEVICE;
    if (!f8_emu_device_now())
        return CUDA_ERROR_INVALID_DEVICE;
    initialized = true;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    F8_EMU_ENTER(F8_EMU_NO_CONTEXT);
    *version = (int)f8_emu_setting("FP8C_EMULATOR_DRIVER", 13000);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    F8_EMU_ENTER(F8_EMU_NO_CONTEXT);
    *count = n_devices();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    F8_EMU_ENTER(F8_EMU_NO_CONTEXT);
    if (!is_device(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    F8_EMU_ENTER(F8_EMU_NO_CONTEXT);
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (length < 1)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)length, "Emulated sm_%d", f8_emulator_sm());
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *to, int length, CUdevice device)
{
    F8_EMU_ENTER(F8_EMU_NO_CONTEXT);
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (length < 13)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(to, (size_t)length, "0000:%02x:00.0", 16 + (unsigned)device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    F8_EMU_ENTER(F8_EMU_NO_CONTEXT);
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = (size_t)f8_emu_setting("FP8C_EMULATOR_MEMORY", (int64_t)8 << 30);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device)
{
    F8_EMU_ENTER(F8_EMU_NO_CONTEXT);
    const f8_emu_device *d = f8_emu_device_now();
    if (!is_device(device) || !d)
        return CUDA_ERROR_INVALID_DEVICE;
    switch (which) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = F8_EMU_MAX_THREADS; break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: *value = F8_EMU_MAX_THREADS; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: *value = INT32_MAX; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = F8_EMU_SHARED_DEFAULT; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = F8_EMU_WARP; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = multiprocessors(); break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = d->threads; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = d->sm / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = d->sm % 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = d->per_sm; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = d->optin; break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: *value = d->blocks; break;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
        *value = F8_EMU_SHARED_RESERVED;
        break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

/* ---- the primary context ---- */

static void destroy_primary(int device)
{
    struct CUctx_st *c = &primary[device];
    f8_emu_drain_all(device);
    f8_emu_streams_end(device);
    f8_emu_objects_free(device);
    f8_emu_memory_free_all(device);
    c->lost += c->error == 0;
    c->error = 0;
    c->active = false;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    F8_EMU_ENTER(F8_EMU_NO_CONTEXT);
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    primary[device].references++;
    primary[device].active = true;
    *context = &primary[device];
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    F8_EMU_ENTER(F8_EMU_NO_CONTEXT);
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!primary[device].references)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (--primary[device].references == 0)
        destroy_primary(device);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    F8_EMU_ENTER(F8_EMU_NO_CONTEXT);
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    *active = primary[device].active;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    F8_EMU_ENTER(F8_EMU_NO_CONTEXT);
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    primary[device].references = 0; /* the harsher reading of the driver's manual */
    destroy_primary(device);
    return CUDA_SUCCESS;
}

static bool is_primary(CUcontext context)
{
    for (int d = 0; d < F8_EMU_DEVICES; d++)
        if (context == &primary[d])
            return true;
    return false;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    F8_EMU_ENTER(F8_EMU_NO_CONTEXT);
    if (!is_primary(context) || !context->references || n_current == MAX_CURRENT)
        return CUDA_ERROR_INVALID_CONTEXT;
    current[n_current++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    F8_EMU_ENTER(F8_EMU_NO_CONTEXT);
    if (!n_current)
        return CUDA_ERROR_INVALID_CONTEXT;
    n_current--;
    if (context)
        *context = current[n_current];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    F8_EMU_ENTER(F8_EMU_NO_CONTEXT);
    *context = context_now();
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    F8_EMU_ENTER(F8_EMU_NO_CONTEXT);
    if (context && !is_primary(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!n_current)
        n_current = 1;
    current[n_current - 1] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
    F8_EMU_ENTER(F8_EMU_UNSAFE);
    f8_emu_record_wait(F8_EMU_WAIT_CONTEXT);
    f8_emu_wait_all(f8_emu_current());
    return f8_emu_stuck(f8_emu_current());
}

/* ---- errors ---- */

static const struct {
    const char *name;
    int value;
} values[] = {
#define ROW(name, value) {#name, value},
    F8_CUDA_VALUES(ROW) F8_EMU_CUDA_VALUES(ROW)
#undef ROW
};

static const char *error_name(CUresult error)
{
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i].value == error && strncmp(values[i].name, "CUDA_", 5) == 0)
            return values[i].name;
    return NULL;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    *name = error_name(error);
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The real texts are sentences; the names say as much. */
CUresult cuGetErrorString(CUresult error, const char **text)
{
    return cuGetErrorName(error, text);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                             int *status)
{
    (void)version;
    (void)flags;
    Dl_info self;
    char name[128];
    void *lib = NULL;
    static const char *const suffix[] = {"_v2", ""};
    *function = NULL;
    if (dladdr((void *)(uintptr_t)&cuInit, &self))
        lib = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    for (int i = 0; lib && i < 2 && !*function; i++) {
        snprintf(name, sizeof name, "%s%s", symbol, suffix[i]);
        *function = dlsym(lib, name);
    }
    if (lib)
        dlclose(lib);
    if (status)
        *status = *function ? 0 : 1; /* SUCCESS, SYMBOL_NOT_FOUND */
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
