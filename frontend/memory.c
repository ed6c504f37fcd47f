/* What a program takes in memory, from its plan alone: see fp8c_diagnose.h and
 * passes/memory/report.h. */
#include <stdio.h>
#include <string.h>

#include "frontend/compile.h"
#include "passes/remat/remat.h"

/* ---- all bytes ---- */

static f8_status plan_bytes(f8_compilation *c, const f8_plan *plan, int64_t *bytes, f8_diag *diag)
{
    const fp8c_program *p = c->program;
    if (p->target->kind == F8_TARGET_CPU)
        return f8_exec_plan_bytes(plan, p->run.external, p->threads, &p->ctx->allocator, &c->gemms,
                                  bytes, diag);
    *bytes = f8_cuda_exec_plan_bytes(plan, p->run.external);
    return F8_OK;
}

/* Variants share an arena. A variant whose ports have fewer bytes must not spend the difference on
 * a larger arena, or the program as a whole would exceed its budget. */
static void hold_to_first(const f8_compilation *c, f8_code_bytes *bytes)
{
    const f8_variant *first = c->program->first;
    const int64_t allowed = c->o->memory_bytes - (bytes->total - bytes->arena);
    int64_t most = 0;
    if (first == c->variant || c->o->memory_bytes <= 0)
        return;
    for (uint32_t i = 0; i < first->plan.n_funcs; i++)
        most = first->plan.func[i].arena_bytes > most ? first->plan.func[i].arena_bytes : most;
    if (allowed > most)
        bytes->total += allowed - most;
}

/* A budget's search asks for the bytes of many plans. The next one takes the memory of the last. */
static f8_status make_sizing(f8_compilation *c, f8_diag *diag)
{
    f8_arena *graph = &c->variant->graph;
    f8_remat_spaces *spaces = c->sizing ? NULL : f8_remat_spaces_make(graph);
    if (spaces)
        c->sizing = f8_remat_space(spaces);
    return f8_arena_status(graph, diag);
}

f8_status f8_compilation_code_bytes(void *compilation, const f8_unit *u, f8_code_bytes *out)
{
    f8_compilation *c = compilation;
    const f8_allocator *allocator = &c->program->ctx->allocator;
    const f8_build_options build = {.target = c->program->target,
                                    .attention = c->attention,
                                    .dependent_launch = c->o->dependent_launch,
                                    .allocator = allocator,
                                    .choices = c->tuned.use,
                                    .no_code = true,
                                    .only_bytes = true};
    f8_plan plan;
    *out = (f8_code_bytes){0};
    F8_TRY(make_sizing(c, u->diag));
    f8_status status = f8_build_plan(u->module, &build, c->sizing, &plan, u->diag);
    if (status == F8_OK)
        status = plan_bytes(c, &plan, &out->total, u->diag);
    if (status == F8_OK)
        c->attention_workspace = plan.attention_workspace;
    for (uint32_t i = 0; status == F8_OK && i < plan.n_funcs; i++) {
        const int64_t bytes = plan.func[i].arena_bytes;
        const f8_func *f = f8_module_find_func(u->module, plan.func[i].name);
        const int64_t least = bytes - f->lowered->arena_bytes + f->lowered->least_bytes;
        out->arena = bytes > out->arena ? bytes : out->arena;
        if (!strcmp(plan.func[i].name, "micro_step"))
            out->extra = bytes - f->lowered->arena_bytes;
        else if (!f8_is_micro_step(plan.func[i].name) && least > out->others)
            out->others = least;
    }
    if (status == F8_OK)
        hold_to_first(c, out);
    f8_arena_end(c->sizing);
    return status;
}

/* Only now is known what the GPU's libraries take. */
f8_status f8_compilation_check_budget(f8_compilation *c, f8_diag *diag)
{
    const int64_t most = c->o->memory_bytes;
    f8_instance *instance = &c->variant->instance;
    int64_t *planned = &c->variant->report.planned;
    if (instance->kind) {
        f8_instance_info run;
        instance->kind->info(instance, &run);
        *planned = run.planned_bytes;
    } else {
        F8_TRY(plan_bytes(c, &c->variant->plan, planned, diag));
    }
    if (most <= 0 || *planned <= most)
        return F8_OK;
    return f8_fail(
        diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
        "memory: the budget is %lld bytes, and with the GPU's libraries the program takes %lld",
        (long long)most, (long long)*planned);
}

/* ---- reports ---- */

/* NULL: there is no such function, or the target has no arena. */
static const f8_compile_report_func *get_func(const fp8c_program *p, int function)
{
    const f8_compile_report *t = &p->now->report;
    return function >= 0 && (size_t)function < t->n_funcs ? &t->func[function] : NULL;
}

fp8c_status fp8c_program_peak(const fp8c_program *p, int function, fp8c_peak *out)
{
    const f8_compile_report_func *f = get_func(p, function);
    if (!f)
        return FP8C_ERR_INPUT;
    *out = (fp8c_peak){.step = f->memory.at,
                       .position = (int32_t)f->memory.peak.at,
                       .positions = (int32_t)f->positions,
                       .arena_bytes = f->arena_bytes,
                       .alive_bytes = f->memory.peak.bytes,
                       .activation_bytes = f->memory.peak.activations,
                       .seconds = f->seconds};
    return FP8C_OK;
}

/* Bytes of the largest arena, as passes laid it out. All functions share it. */
static int64_t largest_arena(const f8_compile_report *t)
{
    int64_t most = 0;
    for (size_t i = 0; i < t->n_funcs; i++)
        if (t->func[i].arena_bytes > most)
            most = t->func[i].arena_bytes;
    return most;
}

