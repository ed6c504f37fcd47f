/* What the caches of this machine hold: see machine.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/measure/machine.h"
#include "ir/base/format.h"

/* The first line of a file of the system's CPUs. */
static bool read_line(const char *root, const char *file, char line[64])
{
    char path[512];
    f8_format(path, sizeof path, "%s/sys/devices/system/cpu/%s", root, file);
    FILE *f = fopen(path, "r");
    const bool found = f && fgets(line, 64, f);
    if (f)
        fclose(f);
    return found;
}

/* The bytes of a CPU's cache "index3"; 0: it has none, or a CPU before it has the same. */
static double cache_of(const char *root, int64_t cpu, const char *index)
{
    char file[96], size[64], shared[64], *unit;
    f8_format(file, sizeof file, "cpu%lld/cache/%s/shared_cpu_list", (long long)cpu, index);
    if (!read_line(root, file, shared) || strtoll(shared, NULL, 10) != cpu)
        return 0;
    f8_format(file, sizeof file, "cpu%lld/cache/%s/size", (long long)cpu, index);
    if (!read_line(root, file, size))
        return 0;
    const double bytes = (double)strtoll(size, &unit, 10);
    return bytes * (*unit == 'K' ? 1 << 10 : *unit == 'M' ? 1 << 20 : 1);
}

double f8_measure_cache_bytes(const char *root)
{
    char line[64];
    double all = 0;
    if (!read_line(root, "possible", line)) /* "0-7" */
        return 0;
    const char *last = line + strcspn(line, "\n");
    while (last > line && last[-1] >= '0' && last[-1] <= '9')
        last--;
    const int64_t most = strtoll(last, NULL, 10);
    for (int index = 3; index >= 2 && !(all > 0); index--)
        for (int64_t cpu = 0; cpu <= most; cpu++)
            all += cache_of(root, cpu, index == 3 ? "index3" : "index2");
    return all;
}
