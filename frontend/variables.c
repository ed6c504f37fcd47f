/* Where a program's variables are, and which have values: see variables.h. */
#include "frontend/variables.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "frontend/program.h"
#include "ir/base/pattern.h"
#include "passes/unit/pass.h"

static int64_t bytes_of(const fp8c_program *p, uint32_t v)
{
    return f8_type_bytes(&p->first->plan.var[v].type);
}

/* ---- ranks ---- */

f8_type f8_variable_whole(const fp8c_program *p, uint32_t variable)
{
    const f8_plan_var *var = &p->now->plan.var[variable];
    f8_type t = var->type;
    if (var->rows)
        t.dim[0] = var->rows;
    return t;
}

void f8_variable_part(const fp8c_program *p, uint32_t variable, const void *whole, void *to)
{
    const f8_comm *comm = f8_program_comm(p);
    const f8_type t = f8_variable_whole(p, variable);
    const size_t bytes = (size_t)f8_type_bytes(&t), part = (size_t)bytes_of(p, variable),
                 begin = comm ? part * (size_t)comm->rank : 0,
                 left = begin < bytes ? bytes - begin : 0;
    memset(to, 0, part);
    memcpy(to, (const uint8_t *)whole + (left ? begin : 0), left < part ? left : part);
}

/* ---- life ---- */

bool f8_is_external(const fp8c_program *p, const char *name)
{
    return f8_patterns_match(p->run.external, name);
}

static bool matches_port(const char *pattern, const f8_plan_port *port, uint32_t n)
{
    bool any = false;
    for (uint32_t i = 0; i < n && !any; i++)
        any = port[i].var < 0 && f8_pattern_match(pattern, port[i].name);
    return any;
}

static bool matches_any(const char *pattern, const f8_plan *plan)
{
    bool any = false;
    for (uint32_t i = 0; i < plan->n_vars && !any; i++)
        any = f8_pattern_match(pattern, plan->var[i].name);
    for (uint32_t i = 0; i < plan->n_funcs && !any; i++)
        any = matches_port(pattern, plan->func[i].in, plan->func[i].n_in) ||
              matches_port(pattern, plan->func[i].out, plan->func[i].n_out);
    return any;
}

/* How many values a pair saves its caller can't know before: none, perhaps. */
static bool is_saved_of_pair(const char *pattern, const f8_plan *plan)
{
    bool any = false;
    for (uint32_t i = 0; i < plan->n_funcs; i++)
        any |= !strcmp(plan->func[i].name, "backward");
    return any && !strcmp(pattern, F8_SAVED "*");
}

/* The option `external` lists patterns with commas between them. F8_ERR_INPUT: one of them matches
 * no variable and no port. */
static f8_status check_external(fp8c_program *p, f8_diag *diag)
{
    const char *at = p->run.external;
    while (at) {
        const size_t n = strcspn(at, ",");
        const char *pattern = f8_arena_strndup(&p->arena, at, n);
        if (!pattern)
            return f8_arena_status(&p->arena, diag);
        if (!matches_any(pattern, &p->first->plan) && !is_saved_of_pair(pattern, &p->first->plan))
            return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                           "external '%s' matches no variable and no port of the program", pattern);
        at = at[n] ? at + n + 1 : NULL;
    }
    return F8_OK;
}

void *f8_variable_memory(const fp8c_program *p, uint32_t variable)
{
    f8_instance *instance = &p->now->instance;
    return instance->cuda ? f8_cuda_exec_var(instance->cuda, variable)
                          : instance->kind->var(instance, variable);
}

/* Finds the histories, if a function has a form for empty ones. */
static f8_status begin_histories(fp8c_program *p, f8_diag *diag)
{
    const f8_plan *plan = &p->first->plan;
    f8_histories *h = &p->histories;
    bool any = false;
    *h = (f8_histories){.variable = -1, .sure = -1};
    for (uint32_t f = 0; f < plan->n_funcs; f++)
        any |= plan->func[f].first != 0;
    for (uint32_t v = 0; v < plan->n_vars && any; v++)
        if (!strcmp(plan->var[v].name, "fp8.amax_history") && plan->var[v].type.rank == 2)
            h->variable = (int32_t)v;
    if (any && h->variable < 0)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "the program has a form for an empty amax history, and no histories");
    if (any && p->now->instance.cuda)
        h->copy = f8_arena_array(&p->arena, 1, (size_t)bytes_of(p, (uint32_t)h->variable));
    return f8_arena_status(&p->arena, diag);
}

f8_status f8_variable_lend(fp8c_program *p, uint32_t variable, f8_diag *diag)
{
    p->histories.shared |= (int32_t)variable == p->histories.variable;
    return f8_sums_lend(p, variable, diag);
}

