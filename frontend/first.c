/* What comes before a function runs. Which form of it: itself, or its form for an empty amax
 * history (embedding.md, "The first step"); the histories alone decide. And `prepare`, where codes
 * of weights are stale (f8_program_renew). */
#include <math.h>
#include <string.h>

#include "frontend/program.h"
#include "passes/unit/pass.h"

/* ---- whether a history is empty ---- */

/* An operand's history, newest first. It is empty where the graph takes it for one: where 0 < the
 * largest is false. Else: after how many pushes its newest observation is still there. -1: empty.
 */
static int64_t pushes_left(const float *history, int64_t n)
{
    int64_t newest = -1;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(history[i]))
            return -1;
        if (history[i] > 0 && newest < 0)
            newest = i;
    }
    return newest < 0 ? -1 : n - 1 - newest;
}

/* The least of all operands. */
static int64_t least_pushes_left(const float *histories, const f8_type *t)
{
    int64_t least = INT64_MAX;
    for (int64_t i = 0; i < t->dim[0] && least >= 0; i++) {
        const int64_t left = pushes_left(histories + i * t->dim[1], t->dim[1]);
        least = left < least ? left : least;
    }
    return least;
}

static f8_status look(fp8c_program *p, f8_diag *diag)
{
    f8_histories *h = &p->histories;
    f8_instance *instance = &p->now->instance;
    const float *at = instance->kind->var(instance, (uint32_t)h->variable);
    if (!at)
        F8_TRY(instance->kind->read(instance, (uint32_t)h->variable, h->copy, diag));
    h->sure = least_pushes_left(at ? at : h->copy, &p->now->plan.var[h->variable].type);
    return F8_OK;
}

/* ---- what the forms run ---- */

static int64_t fp8_steps(const f8_plan_func *f)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < f->n_steps; i++)
        n += f->step[i].kind == F8_STEP_GEMM && f->step[i].fp8;
    return n;
}

/* The passes counted micro_step's. The interpreter's plan has no steps, and budgets do not change
 * what it runs: there all forms have the same. */
int64_t fp8c_program_fp8_gemms(const fp8c_program *p, int function)
{
    const f8_plan *plan = &p->now->plan;
    if (function < 0 || (uint32_t)function >= plan->n_funcs ||
        !f8_is_micro_step(plan->func[function].name))
        return -1;
    uint32_t plain = 0;
    while (plain < plan->n_funcs && strcmp(plan->func[plain].name, "micro_step"))
        plain++;
    if (plain == plan->n_funcs)
        return -1;
    return p->now->report.fp8_gemms + fp8_steps(&plan->func[function]) -
           fp8_steps(&plan->func[plain]);
}

/* ---- the form ---- */

/* Notes that the function, which is about to run, pushes the histories, if it does. */
static void note_push(fp8c_program *p, const f8_plan_func *f)
{
    f8_histories *h = &p->histories;
    for (uint32_t i = 0; i < f->n_out && h->sure >= 0; i++)
        h->sure -= f->out[i].var == h->variable;
}

f8_status f8_program_choose(fp8c_program *p, int function, uint32_t *form, f8_diag *diag)
{
    const f8_plan *plan = &p->now->plan;
    const f8_histories *h = &p->histories;
    const uint32_t first = plan->func[function].first - 1;
    *form = (uint32_t)function;
    if (!plan->func[function].first)
        return F8_OK;
    F8_TRY(f8_variables_ready(p, &plan->func[first], diag));
    if (h->sure < 0 || h->shared || !p->now->instance.cuda)
        F8_TRY(look(p, diag));
    if (h->sure < 0)
        *form = first;
    return F8_OK;
}

f8_status f8_program_renew(fp8c_program *p, f8_diag *diag)
{
    const uint32_t prepare = (uint32_t)p->codes.prepare;
    F8_TRY(f8_variables_ready(p, &p->now->plan.func[prepare], diag));
    return f8_codes_run(p, prepare, diag);
}

f8_status f8_program_form(fp8c_program *p, int function, uint32_t *form, f8_diag *diag)
{
    if (f8_codes_wanting(p, function))
        F8_TRY(f8_program_renew(p, diag));
    F8_TRY(f8_program_choose(p, function, form, diag));
    if (p->histories.variable >= 0)
        note_push(p, &p->now->plan.func[function]);
    return F8_OK;
}
