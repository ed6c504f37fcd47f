/* Split: cuts the joint function of forward and backward into the pair.
 *
 * Requires primitives and applied recipes, so that what is saved is what a backward GEMM reads (an
 * FP8 operand, not the tensor it came from), and the pair gives the bits of micro_step.
 *
 * What does not depend on `dloss` is the forward's. Of that, what the backward reads becomes
 * results `saved.K` of forward and inputs of backward, but only values that are expensive to
 * compute or narrow: results of GEMMs, attention and gathers, and values just rounded to fewer
 * bits. Everything else (norms, activations, casts up, views, what depends on parameters alone) the
 * backward recomputes from those, which costs less than the f32 tensors that would have to be kept.
 *
 * A cut right after differentiation, the obvious place, would save high-precision operands and
 * quantize them a second time in the backward. */
#include "passes/grad/autodiff.h"
#include "passes/unit/copy.h"

#include <string.h>

typedef struct cut {
    f8_unit *u;
    f8_func joint;
    bool *tainted; /* depends on dloss */
    bool *stable;  /* depends on variables and constants alone */
    bool *needed;  /* by the backward */
    f8_ref *map, *buffer;
} cut;

static const f8_port *port_of(const f8_func *f, f8_ref r)
{
    for (size_t i = 0; i < f->n_in; i++)
        if (f->in[i].ref == r)
            return &f->in[i];
    return NULL;
}

static bool is_saved(const cut *c, f8_ref r)
{
    const f8_graph *g = c->joint.graph;
    const f8_node *n = f8_at(g, r);
    if (c->tainted[r] || c->stable[r])
        return false;
    switch (f8_op_facts(n->op)->cls) {
    case F8_GEMM:
    case F8_ATTENTION: return true;
    case F8_GATHER: return true;
    case F8_FP8: return n->op == F8_OP_QUANTIZE;
    case F8_SHAPE: return n->op == F8_OP_PROJECT;
    case F8_REDUCE: /* an amax, or one element: saved, so that its tensor need not be */
        return n->op == F8_OP_REDUCE_AMAX || f8_type_elements(&n->type) == 1;
    case F8_POINTWISE:
        return n->op == F8_OP_CAST &&
               f8_dtype_size(n->type.dtype) < f8_dtype_size(f8_type_of(g, n->in[0])->dtype);
    default: return false;
    }
}

static f8_status analyze(cut *c)
{
    const f8_graph *g = c->joint.graph;
    f8_arena *a = c->u->arena;
    c->tainted = F8_NEW_ARRAY(a, bool, g->n_nodes);
    c->stable = F8_NEW_ARRAY(a, bool, g->n_nodes);
    c->needed = F8_NEW_ARRAY(a, bool, g->n_nodes);
    c->map = F8_NEW_ARRAY(a, f8_ref, g->n_nodes);
    c->buffer = F8_NEW_ARRAY(a, f8_ref, f8_widest(g));
    if (!c->tainted || !c->stable || !c->needed || !c->map || !c->buffer)
        return f8_arena_status(a, c->u->diag);
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        const f8_node *n = f8_at(g, r);
        const f8_port *p = n->op == F8_OP_INPUT ? port_of(&c->joint, r) : NULL;
        c->tainted[r] = p && !strcmp(p->name, "dloss");
        c->stable[r] = !p || p->var >= 0;
        for (uint32_t i = 0; i < n->n_in; i++) {
            c->tainted[r] |= c->tainted[n->in[i]];
            c->stable[r] &= c->stable[n->in[i]];
        }
    }
    for (size_t i = 1; i < c->joint.n_out; i++) /* result 0 is the loss */
        c->needed[c->joint.out[i].ref] = true;
    for (f8_ref r = g->n_nodes; r-- > 1;) {
        const f8_node *n = f8_at(g, r);
        for (uint32_t i = 0; c->needed[r] && !is_saved(c, r) && i < n->n_in; i++)
            c->needed[n->in[i]] = true;
    }
    return F8_OK;
}

static const char *saved_name(const cut *c, int64_t k)
{
    const char *name = f8_arena_printf(c->u->arena, "saved.%lld", (long long)k);
    return name ? name : "";
}

/* The caller's inputs of `forward`: the joint's, less dloss. */
static f8_ref add_input(const cut *c, f8_func *f, f8_ref r)
{
    const f8_port *p = port_of(&c->joint, r);
    return p->var >= 0 ? f8_func_var(f, p->var) : f8_func_input(f, p->name, &p->type, -1);
}

static f8_ref copy_into(const cut *c, f8_func *f, f8_ref r)
{
    const f8_graph *g = c->joint.graph;
    if (f8_at(g, r)->op == F8_OP_INPUT)
        return add_input(c, f, r);
    return f8_copy_node(f->graph, g, r, f8_map_operands(g, r, c->map, c->buffer));
}

static f8_status build_forward(cut *c)
{
    const f8_graph *g = c->joint.graph;
    f8_func *f = f8_module_func(c->u->module, "forward");
    if (!f)
        return c->u->diag->status;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        if (!c->tainted[r] && !(c->map[r] = copy_into(c, f, r)))
            return c->u->diag->status;
    F8_TRY(f8_func_result(f, "loss", c->map[c->joint.out[0].ref], -1));
    int64_t k = 0;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        if (c->needed[r] && is_saved(c, r))
            F8_TRY(f8_func_result(f, saved_name(c, k++), c->map[r], -1));
    return f8_func_rewrite(f, NULL, NULL); /* drops what only the backward needed */
}

static f8_status build_backward(cut *c)
{
    const f8_graph *g = c->joint.graph;
    f8_func *f = f8_module_func(c->u->module, "backward");
    if (!f)
        return c->u->diag->status;
    memset(c->map, 0, g->n_nodes * sizeof *c->map);
    int64_t k = 0;
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        if (!c->needed[r])
            continue;
        c->map[r] = is_saved(c, r) ? f8_func_input(f, saved_name(c, k++), f8_type_of(g, r), -1)
                                   : copy_into(c, f, r);
        if (!c->map[r])
            return c->u->diag->status;
    }
    for (size_t i = 1; i < c->joint.n_out; i++) {
        const f8_port *p = &c->joint.out[i];
        F8_TRY(f8_func_result(f, p->name, c->map[p->ref], p->var));
    }
    return F8_OK;
}

f8_status f8_pass_split(f8_unit *u)
{
    f8_module *m = u->module;
    f8_func *joint = f8_module_find_func(m, "joint");
    if (!joint)
        return F8_OK;
    cut c = {.u = u, .joint = *joint};
    for (f8_func *end = m->func + --m->n_funcs; joint < end; joint++)
        *joint = joint[1];
    F8_TRY(analyze(&c));
    F8_TRY(build_forward(&c));
    return build_backward(&c);
}
