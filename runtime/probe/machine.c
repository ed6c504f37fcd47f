/* Facts of the machine: its system, its CPU, how many threads may run, memory. From /proc, /sys and
 * /etc: see component.h. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include "runtime/probe/component.h"
#include "runtime/base/cpu.h"

void f8_fact_add(f8_facts *all, const char *group, const char *name, const char *value,
                 const char *advice)
{
    f8_fact *grown =
        value ? f8_arena_grow(all->arena, all->item, all->n, &all->room, all->n + 1, sizeof *grown)
              : NULL;
    if (!grown) /* the arena says whether it had no memory */
        return;
    all->item = grown;
    grown[all->n++] = (f8_fact){group, name, value, advice};
}

const char *f8_fact_value(const f8_facts *all, const char *group, const char *name)
{
    for (size_t i = 0; i < all->n; i++)
        if (!strcmp(all->item[i].group, group) && !strcmp(all->item[i].name, name))
            return all->item[i].value;
    return "";
}

typedef struct machine {
    f8_facts *facts;
    const char *root;
} machine;

/* The first line of a file that begins with `key`, less the key and what stands before its value;
 * with key "" the first line. false: there is none. */
static bool read_line(const machine *m, const char *file, const char *key, char *out, size_t size)
{
    char path[512];
    bool found = false;
    snprintf(path, sizeof path, "%s%s", m->root, file);
    FILE *f = fopen(path, "r");
    while (f && !found && fgets(out, (int)size, f))
        found = !strncmp(out, key, strlen(key));
    if (f)
        fclose(f);
    if (!found)
        return false;
    char *at = out + strlen(key);
    at += strspn(at, *key ? " \t:" : "");
    memmove(out, at, strlen(at) + 1);
    out[strcspn(out, "\n")] = '\0';
    return true;
}

/* ---- the CPU ---- */

static void cpu(const machine *m)
{
    char name[F8_CPU_NAME], lacks[128];
    const f8_cpu_features has = f8_cpu_detect();
    const f8_cpu_level *level;
    /* What decides which code, and which of oneDNN's kernels, is taken. */
    static const char *const shown[] = {"avx2",       "fma",        "f16c",
                                        "avx512f",    "avx512vnni", "avx512bf16",
                                        "avx512fp16", "amx-tile",   "amx-bf16"};
    const char *best = NULL, *text = NULL, *feature;
    f8_arena *a = m->facts->arena;
    f8_fact_add(m->facts, "CPU", "model", f8_arena_strdup(a, f8_cpu_name(name)), NULL);
    const f8_cpu_identity is = f8_cpu_identify();
    f8_fact_add(m->facts, "CPU", "family",
                f8_arena_printf(a, "%s %u, model %u", is.vendor, is.family, is.model), NULL);
    for (size_t i = 0; (level = f8_cpu_level_at(i)); i++) {
        const f8_cpu_features needs = f8_cpu_level_features(level);
        if (f8_cpu_suffices(&has, &needs, lacks, sizeof lacks))
            best = level->llvm;
    }
    f8_fact_add(m->facts, "CPU", "level", best ? best : "below x86-64-v3",
                best ? NULL : "target cpu needs x86-64-v3: AVX2, FMA, F16C");
    for (size_t i = 0; (feature = f8_cpu_feature_name(i)); i++)
        for (size_t k = 0; k < sizeof shown / sizeof *shown; k++)
            if (f8_cpu_has(&has, i) && !strcmp(feature, shown[k]))
                text = text ? f8_arena_printf(a, "%s %s", text, feature) : feature;
    f8_fact_add(m->facts, "CPU", "features", text ? text : "none", NULL);
    char governor[64];
    if (read_line(m, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "", governor,
                  sizeof governor))
        f8_fact_add(m->facts, "CPU", "governor", f8_arena_strdup(a, governor), NULL);
}

/* ---- the system ---- */

/* "Debian GNU/Linux 12 (bookworm)", which stands in quotes. */
static void distribution(const machine *m)
{
    char line[256];
    if (!read_line(m, "/etc/os-release", "PRETTY_NAME=", line, sizeof line))
        return;
    char *name = line + strspn(line, "\"'");
    name[strcspn(name, "\"'")] = '\0';
    if (*name)
        f8_fact_add(m->facts, "system", "distribution", f8_arena_strdup(m->facts->arena, name),
                    NULL);
}

static void system_of(const machine *m)
{
    char type[64], release[128];
    struct utsname u;
    if (read_line(m, "/proc/sys/kernel/ostype", "", type, sizeof type) &&
        read_line(m, "/proc/sys/kernel/osrelease", "", release, sizeof release) && uname(&u) == 0)
        f8_fact_add(m->facts, "system", "kernel",
                    f8_arena_printf(m->facts->arena, "%s %s %s", type, release, u.machine), NULL);
    distribution(m);
}

/* ---- threads ---- */

