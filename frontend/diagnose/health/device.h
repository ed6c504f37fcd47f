/* The health of the device that a program uses, event by event: its records, and what it is now. */
#ifndef F8_HEALTH_DEVICE_H
#define F8_HEALTH_DEVICE_H

#include <jansson.h>
#include <stdbool.h>

#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_machine.h"

typedef struct f8_device_health {
    fp8c_health *health; /* NULL: it could not be made, and nothing is told */
    char device[64];     /* "CPU", "GPU 0 (0000:17:00.0)" */
    bool gpu;
    int told; /* events that were told */
} f8_device_health;

/* Begins to watch GPU number `device`, or with gpu false the CPU. */
void f8_device_health_begin(f8_device_health *h, fp8c_context *ctx, bool gpu, int32_t device);
/* The same of the device that a program runs on. */
void f8_device_health_begin_of(f8_device_health *h, fp8c_context *ctx, const fp8c_program *program,
                               int32_t device);
void f8_device_health_end(f8_device_health *h);

/* The next event that was not told yet. false: there is none. */
bool f8_device_health_next(f8_device_health *h, fp8c_health_event *out);
/* Its record; fields of the caller's own may be added. */
json_t *f8_device_health_record(const f8_device_health *h, const fp8c_health_event *e);
/* A record of what is known of the device by now. NULL: nothing is, or nothing has changed on a
 * CPU. */
json_t *f8_device_health_summary(const f8_device_health *h);
/* "45 C, at most 88; 1700 MHz, at least 900, of 1980"; "" if nothing of that is known. */
const char *f8_device_health_state(const f8_device_health *h, char *text, size_t size);

#endif
