/* The joint function of a pair, for embedders that own the loop.
 *
 * It is a function with its vector-Jacobian product: any results, a cotangent for each float result
 * that options.cotangents names, and gradients of the parameters, but those that options.frozen
 * names, and of the inputs that options.gradients_of names. split.c cuts it in two once the scaling
 * pass has made its operands FP8, so that the pair computes the very bits of micro_step. */
#include "passes/grad/autodiff.h"
#include "ir/base/pattern.h"
#include "passes/unit/copy.h"
#include "passes/unit/formulas.h"

#include <string.h>

/* A failure that lists the names of the caller's ports. */
static f8_status no_match(f8_unit *u, const char *option, const char *what, const char *pattern,
                          const f8_port *port, size_t n)
{
    f8_names list = {0};
    for (size_t i = 0; i < n; i++)
        if (port[i].var < 0)
            f8_names_add(&list, port[i].name);
    return f8_fail(u->diag, F8_ERR_INPUT, F8_NOWHERE,
                   "%s: no float %s of 'forward' matches '%s'; its %ss are: %s", option, what,
                   pattern, what, list.n ? list.text : "none");
}

static f8_status not_float(f8_unit *u, const char *option, const char *what, const f8_port *p)
{
    char type[160];
    return f8_fail(u->diag, F8_ERR_INPUT, p->loc,
                   "%s: %s '%s' is %s; only f32, bf16 and f16 have a gradient", option, what,
                   p->name, f8_type_print(&p->type, type, sizeof type));
}

/* ---- cotangents ---- */

/* Add the forward's results. Then, for each result that has a cotangent, add an input for it. */
static f8_status add_results(f8_unit *u, f8_func *f, const f8_func *original, const f8_ref *map,
                             f8_seed *seed, size_t *n_seeds)
{
    const char *patterns = u->options.cotangents ? u->options.cotangents : "*";
    u->pair.cotangent = F8_NEW_ARRAY(u->arena, const char *, original->n_out);
    if (!u->pair.cotangent)
        return f8_arena_status(u->arena, u->diag);
    for (size_t i = 0; i < original->n_out; i++)
        if (original->out[i].var < 0)
            F8_TRY(f8_func_result(f, f8_result_name(original, i), map[original->out[i].ref], -1));
    F8_TRY(f8_replace_states(u, f, original, map));
    u->pair.n_results = f->n_out;
    for (size_t i = 0; i < f->n_out; i++) {
        const f8_port *p = &f->out[i];
        if (p->var >= 0 || !f8_patterns_match(patterns, p->name))
            continue;
        if (!f8_dtype_is_float(p->type.dtype)) {
            if (f8_patterns_name(patterns, p->name))
                return not_float(u, "cotangents", "result", p);
            continue;
        }
        const char *name = f8_arena_printf(u->arena, "d%s", p->name);
        const f8_type type = p->type;
        const f8_ref value = p->ref;
        for (size_t k = 0; name && k < original->n_in; k++)
            if (!strcmp(original->in[k].name, name))
                return f8_fail(u->diag, F8_ERR_INPUT, original->in[k].loc,
                               "backward would have two inputs '%s': the cotangent of result '%s', "
                               "and this input of forward; rename one",
                               name, p->name);
        const f8_ref d = name ? f8_func_input(f, name, &type, -1) : 0;
        if (!d)
            return name ? u->diag->status : f8_arena_status(u->arena, u->diag);
        u->pair.cotangent[u->pair.n_cotangents++] = name;
        seed[(*n_seeds)++] = (f8_seed){value, d};
    }
    return *n_seeds ? F8_OK : no_match(u, "cotangents", "result", patterns, f->out, f->n_out);
}

/* ---- logits ---- */

/* By ref: whether a cross-entropy reads it, or what follows from it element by element. */
static bool *find_logits(const f8_graph *g, f8_arena *arena)
{
    bool *logits = F8_NEW_ARRAY(arena, bool, g->n_nodes);
    for (f8_ref r = g->n_nodes; logits && r-- > 1;) {
        const f8_node *n = f8_at(g, r);
        const f8_class cls = f8_op_facts(n->op)->cls;
        if (n->op == F8_OP_CROSS_ENTROPY)
            logits[n->in[0]] = true;
        if (!logits[r] || (cls != F8_POINTWISE && cls != F8_SHAPE))
            continue;
        for (uint32_t i = 0; i < n->n_in; i++)
            logits[n->in[i]] |=
                f8_type_elements(f8_type_of(g, n->in[i])) == f8_type_elements(&n->type);
    }
    return logits;
}

static f8_ref mark_product(void *user, f8_graph *to, const f8_graph *from, f8_ref old,
                           const f8_ref *in)
{
    const bool *logits = user;
    const f8_node *n = f8_at(from, old);
    return logits[old] && n->op == F8_OP_MATMUL
               ? f8_make_clone(to, n->op, in, (int)n->n_in, n->attr, f8_op_facts(n->op)->n_attrs,
                               F8_CLONE_LOGITS)
               : 0;
}

/* Mark the products that give logits, since saved.c never saves these. The pass `chunk` keeps the
 * mark, and so do the passes that make a GEMM of the product. */
static f8_status mark_logits(f8_unit *u, f8_func *original)
{
    bool *logits = find_logits(original->graph, u->arena);
    return logits ? f8_func_rewrite(original, mark_product, logits)
                  : f8_arena_status(u->arena, u->diag);
}

/* ---- gradients ---- */

