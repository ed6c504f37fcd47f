/* Programs: run them, and say what was decided. See fp8c.h. */
#include <string.h>

#include "frontend/program.h"
#include "ir/fp8.h"

/* ---- running ---- */

static f8_func *get_func(const fp8c_program *p, int function)
{
    const f8_module *m = p->unit.module;
    return function >= 0 && (size_t)function < m->n_funcs ? &m->func[function] : NULL;
}

int fp8c_program_function(const fp8c_program *p, const char *name)
{
    const f8_func *f = f8_module_find_func(p->unit.module, name);
    return f ? (int)(f - p->unit.module->func) : -1;
}

const char *fp8c_program_function_name(const fp8c_program *p, int function)
{
    const f8_func *f = get_func(p, function);
    return f ? f->name : NULL;
}

static f8_status has_memory(const fp8c_program *p, f8_diag *diag)
{
    return p->instance.kind ? F8_OK
                            : f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                                      "the program was compiled with %s: it has no memory and can't run",
                                      p->plan_only ? "plan_only" : "no_device");
}

static fp8c_status finish(fp8c_program *p, f8_status status)
{
    return status == F8_OK ? FP8C_OK : f8_api_fail(p->ctx, status, NULL, 0);
}

fp8c_status fp8c_program_run(fp8c_program *p, int function)
{
    f8_diag *diag = f8_api_begin(p->ctx);
    f8_status status = has_memory(p, diag);
    if (status == F8_OK && !get_func(p, function))
        status = f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "the program has no function %d", function);
    else if (status == F8_OK && !p->initialized)
        status = f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                         "the variables have no values: call fp8c_program_initialize");
    if (status == F8_OK)
        status = p->instance.kind->run(&p->instance, (uint32_t)function, diag);
    return finish(p, status);
}

fp8c_status fp8c_program_wait(fp8c_program *p)
{
    f8_diag *diag = f8_api_begin(p->ctx);
    f8_status status = has_memory(p, diag);
    if (status == F8_OK)
        status = p->instance.kind->wait(&p->instance, diag);
    return finish(p, status);
}

fp8c_status fp8c_program_initialize(fp8c_program *p, uint64_t seed)
{
    f8_diag *diag = f8_api_begin(p->ctx);
    f8_status status = has_memory(p, diag);
    if (status == F8_OK)
        status = p->instance.kind->init(&p->instance, seed, diag);
    if (status != F8_OK)
        return finish(p, status);
    p->initialized = true;
    const int prepare = fp8c_program_function(p, "prepare");
    return prepare < 0 ? FP8C_OK : fp8c_program_run(p, prepare);
}

static const f8_port *get_port(const fp8c_program *p, int function, fp8c_side side, int index)
{
    const f8_func *f = get_func(p, function);
    const size_t n = !f ? 0 : side == FP8C_OUTPUT ? f->n_out : f->n_in;
    if (index < 0 || (size_t)index >= n)
        return NULL;
    return side == FP8C_OUTPUT ? &f->out[index] : &f->in[index];
}

fp8c_status fp8c_program_port(const fp8c_program *p, int function, fp8c_side side, int index,
                              fp8c_port *out)
{
    const f8_port *port = get_port(p, function, side, index);
    if (!port)
        return FP8C_ERR_INPUT;
    *out = (fp8c_port){port->name, f8_api_type_out(&port->type), port->var};
    return FP8C_OK;
}

int fp8c_program_find_port(const fp8c_program *p, int function, fp8c_side side, const char *name)
{
    const f8_port *port;
    for (int i = 0; (port = get_port(p, function, side, i)); i++)
        if (!strcmp(port->name, name))
            return i;
    return -1;
}

void *fp8c_program_buffer(fp8c_program *p, int function, fp8c_side side, int index)
{
    if (!get_port(p, function, side, index) || !p->instance.kind)
        return NULL;
    return p->instance.kind->port(&p->instance, (uint32_t)function, side, (uint32_t)index);
}

