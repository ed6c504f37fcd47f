/* The health of a CPU, from the kernel's files, and words: see health.h. */
#include "runtime/probe/health.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/probe/nvml_api.h"

const f8_health_about f8_health_values[F8_HEALTH_N] = {
#define X(name, kind, words) {#name, words, F8_HEALTH_##kind},
    F8_HEALTH_VALUES(X)
#undef X
};

const char *f8_health_held_down(int64_t bits, char *text, size_t size)
{
    size_t at = 0;
    snprintf(text, size, "nothing");
#define X(bit, words)                                                                              \
    if ((bits & (bit)) && at < size)                                                               \
        at += (size_t)snprintf(text + at, size - at, "%s%s", at ? "; " : "", words);
    F8_NVML_CLOCK_REASONS(X)
#undef X
    return text;
}

/* ---- the kernel's counters ---- */

/* The sum of the numbers in the files that match; -1: there are none. */
static int64_t sum_files(const char *root, const char *pattern)
{
    char path[512];
    glob_t found;
    int64_t sum = -1;
    snprintf(path, sizeof path, "%s%s", root, pattern);
    if (glob(path, GLOB_NOSORT, NULL, &found) != 0)
        return -1;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        long long n;
        FILE *f = fopen(found.gl_pathv[i], "r");
        if (f && fscanf(f, "%lld", &n) == 1 && n >= 0)
            sum = (sum < 0 ? 0 : sum) + n;
        if (f)
            fclose(f);
    }
    globfree(&found);
    return sum;
}

/* The sum of a line of /proc/interrupts, which has a number for each CPU: "MCE:  0  0  Machine
 * check exceptions". -1: there is none. */
static int64_t sum_interrupts(const char *root, const char *name)
{
    char path[512], *line = NULL, *end;
    size_t room = 0;
    int64_t sum = -1;
    snprintf(path, sizeof path, "%s/proc/interrupts", root);
    FILE *f = fopen(path, "r");
    while (f && sum < 0 && getline(&line, &room, f) > 0) {
        const char *at = line + strspn(line, " ");
        if (strncmp(at, name, strlen(name)) != 0)
            continue;
        sum = 0;
        for (at += strlen(name);; at = end) {
            const long long n = strtoll(at, &end, 10);
            if (end == at)
                break;
            sum += n;
        }
    }
    free(line);
    if (f)
        fclose(f);
    return sum;
}

void f8_health_cpu(const char *root, f8_health *out)
{
    static const char cores[] =
        "/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/*_throttle_count";
    for (int i = 0; i < F8_HEALTH_N; i++)
        out->value[i] = -1;
    out->value[F8_HEALTH_machine_checks] = sum_interrupts(root, "MCE:");
    out->value[F8_HEALTH_memory_corrected] =
        sum_files(root, "/sys/devices/system/edac/mc/mc[0-9]*/ce_count");
    out->value[F8_HEALTH_memory_uncorrected] =
        sum_files(root, "/sys/devices/system/edac/mc/mc[0-9]*/ue_count");
    out->value[F8_HEALTH_throttled] = sum_files(root, cores);
}
