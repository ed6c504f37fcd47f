/* Instances: see instance.h. */
#include "frontend/instance.h"

#include <string.h>

#include "codegen/reference/reference.h"
#include "ir/base/pattern.h"
#include "runtime/copy.h"

static f8_status created(f8_instance *i, const f8_instance_kind *kind, f8_status status)
{
    i->kind = kind;
    if (status != F8_OK)
        f8_instance_destroy(i);
    return status;
}

void f8_instance_destroy(f8_instance *i)
{
    if (i->kind)
        i->kind->destroy(i);
    *i = (f8_instance){0};
}

/* ---- what targets with variables in host memory share ---- */

static f8_status host_read(f8_instance *i, uint32_t var, void *to, f8_diag *diag)
{
    const void *at = i->kind->var(i, var);
    if (!at)
        return f8_unbound_variable(i->plan->var[var].name, diag);
    memcpy(to, at, (size_t)f8_type_bytes(&i->plan->var[var].type));
    return F8_OK;
}

static f8_status host_write(f8_instance *i, uint32_t var, const void *from, f8_diag *diag)
{
    void *at = i->kind->var(i, var);
    if (!at)
        return f8_unbound_variable(i->plan->var[var].name, diag);
    memcpy(at, from, (size_t)f8_type_bytes(&i->plan->var[var].type));
    return F8_OK;
}

static f8_status host_clear(f8_instance *i, uint32_t var, f8_diag *diag)
{
    void *at = i->kind->var(i, var);
    if (!at)
        return f8_unbound_variable(i->plan->var[var].name, diag);
    memset(at, 0, (size_t)f8_type_bytes(&i->plan->var[var].type));
    return F8_OK;
}

static const char *no_algorithm(const f8_instance *i, uint32_t func, uint32_t step)
{
    (void)i, (void)func, (void)step;
    return NULL;
}

static f8_status host_wait(f8_instance *i, f8_diag *diag)
{
    (void)i, (void)diag;
    return F8_OK;
}

/* ---- the CPU ---- */

static void cpu_destroy(f8_instance *i)
{
    f8_exec_destroy(i->cpu);
}

static void *cpu_var(f8_instance *i, uint32_t var)
{
    return f8_exec_var(i->cpu, var);
}

static void cpu_bind_var(f8_instance *i, uint32_t var, void *at)
{
    f8_exec_bind_var(i->cpu, var, at);
}

static f8_status cpu_init(f8_instance *i, uint64_t seed, const bool *keep, f8_diag *diag)
{
    return f8_exec_init(i->cpu, seed, keep, diag);
}

static void *cpu_port(f8_instance *i, uint32_t func, int side, uint32_t port)
{
    return f8_exec_port(i->cpu, func, side, port);
}

static f8_status cpu_bind(f8_instance *i, uint32_t func, int side, uint32_t port, void *buffer,
                          f8_diag *diag)
{
    (void)diag;
    f8_exec_bind(i->cpu, func, side, port, buffer);
    return F8_OK;
}

static f8_status cpu_alloc(f8_instance *i, int64_t bytes, f8_block *out, f8_diag *diag)
{
    return f8_exec_alloc(i->cpu, bytes, out, diag);
}

static void cpu_free(f8_instance *i, f8_block *block)
{
    f8_exec_free(i->cpu, block);
}

static f8_status cpu_run(f8_instance *i, uint32_t func, f8_diag *diag)
{
    return f8_exec_run(i->cpu, func, diag);
}

static void cpu_info(const f8_instance *i, f8_instance_info *out)
{
    *out = (f8_instance_info){f8_exec_planned_bytes(i->cpu), f8_exec_peak_bytes(i->cpu),
                              f8_exec_held_bytes(i->cpu), f8_exec_count(i->cpu),
                              f8_exec_threads(i->cpu)};
}

static void cpu_observe(f8_instance *i, const f8_observer *observer)
{
    f8_exec_observe(i->cpu, observer);
}

static f8_status cpu_fetch(f8_instance *i, uint32_t func, const f8_arg *from, int64_t bytes,
                           void *to, f8_diag *diag)
{
    return f8_exec_fetch(i->cpu, func, from, bytes, to, diag);
}

static const void *cpu_look(f8_instance *i, uint32_t func, const f8_arg *at)
{
    return f8_exec_look(i->cpu, func, at);
}

