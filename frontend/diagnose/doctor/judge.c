/* doctor: LLVM, the facts that the API knows, and what each target can do with what was found. See
 * doctor.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include "codegen/cpu/llvm_known.h"
#include "frontend/diagnose/doctor/doctor.h"
#include "frontend/tuned.h"
#include "ir/base/format.h"
#include "runtime/base/cpu.h"

enum { PATIENCE = 200 }; /* milliseconds to wait for a process that writes the tuning database */

static const char llvm_name[] = "LLVM 19", onednn_name[] = "oneDNN 2",
                  driver_name[] = "the CUDA driver";

static const char *const loader[] = {"", NULL}, *const other_llvms[] = {"libLLVM.so.[0-9]*",
                                                                        "libLLVM-[0-9]*.so*", NULL};

static f8_component *add_llvm(fp8c_doctor *d)
{
    return f8_component_add(&d->components, "cpu", llvm_name, "kernels of target cpu",
                            "Debian package libllvm19");
}

static void set_version(fp8c_doctor *d, f8_component *c, const char *version, const char *cpu)
{
    c->version = f8_arena_printf(&d->arena, "%s, for %s", version, cpu);
    c->major = atoi(version);
}

/* Loads LLVM. The kernel cache remembers what it says, if there are a cache and a question. */
static void ask_llvm(fp8c_doctor *d, f8_component *c, f8_cache *cache, const char *question)
{
    f8_dynlib lib;
    f8_llvm *llvm;
    f8_diag diag = {0};
    if (!f8_component_search(&d->components, c, f8_llvm_library_names(), loader, other_llvms, &lib))
        return;
    const f8_status status =
        f8_llvm_load(&llvm, &(f8_llvm_options){.allocator = &d->ctx->allocator}, &diag);
    if (status == F8_OK) {
        set_version(d, c, llvm->version, llvm->cpu);
        f8_llvm_remember(cache, question, llvm, &d->arena);
    } else if (status == F8_ERR_UNSUPPORTED) {
        /* LLVM is fine: the CPU lacks features */
        d->cpu_refused = f8_arena_strdup(&d->arena, diag.text);
    } else {
        f8_component_fail(c, F8_COMPONENT_REFUSED, f8_arena_strdup(&d->arena, diag.text));
    }
    f8_llvm_free(status == F8_OK ? llvm : NULL);
    f8_dynlib_close(&lib);
}

void f8_doctor_llvm(fp8c_doctor *d)
{
    ask_llvm(d, add_llvm(d), NULL, NULL);
}

f8_status f8_doctor_llvm_known(fp8c_doctor *d, f8_diag *diag)
{
    f8_cache *cache;
    const char *version, *cpu;
    F8_TRY(f8_api_cache(d->ctx, &cache, diag));
    const char *question = cache ? f8_llvm_question(&(f8_llvm_options){0}, &d->arena) : NULL;
    const char *identity = f8_llvm_recall(cache, question, &d->arena);
    f8_component *c = add_llvm(d);
    if (identity && f8_llvm_identity_read(identity, &d->arena, &version, &cpu)) {
        f8_component_ok(c);
        set_version(d, c, version, cpu);
        c->places = f8_component_places(&d->arena, f8_llvm_library_names(), loader);
    } else {
        ask_llvm(d, c, cache, question);
    }
    return F8_OK;
}

/* ---- facts ---- */

