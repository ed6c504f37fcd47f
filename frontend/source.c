/* What a program keeps of its module's text and options: see source.h. */
#include "frontend/source.h"

#include "frontend/options.h"

#include <string.h>

static f8_status keep_bounds(fp8c_program *p, const f8_module *m, f8_diag *diag)
{
    f8_bounds *b = &p->bounds;
    int32_t *index = F8_NEW_ARRAY(&p->arena, int32_t, m->n_dims + 1);
    b->bound = F8_NEW_ARRAY(&p->arena, f8_bound, m->n_dims);
    b->axis = F8_NEW_ARRAY(&p->arena, f8_bound_axis, m->n_axes);
    p->first->value = F8_NEW_ARRAY(&p->arena, int64_t, m->n_dims);
    F8_TRY(f8_arena_status(&p->arena, diag));
    for (size_t i = 0; i < m->n_dims; i++) {
        if (!m->dim[i].bound)
            continue;
        index[i + 1] = b->n;
        p->first->value[b->n] = m->dim[i].value;
        b->bound[b->n++] = (f8_bound){f8_arena_strdup(&p->arena, m->dim[i].name), m->dim[i].value};
    }
    for (size_t i = 0; i < m->n_axes; i++) {
        const f8_axis *a = &m->axis[i];
        if (strcmp(a->func, "forward")) /* its inputs include those of every other function */
            continue;
        b->axis[b->n_axes++] =
            (f8_bound_axis){.port = f8_arena_strdup(&p->arena, a->port),
                            .axis = a->axis,
                            .bound = a->form.dim > 0 && a->form.scale ? index[a->form.dim] : -1,
                            .scale = a->form.scale,
                            .offset = a->form.offset};
    }
    return f8_arena_status(&p->arena, diag);
}

static void keep_rules(f8_source *to, const f8_module *m, f8_arena *arena)
{
    to->rule = F8_NEW_ARRAY(arena, f8_recipe_rule, m->n_rules);
    for (size_t i = m->source_rules; to->rule && i < m->n_rules; i++) {
        f8_recipe_rule r = m->rule[i];
        r.pattern = f8_arena_strdup(arena, r.pattern);
        r.recipe = f8_arena_strdup(arena, r.recipe);
        r.origin = f8_arena_strdup(arena, r.origin); /* role and operand point into static tables */
        to->rule[to->n_rules++] = r;
    }
}

static void keep_chosen(f8_compile_request *own, const f8_compile_request *from, f8_arena *arena)
{
    f8_trial *chosen = F8_NEW_ARRAY(arena, f8_trial, from->n_chosen);
    own->n_chosen = chosen ? from->n_chosen : 0;
    for (size_t i = 0; i < own->n_chosen; i++) {
        f8_trial *t = &chosen[i];
        *t = from->chosen[i];
        t->linear = f8_arena_strdup(arena, t->linear);
        t->fixed = f8_arena_strdup(arena, t->fixed);
        t->reason = f8_arena_strdup(arena, t->reason);
        for (int k = 0; k < F8_CANDIDATES; k++)
            t->candidate[k].excluded = f8_arena_strdup(arena, t->candidate[k].excluded);
    }
    own->chosen = chosen;
}

f8_status f8_source_keep(fp8c_program *p, const fp8c_module *m, const f8_compile_request *request,
                         f8_diag *diag)
{
    if (!m->ir->source)
        return F8_OK;
    F8_TRY(keep_bounds(p, m->ir, diag));
    f8_arena *arena = &p->arena;
    f8_source *to = F8_NEW(arena, f8_source);
    f8_dim_override *dim = F8_NEW_ARRAY(arena, f8_dim_override, m->ir->n_dims);
    if (!to || !dim)
        return f8_arena_status(arena, diag);
    to->text = f8_arena_strndup(arena, m->text, m->text_size);
    to->size = m->text_size;
    to->file = f8_arena_strdup(arena, m->ir->file);
    to->dim = dim;
    for (size_t i = 0; i < m->ir->n_dims; i++)
        if (m->ir->dim[i].given && !m->ir->dim[i].bound)
            dim[to->n_dims++] =
                (f8_dim_override){f8_arena_strdup(arena, m->ir->dim[i].name), m->ir->dim[i].value};
    keep_rules(to, m->ir, arena);
    f8_options_keep(&to->request.o, &request->o, arena);
    keep_chosen(&to->request, request, arena);
    p->bounds.source = to;
    return f8_arena_status(arena, diag);
}
