/* Programs: running them, and reporting what was decided. See fp8c.h. */
#include <string.h>

#include "frontend/program.h"
#include "ir/num/fp8.h"
#include "passes/pipeline.h"
#include "runtime/cpu/gemm.h"

/* ---- life ---- */

fp8c_program *f8_program_create(fp8c_context *ctx, f8_diag *diag)
{
    fp8c_program *p = f8_api_new(ctx, sizeof *p, 64, diag);
    if (!p)
        return NULL;
    *p = (fp8c_program){.ctx = ctx};
    f8_arena_init(&p->arena, &ctx->allocator);
    return p;
}

f8_variant *f8_program_add(fp8c_program *p, f8_diag *diag)
{
    f8_variant *v = F8_NEW(&p->arena, f8_variant), **last = &p->first;
    if (!v) {
        f8_arena_status(&p->arena, diag);
        return NULL;
    }
    f8_arena_init(&v->arena, &p->ctx->allocator);
    f8_arena_init(&v->graph, &p->ctx->allocator);
    while (*last)
        last = &(*last)->next;
    *last = v;
    return v;
}

void fp8c_program_destroy(fp8c_program *p)
{
    if (!p)
        return;
    for (f8_dependent *d = p->dependents, *next; d; d = next) {
        next = d->next;
        d->leave(d);
    }
    f8_variables_end(p);
    for (f8_variant *v = p->first; v; v = v->next) {
        f8_instance_destroy(&v->instance);
        f8_arena_end(&v->arena);
        f8_gemm_lib_destroy(v->gemms);
        f8_arena_end(&v->graph);
    }
    f8_api_give_gpu(p->ctx, p->cuda);
    f8_file_release(&p->file);
    f8_arena_end(&p->arena);
    f8_api_delete(p->ctx, p, sizeof *p);
}

/* ---- functions ---- */

static const f8_plan_func *get_func(const fp8c_program *p, int function)
{
    const f8_plan *plan = &p->now->plan;
    return function >= 0 && (uint32_t)function < plan->n_funcs ? &plan->func[function] : NULL;
}

int fp8c_program_function(const fp8c_program *p, const char *name)
{
    const f8_plan_func *f;
    for (int i = 0; (f = get_func(p, i)); i++)
        if (!strcmp(f->name, name))
            return i;
    return -1;
}

const char *fp8c_program_function_name(const fp8c_program *p, int function)
{
    const f8_plan_func *f = get_func(p, function);
    return f ? f->name : NULL;
}

/* ---- running ---- */

f8_status f8_program_set_run(fp8c_program *p, f8_run_options run, int32_t threads, f8_diag *diag)
{
    if (threads < 0 || threads > F8_POOL_MAX_THREADS)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "threads: %d is not from 0 to %d", threads,
                       F8_POOL_MAX_THREADS);
    p->run = run;
    p->run.external = f8_arena_strdup(&p->arena, run.external);
    p->threads = f8_api_threads(p->ctx, threads);
    return f8_arena_status(&p->arena, diag);
}

f8_status f8_program_has_memory(const fp8c_program *p, f8_diag *diag)
{
    return p->now->instance.kind
               ? F8_OK
               : f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                         "the program was compiled with %s: it has no memory and can't run",
                         p->plan_only ? "plan_only" : "no_device");
}

/* What a callback of fp8c_program_run_witnessed asks for would change the run below it. */
f8_status f8_program_unwatched(const fp8c_program *p, const char *what, f8_diag *diag)
{
    return !p->watched ? F8_OK
                       : f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                                 "%s was called by the callback of fp8c_program_run_witnessed, "
                                 "while that run goes on",
                                 what);
}

f8_status f8_program_may_change(const fp8c_program *p, const char *what, f8_diag *diag)
{
    F8_TRY(f8_program_unwatched(p, what, diag));
    if (!p->in_flight)
        return F8_OK;
    return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                   "%s may not change parameters or scales now: %d forward%s for %s "
                   "(fp8c_saved_drop gives one up)",
                   what, p->in_flight, p->in_flight == 1 ? " waits" : "s wait",
                   p->in_flight == 1 ? "its backward" : "their backwards");
}

f8_status f8_program_can_run(const fp8c_program *p, int function, f8_diag *diag)
{
    F8_TRY(f8_program_has_memory(p, diag));
    F8_TRY(f8_program_unwatched(p, "a run", diag));
    if (!get_func(p, function))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "the program has no function %d", function);
    F8_TRY(f8_variables_ready(p, get_func(p, function), diag));
    if (!p->in_flight)
        return F8_OK;
    static const char *const changing[] = {"update", "update_scales", "prepare"};
    const char *name = get_func(p, function)->name;
    for (size_t i = 0; i < sizeof changing / sizeof *changing; i++)
        if (!strcmp(name, changing[i]))
            return f8_program_may_change(p, name, diag);
    return F8_OK;
}