/* A tensor that is in memory of the caller's. A port's is called "NAME of FUNCTION". */
static bool is_callers(const fp8c_program *p, const f8_memory_tensor *t)
{
    char name[1200];
    if (!p->run.external || t->category > F8_MEMORY_PORTS)
        return false;
    if (t->category < F8_MEMORY_PORTS)
        return f8_is_external(p, t->name);
    const char *end = strstr(t->name, " of "); /* names have no spaces */
    snprintf(name, sizeof name, "%.*s", end ? (int)(end - t->name) : 0, t->name);
    return f8_is_external(p, name);
}

/* Bytes of a category in memory of ours. */
static int64_t category_bytes(const fp8c_program *p, const f8_memory_report *r, int category)
{
    int64_t bytes = r->bytes[category];
    for (uint32_t i = 0; p->run.external && i < r->n_tensors; i++)
        if ((int)r->tensor[i].category == category && is_callers(p, &r->tensor[i]))
            bytes -= r->tensor[i].bytes;
    return bytes;
}

fp8c_status fp8c_program_memory(const fp8c_program *p, int function, int index, fp8c_memory *out)
{
    enum { SCRATCH = F8_MEMORY_CATEGORIES, UNUSED };
    const f8_compile_report_func *f = get_func(p, function);
    if (!f || index < 0 || index > UNUSED)
        return FP8C_ERR_INPUT;
    const f8_memory_report *r = &f->memory;
    const int64_t arena = largest_arena(&p->now->report);
    int64_t known = arena; /* of the planned bytes: all but scratch */
    for (int i = 0; i < F8_MEMORY_ACTIVATIONS; i++)
        known += category_bytes(p, r, i);
    if (index == SCRATCH)
        *out = (fp8c_memory){"scratch", p->now->report.planned - known, 0};
    else if (index == UNUSED)
        *out = (fp8c_memory){"unused", arena - r->peak.bytes, 1};
    else
        *out = (fp8c_memory){f8_memory_category_name((f8_memory_category)index),
                             category_bytes(p, r, index), index >= F8_MEMORY_ACTIVATIONS};
    return FP8C_OK;
}

fp8c_status fp8c_program_tensor(const fp8c_program *p, int function, int index, fp8c_tensor *out)
{
    const f8_compile_report_func *f = get_func(p, function);
    if (!f || index < 0 || (uint32_t)index >= f->memory.n_tensors)
        return FP8C_ERR_INPUT;
    const f8_memory_tensor *t = &f->memory.tensor[index];
    *out = (fp8c_tensor){.name = t->name,
                         .category =
                             is_callers(p, t) ? "external" : f8_memory_category_name(t->category),
                         .type = f8_api_type_out(&t->type),
                         .bytes = t->bytes,
                         .made = t->made,
                         .read = t->read,
                         .first = (int32_t)t->first,
                         .last = (int32_t)t->last};
    return FP8C_OK;
}

static void give_remat(const f8_remat_summary *r, int64_t planned, fp8c_remat *out)
{
    fp8c_remat own = {.struct_size = sizeof own,
                      .arena_before = r->before,
                      .arena_budget = r->budget,
                      .arena_after = r->after,
                      .activations_before = r->activations_before,
                      .activations_after = r->activations_after,
                      .recomputed = r->recomputed,
                      .fp8_gemms = r->fp8_gemms,
                      .seconds = r->seconds,
                      .extra_seconds = r->extra_seconds,
                      .rounds = r->rounds,
                      .planned_bytes = planned};
    f8_api_give(out, &own);
}

/* ---- budgets ---- */

static f8_status find_budget(f8_planning *k, const f8_budget *budget, f8_remat_summary *out,
                             int64_t *planned)
{
    f8_unit *u = &k->c.unit;
    f8_diag *diag = &k->diag;
    if (budget->bytes < 0 || !(budget->share >= 0 && budget->share < 1) ||
        (budget->bytes > 0) == (budget->share > 0))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "memory: a budget is bytes, or a share between 0 and 1");
    f8_unit_listen(u, "budget", 1);
    u->pass = "remat";
    u->n_times = 0;
    f8_status status = F8_OK;
    if (!k->budgets)
        status = f8_remat_budgets_make(u, &k->c.variant->graph, &k->budgets);
    if (status == F8_OK)
        status = f8_remat_budget(k->budgets, budget, out, planned);
    k->c.variant->gemms = k->c.gemms;
    return f8_unit_end(u, status);
}

fp8c_status fp8c_program_remat(const fp8c_program *p, int64_t memory_bytes, double memory_share,
                               fp8c_remat *out)
{
    f8_planning *k = p->now->planning;
    f8_remat_summary found;
    f8_diag refused = {0};
    int64_t planned;
    if (memory_bytes == 0 && memory_share == 0) {
        fp8c_info info = {.struct_size = sizeof info};
        fp8c_program_info(p, &info);
        give_remat(&p->now->report.remat, info.planned_bytes, out);
        return FP8C_OK;
    }
    if (!k)
        return f8_api_result(
            p->ctx, &refused,
            f8_fail(&refused, F8_ERR_INPUT, F8_NOWHERE,
                    "budgets are planned for a program that was compiled with plan_only for "
                    "training, without a budget, checkpoint, recompute and pair"));
    k->diag = (f8_diag){.file = k->c.unit.module->file};
    const f8_status status =
        find_budget(k, &(f8_budget){memory_bytes, memory_share}, &found, &planned);
    if (status == F8_OK)
        give_remat(&found, planned, out);
    return f8_api_result(p->ctx, &k->diag, status);
}
