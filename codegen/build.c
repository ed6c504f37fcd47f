/* The build: variables, constants and ports of the plan, each function's groups as steps, then
 * code. */
#include "codegen/build_parts.h"

#include <string.h>
#include <time.h>

enum { ALIGN = 64 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int64_t align_up(int64_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

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
    if (2 * (b->n_units + 1) > b->table_size)
        F8_TRY(grow_table(b));
    uint32_t at = (uint32_t)unit->hash & (b->table_size - 1);
    for (; b->table[at]; at = (at + 1) & (b->table_size - 1)) {
        const uint32_t i = b->table[at] - 1;
        if (b->unit[i].hash == unit->hash && !strcmp(b->unit[i].text, unit->text)) {
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
    b->table[at] = b->n_units + 1;
    *index = b->n_units++;
    return F8_OK;
}

/* ---- steps ---- */

f8_step *f8_build_step(f8_build *b, f8_step_kind kind, const char *name, uint32_t n_args,
                       uint32_t n_ints)
{
    f8_step *steps = f8_arena_grow(b->arena, b->out->step, b->out->n_steps, &b->step_room,
                                   b->out->n_steps + 1, sizeof *steps);
    if (!steps)
        return NULL;
    b->out->step = steps;
    f8_step *s = &steps[b->out->n_steps];
    *s = (f8_step){.kind = kind, .n_args = n_args, .n_ints = n_ints};
    s->name = f8_arena_strdup(b->arena, name ? name : "");
    s->arg = F8_NEW_ARRAY(b->arena, f8_arg, n_args + 1);
    s->ints = F8_NEW_ARRAY(b->arena, int64_t, n_ints + 1);
    if (!s->name || !s->arg || !s->ints)
        return NULL;
    b->out->n_steps++;
    return s;
}

f8_status f8_build_launch(f8_build *b, uint32_t unit, int64_t n_tasks, uint32_t first_arg,
                          uint32_t first_int)
{
    f8_build_patch *grown = f8_arena_grow(b->arena, b->patch, b->n_patches, &b->patch_room,
                                          b->n_patches + 1, sizeof *grown);
    if (!grown)
        return f8_arena_status(b->arena, b->diag);
    b->patch = grown;
    b->patch[b->n_patches++] = (f8_build_patch){.func = b->out_index, .step = b->out->n_steps - 1,
                                                .unit = unit, .first_arg = first_arg,
                                                .first_int = first_int, .n_tasks = n_tasks};
    b->unit[unit].launches++;
    uint64_t *hash = &b->out->step[b->out->n_steps - 1].hash;
    *hash = *hash * 0x100000001b3u ^ b->unit[unit].hash; /* of its launches, in order */
    return F8_OK;
}

f8_arg f8_build_arg(const f8_build *b, const f8_place *p)
{
    const int64_t base = p->space == F8_SPACE_CONST ? b->constants_base : 0;
    return (f8_arg){p->space, p->port, p->offset + base};
}

/* The launches [first, end) of one step: their phases in a row. */
static f8_status patch_step(f8_build *b, uint32_t first, uint32_t end)
{
    const f8_build_patch *p = &b->patch[first];
    f8_step *s = &b->plan->func[p->func].step[p->step];
    int total = 0;
    for (uint32_t i = first; i < end; i++)
        total += b->unit[b->patch[i].unit].n_phases;
    s->phase = F8_NEW_ARRAY(b->arena, f8_step_phase, (size_t)total);
    if (!s->phase)
        return f8_arena_status(b->arena, b->diag);
    for (; p < &b->patch[end]; p++) {
        const f8_build_unit *u = &b->unit[p->unit];
        for (int n = 0; n < u->n_phases; n++)
            s->phase[s->n_phases++] = (f8_step_phase){
                .entry = u->entry[n], .n_tasks = p->n_tasks ? p->n_tasks : u->phase[n].n_tasks,
                .scratch = u->phase[n].scratch, .first_arg = p->first_arg, .first_int = p->first_int};
    }
    return F8_OK;
}

static f8_status patch_steps(f8_build *b)
{
    for (uint32_t first = 0, end; first < b->n_patches; first = end) {
        for (end = first + 1; end < b->n_patches && b->patch[end].func == b->patch[first].func &&
                              b->patch[end].step == b->patch[first].step;)
            end++;
        F8_TRY(patch_step(b, first, end));
    }
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
            bytes += align_up(b->module->func[n].program->constants_bytes);
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
    b->step_room = 0;
    b->spare = 0;
    *out =
        (f8_plan_func){.name = f8_arena_strdup(b->arena, f->name), .lower_bound = p->lower_bound};
    F8_TRY(build_ports(b, f->in, f->n_in, &out->in, &out->n_in));
    F8_TRY(build_ports(b, f->out, f->n_out, &out->out, &out->n_out));
    if (p->constants_bytes)
        memcpy(b->plan->constants + b->constants_base, p->constants, (size_t)p->constants_bytes);
    for (uint32_t i = 0; i < p->n_groups; i++)
        F8_TRY(f8_build_group(b, &p->group[p->order[i]]));
    for (uint32_t i = 0; i < p->n_copies; i++)
        F8_TRY(f8_build_final_copy(b, &p->copy[i]));
    out->arena_bytes = b->spare ? align_up(p->arena_bytes) + b->spare : p->arena_bytes;
    b->constants_base += align_up(p->constants_bytes);
    return F8_OK;
}

static f8_status build_funcs(f8_build *b)
{
    const f8_module *m = b->module;
    b->plan->func = F8_NEW_ARRAY(b->arena, f8_plan_func, m->n_funcs + 1);
    if (!b->plan->func)
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

static f8_status fill_stats(const f8_build *b, f8_build_stats *s)
{
    s->kernel = F8_NEW_ARRAY(b->arena, f8_build_kernel, b->n_units + 1);
    if (!s->kernel)
        return f8_arena_status(b->arena, b->diag);
    s->n_kernels = b->n_units;
    for (uint32_t i = 0; i < b->n_units; i++) {
        const f8_build_unit *u = &b->unit[i];
        s->kernel[i] = (f8_build_kernel){u->name, u->text, u->hash, u->launches, u->seconds};
    }
    s->code_bytes = b->plan->blob_code_bytes;
    return F8_OK;
}

f8_status f8_build_plan(const f8_module *m, const f8_build_options *options, f8_arena *arena,
                        f8_plan *plan, f8_diag *d)
{
    f8_build b = {.module = m, .options = options, .arena = arena, .diag = d, .plan = plan};
    *plan = (f8_plan){.module = f8_arena_strdup(arena, m->name)};
    const double start = now();
    F8_TRY(build_vars(&b));
    F8_TRY(build_constants(&b));
    F8_TRY(build_funcs(&b));
    if (options->stats)
        *options->stats = (f8_build_stats){.describe = now() - start};
    if (b.n_units)
        F8_TRY(f8_build_kernels(&b));
    plan->n_kernels = b.n_units;
    F8_TRY(patch_steps(&b));
    if (options->stats)
        F8_TRY(fill_stats(&b, options->stats));
    return arena->failed ? f8_arena_status(arena, d) : F8_OK;
}