fp8c_status fp8c_program_bind(fp8c_program *p, int function, fp8c_side side, int index, void *buffer)
{
    f8_diag *diag = f8_api_begin(p->ctx);
    const f8_port *port = get_port(p, function, side, index);
    f8_status status = has_memory(p, diag);
    if (status != F8_OK)
        return finish(p, status);
    if (!port || port->var >= 0 || (side != FP8C_INPUT && side != FP8C_OUTPUT))
        status = f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                         port && port->var >= 0 ? "port '%s' carries a variable: use fp8c_program_write"
                                                : "no such port%s",
                         port && port->var >= 0 ? port->name : "");
    else if ((uintptr_t)buffer % 64)
        status = f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "the buffer for '%s' is not 64-byte aligned",
                         port->name);
    if (status == F8_OK)
        status = p->instance.kind->bind(&p->instance, (uint32_t)function, side, (uint32_t)index, buffer, diag);
    return finish(p, status);
}

fp8c_status fp8c_program_variable(fp8c_program *p, int index, fp8c_variable *out)
{
    const f8_module *m = p->unit.module;
    if (index < 0 || (size_t)index >= m->n_vars)
        return FP8C_ERR_INPUT;
    const f8_var *v = &m->var[index];
    *out = (fp8c_variable){v->name, f8_api_type_out(&v->type), v->kind == F8_VAR_PARAM, NULL};
    if (p->instance.kind)
        out->data = p->instance.kind->var(&p->instance, (uint32_t)index);
    return FP8C_OK;
}

/* Copy variable `index` out to `to`, or in from `from`: one of the two is NULL. */
static fp8c_status copy_variable(fp8c_program *p, int index, void *to, const void *from)
{
    f8_diag *diag = f8_api_begin(p->ctx);
    f8_status status = has_memory(p, diag);
    if (status == F8_OK && (index < 0 || (size_t)index >= p->unit.module->n_vars))
        status = f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "the program has no variable %d", index);
    if (status == F8_OK)
        status = to ? p->instance.kind->read(&p->instance, (uint32_t)index, to, diag)
                    : p->instance.kind->write(&p->instance, (uint32_t)index, from, diag);
    return finish(p, status);
}

fp8c_status fp8c_program_read(fp8c_program *p, int variable, void *to)
{
    return copy_variable(p, variable, to, NULL);
}

fp8c_status fp8c_program_write(fp8c_program *p, int variable, const void *from)
{
    return copy_variable(p, variable, NULL, from);
}

const char *fp8c_program_element(const fp8c_program *p, int variable, int64_t index)
{
    for (size_t i = 0; i < p->unit.n_elements; i++) {
        const f8_elements *e = &p->unit.elements[i];
        if (e->var == variable)
            return index >= 0 && index < e->n ? e->name[index] : NULL;
    }
    return NULL;
}

/* ---- weights stored in FP8 ---- */

static const f8_stored *stored_variable(const fp8c_program *p, int variable)
{
    for (size_t i = 0; i < p->unit.n_stored; i++)
        if (p->unit.stored[i].var == variable)
            return &p->unit.stored[i];
    return NULL;
}

fp8c_status fp8c_program_stored(const fp8c_program *p, int index, fp8c_stored *out)
{
    if (index < 0 || (size_t)index >= p->unit.n_stored)
        return FP8C_ERR_INPUT;
    const f8_stored *s = &p->unit.stored[index];
    _Static_assert(sizeof out->recipe >= F8_RECIPE_TEXT, "any recipe fits");
    *out = (fp8c_stored){.variable = s->var, .scale_variable = s->scale_var,
                         .kept = s->recipe.scaling == F8_SCALING_DELAYED ? s->operand : NULL};
    f8_recipe_print(&s->recipe, out->recipe, sizeof out->recipe);
    return FP8C_OK;
}