/* of_input, by port: whether the gradient of this input is asked for. */
static f8_status find_inputs(f8_unit *u, const f8_func *original, bool *of_input)
{
    const char *patterns = u->options.gradients_of;
    bool any = false;
    for (size_t i = 0; patterns && i < original->n_in; i++) {
        const f8_port *p = &original->in[i];
        if (p->var >= 0 || !f8_patterns_match(patterns, p->name))
            continue;
        of_input[i] = f8_dtype_is_float(p->type.dtype);
        if (!of_input[i] && f8_patterns_name(patterns, p->name))
            return not_float(u, "gradients_of", "input", p);
        any |= of_input[i];
    }
    return any || !patterns ? F8_OK
                            : no_match(u, "gradients_of", "input", patterns, original->in,
                                       original->n_in);
}

/* Zeros of a port's type, where nothing contributes to its gradient. */
static f8_ref zeros(f8_graph *g, const f8_type *type)
{
    return f8_cast(g, f8_zeros(g, type), type->dtype);
}

/* Add a gradient to the results of forward, which are in the same function until it is cut. */
static f8_status add_named(f8_unit *u, f8_func *f, const char *name, f8_ref gradient)
{
    for (size_t i = 0; i < u->pair.n_results; i++)
        if (f->out[i].var < 0 && !strcmp(f->out[i].name, name))
            return f8_fail(u->diag, F8_ERR_INPUT, f->out[i].loc,
                           "'%s' would be a result of forward and a gradient that backward gives; "
                           "rename the result",
                           name);
    return f8_func_result(f, name, gradient, -1);
}

static f8_status add_gradient(f8_unit *u, f8_func *f, const f8_gradient *d, const int32_t *state_of)
{
    const f8_port *p = &f->in[d->port];
    const f8_ref sum = d->sum ? d->sum : zeros(f->graph, &p->type);
    if (d->param < 0) {
        const char *name = f8_arena_printf(u->arena, "d%s", p->name);
        for (size_t i = 0; name && i < u->module->n_vars; i++)
            if (u->module->var[i].kind == F8_VAR_PARAM && !strcmp(u->module->var[i].name, name))
                return f8_fail(u->diag, F8_ERR_INPUT, p->loc,
                               "backward would have two results '%s': the gradients of input '%s' "
                               "and of parameter '%s'; rename one",
                               name, p->name, name);
        return name ? add_named(u, f, name, f8_cast(f->graph, sum, p->type.dtype))
                    : f8_arena_status(u->arena, u->diag);
    }
    if (!state_of)
        return add_named(u, f, u->module->var[d->param].name,
                         f8_cast(f->graph, sum, p->type.dtype));
    if (!d->sum)
        return F8_OK;
    const int32_t state = state_of[d->param];
    return f8_func_result(f, NULL, f8_next_gradient(f, state, sum, true, 0), state);
}

static f8_status check_reached(f8_unit *u, f8_loc result, const f8_gradient *d, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (d[i].sum)
            return F8_OK;
    return f8_fail(u->diag, F8_ERR_INPUT, result,
                   "'backward' would give no gradient: no result with a cotangent depends on a "
                   "parameter%s%s",
                   u->options.frozen ? " that is not frozen" : "",
                   u->options.gradients_of ? " or on an input of gradients_of" : "");
}

/* The names of saved values are the pair's own. */
static f8_status check_name(f8_unit *u, const char *name, f8_loc loc)
{
    if (strncmp(name, F8_SAVED, strlen(F8_SAVED)))
        return F8_OK;
    return f8_fail(u->diag, F8_ERR_INPUT, loc,
                   "'%s': in a pair, names that begin with '" F8_SAVED
                   "' are those of saved values; rename it",
                   name);
}

static bool is_param(const f8_module *m, const f8_port *p)
{
    return p->var >= 0 && m->var[p->var].kind == F8_VAR_PARAM;
}

static f8_status check_names(f8_unit *u, const f8_func *original)
{
    for (size_t i = 0; i < original->n_in; i++)
        if (original->in[i].var < 0 || is_param(u->module, &original->in[i]))
            F8_TRY(check_name(u, original->in[i].name, original->in[i].loc));
    for (size_t i = 0; i < original->n_out; i++)
        if (original->out[i].var < 0)
            F8_TRY(check_name(u, original->out[i].name, original->out[i].loc));
    return F8_OK;
}

f8_status f8_build_joint(f8_unit *u, f8_func *original, const int32_t *state_of)
{
    f8_ref *map;
    F8_TRY(mark_logits(u, original));
    f8_func *f = f8_entry_func(u, original, "joint", &map);
    f8_seed *seed = F8_NEW_ARRAY(u->arena, f8_seed, original->n_out);
    bool *of_input = F8_NEW_ARRAY(u->arena, bool, original->n_in + original->n_out);
    if (!f || !seed || !of_input)
        return f ? f8_arena_status(u->arena, u->diag) : u->diag->status;
    f8_vjp_request request = {.seed = seed, .state_of = state_of, .of_input = of_input};
    F8_TRY(check_names(u, original));
    F8_TRY(find_inputs(u, original, of_input));
    F8_TRY(add_results(u, f, original, map, seed, &request.n_seeds));
    f8_gradient *d;
    size_t n;
    F8_TRY(f8_differentiate(u, f, &request, &d, &n));
    F8_TRY(check_reached(u, original->graph->loc[original->out[0].ref], d, n));
    for (size_t i = 0; i < n; i++)
        F8_TRY(add_gradient(u, f, &d[i], state_of));
    return F8_OK;
}
