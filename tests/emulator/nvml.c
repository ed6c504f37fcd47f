/* A stand-in for NVML. What it says stands in the file that FP8C_EMULATOR_NVML names, which is read
 * at every call, so that a test can change it while a program runs. A line is a name and numbers:
 *
 *     temperature C            clock MHZ            max_clock MHZ        reasons BITS
 *     memory_clock MHZ         power MILLIWATTS
 *     ecc_corrected N          ecc_uncorrected N    nvlink N (errors of link 0; 1 is not active)
 *     remapped CORRECTED UNCORRECTED PENDING FAILED
 *     xid NUMBER ...           each is an event, once in a process
 *     lost 1                   each call says that the GPU is lost
 *
 * What has no line is not supported. */
#include "runtime/probe/nvml_api.h"
#include "tests/emulator/common.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC visibility push(default)
F8_NVML_SYMBOLS(F8_EMU_PROTOTYPE)
F8_NVML_DEVICE_SYMBOLS(F8_EMU_PROTOTYPE)
#pragma GCC visibility pop

enum { NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, TIMEOUT = 10 };

static atomic_int told; /* XIDs that were events */

/* Number `index` of the line `name`. */
static bool find(const char *name, int index, unsigned long long *out)
{
    const char *path = getenv("FP8C_EMULATOR_NVML");
    FILE *f = path ? fopen(path, "r") : NULL;
    char line[256];
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        const size_t n = strcspn(line, " \n");
        if (strlen(name) != n || strncmp(line, name, n) != 0)
            continue;
        char *at = line + n, *end;
        for (int i = 0; i <= index; i++, at = end) {
            *out = strtoull(at, &end, 0);
            found = end != at;
        }
    }
    if (f)
        fclose(f);
    return found;
}

static int get(const char *name, int index, unsigned long long *out)
{
    unsigned long long lost = 0;
    if (find("lost", 0, &lost) && lost)
        return F8_NVML_GPU_IS_LOST;
    return find(name, index, out) ? F8_NVML_SUCCESS : NOT_SUPPORTED;
}

static int get_unsigned(const char *name, int index, unsigned *out)
{
    unsigned long long value = 0;
    const int result = get(name, index, &value);
    if (result == F8_NVML_SUCCESS)
        *out = (unsigned)value;
    return result;
}

/* ---- the library ---- */

const char *nvmlErrorString(f8_nvml_return result)
{
    return result == DRIVER_NOT_LOADED     ? "Driver Not Loaded"
           : result == NOT_SUPPORTED       ? "Not Supported"
           : result == F8_NVML_GPU_IS_LOST ? "GPU is lost"
                                           : "Unknown Error";
}

f8_nvml_return nvmlInit_v2(void)
{
    return getenv("FP8C_EMULATOR_NVML") ? F8_NVML_SUCCESS : DRIVER_NOT_LOADED;
}

f8_nvml_return nvmlShutdown(void)
{
    return F8_NVML_SUCCESS;
}

f8_nvml_return nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    snprintf(version, length, "580.65.06");
    return F8_NVML_SUCCESS;
}

/* ---- the device ---- */

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, f8_nvml_device *device)
{
    unsigned bus;
    static char devices[256];
    if (sscanf(pci, "0000:%2x:00.0", &bus) != 1 || bus < 16)
        return NOT_FOUND;
    *device = &devices[bus];
    return F8_NVML_SUCCESS;
}

int nvmlDeviceGetEccMode(f8_nvml_device device, int *current, int *pending)
{
    (void)device;
    *current = *pending = 1;
    return F8_NVML_SUCCESS;
}

int nvmlDeviceGetPersistenceMode(f8_nvml_device device, int *mode)
{
    (void)device;
    *mode = 1;
    return F8_NVML_SUCCESS;
}

int nvmlDeviceGetMigMode(f8_nvml_device device, unsigned *current, unsigned *pending)
{
    (void)device, (void)current, (void)pending;
    return NOT_SUPPORTED;
}

int nvmlDeviceGetMemoryInfo(f8_nvml_device device, f8_nvml_memory *memory)
{
    (void)device, (void)memory;
    return NOT_SUPPORTED;
}

