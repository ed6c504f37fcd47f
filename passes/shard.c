/* Shard: several ranks train one model together, each on its own inputs (data parallel). ZeRO's
 * stage 0: every rank has all parameters, moments and gradients, with the same bits at all times.
 *
 *   micro_step  grad.P += sum over the ranks of dP. The loss is the mean over the ranks
 *   eval        the loss is the mean over the ranks; other results are the rank's own
 *   update      amax histories get the largest amax of any rank, in one exchange
 *
 * autodiff has made each rank's loss a part of the mean, and kept dP apart from its sum. It also
 * sums the gradient's norm shard by shard (grad/optimizer.c), as later stages do. All sums are in
 * the order of the ranks (unit/collectives.h). `current` scales of activations are each rank's own:
 * its products dequantize by them. Weights are equal everywhere, so their scales are, too. */
#include "passes/pipeline.h"
#include "passes/unit/formulas.h"

#include <string.h>

enum { SMALL = 1 << 14 }; /* elements */

static f8_ref over_ranks(f8_graph *g, f8_ref x, int32_t ranks, const char *reduce)
{
    const f8_attr attr[] = {F8_INT(F8_A_RANKS, ranks), F8_STR(F8_A_REDUCE, reduce)};
    return f8_make(g, F8_OP_ALL_REDUCE, &x, 1, attr, 2);
}

/* Collectives in the text are for as many ranks as the program has. */
static f8_status check_ranks(const f8_unit *u, const f8_func *f)
{
    const f8_graph *g = f->graph;
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        const f8_op op = f8_at(g, r)->op;
        if (f8_op_facts(op)->cls == F8_COLLECTIVE &&
            f8_attr_i(g, r, F8_A_RANKS) != f8_unit_ranks(u))
            return f8_fail(u->diag, F8_ERR_INPUT, g->loc[r],
                           "%s is for %lld ranks, but the program is compiled for %d",
                           f8_op_facts(op)->name, (long long)f8_attr_i(g, r, F8_A_RANKS),
                           f8_unit_ranks(u));
    }
    return F8_OK;
}

/* ---- the loss ---- */

static void mean_loss(const f8_unit *u, f8_func *f)
{
    const int32_t ranks = f8_unit_ranks(u);
    f8_port *loss = &f->out[0];
    const bool scalar =
        f->n_out && loss->var < 0 && loss->type.dtype == F8_F32 && loss->type.rank == 0;
    if (scalar)
        loss->ref =
            f8_mul_const(f->graph, over_ranks(f->graph, loss->ref, ranks, "sum"), 1.0 / ranks);
}

/* ---- gradients ---- */

/* dP of a result grad.P, which is the sum of its state and dP; 0 after a failure. */
static f8_ref gradient_of(const f8_unit *u, const f8_graph *g, const f8_port *p)
{
    const f8_node *n = f8_at(g, p->ref);
    if (n->op == F8_OP_ADD)
        return n->in[1];
    f8_fail(u->diag, F8_ERR_INTERNAL, g->loc[p->ref], "'%s' is no sum of itself and a gradient",
            u->module->var[p->var].name);
    return 0;
}

static bool is_gradient(const f8_unit *u, const f8_port *p)
{
    return p->var >= 0 && !strncmp(u->module->var[p->var].name, "grad.", 5);
}

static void add_sum(const f8_unit *u, f8_graph *g, f8_port *p, f8_ref sum)
{
    const f8_ref state = f8_at(g, p->ref)->in[0];
    f8_set_name(g, sum, u->module->var[p->var].name);
    p->ref = f8_binary(g, F8_OP_ADD, state, sum);
}

/* Sums the small gradients over the ranks in one vector: biases and norms are many, and an exchange
 * takes its time however little it moves. */
static f8_status sum_small(const f8_unit *u, f8_func *f, f8_port *const *small, size_t n)
{
    f8_graph *g = f->graph;
    int64_t at = 0;
    f8_ref *part = F8_NEW_ARRAY(u->arena, f8_ref, n);
    if (!part)
        return f8_arena_status(u->arena, u->diag);
    for (size_t i = 0; i < n; i++) {
        const f8_type vector = {
            .dtype = F8_F32, .rank = 1, .dim = {f8_type_elements(&small[i]->type)}};
        part[i] = f8_reshape(g, gradient_of(u, g, small[i]), &vector);
    }
    F8_TRY(u->diag->status);
    const f8_ref all = over_ranks(g, f8_concat(g, part, n, 0), f8_unit_ranks(u), "sum");
    f8_set_name(g, all, "grad.small");
    for (size_t i = 0; i < n; i++) {
        const int64_t end = at + f8_type_elements(&small[i]->type);
        add_sum(u, g, small[i], f8_reshape(g, f8_slice(g, all, 0, at, end), &small[i]->type));
        at = end;
    }
    return u->diag->status;
}