void f8_program_own_ports(fp8c_program *p, int function)
{
    if (!(p->lent >> function & 1))
        return;
    for (f8_dependent *d = p->dependents; d; d = d->next)
        d->unbind(d);
    p->lent = 0;
}

fp8c_status fp8c_program_run(fp8c_program *p, int function)
{
    f8_diag diag = {0};
    f8_status status = f8_program_can_run(p, function, &diag);
    if (status != F8_OK)
        return f8_api_result(p->ctx, &diag, status);
    f8_program_own_ports(p, function);
    status = f8_program_meet(p, function, &diag);
    uint32_t form = 0;
    if (status == F8_OK)
        status = f8_program_form(p, function, &form, &diag);
    if (status == F8_OK)
        status = f8_codes_run(p, form, &diag);
    return f8_api_result(p->ctx, &diag, status);
}

fp8c_status fp8c_program_form(fp8c_program *p, int function, int *form)
{
    f8_diag diag = {0};
    uint32_t own = 0;
    f8_status status = f8_program_can_run(p, function, &diag);
    if (status == F8_OK)
        status = f8_program_choose(p, function, &own, &diag);
    *form = status == F8_OK ? (int)own : -1;
    return f8_api_result(p->ctx, &diag, status);
}

fp8c_status fp8c_program_wait(fp8c_program *p)
{
    f8_diag diag = {0};
    f8_status status = f8_program_has_memory(p, &diag);
    if (status == F8_OK)
        status = p->now->instance.kind->wait(&p->now->instance, &diag);
    return f8_api_result(p->ctx, &diag, status);
}

fp8c_status fp8c_program_initialize(fp8c_program *p, uint64_t seed)
{
    f8_diag diag = {0};
    f8_status status = f8_program_has_memory(p, &diag);
    if (status == F8_OK)
        status = f8_program_may_change(p, "fp8c_program_initialize", &diag);
    if (status == F8_OK)
        status = f8_sums_settle(p, &diag);
    if (status == F8_OK)
        status = p->now->instance.kind->init(&p->now->instance, seed, NULL, &diag);
    if (status == F8_OK)
        status = f8_stored_initialize(p, seed, &diag);
    if (status != F8_OK)
        return f8_api_result(p->ctx, &diag, status);
    f8_variables_set(p);
    const f8_plan_func *prepare = get_func(p, fp8c_program_function(p, "prepare"));
    /* what is bound later gives a variable of `prepare` its value */
    const bool runs = prepare && f8_variables_ready(p, prepare, &(f8_diag){0}) == F8_OK;
    return runs ? fp8c_program_run(p, (int)(prepare - p->now->plan.func)) : FP8C_OK;
}

static const f8_plan_port *get_port(const fp8c_program *p, int function, fp8c_side side, int index)
{
    const f8_plan_func *f = get_func(p, function);
    uint32_t n = 0;
    const bool is_side = side == FP8C_INPUT || side == FP8C_OUTPUT;
    const f8_plan_port *port = f && is_side ? f8_plan_ports(f, side == FP8C_OUTPUT, &n) : NULL;
    return index >= 0 && (uint32_t)index < n ? &port[index] : NULL;
}

fp8c_status fp8c_program_port(const fp8c_program *p, int function, fp8c_side side, int index,
                              fp8c_port *out)
{
    const f8_plan_port *port = get_port(p, function, side, index);
    if (!port)
        return FP8C_ERR_INPUT;
    *out = (fp8c_port){port->name, f8_api_type_out(&port->type), port->var};
    return FP8C_OK;
}

int fp8c_program_find_port(const fp8c_program *p, int function, fp8c_side side, const char *name)
{
    const f8_plan_port *port;
    for (int i = 0; (port = get_port(p, function, side, i)); i++)
        if (!strcmp(port->name, name))
            return i;
    return -1;
}

void *fp8c_program_buffer(fp8c_program *p, int function, fp8c_side side, int index)
{
    const f8_plan_port *port = get_port(p, function, side, index);
    if (!port || port->var >= 0 || !p->now->instance.kind)
        return NULL;
    f8_program_own_ports(p, function);
    return p->now->instance.kind->port(&p->now->instance, (uint32_t)function, side,
                                       (uint32_t)index);
}

