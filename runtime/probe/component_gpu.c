/* GPUs as components, and what NVML says of each: see component.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ir/target.h"
#include "runtime/probe/component.h"
#include "runtime/cuda/internal.h"
#include "runtime/probe/health.h"
#include "runtime/probe/nvml_api.h"

static void judge(f8_components *all, f8_component *c, const f8_cuda_facts *f)
{
    const f8_target *target = f8_target_for_sm(f->sm);
    if (!target)
        f8_component_fail(
            c, F8_COMPONENT_VERSION,
            f8_arena_printf(
                all->arena,
                f->sm < 89 ? "compute capability %d.%d has no FP8: 8.9 (Ada) or later is needed"
                           : "there is no target for compute capability %d.%d",
                f->sm / 10, f->sm % 10));
    else if (f->driver < target->driver)
        f8_component_fail(
            c, F8_COMPONENT_MISMATCHED,
            f8_arena_printf(
                all->arena,
                "the driver is too old for it: it serves CUDA %d.%d, and %d.%d is needed",
                f->driver / 1000, f->driver % 1000 / 10, target->driver / 1000,
                target->driver % 1000 / 10));
    else
        f8_component_ok(c);
}

/* ---- NVML ---- */

typedef struct gpu {
    f8_facts *facts;
    const f8_nvml_device_api *api;
    f8_nvml_device device;
    const char *group;
} gpu;

static void say(const gpu *g, const char *name, const char *value, const char *advice)
{
    if (value)
        f8_fact_add(g->facts, g->group, name, value, advice);
}

static void ask_modes(const gpu *g)
{
    int mode, pending;
    unsigned mig, next;
    if (g->api->nvmlDeviceGetEccMode && !g->api->nvmlDeviceGetEccMode(g->device, &mode, &pending))
        say(g, "ECC", mode ? "on" : "off",
            mode != pending ? "it changes with the next reset" : NULL);
    if (g->api->nvmlDeviceGetPersistenceMode &&
        !g->api->nvmlDeviceGetPersistenceMode(g->device, &mode))
        say(g, "persistence mode", mode ? "on" : "off",
            mode ? NULL
                 : "a process that comes alone waits seconds for the driver: nvidia-smi -pm 1");
    if (g->api->nvmlDeviceGetMigMode && !g->api->nvmlDeviceGetMigMode(g->device, &mig, &next))
        say(g, "MIG", mig ? "on" : "off",
            mig ? "a program sees a part of the GPU, which has fewer multiprocessors" : NULL);
}

static void ask_clocks(const gpu *g)
{
    static const struct {
        unsigned long long bit;
        const char *words;
    } known[] = {
#define X(bit, words) {bit, words},
        F8_NVML_CLOCK_REASONS(X)
#undef X
    };
    unsigned now, most;
    unsigned long long reasons;
    if (g->api->nvmlDeviceGetClockInfo && g->api->nvmlDeviceGetMaxClockInfo &&
        !g->api->nvmlDeviceGetClockInfo(g->device, F8_NVML_CLOCK_SM, &now) &&
        !g->api->nvmlDeviceGetMaxClockInfo(g->device, F8_NVML_CLOCK_SM, &most))
        say(g, "clock", f8_arena_printf(g->facts->arena, "%u of %u MHz", now, most), NULL);
    if (!g->api->nvmlDeviceGetCurrentClocksThrottleReasons ||
        g->api->nvmlDeviceGetCurrentClocksThrottleReasons(g->device, &reasons))
        return;
    const char *text = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (reasons & known[i].bit)
            text = f8_component_also(g->facts->arena, text, known[i].words);
    say(g, "clocks held down by", text ? text : "nothing",
        text ? "times measured now are not the GPU's" : NULL);
}

/* The n processes that compute on the GPU, in the arena of the facts. If the array is too small,
 * NVML says how many processes there are. More may start before the next call, so that it is asked
 * a few times. NULL: NVML gave no answer, or there was no memory. */
static const f8_nvml_process *ask_processes(const gpu *g, unsigned *n)
{
    enum { ROOM = 64, TRIES = 4 };
    unsigned room = ROOM;
    if (!g->api->nvmlDeviceGetComputeRunningProcesses_v3)
        return NULL;
    for (int i = 0; i < TRIES; i++, room = *n + ROOM) {
        f8_nvml_process *process = F8_NEW_ARRAY(g->facts->arena, f8_nvml_process, room);
        if (!process)
            return NULL;
        *n = room;
        const int said = g->api->nvmlDeviceGetComputeRunningProcesses_v3(g->device, n, process);
        if (said != F8_NVML_INSUFFICIENT_SIZE)
            return said || *n > room ? NULL : process;
    }
    return NULL;
}

