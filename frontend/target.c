/* Targets and starting programs on them: see target.h. */
#include "frontend/target.h"
#include "ir/base/suggest.h"

#include <stdio.h>
#include <string.h>

/* ---- names ---- */

/* "cpu", and the name that means the same. */
static const char native[] = "cpu:native";

const char *f8_target_name(int index)
{
    size_t i = index < 0 ? SIZE_MAX : (size_t)index, n = 0;
    while (f8_target_at(n))
        n++;
    if (i < n)
        return f8_target_at(i)->name;
    if (index < 0 || i == n)
        return index < 0 ? NULL : "cuda";
    const f8_cpu_level *level = f8_cpu_level_at(i - n - 1);
    if (level)
        return level->target;
    return i > n + 1 && f8_cpu_level_at(i - n - 2) ? native : NULL;
}

/* Write the names of all targets, or of those for a device, into `names`. Returns `names`. */
static const char *list_targets(char *names, size_t size, bool devices)
{
    size_t n = 0;
    const char *name;
    names[0] = 0;
    for (int i = 0; (name = f8_target_name(i)) && n < size; i++) {
        const f8_target *t = f8_target_by_name(name);
        if (!devices || (t && t->kind == F8_TARGET_CUDA))
            n += (size_t)snprintf(names + n, size - n, "%s%s", n ? ", " : "", name);
    }
    return names;
}

const char *f8_target_text(const fp8c_program *p)
{
    return p->level ? p->level->target : p->target->name;
}

/* ---- devices ---- */

/* Ask the GPU what it is, and check that it can run `wanted` (NULL: any target). */
static f8_status ask_device(fp8c_program *p, const f8_target *wanted, f8_diag *diag)
{
    const int ordinal = p->run.device;
    f8_cuda_facts facts;
    F8_TRY(f8_cuda_device(p->cuda, ordinal, diag));
    F8_TRY(f8_cuda_device_facts(p->cuda, &facts, diag));
    p->target = f8_target_for_sm(facts.sm);
    if (!p->target) {
        char names[256];
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "device %d, %s, has compute capability %d.%d: there are targets for %s only",
                       ordinal, facts.name, facts.sm / 10, facts.sm % 10,
                       list_targets(names, sizeof names, true));
    }
    if (wanted && wanted != p->target)
        return f8_fail(
            diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
            "code for %s can't run on device %d, %s, which is %s (no_device compiles without one)",
            wanted->name, ordinal, facts.name, p->target->name);
    return F8_OK;
}

/* One edit makes `cpu` of many names of other devices, so there is no guess at short ones. */
static const char *suggest_target(const char *name, const char *names, char *hint, size_t size)
{
    if (!strcmp(name, "gpu"))
        return " (did you mean 'cuda'?)";
    return strlen(name) < 4 ? "" : f8_suggest_listed(name, strlen(name), names, hint, size);
}

f8_status f8_target_choose(fp8c_program *p, const char *name, f8_diag *diag)
{
    const f8_target *t = f8_target_by_name(name);
    const bool present = !strcmp(name, "cuda");
    char names[320], hint[80];
    p->level = f8_cpu_level_by_target(name);
    if (p->level || !strcmp(name, native))
        t = f8_target_by_name("cpu");
    if (!t && !present)
        return f8_fail(
            diag, F8_ERR_INPUT, F8_NOWHERE, "no target '%s'%s: there are %s", name,
            suggest_target(name, list_targets(names, sizeof names, false), hint, sizeof hint),
            names);
    p->target = t;
    if (t && t->kind != F8_TARGET_CUDA)
        return F8_OK;
    if (p->run.device < 0)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "device %d: an ordinal is 0 or more",
                       p->run.device);
    if (!p->run.device_alloc != !p->run.device_free)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "device_alloc and device_free are a pair: give both or neither");
    F8_TRY(f8_api_take_gpu(p->ctx, p->run.device, &p->cuda, diag));
    return present || !p->run.no_device ? ask_device(p, t, diag) : F8_OK;
}

/* ---- starting ---- */

f8_status f8_variant_start(fp8c_program *p, f8_variant *v, const f8_module *module, f8_diag *diag)
{
    const f8_allocator *allocator = &p->ctx->allocator;
    const f8_parallel *parallel = p->ctx->parallel.run ? &p->ctx->parallel : NULL;
    const f8_run_options *o = &p->run;
    const fp8c_program *lender = p->tuner ? p->tuner->like : NULL;
    /* the first variant, which was started before */
    const f8_instance *like = v != p->first ? &p->first->instance
                              : lender      ? &lender->first->instance
                                            : NULL;
    if (o->no_device)
        return F8_OK;
    if (p->target->kind == F8_TARGET_REFERENCE)
        return f8_instance_create_reference(&v->instance, module, &v->plan, like,
                                            f8_program_comm(p), o->external, allocator, diag);
    if (p->target->kind == F8_TARGET_CPU) {
        const f8_exec_options run = {.n_threads = p->threads,
                                     .parallel = parallel,
                                     .allocator = allocator,
                                     .comm = f8_program_comm(p),
                                     .profile = o->profile,
                                     .like = like ? like->cpu : NULL,
                                     .work = o->work,
                                     .external = o->external};
        return f8_instance_create_cpu(&v->instance, &v->plan, &run, diag);
    }
    f8_nccl *nccl;
    F8_TRY(f8_program_nccl(p, &nccl, diag));
    const f8_cuda_exec_options run = {.allocator = allocator,
                                      .device_alloc = o->device_alloc,
                                      .device_free = o->device_free,
                                      .device_user = o->device_user,
                                      .parallel = parallel,
                                      .threads = p->threads,
                                      .stream = o->stream,
                                      .profile = o->profile,
                                      .like = like ? like->cuda : NULL,
                                      .work = o->work,
                                      .external = o->external,
                                      .nccl = nccl};
    return f8_instance_create_cuda(&v->instance, &v->plan, p->cuda, &run, diag);
}
