/* See values.h. */
#include "tests/faults/values.h"

#include "codegen/witness/witness.h"

typedef struct listing {
    const f8_variant *v;
    const f8_plan_func *plan;
    const f8_func *f;
    f8_arena *arena;
    f8_fault_values *out;
} listing;

static uint32_t last_step_of(const f8_plan_func *plan, uint32_t group)
{
    for (uint32_t i = plan->n_steps; i-- > 0;)
        if (plan->step[i].group == group)
            return i;
    return UINT32_MAX;
}

static const char *variable_at(const f8_plan *plan, const f8_place *place)
{
    for (uint32_t i = 0; place->space == F8_SPACE_STATE && i < plan->n_vars; i++)
        if (plan->var[i].offset == place->offset)
            return plan->var[i].name;
    return NULL;
}

static void add(listing *l, uint32_t group, f8_ref r, const f8_place *place, bool product)
{
    const uint32_t step = last_step_of(l->plan, group);
    if (step != UINT32_MAX) /* else nothing had to be done */
        l->out->value[l->out->n++] =
            (f8_fault_value){.step = step,
                             .name = f8_program_value_name(l->f, r, l->arena),
                             .variable = variable_at(&l->v->plan, place),
                             .product = product,
                             .place = *place,
                             .type = *f8_type_of(l->f->graph, r)};
}

static void add_group(listing *l, uint32_t at)
{
    const f8_lowered *p = l->f->lowered;
    const f8_group *g = &p->group[p->order[at]];
    if (g->kind == F8_GROUP_COLLECTIVE)
        return;
    for (uint32_t i = 0; i < g->n_out; i++)
        if (!f8_witness_is_overwritten(l->f, g, g->out[i]))
            add(l, at + 1, g->out[i], &p->place[g->out[i]], g->kind == F8_GROUP_GEMM);
}

f8_status f8_fault_values_of(const f8_variant *v, uint32_t func, f8_arena *arena,
                             f8_fault_values *out)
{
    const f8_plan_func *plan = &v->plan.func[func];
    const f8_func *f = f8_module_find_func(v->lowered, plan->name);
    const f8_lowered *p = f->lowered;
    listing l = {v, plan, f, arena, out};
    size_t room = p->n_copies;
    for (uint32_t i = 0; i < p->n_groups; i++)
        room += p->group[i].n_out;
    *out = (f8_fault_values){F8_NEW_ARRAY(arena, f8_fault_value, room), 0};
    if (!out->value)
        return F8_ERR_MEMORY;
    for (uint32_t i = 0; i < p->n_groups; i++)
        add_group(&l, i);
    for (uint32_t i = 0; i < p->n_copies; i++)
        add(&l, p->n_groups + 1 + i, p->copy[i].from, &p->copy[i].to, false);
    return F8_OK;
}
