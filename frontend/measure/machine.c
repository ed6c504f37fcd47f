/* What a process says of the machine that it measures on: see machine.h. */
#include "frontend/measure/machine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "frontend/diagnose/doctor/doctor.h"
#include "frontend/limits.h"
#include "frontend/target.h"
#include "frontend/tuned.h"
#include "runtime/base/cpu.h"
#include "runtime/probe/component.h"
#include "runtime/probe/health.h"

#define TERA 1e12

static bool is_cpu(const fp8c_program *p)
{
    return p->target->kind == F8_TARGET_CPU;
}

/* By NVML; NULL: the program runs on no GPU, or NVML does not know it. */
static f8_health_gpu *open_gpu(const fp8c_program *p)
{
    f8_health_gpu *gpu = NULL;
    if (p->target->kind != F8_TARGET_CUDA || !p->cuda ||
        f8_health_gpu_open(p->cuda, p->run.device, &gpu, NULL) != F8_OK)
        return NULL;
    return gpu;
}

/* ---- what is the same in all processes ---- */

/* "a; b", where either may be "". NULL: out of memory, as before. */
static const char *join(f8_arena *arena, const char *a, const char *b)
{
    if (!a || !b)
        return NULL;
    return f8_arena_printf(arena, "%s%s%s", a, *a && *b ? "; " : "", b);
}

/* A text without spaces around it, as some CPUs have them in their names. */
static const char *trimmed(f8_arena *arena, const char *text)
{
    text += strspn(text, " ");
    size_t n = strlen(text);
    while (n && text[n - 1] == ' ')
        n--;
    return f8_arena_strndup(arena, text, n);
}

/* The compiler of kernels, with its version. */
static f8_status compiler(const fp8c_program *p, f8_arena *arena, const char **out, f8_diag *diag)
{
    static const char llvm[] = "LLVM 19";
    fp8c_doctor *doctor;
    int nvrtc;
    *out = "";
    if (p->target->kind == F8_TARGET_CUDA) {
        F8_TRY(f8_cuda_nvrtc(p->cuda, &nvrtc, diag));
        *out = f8_arena_printf(arena, "NVRTC %d.%d", nvrtc / 1000, nvrtc / 10 % 100);
    }
    if (!is_cpu(p))
        return F8_OK;
    const fp8c_status status = f8_doctor_used(p->ctx, p, &doctor);
    if (status != FP8C_OK)
        return f8_fail(diag, (f8_status)status, F8_NOWHERE, "%s", fp8c_context_message(p->ctx));
    const f8_component *c = f8_component_find(&doctor->components, llvm);
    *out = c && c->version ? f8_arena_printf(arena, "LLVM %s", c->version) : llvm;
    fp8c_doctor_destroy(doctor);
    return F8_OK;
}

/* "580.65.06, CUDA 13.0". The first part is NVML's, which may be missing. */
static const char *driver(const f8_health_gpu *gpu, const f8_cuda_facts *facts, f8_arena *arena)
{
    const char *version = gpu ? f8_health_gpu_driver(gpu) : "";
    return f8_arena_printf(arena, "%s%sCUDA %d.%d", version, *version ? ", " : "",
                           facts->driver / 1000, facts->driver % 1000 / 10);
}

static f8_status describe_device(const fp8c_program *p, f8_arena *arena, f8_measure_about *out,
                                 f8_diag *diag)
{
    char cpu[F8_CPU_NAME];
    f8_tuning_keys keys;
    f8_cuda_facts facts;
    out->device = f8_tuning_device(p, &keys) ? f8_arena_strdup(arena, keys.device) : out->target;
    out->processor = trimmed(arena, f8_cpu_name(cpu));
    out->driver = "";
    if (is_cpu(p))
        out->threads = p->threads ? p->threads : f8_pool_usable_cpus();
    if (p->target->kind != F8_TARGET_CUDA)
        return F8_OK;
    F8_TRY(f8_cuda_device_facts(p->cuda, &facts, diag));
    f8_health_gpu *gpu = open_gpu(p);
    out->processor = trimmed(arena, facts.name);
    out->driver = driver(gpu, &facts, arena);
    f8_health_gpu_close(gpu);
    return F8_OK;
}

