/* The health of the device that a program uses: see device.h. */
#include "frontend/diagnose/health/device.h"

#include <inttypes.h>
#include <string.h>

/* ---- life ---- */

void f8_device_health_begin(f8_device_health *h, fp8c_context *ctx, bool gpu, int32_t device)
{
    const fp8c_health_options options = {
        .struct_size = sizeof options, .gpu = gpu, .device = device};
    fp8c_health_info info = {.struct_size = sizeof info};
    *h = (f8_device_health){.gpu = gpu};
    snprintf(h->device, sizeof h->device, "CPU");
    if (fp8c_health_create(ctx, &options, &h->health) != FP8C_OK)
        return; /* the program does not depend on it */
    fp8c_health_report(h->health, 0, &info);
    if (gpu)
        snprintf(h->device, sizeof h->device, "GPU %" PRId32 "%s%.40s%s", device,
                 *info.address ? " (" : "", info.address, *info.address ? ")" : "");
}

void f8_device_health_begin_of(f8_device_health *h, fp8c_context *ctx, const fp8c_program *program,
                               int32_t device)
{
    f8_device_health_begin(h, ctx, !strncmp(fp8c_program_target(program), "sm_", 3), device);
}

void f8_device_health_end(f8_device_health *h)
{
    fp8c_health_destroy(h->health);
    h->health = NULL;
}

/* ---- what there is to tell ---- */

bool f8_device_health_next(f8_device_health *h, fp8c_health_event *out)
{
    out->struct_size = sizeof *out;
    if (!h->health || fp8c_health_event_at(h->health, h->told, out) != FP8C_OK)
        return false;
    h->told++;
    return true;
}

json_t *f8_device_health_record(const f8_device_health *h, const fp8c_health_event *e)
{
    return json_pack("{ss ss ss ss sI sb sf}", "event", "health", "device", h->device, "name",
                     e->name, "message", e->text, "number", (json_int_t)e->number, "fault",
                     (int)e->fault, "seconds", e->seconds);
}

json_t *f8_device_health_summary(const f8_device_health *h)
{
    fp8c_health_info info = {.struct_size = sizeof info};
    fp8c_health_value v = {.struct_size = sizeof v};
    if (!h->health)
        return NULL;
    fp8c_health_report(h->health, 0, &info);
    json_t *values = json_object();
    if (!info.known || (!h->gpu && !info.events) || !values) {
        json_decref(values);
        return NULL;
    }
    for (int i = 0; fp8c_health_value_at(h->health, i, &v) == FP8C_OK; i++)
        if (v.now >= 0)
            json_object_set_new(values, v.name, json_integer((json_int_t)v.now));
    return json_pack("{ss ss ss si si so}", "event", "health_summary", "device", h->device,
                     "source", info.source, "events", (int)info.events, "faults", (int)info.faults,
                     "values", values);
}

static int64_t value_of(const f8_device_health *h, const char *name)
{
    fp8c_health_value v = {.struct_size = sizeof v};
    for (int i = 0; fp8c_health_value_at(h->health, i, &v) == FP8C_OK; i++)
        if (!strcmp(v.name, name))
            return v.now;
    return -1;
}

const char *f8_device_health_state(const f8_device_health *h, char *text, size_t size)
{
    char clocks[120] = "";
    *text = '\0';
    if (!h->health)
        return text;
    const int64_t heat = value_of(h, "temperature"), clock = value_of(h, "clock"),
                  limit = value_of(h, "clock_limit");
    if (clock >= 0)
        snprintf(clocks, sizeof clocks, "%" PRId64 " MHz, at least %" PRId64 ", of %" PRId64, clock,
                 value_of(h, "clock_least"), limit < 0 ? clock : limit);
    if (heat >= 0)
        snprintf(text, size, "%" PRId64 " C, at most %" PRId64 "%s%s", heat,
                 value_of(h, "temperature_most"), *clocks ? "; " : "", clocks);
    else
        snprintf(text, size, "%s", clocks);
    return text;
}
