/* Propagation of shards through a function: see parts.h.
 *
 * A node whose operands are shards is computed shard by shard where its result's rows need those
 * rows alone: casts, the optimizer's arithmetic, amaxes of rows, quantizing. So a weight travels as
 * what its readers want, bf16 or FP8 codes. All else reads whole values, and the shards are
 * gathered there. An amax over all rows is the largest of the ranks' amaxes; those of one group of
 * nodes travel together.
 *
 * No bit depends on where a node is computed: the same scalar operations are done on each element,
 * and the largest of several amaxes does not depend on their order.
 *
 * Forward and backward gather a weight each for themselves, so that it need not stay in memory
 * between them: gathers for the backward have clone number 1. */
#include "passes/shard/parts.h"

#include "ir/num/granularity.h"
#include "passes/unit/collectives.h"

#include <string.h>

enum { FORWARD, BACKWARD, PHASES };
enum { SMALL_VECTOR = 1 << 14, SMALL_MATRIX = 1 << 10 }; /* elements: see is_small */

typedef enum form {
    WHOLE,   /* the new node has the whole value */
    SHARD,   /* it has this rank's rows; all ranks agree on the whole */
    SMALL,   /* it has this rank's rows of a small parameter, which every reader reads whole */
    LARGEST, /* it is the amax of this rank's rows, and not yet joined with the others' */
} form;

typedef struct refs {
    f8_ref *ref;
    size_t n;
} refs;

/* All arrays go by old ref. */
typedef struct propagation {
    const f8_unit *u;
    const f8_func *f;
    f8_wholes wholes;
    f8_graph *to;
    const f8_graph *from;
    int32_t ranks;
    uint8_t *form;
    uint8_t *own;          /* the value may differ from rank to rank */
    f8_ref *made;          /* the node in the form that `form` says */
    f8_ref *whole[PHASES]; /* of a SHARD: the gathered value, once there is one */
    f8_ref *port, *result; /* the old refs of f's ports, in order */
    f8_ref backward;       /* from here on nodes belong to the backward */
    refs waiting;          /* LARGEST */
    refs small;            /* ports of form SMALL: gathered together when one is read */
    f8_ref *in;            /* scratch: the operands of a node */
    bool begun;
} propagation;

/* ---- what is what ---- */

/* False: there is one scale, or scales that broadcast. */
static bool grain_of(const f8_graph *g, f8_ref r, f8_granularity *grain)
{
    *grain = f8_per_tensor;
    return f8_granularity_parse(f8_attr_s(g, r, F8_A_GRANULARITY), grain);
}

/* Whether each block of the grain lies in one rank's rows. */
static bool shards_keep_blocks(const propagation *p, f8_granularity grain, const f8_type *whole)
{
    if (grain.rows < 2)
        return grain.rows == 1;
    return whole->rank == 2 && f8_shard_rows(whole->dim[0], p->ranks) % grain.rows == 0;
}

/* Biases and norms are many and small: they are gathered in one exchange and stay for a whole
 * step. Codes of frozen weights and scales in E8M0 are not, since an exchange has one dtype. */
static bool is_small(const f8_type *t)
{
    return t->dtype == F8_F32 &&
           f8_type_elements(t) <= (t->rank == 1 ? SMALL_VECTOR : SMALL_MATRIX);
}

static bool differs(const propagation *p, const f8_node *n)
{
    bool own = false;
    switch (n->op) {
    case F8_OP_ALL_GATHER:
    case F8_OP_ALL_REDUCE:
    case F8_OP_COLLECTIVE_BROADCAST: return false;
    case F8_OP_ALL_SLICE:
    case F8_OP_ALL_TO_ALL:
    case F8_OP_REDUCE_SCATTER: return true;
    default: break;
    }
    for (uint32_t i = 0; i < n->n_in; i++)
        own |= p->own[n->in[i]];
    return own;
}

static f8_ref again(const propagation *p, f8_ref old)
{
    const f8_node *n = f8_at(p->from, old);
    return f8_make_clone(p->to, n->op, p->in, (int)n->n_in, n->attr, f8_op_facts(n->op)->n_attrs,
                         n->clone);
}

/* ---- amaxes over all rows ---- */