static double cpu_seconds(const f8_instance *i, uint32_t func, uint32_t step)
{
    return f8_exec_step_seconds(i->cpu, func, step);
}

static double cpu_first_seconds(const f8_instance *i, uint32_t func, uint32_t step, double *gap)
{
    *gap = 0;
    return f8_exec_first_seconds(i->cpu, func, step);
}

static const char *cpu_algorithm(const f8_instance *i, uint32_t func, uint32_t step)
{
    return f8_exec_algorithm(i->cpu, func, step);
}

f8_status f8_instance_create_cpu(f8_instance *i, const f8_plan *plan,
                                 const f8_exec_options *options, f8_diag *diag)
{
    static const f8_instance_kind kind = {
        .destroy = cpu_destroy,
        .var = cpu_var,
        .bind_var = cpu_bind_var,
        .read = host_read,
        .write = host_write,
        .clear = host_clear,
        .init = cpu_init,
        .port = cpu_port,
        .bind = cpu_bind,
        .alloc = cpu_alloc,
        .free = cpu_free,
        .run = cpu_run,
        .wait = host_wait,
        .info = cpu_info,
        .observe = cpu_observe,
        .fetch = cpu_fetch,
        .look = cpu_look,
        .step_seconds = cpu_seconds,
        .first_seconds = cpu_first_seconds,
        .algorithm = cpu_algorithm,
    };
    *i = (f8_instance){.plan = plan};
    return created(i, &kind, f8_exec_create(plan, options, &i->cpu, diag));
}

/* ---- a GPU ---- */

static void cuda_destroy(f8_instance *i)
{
    f8_cuda_exec_destroy(i->cuda);
}

static void *cuda_var(f8_instance *i, uint32_t var)
{
    (void)i, (void)var;
    return NULL;
}

static f8_status cuda_read(f8_instance *i, uint32_t var, void *to, f8_diag *diag)
{
    return f8_cuda_exec_read(i->cuda, var, to, diag);
}

static f8_status cuda_write(f8_instance *i, uint32_t var, const void *from, f8_diag *diag)
{
    return f8_cuda_exec_write(i->cuda, var, from, diag);
}

static f8_status cuda_clear(f8_instance *i, uint32_t var, f8_diag *diag)
{
    return f8_cuda_exec_clear(i->cuda, var, diag);
}

static void cuda_bind_var(f8_instance *i, uint32_t var, void *at)
{
    f8_cuda_exec_bind_var(i->cuda, var, at);
}

static f8_status cuda_init(f8_instance *i, uint64_t seed, const bool *keep, f8_diag *diag)
{
    return f8_cuda_exec_init(i->cuda, seed, keep, diag);
}

static void *cuda_port(f8_instance *i, uint32_t func, int side, uint32_t port)
{
    return f8_cuda_exec_port(i->cuda, func, side, port);
}

static f8_status cuda_bind(f8_instance *i, uint32_t func, int side, uint32_t port, void *buffer,
                           f8_diag *diag)
{
    return f8_cuda_exec_bind(i->cuda, func, side, port, buffer, diag);
}

static f8_status cuda_alloc(f8_instance *i, int64_t bytes, f8_block *out, f8_diag *diag)
{
    return f8_cuda_exec_alloc(i->cuda, bytes, out, diag);
}

static void cuda_free(f8_instance *i, f8_block *block)
{
    f8_cuda_exec_free(i->cuda, block);
}

static f8_status cuda_run(f8_instance *i, uint32_t func, f8_diag *diag)
{
    return f8_cuda_exec_run(i->cuda, func, diag);
}

static f8_status cuda_wait(f8_instance *i, f8_diag *diag)
{
    return f8_cuda_exec_wait(i->cuda, diag);
}

static void cuda_info(const f8_instance *i, f8_instance_info *out)
{
    *out = (f8_instance_info){f8_cuda_exec_planned_bytes(i->cuda), f8_cuda_exec_peak_bytes(i->cuda),
                              f8_cuda_exec_held_bytes(i->cuda), f8_cuda_exec_count(i->cuda), 1};
}

static void cuda_observe(f8_instance *i, const f8_observer *observer)
{
    f8_cuda_exec_observe(i->cuda, observer);
}

static f8_status cuda_fetch(f8_instance *i, uint32_t func, const f8_arg *from, int64_t bytes,
                            void *to, f8_diag *diag)
{
    return f8_cuda_exec_fetch(i->cuda, func, from, bytes, to, diag);
}

