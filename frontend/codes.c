/* Codes of weights that a program keeps (passes/scale/codes.c), and whether they are those of its
 * weights. See f8_kept_codes in variables.h.
 *
 * `update` writes them with the weights, and `prepare` makes them of the weights as they are. So
 * they are stale once anybody else has given a weight, or a scale, another value. Then `prepare`
 * runs before the next function that reads them. The amaxes that weights' scales follow from under
 * `delayed` are kept in the same way, also with `requantize`: it changes no bit. Who has a weight's
 * memory may write there at any time. Then `prepare` runs before each such function, which costs
 * about what quantizing the weights in it would. Where nothing is stale, `prepare` changes no bit.
 */
#include <string.h>

#include "frontend/program.h"
#include "passes/unit/pass.h"

/* Marks what `prepare` reads and writes. Gives whether it writes codes, or amaxes of weights that
 * `update` knows scales from. */
static bool mark(fp8c_program *p, const f8_plan_func *prepare)
{
    const f8_plan *plan = &p->first->plan;
    bool keeps = p->codes.n > 0;
    for (uint32_t i = 0; i < prepare->n_out; i++) {
        const int32_t v = prepare->out[i].var;
        if (v < 0)
            continue;
        p->var[v].prepared = true;
        keeps |= !strcmp(plan->var[v].name, "fp8.amax");
    }
    for (uint32_t i = 0; keeps && i < prepare->n_in; i++)
        if (prepare->in[i].var >= 0)
            p->var[prepare->in[i].var].made_of = true;
    return keeps;
}

void f8_codes_begin(fp8c_program *p)
{
    const f8_plan *plan = &p->first->plan;
    f8_kept_codes *c = &p->codes;
    *c = (f8_kept_codes){.prepare = -1, .stale = true};
    for (uint32_t v = 0; v < plan->n_vars; v++) {
        p->var[v].made = f8_is_weight_codes(plan->var[v].name);
        c->n += p->var[v].made;
    }
    for (uint32_t f = 0; f < plan->n_funcs; f++)
        if (!strcmp(plan->func[f].name, "prepare") && mark(p, &plan->func[f]))
            c->prepare = (int32_t)f;
}

void f8_codes_changed(fp8c_program *p, uint32_t variable)
{
    p->codes.stale |= p->var[variable].made_of || p->var[variable].made;
}

f8_status f8_codes_keep(fp8c_program *p, uint32_t variable, const void *value, bool *keeps,
                        f8_diag *diag)
{
    const f8_elements *e = f8_elements_of(&p->first->report, (int)variable);
    const f8_allocator *a = &p->ctx->allocator;
    *keeps = p->codes.prepare >= 0 && e && !p->codes.stale && p->var[variable].made_of;
    if (!*keeps)
        return F8_OK;
    const size_t bytes = (size_t)f8_type_bytes(&p->first->plan.var[variable].type),
                 each = bytes / (size_t)e->n;
    uint8_t *was = a->alloc(a->user, bytes, 64);
    if (!was)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       bytes);
    f8_instance *instance = &p->now->instance;
    const f8_status status = instance->kind->read(instance, variable, was, diag);
    for (int64_t i = 0; status == F8_OK && i < e->n && *keeps; i++)
        *keeps = !e->is_param[i] ||
                 !memcmp(was + (size_t)i * each, (const uint8_t *)value + (size_t)i * each, each);
    a->free(a->user, was, bytes);
    return status;
}

static bool is_weight(const fp8c_program *p, uint32_t variable)
{
    return p->var && p->var[variable].made_of && p->first->plan.var[variable].is_param;
}

void f8_codes_lend(fp8c_program *p, uint32_t variable)
{
    p->codes.viewed |= is_weight(p, variable);
}

void f8_codes_moved(fp8c_program *p, uint32_t variable)
{
    if (!is_weight(p, variable))
        return;
    p->codes.bound = false;
    for (uint32_t v = 0; v < p->first->plan.n_vars && !p->codes.bound; v++)
        p->codes.bound = is_weight(p, v) && p->var[v].at && p->var[v].at != p->var[v].own;
}

/* Whether a function reads what `prepare` writes. */
static bool reads_made(const fp8c_program *p, const f8_plan_func *f)
{
    bool any = false;
    for (uint32_t i = 0; i < f->n_in && !any; i++)
        any = f->in[i].var >= 0 && p->var[f->in[i].var].prepared;
    return any;
}

bool f8_codes_wanting(const fp8c_program *p, int function)
{
    const f8_kept_codes *c = &p->codes;
    const bool lent = c->viewed || c->bound;
    return c->prepare >= 0 && function != c->prepare && (c->stale || lent) &&
           reads_made(p, &p->now->plan.func[function]);
}

f8_status f8_codes_run(fp8c_program *p, uint32_t function, f8_diag *diag)
{
    const bool makes = (int32_t)function == p->codes.prepare;
    const f8_status status = f8_sums_run(p, function, diag);
    if (makes || status != F8_OK)
        p->codes.stale = status != F8_OK;
    return status;
}