static f8_ref local_amax(propagation *p, f8_ref old)
{
    const f8_ref x = f8_at(p->from, old)->in[0];
    const f8_node *operand = f8_at(p->from, x);
    p->in[0] = operand->op == F8_OP_INPUT /* a variable has zeros behind its last row */
                   ? p->made[x]
                   : f8_shard_clean(p->to, p->ranks, p->made[x], &operand->type);
    p->form[old] = LARGEST;
    p->waiting.ref[p->waiting.n++] = old;
    return p->made[old] = again(p, old);
}

/* All that wait, as one vector; 0 after a failure. */
static f8_ref waiting_vector(propagation *p)
{
    f8_graph *g = p->to;
    f8_ref *vector = F8_NEW_ARRAY(g->arena, f8_ref, p->waiting.n);
    if (!vector) {
        f8_arena_status(g->arena, g->diag);
        return 0;
    }
    for (size_t i = 0; i < p->waiting.n; i++)
        if (!(vector[i] = f8_as_vector(g, p->made[p->waiting.ref[i]])))
            return 0;
    return f8_concat(g, vector, p->waiting.n, 0);
}

/* all: the largest of the ranks' amaxes, as waiting_vector has a rank's. */
static bool give_amaxes(propagation *p, f8_ref all)
{
    f8_graph *g = p->to;
    int64_t at = 0;
    for (size_t i = 0; i < p->waiting.n && all; i++) {
        const f8_ref old = p->waiting.ref[i];
        const f8_type t = *f8_type_of(g, p->made[old]);
        const int64_t end = at + f8_type_elements(&t);
        p->made[old] = f8_reshape(g, f8_slice(g, all, 0, at, end), &t);
        p->form[old] = WHOLE;
        at = end;
    }
    p->waiting.n = 0;
    return g->diag->status == F8_OK;
}

/* ---- results that are gathered ---- */

/* Whether port i gets the whole of a value, while its variable is not shared. */
static bool is_gathered(const propagation *p, size_t i)
{
    return p->form[p->result[i]] == SHARD && p->f->out[i].type.dtype == F8_F32 &&
           !(p->f->out[i].var >= 0 && p->wholes[p->f->out[i].var]);
}

/* Whether all results are computed, and some are to be gathered. */
static bool results_are_made(const propagation *p)
{
    bool any = false;
    for (size_t i = 0; i < p->f->n_out; i++) {
        if (p->f->out[i].var >= 0 && p->u->module->var[p->f->out[i].var].kind == F8_VAR_PARAM &&
            !p->made[p->result[i]])
            return false;
        any |= is_gathered(p, i) && p->made[p->result[i]];
    }
    return any;
}

/* The wholes of results that are not shared, in buckets; amaxes that wait travel in the last one.
 */
static bool gather_results(propagation *p)
{
    f8_graph *g = p->to;
    f8_result *of = F8_NEW_ARRAY(g->arena, f8_result, p->f->n_out + 1);
    size_t n = 0;
    if (!of)
        return f8_arena_status(g->arena, g->diag) == F8_OK;
    for (size_t i = 0; i < p->f->n_out; i++) {
        const f8_ref old = p->result[i];
        if (!is_gathered(p, i) || p->whole[FORWARD][old])
            continue;
        p->whole[FORWARD][old] = p->made[old]; /* it is listed */
        of[n++] =
            (f8_result){.old = old,
                        .shard = p->made[old],
                        .type = f8_at(p->from, old)->type,
                        .name = p->f->out[i].var < 0 ? p->f->out[i].name
                                                     : p->u->module->var[p->f->out[i].var].name};
    }
    if (p->waiting.n) {
        const f8_ref own = waiting_vector(p);
        if (!own)
            return false;
        f8_type all = *f8_type_of(g, own);
        all.dim[0] *= p->ranks;
        of[n++] = (f8_result){.old = UINT32_MAX, .shard = own, .type = all, .name = "amax"};
    }
    if (f8_shard_gather_results(p->u, g, of, n) != F8_OK)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (of[i].old != UINT32_MAX) {
            p->whole[FORWARD][of[i].old] = of[i].whole;
            continue;
        }
        const f8_type rows = {
            .dtype = F8_F32, .rank = 2, .dim = {p->ranks, of[i].type.dim[0] / p->ranks}};
        give_amaxes(p, f8_join_rows(g, f8_reshape(g, of[i].whole, &rows), true));
    }
    return g->diag->status == F8_OK;
}

/* ---- joining amaxes ---- */