static double cuda_seconds(const f8_instance *i, uint32_t func, uint32_t step)
{
    return f8_cuda_exec_step_seconds(i->cuda, func, step);
}

static double cuda_gap(const f8_instance *i, uint32_t func, uint32_t step)
{
    return f8_cuda_exec_step_gap(i->cuda, func, step);
}

static double cuda_first_seconds(const f8_instance *i, uint32_t func, uint32_t step, double *gap)
{
    return f8_cuda_exec_first_seconds(i->cuda, func, step, gap);
}

static const char *cuda_algorithm(const f8_instance *i, uint32_t func, uint32_t step)
{
    return f8_cuda_exec_step_algorithm(i->cuda, func, step);
}

f8_status f8_instance_create_cuda(f8_instance *i, const f8_plan *plan, f8_cuda *cuda,
                                  const f8_cuda_exec_options *options, f8_diag *diag)
{
    static const f8_instance_kind kind = {
        .destroy = cuda_destroy,
        .var = cuda_var,
        .bind_var = cuda_bind_var,
        .read = cuda_read,
        .write = cuda_write,
        .clear = cuda_clear,
        .init = cuda_init,
        .port = cuda_port,
        .bind = cuda_bind,
        .alloc = cuda_alloc,
        .free = cuda_free,
        .run = cuda_run,
        .wait = cuda_wait,
        .info = cuda_info,
        .observe = cuda_observe,
        .fetch = cuda_fetch,
        .step_seconds = cuda_seconds,
        .step_gap = cuda_gap,
        .first_seconds = cuda_first_seconds,
        .algorithm = cuda_algorithm,
    };
    *i = (f8_instance){.plan = plan};
    return created(i, &kind, f8_cuda_exec_create(plan, cuda, options, &i->cuda, diag));
}

/* ---- the reference interpreter ---- */

/* NULL: it is external, or there is no memory. */
static void *reference_memory(f8_instance *i, const char *external, const char *name,
                              const f8_type *type)
{
    return f8_patterns_match(external, name)
               ? NULL
               : f8_arena_array(&i->memory, 1, (size_t)f8_type_bytes(type));
}

/* A function's form for an empty history has the same buffers, and perhaps more ports. */
static f8_status reference_ports(f8_instance *i, uint32_t func, const char *external)
{
    const uint32_t first = i->plan->func[func].first;
    for (int side = 0; side < 2; side++) {
        uint32_t n, room;
        f8_plan_ports(&i->plan->func[first ? first - 1 : func], side, &room);
        const f8_plan_port *port = f8_plan_ports(&i->plan->func[func], side, &n);
        void **own = F8_NEW_ARRAY(&i->memory, void *, room),
             **bound = F8_NEW_ARRAY(&i->memory, void *, room);
        if (!own || !bound)
            return F8_ERR_MEMORY;
        i->own[side][func] = own;
        i->bound[side][func] = bound;
        if (first) {
            i->own[side][first - 1] = own;
            i->bound[side][first - 1] = bound;
        }
        for (uint32_t k = 0; k < n; k++) {
            if (port[k].var < 0)
                own[k] = reference_memory(i, external, port[k].name, &port[k].type);
            bound[k] = own[k];
        }
    }
    return F8_OK;
}

static f8_status reference_allocate(f8_instance *i, const f8_instance *like, const char *external,
                                    f8_diag *diag)
{
    const f8_plan *p = i->plan;
    i->var = like ? like->var : F8_NEW_ARRAY(&i->memory, void *, p->n_vars);
    i->own_var = like ? like->own_var : F8_NEW_ARRAY(&i->memory, void *, p->n_vars);
    for (int side = 0; side < 2; side++) {
        i->own[side] = F8_NEW_ARRAY(&i->memory, void **, p->n_funcs);
        i->bound[side] = F8_NEW_ARRAY(&i->memory, void **, p->n_funcs);
    }
    F8_TRY(f8_arena_status(&i->memory, diag));
    for (size_t v = 0; v < p->n_vars && !like; v++)
        i->var[v] = i->own_var[v] = reference_memory(i, external, p->var[v].name, &p->var[v].type);
    for (uint32_t f = 0; f < p->n_funcs && !i->memory.failed; f++)
        if (f8_plan_base(p->func, p->n_funcs, f) == f)
            reference_ports(i, f, external);
    return f8_arena_status(&i->memory, diag);
}

