/* What a compile takes from the tuning database: see tuned.h. */
#include "frontend/tuned.h"

#include <stdio.h>
#include <string.h>

#include "codegen/cache/code_id.h"
#include "frontend/target.h"
#include "runtime/base/cpu.h"
#include "runtime/cuda/cublaslt.h"

enum { PATIENCE = 1000 /* milliseconds that a compile waits for a writer */ };

/* The highest level of this CPU. The CPU's name alone says little: virtual machines choose it. */
static const char *level(void)
{
    const f8_cpu_features here = f8_cpu_detect();
    const char *highest = "x86-64";
    char lacks[8];
    const f8_cpu_level *l;
    for (size_t i = 0; (l = f8_cpu_level_at(i)); i++) {
        const f8_cpu_features needs = f8_cpu_level_features(l);
        if (f8_cpu_suffices(&here, &needs, lacks, sizeof lacks))
            highest = l->llvm;
    }
    return highest;
}

static void point_into(f8_tuning_keys *keys)
{
    keys->gemm.device = keys->kernel.device = keys->device;
    keys->gemm.versions = keys->gemm_versions;
    keys->kernel.versions = keys->kernel_versions;
}

void f8_tuning_gpu(const f8_target *target, const f8_cuda_facts *facts, f8_tuning_keys *out)
{
    *out = (f8_tuning_keys){0};
    snprintf(out->device, sizeof out->device, "%s %s", target->name, facts->name);
    point_into(out);
}

bool f8_tuning_device(const fp8c_program *p, f8_tuning_keys *out)
{
    char cpu[F8_CPU_NAME];
    f8_cuda_facts facts;
    *out = (f8_tuning_keys){0};
    if (p->target->kind == F8_TARGET_CPU) {
        const int threads = p->threads ? p->threads : f8_pool_usable_cpus();
        snprintf(out->device, sizeof out->device, "%s %s, %s, %d threads", f8_target_text(p),
                 f8_cpu_name(cpu), level(), threads);
    } else if (p->target->kind == F8_TARGET_CUDA && p->cuda &&
               f8_cuda_device_facts(p->cuda, &facts, NULL) == F8_OK) {
        f8_tuning_gpu(p->target, &facts, out);
    } else {
        return false;
    }
    point_into(out);
    return true;
}

f8_status f8_tuning_versions(const fp8c_program *p, f8_gemm_lib **gemms, f8_tuning_keys *out,
                             f8_diag *diag)
{
    const char *compiler =
        "LLVM 19"; /* no other major version is used, and asking for the minor one would load the
                      library */
    if (p->target->kind == F8_TARGET_CPU) {
        if (!*gemms)
            F8_TRY(f8_gemm_lib_create(&p->ctx->allocator, gemms, diag));
        snprintf(out->gemm_versions, sizeof out->gemm_versions, "%s", f8_gemm_lib_describe(*gemms));
    } else {
        int version;
        const char *library;
        F8_TRY(f8_cublaslt_version(p->cuda, &library, diag));
        F8_TRY(f8_cuda_nvrtc(p->cuda, &version, diag));
        snprintf(out->gemm_versions, sizeof out->gemm_versions, "cuBLASLt %s", library);
        snprintf(out->kernel_versions, sizeof out->kernel_versions, "fp8c %s, NVRTC %d.%d",
                 f8_code_id, version / 1000, version / 10 % 100);
        return F8_OK;
    }
    snprintf(out->kernel_versions, sizeof out->kernel_versions, "fp8c %s, %s", f8_code_id,
             compiler);
    return F8_OK;
}

static const char *find(void *user, const f8_build_problem *problem)
{
    const f8_tuned_choices *t = user;
    return f8_tuned_find(t->tuned, problem->gemm ? t->keys.gemm_versions : t->keys.kernel_versions,
                         problem->text);
}

f8_status f8_tuned_begin(f8_tuned_choices *t, const fp8c_program *p, f8_gemm_lib **gemms,
                         f8_arena *arena, f8_diag *diag)
{
    const char *path = p->ctx->settings.tuning;
    f8_diag why = {0};
    *t = (f8_tuned_choices){0};
    if (p->tuner) {
        t->use = p->tuner->choices;
        return F8_OK;
    }
    if (!path || !f8_tuning_device(p, &t->keys))
        return F8_OK;
    f8_status status = f8_tuned_read(path, t->keys.device, PATIENCE, arena, &t->tuned, &why);
    if (status == F8_OK && f8_tuned_count(t->tuned))
        status = f8_tuning_versions(p, gemms, &t->keys, &why);
    if (status == F8_ERR_MEMORY)
        return f8_fail(diag, status, F8_NOWHERE, "%s", why.text);
    if (status != F8_OK)
        f8_log_say(&p->ctx->log, F8_LOG_WARNING, "%s%s%s; the compile goes on without tuning",
                   why.file ? why.file : "", why.file ? ": " : "", why.text);
    if (status != F8_OK || !f8_tuned_count(t->tuned))
        return F8_OK;
    f8_log_say(&p->ctx->log, F8_LOG_INFO, "%zu choices for %s in %s", f8_tuned_count(t->tuned),
               t->keys.device, path);
    t->choices = (f8_build_choices){find, t};
    t->use = &t->choices;
    return F8_OK;
}