/* The largest of the ranks' amaxes, in one exchange for all that wait. */
static bool join_amaxes(propagation *p)
{
    f8_graph *g = p->to;
    if (!p->waiting.n)
        return true;
    if (results_are_made(p))
        return gather_results(p);
    const f8_ref own = waiting_vector(p);
    const f8_attr attr[] = {F8_INT(F8_A_RANKS, p->ranks), F8_STR(F8_A_REDUCE, "amax")};
    const f8_ref all = own ? f8_make(g, F8_OP_ALL_REDUCE, &own, 1, attr, 2) : 0;
    if (all)
        f8_set_name(g, all, "amax");
    return give_amaxes(p, all);
}

/* ---- whole values ---- */

/* The wholes of shards, in one exchange. */
static bool gather(propagation *p, const refs *old, int phase, const char *name)
{
    const size_t n = old->n;
    f8_ref *shard = F8_NEW_ARRAY(p->to->arena, f8_ref, n),
           *whole = F8_NEW_ARRAY(p->to->arena, f8_ref, n);
    f8_type *type = F8_NEW_ARRAY(p->to->arena, f8_type, n);
    if (!shard || !whole || !type)
        return f8_arena_status(p->to->arena, p->to->diag) == F8_OK;
    for (size_t i = 0; i < n; i++) {
        shard[i] = p->made[old->ref[i]];
        type[i] = f8_at(p->from, old->ref[i])->type;
    }
    if (!f8_gather(p->to, p->ranks, shard, type, n, (uint32_t)phase, name, whole))
        return false;
    for (size_t i = 0; i < n; i++)
        p->whole[phase][old->ref[i]] = whole[i];
    return true;
}

static f8_ref whole_small(propagation *p, f8_ref old)
{
    if (!p->whole[FORWARD][old])
        gather(p, &p->small, FORWARD, "small");
    return p->whole[FORWARD][old];
}

/* A cast has the name of what it casts. */
static const char *name_of(const f8_graph *g, f8_ref r)
{
    while (!g->name[r] && f8_at(g, r)->op == F8_OP_CAST)
        r = f8_at(g, r)->in[0];
    return g->name[r];
}

/* The whole value of an old node, for a user in that phase. */
static f8_ref whole_of(propagation *p, f8_ref old, int phase)
{
    if (p->form[old] == LARGEST)
        join_amaxes(p);
    if (p->form[old] == SMALL)
        return whole_small(p, old);
    if (p->form[old] != SHARD)
        return p->made[old];
    if (!p->whole[phase][old])
        gather(p, &(refs){&old, 1}, phase, name_of(p->from, old));
    return p->whole[phase][old];
}

/* ---- nodes ---- */

/* Whether an operand that broadcasts is the same for all rows of the result. */
static bool same_for_rows(const f8_type *operand, const f8_type *result)
{
    return operand->rank < result->rank || operand->dim[0] == 1;
}

/* Whether a row of the result needs that row alone of each operand, or what is the same for all. */
static bool goes_by_rows(const propagation *p, const f8_node *n)
{
    for (uint32_t i = 0; i < n->n_in; i++) {
        const f8_type *t = f8_type_of(p->from, n->in[i]);
        const bool has_rows = t->rank == n->type.rank && t->dim[0] == n->type.dim[0];
        if (!has_rows && (p->form[n->in[i]] == SHARD || !same_for_rows(t, &n->type)))
            return false;
    }
    return n->type.rank > 0;
}

/* Whether the node, one of whose operands is a SHARD, can be one. */
static bool can_be_shard(const propagation *p, f8_ref old)
{
    const f8_node *n = f8_at(p->from, old);
    f8_granularity grain;
    if (p->own[old])
        return false;
    switch (n->op) {
    case F8_OP_AMAX:
        return grain_of(p->from, old, &grain) &&
               shards_keep_blocks(p, grain, f8_type_of(p->from, n->in[0]));
    case F8_OP_QUANTIZE:
        return p->form[n->in[0]] == SHARD &&
               (grain_of(p->from, old, &grain) ? shards_keep_blocks(p, grain, &n->type)
                                               : goes_by_rows(p, n));
    case F8_OP_FP8_SCALE: return goes_by_rows(p, n);
    default: return f8_op_facts(n->op)->cls == F8_POINTWISE && goes_by_rows(p, n);
    }
}

