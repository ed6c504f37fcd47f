/* A copy of a module's lowered functions: see lowered.h.
 *
 * The arena of a module that went through the passes also holds every graph that they replaced.
 * These take many times the bytes of the last ones. */
#include "ir/lowered.h"

#include <string.h>

/* A copy of n elements in the module's arena; NULL gives NULL. */
static void *copy(const f8_module *m, const void *from, size_t n, size_t size)
{
    void *to = from && n ? f8_arena_array(m->arena, n, size) : NULL;
    return to ? memcpy(to, from, n * size) : NULL;
}

#define COPY(m, from, n) copy((m), (from), (n), sizeof *(from))

static const char *text(f8_module *m, const char *from)
{
    return from ? f8_intern(m, from) : NULL;
}

/* ---- a graph ---- */

static const f8_attr *copy_attrs(f8_module *m, const f8_node *n)
{
    const size_t n_attrs = f8_op_facts(n->op)->n_attrs;
    f8_attr *attr = COPY(m, n->attr, n_attrs);
    for (size_t i = 0; attr && i < n_attrs; i++)
        if (f8_attr_kind_of(attr[i].key) == F8_ATTR_STR)
            attr[i].s = text(m, attr[i].s);
    return attr;
}

/* was, is: by op, the attributes of the last node and their copy, which nodes share. */
static void copy_node(f8_module *m, f8_node *n, const f8_attr **was, const f8_attr **is)
{
    if (!is[n->op] || n->attr != was[n->op]) {
        was[n->op] = n->attr;
        is[n->op] = copy_attrs(m, n);
    }
    n->in = COPY(m, n->in, n->n_in);
    n->attr = is[n->op];
}

/* Nodes keep their refs. The copy has no table of equal nodes, so none can be added to it. */
static f8_graph *copy_graph(f8_module *m, const f8_graph *from)
{
    const f8_attr *was[F8_OP_COUNT] = {0}, *is[F8_OP_COUNT] = {0};
    f8_graph *to = F8_NEW(m->arena, f8_graph);
    if (!to)
        return NULL;
    *to = (f8_graph){.arena = m->arena,
                     .module = m,
                     .diag = m->diag,
                     .n_nodes = from->n_nodes,
                     .most_nodes = from->most_nodes};
    to->node = COPY(m, from->node, from->n_nodes);
    to->loc = COPY(m, from->loc, from->n_nodes);
    to->name = COPY(m, from->name, from->n_nodes);
    for (f8_ref r = 1; !m->arena->failed && r < to->n_nodes; r++) {
        copy_node(m, &to->node[r], was, is);
        to->name[r] = text(m, to->name[r]);
    }
    return to;
}

/* ---- groups and places ---- */

static void copy_group(f8_module *m, f8_group *g)
{
    g->name = text(m, g->name);
    g->in = COPY(m, g->in, g->n_in);
    g->out = COPY(m, g->out, g->n_out);
    g->phase = COPY(m, g->phase, g->n_phases);
    for (uint32_t i = 0; g->phase && i < g->n_phases; i++) {
        f8_phase *p = &g->phase[i];
        p->node = COPY(m, p->node, p->n_nodes);
        p->out = COPY(m, p->out, p->n_out);
    }
}

/* Without what only planning reads. */
static f8_lowered *copy_lowered(f8_module *m, const f8_lowered *from, uint32_t n_nodes)
{
    f8_lowered *to = F8_NEW(m->arena, f8_lowered);
    if (!to)
        return NULL;
    *to = *from;
    to->order = COPY(m, from->order, from->n_groups);
    to->place = COPY(m, from->place, n_nodes);
    to->pad = COPY(m, from->pad, n_nodes);
    to->copy = COPY(m, from->copy, from->n_copies);
    to->constants = COPY(m, from->constants, (size_t)from->constants_bytes);
    to->group = COPY(m, from->group, from->n_groups);
    for (uint32_t i = 0; to->group && i < to->n_groups; i++)
        copy_group(m, &to->group[i]);
    to->allocation = NULL;
    to->n_allocations = 0;
    to->root = NULL;
    return to;
}

/* ---- the module ---- */

static f8_port *copy_ports(f8_module *m, const f8_port *from, size_t n)
{
    f8_port *to = COPY(m, from, n);
    for (size_t i = 0; to && i < n; i++)
        to[i].name = text(m, to[i].name);
    return to;
}

f8_module *f8_lowered_copy(const f8_module *from, f8_arena *arena, f8_diag *diag)
{
    f8_module *m = f8_module_create(arena, diag, from->name, NULL);
    f8_func *func = F8_NEW_ARRAY(arena, f8_func, from->n_funcs);
    if (!m || !func) {
        f8_arena_status(arena, diag);
        return NULL;
    }
    m->accumulate = from->accumulate;
    for (size_t i = 0; i < from->n_funcs && !arena->failed; i++) {
        const f8_func *f = &from->func[i];
        func[i] = (f8_func){.name = text(m, f->name),
                            .graph = copy_graph(m, f->graph),
                            .in = copy_ports(m, f->in, f->n_in),
                            .out = copy_ports(m, f->out, f->n_out),
                            .n_in = f->n_in,
                            .n_out = f->n_out};
        if (f->lowered)
            func[i].lowered = copy_lowered(m, f->lowered, f->graph->n_nodes);
    }
    m->func = func;
    m->n_funcs = from->n_funcs;
    return f8_arena_status(arena, diag) == F8_OK ? m : NULL;
}
