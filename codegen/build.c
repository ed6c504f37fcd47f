/* The order of a build: variables, constants and ports of the plan, then the steps of each
 * function, then the code of all kernels. */
#include "codegen/build.h"

#include <stdio.h>
#include <string.h>

#include "codegen/cpu/build.h"
#include "codegen/cuda/build.h"
#include "ir/base/clock.h"

static f8_status finish_steps(f8_build *b)
{
    for (uint32_t f = 0; f < b->plan->n_funcs; f++)
        for (uint32_t i = 0; i < b->plan->func[f].n_steps; i++)
            if (b->builders[f][i].n_launches)
                F8_TRY(b->target->finish(b, &b->plan->func[f].step[i], &b->builders[f][i]));
    return F8_OK;
}

/* ---- variables, ports, constants ---- */

/* Offsets come from the module's layout, as the memory pass takes them too. The place of a value
 * cannot tell the offset, since a value may be copied to its variable at the end of the
 * function. */
static f8_status build_vars(f8_build *b)
{
    const f8_module *m = b->module;
    f8_plan *plan = b->plan;
    int64_t *offset = F8_NEW_ARRAY(b->arena, int64_t, m->n_vars + 1);
    plan->var = F8_NEW_ARRAY(b->arena, f8_plan_var, m->n_vars + 1);
    if (!plan->var || !offset)
        return f8_build_memory(b);
    plan->n_vars = (uint32_t)m->n_vars;
    plan->state_bytes = f8_module_layout(m, offset);
    for (size_t i = 0; i < m->n_vars; i++) {
        const f8_var *v = &m->var[i];
        plan->var[i] = (f8_plan_var){.name = f8_arena_strdup(b->arena, v->name),
                                     .type = v->type,
                                     .is_param = v->kind == F8_VAR_PARAM,
                                     .init = (int32_t)v->init,
                                     .init_arg = v->init_arg,
                                     .offset = offset[i]};
    }
    return F8_OK;
}

static f8_status build_ports(f8_build *b, const f8_port *port, size_t n, f8_plan_port **out,
                             uint32_t *n_out)
{
    *out = F8_NEW_ARRAY(b->arena, f8_plan_port, n + 1);
    if (!*out)
        return f8_build_memory(b);
    *n_out = (uint32_t)n;
    for (size_t i = 0; i < n; i++)
        (*out)[i] =
            (f8_plan_port){f8_arena_strdup(b->arena, port[i].name), port[i].type, port[i].var};
    return F8_OK;
}

static f8_status build_constants(f8_build *b)
{
    int64_t bytes = 0;
    for (size_t n = 0; n < b->module->n_funcs; n++)
        if (b->module->func[n].lowered)
            bytes += f8_aligned(b->module->func[n].lowered->constants_bytes, F8_ARENA_ALIGN);
    b->plan->constants_bytes = bytes;
    if (bytes && !(b->plan->constants = f8_arena_array(b->arena, (size_t)bytes, 1)))
        return f8_build_memory(b);
    return F8_OK;
}

/* Makes room behind the constants for the counters, which begin as zeros. */
static f8_status add_counters(f8_build *b)
{
    f8_plan *plan = b->plan;
    const int64_t bytes = plan->constants_bytes +
                          f8_aligned(b->n_counters * (int64_t)sizeof(uint32_t), F8_ARENA_ALIGN);
    uint8_t *grown = b->n_counters ? f8_arena_array(b->arena, (size_t)bytes, 1) : NULL;
    if (!b->n_counters)
        return F8_OK;
    if (!grown)
        return f8_build_memory(b);
    if (plan->constants_bytes)
        memcpy(grown, plan->constants, (size_t)plan->constants_bytes);
    plan->constants = grown;
    plan->constants_bytes = bytes;
    return F8_OK;
}

/* ---- functions ---- */

/* Of each function, the form for an empty amax history. */
static void link_forms(f8_plan *plan)
{
    for (uint32_t f = 0; f < plan->n_funcs; f++)
        for (uint32_t k = 0; k < plan->n_funcs; k++)
            if (f8_is_first_form(plan->func[k].name, plan->func[f].name))
                plan->func[f].first = k + 1;
}

/* Steps from `first` on belong to a group, by its number in f8_step.group. */
static void number_steps(f8_build *b, uint32_t first, uint32_t group)
{
    for (uint32_t i = first; i < b->out->n_steps; i++)
        b->out->step[i].group = group;
}

static f8_step_does does_of(f8_group_kind kind)
{
    switch (kind) {
    case F8_GROUP_ATTENTION:
    case F8_GROUP_ATTENTION_GRAD: return F8_DOES_ATTENTION;
    case F8_GROUP_COPY: return F8_DOES_COPY;
    default: return F8_DOES_ROWS;
    }
}

