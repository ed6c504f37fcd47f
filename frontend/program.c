/* Programs: compile a module, run it, and say what was decided. See fp8c.h. */
#include <string.h>
#include <time.h>

#include "codegen/build.h"
#include "frontend/api.h"
#include "frontend/instance.h"
#include "frontend/parse.h"
#include "passes/copy.h"
#include "passes/pass.h"

struct fp8c_program {
    fp8c_context *ctx;
    f8_arena arena; /* the compiled module and its plan */
    f8_unit unit;
    f8_plan plan;   /* not filled for the reference target */
    f8_instance instance;
    double compile_seconds;
    int32_t threads;
    bool initialized; /* variables hold values */
};

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- compiling ---- */

/* A copy that passes may rewrite, so that one module compiles many times. */
static f8_status clone_module(const f8_module *m, f8_arena *arena, f8_diag *diag, f8_module **out)
{
    f8_module *c = f8_module_create(arena, diag, m->name, m->file);
    if (!c)
        return diag->status;
    *out = c;
    for (size_t i = 0; i < m->n_vars; i++)
        if (f8_module_var(c, &m->var[i]) < 0)
            return diag->status;
    c->rule = F8_NEW_ARRAY(arena, f8_recipe_rule, m->n_rules);
    c->dim = F8_NEW_ARRAY(arena, f8_dim, m->n_dims);
    if (!c->rule || !c->dim)
        return f8_arena_status(arena, diag);
    for (; c->n_rules < m->n_rules; c->n_rules++) {
        const f8_recipe_rule *r = &m->rule[c->n_rules];
        c->rule[c->n_rules] = (f8_recipe_rule){f8_intern(c, r->pattern), f8_intern(c, r->recipe), r->loc};
    }
    for (; c->n_dims < m->n_dims; c->n_dims++)
        c->dim[c->n_dims] = (f8_dim){f8_intern(c, m->dim[c->n_dims].name), m->dim[c->n_dims].value,
                                     m->dim[c->n_dims].loc};
    c->rule_room = c->n_rules;
    c->dim_room = c->n_dims;
    c->accumulate = m->accumulate;
    c->optimizer = m->optimizer;
    c->optimizer.schedule = f8_intern(c, m->optimizer.schedule ? m->optimizer.schedule : "constant");
    for (size_t i = 0; i < m->n_funcs; i++) {
        const f8_func *from = &m->func[i];
        f8_func *to = f8_module_func(c, from->name);
        f8_ref *map = F8_NEW_ARRAY(arena, f8_ref, from->graph->n_nodes);
        if (!to || !map)
            return diag->status != F8_OK ? diag->status : f8_arena_status(arena, diag);
        F8_TRY(f8_copy_body(from, to, map, arena));
        for (size_t k = 0; k < from->n_out; k++)
            F8_TRY(f8_func_result(to, from->out[k].name, map[from->out[k].ref], from->out[k].var));
    }
    return f8_arena_status(arena, diag);
}

static f8_status read_options(fp8c_program *p, const fp8c_compile_options *o, f8_diag *diag)
{
    f8_options *out = &p->unit.options;
    const char *target = o->target ? o->target : "cpu", *recipe = o->recipe ? o->recipe : "bf16";
    if (strcmp(target, "cpu") && strcmp(target, "reference"))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "no target '%s': there are cpu and reference", target);
    out->target = f8_target_by_name(target);
    out->recipe = f8_recipe_by_name(recipe);
    if (!out->recipe)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "no recipe '%s': there are %s", recipe,
                       f8_recipe_names());
    if (o->threads < 0 || o->threads > F8_POOL_MAX_THREADS)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "threads: %d is not 0 to %d", o->threads,
                       F8_POOL_MAX_THREADS);
    p->threads = o->threads;
    out->no_fuse = o->no_fuse;
    out->inference = o->inference;
    out->pair = o->pair;
    out->lr = o->lr;
    out->optimizer_steps = o->optimizer_steps;
    out->keep = o->keep ? f8_arena_strdup(&p->arena, o->keep) : NULL;
    out->print_after = o->print_after;
    out->print_to = (f8_writer){o->write, o->write_user};
    if (!o->print_after)
        return F8_OK;
    for (size_t i = 0; f8_pass_name(i); i++)
        if (!strcmp(f8_pass_name(i), o->print_after))
            return o->write ? F8_OK
                            : f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "print_after needs `write`");
    return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "no pass '%s'", o->print_after);
}

static f8_status build_program(fp8c_program *p, const f8_module *source, const fp8c_compile_options *o,
                               f8_diag *diag)
{
    const double start = seconds_now();
    p->unit = (f8_unit){.arena = &p->arena, .diag = diag};
    F8_TRY(read_options(p, o, diag));
    F8_TRY(clone_module(source, &p->arena, diag, &p->unit.module));
    F8_TRY(f8_run_passes(&p->unit));
    const bool cpu = p->unit.options.target->kind == F8_TARGET_CPU;
    if (cpu)
        F8_TRY(f8_build_plan(p->unit.module, &(f8_build_options){.cpu = NULL}, &p->arena, &p->plan, diag));
    const f8_exec_options run = {.n_threads = p->threads, .allocator = &p->ctx->allocator,
                                 .profile = o->profile};
    F8_TRY(f8_instance_create(&p->instance, p->unit.module, cpu ? &p->plan : NULL, &run, diag));
    p->compile_seconds = seconds_now() - start;
    return F8_OK;
}