fp8c_status fp8c_program_bind(fp8c_program *p, int function, fp8c_side side, int index,
                              void *buffer)
{
    f8_diag diag = {0};
    const f8_plan_port *port = get_port(p, function, side, index);
    f8_status status = f8_program_has_memory(p, &diag);
    if (status != F8_OK)
        return f8_api_result(p->ctx, &diag, status);
    if (!port || port->var >= 0)
        status =
            f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE,
                    port && port->var >= 0 ? "port '%s' carries a variable: use fp8c_program_write"
                                           : "there is no such port%s",
                    port && port->var >= 0 ? port->name : "");
    else if ((uintptr_t)buffer % f8_dtype_size(port->type.dtype))
        status = f8_fail(
            &diag, F8_ERR_INPUT, F8_NOWHERE,
            "the buffer for '%s' has an address that is no multiple of %zu, its element's size",
            port->name, f8_dtype_size(port->type.dtype));
    if (status == F8_OK && buffer && side == FP8C_OUTPUT) {
        const int v = f8_variable_overlaps(p, buffer, f8_type_bytes(&port->type));
        if (v >= 0)
            status = f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE,
                             "the buffer for '%s' overlaps the memory of variable '%s'", port->name,
                             p->now->plan.var[v].name);
    }
    if (status == F8_OK)
        status = p->now->instance.kind->bind(&p->now->instance, (uint32_t)function, side,
                                             (uint32_t)index, buffer, &diag);
    return f8_api_result(p->ctx, &diag, status);
}

fp8c_status fp8c_program_variable(fp8c_program *p, int index, fp8c_variable *out)
{
    f8_diag diag = {0};
    const f8_plan *plan = &p->now->plan;
    if (index < 0 || (uint32_t)index >= plan->n_vars)
        return FP8C_ERR_INPUT;
    const f8_plan_var *v = &plan->var[index];
    *out = (fp8c_variable){v->name, f8_api_type_out(&v->type), v->is_param, NULL, v->rows};
    if (p->now->instance.kind)
        out->data = p->now->instance.kind->var(&p->now->instance, (uint32_t)index);
    if (out->data && f8_variable_lend(p, (uint32_t)index, &diag) != F8_OK)
        return f8_api_result(p->ctx, &diag, diag.status);
    return FP8C_OK;
}

int fp8c_program_find_variable(const fp8c_program *p, const char *name)
{
    const f8_plan *plan = &p->now->plan;
    for (uint32_t i = 0; i < plan->n_vars; i++)
        if (!strcmp(plan->var[i].name, name))
            return (int)i;
    return -1;
}

/* Copy variable `index` out to `to`, or in from `from`; the other one is NULL. */
static fp8c_status copy_variable(fp8c_program *p, int index, void *to, const void *from)
{
    f8_diag diag = {0};
    f8_status status = f8_program_has_memory(p, &diag);
    if (status == F8_OK && (index < 0 || (uint32_t)index >= p->now->plan.n_vars))
        status = f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE, "the program has no variable %d", index);
    if (status == F8_OK && from)
        status = f8_program_may_change(p, "fp8c_program_write", &diag);
    if (status == F8_OK)
        status = f8_sums_look(p, (uint32_t)index, &diag);
    /* Ranks run `prepare` together, and a watcher's read runs nothing: there a reader gets what is
     * there. */
    if (status == F8_OK && to && p->var[index].made && p->codes.stale && !f8_program_comm(p) &&
        !p->watched)
        status = f8_program_renew(p, &diag);
    bool keeps = false;
    if (status == F8_OK && from)
        status = f8_codes_keep(p, (uint32_t)index, from, &keeps, &diag);
    if (status == F8_OK)
        status = to ? p->now->instance.kind->read(&p->now->instance, (uint32_t)index, to, &diag)
                    : p->now->instance.kind->write(&p->now->instance, (uint32_t)index, from, &diag);
    if (status == F8_OK && !to)
        f8_variable_set(p, (uint32_t)index);
    p->codes.stale &= !keeps;
    return f8_api_result(p->ctx, &diag, status);
}

fp8c_status fp8c_program_read(fp8c_program *p, int variable, void *to)
{
    return copy_variable(p, variable, to, NULL);
}

fp8c_status fp8c_program_write(fp8c_program *p, int variable, const void *from)
{
    return copy_variable(p, variable, NULL, from);
}

fp8c_status fp8c_program_quantize(fp8c_program *p, int variable, const float *from,
                                  const float *scale)
{
    f8_diag diag = {0};
    f8_status status = f8_program_has_memory(p, &diag);
    if (status == F8_OK)
        status = f8_program_may_change(p, "fp8c_program_quantize", &diag);
    if (status == F8_OK)
        status = f8_program_quantize(p, variable, from, scale, &diag);
    return f8_api_result(p->ctx, &diag, status);
}

