/* Reverse-mode differentiation; the pass itself, f8_pass_autodiff, is in entry.c.
 *
 * Nodes are visited in descending order. Each one's cotangent is finished from what its users
 * contributed; then its rule (vjp.h) contributes to its operands. Everything is plain nodes. Where
 * the backward of a row statistic is the forward's own node, hash-consing finds it.
 *
 * Contributions to one value are added in f32, in ascending order of the users that made them, and
 * rounded once if the value is narrower. What a product contributes to a bf16 value is rounded to
 * bf16 first, so that no dgrad lies in memory as f32. Two kinds of contribution are not just added:
 *
 * - Slices that tile a value (q, k and v of one projection) give one concat, not padded zeros.
 * - A parameter's contributions join a running sum at once, in the order in which the backward
 *   makes them (a tied embedding's head first, its scatter last), so that products accumulate into
 *   the gradient that is kept as state. They are f32 and never rounded, not even through the
 *   parameter's cast to bf16. Only their sum is rounded, once, where the parameter is bf16. */
#include "passes/grad/autodiff.h"

#include "passes/unit/copy.h"
#include "passes/unit/formulas.h"
#include "passes/grad/vjp.h"

#include <stdlib.h>
#include <string.h>

/* ---- the tape ---- */

/* One contribution. From a SLICE it is the slice's own cotangent, not padded yet. */
typedef struct contribution {
    f8_ref d, user; /* user 0: no single one */
    struct contribution *next;
} contribution;

typedef struct tape {
    f8_unit *u;
    f8_func *f;
    f8_graph *g;
    const f8_vjp_request *request;
    f8_ref n;           /* nodes of the forward part: [1, n) */
    bool *needs;        /* by ref: a gradient goes through it to a trained parameter, or to an input
                         * asked for */
    f8_ref *param;      /* by ref: the parameter that it is, or is a cast of; 0 for others */
    f8_ref *input;      /* by ref: the f32 input asked for that it is a cast of; 0 for others */
    int32_t *var;       /* by ref of a parameter */
    f8_ref *sum;        /* by ref of a parameter, or of an input asked for */
    contribution **to;  /* by ref: list, ascending users */
    contribution *part; /* scratch: one list as an array */
    size_t part_room;
} tape;

static f8_status no_memory(tape *t)
{
    return f8_arena_status(t->u->arena, t->u->diag);
}

/* acc + part. A product or scatter is made anew with acc as its operand; the old one is dead then.
 * adds: whether acc counts, but for a scatter; 0: it does. */
static f8_ref accumulate(f8_graph *g, f8_ref acc, f8_ref part, f8_ref adds)
{
    if (!acc || !part)
        return part;
    const f8_node n = *f8_at(g, part);
    const char *name = g->name[part];
    int n_attrs = f8_op_facts(n.op)->n_attrs;
    if (n.op == F8_OP_MATMUL && n.n_in == 2)
        acc = f8_make(g, n.op, (f8_ref[]){n.in[0], n.in[1], acc, adds}, adds ? 4 : 3, n.attr,
                      n_attrs);
    else if (n.op == F8_OP_EMBEDDING_GRAD)
        acc = f8_make(g, n.op, (f8_ref[]){acc, n.in[1], n.in[2]}, 3, n.attr, n_attrs);
    else
        acc = f8_binary(g, F8_OP_ADD, f8_if_adds(g, adds, acc), part);
    f8_set_name(g, acc, name);
    return acc;
}

/* What says whether the state of parameter `var` holds a sum that contribution d joins; 0: it
 * always does. A scatter adds to rows of a table that it leaves as it is elsewhere, so zeros have
 * to be there. */
static f8_ref adds_to_state(const tape *t, int32_t var, f8_ref d)
{
    const f8_vjp_request *q = t->request;
    if (q->adds && f8_at(t->g, d)->op == F8_OP_EMBEDDING_GRAD)
        q->needs_zeros[var] = true;
    return q->adds && !q->needs_zeros[var] ? q->adds : 0;
}

