/* Compiling ahead of time into a .f8x file: see fp8c.h and package.h. */
#include <string.h>

#include "frontend/options.h"
#include "frontend/target.h"

/* ---- options ---- */

/* One name for a target that has several: f8_target_name's, and "cpu" for "cpu:native". */
static const char *plain_name(const char *target)
{
    return !target || !strcmp(target, "cpu:native") ? "cpu" : target;
}

static f8_status check_options(const fp8c_compile_options *o, size_t n, f8_diag *diag)
{
    if (!n)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "a file needs the options of at least one target");
    for (size_t i = 0; i < n; i++) {
        const char *name = plain_name(o[i].target);
        const f8_target *t = f8_target_by_name(name);
        if (t && t->kind == F8_TARGET_REFERENCE)
            return f8_fail(
                diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                "target reference interprets the module: it has no code to write into a file");
        F8_TRY(f8_options_check_file(&o[i], diag));
        for (size_t k = 0; k < i; k++)
            if (!strcmp(plain_name(o[k].target), name))
                return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "target %s is given twice", name);
    }
    return F8_OK;
}

/* ---- what a file fixes ---- */

/* Fix the algorithm of every GEMM of the CPU. A program that runs where it was compiled chooses
 * them when it starts. */
static f8_status settle_gemms(const fp8c_program *p, f8_variant *v, f8_diag *diag)
{
    f8_gemm_lib *lib = NULL;
    f8_status status = F8_OK;
    for (uint32_t f = 0; f < v->plan.n_funcs; f++)
        for (uint32_t i = 0; i < v->plan.func[f].n_steps; i++) {
            f8_step *s = &v->plan.func[f].step[i];
            if (s->kind != F8_STEP_GEMM || s->gemm.algorithm != F8_GEMM_AUTO || status != F8_OK)
                continue;
            if (!lib)
                status = f8_gemm_lib_create(&p->ctx->allocator, &lib, diag);
            if (status == F8_OK)
                s->gemm.algorithm = f8_gemm_choose(lib, &s->gemm);
        }
    f8_gemm_lib_destroy(lib);
    return status;
}

static f8_status settle(fp8c_program *p, f8_diag *diag)
{
    for (f8_variant *v = p->first; v && p->target->kind == F8_TARGET_CPU; v = v->next) {
        F8_TRY(settle_gemms(p, v, diag));
        v->report.planned = f8_exec_plan_least_bytes(&v->plan, NULL);
    }
    return F8_OK;
}

/* ---- the file ---- */

static f8_status put(void *user, const void *bytes, size_t n)
{
    return f8_file_put(user, bytes, n);
}

static f8_status describe(fp8c_program *p, f8_arena *arena, f8_package_program *out, f8_diag *diag)
{
    const f8_bounds *b = &p->bounds;
    *out = (f8_package_program){.target = p->now->plan.target,
                                .needs = p->now->plan.needs,
                                .dim = b->bound,
                                .n_dims = (uint32_t)b->n,
                                .axis = b->axis,
                                .n_axes = (uint32_t)b->n_axes};
    for (const f8_variant *v = p->first; v; v = v->next)
        out->n_variants++;
    out->variant = F8_NEW_ARRAY(arena, f8_package_variant, out->n_variants);
    F8_TRY(f8_arena_status(arena, diag));
    uint32_t i = 0;
    for (const f8_variant *v = p->first; v; v = v->next)
        out->variant[i++] = (f8_package_variant){
            .value = v->value, .n_values = (uint32_t)b->n, .plan = &v->plan, .report = &v->report};
    return settle(p, diag);
}

/* "cuda" may be the same as another one */
static f8_status check_targets(fp8c_program **program, size_t n, f8_diag *diag)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (!strcmp(program[i]->now->plan.target, program[k]->now->plan.target))
                return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "target %s is given twice",
                               program[i]->now->plan.target);
    return F8_OK;
}

static f8_status write_file(fp8c_context *ctx, fp8c_program **program, size_t n, const char *path,
                            f8_diag *diag)
{
    f8_file_out file;
    f8_arena arena;
    f8_arena_init(&arena, &ctx->allocator);
    f8_package package = {.program = F8_NEW_ARRAY(&arena, f8_package_program, n),
                          .n_programs = (uint32_t)n,
                          .version = fp8c_version()};
    f8_status status = f8_arena_status(&arena, diag);
    if (status == F8_OK)
        status = check_targets(program, n, diag);
    for (size_t i = 0; i < n && status == F8_OK; i++)
        status = describe(program[i], &arena, &package.program[i], diag);
    if (status == F8_OK) {
        status = f8_file_begin(&file, &ctx->temporaries, path, false, diag);
        if (status == F8_OK)
            status = f8_package_write(&package, &ctx->allocator, put, &file, diag);
        if (status == F8_OK)
            status = f8_file_commit(&file);
        f8_file_end(&file);
    }
    f8_arena_end(&arena);
    return status;
}

/* Compile a program for each of the options, until one fails. */
static fp8c_status compile_all(const fp8c_module *module, const fp8c_compile_options *options,
                               size_t n, fp8c_program **program)
{
    for (size_t i = 0; i < n; i++) {
        fp8c_compile_options own = options[i];
        own.no_device = 1;
        const fp8c_status status = fp8c_compile(module, &own, &program[i]);
        if (status != FP8C_OK)
            return status;
        f8_diag diag = {0};
        const f8_status all = f8_bounds_all(program[i], own.values, &diag);
        if (all != F8_OK)
            return f8_api_fail(module->ctx, &diag, all, module->text, module->text_size);
    }
    return FP8C_OK;
}

fp8c_status fp8c_compile_file(const fp8c_module *module, const fp8c_compile_options *options,
                              size_t n_options, const char *path)
{
    fp8c_context *ctx = module->ctx;
    f8_diag diag = {0};
    f8_arena arena;
    f8_arena_init(&arena, &ctx->allocator);
    fp8c_compile_options *own = F8_NEW_ARRAY(&arena, fp8c_compile_options, n_options);
    fp8c_program **program = F8_NEW_ARRAY(&arena, fp8c_program *, n_options);
    f8_status status = f8_arena_status(&arena, &diag);
    for (size_t i = 0; i < n_options && status == F8_OK; i++) {
        const size_t step = options->struct_size; /* all of them: the array is the caller's */
        own[i].struct_size = sizeof *own;
        status = f8_api_options(&own[i], (const char *)options + i * step, "fp8c_compile_options",
                                &diag);
    }
    if (status == F8_OK)
        status = check_options(own, n_options, &diag);
    if (status == F8_OK)
        status =
            f8_file_writable(&ctx->temporaries, path, &diag); /* before the part that takes long */
    fp8c_status result =
        status == F8_OK ? compile_all(module, own, n_options, program) : (fp8c_status)status;
    if (result == FP8C_OK)
        result = (fp8c_status)(status = write_file(ctx, program, n_options, path, &diag));
    if (status != F8_OK)
        f8_api_result(ctx, &diag, status);
    for (size_t i = 0; i < n_options && program; i++)
        fp8c_program_destroy(program[i]);
    f8_arena_end(&arena);
    return result;
}
