/* The first tensor that is not finite: fp8c_program_find_nonfinite, see fp8c_diagnose.h. It reads
 * everything once, and is for a step that has gone wrong. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "frontend/program.h"
#include "ir/num/fp8.h"

/* ---- one tensor ---- */

static bool is_judged(f8_dtype dtype)
{
    return dtype == F8_F32 || dtype == F8_BF16 || dtype == F8_F16;
}

static double element(const void *at, f8_dtype dtype, int64_t i)
{
    if (dtype == F8_F32)
        return (double)((const float *)at)[i];
    const uint16_t code = ((const uint16_t *)at)[i];
    return (double)(dtype == F8_BF16 ? f8_bf16_to_f32(code) : f8_f16_to_f32(code));
}

/* A NaN has no sign to speak of. */
static double without_sign(double x)
{
    return isnan(x) ? NAN : x;
}

/* Notes a tensor with elements above `most` or NaN. Of several such tensors the first is kept, and
 * the others are counted. */
static void look(fp8c_found *f, const char *name, const char *role, const f8_type *t,
                 const void *at, double most)
{
    const int64_t n = f8_type_elements(t);
    int64_t bad = 0, first = 0;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(element(at, t->dtype, i)) <= most) && bad++ == 0)
            first = i;
    if (!bad || f->tensor) {
        f->others += bad > 0;
        return;
    }
    *f = (fp8c_found){.struct_size = f->struct_size,
                      .tensor = name,
                      .role = role,
                      .index = first,
                      .value = without_sign(element(at, t->dtype, first)),
                      .nonfinite = bad,
                      .elements = n};
}

/* ---- inputs ---- */

/* NULL: there is none, or it may be in a GPU's memory. */
static const void *host_buffer(fp8c_program *p, int function, int port)
{
    enum { GPU = 2 }; /* DLPack's kDLCUDA */
    fp8c_tensor_view view;
    if (fp8c_program_port_view(p, function, FP8C_INPUT, port, &view) != FP8C_OK ||
        view.device.type == GPU)
        return NULL;
    return (const char *)view.data + view.byte_offset;
}

static void look_at_inputs(fp8c_program *p, int function, fp8c_found *f)
{
    const f8_plan_func *func = &p->now->plan.func[function];
    for (uint32_t i = 0; i < func->n_in; i++) {
        const f8_plan_port *port = &func->in[i];
        const void *at =
            port->var < 0 && is_judged(port->type.dtype) ? host_buffer(p, function, (int)i) : NULL;
        if (at)
            look(f, port->name, "input", &port->type, at, DBL_MAX);
    }
}

/* ---- variables ---- */

static bool is_gradient(const f8_plan_var *v)
{
    return !strncmp(v->name, "grad.", 5);
}

static const char *role_of(const fp8c_program *p, uint32_t variable)
{
    const f8_plan_var *v = &p->now->plan.var[variable];
    return v->is_param                                    ? "parameter"
           : is_gradient(v)                               ? "gradient"
           : fp8c_program_element(p, (int)variable, 0, 0) ? "scale"
                                                          : "state";
}

/* The program's values of a variable: where they lie, or on a GPU a copy in `memory`. */
static f8_status values_of(fp8c_program *p, uint32_t variable, f8_arena *memory, const void **out,
                           f8_diag *diag)
{
    f8_instance *instance = &p->now->instance;
    *out = instance->kind->var(instance, variable);
    if (*out)
        return F8_OK;
    const int64_t bytes = f8_type_bytes(&p->now->plan.var[variable].type);
    char *copy = F8_NEW_ARRAY(memory, char, (size_t)bytes);
    F8_TRY(f8_arena_status(memory, diag));
    *out = copy;
    return instance->kind->read(instance, variable, copy, diag);
}

/* The amaxes of the step itself are what the gradients are: not its cause. */
static bool has_role(const fp8c_program *p, uint32_t variable, const char *role)
{
    const f8_plan_var *v = &p->now->plan.var[variable];
    return is_judged(v->type.dtype) && strcmp(v->name, "fp8.amax") &&
           !strcmp(role_of(p, variable), role);
}

static f8_status look_at_variables(fp8c_program *p, const char *role, fp8c_found *f, double most,
                                   f8_diag *diag)
{
    for (uint32_t i = 0; i < p->now->plan.n_vars; i++) {
        const f8_plan_var *v = &p->now->plan.var[i];
        const bool looked = f->tensor != NULL;
        const void *at;
        f8_arena memory;
        if (!has_role(p, i, role))
            continue;
        f8_arena_init(&memory, &p->ctx->allocator);
        const f8_status status = values_of(p, i, &memory, &at, diag);
        if (status == F8_OK)
            look(f, v->name, role, &v->type, at, most);
        f8_arena_end(&memory);
        F8_TRY(status);
        if (!looked && f->tensor && !strcmp(role, "scale")) {
            const int64_t each = v->type.rank > 1 ? f->elements / v->type.dim[0] : 1;
            f->tensor = fp8c_program_element(p, (int)i, f->index / each, 0);
        }
    }
    return F8_OK;
}

