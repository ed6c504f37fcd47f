/* The build: variables, constants and ports of the plan, each function's groups as steps, then
 * code. */
#include "codegen/build_parts.h"

#include <stdio.h>
#include <string.h>

#include "ir/clock.h"
#include "ir/hash.h"

/* ---- the registry of kernels ---- */

static f8_status grow_table(f8_build *b)
{
    const uint32_t size = b->table_size ? 2 * b->table_size : 256;
    uint32_t *table = F8_NEW_ARRAY(b->arena, uint32_t, size);
    if (!table)
        return f8_arena_status(b->arena, b->diag);
    for (uint32_t i = 0; i < b->n_units; i++) {
        uint32_t at = (uint32_t)b->unit[i].hash & (size - 1);
        while (table[at])
            at = (at + 1) & (size - 1);
        table[at] = i + 1;
    }
    b->table = table;
    b->table_size = size;
    return F8_OK;
}

f8_status f8_build_intern(f8_build *b, const f8_build_unit *unit, uint32_t *index)
{
    if (!unit->text || !unit->name)
        return f8_arena_status(b->arena, b->diag);
    if (2 * (b->n_units + 1) > b->table_size)
        F8_TRY(grow_table(b));
    const uint64_t hash = unit->hash ? unit->hash : f8_fnv(F8_FNV, unit->text);
    uint32_t at = (uint32_t)hash & (b->table_size - 1);
    for (; b->table[at]; at = (at + 1) & (b->table_size - 1)) {
        const uint32_t i = b->table[at] - 1;
        if (b->unit[i].hash == hash && !strcmp(b->unit[i].text, unit->text)) {
            *index = i;
            return F8_OK;
        }
    }
    f8_build_unit *grown =
        f8_arena_grow(b->arena, b->unit, b->n_units, &b->unit_room, b->n_units + 1, sizeof *grown);
    if (!grown)
        return f8_arena_status(b->arena, b->diag);
    b->unit = grown;
    b->unit[b->n_units] = *unit;
    b->unit[b->n_units].hash = hash;
    b->table[at] = b->n_units + 1;
    *index = b->n_units++;
    return F8_OK;
}

/* ---- steps ---- */

f8_step *f8_build_step(f8_build *b, f8_step_kind kind, const char *name, uint32_t n_args,
                       uint32_t n_ints)
{
    f8_plan_func *f = b->out;
    f8_step *steps =
        f8_arena_grow(b->arena, f->step, f->n_steps, &b->step_room, f->n_steps + 1, sizeof *steps);
    f8_build_draft *drafts = f8_arena_grow(b->arena, b->draft, f->n_steps, &b->draft_room,
                                           f->n_steps + 1, sizeof *drafts);
    if (!steps || !drafts)
        return NULL;
    f->step = steps;
    b->draft = drafts;
    f8_step *s = &steps[f->n_steps];
    drafts[f->n_steps] = (f8_build_draft){0};
    *s = (f8_step){.kind = kind, .n_args = n_args, .n_ints = n_ints};
    s->name = f8_arena_strdup(b->arena, name ? name : "");
    s->arg = F8_NEW_ARRAY(b->arena, f8_arg, n_args + 1);
    s->ints = F8_NEW_ARRAY(b->arena, int64_t, n_ints + 1);
    if (!s->name || !s->arg || !s->ints)
        return NULL;
    f->n_steps++;
    return s;
}

f8_status f8_build_add_launch(f8_build *b, const f8_build_launch *launch, int64_t n_tasks)
{
    f8_build_draft *draft = &b->draft[b->out->n_steps - 1];
    f8_build_launch *grown = f8_arena_grow(b->arena, draft->launch, draft->n_launches,
                                           &draft->launch_room, draft->n_launches + 1, sizeof *grown);
    int64_t *tasks = F8_NEW_ARRAY(b->arena, int64_t, 1);
    if (!grown || !tasks)
        return f8_arena_status(b->arena, b->diag);
    draft->launch = grown;
    *tasks = n_tasks;
    f8_build_launch *l = &grown[draft->n_launches++];
    *l = *launch;
    l->n_instances = 1;
    l->n_tasks = tasks;
    uint64_t *hash = &b->out->step[b->out->n_steps - 1].hash;
    *hash = *hash * 0x100000001b3u ^ b->unit[l->unit].hash; /* of its launches, in order */
    return F8_OK;
}

int64_t f8_build_span(const f8_type *t, const f8_place *p)
{
    const int64_t rows = f8_type_rows(t);
    return ((rows > 1 ? rows - 1 : 0) * p->stride + f8_type_columns(t)) *
           (int64_t)f8_dtype_size(t->dtype);
}