/* What a step is of its group's work: GEMMs by their operations, others by their bytes. A group
 * with products has no work beside them. */
static double weight(const f8_group *g, const f8_step *s)
{
    if (g->kind == F8_GROUP_GEMM)
        return s->kind == F8_STEP_GEMM ? s->flops : 0;
    if (g->flops > 0 && s->kind == F8_STEP_COPY)
        return 0;
    return (double)(s->bytes_read + s->bytes_written) + 1;
}

/* Gives the steps from `first` on what their group is estimated to cost. */
static void estimate_steps(f8_build *b, uint32_t first, const f8_group *g)
{
    f8_step *step = b->out->step;
    double all = 0;
    for (uint32_t i = first; i < b->out->n_steps; i++) {
        const f8_gemm_desc *d = step[i].kind == F8_STEP_GEMM ? &step[i].gemm : NULL;
        step[i].does = does_of(g->kind);
        if (d)
            step[i].flops =
                2 * (double)(d->batch ? d->batch : 1) * (double)d->m * (double)d->n * (double)d->k;
        all += weight(g, &step[i]);
    }
    for (uint32_t i = first; i < b->out->n_steps && all > 0; i++) {
        const double part = weight(g, &step[i]) / all;
        step[i].seconds = part * g->seconds;
        if (step[i].kind != F8_STEP_GEMM)
            step[i].flops = part * g->flops;
    }
}

static void count_launch(const f8_build *b, f8_kernel_source *u)
{
    u->launches++;
    u->first_launches += f8_is_first_name(b->func->name);
}

static f8_status build_func(f8_build *b, const f8_func *f)
{
    const f8_lowered *p = f->lowered;
    f8_plan_func *out = &b->plan->func[b->out_index];
    b->func = f;
    b->out = out;
    b->builder = NULL;
    b->step_room = b->builder_room = 0;
    b->most_scratch = b->renamed = 0;
    *out =
        (f8_plan_func){.name = f8_arena_strdup(b->arena, f->name), .lower_bound = p->lower_bound};
    F8_TRY(build_ports(b, f->in, f->n_in, &out->in, &out->n_in));
    F8_TRY(build_ports(b, f->out, f->n_out, &out->out, &out->n_out));
    if (p->constants_bytes)
        memcpy(b->plan->constants + b->constants_base, p->constants, (size_t)p->constants_bytes);
    for (uint32_t i = 0; i < p->n_groups; i++) {
        const uint32_t first = out->n_steps;
        F8_TRY(f8_progress_within(b->phase, b->diag));
        b->scratch = 0;
        F8_TRY(f8_build_group(b, &p->group[p->order[i]]));
        F8_TRY(f8_build_zeros(b, &p->group[p->order[i]]));
        number_steps(b, first, i + 1);
        estimate_steps(b, first, &p->group[p->order[i]]);
    }
    for (uint32_t i = 0; i < p->n_copies; i++) {
        const uint32_t first = out->n_steps;
        F8_TRY(f8_build_final_copy(b, &p->copy[i]));
        number_steps(b, first, p->n_groups + i + 1);
    }
    if (b->target->most_instances && !b->options->unmerged)
        F8_TRY(f8_build_merge(b));
    if (b->target->takes_tail && !b->options->unmerged)
        F8_TRY(f8_build_tails(b));
    if (b->target->check_steps)
        F8_TRY(b->target->check_steps(b));
    F8_TRY(f8_build_waits(b));
    F8_TRY(f8_build_branch(b));
    b->builders[b->out_index] = b->builder;
    for (uint32_t i = 0; i < out->n_steps; i++)
        for (uint32_t k = 0; k < b->builder[i].n_launches; k++)
            count_launch(b, &b->source[b->builder[i].launch[k].source]);
    out->arena_bytes = p->arena_bytes;
    if (b->most_scratch + b->renamed)
        out->arena_bytes = f8_build_renamed_base(b) + b->renamed;
    b->constants_base += f8_aligned(p->constants_bytes, F8_ARENA_ALIGN);
    return F8_OK;
}

static f8_status build_each(f8_build *b, f8_progress_phase *steps)
{
    const f8_module *m = b->module;
    for (size_t i = 0; i < m->n_funcs; i++) {
        F8_TRY(f8_progress_at(steps, (int64_t)i, m->func[i].name, b->diag));
        if (!m->func[i].lowered)
            continue;
        b->out_index = b->plan->n_funcs;
        F8_TRY(build_func(b, &m->func[i]));
        b->plan->n_funcs++;
    }
    return add_counters(b);
}