/* Users are visited in descending order, so putting each at the front leaves the list ascending. */
static f8_status contribute(tape *t, f8_ref r, f8_ref d, f8_ref user)
{
    f8_ref p = t->param[r];
    if (t->input[r]) { /* the cast's rounding is no part of the gradient */
        r = t->input[r];
        d = f8_fold_cast(t->g, d, F8_F32);
    }
    if (p && f8_at(t->g, user)->op != F8_OP_SLICE) {
        const int32_t state = t->request->state_of ? t->request->state_of[t->var[p]] : -1;
        f8_ref adds = 0;
        if (!t->sum[p] && state >= 0 && f8_adds_in_place(t->u->module, state)) {
            t->sum[p] = f8_func_var(t->f, state);
            adds = adds_to_state(t, t->var[p], d);
        }
        t->sum[p] = accumulate(t->g, t->sum[p], f8_fold_cast(t->g, d, F8_F32), adds);
        return t->u->diag->status;
    }
    const f8_op by = f8_at(t->g, user)->op;
    if ((by == F8_OP_MATMUL || by == F8_OP_BATCH_MATMUL) && f8_type_of(t->g, r)->dtype == F8_BF16)
        d = f8_fold_cast(t->g, d, F8_BF16); /* as its GEMM writes it */
    contribution *c = F8_NEW(t->u->arena, contribution);
    if (!c)
        return no_memory(t);
    *c = (contribution){d, user, t->to[r]};
    t->to[r] = c;
    return F8_OK;
}

/* Whether a port is a parameter whose gradient is wanted. */
static bool is_trained(const tape *t, const f8_port *p)
{
    return p->var >= 0 && t->u->module->var[p->var].kind == F8_VAR_PARAM &&
           f8_dtype_is_float(p->type.dtype) && !f8_unit_is_frozen(t->u, p->var);
}

static bool is_asked(const tape *t, size_t port)
{
    return t->request->of_input && t->request->of_input[port];
}

static f8_status setup(tape *t)
{
    const f8_graph *g = t->g;
    f8_arena *arena = t->u->arena;
    t->n = g->n_nodes;
    t->needs = F8_NEW_ARRAY(arena, bool, t->n);
    t->param = F8_NEW_ARRAY(arena, f8_ref, t->n);
    t->input = F8_NEW_ARRAY(arena, f8_ref, t->n);
    t->var = F8_NEW_ARRAY(arena, int32_t, t->n);
    t->sum = F8_NEW_ARRAY(arena, f8_ref, t->n);
    t->to = F8_NEW_ARRAY(arena, contribution *, t->n);
    if (!t->needs || !t->param || !t->input || !t->var || !t->sum || !t->to)
        return no_memory(t);
    for (size_t i = 0; i < t->f->n_in; i++) {
        const f8_port *p = &t->f->in[i];
        if (is_asked(t, i))
            t->needs[p->ref] = true;
        if (!is_trained(t, p))
            continue;
        t->needs[p->ref] = true;
        t->param[p->ref] = p->ref;
        t->var[p->ref] = p->var;
    }
    for (f8_ref r = 1; r < t->n; r++) {
        const f8_node *n = f8_at(g, r);
        for (uint32_t i = 0; i < n->n_in && f8_op_gradient_of(n->op) != F8_GRADIENT_ZERO; i++)
            t->needs[r] |= t->needs[n->in[i]];
        if (n->op != F8_OP_CAST || !f8_dtype_is_float(n->type.dtype))
            continue;
        const f8_ref x = n->in[0];
        t->param[r] = t->param[x];
        t->input[r] = t->input[x];
        if (f8_at(g, x)->op == F8_OP_INPUT && t->needs[x] && !t->param[x] &&
            f8_type_of(g, x)->dtype == F8_F32)
            t->input[r] = x;
    }
    return F8_OK;
}

bool f8_adds_in_place(const f8_module *m, int32_t state)
{
    return m->var[state].type.dtype == F8_F32;
}

f8_ref f8_next_gradient(f8_func *f, int32_t state, f8_ref sum, bool added, f8_ref adds)
{
    f8_graph *g = f->graph;
    const f8_dtype dtype = g->module->var[state].type.dtype;
    if (!added || dtype != F8_F32) {
        const f8_ref so_far = f8_cast(g, f8_func_var(f, state), F8_F32);
        sum = f8_binary(g, F8_OP_ADD, f8_if_adds(g, adds, so_far), sum);
    }
    return f8_cast(g, sum, dtype);
}

/* ---- finishing one value's cotangent ---- */

