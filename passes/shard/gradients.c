/* Sums of gradients over the ranks: see parts.h.
 *
 * Gradients travel in buckets, in the order in which the backward makes them, so that the first
 * buckets travel while the backward goes on. Small gradients share the bucket of their neighbours,
 * because an exchange takes its time however little it moves. Which gradients share a bucket
 * changes no bit: each element is summed by itself. */
#include "passes/shard/parts.h"
#include "passes/unit/formulas.h"

#include <stdlib.h>
#include <string.h>

/* A bucket is full at a share of all gradients' bytes, within these bounds: its exchange should
 * take far longer than to begin one. The last buckets become smaller and smaller, because nothing
 * hides the last one: each of them has half of what is left. */
enum { LEAST = 1 << 18, MOST = 1 << 25, BUCKETS = 16, LEAST_AT_END = 1 << 16 };

bool f8_is_gradient(const f8_unit *u, const f8_port *p)
{
    return p->var >= 0 && !strncmp(u->module->var[p->var].name, "grad.", 5);
}

/* What says whether gradients hold sums (f8_vjp_request) is needed only once there are sums over
 * the ranks. Until then it is a result, the last one, so that it stays where it is: a node made
 * then would be computed last, and sums that wait for it would lie in memory. */
static const char adds_port[] = "adds";

static f8_status begin_adds(const f8_unit *u, f8_func *f)
{
    const f8_graph *g = f->graph;
    f8_ref adds = 0;
    for (size_t i = 0; i < f->n_out; i++) {
        const f8_node *n = f8_at(g, f->out[i].ref);
        if (f8_is_gradient(u, &f->out[i]) && n->op == F8_OP_ADD &&
            f8_at(g, n->in[0])->op == F8_OP_SELECT)
            adds = f8_at(g, n->in[0])->in[0];
    }
    return adds ? f8_func_result(f, adds_port, adds, -1) : F8_OK;
}

/* 0: gradients always hold sums. */
static f8_ref end_adds(f8_func *f)
{
    const f8_port *last = f->n_out ? &f->out[f->n_out - 1] : NULL;
    if (!last || last->var >= 0 || strcmp(last->name, adds_port))
        return 0;
    f->n_out--;
    return last->ref;
}

f8_status f8_shard_bare_gradients(f8_unit *u, f8_func *f)
{
    const f8_graph *g = f->graph;
    F8_TRY(begin_adds(u, f));
    for (size_t i = 0; i < f->n_out; i++) {
        f8_port *p = &f->out[i];
        const f8_node *n = f8_at(g, p->ref);
        if (!f8_is_gradient(u, p))
            continue;
        if (n->op != F8_OP_ADD)
            return f8_fail(u->diag, F8_ERR_INTERNAL, g->loc[p->ref],
                           "'%s' is no sum of itself and a gradient", u->module->var[p->var].name);
        p->ref = n->in[1];
        p->type = *f8_type_of(g, p->ref);
    }
    return F8_OK;
}

/* ---- buckets ---- */

/* Gradients that travel together: all give shards, or none does. */
typedef struct bucket {
    f8_gradient *of;
    size_t n;
    const char *name;
} bucket;

/* What travels: as f32, or rounded to bf16. Sums are f32. */
static f8_ref outgoing(const f8_unit *u, f8_graph *g, f8_ref x)
{
    return u->options.reduce_bf16 ? f8_cast(g, x, F8_BF16) : x;
}

/* Who adds: kernels of ours in the order of the ranks, or what moves the bytes. */
static const char *order_of(const f8_unit *u)
{
    return u->options.library_sums ? "library" : "ranks";
}

/* The gradients as one vector, summed, and its parts. */
static f8_status sum_wholes(const f8_unit *u, f8_graph *g, const bucket *b)
{
    const f8_attr attr[] = {F8_INT(F8_A_RANKS, f8_unit_ranks(u)), F8_STR(F8_A_REDUCE, "sum"),
                            F8_STR(F8_A_ORDER, order_of(u))};
    f8_ref *part = F8_NEW_ARRAY(u->arena, f8_ref, b->n);
    int64_t at = 0;
    if (!part)
        return f8_arena_status(u->arena, u->diag);
    for (size_t i = 0; i < b->n; i++)
        part[i] = b->n == 1 ? b->of[i].x : f8_as_vector(g, b->of[i].x);
    F8_TRY(u->diag->status);
    const f8_ref x = outgoing(u, g, b->n == 1 ? part[0] : f8_concat(g, part, b->n, 0)),
                 all = f8_make(g, F8_OP_ALL_REDUCE, &x, 1, attr, 3);
    if (all)
        f8_set_name(g, all, b->name);
    for (size_t i = 0; i < b->n && all; i++) {
        const f8_type *t = f8_type_of(g, b->of[i].x);
        const int64_t end = at + f8_type_elements(t);
        b->of[i].sum = b->n == 1 ? all : f8_reshape(g, f8_slice(g, all, 0, at, end), t);
        at = end;
    }
    return u->diag->status;
}

