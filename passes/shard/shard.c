/* Shard: several ranks train one model together, each on its own inputs (data parallel).
 *
 *   micro_step  grad.P += sum over the ranks of dP. The loss is the mean over the ranks
 *   eval        the loss is the mean over the ranks; other results are the rank's own
 *   update      amax histories get the largest amax of any rank, in one exchange with the norm
 *
 * By the stage of ZeRO (Rajbhandari et al., arXiv 1910.02054, section 5) the ranks share variables:
 *
 *   0  none: every rank has all of them, with the same bits at all times
 *   1  the moments opt.m.P and opt.v.P. A rank updates its rows of P, and these are gathered
 *   2  also grad.P: a rank gets the sums of its rows
 *   3  also P: weights are gathered where they are read (propagate.c)
 *
 * autodiff has made each rank's loss a part of the mean, and kept dP apart from its sum. It also
 * sums the gradient's norm shard by shard (grad/optimizer.c). All sums are in the order of the
 * ranks (unit/collectives.h), so all stages give the same bits. `current` scales of activations are
 * each rank's own: its products dequantize by them. Weights are equal everywhere, so their scales
 * are, too. */
#include "passes/shard/shard.h"
#include "passes/shard/parts.h"
#include "passes/unit/collectives.h"
#include "passes/unit/formulas.h"

#include <string.h>

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
    if (!scalar)
        return;
    const f8_ref sum = over_ranks(f->graph, loss->ref, ranks, "sum");
    if (sum)
        f8_set_name(f->graph, sum, "loss");
    loss->ref = f8_mul_const(f->graph, sum, 1.0 / ranks);
}

/* ---- one exchange of `update` for the norm and for fp8.amax ---- */

/* Each rank sends its sums for the norm, and its own fp8.amax behind them. */
typedef struct exchange {
    const f8_func *f;
    int32_t ranks;
    size_t in;              /* the port of fp8.amax */
    f8_ref port, sums;      /* of the old graph: fp8.amax; the gather of the sums, or 0 */
    f8_ref largest, summed; /* of the new one: the largest of any rank; the gathered sums */
} exchange;

/* sums: this rank's, in the new graph. */
static void join(exchange *x, f8_graph *g, f8_ref sums)
{
    const f8_ref amax = x->f->in[x->in].ref;
    const int64_t n = f8_type_elements(f8_type_of(g, sums));
    f8_type shape = *f8_type_of(g, amax);
    const int64_t all = n + f8_type_elements(&shape);
    const f8_ref own = f8_concat(g, (f8_ref[]){f8_as_vector(g, sums), f8_as_vector(g, amax)}, 2, 0),
                 rows = f8_make(g, F8_OP_ALL_GATHER, &own, 1, &F8_INT(F8_A_RANKS, x->ranks), 1);
    if (!rows)
        return;
    f8_set_name(g, rows, "grad_norm and fp8.amax");
    x->summed = f8_slice(g, rows, 1, 0, n);
    x->largest = f8_reshape(g, f8_join_rows(g, f8_slice(g, rows, 1, n, all), true), &shape);
}

/* Users of fp8.amax read the largest of any rank. */
static f8_ref of_all_ranks(void *user, f8_graph *to, const f8_graph *from, f8_ref old,
                           const f8_ref *in)
{
    exchange *x = user;
    const f8_node *n = f8_at(from, old);
    f8_ref operand[3];
    bool reads = false;
    if (old == x->sums) {
        join(x, to, in[0]);
        return x->summed;
    }
    for (uint32_t i = 0; i < n->n_in; i++)
        reads |= n->in[i] == x->port;
    if (!reads || n->n_in > 3)
        return 0;
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (n->in[i] == x->port && !x->largest)
            x->largest = over_ranks(to, in[i], x->ranks, "amax");
        operand[i] = n->in[i] == x->port ? x->largest : in[i];
    }
    return f8_make_clone(to, n->op, operand, (int)n->n_in, n->attr, f8_op_facts(n->op)->n_attrs,
                         n->clone);
}

/* The gather that autodiff has made for the norm, if nothing before it reads fp8.amax; or 0. */
static f8_ref sums_before(const f8_graph *g, f8_ref amax)
{
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        const f8_node *n = f8_at(g, r);
        if (n->op == F8_OP_ALL_GATHER && f8_type_of(g, n->in[0])->dtype == F8_F32)
            return f8_type_of(g, n->in[0])->rank == 1 ? r : 0;
        for (uint32_t i = 0; i < n->n_in; i++)
            if (n->in[i] == amax)
                return 0;
    }
    return 0;
}

