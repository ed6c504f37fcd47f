/* Split: cuts the joint function of a pair into forward and backward.
 *
 * Requires primitives and applied recipes, so that what is saved is what a backward GEMM reads (an
 * FP8 operand, not the tensor it came from), and the pair gives the bits of micro_step. A cut right
 * after differentiation, the obvious place, would save high-precision operands and quantize them a
 * second time in the backward.
 *
 * What does not depend on a cotangent is the forward's. Among the values that the backward reads of
 * that, saved.c chooses those that become results `saved.K` of forward and inputs of backward. The
 * backward computes the others again, from these, from variables and from the caller's inputs. The
 * comment of f8_pass_split has the order of the ports. */
#include "passes/grad/autodiff.h"
#include "passes/grad/saved.h"
#include "passes/unit/copy.h"

#include <string.h>

typedef struct cut {
    f8_unit *u;
    size_t n_results; /* that are the forward's */
    f8_func joint;
    f8_saved s;
    f8_ref *map, *buffer;
} cut;

static f8_status begin(cut *c, bool report)
{
    const f8_graph *g = c->joint.graph;
    c->map = F8_NEW_ARRAY(c->u->arena, f8_ref, g->n_nodes);
    c->buffer = F8_NEW_ARRAY(c->u->arena, f8_ref, f8_widest(g));
    F8_TRY(f8_arena_status(c->u->arena, c->u->diag));
    return f8_choose_saved(c->u, &c->joint, c->n_results, report, &c->s);
}

static const char *saved_name(const cut *c, int64_t k)
{
    const char *name = f8_arena_printf(c->u->arena, F8_SAVED "%lld", (long long)k);
    return name ? name : "";
}

static f8_ref add_input(f8_func *f, const f8_port *p)
{
    return p->var >= 0 ? f8_func_var(f, p->var) : f8_func_input(f, p->name, &p->type, -1);
}

static f8_ref copy_into(const cut *c, f8_func *f, f8_ref r)
{
    const f8_graph *g = c->joint.graph;
    if (f8_at(g, r)->op == F8_OP_INPUT)
        return add_input(f, f8_joint_port(&c->joint, r));
    return f8_copy_node(f->graph, g, r, f8_map_operands(g, r, c->map, c->buffer));
}

static f8_status build_forward(cut *c, const char *name)
{
    const f8_graph *g = c->joint.graph;
    f8_func *f = f8_module_func(c->u->module, name);
    if (!f)
        return c->u->diag->status;
    for (size_t i = 0; i < c->joint.n_in; i++) { /* the caller's inputs, in order, used or not */
        const f8_port *p = &c->joint.in[i];
        if (p->var < 0 && !f8_is_cotangent(c->u, p) && !(c->map[p->ref] = add_input(f, p)))
            return c->u->diag->status;
    }
    for (f8_ref r = 1; r < g->n_nodes; r++)
        if (!c->s.backward[r] && !c->map[r] && !(c->map[r] = copy_into(c, f, r)))
            return c->u->diag->status;
    for (size_t i = 0; i < c->n_results; i++) {
        const f8_port *p = &c->joint.out[i];
        F8_TRY(f8_func_result(f, p->name, c->map[p->ref], p->var));
    }
    int64_t k = 0;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        if (c->s.saved[r])
            F8_TRY(f8_func_result(f, saved_name(c, k++), c->map[r], -1));
    return f8_func_rewrite(f, NULL, NULL); /* drops what only the backward needed */
}

/* The caller's ports of backward, in the order of f8_pass_split. */
static f8_status add_ports(cut *c, f8_func *f)
{
    for (int inputs = 0; inputs < 2; inputs++)
        for (size_t i = 0; i < c->joint.n_in; i++) {
            const f8_port *p = &c->joint.in[i];
            const bool cotangent = f8_is_cotangent(c->u, p);
            if (p->var < 0 && (inputs ? !cotangent && c->s.needed[p->ref] : cotangent) &&
                !(c->map[p->ref] = add_input(f, p)))
                return c->u->diag->status;
        }
    int64_t k = 0;
    for (f8_ref r = 1; r < c->joint.graph->n_nodes; r++)
        if (c->s.saved[r] && !(c->map[r] = f8_func_input(f, saved_name(c, k++),
                                                         f8_type_of(c->joint.graph, r), -1)))
            return c->u->diag->status;
    return F8_OK;
}

static f8_status build_backward(cut *c, const char *name)
{
    const f8_graph *g = c->joint.graph;
    f8_func *f = f8_module_func(c->u->module, name);
    if (!f)
        return c->u->diag->status;
    memset(c->map, 0, g->n_nodes * sizeof *c->map);
    F8_TRY(add_ports(c, f));
    for (f8_ref r = 1; r < g->n_nodes; r++)
        if (c->s.needed[r] && !c->map[r] && !(c->map[r] = copy_into(c, f, r)))
            return c->u->diag->status;
    for (size_t i = c->n_results; i < c->joint.n_out; i++) {
        const f8_port *p = &c->joint.out[i];
        const bool figures = p->var < 0 && !strcmp(p->name, F8_STATS_BACKWARD);
        F8_TRY(f8_func_result(f, figures ? F8_STATS : p->name, c->map[p->ref], p->var));
    }
    return F8_OK;
}

/* Cut the function `joint`, if the module has it, into two of these names. */
static f8_status split(f8_unit *u, const char *joint, const char *forward, const char *backward)
{
    f8_module *m = u->module;
    const bool plain = !strcmp(joint, "joint"), watches = strstr(joint, "." F8_STATS);
    f8_func *f = f8_module_find_func(m, joint);
    if (!f)
        return F8_OK;
    cut c = {.u = u,
             .n_results = watches ? u->pair.n_watched_results : u->pair.n_results,
             .joint = *f};
    for (f8_func *end = m->func + --m->n_funcs; f < end; f++)
        *f = f[1];
    F8_TRY(begin(&c, plain));
    F8_TRY(build_forward(&c, forward));
    return build_backward(&c, backward);
}

static f8_status check_budget(const f8_unit *u)
{
    const f8_options *o = &u->options;
    if (!o->pair)
        return F8_OK;
    if (o->memory.bytes > 0)
        return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "memory: a pair takes no budget in bytes, since its saved values lie in "
                       "memory of the caller or of handles; give a share of the bytes that "
                       "'forward' saves");
    if (o->train_step && (o->memory.share > 0 || o->checkpoint || o->recompute))
        return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "memory: a budget is for a pair or for micro_step, but the program has "
                       "both; compile two programs");
    return F8_OK;
}

/* The ports of the caller:
 *
 *   forward   in:  the inputs
 *             out: the results, saved.0, saved.1, ...
 *   backward  in:  a cotangent dRESULT for each result that has one; those inputs of forward that
 *                  it reads; saved.0, saved.1, ...
 *             out: the gradient dINPUT of each input asked for, then that of each parameter by its
 *                  name: the order of forward's ports, where parameters stand as they are first
 *                  read
 *
 * forward.first and backward.first have the same ports. They scale operands with an empty history
 * by their own amax (scale/scaling.c). forward.stats, backward.stats and their likes of the first
 * pair have one more result each, "stats", if they have figures (instrument/). */
f8_status f8_pass_split(f8_unit *u)
{
    F8_TRY(check_budget(u));
    F8_TRY(split(u, "joint", "forward", "backward"));
    F8_TRY(split(u, "joint.first", "forward.first", "backward.first"));
    F8_TRY(split(u, "joint.stats", "forward.stats", "backward.stats"));
    return split(u, "joint.first.stats", "forward.first.stats", "backward.first.stats");
}