f8_status f8_variables_begin(fp8c_program *p, f8_diag *diag)
{
    fp8c_context *ctx = p->ctx;
    const uint32_t n = p->first->plan.n_vars;
    F8_TRY(check_external(p, diag));
    if (!p->now->instance.kind)
        return F8_OK;
    p->var = F8_NEW_ARRAY(&p->arena, f8_program_variable, n + 1);
    if (!p->var)
        return f8_arena_status(&p->arena, diag);
    for (uint32_t v = 0; v < n; v++)
        p->var[v].at = p->var[v].own = (uintptr_t)f8_variable_memory(p, v);
    p->n_without_value = n;
    f8_sums_begin(p);
    f8_codes_begin(p);
    F8_TRY(begin_histories(p, diag));
    f8_variables_clear(p);
    pthread_mutex_lock(&ctx->lock);
    p->next = ctx->programs;
    ctx->programs = p;
    pthread_mutex_unlock(&ctx->lock);
    return F8_OK;
}

void f8_variables_end(fp8c_program *p)
{
    fp8c_context *ctx = p->ctx;
    pthread_mutex_lock(&ctx->lock);
    fp8c_program **link = &ctx->programs;
    while (*link && *link != p)
        link = &(*link)->next;
    if (*link)
        *link = p->next;
    pthread_mutex_unlock(&ctx->lock);
}

/* ---- values ---- */

f8_status f8_variables_bound(const fp8c_program *p, f8_diag *diag)
{
    for (uint32_t v = 0; v < p->first->plan.n_vars; v++)
        if (!p->var[v].at && bytes_of(p, v))
            return f8_unbound_variable(p->first->plan.var[v].name, diag);
    return F8_OK;
}

bool f8_variables_valued(const fp8c_program *p)
{
    return p->n_without_value == 0;
}

static f8_status no_value(const fp8c_program *p, uint32_t v, f8_diag *diag)
{
    const f8_plan *plan = &p->first->plan;
    if (!p->var[v].at && bytes_of(p, v))
        return f8_unbound_variable(plan->var[v].name, diag);
    if (p->n_without_value + p->codes.n == plan->n_vars)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "the variables have no values: call fp8c_program_initialize");
    return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                   "variable '%s' has no value: initialize or write it, or bind a tensor that has "
                   "one",
                   plan->var[v].name);
}

f8_status f8_variables_ready(const fp8c_program *p, const f8_plan_func *func, f8_diag *diag)
{
    for (int side = 0; side < 2 && p->n_without_value; side++) {
        uint32_t n;
        const f8_plan_port *port = f8_plan_ports(func, side, &n);
        for (uint32_t k = 0; k < n; k++)
            if (port[k].var >= 0 && !p->var[port[k].var].valued)
                return no_value(p, (uint32_t)port[k].var, diag);
    }
    return F8_OK;
}

static void set_valued(fp8c_program *p, uint32_t v, bool valued)
{
    if ((int32_t)v == p->histories.variable)
        p->histories.sure = -1;
    if ((int32_t)v == p->sums.count)
        f8_sums_forget(p);
    f8_codes_changed(p, v);
    valued |= p->var[v].made && p->var[v].at; /* `prepare` runs before anybody reads it */
    p->n_without_value += (uint32_t)p->var[v].valued;
    p->n_without_value -= (uint32_t)valued;
    p->var[v].valued = valued;
    if (p->var[v].at == p->var[v].own)
        p->var[v].own_valued = valued;
}

void f8_variable_set(fp8c_program *p, uint32_t variable)
{
    set_valued(p, variable, true);
}

void f8_variables_set(fp8c_program *p)
{
    for (uint32_t v = 0; v < p->first->plan.n_vars; v++)
        if (p->var[v].at || !bytes_of(p, v))
            set_valued(p, v, true);
}

void f8_variables_clear(fp8c_program *p)
{
    for (uint32_t v = 0; v < p->first->plan.n_vars; v++) {
        set_valued(p, v, false);
        p->var[v].own_valued = false;
    }
}

bool *f8_variables_keep(fp8c_program *p, f8_arena *arena)
{
    const uint32_t n = p->first->plan.n_vars;
    bool *keep = F8_NEW_ARRAY(arena, bool, n + 1);
    for (uint32_t v = 0; keep && v < n; v++)
        keep[v] = p->var[v].valued;
    return keep;
}

/* ---- memory that others use ---- */

/* A variable at an address. */
typedef struct placed {
    const fp8c_program *p;
    uint32_t v;
    uintptr_t at;
} placed;

static const f8_plan_var *plan_var(const placed *x)
{
    return &x->p->first->plan.var[x->v];
}