static f8_status sum_gradients(f8_unit *u, f8_func *f)
{
    const int32_t ranks = f8_unit_ranks(u);
    f8_port **small = F8_NEW_ARRAY(u->arena, f8_port *, f->n_out);
    size_t n = 0;
    if (!small)
        return f8_arena_status(u->arena, u->diag);
    for (size_t i = 0; i < f->n_out; i++) {
        f8_port *p = &f->out[i];
        if (!is_gradient(u, p))
            continue;
        if (f8_type_elements(&p->type) <= SMALL)
            small[n++] = p;
        else
            add_sum(u, f->graph, p,
                    over_ranks(f->graph, gradient_of(u, f->graph, p), ranks, "sum"));
    }
    return n ? sum_small(u, f, small, n) : u->diag->status;
}

/* ---- amaxes ---- */

typedef struct amaxes {
    int32_t ranks;
    f8_ref port, seen; /* of the old graph: fp8.amax; of the new one: the largest of any rank */
} amaxes;

/* Users of fp8.amax read the largest of any rank. */
static f8_ref of_all_ranks(void *user, f8_graph *to, const f8_graph *from, f8_ref old,
                           const f8_ref *in)
{
    amaxes *a = user;
    const f8_node *n = f8_at(from, old);
    f8_ref operand[3];
    bool reads = false;
    for (uint32_t i = 0; i < n->n_in; i++)
        reads |= n->in[i] == a->port;
    if (!reads || n->n_in > 3)
        return 0;
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (n->in[i] == a->port && !a->seen)
            a->seen = over_ranks(to, in[i], a->ranks, "amax");
        operand[i] = n->in[i] == a->port ? a->seen : in[i];
    }
    return f8_make_clone(to, n->op, operand, (int)n->n_in, n->attr, f8_op_facts(n->op)->n_attrs,
                         n->clone);
}

static f8_status largest_amaxes(f8_unit *u, f8_func *f)
{
    amaxes a = {.ranks = f8_unit_ranks(u)};
    for (size_t i = 0; i < f->n_in; i++)
        if (f->in[i].var >= 0 && !strcmp(u->module->var[f->in[i].var].name, "fp8.amax"))
            a.port = f->in[i].ref;
    return a.port ? f8_func_rewrite(f, of_all_ranks, &a) : F8_OK;
}

/* ---- the pass ---- */

/* What several ranks can't do. */
static f8_status check_options(const f8_unit *u)
{
    const f8_module *m = u->module;
    if (u->options.pair)
        return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "a pair of forward and backward is compiled for one rank: its caller owns "
                       "the gradients, and sums them over its ranks");
    if (u->options.calibrate)
        return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "'auto' is chosen by one rank: compile for one, and give the rules that it "
                       "chooses to all");
    for (size_t i = 0; i < m->n_vars; i++) /* states that the text declares */
        if (m->var[i].kind == F8_VAR_STATE && m->var[i].loc.line)
            return f8_fail(u->diag, F8_ERR_UNSUPPORTED, m->var[i].loc,
                           "state '%s' would differ from rank to rank: each computes it from its "
                           "own inputs",
                           m->var[i].name);
    return F8_OK;
}

f8_status f8_pass_shard(f8_unit *u)
{
    const int32_t ranks = f8_unit_ranks(u);
    for (size_t i = 0; i < u->module->n_funcs; i++)
        F8_TRY(check_ranks(u, &u->module->func[i]));
    if (ranks == 1)
        return F8_OK;
    F8_TRY(check_options(u));
    for (size_t i = 0; i < u->module->n_funcs; i++) {
        f8_func *f = &u->module->func[i];
        if (!strcmp(f->name, "micro_step"))
            F8_TRY(sum_gradients(u, f));
        if (!strcmp(f->name, "micro_step") || !strcmp(f->name, "eval"))
            mean_loss(u, f);
        if (!strcmp(f->name, "update"))
            F8_TRY(largest_amaxes(u, f));
    }
    return u->diag->status;
}
