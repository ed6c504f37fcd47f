/* Reverse-mode differentiation; the pass itself, f8_pass_autodiff, is in entry.c.
 *
 * Nodes are visited in descending order; each one's cotangent is finished from what its users
 * contributed, then its rule (vjp.h) contributes to its operands. All of it is plain nodes; that the backward of a row statistic is the forward's own node is hash-consing's work.
 *
 * Contributions to one value are added in f32, in ascending order of the users that made them, and
 * rounded once if the value is narrower. Two kinds of contribution are not just added:
 *   - slices that tile a value (q, k and v of one projection) give one concat, not padded zeros;
 *   - a parameter's contributions stay apart, so that each product can accumulate into the gradient that
 *     is kept as state. They are f32 and never rounded, also through the parameter's cast to bf16, and come in
 *     the order the backward pass makes them: a tied embedding's head first, its scatter last.
 */
#include "passes/autodiff.h"

#include "passes/copy.h"
#include "passes/formulas.h"
#include "passes/vjp.h"

#include <string.h>

/* ---- the tape ---- */

/* One contribution; from a SLICE it is the slice's own cotangent, not padded yet. */
typedef struct contribution {
    f8_ref d, user; /* user 0 (an op that is none): no single one */
    struct contribution *next;
} contribution;

typedef struct tape {
    f8_unit *u;
    f8_graph *g;
    f8_ref n;            /* nodes of the forward part: [1, n) */
    bool *needs, *param; /* by ref: depends on a parameter; is one */
    contribution **to;   /* by ref: list, ascending users */
    contribution *part;  /* scratch: one list as an array */
    size_t part_room;
} tape;

static f8_status no_memory(tape *t)
{
    return f8_arena_status(t->u->arena, t->u->diag);
}

/* Users are visited in descending order, so putting each at the front leaves the list ascending. */
static f8_status contribute(tape *t, f8_ref r, f8_ref d, f8_ref user)
{
    contribution *c = F8_NEW(t->u->arena, contribution);
    if (!c)
        return no_memory(t);
    *c = (contribution){d, user, t->to[r]};
    t->to[r] = c;
    return F8_OK;
}

static f8_status setup(tape *t, const f8_func *f)
{
    const f8_graph *g = t->g;
    t->n = g->n_nodes;
    t->needs = F8_NEW_ARRAY(t->u->arena, bool, t->n);
    t->param = F8_NEW_ARRAY(t->u->arena, bool, t->n);
    t->to = F8_NEW_ARRAY(t->u->arena, contribution *, t->n);
    if (!t->needs || !t->param || !t->to)
        return no_memory(t);
    for (size_t i = 0; i < f->n_in; i++) {
        const f8_port *p = &f->in[i];
        if (p->var >= 0 && t->u->module->var[p->var].kind == F8_VAR_PARAM && f8_dtype_is_float(p->type.dtype))
            t->needs[p->ref] = t->param[p->ref] = true;
    }
    for (f8_ref r = 1; r < t->n; r++)
        for (uint32_t i = 0; i < f8_at(g, r)->n_in; i++)
            t->needs[r] |= t->needs[f8_at(g, r)->in[i]];
    return F8_OK;
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
        contribution *grown = f8_arena_grow(t->u->arena, t->part, *n, &t->part_room, *n + 1, sizeof *grown);
        if (!grown)
            return no_memory(t);
        t->part = grown;
        t->part[(*n)++] = *c;
    }
    return F8_OK;
}

/* The part among n whose slice of `axis` starts at `start`; n if there is none. */
static size_t slice_from(const tape *t, size_t n, int64_t axis, int64_t start)
{
    for (size_t i = 0; i < n; i++) {
        f8_ref s = t->part[i].user;
        if (f8_at(t->g, s)->op == F8_OP_SLICE && slice_axis(t->g, s) == axis &&
            f8_attr_i(t->g, s, F8_A_START) == start)
            return i;
    }
    return n;
}

enum { MAX_TILES = 64 };

/* If slices of `axis` among the n parts tile [0, size) exactly, put one concat in place of the first and drop
 * the others: the new n. */
static size_t join_slices(tape *t, size_t n, int64_t axis, int64_t size)
{
    f8_ref piece[MAX_TILES];
    size_t tile[MAX_TILES], first = n, kept = 0;
    int count = 0;
    for (int64_t at = 0; at < size; count++) {
        size_t i = slice_from(t, n, axis, at);
        if (i == n || count == MAX_TILES)
            return n;
        piece[count] = t->part[i].d;
        tile[count] = i;
        first = i < first ? i : first;
        at = f8_attr_i(t->g, t->part[i].user, F8_A_STOP);
    }
    for (size_t i = 0; i < n; i++) {
        bool joined = false;
        for (int k = 0; k < count; k++)
            joined |= tile[k] == i;
        if (i == first)
            t->part[kept++] = (contribution){f8_concat(t->g, piece, count, axis), 0, NULL};
        else if (!joined)
            t->part[kept++] = t->part[i];
    }
    return kept;
}

