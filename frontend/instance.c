/* Instances: see instance.h. */
#include "frontend/instance.h"

#include "codegen/reference.h"
#include "runtime/copy.h"

/* ---- the reference target's memory ---- */

static f8_status reference_ports(f8_instance *i, uint32_t func)
{
    const f8_func *f = &i->module->func[func];
    for (int side = 0; side < 2; side++) {
        const size_t n = side ? f->n_out : f->n_in;
        const f8_port *port = side ? f->out : f->in;
        void **own = F8_NEW_ARRAY(&i->memory, void *, n), **bound = F8_NEW_ARRAY(&i->memory, void *, n);
        if (!own || !bound)
            return F8_ERR_MEMORY;
        i->own[side][func] = own;
        i->bound[side][func] = bound;
        for (size_t k = 0; k < n; k++) {
            own[k] = port[k].var >= 0
                         ? i->var[port[k].var]
                         : f8_arena_array(&i->memory, 1, (size_t)f8_type_bytes(&port[k].type));
            bound[k] = own[k];
        }
    }
    return F8_OK;
}

static f8_status reference_create(f8_instance *i, f8_diag *diag)
{
    const f8_module *m = i->module;
    i->var = F8_NEW_ARRAY(&i->memory, void *, m->n_vars);
    for (int side = 0; side < 2; side++) {
        i->own[side] = F8_NEW_ARRAY(&i->memory, void **, m->n_funcs);
        i->bound[side] = F8_NEW_ARRAY(&i->memory, void **, m->n_funcs);
    }
    F8_TRY(f8_arena_status(&i->memory, diag));
    for (size_t v = 0; v < m->n_vars; v++)
        i->var[v] = f8_arena_array(&i->memory, 1, (size_t)f8_type_bytes(&m->var[v].type));
    for (uint32_t f = 0; f < m->n_funcs && !i->memory.failed; f++)
        reference_ports(i, f);
    return f8_arena_status(&i->memory, diag);
}

/* ---- life ---- */

f8_status f8_instance_create(f8_instance *i, const f8_module *module, const f8_plan *plan,
                             const f8_exec_options *options, f8_diag *diag)
{
    *i = (f8_instance){.module = module,
                       .allocator = options->allocator ? *options->allocator : f8_default_allocator()};
    f8_arena_init(&i->memory, &i->allocator);
    const f8_status status =
        plan ? f8_exec_create(plan, options, &i->exec, diag) : reference_create(i, diag);
    if (status != F8_OK)
        f8_instance_destroy(i);
    return status;
}

void f8_instance_destroy(f8_instance *i)
{
    f8_exec_destroy(i->exec);
    i->exec = NULL;
    f8_arena_end(&i->memory);
}

/* ---- buffers ---- */

void *f8_instance_var(f8_instance *i, uint32_t var)
{
    return i->exec ? f8_exec_var(i->exec, var) : i->var[var];
}

void *f8_instance_port(f8_instance *i, uint32_t func, int side, uint32_t port)
{
    return i->exec ? f8_exec_port(i->exec, func, side, port) : i->bound[side][func][port];
}

void f8_instance_bind(f8_instance *i, uint32_t func, int side, uint32_t port, void *buffer)
{
    if (i->exec)
        f8_exec_bind(i->exec, func, side, port, buffer);
    else
        i->bound[side][func][port] = buffer ? buffer : i->own[side][func][port];
}

void f8_instance_init(f8_instance *i, uint64_t seed)
{
    if (i->exec) {
        f8_exec_init(i->exec, seed);
        return;
    }
    for (size_t v = 0; v < i->module->n_vars; v++) {
        const f8_var *var = &i->module->var[v];
        const f8_plan_var p = {.name = var->name, .type = var->type, .init = (int32_t)var->init,
                               .init_arg = var->init_arg};
        f8_init_var(&p, seed, NULL, i->var[v]);
    }
}

f8_status f8_instance_run(f8_instance *i, uint32_t func, f8_diag *diag)
{
    if (i->exec)
        return f8_exec_run(i->exec, func, diag);
    return f8_reference_run(&i->module->func[func], (const void *const *)i->bound[0][func],
                            (void *const *)i->bound[1][func], &i->allocator, diag);
}
