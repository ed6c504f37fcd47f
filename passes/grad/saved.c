/* The choice of what `forward` saves: see saved.h.
 *
 * Without a budget these are values that cost much time to compute or take few bits: results of
 * GEMMs, attention and gathers, values just rounded to fewer bits, and the inverse scales of saved
 * codes. The backward recomputes everything else from them: norms, activations, casts up, views,
 * what depends on parameters alone. That costs less than to keep these f32 tensors.
 *
 * With a budget some of them are dropped too, one after another. Each turn drops the value that
 * frees the most bytes for each second of recomputing. The seconds are estimates, as remat's
 * (passes/unit/cost.h). A dropped value changes the prices of others, so these are found anew. Some
 * rise, since more nodes must now be computed for them. Others fall, since some of their nodes are
 * now computed anyway. In the end, dropped values that still fit the budget are saved again. */
#include "passes/grad/saved.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "passes/unit/cost.h"

/* What it takes to recompute a value that is saved now. */
typedef struct price {
    f8_ref *way;     /* what dropping it would compute, then what is saved, or would have to be, and
                        that this reads */
    uint32_t n_way;
    int64_t bytes; /* that dropping it frees */
    double seconds;
    bool known;
} price;

typedef struct chooser {
    f8_unit *u;
    const f8_func *joint;
    const f8_graph *g;
    size_t n_results;
    f8_saved *s;
    bool *stable; /* by ref: depends on variables and constants alone */
    bool *logits; /* by ref: a loss reads it, or what follows from it alone */
    bool *must;   /* by ref: can't be computed a second time */
    bool *computed; /* by ref: a call with several results, one of which the backward computes */
    bool *codes_scale; /* by ref: an inverse scale of codes that are saved without a budget */
    bool *seen;   /* scratch, by ref */
    f8_ref *stack, *list; /* scratch, by ref */
    price *price; /* by ref */
    f8_ref *held; /* what is saved and may be dropped, and what of it was; a small part of all */
    uint32_t n_held;
} chooser;

const f8_port *f8_joint_port(const f8_func *joint, f8_ref r)
{
    for (size_t i = 0; i < joint->n_in; i++)
        if (joint->in[i].ref == r)
            return &joint->in[i];
    return NULL;
}

/* ---- facts ---- */

static bool is_replaced(const chooser *c, int32_t var)
{
    for (size_t i = 0; i < c->n_results; i++)
        if (c->joint->out[i].var == var)
            return true;
    return false;
}

static void read_ports(chooser *c)
{
    for (size_t i = 0; i < c->joint->n_in; i++) {
        const f8_port *p = &c->joint->in[i];
        const bool old = p->var >= 0 && is_replaced(c, p->var);
        c->s->backward[p->ref] = f8_is_cotangent(c->u, p);
        c->stable[p->ref] = p->var >= 0 && !old;
        c->must[p->ref] = old; /* once forward has run, the variable has its new value */
    }
}

/* Whether a value is saved without a budget, if the backward needs it. */
static bool is_worth(const chooser *c, f8_ref r)
{
    const f8_node *n = f8_at(c->g, r);
    if (c->must[r] || c->codes_scale[r])
        return true;
    if (c->s->backward[r] || c->stable[r] || c->logits[r])
        return false;
    switch (f8_op_facts(n->op)->cls) {
    case F8_GEMM:
    case F8_ATTENTION:
    case F8_GATHER: return true;
    case F8_FP8: return n->op == F8_OP_QUANTIZE;
    case F8_SHAPE: return n->op == F8_OP_PROJECT;
    case F8_REDUCE: /* an amax, or one element: saved, so that its tensor need not be */
        return n->op == F8_OP_REDUCE_AMAX || f8_type_elements(&n->type) == 1;
    case F8_POINTWISE:
        return n->op == F8_OP_CAST &&
               f8_dtype_size(n->type.dtype) < f8_dtype_size(f8_type_of(c->g, n->in[0])->dtype);
    default: return false;
    }
}