static f8_status sum_shards(const f8_unit *u, f8_graph *g, const bucket *b)
{
    f8_ref *x = F8_NEW_ARRAY(u->arena, f8_ref, b->n), *sum = F8_NEW_ARRAY(u->arena, f8_ref, b->n);
    if (!x || !sum)
        return f8_arena_status(u->arena, u->diag);
    for (size_t i = 0; i < b->n; i++)
        x[i] = outgoing(u, g, b->of[i].x);
    if (!f8_reduce_to_shards(g, f8_unit_ranks(u), x, b->n, order_of(u), b->name, sum))
        return u->diag->status;
    for (size_t i = 0; i < b->n; i++)
        b->of[i].sum = sum[i];
    return u->diag->status;
}

/* The name of the first gradient, and of the last if there are several. */
static const char *name_of(const f8_unit *u, const bucket *b)
{
    const char *first = u->module->var[b->of[0].var].name,
               *last = u->module->var[b->of[b->n - 1].var].name;
    return b->n == 1 ? first : f8_arena_printf(u->arena, "%s .. %s", first, last);
}

static int64_t within(int64_t bytes, int64_t least, int64_t most)
{
    return bytes < least ? least : bytes < most ? bytes : most;
}

f8_status f8_shard_sum(const f8_unit *u, f8_graph *g, f8_gradient *of, size_t n)
{
    int64_t left = 0;
    for (size_t i = 0; i < n; i++)
        left += f8_type_bytes(f8_type_of(g, of[i].x));
    const int64_t most = within(left / BUCKETS, LEAST, MOST);
    for (size_t i = 0; i < n;) {
        bucket b = {.of = &of[i]};
        const bool shard = of[i].shard;
        const int64_t full = within(left / 2, LEAST_AT_END, most);
        int64_t held = 0;
        for (; i < n && held < full && of[i].shard == shard; i++, b.n++)
            held += f8_type_bytes(f8_type_of(g, of[i].x));
        left -= held;
        b.name = name_of(u, &b);
        if (!b.name)
            return f8_arena_status(u->arena, u->diag);
        F8_TRY(shard ? sum_shards(u, g, &b) : sum_wholes(u, g, &b));
    }
    return u->diag->status;
}

/* ---- micro_step ---- */

static int by_ref(const void *a, const void *b)
{
    const f8_gradient *x = a, *y = b;
    return x->x < y->x ? -1 : x->x > y->x;
}

f8_status f8_shard_sum_gradients(f8_unit *u, f8_func *f, f8_wholes whole)
{
    f8_graph *g = f->graph;
    f8_gradient *all = F8_NEW_ARRAY(u->arena, f8_gradient, f->n_out + 1);
    size_t n = 0;
    const f8_ref adds = end_adds(f);
    if (!all)
        return f8_arena_status(u->arena, u->diag);
    for (size_t i = 0; i < f->n_out; i++)
        if (f8_is_gradient(u, &f->out[i]))
            all[n++] = (f8_gradient){.var = f->out[i].var,
                                     .port = i,
                                     .x = f->out[i].ref,
                                     .shard = whole[f->out[i].var] != NULL};
    qsort(all, n, sizeof *all, by_ref); /* as the backward makes them */
    F8_TRY(f8_shard_sum(u, g, all, n));
    for (size_t i = 0; i < n; i++) {
        f8_port *p = &f->out[all[i].port];
        f8_set_name(g, all[i].sum, u->module->var[p->var].name);
        p->ref = f8_binary(g, F8_OP_ADD, f8_if_adds(g, adds, f8_func_var(f, p->var)), all[i].sum);
        p->type = u->module->var[p->var].type;
    }
    return u->diag->status;
}