static f8_ref by_shard(propagation *p, f8_ref old, int phase)
{
    const f8_node *n = f8_at(p->from, old);
    f8_granularity grain;
    const bool blocks = n->op == F8_OP_QUANTIZE && grain_of(p->from, old, &grain);
    for (uint32_t i = 0; i < n->n_in; i++) {
        const f8_ref x = n->in[i];
        p->in[i] = p->form[x] == SHARD ? p->made[x] : whole_of(p, x, phase);
        if (p->form[x] != SHARD && (blocks || !same_for_rows(f8_type_of(p->from, x), &n->type)))
            p->in[i] = f8_shard_of(p->to, p->ranks, p->in[i]);
    }
    p->form[old] = SHARD;
    return again(p, old);
}

static f8_ref on_wholes(propagation *p, f8_ref old, int phase)
{
    const f8_node *n = f8_at(p->from, old);
    for (uint32_t i = 0; i < n->n_in; i++)
        p->in[i] = whole_of(p, n->in[i], phase);
    return again(p, old);
}

/* With reduce_at "update" the function update reads sums in place of each rank's own gradients. */
static void sum_gradients(propagation *p)
{
    f8_gradient *all = F8_NEW_ARRAY(p->to->arena, f8_gradient, p->f->n_in + 1);
    size_t n = 0;
    if (!all) {
        f8_arena_status(p->to->arena, p->to->diag);
        return;
    }
    for (size_t i = 0; i < p->f->n_in; i++)
        if (f8_is_gradient(p->u, &p->f->in[i]))
            all[n++] = (f8_gradient){.var = p->f->in[i].var,
                                     .port = i,
                                     .x = p->f->in[i].ref,
                                     .shard = f8_unit_zero(p->u) && p->f->in[i].type.rank > 0};
    if (f8_shard_sum(p->u, p->to, all, n) != F8_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        const f8_ref old = p->port[all[i].port];
        p->made[old] = all[i].sum;
        p->form[old] = all[i].shard ? SHARD : WHOLE;
        p->own[old] = false;
    }
}

/* Before the first node. The amaxes of parameters are joined in one exchange for the function. */
static void begin(propagation *p)
{
    p->begun = true;
    for (size_t i = 0; i < p->f->n_in; i++)
        p->made[p->port[i]] = p->f->in[i].ref;
    if (p->u->options.reduce_update && !strcmp(p->f->name, "update"))
        sum_gradients(p);
    for (f8_ref r = 1; r < p->from->n_nodes; r++) {
        const f8_node *n = f8_at(p->from, r);
        f8_granularity grain;
        if (n->op == F8_OP_AMAX && p->form[n->in[0]] == SHARD &&
            f8_at(p->from, n->in[0])->op == F8_OP_INPUT && grain_of(p->from, r, &grain) &&
            grain.rows == 0)
            local_amax(p, r);
    }
    join_amaxes(p);
}

static f8_ref propagate(void *user, f8_graph *to, const f8_graph *from, f8_ref old,
                        const f8_ref *mapped)
{
    propagation *p = user;
    const f8_node *n = f8_at(from, old);
    const int phase = old < p->backward ? FORWARD : BACKWARD;
    f8_granularity grain;
    bool shards = false;
    (void)mapped; /* `made` knows the form, too */
    p->to = to;
    if (!p->begun)
        begin(p);
    if (p->made[old])
        return p->made[old];
    for (uint32_t i = 0; i < n->n_in; i++)
        shards |= p->form[n->in[i]] == SHARD;
    p->own[old] = differs(p, n);
    if (shards && n->op == F8_OP_ALL_SLICE)
        p->made[old] = p->made[n->in[0]];
    else if (shards && can_be_shard(p, old))
        p->made[old] = by_shard(p, old, phase);
    else if (shards && n->op == F8_OP_AMAX && grain_of(from, old, &grain) && grain.rows == 0)
        local_amax(p, old);
    else
        p->made[old] = on_wholes(p, old, phase);
    return p->made[old];
}

/* ---- results ---- */

static f8_status store_shard(propagation *p, f8_port *out, f8_ref old, const f8_var *var)
{
    if (p->form[old] != SHARD && p->own[old])
        return f8_fail(p->to->diag, F8_ERR_INTERNAL, out->loc, "'%s' differs from rank to rank",
                       var->name);
    out->ref = p->form[old] == SHARD ? p->made[old]
                                     : f8_shard_of(p->to, p->ranks, whole_of(p, old, FORWARD));
    if (var->kind == F8_VAR_PARAM)
        out->ref = f8_shard_clean(p->to, p->ranks, out->ref, &f8_at(p->from, old)->type);
    return p->to->diag->status;
}

