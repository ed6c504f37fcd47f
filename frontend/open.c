/* Opening a .f8x file: see fp8c.h. */
#include <stdio.h>
#include <string.h>

#include "frontend/target.h"
#include "runtime/plan_file.h"

/* ---- choosing one of the file's targets ---- */

static const f8_package_program *find(const f8_package *package, const char *target)
{
    for (uint32_t i = 0; i < package->n_programs; i++)
        if (!strcmp(package->program[i].target, target))
            return &package->program[i];
    return NULL;
}

static bool is_cpu(const f8_package_program *program)
{
    return !strcmp(program->target, "cpu") || f8_cpu_level_by_target(program->target);
}

static int count(const f8_cpu_features *set)
{
    int n = 0;
    for (int i = 0; i < F8_CPU_FEATURE_WORDS; i++)
        n += __builtin_popcountll(set->bit[i]);
    return n;
}

/* Of the code for CPUs, the one that uses most of this CPU's features. If none can run here, the
 * one that needs the fewest, which can still be inspected. NULL: the file has no code for a CPU. */
static const f8_package_program *find_cpu(const f8_package *package)
{
    const f8_cpu_features has = f8_cpu_detect();
    const f8_package_program *best = NULL;
    bool best_runs = false;
    for (uint32_t i = 0; i < package->n_programs; i++) {
        const f8_package_program *p = &package->program[i];
        const bool runs = f8_cpu_suffices(&has, &p->needs, NULL, 0);
        if (!is_cpu(p))
            continue;
        if (!best || (runs && (!best_runs || count(&p->needs) > count(&best->needs))) ||
            (!runs && !best_runs && count(&p->needs) < count(&best->needs))) {
            best = p;
            best_runs = runs;
        }
    }
    return best;
}

static const char *list(const f8_package *package, char *text, size_t size)
{
    size_t n = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < package->n_programs && n < size; i++)
        n +=
            (size_t)snprintf(text + n, size - n, "%s%s", n ? ", " : "", package->program[i].target);
    return text;
}

/* Find the code for the GPU of this machine, and set p->target. *out NULL without a failure: the
 * file has none for it. */
static f8_status choose_gpu(fp8c_program *p, const f8_package_program **out, f8_diag *diag)
{
    *out = NULL;
    F8_TRY(f8_target_choose(p, "cuda", diag));
    *out = find(&p->package, p->target->name);
    return F8_OK;
}

/* Find what runs best here. */
static f8_status choose_any(fp8c_program *p, const f8_package_program **out, f8_diag *diag)
{
    bool for_gpu = false;
    f8_diag why = {0};
    for (uint32_t i = 0; i < p->package.n_programs; i++)
        for_gpu = for_gpu || !is_cpu(&p->package.program[i]);
    *out = p->run.no_device ? &p->package.program[0] : NULL;
    if (*out)
        return F8_OK;
    const f8_status status = for_gpu ? choose_gpu(p, out, &why) : F8_OK;
    if (*out)
        return F8_OK;
    *out = find_cpu(&p->package);
    if (*out)
        return F8_OK;
    if (status != F8_OK)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE, "it has code only for %s: %s",
                       p->package.program[0].target, why.text);
    return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                   "it has code for %s, and the GPU here is %s", p->package.program[0].target,
                   p->target->name);
}

static f8_status choose(fp8c_program *p, const char *target, const f8_package_program **out,
                        f8_diag *diag)
{
    char names[256];
    if (!target) {
        F8_TRY(choose_any(p, out, diag));
    } else if (!strcmp(target, "cuda")) {
        F8_TRY(choose_gpu(p, out, diag));
        if (!*out)
            return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                           "it has code for %s, and the GPU here is %s",
                           list(&p->package, names, sizeof names), p->target->name);
    } else {
        *out = !strcmp(target, "cpu")          ? find_cpu(&p->package)
               : !strcmp(target, "cpu:native") ? find(&p->package, "cpu")
                                               : find(&p->package, target);
        if (!*out)
            return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "it has no code for '%s': it has %s",
                           target, list(&p->package, names, sizeof names));
    }
    if (p->target && !strcmp(p->target->name, (*out)->target))
        return F8_OK; /* the GPU was asked what it is */
    f8_api_give_gpu(p->ctx, p->cuda);
    p->cuda = NULL;
    return f8_target_choose(p, (*out)->target, diag);
}

