/* What the entry points take from `forward`: its body, the names of its results, the states that it
 * replaces. See autodiff.h. */
#include "passes/grad/autodiff.h"
#include "passes/unit/copy.h"

f8_func *f8_entry_func(f8_unit *u, const f8_func *original, const char *name, f8_ref **map)
{
    f8_func *f = f8_module_func(u->module, name);
    *map = F8_NEW_ARRAY(u->arena, f8_ref, original->graph->n_nodes);
    if (!*map) {
        f8_arena_status(u->arena, u->diag);
        return NULL;
    }
    return f && f8_copy_body(original, f, *map, u->arena) == F8_OK ? f : NULL;
}

bool f8_is_scalar_loss(const f8_type *t)
{
    return t->dtype == F8_F32 && t->rank == 0;
}

const char *f8_result_name(const f8_func *original, size_t i)
{
    const f8_port *p = &original->out[i];
    return i == 0 && f8_is_scalar_loss(&p->type) ? "loss" : p->name;
}

f8_status f8_replace_states(f8_unit *u, f8_func *f, const f8_func *original, const f8_ref *map)
{
    for (size_t i = 0; i < original->n_out; i++) {
        const f8_port *p = &original->out[i];
        if (p->var < 0)
            continue;
        const f8_var *v = &u->module->var[p->var];
        if (v->kind == F8_VAR_PARAM)
            return f8_fail(
                u->diag, F8_ERR_INPUT, p->loc,
                "'forward' replaces parameter '%s', but only 'update' may change parameters",
                v->name);
        F8_TRY(f8_func_result(f, p->name, map[p->ref], p->var));
    }
    return F8_OK;
}