/* Saved codes need the inverse scale that they were made with, so it is saved too. Made again in
 * the backward, it would follow from the scales of that moment. */
static void mark_scales(chooser *c)
{
    for (f8_ref r = 1; r < c->g->n_nodes; r++) {
        const f8_node *n = f8_at(c->g, r);
        const uint32_t pairs = n->op == F8_OP_SCALED_MATMUL ? 2 : n->op == F8_OP_DEQUANTIZE;
        for (uint32_t i = 0; i < pairs; i++) {
            const f8_ref codes = n->in[2 * i], scale = n->in[2 * i + 1];
            if (!c->s->backward[scale] && is_worth(c, codes) &&
                f8_op_facts(f8_at(c->g, scale)->op)->cls != F8_LEAF)
                c->codes_scale[scale] = true;
        }
    }
}

/* Whether r is logits, or has one element for each of them. There is one for each row and each word
 * of the vocabulary, and their product reads little. */
static bool is_logits(const chooser *c, f8_ref r)
{
    const f8_node *n = f8_at(c->g, r);
    const f8_class cls = f8_op_facts(n->op)->cls;
    for (uint32_t i = 0; (cls == F8_POINTWISE || cls == F8_SHAPE) && i < n->n_in; i++)
        if (c->logits[n->in[i]] &&
            f8_type_elements(f8_type_of(c->g, n->in[i])) == f8_type_elements(&n->type))
            return true;
    return cls == F8_GEMM && n->clone == F8_CLONE_LOGITS;
}

static f8_status analyze(chooser *c)
{
    const uint32_t n = c->g->n_nodes;
    f8_arena *a = c->u->arena;
    *c->s = (f8_saved){.backward = F8_NEW_ARRAY(a, bool, n),
                       .needed = F8_NEW_ARRAY(a, bool, n),
                       .saved = F8_NEW_ARRAY(a, bool, n)};
    c->stable = F8_NEW_ARRAY(a, bool, n);
    c->must = F8_NEW_ARRAY(a, bool, n);
    c->logits = F8_NEW_ARRAY(a, bool, n);
    c->computed = F8_NEW_ARRAY(a, bool, n);
    c->codes_scale = F8_NEW_ARRAY(a, bool, n);
    c->seen = F8_NEW_ARRAY(a, bool, n);
    c->stack = F8_NEW_ARRAY(a, f8_ref, n);
    c->list = F8_NEW_ARRAY(a, f8_ref, n);
    c->price = F8_NEW_ARRAY(a, price, n);
    F8_TRY(f8_arena_status(a, c->u->diag));
    read_ports(c);
    for (f8_ref r = 1; r < n; r++) {
        const f8_node *node = f8_at(c->g, r);
        if (node->op == F8_OP_INPUT)
            continue;
        c->stable[r] = true;
        c->logits[r] = is_logits(c, r);
        for (uint32_t i = 0; i < node->n_in; i++) {
            c->s->backward[r] |= c->s->backward[node->in[i]];
            c->stable[r] &= c->stable[node->in[i]];
        }
    }
    mark_scales(c);
    return F8_OK;
}

/* ---- what is needed and saved, by a rule ---- */

typedef bool rule(const chooser *c, f8_ref r);

/* Mark what the backward needs if it finds in memory what `in_memory` says. A call's ref stands for
 * its first result too, so that is not saved where the backward computes another one. */