/* ---- opening ---- */

static int64_t external_bytes(const fp8c_program *p, const f8_plan *plan)
{
    const char *external = p->run.external;
    return p->target->kind == F8_TARGET_CPU
               ? f8_exec_plan_least_bytes(plan, NULL) - f8_exec_plan_least_bytes(plan, external)
               : f8_cuda_exec_plan_bytes(plan, NULL) - f8_cuda_exec_plan_bytes(plan, external);
}

/* Set the report's figures that depend on this machine; the file has those that do not. */
static void take_planned(const fp8c_program *p, f8_variant *v)
{
    f8_instance_info info;
    if (!v->instance.kind) {
        v->report.planned -= external_bytes(p, &v->plan);
        return;
    }
    v->instance.kind->info(&v->instance, &info);
    v->report.planned = info.planned_bytes;
}

/* A file for fewer ranks would run on more, each as if it were alone. */
static f8_status check_ranks(const fp8c_program *p, const f8_plan *plan, f8_diag *diag)
{
    const f8_comm *comm = f8_program_comm(p);
    const int32_t has = plan->ranks ? plan->ranks : 1;
    if (p->run.no_device || has == (comm ? comm->ranks : 1))
        return F8_OK;
    if (comm)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "it is compiled for %d rank%s, but comm has %d", has, has == 1 ? "" : "s",
                       comm->ranks);
    return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                   "it is compiled for %d ranks: comm must say how they exchange bytes", has);
}

f8_status f8_open_variant(fp8c_program *p, uint32_t index, f8_diag *diag)
{
    f8_variant *v = f8_program_add(p, diag);
    if (!v)
        return diag->status;
    F8_TRY(f8_package_load(&p->package, p->opened, index, &v->arena, &v->plan, &v->report, diag));
    if (!f8_plan_same_variables(&p->first->plan, &v->plan))
        return f8_fail(
            diag, F8_ERR_INPUT, F8_NOWHERE,
            "the file is damaged: its plans for target %s do not have the same variables",
            p->opened->target);
    F8_TRY(check_ranks(p, &v->plan, diag));
    F8_TRY(f8_variant_start(p, v, NULL, diag));
    take_planned(p, v);
    v->value = p->opened->variant[index].value;
    p->now = v;
    return F8_OK;
}

static f8_status open_program(fp8c_program *p, const fp8c_open_options *o, f8_diag *diag)
{
    const f8_package_program *program;
    F8_TRY(f8_program_set_run(p, F8_RUN_OPTIONS(o), o->threads, diag));
    F8_TRY(f8_program_set_comm(p, o->comm, diag));
    f8_program_note_file(p, p->file.bytes, p->file.size);
    F8_TRY(
        f8_package_open(p->file.bytes, p->file.size, fp8c_version(), &p->arena, &p->package, diag));
    F8_TRY(choose(p, o->target, &program, diag));
    p->opened = program;
    p->bounds = (f8_bounds){.bound = program->dim,
                            .n = (int32_t)program->n_dims,
                            .axis = program->axis,
                            .n_axes = (int32_t)program->n_axes};
    F8_TRY(f8_open_variant(p, 0, diag));
    return f8_variables_begin(p, diag);
}

/* Read a whole file, unless its header shows that it is of another kind. */
static f8_status read_file(const fp8c_context *ctx, const char *path, f8_file_bytes *out,
                           f8_diag *diag)
{
    uint8_t header[F8_PACKAGE_HEADER];
    f8_file_in in;
    F8_TRY(f8_file_open(&in, path, diag));
    const uint64_t n = in.size < sizeof header ? in.size : sizeof header;
    f8_status status = f8_file_get(&in, header, n, 0, diag);
    if (status == F8_OK)
        status = f8_package_check_header(header, (size_t)n, in.size, fp8c_version(), diag);
    if (status == F8_OK)
        status = f8_file_take(&in, F8_PACKAGE_MOST, &ctx->allocator, out, diag);
    f8_file_close(&in);
    return status;
}

