/* Which gradients hold sums of micro-steps, and which hold nothing. `update` sets the count of
 * micro-steps to 0 and stores no zeros: the gradients that it leaves as they are count as zeros
 * from there on, and the next micro_step replaces them. See f8_gradient_sums in variables.h.
 *
 * The graph says so itself, by the count. This file does what a graph can't:
 *
 * - On a GPU the host has to know, when it enqueues a GEMM, whether it adds to its result. It knows
 *   the count from the functions that it ran, and reads it when others may have changed it.
 * - Whoever looks at a gradient sees zeros after an update. They are stored when somebody looks
 *   through this program, and after each update where others have the gradient's memory. */
#include <string.h>

#include "frontend/program.h"
#include "ir/place.h"
#include "passes/unit/pass.h"

static const f8_plan_func *find_function(const f8_plan *plan, const char *name)
{
    for (uint32_t f = 0; f < plan->n_funcs; f++)
        if (!strcmp(plan->func[f].name, name))
            return &plan->func[f];
    return NULL;
}

static bool has_port(const f8_plan_func *f, int side, int32_t variable)
{
    uint32_t n;
    const f8_plan_port *port = f8_plan_ports(f, side, &n);
    bool found = false;
    for (uint32_t i = 0; i < n && !found; i++)
        found = port[i].var == variable;
    return found;
}

void f8_sums_begin(fp8c_program *p)
{
    const f8_plan *plan = &p->first->plan;
    const f8_plan_func *update = find_function(plan, "update");
    p->sums = (f8_gradient_sums){.count = -1};
    for (uint32_t v = 0; v < plan->n_vars && update; v++) {
        const bool out = has_port(update, 1, (int32_t)v);
        if (!strcmp(plan->var[v].name, F8_COUNT_NAME) && out)
            p->sums.count = (int32_t)v;
        p->var[v].kept =
            !out && !strncmp(plan->var[v].name, "grad.", 5) && has_port(update, 0, (int32_t)v);
    }
}

void f8_sums_forget(fp8c_program *p)
{
    p->sums.known = false;
}

/* ---- zeros ---- */

/* lent: those whose memory others have, or else the others. */
static f8_status store_zeros(fp8c_program *p, bool lent, f8_diag *diag)
{
    f8_instance *instance = &p->now->instance;
    for (uint32_t v = 0; v < p->first->plan.n_vars; v++)
        if (p->var[v].kept && (p->var[v].lent || p->sums.shared) == lent && p->var[v].at)
            F8_TRY(instance->kind->clear(instance, v, diag));
    return F8_OK;
}

f8_status f8_sums_settle(fp8c_program *p, f8_diag *diag)
{
    if (!p->var || !p->sums.stale)
        return F8_OK;
    p->sums.stale = false;
    return store_zeros(p, false, diag);
}

f8_status f8_sums_look(fp8c_program *p, uint32_t variable, f8_diag *diag)
{
    return p->var && (p->var[variable].kept || (int32_t)variable == p->sums.count)
               ? f8_sums_settle(p, diag)
               : F8_OK;
}

f8_status f8_sums_lend(fp8c_program *p, uint32_t variable, f8_diag *diag)
{
    F8_TRY(f8_sums_look(p, variable, diag));
    if (p->var)
        p->var[variable].lent = true;
    p->sums.shared |= (int32_t)variable == p->sums.count;
    return F8_OK;
}

/* ---- runs ---- */

/* Tells a GPU's executor, before a function that reads the count, what it is. */
static f8_status tell(fp8c_program *p, f8_diag *diag)
{
    f8_gradient_sums *s = &p->sums;
    f8_instance *instance = &p->now->instance;
    if (!s->known || s->shared)
        F8_TRY(instance->kind->read(instance, (uint32_t)s->count, &s->value, diag));
    s->known = true;
    f8_cuda_exec_begin_sums(instance->cuda, !(s->value > 0));
    return F8_OK;
}

f8_status f8_sums_run(fp8c_program *p, uint32_t function, f8_diag *diag)
{
    f8_gradient_sums *s = &p->sums;
    f8_instance *instance = &p->now->instance;
    const f8_plan_func *f = &p->now->plan.func[function];
    const bool counts = s->count >= 0 && has_port(f, 1, s->count),
               resets = counts && !f8_is_micro_step(f->name);
    if (counts && instance->cuda)
        F8_TRY(tell(p, diag));
    if (!counts)
        return instance->kind->run(instance, function, diag);
    const float value = s->value;
    const bool known = s->known, stale = s->stale;
    s->known = s->stale = false; /* who looks on may read what the run has stored */
    const f8_status status = instance->kind->run(instance, function, diag);
    if (status != F8_OK) {
        s->stale = stale;
        return status;
    }
    s->value = resets ? 0 : value + 1;
    s->known = resets || known;
    s->stale = resets;
    return resets ? store_zeros(p, true, diag) : F8_OK;
}
