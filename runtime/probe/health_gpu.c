/* The health of a GPU, by NVML: see health.h. */
#include <stdio.h>
#include <string.h>

#include "runtime/cuda/internal.h"
#include "runtime/probe/health.h"
#include "runtime/probe/nvml_api.h"

struct f8_health_gpu {
    f8_cuda *cuda;
    f8_nvml_device_api api;
    f8_nvml_device device;
    f8_nvml_events events; /* NULL: XIDs can't be waited for */
    char address[40];
};

f8_status f8_nvml_find(f8_cuda *cuda, f8_nvml_device_api *api, f8_diag *diag)
{
    static const char *const names[] = {F8_NVML_DEVICE_SYMBOLS(F8_CUDA_API_NAME)};
    F8_TRY(f8_cuda_load(cuda, F8_CUDA_NVML, diag));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *symbol = f8_dynlib_find(&cuda->library[F8_CUDA_NVML].file, names[i]);
        memcpy((char *)api + i * sizeof symbol, &symbol, sizeof symbol);
    }
    return F8_OK;
}

static f8_status fails(const f8_health_gpu *g, const char *call, int result, f8_diag *diag)
{
    return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "%s: %s", call,
                   g->cuda->nvml.nvmlErrorString(result));
}

/* XIDs are an extra: what fails here leaves `events` NULL. */
static void register_events(f8_health_gpu *g)
{
    const f8_nvml_device_api *a = &g->api;
    if (!a->nvmlEventSetCreate || !a->nvmlEventSetFree || !a->nvmlDeviceRegisterEvents ||
        !a->nvmlEventSetWait_v2 || a->nvmlEventSetCreate(&g->events) != F8_NVML_SUCCESS) {
        g->events = NULL;
        return;
    }
    if (a->nvmlDeviceRegisterEvents(g->device, F8_NVML_EVENT_XID, g->events) != F8_NVML_SUCCESS) {
        a->nvmlEventSetFree(g->events);
        g->events = NULL;
    }
}

static f8_status open_device(f8_health_gpu *g, int ordinal, f8_diag *diag)
{
    f8_cuda_facts facts;
    F8_TRY(f8_cuda_inspect(g->cuda, ordinal, &facts, g->address, diag));
    F8_TRY(f8_nvml_find(g->cuda, &g->api, diag));
    if (!*g->address || !g->api.nvmlDeviceGetHandleByPciBusId_v2)
        return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE,
                       "NVML can't find the GPU: its address on the bus is not known");
    int result = g->cuda->nvml.nvmlInit_v2();
    if (result != F8_NVML_SUCCESS)
        return fails(g, "nvmlInit_v2", result, diag);
    result = g->api.nvmlDeviceGetHandleByPciBusId_v2(g->address, &g->device);
    if (result != F8_NVML_SUCCESS) {
        g->cuda->nvml.nvmlShutdown();
        return fails(g, "nvmlDeviceGetHandleByPciBusId_v2", result, diag);
    }
    register_events(g);
    return F8_OK;
}

f8_status f8_health_gpu_open(f8_cuda *cuda, int ordinal, f8_health_gpu **out, f8_diag *diag)
{
    *out = NULL;
    f8_health_gpu *g =
        cuda->allocator.alloc(cuda->allocator.user, sizeof *g, _Alignof(f8_health_gpu));
    if (!g)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       sizeof *g);
    *g = (f8_health_gpu){.cuda = cuda};
    const f8_status status = open_device(g, ordinal, diag);
    if (status != F8_OK) {
        cuda->allocator.free(cuda->allocator.user, g, sizeof *g);
        return status;
    }
    *out = g;
    return F8_OK;
}

void f8_health_gpu_close(f8_health_gpu *g)
{
    if (!g)
        return;
    if (g->events)
        g->api.nvmlEventSetFree(g->events);
    g->cuda->nvml.nvmlShutdown();
    g->cuda->allocator.free(g->cuda->allocator.user, g, sizeof *g);
}

const char *f8_health_gpu_driver(const f8_health_gpu *g)
{
    return g->cuda->library[F8_CUDA_NVML].version;
}

const char *f8_health_gpu_address(const f8_health_gpu *g)
{
    return g->address;
}

/* ---- reading ---- */

/* Notes an answer: the number, nothing where the board has none, or that the GPU is gone. */
static void take(f8_health *h, f8_health_id id, int result, uint64_t value)
{
    if (result == F8_NVML_SUCCESS)
        h->value[id] = value > INT64_MAX ? INT64_MAX : (int64_t)value;
    if (result == F8_NVML_GPU_IS_LOST)
        h->value[F8_HEALTH_lost] = 1;
}