static f8_status touch(f8_build *b, const f8_place *p, int64_t bytes, f8_build_access a)
{
    f8_build_draft *draft = &b->draft[b->out->n_steps - 1];
    f8_build_access *grown = f8_arena_grow(b->arena, draft->access, draft->n_accesses,
                                           &draft->access_room, draft->n_accesses + 1, sizeof *grown);
    if (!grown)
        return f8_arena_status(b->arena, b->diag);
    draft->access = grown;
    a.space = p->space;
    a.port = p->port;
    a.begin = p->offset;
    a.end = p->offset + bytes;
    if (p->space == F8_SPACE_INPUT || p->space == F8_SPACE_OUTPUT) {
        const f8_plan_func *f = b->out;
        const int32_t var = p->space == F8_SPACE_INPUT ? f->in[p->port].var : f->out[p->port].var;
        if (var >= 0) {
            a.space = F8_SPACE_STATE;
            a.begin += b->plan->var[var].offset;
            a.end += b->plan->var[var].offset;
        }
    }
    if (a.space != F8_SPACE_INPUT && a.space != F8_SPACE_OUTPUT)
        a.port = -1;
    grown[draft->n_accesses++] = a;
    return F8_OK;
}

static f8_build_access rows_at(const f8_place *p, f8_ref r, const f8_type *t, bool write)
{
    const int64_t size = (int64_t)f8_dtype_size(t->dtype);
    return (f8_build_access){.write = write,
                             .value = r,
                             .width = f8_type_columns(t) * size,
                             .pitch = f8_type_rows(t) > 1 ? p->stride * size : 0};
}

f8_status f8_build_touch(f8_build *b, const f8_place *p, f8_ref r, bool write)
{
    const f8_type *t = f8_build_type(b, r);
    const int64_t bytes = f8_build_span(t, p);
    f8_build_access a = rows_at(p, r, t, write);
    a.whole = bytes == f8_type_bytes(t);
    return touch(b, p, bytes, a);
}

f8_status f8_build_touch_part(f8_build *b, const f8_place *p, f8_ref r, const f8_type *t,
                              bool write)
{
    return touch(b, p, f8_build_span(t, p), rows_at(p, r, t, write));
}

f8_status f8_build_touch_some(f8_build *b, const f8_place *p, f8_ref r, int64_t bytes, bool write)
{
    return touch(b, p, bytes, (f8_build_access){.write = write, .value = r, .width = bytes});
}

f8_arg f8_build_arg(const f8_build *b, const f8_place *p)
{
    const int64_t base = p->space == F8_SPACE_CONST ? b->constants_base : 0;
    return (f8_arg){p->space, p->port, p->offset + base};
}

f8_place f8_build_scratch(f8_build *b, int64_t bytes, int64_t stride)
{
    const int64_t base = f8_aligned(b->func->program->arena_bytes, F8_ARENA_ALIGN);
    const f8_place p = {F8_SPACE_ARENA, -1, base + b->scratch, stride};
    b->scratch += f8_aligned(bytes, F8_ARENA_ALIGN);
    if (b->scratch > b->most_scratch)
        b->most_scratch = b->scratch;
    return p;
}

int64_t f8_build_renamed_base(const f8_build *b)
{
    return f8_aligned(b->func->program->arena_bytes, F8_ARENA_ALIGN) + b->most_scratch;
}

static f8_status finish_steps(f8_build *b)
{
    for (uint32_t f = 0; f < b->plan->n_funcs; f++)
        for (uint32_t i = 0; i < b->plan->func[f].n_steps; i++)
            if (b->drafts[f][i].n_launches)
                F8_TRY(b->target->finish(b, &b->plan->func[f].step[i], &b->drafts[f][i]));
    return F8_OK;
}

/* ---- variables, ports, constants ---- */

/* Where the memory pass lays them out: a place cannot tell, since a value may be copied to its variable at the
 * function's end. */
static f8_status build_vars(f8_build *b)
{
    const f8_module *m = b->module;
    f8_plan *plan = b->plan;
    int64_t *offset = F8_NEW_ARRAY(b->arena, int64_t, m->n_vars + 1);
    plan->var = F8_NEW_ARRAY(b->arena, f8_plan_var, m->n_vars + 1);
    if (!plan->var || !offset)
        return f8_arena_status(b->arena, b->diag);
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
        return f8_arena_status(b->arena, b->diag);
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
        if (b->module->func[n].program)
            bytes += f8_aligned(b->module->func[n].program->constants_bytes, F8_ARENA_ALIGN);
    b->plan->constants_bytes = bytes;
    if (bytes && !(b->plan->constants = f8_arena_array(b->arena, (size_t)bytes, 1)))
        return f8_arena_status(b->arena, b->diag);
    return F8_OK;
}