fp8c_status fp8c_compile(const fp8c_module *module, const fp8c_compile_options *options, fp8c_program **out)
{
    *out = NULL;
    fp8c_context *ctx = module->ctx;
    f8_diag *diag = f8_api_begin(ctx);
    diag->file = module->ir->file;
    fp8c_compile_options own = {.struct_size = sizeof own};
    if (options) /* an older or newer caller's struct: take what both know */
        memcpy(&own, options, options->struct_size < sizeof own ? options->struct_size : sizeof own);
    fp8c_program *p = ctx->allocator.alloc(ctx->allocator.user, sizeof *p, 64);
    if (!p) {
        f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted", sizeof *p);
        return f8_api_fail(ctx, F8_ERR_MEMORY, NULL, 0);
    }
    *p = (fp8c_program){.ctx = ctx};
    f8_arena_init(&p->arena, &ctx->allocator);
    f8_status status = module->building
                           ? f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "a function is still being built")
                           : f8_check_recipe_rules(module->ir, diag);
    if (status == F8_OK)
        status = build_program(p, module->ir, &own, diag);
    if (status != F8_OK) {
        f8_api_fail(ctx, status, module->text, module->text_size);
        fp8c_program_destroy(p);
        return (fp8c_status)status;
    }
    *out = p;
    return FP8C_OK;
}

void fp8c_program_destroy(fp8c_program *p)
{
    if (!p)
        return;
    if (p->instance.module)
        f8_instance_destroy(&p->instance);
    f8_arena_end(&p->arena);
    const f8_allocator allocator = p->ctx->allocator;
    allocator.free(allocator.user, p, sizeof *p);
}

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

fp8c_status fp8c_program_run(fp8c_program *p, int function)
{
    f8_diag *diag = f8_api_begin(p->ctx);
    f8_status status = F8_ERR_INPUT;
    if (get_func(p, function) && !p->initialized)
        f8_fail(diag, status, F8_NOWHERE, "the variables have no values: call fp8c_program_initialize");
    else if (get_func(p, function))
        status = f8_instance_run(&p->instance, (uint32_t)function, diag);
    else
        f8_fail(diag, status, F8_NOWHERE, "the program has no function %d", function);
    return status == F8_OK ? FP8C_OK : f8_api_fail(p->ctx, status, NULL, 0);
}

fp8c_status fp8c_program_initialize(fp8c_program *p, uint64_t seed)
{
    f8_api_begin(p->ctx);
    f8_instance_init(&p->instance, seed);
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
    if (!get_port(p, function, side, index))
        return NULL;
    return f8_instance_port(&p->instance, (uint32_t)function, side, (uint32_t)index);
}

fp8c_status fp8c_program_bind(fp8c_program *p, int function, fp8c_side side, int index, void *buffer)
{
    f8_diag *diag = f8_api_begin(p->ctx);
    const f8_port *port = get_port(p, function, side, index);
    f8_status status = F8_OK;
    if (!port || port->var >= 0 || (side != FP8C_INPUT && side != FP8C_OUTPUT))
        status = f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                         port && port->var >= 0 ? "port '%s' carries a variable: use fp8c_program_variable"
                                                : "no such port%s",
                         port && port->var >= 0 ? port->name : "");
    else if ((uintptr_t)buffer % 64)
        status = f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "the buffer for '%s' is not 64-byte aligned",
                         port->name);
    if (status != F8_OK)
        return f8_api_fail(p->ctx, status, NULL, 0);
    f8_instance_bind(&p->instance, (uint32_t)function, side, (uint32_t)index, buffer);
    return FP8C_OK;
}

fp8c_status fp8c_program_variable(fp8c_program *p, int index, fp8c_variable *out)
{
    const f8_module *m = p->unit.module;
    if (index < 0 || (size_t)index >= m->n_vars)
        return FP8C_ERR_INPUT;
    const f8_var *v = &m->var[index];
    *out = (fp8c_variable){v->name, f8_api_type_out(&v->type), v->kind == F8_VAR_PARAM,
                           f8_instance_var(&p->instance, (uint32_t)index)};
    return FP8C_OK;
}

/* ---- decisions and figures ---- */

void fp8c_program_info(const fp8c_program *p, fp8c_info *out)
{
    *out = (fp8c_info){.compile_seconds = p->compile_seconds, .linears = p->unit.linears,
                       .fp8_gemms_planned = p->unit.fp8_gemms, .threads = 1};
    const f8_exec *x = p->instance.exec;
    if (!x)
        return;
    const f8_exec_counts count = f8_exec_count(x);
    out->planned_bytes = f8_exec_planned_bytes(x);
    out->peak_bytes = f8_exec_peak_bytes(x);
    out->gemms_executed = count.gemms;
    out->fp8_gemms_executed = count.fp8_gemms;
    out->kernels_executed = count.kernels;
    out->distinct_kernels = p->plan.n_kernels;
    out->code_bytes = p->plan.blob_bytes;
    out->threads = f8_exec_threads(x);
    for (uint32_t f = 0; f < p->plan.n_funcs; f++)
        if (p->plan.func[f].arena_bytes > out->arena_bytes) {
            out->arena_bytes = p->plan.func[f].arena_bytes;
            out->arena_lower_bound = p->plan.func[f].lower_bound;
        }
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
        [F8_STEP_KERNEL] = "kernel", [F8_STEP_GEMM] = "gemm", [F8_STEP_COPY] = "copy"};
    const f8_step *s = &p->plan.func[function].step[index];
    *out = (fp8c_step){s->name, kinds[s->kind], (int32_t)s->n_phases, s->hash, s->bytes_read,
                       s->bytes_written,
                       f8_exec_step_seconds(p->instance.exec, (uint32_t)function, (uint32_t)index)};
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
