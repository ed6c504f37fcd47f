/* What gets no gradient: see untrained.h. */
#include "passes/grad/untrained.h"

#include <stdio.h>

#include "ir/base/pattern.h"
#include "ir/recipe.h"
#include "passes/unit/copy.h"

/* "FILE:LINE:COLUMN: ", or nothing for a module that was made by calls. */
static const char *place_of(const f8_module *m, f8_loc loc, char *text, size_t size)
{
    *text = 0;
    if (loc.line)
        snprintf(text, size, "%.200s:%u:%u: ", m->file, loc.line, loc.column);
    return text;
}

/* ---- inputs that are weights ---- */

/* The caller's input that a weight comes from, through casts and views; NULL: it is computed, a
 * variable, or kept from its gradient by the text. */
static const f8_port *input_of(const f8_func *f, f8_ref w)
{
    const f8_graph *g = f->graph;
    while (f8_at(g, w)->n_in == 1 && f8_at(g, w)->op != F8_OP_STOP_GRADIENT)
        w = f8_at(g, w)->in[0];
    if (f8_at(g, w)->op != F8_OP_INPUT)
        return NULL;
    const f8_port *p = &f->in[f8_attr_i(g, w, F8_A_INDEX)];
    return p->var < 0 ? p : NULL;
}

static void warn(const f8_module *m, const f8_log *log, const f8_func *f, f8_ref linear,
                 const f8_port *p)
{
    char place[300], name[600];
    const char *named = f8_linear_name(f, linear, name, sizeof name);
    f8_log_say(log, F8_LOG_WARNING,
               "%sinput '%%%s' is the weight of %s%s%s: inputs get no gradient; declare it as a "
               "param to train it",
               place_of(m, p->loc, place, sizeof place), p->name, named ? "linear '" : "a linear",
               named ? named : "", named ? "'" : "");
}

static f8_status warn_of_weights(const f8_module *m, const f8_func *f, const f8_log *log,
                                 f8_arena *scratch, f8_diag *diag)
{
    f8_ref *root = F8_NEW_ARRAY(scratch, f8_ref, f->n_out);
    bool *said = F8_NEW_ARRAY(scratch, bool, f->n_in + 1);
    for (size_t i = 0; root && i < f->n_out; i++)
        root[i] = f->out[i].ref;
    const bool *live = root && said ? f8_live_nodes(f->graph, root, f->n_out, scratch) : NULL;
    for (f8_ref r = 1; live && r < f->graph->n_nodes; r++) {
        const f8_node *n = f8_at(f->graph, r);
        const f8_port *p = live[r] && n->op == F8_OP_LINEAR ? input_of(f, n->in[1]) : NULL;
        if (p && !said[p - f->in]) {
            said[p - f->in] = true;
            warn(m, log, f, r, p);
        }
    }
    return live ? F8_OK : f8_arena_status(scratch, diag);
}

/* ---- parameters that the loss does not reach ---- */

/* reached[r] for every value that the loss, the first result, sends a gradient to. Operands come
 * before their readers, so one walk back does. */
static bool *reach(const f8_func *f, f8_arena *scratch)
{
    const f8_graph *g = f->graph;
    bool *reached = F8_NEW_ARRAY(scratch, bool, g->n_nodes);
    if (!reached)
        return NULL;
    reached[f->out[0].ref] = true;
    for (f8_ref r = g->n_nodes; r-- > 1;) {
        const f8_node *n = f8_at(g, r);
        const bool sends = reached[r] && f8_op_gradient_of(n->op) != F8_GRADIENT_ZERO;
        for (uint32_t i = 0; sends && i < n->n_in; i++)
            reached[n->in[i]] |= f8_dtype_is_float(f8_type_of(g, n->in[i])->dtype);
    }
    return reached;
}

/* By variable: the loss sends it a gradient. NULL: out of memory. */
static bool *reach_variables(const f8_module *m, const f8_func *f, f8_arena *scratch)
{
    const bool *reached = reach(f, scratch);
    bool *of = F8_NEW_ARRAY(scratch, bool, m->n_vars + 1);
    for (size_t i = 0; reached && of && i < f->n_in; i++)
        if (f->in[i].var >= 0)
            of[f->in[i].var] = reached[f->in[i].ref];
    return reached ? of : NULL;
}

/* Where none is reached, autodiff refuses the module. */
static f8_status warn_of_parameters(const f8_module *m, const f8_func *f, const char *frozen,
                                    const f8_log *log, f8_arena *scratch, f8_diag *diag)
{
    const bool *reached = reach_variables(m, f, scratch);
    bool any = false;
    if (!reached)
        return f8_arena_status(scratch, diag);
    for (size_t i = 0; i < m->n_vars; i++)
        any |= m->var[i].kind == F8_VAR_PARAM && reached[i];
    for (size_t i = 0; any && i < m->n_vars; i++) {
        const f8_var *v = &m->var[i];
        char place[300];
        if (v->kind == F8_VAR_PARAM && !reached[i] && !f8_patterns_match(frozen, v->name))
            f8_log_say(log, F8_LOG_WARNING,
                       "%sno gradient of the loss reaches parameter '%s': its gradient stays 0",
                       place_of(m, v->loc, place, sizeof place), v->name);
    }
    return F8_OK;
}

f8_status f8_warn_of_untrained(const f8_module *m, const char *frozen, const f8_log *log,
                               f8_diag *diag)
{
    const f8_func *f = f8_module_find_func(m, "forward");
    if (!f || !f->n_out || !f8_log_wants(log, F8_LOG_WARNING))
        return F8_OK;
    f8_arena scratch;
    f8_arena_init(&scratch, &m->arena->allocator);
    f8_status status = warn_of_weights(m, f, log, &scratch, diag);
    if (status == F8_OK)
        status = warn_of_parameters(m, f, frozen, log, &scratch, diag);
    f8_arena_end(&scratch);
    return status;
}