static void reference_destroy(f8_instance *i)
{
    f8_arena_end(&i->memory);
}

static void *reference_var(f8_instance *i, uint32_t var)
{
    return i->var[var];
}

static void reference_bind_var(f8_instance *i, uint32_t var, void *at)
{
    i->var[var] = at ? at : i->own_var[var];
}

static f8_status reference_init(f8_instance *i, uint64_t seed, const bool *keep, f8_diag *diag)
{
    (void)diag;
    for (uint32_t v = 0; v < i->plan->n_vars; v++)
        if (i->var[v] && !(keep && keep[v]))
            f8_init_var(&i->plan->var[v], i->comm ? i->comm->rank : 0, seed, NULL, i->var[v]);
    return F8_OK;
}

static void *reference_port(f8_instance *i, uint32_t func, int side, uint32_t port)
{
    uint32_t n;
    const int32_t var = f8_plan_ports(&i->plan->func[func], side, &n)[port].var;
    return var >= 0 ? i->var[var] : i->bound[side][func][port];
}

static f8_status reference_bind(f8_instance *i, uint32_t func, int side, uint32_t port,
                                void *buffer, f8_diag *diag)
{
    (void)diag;
    i->bound[side][func][port] = buffer ? buffer : i->own[side][func][port];
    return F8_OK;
}

static f8_status reference_alloc(f8_instance *i, int64_t bytes, f8_block *out, f8_diag *diag)
{
    void *at = bytes ? i->allocator.alloc(i->allocator.user, (size_t)bytes, F8_ARENA_ALIGN) : NULL;
    if (bytes && !at)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %lld bytes were wanted",
                       (long long)bytes);
    *out = (f8_block){(uintptr_t)at, bytes};
    return F8_OK;
}

static void reference_free(f8_instance *i, f8_block *block)
{
    if (block->at)
        i->allocator.free(i->allocator.user, (void *)(uintptr_t)block->at, (size_t)block->bytes);
    *block = (f8_block){0};
}

static f8_status reference_run(f8_instance *i, uint32_t func, f8_diag *diag)
{
    const f8_plan *plan = i->plan;
    const uint32_t base = f8_plan_base(plan->func, plan->n_funcs, func);
    for (int side = 0; side < 2; side++) {
        uint32_t n;
        const f8_plan_port *p = f8_plan_ports(&plan->func[func], side, &n);
        for (uint32_t k = 0; k < n; k++, p++) {
            void **at = &i->bound[side][func][k];
            if (p->var >= 0)
                *at = i->var[p->var];
            if (!*at)
                return p->var >= 0 ? f8_unbound_variable(i->plan->var[p->var].name, diag)
                                   : f8_unbound_port(side, p->name, plan->func[base].name, diag);
        }
    }
    return f8_reference_run_rank(&i->module->func[func], (const void *const *)i->bound[0][func],
                                 (void *const *)i->bound[1][func], i->comm, &i->allocator, diag);
}

static void reference_info(const f8_instance *i, f8_instance_info *out)
{
    (void)i;
    *out = (f8_instance_info){.threads = 1};
}

static double reference_seconds(const f8_instance *i, uint32_t func, uint32_t step)
{
    (void)i, (void)func, (void)step;
    return 0;
}

f8_status f8_instance_create_reference(f8_instance *i, const f8_module *module, const f8_plan *plan,
                                       const f8_instance *like, const f8_comm *comm,
                                       const char *external, const f8_allocator *allocator,
                                       f8_diag *diag)
{
    static const f8_instance_kind kind = {
        .destroy = reference_destroy,
        .var = reference_var,
        .bind_var = reference_bind_var,
        .read = host_read,
        .write = host_write,
        .clear = host_clear,
        .init = reference_init,
        .port = reference_port,
        .bind = reference_bind,
        .alloc = reference_alloc,
        .free = reference_free,
        .run = reference_run,
        .wait = host_wait,
        .info = reference_info,
        .step_seconds = reference_seconds,
        .algorithm = no_algorithm,
    };
    *i = (f8_instance){.plan = plan, .module = module, .comm = comm, .allocator = *allocator};
    f8_arena_init(&i->memory, allocator);
    return created(i, &kind, reference_allocate(i, like, external, diag));
}