/* Every slice's part to the shape of the whole. */
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
    for (size_t i = 1; i < n; i++)
        sum = f8_binary(g, F8_OP_ADD, f8_fold_cast(g, sum, F8_F32), f8_fold_cast(g, t->part[i].d, F8_F32));
    *out = f8_fold_cast(g, sum, f8_type_of(g, r)->dtype);
    if (g->name[r]) {
        const char *name = f8_arena_printf(t->u->arena, "d.%s", g->name[r]);
        f8_set_name(g, *out, name ? name : "");
    }
    return t->u->diag->status;
}

/* ---- walking back ---- */

static f8_status visit(tape *t, f8_ref r, f8_ref *dx)
{
    f8_graph *g = t->g;
    const f8_node n = *f8_at(g, r); /* its operands stay where they are while the graph grows */
    if (n.op == F8_OP_CAST && t->param[n.in[0]]) {
        /* A weight's gradient passes its rounding untouched, part by part. */
        size_t count;
        F8_TRY(collect(t, r, &count));
        for (size_t i = count; i-- > 0;)
            F8_TRY(contribute(t, n.in[0], t->part[i].d, r));
        return F8_OK;
    }
    f8_ref dy = 0;
    F8_TRY(finish(t, r, &dy));
    if (n.op == F8_OP_SLICE)
        return contribute(t, n.in[0], dy, r);
    memset(dx, 0, n.n_in * sizeof *dx);
    f8_vjp(g, r, dy, dx);
    for (uint32_t i = n.n_in; i-- > 0;)
        if (dx[i] && t->needs[n.in[i]])
            F8_TRY(contribute(t, n.in[i], dx[i], r));
    return t->u->diag->status;
}

static f8_status take_gradient(tape *t, const f8_port *p, f8_gradient *d)
{
    size_t n = 0;
    d->param = p->var;
    if (t->to[p->ref])
        F8_TRY(collect(t, p->ref, &n));
    d->part = F8_NEW_ARRAY(t->u->arena, f8_ref, n);
    if (!d->part)
        return no_memory(t);
    for (size_t i = 0; i < n; i++)
        d->part[i] = f8_fold_cast(t->g, t->part[n - 1 - i].d, F8_F32);
    d->n = n;
    return F8_OK;
}

f8_status f8_differentiate(f8_unit *u, f8_func *f, f8_ref loss, f8_ref seed, f8_gradient **out, size_t *n_out)
{
    tape t = {.u = u, .g = f->graph};
    F8_TRY(setup(&t, f));
    f8_ref *dx = F8_NEW_ARRAY(u->arena, f8_ref, f8_widest(t.g));
    f8_gradient *d = F8_NEW_ARRAY(u->arena, f8_gradient, f->n_in);
    if (!dx || !d)
        return no_memory(&t);
    F8_TRY(contribute(&t, loss, seed, 0));
    for (f8_ref r = t.n; r-- > 1;) {
        t.g->at = t.g->loc[r];
        if (t.needs[r] && t.to[r] && !t.param[r])
            F8_TRY(visit(&t, r, dx));
    }
    size_t n = 0;
    for (size_t i = 0; i < f->n_in; i++)
        if (t.param[f->in[i].ref])
            F8_TRY(take_gradient(&t, &f->in[i], &d[n++]));
    t.g->at = F8_NOWHERE;
    *out = d;
    *n_out = n;
    return u->diag->status;
}

f8_ref f8_accumulate(f8_graph *g, f8_ref acc, const f8_gradient *d)
{
    for (size_t i = 0; i < d->n; i++) {
        f8_ref part = d->part[i];
        if (!acc || !part) {
            acc = part;
            continue;
        }
        const f8_node n = *f8_at(g, part);
        const char *name = g->name[part];
        int n_attrs = f8_op_facts(n.op)->n_attrs;
        if (n.op == F8_OP_MATMUL && n.n_in == 2)
            acc = f8_make(g, n.op, (f8_ref[]){n.in[0], n.in[1], acc}, 3, n.attr, n_attrs);
        else if (n.op == F8_OP_EMBEDDING_GRAD)
            acc = f8_make(g, n.op, (f8_ref[]){acc, n.in[1], n.in[2]}, 3, n.attr, n_attrs);
        else
            acc = f8_binary(g, F8_OP_ADD, acc, part);
        f8_set_name(g, acc, name);
    }
    return acc;
}