/* A file of this process's cgroup, version 2 or 1's `controller`. */
static bool read_cgroup(const machine *m, const char *controller, const char *file, char *out,
                        size_t size)
{
    char group[256], path[600];
    if (read_line(m, "/proc/self/cgroup", "0::", group, sizeof group)) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", strcmp(group, "/") ? group : "", file);
        if (read_line(m, path, "", out, size))
            return true;
    }
    /* In a container its own group is mounted as the root. */
    snprintf(path, sizeof path, "/sys/fs/cgroup/%s", file);
    if (read_line(m, path, "", out, size))
        return true;
    snprintf(path, sizeof path, "/sys/fs/cgroup/%s/%s", controller, file);
    return read_line(m, path, "", out, size);
}

/* CPUs' worth of time a second that the cgroup grants; 0: no limit. */
static double cpu_quota(const machine *m)
{
    char line[128];
    double quota, period;
    if (read_cgroup(m, "cpu", "cpu.max", line, sizeof line))
        return sscanf(line, "%lf %lf", &quota, &period) == 2 && period > 0 ? quota / period : 0;
    if (!read_cgroup(m, "cpu", "cpu.cfs_quota_us", line, sizeof line) ||
        sscanf(line, "%lf", &quota) != 1 || quota <= 0 ||
        !read_cgroup(m, "cpu", "cpu.cfs_period_us", line, sizeof line) ||
        sscanf(line, "%lf", &period) != 1 || period <= 0)
        return 0;
    return quota / period;
}

static void threads(const machine *m)
{
    char line[256];
    cpu_set_t *set = CPU_ALLOC(4096);
    const size_t size = CPU_ALLOC_SIZE(4096);
    int may = 0;
    if (set && sched_getaffinity(0, size, set) == 0)
        may = CPU_COUNT_S(size, set);
    CPU_FREE(set);
    if (read_line(m, "/sys/devices/system/cpu/online", "", line, sizeof line))
        f8_fact_add(m->facts, "CPU", "online", f8_arena_strdup(m->facts->arena, line), NULL);
    if (may)
        f8_fact_add(m->facts, "CPU", "this process may use",
                    f8_arena_printf(m->facts->arena, "%d", may), NULL);
    const double quota = cpu_quota(m);
    if (quota > 0)
        f8_fact_add(
            m->facts, "CPU", "cgroup limit", f8_arena_printf(m->facts->arena, "%.2f CPUs", quota),
            quota < may
                ? f8_arena_printf(m->facts->arena,
                                  "more threads than that wait for each other: --threads %d",
                                  quota < 1 ? 1 : (int)quota)
                : NULL);
}

/* ---- memory ---- */

static void memory(const machine *m)
{
    char line[256];
    unsigned long long kib, bytes, available = 0;
    struct rlimit limit;
    f8_arena *a = m->facts->arena;
    if (read_line(m, "/proc/meminfo", "MemTotal", line, sizeof line) &&
        sscanf(line, "%llu", &kib) == 1)
        f8_fact_add(m->facts, "memory", "in all",
                    f8_arena_printf(a, "%.1f GiB", (double)kib / (1 << 20)), NULL);
    if (read_line(m, "/proc/meminfo", "MemAvailable", line, sizeof line) &&
        sscanf(line, "%llu", &available) == 1)
        f8_fact_add(m->facts, "memory", "available",
                    f8_arena_printf(a, "%.1f GiB", (double)available / (1 << 20)), NULL);
    if ((read_cgroup(m, "memory", "memory.max", line, sizeof line) ||
         read_cgroup(m, "memory", "memory.limit_in_bytes", line, sizeof line)) &&
        sscanf(line, "%llu", &bytes) == 1 && bytes < 1ull << 60)
        f8_fact_add(m->facts, "memory", "cgroup limit",
                    f8_arena_printf(a, "%.1f GiB", (double)bytes / (1 << 30)),
                    available && bytes >> 10 < available ? "beyond it the process is killed"
                                                         : NULL);
    if (!*m->root && getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        f8_fact_add(m->facts, "memory", "address space limit",
                    f8_arena_printf(a, "%.1f GiB", (double)limit.rlim_cur / (1 << 30)),
                    "GPU libraries map more than they use: ulimit -v unlimited");
    if (read_line(m, "/sys/kernel/mm/transparent_hugepage/enabled", "", line, sizeof line)) {
        const char *open = strchr(line, '[');
        const size_t n = open ? strcspn(open + 1, "]") : 0;
        f8_fact_add(m->facts, "memory", "huge pages",
                    open ? f8_arena_strndup(a, open + 1, n) : f8_arena_strdup(a, line),
                    open && !strncmp(open + 1, "never", n)
                        ? "large arenas are slower without: `madvise` or `always` in "
                          "/sys/kernel/mm/transparent_hugepage/enabled"
                        : NULL);
    }
}

/* NVIDIA's kernel module. In a container it may be there while the driver's library is missing. */
static void driver(const machine *m)
{
    char line[256];
    if (read_line(m, "/proc/driver/nvidia/version", "NVRM version", line, sizeof line))
        f8_fact_add(m->facts, "driver", "kernel module", f8_arena_strdup(m->facts->arena, line),
                    NULL);
}

void f8_facts_machine(f8_facts *all, const char *root)
{
    const machine m = {all, root};
    driver(&m);
    system_of(&m);
    cpu(&m);
    threads(&m);
    memory(&m);
}