/* X(variable, what it does if that needs saying, or NULL) */
#define VARIABLES(X)                                                                               \
    X("FP8C_CUDA_PATH", "fp8c looks for the GPU's libraries only there")                           \
    X("CUDA_HOME", NULL)                                                                           \
    X("CUDA_PATH", NULL)                                                                           \
    X("VIRTUAL_ENV", NULL)                                                                         \
    X("FP8C_CACHE_DIR", NULL)                                                                      \
    X("XDG_CACHE_HOME", NULL)                                                                      \
    X("FP8C_TUNING", NULL)                                                                         \
    X("FP8C_TUNING_TABLE", "it stands in for the table that fp8c ships")                           \
    X("FP8C_VERBOSE", NULL)                                                                        \
    X("FP8C_DUMP", "each compile writes files there")                                              \
    X("LD_LIBRARY_PATH", "libraries there come before the system's")                               \
    X("LD_PRELOAD", "libraries there stand in for functions of all others")                        \
    X("CUDA_VISIBLE_DEVICES", "hides the GPUs it does not list")                                   \
    X("CUDA_DEVICE_ORDER", NULL)                                                                   \
    X("CUDA_LAUNCH_BLOCKING", "every launch waits: for debugging")                                 \
    X("CUDA_MODULE_LOADING", NULL)                                                                 \
    X("NVIDIA_TF32_OVERRIDE", "0 or 1 decides for all f32 GEMMs of cuBLASLt")                      \
    X("ONEDNN_MAX_CPU_ISA", "holds oneDNN to older instructions: slower, other bits")              \
    X("DNNL_MAX_CPU_ISA", "holds oneDNN to older instructions: slower, other bits")                \
    X("ONEDNN_VERBOSE", "oneDNN prints")                                                           \
    X("DNNL_VERBOSE", "oneDNN prints")

/* These are read to be shown as they are. A context has read its own when it was created. */
static void environment(fp8c_doctor *d)
{
#define X(variable, advice)                                                                        \
    if (secure_getenv(variable))                                                                   \
        f8_fact_add(&d->facts, "environment", variable,                                            \
                    f8_arena_strdup(&d->arena, secure_getenv(variable)), advice);
    VARIABLES(X)
#undef X
    if (getauxval(AT_SECURE))
        f8_fact_add(&d->facts, "environment", "set-uid", "yes",
                    "this process has rights that its user lacks: fp8c reads no variable");
}

static void cache(fp8c_doctor *d)
{
    fp8c_cache_info info = {.struct_size = sizeof info};
    if (fp8c_context_cache(d->ctx, &info) != FP8C_OK)
        return;
    if (!info.folder) {
        f8_fact_add(
            &d->facts, "cache", "kernels",
            info.why_not ? f8_arena_printf(&d->arena, "none: %s", info.why_not) : "turned off",
            info.why_not ? "every process compiles again: set FP8C_CACHE_DIR to a folder" : NULL);
        return;
    }
    f8_fact_add(&d->facts, "cache", "kernels", f8_arena_strdup(&d->arena, info.folder),
                info.read_only ? "it can be read, but not written" : NULL);
    f8_fact_add(&d->facts, "cache", "in it",
                f8_arena_printf(&d->arena, "%lld kernels, %.1f MiB", (long long)info.entries,
                                (double)info.bytes / (1 << 20)),
                NULL);
}

/* What the database has for one device. Choices made with other libraries are not used. */
static void tuned_on(fp8c_doctor *d, const char *path, const fp8c_program *here,
                     f8_tuning_keys *keys)
{
    f8_tuned *tuned;
    f8_gemm_lib *gemms = NULL;
    f8_diag diag = {0};
    if (f8_tuned_read(path, keys->device, PATIENCE, &d->arena, &tuned, &diag) != F8_OK)
        return;
    const size_t all = f8_tuned_count(tuned);
    size_t n = all;
    if (all && f8_tuning_versions(here, &gemms, keys, &diag) == F8_OK)
        n = f8_tuned_count_with(tuned, keys->gemm_versions) +
            f8_tuned_count_with(tuned, keys->kernel_versions);
    f8_gemm_lib_destroy(gemms);
    const char *with = n ? "" : all ? "nothing with these libraries, with others " : "nothing";
    const size_t shown = n ? n : all;
    const char *value = f8_arena_printf(&d->arena, shown ? "%s: %s%zu problem%s" : "%s: %s",
                                        keys->device, with, shown, shown == 1 ? "" : "s");
    f8_fact_add(&d->facts, "cache", "tuned", value,
                n ? NULL
                  : "`fp8c tune FILE.f8` times the ways to compute its GEMMs and kernels on "
                    "this device; later compiles take the fastest");
}

