/* The health of a device: what it counts of its own errors, its clocks and its temperature. Of a
 * GPU NVML tells them, of a CPU the kernel's files, to any user.
 *
 * Nothing fails for a number that can't be had: it is unknown. The tests give another root folder,
 * which stands before /proc, /sys, /dev and /var. */
#ifndef F8_HEALTH_H
#define F8_HEALTH_H

#include "runtime/cuda/device.h"

/* X(name, kind, words). FAULT: when it grows, the hardware errs, and results may be wrong. NOTE:
 * when it grows, something was put right, or the device is slower. GAUGE: it goes up and down. */
#define F8_HEALTH_VALUES(X)                                                                        \
    X(xids, FAULT, "errors that the driver reports (XIDs)")                                        \
    X(ecc_uncorrected, FAULT, "memory errors that ECC could not correct")                          \
    X(ecc_corrected, NOTE, "memory errors that ECC corrected")                                     \
    X(remapped_uncorrected, FAULT, "rows of memory remapped after uncorrected errors")             \
    X(remapped_corrected, NOTE, "rows of memory remapped after corrected errors")                  \
    X(remap_pending, FAULT, "rows of memory that a reset will remap")                              \
    X(remap_failed, FAULT, "remappings of rows that failed")                                       \
    X(nvlink_errors, NOTE, "errors on NVLinks, sent again")                                        \
    X(lost, FAULT, "the GPU is lost")                                                              \
    X(machine_checks, FAULT, "machine check exceptions of the CPU")                                \
    X(memory_uncorrected, FAULT, "memory errors that ECC could not correct (EDAC)")                \
    X(memory_corrected, NOTE, "memory errors that ECC corrected (EDAC)")                           \
    X(throttled, NOTE, "times that heat held clocks down")                                         \
    X(held_down, NOTE, "what holds clocks down, as bits of NVML")                                  \
    X(earlier_xids, GAUGE, "XIDs in the kernel's log before")                                      \
    X(temperature, GAUGE, "temperature (C)")                                                       \
    X(temperature_most, GAUGE, "the highest temperature seen (C)")                                 \
    X(clock, GAUGE, "clock (MHz)")                                                                 \
    X(clock_least, GAUGE, "the lowest clock seen (MHz)")                                           \
    X(clock_limit, GAUGE, "the highest clock that it can have (MHz)")

typedef enum f8_health_kind { F8_HEALTH_FAULT, F8_HEALTH_NOTE, F8_HEALTH_GAUGE } f8_health_kind;
typedef enum f8_health_id {
#define X(name, kind, words) F8_HEALTH_##name,
    F8_HEALTH_VALUES(X)
#undef X
        F8_HEALTH_N
} f8_health_id;

/* By f8_health_id; -1: not known. */
typedef struct f8_health {
    int64_t value[F8_HEALTH_N];
} f8_health;

typedef struct f8_health_about {
    const char *name, *words;
    f8_health_kind kind;
} f8_health_about;
extern const f8_health_about f8_health_values[F8_HEALTH_N];

/* What bits of held_down stand for, as "heat (by the driver); the power limit". */
const char *f8_health_held_down(int64_t bits, char *text, size_t size);

/* ---- of the CPU ---- */

void f8_health_cpu(const char *root, f8_health *out);

/* ---- of a GPU ---- */

typedef struct f8_health_gpu f8_health_gpu;
/* Opens NVML and finds the device. F8_ERR_LIBRARY: NVML is missing, or does not have it. */
f8_status f8_health_gpu_open(f8_cuda *cuda, int ordinal, f8_health_gpu **out, f8_diag *diag);
void f8_health_gpu_close(f8_health_gpu *g); /* NULL: nothing */
/* NVML's own version of the driver, and the GPU's address on the bus. */
const char *f8_health_gpu_driver(const f8_health_gpu *g);
const char *f8_health_gpu_address(const f8_health_gpu *g);
/* All but xids, earlier_xids and the extremes, which a caller knows who looks more than once. */
void f8_health_gpu_read(const f8_health_gpu *g, f8_health *out);
/* Its clocks, power and temperature now: what its speed depends on. 0: not known. */
typedef struct f8_gpu_pace {
    unsigned sm_mhz, memory_mhz, milliwatts, celsius;
} f8_gpu_pace;
void f8_health_gpu_pace(const f8_health_gpu *g, f8_gpu_pace *out);
/* Waits for an XID for so long. True: there was one, and *xid is its number. Where NVML has no
 * events it returns at once: *waits becomes false. */
bool f8_health_gpu_xid(const f8_health_gpu *g, unsigned milliseconds, int64_t *xid, bool *waits);

/* ---- the kernel's log ---- */

typedef struct f8_xid {
    char address[20]; /* "0000:cb:00", of the GPU */
    int number;
} f8_xid;
/* Whether a line of the kernel's log reports an XID:
 *     NVRM: Xid (PCI:0000:cb:00): 79, pid=1234, GPU has fallen off the bus. */
bool f8_xid_parse(const char *line, f8_xid *out);
/* How many XIDs the kernel's log has of the GPU at this address ("0000:cb:00.0"); *last: the number
 * of the last one. -1: no log can be read. */
int64_t f8_xid_count(const char *root, const char *address, int *last);

#endif