static bool overlap(const placed *a, const placed *b)
{
    return a->at < b->at + (uintptr_t)bytes_of(b->p, b->v) &&
           b->at < a->at + (uintptr_t)bytes_of(a->p, a->v);
}

static f8_status refuse(const placed *a, const placed *b, const char *why, f8_diag *diag)
{
    return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                   "variable '%s': its memory is also that of '%s' of another program (module %s), "
                   "%s",
                   plan_var(a)->name, plan_var(b)->name, b->p->first->plan.module, why);
}

static f8_status check_elements(const placed *a, const placed *b, f8_diag *diag)
{
    const f8_elements *x = f8_elements_of(&a->p->first->report, (int)a->v),
                      *y = f8_elements_of(&b->p->first->report, (int)b->v);
    char why[600];
    if (!x != !y)
        return refuse(a, b, "and only one of them has elements (fp8c_program_element)", diag);
    for (int64_t k = 0; x && k < (int64_t)x->n && k < (int64_t)y->n; k++) {
        if (!strcmp(x->name[k], y->name[k]))
            continue;
        snprintf(why, sizeof why, "and element %" PRId64 " is '%.200s' here and '%.200s' there", k,
                 x->name[k], y->name[k]);
        return refuse(a, b, why, diag);
    }
    return !x || x->n == y->n ? F8_OK : refuse(a, b, "and it has another number of elements", diag);
}

int f8_variable_overlaps(const fp8c_program *p, const void *at, int64_t bytes)
{
    const uintptr_t begin = (uintptr_t)at, end = begin + (uintptr_t)bytes;
    for (uint32_t v = 0; v < p->first->plan.n_vars; v++)
        if (p->var[v].at < end && begin < p->var[v].at + (uintptr_t)bytes_of(p, v))
            return (int)v;
    return -1;
}

/* Two programs may have one variable in common: the same bytes, of one type, used alike. */
static f8_status check_sharing(const placed *a, const placed *b, f8_diag *diag)
{
    const f8_plan_var *x = plan_var(a), *y = plan_var(b);
    if (a->at != b->at || bytes_of(a->p, a->v) != bytes_of(b->p, b->v))
        return refuse(a, b, "and the two are not the same bytes", diag);
    if (!f8_type_equal(&x->type, &y->type))
        return refuse(a, b, "and their types differ", diag);
    if (x->is_param != y->is_param)
        return refuse(a, b, "and only one of them is a parameter", diag);
    return check_elements(a, b, diag);
}

/* The context's lock is held. */
static f8_status check_others(const placed *a, f8_diag *diag)
{
    for (const fp8c_program *q = a->p->ctx->programs; q; q = q->next)
        for (uint32_t v = 0; v < q->first->plan.n_vars; v++) {
            const placed b = {q, v, q->var[v].at};
            if ((q == a->p && v == a->v) || !b.at || !overlap(a, &b))
                continue;
            if (q != a->p)
                F8_TRY(check_sharing(a, &b, diag));
            else
                return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                               "variable '%s': its memory overlaps that of variable '%s'",
                               plan_var(a)->name, plan_var(&b)->name);
        }
    return F8_OK;
}

/* Tell the executor of the address that the variable has got. at: the caller's, or NULL. */
static void moved(fp8c_program *p, uint32_t variable, void *at)
{
    const f8_program_variable *v = &p->var[variable];
    p->now->instance.kind->bind_var(&p->now->instance, variable, (void *)v->at);
    f8_codes_moved(p, variable);
    set_valued(p, variable, at != NULL || v->own_valued);
}

f8_status f8_variable_move(fp8c_program *p, uint32_t variable, void *at, f8_diag *diag)
{
    f8_program_variable *v = &p->var[variable];
    const placed a = {p, variable, at ? (uintptr_t)at : v->own};
    if (!a.at && bytes_of(p, variable))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "variable '%s' is external: the program has no memory of its own for it",
                       plan_var(&a)->name);
    F8_TRY(f8_variable_lend(p, variable, diag));
    pthread_mutex_lock(&p->ctx->lock);
    const f8_status status = check_others(&a, diag);
    if (status == F8_OK)
        v->at = a.at;
    pthread_mutex_unlock(&p->ctx->lock);
    F8_TRY(status);
    moved(p, variable, at);
    return F8_OK;
}

void f8_variable_lift(fp8c_program *p, uint32_t variable)
{
    f8_program_variable *v = &p->var[variable];
    pthread_mutex_lock(&p->ctx->lock);
    v->at = v->own;
    pthread_mutex_unlock(&p->ctx->lock);
    moved(p, variable, NULL);
}