static int64_t slice_axis(const f8_graph *g, f8_ref slice)
{
    int64_t axis = f8_attr_i(g, slice, F8_A_AXIS);
    return axis < 0 ? axis + f8_type_of(g, slice)->rank : axis;
}

static f8_status list_to_array(tape *t, const contribution *list, size_t *n)
{
    *n = 0;
    for (const contribution *c = list; c; c = c->next) {
        contribution *grown =
            f8_arena_grow(t->u->arena, t->part, *n, &t->part_room, *n + 1, sizeof *grown);
        if (!grown)
            return no_memory(t);
        t->part = grown;
        t->part[(*n)++] = *c;
    }
    return F8_OK;
}

/* A part that is a slice: where it starts and stops, and its index. */
typedef struct tile {
    int64_t start, stop;
    size_t part;
} tile;

static int by_start(const void *a, const void *b)
{
    const tile *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->part < y->part ? -1 : x->part > y->part;
}

/* The slices of `axis` among the n parts, by their starts; of equal starts only the first. */
static size_t list_tiles(const tape *t, tile *list, size_t n, int64_t axis)
{
    size_t found = 0, kept = 0;
    for (size_t i = 0; i < n; i++) {
        const f8_ref s = t->part[i].user;
        if (f8_at(t->g, s)->op == F8_OP_SLICE && slice_axis(t->g, s) == axis)
            list[found++] =
                (tile){f8_attr_i(t->g, s, F8_A_START), f8_attr_i(t->g, s, F8_A_STOP), i};
    }
    qsort(list, found, sizeof *list, by_start);
    for (size_t i = 0; i < found; i++)
        if (kept == 0 || list[kept - 1].start != list[i].start)
            list[kept++] = list[i];
    return kept;
}

/* Keeps the tiles that cover [0, size) without gaps, in order. Gives their number; 0 where no such
 * tiles exist. */
static size_t tiling(tile *list, size_t n, int64_t size)
{
    size_t count = 0;
    int64_t at = 0;
    for (size_t i = 0; i < n && at < size; i++) {
        if (list[i].start < at)
            continue;
        if (list[i].start > at)
            return 0;
        at = list[i].stop;
        list[count++] = list[i];
    }
    return at == size ? count : 0;
}

/* If slices of `axis` among the n parts tile [0, size) exactly, put one concat in place of the
 * first and drop the others: the new n. */
static size_t join_slices(tape *t, size_t n, int64_t axis, int64_t size)
{
    tile *list = F8_NEW_ARRAY(t->u->arena, tile, n);
    f8_ref *piece = F8_NEW_ARRAY(t->u->arena, f8_ref, n);
    if (!list || !piece) {
        no_memory(t);
        return n;
    }
    const size_t count = tiling(list, list_tiles(t, list, n, axis), size);
    size_t first = n, kept = 0;
    for (size_t i = 0; i < count; i++) {
        piece[i] = t->part[list[i].part].d;
        first = list[i].part < first ? list[i].part : first;
        t->part[list[i].part].d = 0; /* joined */
    }
    if (count == 0)
        return n;
    for (size_t i = 0; i < n; i++)
        if (i == first)
            t->part[kept++] = (contribution){f8_concat(t->g, piece, count, axis), 0, NULL};
        else if (t->part[i].d)
            t->part[kept++] = t->part[i];
    return kept;
}

/* Pad every slice's part to the shape of the whole. */
static size_t whole_parts(tape *t, f8_ref r, size_t n)
{
    f8_graph *g = t->g;
    f8_type whole = *f8_type_of(g, r);
    for (int64_t axis = 0; axis < whole.rank; axis++)
        for (size_t i = 0; i < n; i++)
            if (f8_at(g, t->part[i].user)->op == F8_OP_SLICE &&
                slice_axis(g, t->part[i].user) == axis) {
                n = join_slices(t, n, axis, whole.dim[axis]);
                break;
            }
    for (size_t i = 0; i < n; i++) {
        f8_ref s = t->part[i].user;
        if (f8_at(g, s)->op == F8_OP_SLICE)
            t->part[i].d = f8_vjp_pad(g, t->part[i].d, &whole, slice_axis(g, s),
                                      f8_attr_i(g, s, F8_A_START), f8_attr_i(g, s, F8_A_STOP));
    }
    return n;
}