static void read_memory(const f8_health_gpu *g, f8_health *h)
{
    static const struct {
        int type;
        f8_health_id id;
    } ecc[] = {{F8_NVML_CORRECTED, F8_HEALTH_ecc_corrected},
               {F8_NVML_UNCORRECTED, F8_HEALTH_ecc_uncorrected}};
    static const f8_health_id id[] = {F8_HEALTH_remapped_corrected, F8_HEALTH_remapped_uncorrected,
                                      F8_HEALTH_remap_pending, F8_HEALTH_remap_failed};
    unsigned rows[4] = {0};
    unsigned long long errors = 0;
    for (int i = 0; g->api.nvmlDeviceGetTotalEccErrors && i < 2; i++) {
        const int result =
            g->api.nvmlDeviceGetTotalEccErrors(g->device, ecc[i].type, F8_NVML_VOLATILE, &errors);
        take(h, ecc[i].id, result, errors);
    }
    if (!g->api.nvmlDeviceGetRemappedRows)
        return;
    const int result =
        g->api.nvmlDeviceGetRemappedRows(g->device, &rows[0], &rows[1], &rows[2], &rows[3]);
    for (int i = 0; i < 4; i++)
        take(h, id[i], result, rows[i]);
}

static void read_links(const f8_health_gpu *g, f8_health *h)
{
    uint64_t sum = 0;
    bool any = false;
    if (!g->api.nvmlDeviceGetNvLinkState || !g->api.nvmlDeviceGetNvLinkErrorCounter)
        return;
    for (unsigned link = 0; link < F8_NVML_LINKS; link++) {
        int active = 0;
        if (g->api.nvmlDeviceGetNvLinkState(g->device, link, &active) != F8_NVML_SUCCESS || !active)
            continue;
        for (int counter = 0; counter < F8_NVML_LINK_COUNTERS; counter++) {
            unsigned long long count = 0;
            if (g->api.nvmlDeviceGetNvLinkErrorCounter(g->device, link, counter, &count) !=
                F8_NVML_SUCCESS)
                continue;
            sum += count;
            any = true;
        }
    }
    if (any)
        take(h, F8_HEALTH_nvlink_errors, F8_NVML_SUCCESS, sum);
}

static void read_clocks(const f8_health_gpu *g, f8_health *h)
{
    unsigned value = 0;
    unsigned long long reasons = 0, known = 0;
#define X(bit, words) known |= bit;
    F8_NVML_CLOCK_REASONS(X)
#undef X
    if (g->api.nvmlDeviceGetTemperature) {
        const int result = g->api.nvmlDeviceGetTemperature(g->device, F8_NVML_SENSOR_GPU, &value);
        take(h, F8_HEALTH_temperature, result, value);
    }
    if (g->api.nvmlDeviceGetClockInfo) {
        const int result = g->api.nvmlDeviceGetClockInfo(g->device, F8_NVML_CLOCK_SM, &value);
        take(h, F8_HEALTH_clock, result, value);
    }
    if (g->api.nvmlDeviceGetMaxClockInfo) {
        const int result = g->api.nvmlDeviceGetMaxClockInfo(g->device, F8_NVML_CLOCK_SM, &value);
        take(h, F8_HEALTH_clock_limit, result, value);
    }
    if (g->api.nvmlDeviceGetCurrentClocksThrottleReasons) {
        const int result = g->api.nvmlDeviceGetCurrentClocksThrottleReasons(g->device, &reasons);
        take(h, F8_HEALTH_held_down, result, reasons & known);
    }
}

void f8_health_gpu_read(const f8_health_gpu *g, f8_health *out)
{
    for (int i = 0; i < F8_HEALTH_N; i++)
        out->value[i] = -1;
    out->value[F8_HEALTH_lost] = 0;
    read_memory(g, out);
    read_links(g, out);
    read_clocks(g, out);
}

/* What NVML refuses stays 0, whatever it has written. */
void f8_health_gpu_pace(const f8_health_gpu *g, f8_gpu_pace *out)
{
    const f8_nvml_device_api *a = &g->api;
    unsigned value = 0;
    *out = (f8_gpu_pace){0};
#define TAKE(field, function, ...)                                                                 \
    if (a->function && a->function(g->device, __VA_ARGS__) == F8_NVML_SUCCESS)                     \
        out->field = value;
    TAKE(sm_mhz, nvmlDeviceGetClockInfo, F8_NVML_CLOCK_SM, &value)
    TAKE(memory_mhz, nvmlDeviceGetClockInfo, F8_NVML_CLOCK_MEMORY, &value)
    TAKE(milliwatts, nvmlDeviceGetPowerUsage, &value)
    TAKE(celsius, nvmlDeviceGetTemperature, F8_NVML_SENSOR_GPU, &value)
#undef TAKE
}

bool f8_health_gpu_xid(const f8_health_gpu *g, unsigned milliseconds, int64_t *xid, bool *waits)
{
    f8_nvml_event e = {0};
    *waits = g->events != NULL;
    if (!*waits)
        return false;
    const int result = g->api.nvmlEventSetWait_v2(g->events, &e, milliseconds);
    *waits = result != F8_NVML_GPU_IS_LOST;
    *xid = (int64_t)e.data;
    return result == F8_NVML_SUCCESS && e.type == F8_NVML_EVENT_XID;
}
