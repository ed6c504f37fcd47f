/* What a compile takes from the tuning database and the shipped table: see tuned.h. */
#include "frontend/tuned.h"

#include <stdio.h>
#include <string.h>

#include "codegen/cache/code_id.h"
#include "frontend/target.h"
#include "ir/base/file.h"
#include "runtime/base/cpu.h"
#include "runtime/cuda/cublaslt.h"

enum {
    PATIENCE = 1000,      /* milliseconds that a compile waits for a writer */
    MOST_BYTES = 64 << 20 /* of a table */
};

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

static const char *find(void *user, const f8_build_problem *problem, f8_choice_source *source)
{
    const f8_tuned_choices *t = user;
    *source = F8_CHOICE_DATABASE;
    if (!problem->gemm)
        return f8_tuned_find(t->tuned, t->keys.kernel_versions, problem->text);
    const char *text = f8_tuned_find(t->tuned, t->keys.gemm_versions, problem->text);
    if (text)
        return text;
    *source = F8_CHOICE_TABLE;
    return f8_tuned_find(t->table, t->keys.gemm_versions, problem->text);
}

/* ---- the table that fp8c ships ---- */

/* "fp8c's table", or "the table in FILE". */
static const char *table_name(const f8_settings *s, f8_arena *arena)
{
    return s->table ? f8_arena_printf(arena, "the table in %s", s->table) : "fp8c's table";
}

/* Reads the table for t->keys.device. *others: of other devices. */
static f8_status read_table(f8_tuned_choices *t, const fp8c_program *p, f8_arena *arena,
                            size_t *others, f8_diag *why)
{
    const char *path = p->ctx->settings.table;
    const f8_allocator *allocator = &p->ctx->allocator;
    if (!path)
        return f8_tuned_table("fp8c's table", f8_tuned_shipped, strlen(f8_tuned_shipped),
                              t->keys.device, allocator, arena, &t->table, others, why);
    f8_file_bytes file;
    f8_status status = f8_file_read(path, MOST_BYTES, allocator, &file, why);
    if (status == F8_OK)
        status = f8_tuned_table(path, (const char *)file.bytes, (size_t)file.size, t->keys.device,
                                allocator, arena, &t->table, others, why);
    f8_file_release(&file);
    return status;
}

/* What became of the table; the versions of this machine are known if it has anything for the
 * device. */
static const char *say_table(const f8_tuned_choices *t, const f8_settings *s, size_t others,
                             f8_arena *arena)
{
    const char *name = table_name(s, arena);
    const size_t all = f8_tuned_count(t->table),
                 here = f8_tuned_count_with(t->table, t->keys.gemm_versions);
    if (here)
        return f8_arena_printf(arena, "%s has algorithms for %zu GEMMs on %s with %s", name, here,
                               t->keys.device, t->keys.gemm_versions);
    if (all)
        return f8_arena_printf(
            arena,
            "%s is not used: what it has for %s was measured with %s, and this machine has %s",
            name, t->keys.device, f8_tuned_versions(t->table, 0), t->keys.gemm_versions);
    return others ? f8_arena_printf(arena, "%s is not used: it has nothing for %s, but for others",
                                    name, t->keys.device)
                  : NULL;
}

static f8_status begin_table(f8_tuned_choices *t, const fp8c_program *p, f8_gemm_lib **gemms,
                             f8_arena *arena, f8_diag *diag)
{
    const f8_settings *s = &p->ctx->settings;
    size_t others = 0;
    f8_diag why = {0};
    if (p->target->kind != F8_TARGET_CUDA || (s->table && !*s->table))
        return F8_OK;
    f8_status status = read_table(t, p, arena, &others, &why);
    if (status == F8_OK && f8_tuned_count(t->table))
        status = f8_tuning_versions(p, gemms, &t->keys, &why);
    if (status == F8_ERR_MEMORY)
        return f8_fail(diag, status, F8_NOWHERE, "%s", why.text);
    if (status == F8_OK) {
        t->table_says = say_table(t, s, others, arena);
        return F8_OK;
    }
    t->table = NULL;
    t->table_says = f8_arena_printf(arena, "%s is not used: %s%s%s", table_name(s, arena),
                                    why.file ? why.file : "", why.file ? ": " : "", why.text);
    f8_log_say(&p->ctx->log, F8_LOG_WARNING, "%s", t->table_says ? t->table_says : why.text);
    return F8_OK;
}

/* ---- both ---- */

static f8_status begin_database(f8_tuned_choices *t, const fp8c_program *p, f8_gemm_lib **gemms,
                                f8_arena *arena, f8_diag *diag)
{
    const char *path = p->ctx->settings.tuning;
    f8_diag why = {0};
    f8_status status = f8_tuned_read(path, t->keys.device, PATIENCE, arena, &t->tuned, &why);
    if (status == F8_OK && f8_tuned_count(t->tuned))
        status = f8_tuning_versions(p, gemms, &t->keys, &why);
    if (status == F8_ERR_MEMORY)
        return f8_fail(diag, status, F8_NOWHERE, "%s", why.text);
    if (status != F8_OK) {
        t->tuned = NULL;
        f8_log_say(&p->ctx->log, F8_LOG_WARNING, "%s%s%s; the compile goes on without tuning",
                   why.file ? why.file : "", why.file ? ": " : "", why.text);
    } else if (f8_tuned_count(t->tuned)) {
        f8_log_say(&p->ctx->log, F8_LOG_INFO, "%zu choices for %s in %s", f8_tuned_count(t->tuned),
                   t->keys.device, path);
    }
    return F8_OK;
}

f8_status f8_tuned_begin(f8_tuned_choices *t, const fp8c_program *p, f8_gemm_lib **gemms,
                         f8_arena *arena, f8_diag *diag)
{
    *t = (f8_tuned_choices){0};
    if (p->tuner) {
        t->use = p->tuner->choices;
        return F8_OK;
    }
    if (!p->ctx->settings.tuning || !f8_tuning_device(p, &t->keys))
        return F8_OK;
    F8_TRY(begin_database(t, p, gemms, arena, diag));
    F8_TRY(begin_table(t, p, gemms, arena, diag));
    if (!f8_tuned_count(t->tuned) && !f8_tuned_count(t->table))
        return F8_OK;
    t->choices = (f8_build_choices){find, t};
    t->use = &t->choices;
    return F8_OK;
}