/* The parts of r's cotangent, ready to add, in t->part. */
static f8_status collect(tape *t, f8_ref r, size_t *n)
{
    F8_TRY(list_to_array(t, t->to[r], n));
    *n = whole_parts(t, r, *n);
    return t->u->diag->status;
}

static f8_status finish(tape *t, f8_ref r, f8_ref *out)
{
    f8_graph *g = t->g;
    size_t n;
    F8_TRY(collect(t, r, &n));
    f8_ref sum = t->part[0].d;
    for (size_t i = 1; i < n; i++) {
        f8_ref so_far = f8_fold_cast(g, sum, F8_F32), next = f8_fold_cast(g, t->part[i].d, F8_F32);
        sum = f8_binary(g, F8_OP_ADD, so_far, next);
    }
    *out = f8_fold_cast(g, sum, f8_type_of(g, r)->dtype);
    if (g->name[r]) {
        const char *name = f8_arena_printf(t->u->arena, "d.%s", g->name[r]);
        f8_set_name(g, *out, name ? name : "");
    }
    return t->u->diag->status;
}

/* ---- walking back ---- */

/* Add what a parameter (or its cast) got from slices; everything else is in the sum already. */
static f8_status join_sum(tape *t, f8_ref r)
{
    size_t n;
    F8_TRY(collect(t, r, &n));
    for (size_t i = 0; i < n; i++)
        F8_TRY(contribute(t, t->param[r], t->part[i].d, 0));
    return F8_OK;
}

static f8_status visit(tape *t, f8_ref r, f8_ref *dx)
{
    f8_graph *g = t->g;
    /* a copy: the graph may grow below, but its operands stay where they are */
    const f8_node n = *f8_at(g, r);
    if (t->param[r])
        return join_sum(t, r);
    f8_ref dy = 0;
    F8_TRY(finish(t, r, &dy));
    if (n.op == F8_OP_INPUT)
        t->sum[r] = dy;
    if (n.op == F8_OP_SLICE)
        return contribute(t, n.in[0], dy, r);
    const f8_ref mask = n.op == F8_OP_ATTENTION ? f8_attention_mask(g, &n) : 0;
    if (dy && mask && t->needs[mask] && f8_type_of(g, mask)->dtype == F8_F32)
        return f8_fail(t->u->diag, F8_ERR_UNSUPPORTED, g->loc[r],
                       "attention's mask depends on what is trained, or on an input whose gradient "
                       "is asked for; a mask has no gradient");
    memset(dx, 0, n.n_in * sizeof *dx);
    f8_vjp(g, r, dy, dx);
    for (uint32_t i = n.n_in; i-- > 0;)
        if (dx[i] && t->needs[n.in[i]])
            F8_TRY(contribute(t, n.in[i], dx[i], r));
    return t->u->diag->status;
}

f8_status f8_differentiate(f8_unit *u, f8_func *f, const f8_vjp_request *request,
                           f8_gradient **out, size_t *n_out)
{
    tape t = {.u = u, .f = f, .g = f->graph, .request = request};
    size_t n = 0, n_ports = f->n_in;
    F8_TRY(setup(&t));
    f8_ref *dx = F8_NEW_ARRAY(u->arena, f8_ref, f8_widest(t.g));
    f8_gradient *d = F8_NEW_ARRAY(u->arena, f8_gradient, n_ports);
    if (!dx || !d)
        return no_memory(&t);
    for (size_t i = 0; i < request->n_seeds; i++)
        F8_TRY(contribute(&t, request->seed[i].value, request->seed[i].cotangent, 0));
    for (f8_ref r = t.n; r-- > 1;) {
        t.g->at = t.g->loc[r];
        if (t.needs[r] && t.to[r]) {
            F8_TRY(visit(&t, r, dx));
            F8_TRY(f8_unit_within(u));
        }
    }
    t.g->at = F8_NOWHERE;
    for (size_t i = 0; i < n_ports; i++) {
        const bool param = is_trained(&t, &f->in[i]);
        if (param || is_asked(&t, i))
            d[n++] = (f8_gradient){i, param ? f->in[i].var : -1, t.sum[f->in[i].ref]};
    }
    *out = d;
    *n_out = n;
    return u->diag->status;
}