static f8_status build_funcs(f8_build *b)
{
    const f8_module *m = b->module;
    b->plan->func = F8_NEW_ARRAY(b->arena, f8_plan_func, m->n_funcs + 1);
    b->builders = F8_NEW_ARRAY(b->arena, f8_step_builder *, m->n_funcs + 1);
    if (!b->plan->func || !b->builders)
        return f8_build_memory(b);
    f8_progress_phase steps = f8_progress_begin(b->options->progress, "steps", (int64_t)m->n_funcs);
    b->phase = b->options->progress ? &steps : m->phase;
    const f8_status status = build_each(b, &steps);
    b->phase = NULL;
    return status == F8_OK ? f8_progress_at(&steps, steps.total, "", b->diag) : status;
}

static const f8_build_target *target_of(const f8_target *t)
{
    switch (t->kind) {
    case F8_TARGET_CPU: return &f8_build_cpu;
    case F8_TARGET_CUDA: return &f8_build_cuda;
    case F8_TARGET_REFERENCE: break;
    }
    return NULL;
}

/* Gives the text of each kernel to options.dump, for people to read. */
static void dump_kernels(const f8_build *b)
{
    f8_arena scratch;
    f8_arena_init(&scratch, b->options->allocator);
    for (uint32_t i = 0; i < b->n_sources; i++) {
        const f8_kernel_source *u = &b->source[i];
        char file[40];
        snprintf(file, sizeof file, "kernel_%03u.txt", i);
        const char *text = f8_arena_printf(&scratch, "# %s, launched by %u steps\n%s", u->name,
                                           u->launches, u->text);
        if (text)
            b->options->dump(b->options->dump_user, file, text);
    }
    f8_arena_end(&scratch);
}

f8_status f8_build_plan(const f8_module *m, const f8_build_options *options, f8_arena *arena,
                        f8_plan *plan, f8_diag *d)
{
    const f8_target *facts = options->target ? options->target : f8_target_by_name("cpu");
    f8_build b = {.module = m,
                  .options = options,
                  .target = target_of(facts),
                  .facts = facts,
                  .arena = arena,
                  .diag = d,
                  .plan = plan};
    *plan = (f8_plan){.module = f8_arena_strdup(arena, m->name),
                      .target = f8_arena_strdup(arena, facts->name)};
    if (!b.target)
        return f8_fail(d, F8_ERR_UNSUPPORTED, F8_NOWHERE, "target '%s' runs no plans", facts->name);
    /* Merging compares kernels by their texts, and choices are looked up by them. */
    b.nameless = options->only_bytes && !options->choices && !b.target->most_instances;
    const double start = f8_seconds_now();
    if (b.target->begin)
        F8_TRY(b.target->begin(&b));
    F8_TRY(build_vars(&b));
    F8_TRY(build_constants(&b));
    F8_TRY(build_funcs(&b));
    link_forms(plan);
    if (options->dump)
        dump_kernels(&b);
    if (options->stats)
        *options->stats =
            (f8_build_stats){.describe = f8_seconds_now() - start, .builders = b.builders};
    f8_status (*const make)(f8_build *) = options->no_code ? b.target->size : b.target->compile;
    if (b.n_sources && make)
        F8_TRY(make(&b));
    if (make)
        F8_TRY(finish_steps(&b));
    if (options->stats && !options->no_code)
        F8_TRY(b.target->fill_stats(&b, options->stats));
    return arena->failed ? f8_arena_status(arena, d) : F8_OK;
}

f8_status f8_build_interface(const f8_module *m, const f8_target *target, f8_arena *arena,
                             f8_plan *plan, f8_diag *d)
{
    f8_build b = {.module = m, .arena = arena, .diag = d, .plan = plan};
    *plan = (f8_plan){.module = f8_arena_strdup(arena, m->name),
                      .target = f8_arena_strdup(arena, target->name)};
    F8_TRY(build_vars(&b));
    plan->func = F8_NEW_ARRAY(arena, f8_plan_func, m->n_funcs + 1);
    F8_TRY(f8_arena_status(arena, d));
    for (; plan->n_funcs < m->n_funcs; plan->n_funcs++) {
        const f8_func *f = &m->func[plan->n_funcs];
        f8_plan_func *out = &plan->func[plan->n_funcs];
        out->name = f8_arena_strdup(arena, f->name);
        F8_TRY(build_ports(&b, f->in, f->n_in, &out->in, &out->n_in));
        F8_TRY(build_ports(&b, f->out, f->n_out, &out->out, &out->n_out));
    }
    F8_TRY(f8_arena_status(arena, d));
    link_forms(plan);
    return F8_OK;
}
