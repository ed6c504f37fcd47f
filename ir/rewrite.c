/* Rewriting a function by copying its live nodes, and lists of uses. See ir.h.
 *
 * Operands come before users, so one descending walk finds the live nodes and one ascending walk
 * copies them: there is no recursion, however deep the graph. */
#include "ir/internal.h"

#include <string.h>

/* ---- liveness ---- */

static void mark_live(const f8_func *f, uint8_t *live)
{
    const f8_graph *g = f->graph;
    for (size_t i = 0; i < f->n_out; i++)
        live[f->out[i].ref] = 1;
    for (f8_ref r = g->n_nodes - 1; r > 0; r--)
        if (live[r])
            for (uint32_t i = 0; i < g->node[r].n_in; i++)
                live[g->node[r].in[i]] = 1;
}

/* Whether a plain copy would be the same graph, ref by ref: inputs come first in a copy, and what
 * no result needs is missing. */
static bool is_own_copy(const f8_func *f, const uint8_t *live)
{
    const f8_graph *g = f->graph;
    if (g->n_nodes <= f->n_in)
        return false;
    for (size_t i = 0; i < f->n_in; i++)
        if (f->in[i].ref != i + 1)
            return false;
    for (f8_ref r = (f8_ref)f->n_in + 1; r < g->n_nodes; r++)
        if (!live[r])
            return false;
    return true;
}

/* ---- rewriting ---- */

typedef struct rewriter {
    const f8_graph *from;
    f8_graph *to;
    f8_ref *map;   /* old ref -> new */
    uint8_t *live; /* by old ref */
    f8_ref *in;    /* scratch: the mapped operands of one node */
    f8_ref *port;  /* the old refs of the input ports, to restore after a failure */
} rewriter;

static f8_status setup(rewriter *w, const f8_func *f)
{
    f8_graph *from = f->graph;
    uint32_t widest = 1;
    for (f8_ref r = 1; r < from->n_nodes; r++)
        if (from->node[r].n_in > widest)
            widest = from->node[r].n_in;
    w->from = from;
    w->map = F8_NEW_ARRAY(from->arena, f8_ref, from->n_nodes);
    w->live = F8_NEW_ARRAY(from->arena, uint8_t, from->n_nodes);
    w->in = F8_NEW_ARRAY(from->arena, f8_ref, widest);
    w->port = F8_NEW_ARRAY(from->arena, f8_ref, f->n_in);
    if (!w->map || !w->live || !w->in || !w->port)
        return f8_arena_status(from->arena, from->diag);
    w->to = f8_graph_create_in(from->module, from->arena, from->diag);
    if (!w->to)
        return F8_ERR_MEMORY;
    mark_live(f, w->live);
    return F8_OK;
}

static f8_status copy_inputs(rewriter *w, f8_func *f)
{
    for (size_t i = 0; i < f->n_in; i++) {
        f8_port *p = &f->in[i];
        w->to->at = w->from->loc[w->port[i]];
        f8_ref r = f8_input(w->to, (int64_t)i, &p->type);
        if (!r)
            return w->to->diag->status;
        f8_set_name(w->to, r, w->from->name[w->port[i]]);
        w->map[w->port[i]] = r;
        p->ref = r;
    }
    return F8_OK;
}

static f8_status copy_node(rewriter *w, f8_ref r, f8_rewrite_fn rewrite, void *user)
{
    const f8_node *n = &w->from->node[r];
    for (uint32_t i = 0; i < n->n_in; i++)
        w->in[i] = w->map[n->in[i]];
    w->to->at = w->from->loc[r];
    f8_ref made = rewrite ? rewrite(user, w->to, w->from, r, w->in) : 0;
    f8_diag *diag = w->to->diag;
    if (diag->status != F8_OK)
        return diag->status;
    if (!made) {
        /* A copy: w->in still holds the operands, which the callback may read but not change. */
        made = f8_make_clone(w->to, n->op, w->in, (int)n->n_in, n->attr,
                             f8_op_facts(n->op)->n_attrs, n->clone);
        if (!made)
            return diag->status;
    }
    f8_set_name(w->to, made, w->from->name[r]);
    w->map[r] = made;
    return diag->status;
}

static f8_status copy_graph(rewriter *w, f8_func *f, size_t n_out, f8_rewrite_fn rewrite,
                            void *user)
{
    F8_TRY(copy_inputs(w, f));
    for (f8_ref r = 1; r < w->from->n_nodes; r++)
        if (w->live[r] && w->from->node[r].op != F8_OP_INPUT) {
            F8_TRY(copy_node(w, r, rewrite, user));
            F8_TRY(f8_progress_within(w->from->module->phase, w->to->diag));
        }
    for (size_t i = 0; i < n_out; i++) {
        f8_port *p = &f->out[i];
        p->ref = w->map[p->ref];
        p->type = *f8_type_of(w->to, p->ref);
    }
    w->to->at = F8_NOWHERE;
    return w->to->diag->status;
}

f8_status f8_func_rewrite(f8_func *f, f8_rewrite_fn rewrite, void *user)
{
    f8_graph *from = f->graph;
    size_t n_in = f->n_in, n_out = f->n_out;
    rewriter w = {0};
    if (from->diag->status != F8_OK)
        return from->diag->status;
    F8_TRY(setup(&w, f));
    for (size_t i = 0; i < n_in; i++)
        w.port[i] = f->in[i].ref;
    if (!rewrite && is_own_copy(f, w.live)) {
        f->lowered = NULL;
        return F8_OK;
    }

    /* From here f8_func_var, f8_func_input and f8_func_result add to the new graph. */
    f->graph = w.to;
    f8_status status = copy_graph(&w, f, n_out, rewrite, user);
    if (status == F8_OK) {
        f->lowered = NULL;
        return F8_OK;
    }
    f->graph = from;
    f->n_in = n_in;
    f->n_out = n_out;
    for (size_t i = 0; i < n_in; i++)
        f->in[i].ref = w.port[i];
    return status;
}

/* ---- uses ---- */

f8_status f8_compute_uses(const f8_func *f, f8_arena *arena, f8_uses *out, f8_diag *diag)
{
    const f8_graph *g = f->graph;
    size_t total = f->n_out;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        total += g->node[r].n_in;
    uint32_t *start = F8_NEW_ARRAY(arena, uint32_t, (size_t)g->n_nodes + 1);
    uint32_t *user = F8_NEW_ARRAY(arena, uint32_t, total);
    uint32_t *next = F8_NEW_ARRAY(arena, uint32_t, (size_t)g->n_nodes + 1);
    if (!start || !user || !next)
        return f8_arena_status(arena, diag);
    for (f8_ref r = 1; r < g->n_nodes; r++)
        for (uint32_t i = 0; i < g->node[r].n_in; i++)
            start[g->node[r].in[i] + 1]++;
    for (size_t i = 0; i < f->n_out; i++)
        start[f->out[i].ref + 1]++;
    for (uint32_t r = 0; r < g->n_nodes; r++)
        start[r + 1] += start[r];
    memcpy(next, start, (size_t)g->n_nodes * sizeof *next);
    for (f8_ref r = 1; r < g->n_nodes; r++)
        for (uint32_t i = 0; i < g->node[r].n_in; i++)
            user[next[g->node[r].in[i]]++] = r;
    for (size_t i = 0; i < f->n_out; i++)
        user[next[f->out[i].ref]++] = 0;
    *out = (f8_uses){start, user};
    return F8_OK;
}
