/* What doctor and health.h ask NVML about a GPU, in our own declarations (api.h says how they are
 * used). The functions of api.h's table are in every NVML. Each of these is looked up alone: an
 * older or virtual GPU's library may lack one, and many boards answer "not supported". */
#ifndef F8_NVML_API_H
#define F8_NVML_API_H

#include "runtime/cuda/device.h"

typedef void *f8_nvml_device;

enum {
    F8_NVML_SUCCESS = 0,
    F8_NVML_INSUFFICIENT_SIZE = 7,
    F8_NVML_GPU_IS_LOST = 15,
    F8_NVML_CLOCK_SM = 1,
    F8_NVML_CLOCK_MEMORY = 2,
    F8_NVML_SENSOR_GPU = 0,
    F8_NVML_CORRECTED = 0,
    F8_NVML_UNCORRECTED = 1,
    F8_NVML_VOLATILE = 0, /* a counter since the driver was loaded */
    F8_NVML_EVENT_XID = 8,
    F8_NVML_LINKS = 18,        /* NVLinks, at most */
    F8_NVML_LINK_COUNTERS = 4  /* of a link: replays, recoveries, CRC errors of flits and of data */
};

/* Bits of what holds the clocks down. X(bit, words) */
#define F8_NVML_CLOCK_REASONS(X)                                                                   \
    X(0x004, "the power limit")                                                                    \
    X(0x008, "the hardware (heat, power or supply)")                                               \
    X(0x020, "heat (by the driver)")                                                               \
    X(0x040, "heat (by the hardware)")                                                             \
    X(0x080, "a power brake (from outside the board)")

typedef struct f8_nvml_memory {
    unsigned long long total, free, used; /* bytes */
} f8_nvml_memory;

typedef struct f8_nvml_process {
    unsigned pid;
    unsigned long long used; /* bytes; all ones: not known */
    unsigned gpu_instance, compute_instance;
} f8_nvml_process;

typedef void *f8_nvml_events;
typedef struct f8_nvml_event {
    f8_nvml_device device;
    unsigned long long type, data; /* data of an XID event: its number */
    unsigned gpu_instance, compute_instance;
} f8_nvml_event;

#define F8_NVML_DEVICE_SYMBOLS(X)                                                                  \
    X(int, nvmlDeviceGetHandleByPciBusId_v2, (const char *pci, f8_nvml_device *device))            \
    X(int, nvmlDeviceGetEccMode, (f8_nvml_device device, int *current, int *pending))              \
    X(int, nvmlDeviceGetPersistenceMode, (f8_nvml_device device, int *mode))                       \
    X(int, nvmlDeviceGetMigMode, (f8_nvml_device device, unsigned *current, unsigned *pending))    \
    X(int, nvmlDeviceGetMemoryInfo, (f8_nvml_device device, f8_nvml_memory * memory))              \
    X(int, nvmlDeviceGetClockInfo, (f8_nvml_device device, int which, unsigned *mhz))              \
    X(int, nvmlDeviceGetMaxClockInfo, (f8_nvml_device device, int which, unsigned *mhz))           \
    X(int, nvmlDeviceGetCurrentClocksThrottleReasons,                                              \
      (f8_nvml_device device, unsigned long long *reasons))                                        \
    X(int, nvmlDeviceGetComputeRunningProcesses_v3,                                                \
      (f8_nvml_device device, unsigned *count, f8_nvml_process *processes))                        \
    X(int, nvmlDeviceGetTemperature, (f8_nvml_device device, int sensor, unsigned *celsius))       \
    X(int, nvmlDeviceGetPowerUsage, (f8_nvml_device device, unsigned *milliwatts))                 \
    X(int, nvmlDeviceGetTotalEccErrors,                                                            \
      (f8_nvml_device device, int type, int counter, unsigned long long *count))                   \
    X(int, nvmlDeviceGetRemappedRows,                                                              \
      (f8_nvml_device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,       \
       unsigned *failed))                                                                          \
    X(int, nvmlDeviceGetNvLinkState, (f8_nvml_device device, unsigned link, int *active))          \
    X(int, nvmlDeviceGetNvLinkErrorCounter,                                                        \
      (f8_nvml_device device, unsigned link, int counter, unsigned long long *count))              \
    X(int, nvmlEventSetCreate, (f8_nvml_events * set))                                             \
    X(int, nvmlEventSetFree, (f8_nvml_events set))                                                 \
    X(int, nvmlDeviceRegisterEvents,                                                               \
      (f8_nvml_device device, unsigned long long types, f8_nvml_events set))                       \
    X(int, nvmlEventSetWait_v2, (f8_nvml_events set, f8_nvml_event * event, unsigned milliseconds))

typedef struct f8_nvml_device_api {
#define F8_NVML_FIELD(result, name, parameters) result(*name) parameters;
    F8_NVML_DEVICE_SYMBOLS(F8_NVML_FIELD)
#undef F8_NVML_FIELD
} f8_nvml_device_api;

/* Loads NVML and looks the functions up, NULL where it lacks one (health_gpu.c). */
f8_status f8_nvml_find(f8_cuda *cuda, f8_nvml_device_api *api, f8_diag *diag);

#endif
