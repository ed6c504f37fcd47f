/* Weights that get no gradient: see untrained.h. */
#include "passes/grad/untrained.h"

#include <stdio.h>

#include "ir/recipe.h"
#include "passes/unit/copy.h"

/* The caller's input that a weight comes from, through casts and views; NULL: it is computed, or a
 * variable. */
static const f8_port *input_of(const f8_func *f, f8_ref w)
{
    const f8_graph *g = f->graph;
    while (f8_at(g, w)->n_in == 1)
        w = f8_at(g, w)->in[0];
    for (size_t i = 0; i < f->n_in; i++)
        if (f->in[i].ref == w)
            return f->in[i].var < 0 ? &f->in[i] : NULL;
    return NULL;
}

static void warn(const f8_module *m, const f8_log *log, const f8_func *f, f8_ref linear,
                 const f8_port *p)
{
    char place[300] = "", name[600];
    if (p->loc.line)
        snprintf(place, sizeof place, "%.200s:%u:%u: ", m->file, p->loc.line, p->loc.column);
    const char *named = f8_linear_name(f, linear, name, sizeof name);
    f8_log_say(log, F8_LOG_WARNING,
               "%sinput '%%%s' is the weight of %s%s%s: inputs get no gradient; declare it as a "
               "param to train it",
               place, p->name, named ? "linear '" : "a linear", named ? named : "",
               named ? "'" : "");
}

f8_status f8_warn_of_weights(const f8_module *m, const f8_log *log, f8_diag *diag)
{
    const f8_func *f = f8_module_find_func(m, "forward");
    if (!f || !f->n_out || !f8_log_wants(log, F8_LOG_WARNING))
        return F8_OK;
    f8_arena scratch;
    f8_arena_init(&scratch, &m->arena->allocator);
    f8_ref *root = F8_NEW_ARRAY(&scratch, f8_ref, f->n_out);
    bool *said = F8_NEW_ARRAY(&scratch, bool, f->n_in + 1);
    for (size_t i = 0; root && i < f->n_out; i++)
        root[i] = f->out[i].ref;
    const bool *live = root && said ? f8_live_nodes(f->graph, root, f->n_out, &scratch) : NULL;
    for (f8_ref r = 1; live && r < f->graph->n_nodes; r++) {
        const f8_node *n = f8_at(f->graph, r);
        const f8_port *p = live[r] && n->op == F8_OP_LINEAR ? input_of(f, n->in[1]) : NULL;
        if (p && !said[p - f->in]) {
            said[p - f->in] = true;
            warn(m, log, f, r, p);
        }
    }
    const f8_status status = live ? F8_OK : f8_arena_status(&scratch, diag);
    f8_arena_end(&scratch);
    return status;
}