int nvmlDeviceGetClockInfo(f8_nvml_device device, int which, unsigned *mhz)
{
    (void)device;
    return which == F8_NVML_CLOCK_SM       ? get_unsigned("clock", 0, mhz)
           : which == F8_NVML_CLOCK_MEMORY ? get_unsigned("memory_clock", 0, mhz)
                                           : NOT_SUPPORTED;
}

int nvmlDeviceGetMaxClockInfo(f8_nvml_device device, int which, unsigned *mhz)
{
    (void)device;
    return which == F8_NVML_CLOCK_SM ? get_unsigned("max_clock", 0, mhz) : NOT_SUPPORTED;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(f8_nvml_device device, unsigned long long *reasons)
{
    (void)device;
    return get("reasons", 0, reasons);
}

int nvmlDeviceGetComputeRunningProcesses_v3(f8_nvml_device device, unsigned *count,
                                            f8_nvml_process *processes)
{
    (void)device, (void)count, (void)processes;
    return NOT_SUPPORTED;
}

int nvmlDeviceGetTemperature(f8_nvml_device device, int sensor, unsigned *celsius)
{
    (void)device;
    return sensor == F8_NVML_SENSOR_GPU ? get_unsigned("temperature", 0, celsius) : NOT_SUPPORTED;
}

int nvmlDeviceGetPowerUsage(f8_nvml_device device, unsigned *milliwatts)
{
    (void)device;
    return get_unsigned("power", 0, milliwatts);
}

int nvmlDeviceGetTotalEccErrors(f8_nvml_device device, int type, int counter,
                                unsigned long long *count)
{
    (void)device;
    if (counter != F8_NVML_VOLATILE)
        return NOT_SUPPORTED;
    return get(type == F8_NVML_CORRECTED ? "ecc_corrected" : "ecc_uncorrected", 0, count);
}

int nvmlDeviceGetRemappedRows(f8_nvml_device device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed)
{
    unsigned *const to[] = {corrected, uncorrected, pending, failed};
    int result = F8_NVML_SUCCESS;
    (void)device;
    for (int i = 0; i < 4 && result == F8_NVML_SUCCESS; i++)
        result = get_unsigned("remapped", i, to[i]);
    return result;
}

int nvmlDeviceGetNvLinkState(f8_nvml_device device, unsigned link, int *active)
{
    unsigned long long errors;
    (void)device;
    const int result = get("nvlink", 0, &errors);
    *active = link == 0;
    return link < 2 ? result : NOT_SUPPORTED;
}

int nvmlDeviceGetNvLinkErrorCounter(f8_nvml_device device, unsigned link, int counter,
                                    unsigned long long *count)
{
    (void)device;
    *count = 0;
    if (link != 0)
        return NOT_SUPPORTED;
    return counter == 0 ? get("nvlink", 0, count) : F8_NVML_SUCCESS;
}

/* ---- events ---- */

int nvmlEventSetCreate(f8_nvml_events *set)
{
    *set = malloc(1); /* so that LeakSanitizer sees one that is not freed */
    return F8_NVML_SUCCESS;
}

int nvmlEventSetFree(f8_nvml_events set)
{
    free(set);
    return F8_NVML_SUCCESS;
}

int nvmlDeviceRegisterEvents(f8_nvml_device device, unsigned long long types, f8_nvml_events set)
{
    (void)device, (void)set;
    return types == F8_NVML_EVENT_XID ? F8_NVML_SUCCESS : NOT_SUPPORTED;
}

int nvmlEventSetWait_v2(f8_nvml_events set, f8_nvml_event *event, unsigned milliseconds)
{
    static const struct timespec pause = {.tv_nsec = 5000000};
    (void)set;
    for (unsigned waited = 0;; waited += 5) {
        const int result = get("xid", told, &event->data);
        if (result == F8_NVML_SUCCESS) {
            told++;
            event->type = F8_NVML_EVENT_XID;
        }
        if (result != NOT_SUPPORTED)
            return result;
        if (waited >= milliseconds)
            return TIMEOUT;
        nanosleep(&pause, NULL);
    }
}