/* ---- decisions and figures ---- */

void fp8c_program_info(const fp8c_program *p, fp8c_info *out)
{
    fp8c_info own = {.struct_size = sizeof own,
                     .compile_seconds = p->now->report.compile_seconds,
                     .linears = p->now->report.linears,
                     .fp8_gemms_planned = p->now->report.fp8_gemms,
                     .threads = 1,
                     .distinct_kernels = p->now->plan.n_kernels,
                     .code_bytes = p->now->plan.blob_bytes,
                     .kernels_cached = p->now->report.kernels_cached,
                     .tuning_table = p->now->report.tuning_table};
    if (p->now->instance.kind) {
        f8_instance_info run;
        p->now->instance.kind->info(&p->now->instance, &run);
        own.planned_bytes = run.planned_bytes;
        own.peak_bytes = run.peak_bytes;
        own.held_bytes = run.held_bytes;
        own.gemms_executed = run.count.gemms;
        own.fp8_gemms_executed = run.count.fp8_gemms;
        own.kernels_executed = run.count.kernels;
        own.threads = run.threads;
    } else {
        own.planned_bytes = p->now->report.planned;
    }
    for (uint32_t i = 0; i < p->now->plan.n_images; i++)
        own.code_bytes += p->now->plan.image[i].size;
    for (uint32_t f = 0; f < p->now->plan.n_funcs; f++)
        if (p->now->plan.func[f].arena_bytes > own.arena_bytes) {
            own.arena_bytes = p->now->plan.func[f].arena_bytes;
            own.arena_lower_bound = p->now->plan.func[f].lower_bound;
        }
    f8_api_give(out, &own);
}

const char *fp8c_program_target(const fp8c_program *p)
{
    return p->now->plan.target;
}

fp8c_status fp8c_program_device(fp8c_program *p, fp8c_device *out)
{
    f8_diag diag = {0};
    if (!p->now->instance.cuda)
        return f8_api_result(
            p->ctx, &diag,
            f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE, "the program does not run on a GPU"));
    f8_cuda_facts facts;
    const f8_status status = f8_cuda_device_facts(p->cuda, &facts, &diag);
    if (status != F8_OK)
        return f8_api_result(p->ctx, &diag, status);
    fp8c_device own = {.struct_size = sizeof own,
                       .compute_capability = facts.sm,
                       .driver = facts.driver,
                       .multiprocessors = facts.multiprocessors,
                       .memory = facts.memory,
                       .memory_free = facts.memory_free};
    memcpy(own.name, facts.name, sizeof own.name);
    own.name[sizeof own.name - 1] = 0;
    f8_api_give(out, &own);
    return FP8C_OK;
}

fp8c_status fp8c_program_image(const fp8c_program *p, int index, fp8c_image *out)
{
    if (index < 0 || (size_t)index >= p->now->report.n_images)
        return FP8C_ERR_INPUT;
    const f8_build_image *from = &p->now->report.image[index];
    *out = (fp8c_image){.llvm = from->llvm, .cuda = from->cuda, .ptx = from->ptx, .log = from->log};
    if ((uint32_t)index < p->now->plan.n_images) {
        out->cubin = p->now->plan.image[index].bytes;
        out->cubin_size = (size_t)p->now->plan.image[index].size;
    }
    return FP8C_OK;
}

fp8c_status fp8c_program_kernel(const fp8c_program *p, int index, fp8c_kernel *out)
{
    if (index < 0 || (size_t)index >= p->now->report.n_kernels)
        return FP8C_ERR_INPUT;
    const f8_build_kernel *k = &p->now->report.kernel[index];
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
                         .bulk = k->bulk,
                         .seconds = k->seconds};
    return FP8C_OK;
}

fp8c_status fp8c_program_decision(const fp8c_program *p, int index, fp8c_decision *out)
{
    if (index < 0 || (size_t)index >= p->now->report.n_decisions)
        return FP8C_ERR_INPUT;
    const f8_decision *d = &p->now->report.decision[index];
    *out = (fp8c_decision){d->linear, d->role, d->a, d->b,     d->scaling, d->reason,
                           d->m,      d->n,    d->k, d->count, d->fp8};
    return FP8C_OK;
}