static const char *system_text(const f8_facts *facts)
{
    const char *kernel = f8_fact_value(facts, "system", "kernel"),
               *distribution = f8_fact_value(facts, "system", "distribution");
    return f8_arena_printf(facts->arena, "%s%s%s", kernel, *kernel && *distribution ? ", " : "",
                           distribution);
}

f8_status f8_measure_describe(const fp8c_program *p, const char *commit, const char *command,
                              const char *inputs, const char *gemms, const char *peers,
                              f8_arena *arena, f8_measure_about *out, f8_diag *diag)
{
    const char *made_by;
    f8_facts facts = {.arena = arena};
    F8_TRY(compiler(p, arena, &made_by, diag));
    f8_facts_machine(&facts, "");
    *out = (f8_measure_about){.command = f8_arena_strdup(arena, command),
                              .version = fp8c_version(),
                              .commit = f8_arena_strdup(arena, commit),
                              .target = f8_arena_strdup(arena, f8_target_text(p)),
                              .libraries = join(arena, join(arena, gemms, made_by), peers),
                              .governor = f8_fact_value(&facts, "CPU", "governor"),
                              .system = system_text(&facts),
                              .inputs = f8_arena_strdup(arena, inputs),
                              .program = "fp8c"};
    F8_TRY(describe_device(p, arena, out, diag));
    return f8_arena_status(arena, diag);
}

/* ---- what a process says of itself ---- */

f8_status f8_measure_begin(f8_arena *arena, f8_measure_process *out, f8_diag *diag)
{
    struct timespec now;
    struct tm t;
    double load;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &t);
    *out = (f8_measure_process){
        .id = f8_arena_printf(arena, "%04d%02d%02dT%02d%02d%02d.%03dZ-%d", t.tm_year + 1900,
                              t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec,
                              (int)(now.tv_nsec / 1000000), (int)getpid()),
        .date = f8_arena_printf(arena, "%04d-%02d-%02dT%02d:%02d:%02dZ", t.tm_year + 1900,
                                t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec),
        .load = getloadavg(&load, 1) == 1 ? load : (double)NAN,
        .cpus = f8_pool_usable_cpus()};
    return f8_arena_status(arena, diag);
}

f8_status f8_measure_find_limits(const fp8c_program *p, f8_measure_limits *out, f8_diag *diag)
{
    f8_limits l;
    *out = (f8_measure_limits){0};
    F8_TRY(f8_limits_find(p, &l, diag));
    *out = (f8_measure_limits){.flops_f32 = l.flops, .flops_bf16 = l.flops_bf16, .bytes = l.bytes};
    if (l.target) {
        out->flops_bf16 = l.target->rates.bf16 * TERA;
        out->flops_fp8 = l.target->rates.fp8 * TERA;
    }
    return F8_OK;
}

void f8_measure_find_clocks(const fp8c_program *p, f8_measure_clocks *out)
{
    f8_gpu_pace now;
    f8_health_gpu *gpu = open_gpu(p);
    *out = (f8_measure_clocks){0};
    if (!gpu)
        return;
    f8_health_gpu_pace(gpu, &now);
    f8_health_gpu_close(gpu);
    *out = (f8_measure_clocks){.sm_mhz = now.sm_mhz,
                               .memory_mhz = now.memory_mhz,
                               .watts = now.milliwatts / 1e3,
                               .celsius = now.celsius};
}

/* ---- units ---- */

/* oneDNN multiplies bf16 with AMX, or else with AVX512_BF16: what runtime/cpu/peak.h measures. */
static const char *cpu_unit(uint32_t algorithm)
{
    return algorithm == F8_GEMM_ONEDNN_F32 ? "f32" : algorithm == F8_GEMM_ONEDNN_BF16 ? "bf16" : "";
}

const char *f8_measure_unit(const fp8c_program *p, uint32_t algorithm, f8_dtype a, f8_dtype b)
{
    if (is_cpu(p))
        return cpu_unit(algorithm);
    if (p->target->kind != F8_TARGET_CUDA)
        return "";
    return f8_dtype_is_fp8(a) && f8_dtype_is_fp8(b) ? "fp8"
           : a == F8_BF16 && b == F8_BF16           ? "bf16"
           : a == F8_F32 && b == F8_F32             ? "f32"
                                                    : "";
}
