/* Copying nodes between graphs: see copy.h. */
#include "passes/unit/copy.h"

f8_ref f8_copy_node(f8_graph *to, const f8_graph *from, f8_ref r, const f8_ref *in)
{
    const f8_node *n = f8_at(from, r);
    f8_loc at = to->at;
    to->at = from->loc[r];
    f8_ref copy =
        f8_make_clone(to, n->op, in, (int)n->n_in, n->attr, f8_op_facts(n->op)->n_attrs, n->clone);
    to->at = at;
    if (copy && from->name[r])
        f8_set_name(to, copy, from->name[r]);
    return copy;
}

const f8_ref *f8_map_operands(const f8_graph *from, f8_ref r, const f8_ref *map, f8_ref *buffer)
{
    const f8_node *n = f8_at(from, r);
    for (uint32_t i = 0; i < n->n_in; i++)
        buffer[i] = map[n->in[i]];
    return buffer;
}

uint32_t f8_widest(const f8_graph *g)
{
    uint32_t most = 1;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        if (f8_at(g, r)->n_in > most)
            most = f8_at(g, r)->n_in;
    return most;
}

bool *f8_live_nodes(const f8_graph *g, const f8_ref *root, size_t n_roots, f8_arena *arena)
{
    bool *live = F8_NEW_ARRAY(arena, bool, g->n_nodes);
    if (!live)
        return NULL;
    for (size_t i = 0; i < n_roots; i++)
        live[root[i]] = true;
    for (f8_ref r = g->n_nodes; r-- > 1;) {
        const f8_node *n = f8_at(g, r);
        for (uint32_t i = 0; live[r] && i < n->n_in; i++)
            live[n->in[i]] = true;
    }
    return live;
}

f8_status f8_copy_body(const f8_func *from, f8_func *to, f8_ref *map, f8_arena *arena)
{
    const f8_graph *g = from->graph;
    f8_ref *root = F8_NEW_ARRAY(arena, f8_ref, from->n_out);
    f8_ref *buffer = F8_NEW_ARRAY(arena, f8_ref, f8_widest(g));
    if (!root || !buffer)
        return f8_arena_status(arena, to->graph->diag);
    for (size_t i = 0; i < from->n_out; i++)
        root[i] = from->out[i].ref;
    bool *live = f8_live_nodes(g, root, from->n_out, arena);
    if (!live)
        return f8_arena_status(arena, to->graph->diag);
    for (size_t i = 0; i < from->n_in; i++) {
        const f8_port *p = &from->in[i];
        to->graph->at = p->loc;
        map[p->ref] =
            p->var >= 0 ? f8_func_var(to, p->var) : f8_func_input(to, p->name, &p->type, -1);
        if (!map[p->ref])
            return to->graph->diag->status;
        if (g->name[p->ref])
            f8_set_name(to->graph, map[p->ref], g->name[p->ref]);
    }
    for (f8_ref r = 1; r < g->n_nodes; r++)
        if (live[r] && f8_at(g, r)->op != F8_OP_INPUT)
            map[r] = f8_copy_node(to->graph, g, r, f8_map_operands(g, r, map, buffer));
    return to->graph->diag->status;
}

f8_status f8_copy_func(f8_module *m, const f8_func *from, const char *name, f8_arena *arena)
{
    const f8_func body = *from; /* the new function may move those of m */
    f8_func *to = f8_module_func(m, name);
    f8_ref *map = F8_NEW_ARRAY(arena, f8_ref, body.graph->n_nodes);
    if (!to || !map)
        return to ? f8_arena_status(arena, m->diag) : m->diag->status;
    F8_TRY(f8_copy_body(&body, to, map, arena));
    for (size_t i = 0; i < body.n_out; i++)
        F8_TRY(f8_func_result(to, body.out[i].name, map[body.out[i].ref], body.out[i].var));
    return F8_OK;
}