static void ask_memory(const gpu *g)
{
    f8_nvml_memory m;
    unsigned n, others = 0;
    if (g->api->nvmlDeviceGetMemoryInfo && !g->api->nvmlDeviceGetMemoryInfo(g->device, &m))
        say(g, "memory in use",
            f8_arena_printf(g->facts->arena, "%.1f of %.1f GiB", (double)m.used / (1 << 30),
                            (double)m.total / (1 << 30)),
            NULL);
    const f8_nvml_process *process = ask_processes(g, &n);
    if (!process)
        return;
    const char *text = NULL;
    for (unsigned i = 0; i < n; i++) {
        if (process[i].pid == (unsigned)getpid())
            continue;
        others++;
        const char *one =
            process[i].used == ~0ull
                ? f8_arena_printf(g->facts->arena, "process %u", process[i].pid)
                : f8_arena_printf(g->facts->arena, "process %u: %.1f GiB", process[i].pid,
                                  (double)process[i].used / (1 << 30));
        text = f8_component_also(g->facts->arena, text, one ? one : "");
    }
    say(g, "other processes", text ? text : "none",
        others ? "they take memory, and time from what is measured" : NULL);
}

static void ask_nvml(f8_facts *facts, const char *group, f8_cuda *cuda, const char *pci)
{
    f8_nvml_device_api api;
    gpu g = {facts, &api, NULL, group};
    if (f8_nvml_find(cuda, &api, NULL) != F8_OK || !*pci)
        return;
    if (!api.nvmlDeviceGetHandleByPciBusId_v2 || cuda->nvml.nvmlInit_v2() != F8_NVML_SUCCESS)
        return;
    if (api.nvmlDeviceGetHandleByPciBusId_v2(pci, &g.device) == F8_NVML_SUCCESS) {
        ask_modes(&g);
        ask_clocks(&g);
        ask_memory(&g);
    }
    cuda->nvml.nvmlShutdown();
}

/* What NVML counts of the GPU's errors, and the XIDs of earlier programs. Clocks are told above. */
static void ask_health(f8_facts *facts, const char *group, f8_cuda *cuda, int ordinal)
{
    f8_health_gpu *g;
    f8_health h;
    int last;
    f8_diag d = {0};
    if (f8_health_gpu_open(cuda, ordinal, &g, &d) != F8_OK)
        return;
    f8_health_gpu_read(g, &h);
    h.value[F8_HEALTH_earlier_xids] = f8_xid_count("", f8_health_gpu_address(g), &last);
    h.value[F8_HEALTH_clock] = h.value[F8_HEALTH_clock_limit] = h.value[F8_HEALTH_held_down] = -1;
    f8_facts_health(facts, group, &h);
    f8_health_gpu_close(g);
}

/* ---- */

static void add_gpu(f8_components *all, f8_facts *facts, f8_cuda *cuda, int ordinal)
{
    char pci[40] = "";
    f8_cuda_facts f;
    f8_diag d = {0};
    const char *name = f8_arena_printf(all->arena, "GPU %d", ordinal);
    f8_component *c =
        f8_component_add(all, "cuda", name ? name : "GPU", "running on it",
                         "a GPU of compute capability 8.9 or later (Ada, Hopper, Blackwell)");
    if (f8_cuda_inspect(cuda, ordinal, &f, pci, &d) != F8_OK) {
        f8_component_fail(c, F8_COMPONENT_REFUSED, f8_arena_strdup(all->arena, d.text));
        c->get = "";
        return;
    }
    c->version =
        f8_arena_printf(all->arena, "%s, compute capability %d.%d", f.name, f.sm / 10, f.sm % 10);
    c->major = f.sm / 10;
    judge(all, c, &f);
    f8_fact_add(facts, c->name, "multiprocessors",
                f8_arena_printf(all->arena, "%d", f.multiprocessors), NULL);
    f8_fact_add(facts, c->name, "memory",
                f8_arena_printf(all->arena, "%.1f GiB", (double)f.memory / (1 << 30)), NULL);
    ask_nvml(facts, c->name, cuda, pci);
    ask_health(facts, c->name, cuda, ordinal);
}

void f8_components_gpus(f8_components *all, f8_facts *facts, f8_cuda *cuda)
{
    f8_diag d = {0};
    int count;
    const f8_status status = f8_cuda_count(cuda, &count, &d);
    if (status == F8_OK && count) {
        for (int i = 0; i < count; i++)
            add_gpu(all, facts, cuda, i);
        return;
    }
    f8_component *c =
        f8_component_add(all, "cuda", "GPU", "running on it",
                         "a GPU of compute capability 8.9 or later (Ada, Hopper, Blackwell)");
    const f8_component *driver = f8_component_find(all, "the CUDA driver");
    if (!driver || driver->state != F8_COMPONENT_OK) {
        c->problem = "without a driver none can be seen";
    } else if (status != F8_OK) {
        f8_component_fail(c, F8_COMPONENT_REFUSED, f8_arena_strdup(all->arena, d.text));
        c->get = "";
    } else {
        c->problem = "the driver sees none (CUDA_VISIBLE_DEVICES hides those it does not list)";
    }
}
