/* Memory and stream of the caller: fp8c_program_bind_variable, fp8c_program_set_stream. See fp8c.h.
 */
#include "frontend/program.h"

static const char *const sides[] = {[FP8C_INPUT] = "input", [FP8C_OUTPUT] = "output"};

/* Refuse memory that a port's buffer overlaps, because a run of the function would change one
 * through the other. */
static f8_status check_ports(fp8c_program *p, uint32_t variable, const void *at, f8_diag *diag)
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
                if (other && begin < other + (uintptr_t)f8_type_bytes(&port[k].type) && other < end)
                    return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                                   "variable '%s': its memory overlaps that of %s '%s' of '%s'",
                                   plan->var[variable].name, sides[side], port[k].name, func->name);
            }
        }
    return F8_OK;
}

fp8c_status fp8c_program_bind_variable(fp8c_program *p, int variable,
                                       const fp8c_tensor_view *tensor)
{
    f8_diag diag = {0};
    void *at = NULL;
    f8_status status = f8_program_has_memory(p, &diag);
    if (status == F8_OK && (variable < 0 || (uint32_t)variable >= p->now->plan.n_vars))
        status =
            f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE, "the program has no variable %d", variable);
    if (status == F8_OK)
        status = f8_program_may_change(p, "fp8c_program_bind_variable", &diag);
    if (status == F8_OK && tensor)
        status = f8_tensor_check_variable(p, (uint32_t)variable, tensor, &at, &diag);
    if (status == F8_OK && tensor)
        status = check_ports(p, (uint32_t)variable, at, &diag);
    if (status == F8_OK)
        status = f8_variable_move(p, (uint32_t)variable, at, &diag);
    return f8_api_result(p->ctx, &diag, status);
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