static void tuned_devices(fp8c_doctor *d, const char *path)
{
    fp8c_program here = {
        .ctx = d->ctx, .target = f8_target_by_name("cpu"), .threads = d->ctx->threads};
    f8_tuning_keys keys;
    f8_cuda_facts facts;
    int count = 0;
    if (f8_tuning_device(&here, &keys))
        tuned_on(d, path, &here, &keys);
    if (f8_cuda_count(d->cuda, &count, NULL) != F8_OK)
        return;
    here.cuda = d->cuda;
    for (int i = 0; i < count; i++)
        if (f8_cuda_inspect(d->cuda, i, &facts, NULL, NULL) == F8_OK &&
            (here.target = f8_target_for_sm(facts.sm))) {
            f8_tuning_gpu(here.target, &facts, &keys);
            tuned_on(d, path, &here, &keys);
        }
}

/* A compile that can't use the database goes on without it, and only the log says so. */
static void tuning(fp8c_doctor *d)
{
    const char *path = d->ctx->settings.tuning, *value = "turned off";
    struct stat st;
    f8_tuned *tuned;
    f8_diag diag = {0};
    f8_status status = F8_OK;
    if (path && stat(path, &st) == 0) {
        value = f8_arena_printf(&d->arena, "%s, %.1f KiB", path, (double)st.st_size / 1024);
        status = f8_tuned_read(path, "", PATIENCE, &d->arena, &tuned, &diag);
    } else if (path) {
        value = f8_arena_printf(&d->arena, "%s: %s", path,
                                errno == ENOENT ? "nothing was tuned yet" : f8_errno_text(errno));
    }
    f8_fact_add(&d->facts, "cache", "tuning", value,
                status == F8_OK ? NULL
                                : f8_arena_printf(&d->arena, "it is not used: %s", diag.text));
    if (path && status == F8_OK)
        tuned_devices(d, path);
}

void f8_doctor_facts(fp8c_doctor *d)
{
    f8_facts_machine(&d->facts, "");
    f8_facts_cpu_health(&d->facts, "");
    cache(d);
    tuning(d);
    environment(d);
}

/* ---- targets ---- */

/* Append to `text` why a component can't be used, and where to get it. NULL: it can be used. */
static const char *lacks(fp8c_doctor *d, const char *text, const char *name)
{
    const f8_component *c = f8_component_find(&d->components, name);
    if (!c || c->usable)
        return text;
    const bool get = c->state != F8_COMPONENT_MISMATCHED && *c->get;
    const char *why = f8_arena_printf(&d->arena, "%s: %s%s%s%s", name, c->problem, get ? " (" : "",
                                      get ? c->get : "", get ? ")" : "");
    return f8_component_also(&d->arena, text, why ? why : name);
}

static void judge_cpu(fp8c_doctor *d, fp8c_target_report *t)
{
    const f8_cpu_level *level = f8_cpu_level_by_target(t->name);
    const f8_cpu_features has = f8_cpu_detect();
    char less[160];
    t->compile_missing = lacks(d, NULL, llvm_name);
    t->compile_missing = lacks(d, t->compile_missing, onednn_name);
    if (!level && d->cpu_refused)
        t->compile_missing = f8_component_also(&d->arena, t->compile_missing, d->cpu_refused);
    t->run_missing = lacks(d, NULL, onednn_name);
    if (!level && d->cpu_refused)
        t->run_missing = f8_component_also(&d->arena, t->run_missing, d->cpu_refused);
    if (!level)
        return;
    const f8_cpu_features needs = f8_cpu_level_features(level);
    if (!f8_cpu_suffices(&has, &needs, less, sizeof less)) {
        const char *why = f8_arena_printf(&d->arena, "this CPU lacks %s", less);
        t->run_missing = f8_component_also(&d->arena, t->run_missing, why ? why : "");
    }
}