static void settle(chooser *c, rule *in_memory)
{
    f8_saved *s = c->s;
    memset(s->needed, 0, c->g->n_nodes * sizeof *s->needed);
    memset(c->computed, 0, c->g->n_nodes * sizeof *c->computed);
    s->bytes = 0;
    for (size_t i = c->n_results; i < c->joint->n_out; i++)
        s->needed[c->joint->out[i].ref] = true;
    for (f8_ref r = c->g->n_nodes; r-- > 1;) {
        const f8_node *n = f8_at(c->g, r);
        s->saved[r] = s->needed[r] && !c->computed[r] && in_memory(c, r);
        if (s->saved[r])
            s->bytes += f8_type_bytes(&n->type);
        for (uint32_t i = 0; s->needed[r] && !s->saved[r] && i < n->n_in; i++) {
            s->needed[n->in[i]] = true;
            c->computed[n->in[i]] |= n->op == F8_OP_PROJECT;
        }
    }
}

/* The rule that keeps an earlier choice. */
static bool was_saved(const chooser *c, f8_ref r)
{
    return c->s->saved[r] || c->must[r];
}

/* The call that a value is a further result of; 0: it is none. */
static f8_ref call_of(const chooser *c, f8_ref r)
{
    const f8_node *n = f8_at(c->g, r);
    return n->op == F8_OP_PROJECT ? n->in[0] : 0;
}

/* A value that takes next to no memory. */
static bool is_small(const chooser *c, f8_ref r)
{
    return c->must[r] || f8_type_elements(f8_type_of(c->g, r)) == 1;
}

static bool matches(const chooser *c, const char *pattern, f8_ref r)
{
    return pattern && c->g->name[r] && f8_pattern_match(pattern, c->g->name[r]);
}

static bool by_name(const chooser *c, f8_ref r)
{
    const f8_options *o = &c->u->options;
    if (call_of(c, r)) /* all results of a call have its name */
        return by_name(c, call_of(c, r));
    if (c->s->backward[r] || c->stable[r] || c->logits[r] ||
        (f8_at(c->g, r)->op == F8_OP_INPUT && !c->must[r]))
        return false;
    if (o->checkpoint)
        return matches(c, o->checkpoint, r) || (is_small(c, r) && is_worth(c, r));
    return is_worth(c, r) && (is_small(c, r) || !matches(c, o->recompute, r));
}

/* ---- prices ---- */

/* A value that the caller's memory has for the backward, or that is none: a variable with its old
 * value, an input, a constant. */
static bool is_at_hand(const chooser *c, f8_ref r)
{
    return f8_op_facts(f8_at(c->g, r)->op)->cls == F8_LEAF && !c->must[r];
}

static int ascending(const void *a, const void *b)
{
    const f8_ref x = *(const f8_ref *)a, y = *(const f8_ref *)b;
    return (x > y) - (x < y);
}

/* What dropping r would compute: the nodes on the way to what is in memory or is recomputed anyway,
 * in c->list, ascending, r the last. Returns their number. The *n_ends values at the way's other
 * end are in c->stack: saved ones, and states that forward replaces, which must be saved then. */
static uint32_t find_way(chooser *c, f8_ref r, uint32_t *n_ends)
{
    uint32_t n_stack = 0, n_found = 0, n = 0, ends = 0;
    const f8_saved *s = c->s;
    c->seen[r] = true;
    c->list[n_found++] = r;
    c->stack[n_stack++] = r;
    while (n_stack) {
        const f8_node *node = f8_at(c->g, c->stack[--n_stack]);
        for (uint32_t i = 0; i < node->n_in; i++) {
            const f8_ref in = node->in[i];
            if (c->seen[in] || is_at_hand(c, in))
                continue;
            if (s->needed[in] && !s->saved[in])
                continue; /* the backward computes it anyway */
            c->seen[in] = true;
            c->list[n_found++] = in;
            if (!s->saved[in] && !c->must[in])
                c->stack[n_stack++] = in;
        }
    }
    qsort(c->list, n_found, sizeof *c->list, ascending); /* a way may span the whole graph */
    for (uint32_t i = 0; i < n_found; i++) {
        const f8_ref x = c->list[i];
        c->seen[x] = false;
        if (x == r || !(s->saved[x] || c->must[x]))
            c->list[n++] = x;
        else
            c->stack[ends++] = x;
    }
    *n_ends = ends;
    return n;
}