static f8_status finish(propagation *p, const f8_unit *u, f8_func *f, f8_wholes whole)
{
    if (!gather_results(p))
        return p->to->diag->status;
    for (size_t i = 0; i < f->n_out; i++) {
        f8_port *out = &f->out[i];
        const f8_ref old = p->result[i];
        const bool bare =
            f8_is_micro_step(f->name) && f8_is_gradient(u, out) && !u->options.reduce_update;
        if (out->var >= 0 && whole[out->var] && !bare)
            F8_TRY(store_shard(p, out, old, &u->module->var[out->var]));
        else
            out->ref = whole_of(p, old, FORWARD);
        F8_TRY(p->to->diag->status);
        out->type = *f8_type_of(p->to, out->ref);
    }
    return F8_OK;
}

/* ---- the function ---- */

static bool is_replaced(const f8_func *f, int32_t var)
{
    bool replaced = false;
    for (size_t i = 0; i < f->n_out && !replaced; i++)
        replaced = f->out[i].var == var;
    return replaced;
}

static f8_status set_up(propagation *p, const f8_unit *u, f8_func *f, f8_wholes whole)
{
    f8_graph *g = f->graph;
    uint32_t widest = 1;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        widest = f8_at(g, r)->n_in > widest ? f8_at(g, r)->n_in : widest;
    *p = (propagation){.u = u,
                       .f = f,
                       .wholes = whole,
                       .from = g,
                       .ranks = f8_unit_ranks(u),
                       .form = F8_NEW_ARRAY(g->arena, uint8_t, g->n_nodes),
                       .own = F8_NEW_ARRAY(g->arena, uint8_t, g->n_nodes),
                       .made = F8_NEW_ARRAY(g->arena, f8_ref, g->n_nodes),
                       .whole = {F8_NEW_ARRAY(g->arena, f8_ref, g->n_nodes),
                                 F8_NEW_ARRAY(g->arena, f8_ref, g->n_nodes)},
                       .port = F8_NEW_ARRAY(g->arena, f8_ref, f->n_in + 1),
                       .result = F8_NEW_ARRAY(g->arena, f8_ref, f->n_out + 1),
                       .backward = g->n_nodes,
                       .waiting = {.ref = F8_NEW_ARRAY(g->arena, f8_ref, g->n_nodes)},
                       .small = {.ref = F8_NEW_ARRAY(g->arena, f8_ref, f->n_in + 1)},
                       .in = F8_NEW_ARRAY(g->arena, f8_ref, widest)};
    if (!p->form || !p->own || !p->made || !p->whole[0] || !p->whole[1] || !p->port || !p->result ||
        !p->waiting.ref || !p->small.ref || !p->in)
        return f8_arena_status(g->arena, g->diag);
    if (f8_is_micro_step(f->name)) /* autodiff adds the backward behind the loss */
        p->backward = f->out[0].ref + 1;
    for (size_t i = 0; i < f->n_out; i++)
        p->result[i] = f->out[i].ref;
    for (size_t i = 0; i < f->n_in; i++) {
        f8_port *in = &f->in[i];
        const f8_var *var = in->var < 0 ? NULL : &u->module->var[in->var];
        p->port[i] = in->ref;
        p->own[in->ref] = !var || !strcmp(var->name, "fp8.amax");
        if (!var || !whole[in->var])
            continue;
        p->form[in->ref] = SHARD;
        in->type = var->type;
        if (var->kind == F8_VAR_PARAM && is_small(whole[in->var]) && !is_replaced(f, in->var)) {
            p->form[in->ref] = SMALL;
            p->small.ref[p->small.n++] = in->ref;
        }
    }
    return F8_OK;
}

f8_status f8_shard_propagate(f8_unit *u, f8_func *f, f8_wholes whole)
{
    propagation p;
    F8_TRY(f8_func_rewrite(f, NULL, NULL)); /* drops dead nodes */
    F8_TRY(set_up(&p, u, f, whole));
    F8_TRY(f8_func_rewrite(f, propagate, &p));
    p.to = f->graph;
    if (!p.begun)
        begin(&p);
    return finish(&p, u, f, whole);
}