/* ---- functions ---- */

static f8_status build_func(f8_build *b, const f8_func *f)
{
    const f8_program *p = f->program;
    f8_plan_func *out = &b->plan->func[b->out_index];
    b->func = f;
    b->out = out;
    b->draft = NULL;
    b->step_room = b->draft_room = 0;
    b->most_scratch = b->renamed = 0;
    *out =
        (f8_plan_func){.name = f8_arena_strdup(b->arena, f->name), .lower_bound = p->lower_bound};
    F8_TRY(build_ports(b, f->in, f->n_in, &out->in, &out->n_in));
    F8_TRY(build_ports(b, f->out, f->n_out, &out->out, &out->n_out));
    if (p->constants_bytes)
        memcpy(b->plan->constants + b->constants_base, p->constants, (size_t)p->constants_bytes);
    for (uint32_t i = 0; i < p->n_groups; i++) {
        b->scratch = 0;
        F8_TRY(f8_build_group(b, &p->group[p->order[i]]));
    }
    for (uint32_t i = 0; i < p->n_copies; i++)
        F8_TRY(f8_build_final_copy(b, &p->copy[i]));
    if (b->target->most_instances && !b->options->unmerged)
        F8_TRY(f8_build_merge(b));
    if (b->target->check_steps)
        F8_TRY(b->target->check_steps(b));
    b->drafts[b->out_index] = b->draft;
    for (uint32_t i = 0; i < out->n_steps; i++)
        for (uint32_t k = 0; k < b->draft[i].n_launches; k++)
            b->unit[b->draft[i].launch[k].unit].launches++;
    out->arena_bytes = p->arena_bytes;
    if (b->most_scratch + b->renamed)
        out->arena_bytes = f8_aligned(p->arena_bytes, F8_ARENA_ALIGN) + b->most_scratch + b->renamed;
    b->constants_base += f8_aligned(p->constants_bytes, F8_ARENA_ALIGN);
    return F8_OK;
}

static f8_status build_funcs(f8_build *b)
{
    const f8_module *m = b->module;
    b->plan->func = F8_NEW_ARRAY(b->arena, f8_plan_func, m->n_funcs + 1);
    b->drafts = F8_NEW_ARRAY(b->arena, f8_build_draft *, m->n_funcs + 1);
    if (!b->plan->func || !b->drafts)
        return f8_arena_status(b->arena, b->diag);
    for (size_t i = 0; i < m->n_funcs; i++) {
        if (!m->func[i].program)
            continue;
        b->out_index = b->plan->n_funcs;
        F8_TRY(build_func(b, &m->func[i]));
        b->plan->n_funcs++;
    }
    return F8_OK;
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

/* What kernels compute, for people: options.dump. */
static void dump_units(const f8_build *b)
{
    f8_arena scratch;
    f8_arena_init(&scratch, b->options->allocator);
    for (uint32_t i = 0; i < b->n_units; i++) {
        const f8_build_unit *u = &b->unit[i];
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
    f8_build b = {.module = m, .options = options, .target = target_of(facts), .facts = facts,
                  .arena = arena, .diag = d, .plan = plan};
    *plan = (f8_plan){.module = f8_arena_strdup(arena, m->name),
                      .target = f8_arena_strdup(arena, facts->name)};
    if (!b.target)
        return f8_fail(d, F8_ERR_UNSUPPORTED, F8_NOWHERE, "there are no plans for target '%s'",
                       facts->name);
    const double start = f8_seconds_now();
    if (b.target->begin)
        F8_TRY(b.target->begin(&b));
    F8_TRY(build_vars(&b));
    F8_TRY(build_constants(&b));
    F8_TRY(build_funcs(&b));
    if (options->dump)
        dump_units(&b);
    if (options->stats)
        *options->stats =
            (f8_build_stats){.describe = f8_seconds_now() - start, .drafts = b.drafts};
    f8_status (*const make)(f8_build *) = options->no_code ? b.target->size : b.target->compile;
    if (b.n_units && make)
        F8_TRY(make(&b));
    if (make)
        F8_TRY(finish_steps(&b));
    if (options->stats && !options->no_code)
        F8_TRY(b.target->fill_stats(&b, options->stats));
    return arena->failed ? f8_arena_status(arena, d) : F8_OK;
}

f8_status f8_build_interface(const f8_module *m, const f8_target *target, f8_arena *arena, f8_plan *plan,
                             f8_diag *d)
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
    return f8_arena_status(arena, d);
}