static f8_status find_price(chooser *c, f8_ref r)
{
    price *p = &c->price[r];
    uint32_t n_ends;
    const uint32_t n = find_way(c, r, &n_ends);
    p->way = F8_NEW_ARRAY(c->u->arena, f8_ref, n + n_ends);
    if (!p->way)
        return f8_arena_status(c->u->arena, c->u->diag);
    memcpy(p->way, c->list, n * sizeof *p->way);
    memcpy(p->way + n, c->stack, n_ends * sizeof *p->way);
    p->n_way = n + n_ends;
    p->bytes = f8_type_bytes(f8_type_of(c->g, r));
    for (uint32_t i = 0; i < n_ends; i++)
        if (!c->s->saved[c->stack[i]])
            p->bytes -= f8_type_bytes(f8_type_of(c->g, c->stack[i]));
    p->seconds = f8_cost_nodes(c->g, f8_unit_target(c->u), c->list, n);
    p->known = true;
    return F8_OK;
}

/* Forget the prices that depend on the dropped value, or on what is now computed for it. */
static void forget_prices(chooser *c, f8_ref dropped)
{
    const price *d = &c->price[dropped];
    for (uint32_t i = 0; i < d->n_way; i++)
        c->seen[d->way[i]] = !c->s->saved[d->way[i]];
    for (uint32_t k = 0; k < c->n_held; k++) {
        price *p = &c->price[c->held[k]];
        for (uint32_t i = 0; p->known && i < p->n_way; i++)
            if (c->seen[p->way[i]])
                p->known = false;
    }
    for (uint32_t i = 0; i < d->n_way; i++)
        c->seen[d->way[i]] = false;
}

/* ---- a budget ---- */

/* The saved value that frees the most bytes for each second; 0: none can be dropped. */
static f8_status find_best(chooser *c, f8_ref *best)
{
    double most = 0;
    *best = 0;
    for (uint32_t k = 0; k < c->n_held; k++) {
        const f8_ref r = c->held[k];
        if (!c->s->saved[r] || c->s->saved[call_of(c, r)])
            continue;
        if (!c->price[r].known)
            F8_TRY(find_price(c, r));
        const double value = (double)c->price[r].bytes / (c->price[r].seconds + 1e-12);
        if (value > most) {
            most = value;
            *best = r;
        }
    }
    return F8_OK;
}

static f8_status too_small(const chooser *c, int64_t before, double share)
{
    const double least = ceil(1e4 * (double)c->s->bytes / (double)before) / 1e4;
    return f8_fail(c->u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                   "memory: the least possible share of the bytes that 'forward' saves is %.4f "
                   "(%" PRId64 " of %" PRId64 "), %g was asked for",
                   least, c->s->bytes, before, share);
}

/* Save dropped values again while the budget allows it, the last dropped first. */
static void use_room(chooser *c, const f8_ref *dropped, uint32_t n, int64_t allowed)
{
    while (n-- > 0) {
        const int64_t bytes = f8_type_bytes(f8_type_of(c->g, dropped[n]));
        if (c->s->bytes + bytes > allowed)
            continue;
        c->s->saved[dropped[n]] = true;
        c->s->bytes += bytes;
    }
}

