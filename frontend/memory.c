/* What a program takes in memory, from its plan alone: see fp8c.h and passes/memory_report.h. */
#include <string.h>

#include "frontend/program.h"
#include "passes/cost.h"

/* ---- all bytes ---- */

f8_status f8_program_plan_bytes(fp8c_program *p, const f8_plan *plan, int64_t *bytes, f8_diag *diag)
{
    if (p->unit.options.target->kind == F8_TARGET_CPU)
        return f8_exec_plan_bytes(plan, p->threads, &p->ctx->allocator, &p->gemms, bytes, diag);
    *bytes = f8_cuda_exec_plan_bytes(plan);
    return F8_OK;
}

f8_status f8_program_code_bytes(void *program, const f8_unit *u, f8_code_bytes *out)
{
    fp8c_program *p = program;
    const f8_build_options build = {.target = p->unit.options.target,
                                    .attention = p->attention,
                                    .allocator = &p->ctx->allocator,
                                    .no_code = true};
    f8_arena scratch;
    f8_plan plan;
    f8_arena_init(&scratch, &p->ctx->allocator);
    *out = (f8_code_bytes){0};
    f8_status status = f8_build_plan(u->module, &build, &scratch, &plan, u->diag);
    if (status == F8_OK)
        status = f8_program_plan_bytes(p, &plan, &out->total, u->diag);
    for (uint32_t i = 0; status == F8_OK && i < plan.n_funcs; i++) {
        const int64_t bytes = plan.func[i].arena_bytes;
        const f8_func *f = f8_module_find_func(u->module, plan.func[i].name);
        out->arena = bytes > out->arena ? bytes : out->arena;
        if (!strcmp(plan.func[i].name, "micro_step"))
            out->extra = bytes - f->program->arena_bytes;
        else if (bytes > out->others)
            out->others = bytes;
    }
    f8_arena_end(&scratch);
    return status;
}

/* ---- reports ---- */

f8_status f8_program_report(fp8c_program *p, f8_diag *diag)
{
    const f8_module *m = p->unit.module;
    p->report = F8_NEW_ARRAY(&p->arena, f8_memory_report, m->n_funcs);
    p->seconds = F8_NEW_ARRAY(&p->arena, double, m->n_funcs);
    if (!p->report || !p->seconds)
        return f8_arena_status(&p->arena, diag);
    for (size_t i = 0; i < m->n_funcs; i++) {
        F8_TRY(f8_memory_report_make(&p->unit, &m->func[i], &p->arena, &p->report[i]));
        p->seconds[i] = f8_cost_function(&m->func[i], p->unit.options.target);
    }
    return F8_OK;
}

static const f8_memory_report *get_report(const fp8c_program *p, int function)
{
    return p->report && function >= 0 && (size_t)function < p->unit.module->n_funcs
               ? &p->report[function]
               : NULL;
}

fp8c_status fp8c_program_peak(const fp8c_program *p, int function, fp8c_peak *out)
{
    const f8_memory_report *r = get_report(p, function);
    if (!r)
        return FP8C_ERR_INPUT;
    const f8_program *program = p->unit.module->func[function].program;
    *out = (fp8c_peak){.step = r->at,
                       .position = (int32_t)r->peak.at,
                       .positions = (int32_t)program->n_groups,
                       .arena_bytes = program->arena_bytes,
                       .alive_bytes = r->peak.bytes,
                       .activation_bytes = r->peak.activations,
                       .seconds = p->seconds[function]};
    return FP8C_OK;
}

/* Bytes of the largest arena as passes laid it out, which functions share. */
static int64_t largest_arena(const f8_module *m)
{
    int64_t most = 0;
    for (size_t i = 0; i < m->n_funcs; i++)
        if (m->func[i].program->arena_bytes > most)
            most = m->func[i].program->arena_bytes;
    return most;
}

fp8c_status fp8c_program_memory(const fp8c_program *p, int function, int index, fp8c_memory *out)
{
    enum { SCRATCH = F8_MEMORY_CATEGORIES, UNUSED };
    const f8_memory_report *r = get_report(p, function);
    if (!r || index < 0 || index > UNUSED)
        return FP8C_ERR_INPUT;
    const int64_t arena = largest_arena(p->unit.module);
    int64_t known = arena; /* of planned bytes */
    for (int i = 0; i < F8_MEMORY_ACTIVATIONS; i++)
        known += r->bytes[i];
    if (index == SCRATCH)
        *out = (fp8c_memory){"scratch", p->planned - known, 0};
    else if (index == UNUSED)
        *out = (fp8c_memory){"unused", arena - r->peak.bytes, 1};
    else
        *out = (fp8c_memory){f8_memory_category_name((f8_memory_category)index), r->bytes[index],
                             index >= F8_MEMORY_ACTIVATIONS};
    return FP8C_OK;
}

fp8c_status fp8c_program_tensor(const fp8c_program *p, int function, int index, fp8c_tensor *out)
{
    const f8_memory_report *r = get_report(p, function);
    if (!r || index < 0 || (uint32_t)index >= r->n_tensors)
        return FP8C_ERR_INPUT;
    const f8_memory_tensor *t = &r->tensor[index];
    *out = (fp8c_tensor){.name = t->name,
                         .category = f8_memory_category_name(t->category),
                         .type = f8_api_type_out(&t->type),
                         .bytes = t->bytes,
                         .made = t->made,
                         .read = t->read,
                         .first = (int32_t)t->first,
                         .last = (int32_t)t->last};
    return FP8C_OK;
}

void fp8c_program_remat(const fp8c_program *p, fp8c_remat *out)
{
    const f8_remat_summary *r = &p->unit.remat;
    fp8c_remat own = {.struct_size = out->struct_size,
                      .arena_before = r->before,
                      .arena_budget = r->budget,
                      .arena_after = r->after,
                      .activations_before = r->activations_before,
                      .activations_after = r->activations_after,
                      .recomputed = r->recomputed,
                      .fp8_gemms = r->fp8_gemms,
                      .seconds = r->seconds,
                      .extra_seconds = r->extra_seconds,
                      .rounds = r->rounds};
    memcpy(out, &own, out->struct_size < sizeof own ? out->struct_size : sizeof own);
}