/* given: the scale of all of it, or NULL. */
static f8_status quantize(fp8c_program *p, const f8_stored *s, const float *from, const float *given,
                          f8_diag *diag)
{
    const f8_module *m = p->unit.module;
    const f8_type *t = &m->var[s->var].type;
    const int64_t rows = f8_type_rows(t), cols = f8_type_columns(t);
    const int64_t n = f8_quantizer_scales(&s->quantizer, rows, cols);
    f8_arena scratch;
    f8_arena_init(&scratch, &p->ctx->allocator);
    float *amax = F8_NEW_ARRAY(&scratch, float, n), *scale = F8_NEW_ARRAY(&scratch, float, n);
    float *inv = F8_NEW_ARRAY(&scratch, float, n);
    uint8_t *codes = F8_NEW_ARRAY(&scratch, uint8_t, rows * cols), *e8m0 = F8_NEW_ARRAY(&scratch, uint8_t, n);
    f8_status status = f8_arena_status(&scratch, diag);
    if (status == F8_OK) {
        f8_matrix_amax(s->quantizer.grain, from, rows, cols, amax);
        f8_scales_of(&s->quantizer, amax, n, scale, inv);
        if (given) {
            scale[0] = *given;
            inv[0] = 1 / *given + (amax[0] - amax[0]); /* NaN where a value is Inf or NaN */
        }
        f8_matrix_encode(&s->quantizer, from, rows, cols, scale, codes);
        for (int64_t i = 0; i < n; i++)
            e8m0[i] = f8_f32_to_e8m0(inv[i], false); /* exact: inv is a power of two, or NaN */
        status = p->instance.kind->write(&p->instance, (uint32_t)s->var, codes, diag);
    }
    if (status == F8_OK)
        status = p->instance.kind->write(&p->instance, (uint32_t)s->scale_var,
                                         s->quantizer.mx ? (const void *)e8m0 : inv, diag);
    f8_arena_end(&scratch);
    return status;
}

fp8c_status fp8c_program_quantize(fp8c_program *p, int variable, const float *from, const float *scale)
{
    f8_diag *diag = f8_api_begin(p->ctx);
    const f8_stored *s = stored_variable(p, variable);
    f8_status status = has_memory(p, diag);
    if (status == F8_OK && !s)
        status = f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "variable %d is not stored in FP8", variable);
    if (status == F8_OK && scale && s->recipe.scaling != F8_SCALING_DELAYED)
        status = f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "variable %d: a scale is kept under `delayed` alone",
                         variable);
    if (status == F8_OK)
        status = quantize(p, s, from, scale, diag);
    return finish(p, status);
}

/* ---- decisions and figures ---- */

void fp8c_program_info(const fp8c_program *p, fp8c_info *out)
{
    fp8c_info own = {.struct_size = out->struct_size, .compile_seconds = p->compile_seconds, .linears = p->unit.linears,
                       .fp8_gemms_planned = p->unit.fp8_gemms, .threads = 1,
                       .distinct_kernels = p->plan.n_kernels, .code_bytes = p->plan.blob_bytes};
    if (p->instance.kind) {
        f8_instance_info run;
        p->instance.kind->info(&p->instance, &run);
        own.planned_bytes = run.planned_bytes;
        own.peak_bytes = run.peak_bytes;
        own.gemms_executed = run.count.gemms;
        own.fp8_gemms_executed = run.count.fp8_gemms;
        own.kernels_executed = run.count.kernels;
        own.threads = run.threads;
    } else {
        own.planned_bytes = p->planned;
    }
    for (uint32_t i = 0; i < p->plan.n_images; i++)
        own.code_bytes += p->plan.image[i].size;
    for (uint32_t f = 0; f < p->plan.n_funcs; f++)
        if (p->plan.func[f].arena_bytes > own.arena_bytes) {
            own.arena_bytes = p->plan.func[f].arena_bytes;
            own.arena_lower_bound = p->plan.func[f].lower_bound;
        }
    memcpy(out, &own, out->struct_size < sizeof own ? out->struct_size : sizeof own);
}

const char *fp8c_program_algorithm(const fp8c_program *p, int function, int index)
{
    fp8c_step s;
    if (!p->instance.kind || fp8c_program_step(p, function, index, &s) != FP8C_OK)
        return NULL;
    return p->instance.kind->algorithm(&p->instance, (uint32_t)function, (uint32_t)index);
}

const char *fp8c_program_target(const fp8c_program *p)
{
    return p->unit.options.target->name;
}

fp8c_status fp8c_program_device(fp8c_program *p, fp8c_device *out)
{
    f8_diag *diag = f8_api_begin(p->ctx);
    if (!p->instance.cuda)
        return finish(p, f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "the program runs on no GPU"));
    f8_cuda_facts facts;
    const f8_status status = f8_cuda_device_facts(p->cuda, &facts, diag);
    if (status != F8_OK)
        return finish(p, status);
    fp8c_device own = {.struct_size = out->struct_size, .compute_capability = facts.sm,
                       .driver = facts.driver, .multiprocessors = facts.multiprocessors,
                       .memory = facts.memory, .memory_free = facts.memory_free};
    memcpy(own.name, facts.name, sizeof own.name);
    own.name[sizeof own.name - 1] = 0;
    memcpy(out, &own, out->struct_size < sizeof own ? out->struct_size : sizeof own);
    return FP8C_OK;
}