/* ---- the gradients of a step that is over ---- */

/* Variables that a function writes, with their values from before. */
typedef struct kept {
    f8_arena memory;
    void **value; /* by variable; NULL: the function leaves it alone */
} kept;

static f8_status keep(fp8c_program *p, int function, kept *k, f8_diag *diag)
{
    const f8_plan *plan = &p->now->plan;
    const f8_plan_func *func = &plan->func[function];
    f8_instance *instance = &p->now->instance;
    k->value = F8_NEW_ARRAY(&k->memory, void *, plan->n_vars);
    F8_TRY(f8_arena_status(&k->memory, diag));
    memset(k->value, 0, plan->n_vars * sizeof *k->value);
    for (uint32_t i = 0; i < func->n_out; i++) {
        const int32_t v = func->out[i].var;
        if (v < 0 || k->value[v])
            continue;
        k->value[v] = F8_NEW_ARRAY(&k->memory, char, (size_t)f8_type_bytes(&plan->var[v].type));
        F8_TRY(f8_arena_status(&k->memory, diag));
        F8_TRY(instance->kind->read(instance, (uint32_t)v, k->value[v], diag));
    }
    return F8_OK;
}

static f8_status put_back(fp8c_program *p, const kept *k, f8_diag *diag)
{
    f8_instance *instance = &p->now->instance;
    f8_sums_forget(p);
    for (uint32_t i = 0; i < p->now->plan.n_vars; i++)
        if (k->value[i])
            F8_TRY(instance->kind->write(instance, i, k->value[i], diag));
    return F8_OK;
}

/* The first gradient that is not finite or, if all are, the first whose square is not: the norm is
 * the root of a sum of squares in f32. */
static f8_status look_at_gradients(fp8c_program *p, fp8c_found *f, f8_diag *diag)
{
    const bool found = f->tensor != NULL;
    F8_TRY(look_at_variables(p, "gradient", f, DBL_MAX, diag));
    if (found || f->tensor)
        return F8_OK;
    F8_TRY(look_at_variables(p, "gradient", f, sqrt((double)FLT_MAX), diag));
    f->nonfinite = 0;
    return F8_OK;
}

/* Makes the gradients once more, looks at them, and leaves no trace. */
static f8_status look_again(fp8c_program *p, int function, fp8c_found *f, f8_diag *diag)
{
    kept k = {0};
    f8_arena_init(&k.memory, &p->ctx->allocator);
    uint32_t form;
    f8_status status = f8_program_form(p, function, &form, diag);
    if (status == F8_OK)
        status = keep(p, function, &k, diag);
    if (status == F8_OK)
        status = f8_codes_run(p, form, diag);
    if (status == F8_OK)
        status = look_at_gradients(p, f, diag);
    if (status == F8_OK)
        status = put_back(p, &k, diag);
    f8_arena_end(&k.memory);
    return status;
}

/* ---- the API ---- */

static f8_status find(fp8c_program *p, int function, bool again, fp8c_found *f, f8_diag *diag)
{
    static const char *const roles[] = {"parameter", "state", "scale", "gradient"};
    F8_TRY(f8_program_can_run(p, function, diag));
    F8_TRY(p->now->instance.kind->wait(&p->now->instance, diag));
    F8_TRY(f8_sums_settle(p, diag));
    if (again)
        F8_TRY(f8_program_may_change(p, "fp8c_program_find_nonfinite", diag));
    look_at_inputs(p, function, f);
    for (size_t i = 0; i + again < sizeof roles / sizeof *roles && !f->tensor; i++)
        F8_TRY(look_at_variables(p, roles[i], f, DBL_MAX, diag));
    /* all ranks run the function together, whatever a rank has found in its own inputs */
    fp8c_found unused = {0};
    return again ? look_again(p, function, f->tensor ? &unused : f, diag) : F8_OK;
}

fp8c_status fp8c_program_find_nonfinite(fp8c_program *p, int function, int32_t again,
                                        fp8c_found *out)
{
    f8_diag diag = {0};
    fp8c_found own = {.struct_size = sizeof own, .value = NAN};
    const f8_status status = find(p, function, again != 0, &own, &diag);
    f8_api_give(out, &own);
    return f8_api_result(p->ctx, &diag, status);
}