static f8_status meet(chooser *c, double share)
{
    const int64_t before = c->s->bytes, allowed = (int64_t)floor(share * (double)before);
    f8_ref *dropped = F8_NEW_ARRAY(c->u->arena, f8_ref, c->g->n_nodes);
    uint32_t n = 0;
    c->held = F8_NEW_ARRAY(c->u->arena, f8_ref, c->g->n_nodes);
    if (!dropped || !c->held)
        return f8_arena_status(c->u->arena, c->u->diag);
    for (f8_ref r = 1; r < c->g->n_nodes; r++)
        if (c->s->saved[r] && !is_small(c, r))
            c->held[c->n_held++] = r;
    while (c->s->bytes > allowed) {
        f8_ref r;
        F8_TRY(f8_unit_go_on(c->u));
        F8_TRY(find_best(c, &r));
        if (!r)
            return too_small(c, before, share);
        dropped[n++] = r;
        c->s->saved[r] = false;
        c->s->bytes -= c->price[r].bytes;
        for (uint32_t i = 0; i < c->price[r].n_way; i++)
            c->s->needed[c->price[r].way[i]] = true;
        forget_prices(c, r);
        for (uint32_t i = 0; i < c->price[r].n_way; i++)
            c->s->saved[c->price[r].way[i]] |= c->must[c->price[r].way[i]];
    }
    use_room(c, dropped, n, allowed);
    settle(c, was_saved);
    return c->s->bytes > allowed ? too_small(c, before, share) : F8_OK;
}

/* ---- the choice ---- */

static f8_status check_pattern(const chooser *c, const char *pattern, const char *option)
{
    bool found = pattern == NULL;
    for (f8_ref r = 1; r < c->g->n_nodes && !found; r++)
        found = !c->s->backward[r] && matches(c, pattern, r);
    return found ? F8_OK
                 : f8_fail(c->u->diag, F8_ERR_INPUT, F8_NOWHERE,
                           "%s: no value of 'forward' has a name that matches '%s'", option,
                           pattern);
}

/* Seconds of the forward's nodes that the backward computes, and with `all` of every node: of the
 * pieces that products and attention end, since kernels are about these, and a price takes time
 * quadratic in the nodes. */
static double seconds(chooser *c, bool all)
{
    const f8_target *target = f8_unit_target(c->u);
    double sum = 0;
    uint32_t n = 0;
    for (f8_ref r = 1; r < c->g->n_nodes; r++) {
        const f8_class cls = f8_op_facts(f8_at(c->g, r)->op)->cls;
        if (cls == F8_LEAF ||
            !(all || (c->s->needed[r] && !c->s->saved[r] && !c->s->backward[r])))
            continue;
        c->list[n++] = r;
        if (cls != F8_GEMM && cls != F8_ATTENTION)
            continue;
        sum += f8_cost_nodes(c->g, target, c->list, n);
        n = 0;
    }
    return n ? sum + f8_cost_nodes(c->g, target, c->list, n) : sum;
}

static uint32_t count_saved(const chooser *c)
{
    uint32_t n = 0;
    for (f8_ref r = 1; r < c->g->n_nodes; r++)
        n += c->s->saved[r];
    return n;
}

static f8_status choose(chooser *c, bool report)
{
    const f8_options *o = &c->u->options;
    const bool names = o->checkpoint || o->recompute;
    settle(c, is_worth);
    if (!names && !(o->memory.share > 0))
        return F8_OK;
    const int64_t before = c->s->bytes;
    const uint32_t n_before = count_saved(c);
    const double seconds_before = seconds(c, false);
    if (names) {
        F8_TRY(check_pattern(c, o->checkpoint, "checkpoint"));
        F8_TRY(check_pattern(c, o->recompute, "recompute"));
        settle(c, by_name);
    } else {
        F8_TRY(meet(c, o->memory.share));
    }
    if (report)
        c->u->remat = (f8_remat_summary){.ran = true,
                                         .activations_before = before,
                                         .activations_after = c->s->bytes,
                                         .recomputed = (int64_t)n_before - count_saved(c),
                                         .seconds = seconds(c, true),
                                         .extra_seconds = seconds(c, false) - seconds_before,
                                         .budget = INT64_MAX,
                                         .rounds = 1};
    return F8_OK;
}

f8_status f8_choose_saved(f8_unit *u, const f8_func *joint, size_t n_results, bool report,
                          f8_saved *out)
{
    chooser c = {.u = u, .joint = joint, .g = joint->graph, .n_results = n_results, .s = out};
    F8_TRY(analyze(&c));
    return choose(&c, report);
}