fp8c_status fp8c_program_image(const fp8c_program *p, int index, fp8c_image *out)
{
    if (!p->listings || !p->stats.image || index < 0 || (uint32_t)index >= p->stats.n_images)
        return FP8C_ERR_INPUT;
    const f8_build_image *from = &p->stats.image[index];
    *out = (fp8c_image){.cuda = from->cuda, .ptx = from->ptx, .log = from->log};
    if ((uint32_t)index < p->plan.n_images) {
        out->cubin = p->plan.image[index].bytes;
        out->cubin_size = (size_t)p->plan.image[index].size;
    }
    return FP8C_OK;
}

fp8c_status fp8c_program_kernel(const fp8c_program *p, int index, fp8c_kernel *out)
{
    if (!p->cuda || index < 0 || (uint32_t)index >= p->stats.n_kernels)
        return FP8C_ERR_INPUT;
    const f8_build_kernel *k = &p->stats.kernel[index];
    *out = (fp8c_kernel){.name = k->name,
                         .symbol = k->symbol,
                         .hash = k->hash,
                         .image = (int32_t)k->image,
                         .launches = (int32_t)k->launches,
                         .threads = (int32_t)k->threads,
                         .multi = k->multi,
                         .registers = k->report.registers,
                         .stack = k->report.stack,
                         .spill_stores = k->report.spill_stores,
                         .spill_loads = k->report.spill_loads,
                         .shared = k->report.shared,
                         .shared_dynamic = k->shared,
                         .seconds = k->seconds};
    return FP8C_OK;
}

fp8c_status fp8c_program_decision(const fp8c_program *p, int index, fp8c_decision *out)
{
    if (index < 0 || (size_t)index >= p->unit.n_decisions)
        return FP8C_ERR_INPUT;
    const f8_decision *d = &p->unit.decision[index];
    *out = (fp8c_decision){d->linear, d->role, d->a, d->b, d->scaling, d->reason,
                           d->m, d->n, d->k, d->count, d->fp8};
    return FP8C_OK;
}

fp8c_status fp8c_program_step(const fp8c_program *p, int function, int index, fp8c_step *out)
{
    if (function < 0 || (uint32_t)function >= p->plan.n_funcs || index < 0 ||
        (uint32_t)index >= p->plan.func[function].n_steps)
        return FP8C_ERR_INPUT;
    static const char *const kinds[] = {
        [F8_STEP_KERNEL] = "kernel", [F8_STEP_GEMM] = "gemm", [F8_STEP_COPY] = "copy",
        [F8_STEP_ATTENTION] = "attention"};
    const f8_step *s = &p->plan.func[function].step[index];
    *out = (fp8c_step){s->name, kinds[s->kind], (int32_t)s->n_phases, s->hash, s->bytes_read,
                       s->bytes_written, 0};
    if (p->instance.kind)
        out->seconds = p->instance.kind->step_seconds(&p->instance, (uint32_t)function, (uint32_t)index);
    return FP8C_OK;
}

fp8c_status fp8c_program_pass(const fp8c_program *p, int index, fp8c_pass *out)
{
    if (index < 0 || (size_t)index >= p->unit.n_times)
        return FP8C_ERR_INPUT;
    const f8_pass_time *t = &p->unit.time[index];
    *out = (fp8c_pass){t->name, t->seconds, t->nodes};
    return FP8C_OK;
}

const char *fp8c_pass_name(int index)
{
    return index < 0 ? NULL : f8_pass_name((size_t)index);
}

const char *fp8c_recipe_name(int index)
{
    return index < 0 ? NULL : f8_recipe_name((size_t)index);
}

fp8c_status fp8c_recipe_canonical(fp8c_context *ctx, const char *recipe, char *text, size_t size)
{
    f8_recipe parsed;
    const f8_status status = f8_recipe_parse(recipe, F8_NOWHERE, &parsed, f8_api_begin(ctx));
    if (status != F8_OK)
        return f8_api_fail(ctx, status, NULL, 0);
    f8_recipe_print(&parsed, text, size);
    return FP8C_OK;
}
