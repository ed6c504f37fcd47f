/* Memory and stream of the caller: fp8c_program_bind_variable, fp8c_program_move_variables,
 * fp8c_program_set_stream. See fp8c.h. */
#include "frontend/program.h"

static const char *const sides[] = {[FP8C_INPUT] = "input", [FP8C_OUTPUT] = "output"};

/* A run would change a variable's memory through a port's buffer that overlaps it: refuse that. Or,
 * if the variable has moved, the buffer is of an earlier call, and the port gives it up. */
static f8_status check_ports(fp8c_program *p, uint32_t variable, const void *at, bool moved,
                             f8_diag *diag)
{
    const f8_plan *plan = &p->now->plan;
    f8_instance *instance = &p->now->instance;
    const uintptr_t begin = (uintptr_t)at,
                    end = begin + (uintptr_t)f8_type_bytes(&plan->var[variable].type);
    for (uint32_t f = 0; f < plan->n_funcs; f++)
        for (int side = 0; side < 2; side++) {
            const f8_plan_func *func = &plan->func[f];
            uint32_t n;
            const f8_plan_port *port = f8_plan_ports(func, side, &n);
            for (uint32_t k = 0; k < n; k++) {
                if (port[k].var >= 0)
                    continue;
                const uintptr_t other = (uintptr_t)instance->kind->port(instance, f, side, k);
                if (!other || begin >= other + (uintptr_t)f8_type_bytes(&port[k].type) ||
                    other >= end)
                    continue;
                if (!moved)
                    return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                                   "variable '%s': its memory overlaps that of %s '%s' of '%s'",
                                   plan->var[variable].name, sides[side], port[k].name, func->name);
                F8_TRY(instance->kind->bind(instance, f, side, k, NULL, diag));
            }
        }
    return F8_OK;
}

static f8_status has_variable(const fp8c_program *p, int variable, f8_diag *diag)
{
    return variable >= 0 && (uint32_t)variable < p->now->plan.n_vars
               ? F8_OK
               : f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "the program has no variable %d",
                         variable);
}

/* Put a variable into a tensor. */
static f8_status place(fp8c_program *p, uint32_t variable, const fp8c_tensor_view *tensor,
                       bool moved, f8_diag *diag)
{
    void *at;
    F8_TRY(f8_tensor_check_variable(p, variable, tensor, &at, diag));
    F8_TRY(check_ports(p, variable, at, moved, diag));
    return f8_variable_move(p, variable, at, diag);
}

fp8c_status fp8c_program_bind_variable(fp8c_program *p, int variable,
                                       const fp8c_tensor_view *tensor)
{
    f8_diag diag = {0};
    f8_status status = f8_program_has_memory(p, &diag);
    if (status == F8_OK)
        status = has_variable(p, variable, &diag);
    if (status == F8_OK)
        status = f8_program_may_change(p, "fp8c_program_bind_variable", &diag);
    if (status == F8_OK)
        status = tensor ? place(p, (uint32_t)variable, tensor, false, &diag)
                        : f8_variable_move(p, (uint32_t)variable, NULL, &diag);
    return f8_api_result(p->ctx, &diag, status);
}

/* Each of the variables can lie nowhere. */
static f8_status can_move(const fp8c_program *p, const int *variables, size_t n, f8_diag *diag)
{
    F8_TRY(f8_program_has_memory(p, diag));
    F8_TRY(f8_program_unwatched(p, "fp8c_program_move_variables", diag));
    for (size_t i = 0; i < n; i++) {
        F8_TRY(has_variable(p, variables[i], diag));
        const char *name = p->now->plan.var[variables[i]].name;
        if (!f8_is_external(p, name))
            return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                           "variable '%s' is not external: only those move", name);
    }
    return F8_OK;
}

/* All leave their places first: one may go where another was. */
static f8_status move(fp8c_program *p, const int *variables, const fp8c_tensor_view *const *tensors,
                      size_t n, f8_diag *diag)
{
    f8_status status = F8_OK;
    F8_TRY(can_move(p, variables, n, diag));
    F8_TRY(f8_sums_settle(p, diag));
    for (size_t i = 0; i < n; i++)
        f8_variable_lift(p, (uint32_t)variables[i]);
    for (size_t i = 0; i < n && tensors && status == F8_OK; i++)
        if (tensors[i])
            status = place(p, (uint32_t)variables[i], tensors[i], true, diag);
    for (size_t i = 0; i < n && status != F8_OK; i++)
        f8_variable_lift(p, (uint32_t)variables[i]);
    return status;
}

fp8c_status fp8c_program_move_variables(fp8c_program *p, const int *variables,
                                        const fp8c_tensor_view *const *tensors, size_t n)
{
    f8_diag diag = {0};
    return f8_api_result(p->ctx, &diag, move(p, variables, tensors, n, &diag));
}

fp8c_status fp8c_program_set_stream(fp8c_program *p, void *stream)
{
    f8_diag diag = {0};
    f8_status status = f8_program_has_memory(p, &diag);
    if (status == F8_OK && !p->now->instance.cuda)
        status = f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE,
                         "the program runs on target %s, which has no streams", p->target->name);
    if (status == F8_OK)
        status = f8_cuda_exec_set_stream(p->now->instance.cuda, stream, &diag);
    return f8_api_result(p->ctx, &diag, status);
}