/* The index of the step that waits for step `index`; 0: none does. */
static uint32_t wait_of(const f8_plan_func *f, uint32_t index)
{
    for (uint32_t i = index + 1; i < f->n_steps; i++)
        if (f->step[i].kind == F8_STEP_WAIT && f->step[i].waits == index)
            return i;
    return 0;
}

static fp8c_collective collective_of(const fp8c_program *p, uint32_t function, uint32_t index)
{
    const f8_exec *cpu = p->now->instance.cpu;
    const f8_plan_func *f = &p->now->plan.func[function];
    const f8_collective_desc *d = &f->step[index].collective;
    const uint32_t wait = wait_of(f, index);
    fp8c_collective c = {.op = f8_collective_name[d->kind],
                         .ranks = d->ranks,
                         .bytes = d->bytes,
                         .dtype = (fp8c_dtype)d->dtype,
                         .wait = (int32_t)wait,
                         .goes_on = wait != 0};
    if (d->kind == F8_COLLECTIVE_ALL_SLICE)
        c.bytes = 0;
    else if (d->kind == F8_COLLECTIVE_ALL_REDUCE) /* a ring: parts are summed, then gathered */
        c.bytes = 2 * (d->bytes + d->ranks - 1) / d->ranks;
    for (uint32_t i = index + 1; i < wait; i++)
        c.beside += f->step[i].kind != F8_STEP_COLLECTIVE && f->step[i].kind != F8_STEP_WAIT;
    if (wait && cpu) {
        c.goes_on = f8_exec_goes_on(cpu);
        c.queued = f8_exec_queued_seconds(cpu, function, index);
        c.waited = f8_exec_step_seconds(cpu, function, wait);
    }
    return c;
}

fp8c_status fp8c_program_step(const fp8c_program *p, int function, int index, fp8c_step *out)
{
    if (function < 0 || (uint32_t)function >= p->now->plan.n_funcs || index < 0 ||
        (uint32_t)index >= p->now->plan.func[function].n_steps)
        return FP8C_ERR_INPUT;
    static const char *const kinds[] = {[F8_STEP_KERNEL] = "kernel",
                                        [F8_STEP_GEMM] = "gemm",
                                        [F8_STEP_COPY] = "copy",
                                        [F8_STEP_ATTENTION] = "attention",
                                        [F8_STEP_COLLECTIVE] = "collective",
                                        [F8_STEP_WAIT] = "wait"};
    static const char *const does[] = {
        [F8_DOES_ROWS] = "rows", [F8_DOES_ATTENTION] = "attention", [F8_DOES_COPY] = "copy"};
    const f8_instance *instance = &p->now->instance;
    const uint32_t f = (uint32_t)function, i = (uint32_t)index;
    const f8_step *s = &p->now->plan.func[f].step[i];
    *out = (fp8c_step){.name = s->name,
                       .kind = kinds[s->kind],
                       .phases = (int32_t)s->n_phases,
                       .hash = s->hash,
                       .bytes_read = s->bytes_read,
                       .bytes_written = s->bytes_written,
                       .work = s->kind == F8_STEP_KERNEL ? does[s->does] : kinds[s->kind],
                       .flops = s->flops,
                       .estimated = s->seconds};
    if (instance->kind) {
        out->gap = instance->kind->step_gap ? instance->kind->step_gap(instance, f, i) : 0;
        out->seconds = instance->kind->step_seconds(instance, f, i);
        out->algorithm = instance->kind->algorithm(instance, f, i);
    }
    if (!out->algorithm && s->kind == F8_STEP_GEMM && s->gemm.algorithm != F8_GEMM_AUTO)
        out->algorithm =
            f8_gemm_algorithm_name(s->gemm.algorithm); /* the plan of a file names it */
    if (s->kind == F8_STEP_COLLECTIVE)
        out->collective = collective_of(p, f, i);
    return FP8C_OK;
}

fp8c_status fp8c_program_pass(const fp8c_program *p, int index, fp8c_pass *out)
{
    if (index < 0 || (size_t)index >= p->now->report.n_times)
        return FP8C_ERR_INPUT;
    const f8_pass_time *t = &p->now->report.time[index];
    *out = (fp8c_pass){t->name, t->seconds, t->nodes};
    return FP8C_OK;
}

fp8c_status fp8c_recipe_canonical(fp8c_context *ctx, const char *recipe, char *text, size_t size)
{
    f8_recipe parsed;
    f8_diag diag = {0};
    const f8_status status = f8_recipe_parse(recipe, F8_NOWHERE, &parsed, &diag);
    if (status != F8_OK)
        return f8_api_result(ctx, &diag, status);
    f8_recipe_print(&parsed, text, size);
    return FP8C_OK;
}