/* The GPU of this machine that runs code for `target` (NULL: any, and the first), or -1. *is: its
 * name. */
static int find_gpu(fp8c_doctor *d, const f8_target *target, const char **is)
{
    f8_cuda_facts facts;
    int count = 0;
    *is = NULL;
    if (f8_cuda_count(d->cuda, &count, NULL) != F8_OK)
        return -1;
    for (int i = 0; i < count && (target || i == 0); i++) {
        if (f8_cuda_inspect(d->cuda, i, &facts, NULL, NULL) != F8_OK)
            continue;
        const f8_target *here = f8_target_for_sm(facts.sm);
        if (here && (!target || here == target)) {
            *is = here->name;
            return i;
        }
    }
    return -1;
}

static void judge_cuda(fp8c_doctor *d, fp8c_target_report *t, const f8_target *target)
{
    const char *is;
    f8_diag diag = {0};
    const int gpu = find_gpu(d, target, &is);
    const char *arch = target ? target->name : is;
    t->is = target ? NULL : is;
    const f8_component *nvrtc = f8_component_find(&d->components, "NVRTC");
    /* NVRTC of a version that the driver does not serve still compiles, for another machine. */
    const bool foreign = nvrtc && nvrtc->state == F8_COMPONENT_MISMATCHED;
    t->compile_missing = foreign ? NULL : lacks(d, NULL, "NVRTC");
    if (!t->compile_missing)
        t->compile_missing = lacks(d, NULL, "NVRTC builtins");
    if (!t->compile_missing && arch && f8_cuda_knows(d->cuda, arch, &d->arena, &diag) != F8_OK)
        t->compile_missing = f8_arena_strdup(&d->arena, diag.text);
    t->run_missing = lacks(d, NULL, driver_name);
    t->run_missing = foreign ? lacks(d, t->run_missing, "NVRTC") : t->run_missing;
    t->run_missing = lacks(d, t->run_missing, "cuBLASLt");
    if (gpu < 0 && !target && !t->compile_missing)
        t->compile_missing = "there is no GPU to compile for: name an architecture instead";
    if (gpu < 0 && t->run_missing && f8_component_find(&d->components, "GPU"))
        return; /* without a driver no GPU can be seen */
    if (gpu < 0) {
        const f8_component *first = f8_component_find(&d->components, "GPU 0");
        const char *why = !first   ? lacks(d, NULL, "GPU")
                          : target ? f8_arena_printf(&d->arena, "no GPU here is %s: GPU 0 is %s",
                                                     target->name, first->version)
                                   : lacks(d, NULL, "GPU 0");
        t->run_missing = f8_component_also(&d->arena, t->run_missing, why ? why : "no GPU");
        if (!target && !t->compile_missing)
            t->compile_missing = "there is no GPU to compile for: name an architecture instead";
        return;
    }
    d->device[t - d->target] = gpu;
    const char *name = f8_arena_printf(&d->arena, "GPU %d", gpu);
    t->run_missing = name ? lacks(d, t->run_missing, name) : t->run_missing;
}

static void judge(fp8c_doctor *d, const char *name)
{
    fp8c_target_report *t = &d->target[d->n_targets++];
    *t = (fp8c_target_report){.name = name};
    if (!strncmp(name, "cpu", 3))
        judge_cpu(d, t);
    else if (strcmp(name, "reference") != 0)
        judge_cuda(d, t, f8_target_by_name(name));
    t->can_compile = !t->compile_missing;
    t->can_run = !t->run_missing;
}

/* CPU targets come first. */
void f8_doctor_judge(fp8c_doctor *d)
{
    const char *name;
    for (int gpu = 0; gpu < 2; gpu++)
        for (int i = 0; (name = fp8c_name(FP8C_NAME_TARGET, i)) && d->n_targets < F8_DOCTOR_TARGETS;
             i++)
            if ((strncmp(name, "cpu", 3) != 0) == gpu)
                judge(d, name);
}