static f8_status largest_amaxes(f8_unit *u, f8_func *f)
{
    exchange x = {.f = f, .ranks = f8_unit_ranks(u)};
    F8_TRY(f8_func_rewrite(f, NULL, NULL)); /* drops dead nodes */
    for (size_t i = 0; i < f->n_in; i++)
        if (f->in[i].var >= 0 && !strcmp(u->module->var[f->in[i].var].name, "fp8.amax")) {
            x.in = i;
            x.port = f->in[i].ref;
        }
    if (!x.port)
        return F8_OK;
    x.sums = sums_before(f->graph, x.port);
    return f8_func_rewrite(f, of_all_ranks, &x);
}

/* ---- the pass ---- */

/* What several ranks can't do. */
static f8_status check_options(const f8_unit *u)
{
    const f8_module *m = u->module;
    if (u->options.inference && u->options.zero > 0)
        return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "ranks share variables (stage %d of ZeRO) to train; a program for inference "
                       "has the whole of each",
                       u->options.zero);
    if (u->options.reduce_update && f8_unit_zero(u) > 1)
        return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "stage %d of ZeRO shares the gradients, so each micro_step sums them: "
                       "reduce_at \"update\" is for stages 0 and 1",
                       f8_unit_zero(u));
    if (u->options.library_sums && u->options.reduce_bf16)
        return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "reduce_order \"library\" sums f32 as it travels: reduce_dtype \"bf16\" is "
                       "for reduce_order \"ranks\"");
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

/* The first stage that shares a variable; 4: none does. */
static int32_t first_stage(const f8_module *m, const f8_var *v)
{
    static const struct {
        const char *prefix;
        int32_t stage;
    } states[] = {{"opt.m.", 1}, {"opt.v.", 1}, {"grad.", 2}};
    if (v->kind == F8_VAR_PARAM)
        return 3;
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        const size_t n = strlen(states[i].prefix);
        if (!strncmp(v->name, states[i].prefix, n) && f8_module_find_var(m, v->name + n) >= 0)
            return states[i].stage;
    }
    return 4;
}

/* Gives the shared variables the types of their shards; *out: the types they had, by variable.
 * Scalars are not shared. */
static f8_status share_variables(f8_unit *u, f8_wholes *out)
{
    f8_module *m = u->module;
    const f8_type **whole = F8_NEW_ARRAY(u->arena, const f8_type *, m->n_vars + 1);
    f8_type *type = F8_NEW_ARRAY(u->arena, f8_type, m->n_vars + 1);
    u->shard = F8_NEW_ARRAY(u->arena, f8_shard, m->n_vars + 1);
    *out = whole;
    if (!whole || !type || !u->shard)
        return f8_arena_status(u->arena, u->diag);
    for (size_t i = 0; i < m->n_vars; i++) {
        f8_var *v = &m->var[i];
        if (v->type.rank == 0 || first_stage(m, v) > f8_unit_zero(u))
            continue;
        type[i] = v->type;
        whole[i] = &type[i];
        u->shard[u->n_shards++] = (f8_shard){(int32_t)i, v->type.dim[0]};
        v->type = f8_shard_type(&type[i], f8_unit_ranks(u));
    }
    return F8_OK;
}

static f8_status shard_func(f8_unit *u, f8_func *f, f8_wholes whole)
{
    const bool trains = f8_is_micro_step(f->name), updates = !strcmp(f->name, "update"),
               sums = trains && !u->options.reduce_update;
    if (updates)
        F8_TRY(largest_amaxes(u, f));
    if (sums)
        F8_TRY(f8_shard_bare_gradients(u, f));
    if (u->n_shards || (updates && u->options.reduce_update))
        F8_TRY(f8_shard_propagate(u, f, whole));
    if (sums)
        F8_TRY(f8_shard_sum_gradients(u, f, whole));
    if (trains || !strcmp(f->name, "eval"))
        mean_loss(u, f);
    return u->diag->status;
}

f8_status f8_pass_shard(f8_unit *u)
{
    f8_wholes whole;
    for (size_t i = 0; i < u->module->n_funcs; i++)
        F8_TRY(check_ranks(u, &u->module->func[i]));
    if (f8_unit_ranks(u) == 1)
        return F8_OK;
    F8_TRY(check_options(u));
    F8_TRY(share_variables(u, &whole));
    for (size_t i = 0; i < u->module->n_funcs; i++)
        F8_TRY(shard_func(u, &u->module->func[i], whole));
    return u->diag->status;
}