/* A copy of the bytes, aligned like a file that was read. */
static f8_status copy_bytes(fp8c_program *p, const void *bytes, size_t size, f8_diag *diag)
{
    const f8_allocator allocator = p->ctx->allocator;
    const size_t room = size ? size : 1;
    void *copy = allocator.alloc(allocator.user, room, F8_FILE_ALIGN);
    if (!copy)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       room);
    if (size)
        memcpy(copy, bytes, size);
    p->file = (f8_file_bytes){.bytes = copy, .size = room, .memory = copy, .allocator = allocator};
    return F8_OK;
}

static f8_status read_package(fp8c_program *p, const char *path, const fp8c_open_options *o,
                              f8_diag *diag)
{
    if (path)
        return read_file(p->ctx, path, &p->file, diag);
    if (!o->bytes)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "there is neither a path nor bytes");
    return copy_bytes(p, o->bytes, o->n_bytes, diag);
}

fp8c_status fp8c_program_open(fp8c_context *ctx, const char *path, const fp8c_open_options *options,
                              fp8c_program **out)
{
    f8_diag diag = {.file = path};
    fp8c_open_options own = {.struct_size = sizeof own};
    *out = NULL;
    fp8c_program *p = f8_program_create(ctx, &diag);
    if (!p)
        return f8_api_result(ctx, &diag, diag.status);
    f8_status status = f8_api_options(&own, options, "fp8c_open_options", &diag);
    if (status == F8_OK)
        status = read_package(p, path, &own, &diag);
    if (status == F8_OK)
        status = open_program(p, &own, &diag);
    if (status == F8_OK) {
        *out = p;
        return FP8C_OK;
    }
    f8_api_result(ctx, &diag, status);
    fp8c_program_destroy(p);
    return (fp8c_status)status;
}

/* ---- what a file holds ---- */

static f8_status look(fp8c_context *ctx, const char *path, f8_file_bytes *file, f8_arena *arena,
                      f8_package *package, f8_diag *diag)
{
    f8_arena_init(arena, &ctx->allocator);
    F8_TRY(read_file(ctx, path, file, diag));
    return f8_package_open(file->bytes, file->size, fp8c_version(), arena, package, diag);
}

static void describe(const f8_package *package, const f8_package_program *p, fp8c_file_info *out)
{
    const f8_cpu_features has = f8_cpu_detect();
    fp8c_file_info own = {.struct_size = sizeof own,
                          .version = fp8c_version(),
                          .format = F8_PACKAGE_FORMAT,
                          .plan_format = F8_PLAN_FORMAT,
                          .bytes = (int64_t)package->size,
                          .targets = (int32_t)package->n_programs,
                          .variants = (int32_t)p->n_variants};
    f8_hash_text(package->checksum, own.checksum);
    snprintf(own.target, sizeof own.target, "%s", p->target);
    if (is_cpu(p))
        f8_cpu_suffices(&has, &p->needs, own.missing, sizeof own.missing);
    for (uint32_t i = 0; i < p->n_dims; i++) {
        const size_t n = strlen(own.dims);
        snprintf(own.dims + n, sizeof own.dims - n, "%s%s <= %lld", n ? ", " : "", p->dim[i].name,
                 (long long)p->dim[i].most);
    }
    f8_api_give(out, &own);
}

fp8c_status fp8c_file_read_info(fp8c_context *ctx, const char *path, int index, fp8c_file_info *out)
{
    f8_diag diag = {.file = path};
    f8_file_bytes file = {0};
    f8_arena arena;
    f8_package package;
    const f8_status status = look(ctx, path, &file, &arena, &package, &diag);
    const bool there = status == F8_OK && index >= 0 && (uint32_t)index < package.n_programs;
    if (there)
        describe(&package, &package.program[index], out);
    f8_arena_end(&arena);
    f8_file_release(&file);
    if (status != F8_OK)
        return f8_api_result(ctx, &diag, status);
    return there ? FP8C_OK : FP8C_ERR_INPUT;
}
