/* Sums of gradients over the ranks: see parts.h.
 *
 * Gradients travel in buckets, in the order in which the backward makes them, so that the first
 * buckets travel while the backward goes on. Small gradients share the bucket of their neighbours,
 * because an exchange takes its time however little it moves. Which gradients share a bucket
 * changes no bit: each element is summed by itself. */
#include "passes/shard/parts.h"

#include <stdlib.h>
#include <string.h>

/* A bucket is full at a share of all gradients' bytes, within these bounds: its exchange should
 * take far longer than to begin one, and the last bucket, which nothing can hide, should be short.
 */
enum { LEAST = 1 << 18, MOST = 1 << 25, BUCKETS = 16 };

bool f8_is_gradient(const f8_unit *u, const f8_port *p)
{
    return p->var >= 0 && !strncmp(u->module->var[p->var].name, "grad.", 5);
}

f8_status f8_shard_bare_gradients(f8_unit *u, f8_func *f)
{
    const f8_graph *g = f->graph;
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

/* Gradients that travel together. */
typedef struct bucket {
    f8_port **port;
    size_t n;
    const char *name;
    bool shards; /* each rank gets its shards of the sums alone */
} bucket;

static void add_sum(const f8_unit *u, f8_func *f, f8_port *p, f8_ref sum)
{
    f8_set_name(f->graph, sum, u->module->var[p->var].name);
    p->ref = f8_binary(f->graph, F8_OP_ADD, f8_func_var(f, p->var), sum);
    p->type = u->module->var[p->var].type;
}

/* Of whole sums. */
static f8_ref all_reduced(f8_graph *g, f8_ref x, int32_t ranks)
{
    const f8_attr attr[] = {F8_INT(F8_A_RANKS, ranks), F8_STR(F8_A_REDUCE, "sum")};
    return f8_make(g, F8_OP_ALL_REDUCE, &x, 1, attr, 2);
}

/* The gradients as one vector, summed, and its parts. */
static f8_status sum_wholes(const f8_unit *u, f8_func *f, const bucket *b)
{
    f8_graph *g = f->graph;
    f8_ref *part = F8_NEW_ARRAY(u->arena, f8_ref, b->n);
    int64_t at = 0;
    if (!part)
        return f8_arena_status(u->arena, u->diag);
    if (b->n == 1) {
        add_sum(u, f, b->port[0], all_reduced(g, b->port[0]->ref, f8_unit_ranks(u)));
        return u->diag->status;
    }
    for (size_t i = 0; i < b->n; i++) {
        const f8_type vector = {
            .dtype = F8_F32, .rank = 1, .dim = {f8_type_elements(&b->port[i]->type)}};
        part[i] = f8_reshape(g, b->port[i]->ref, &vector);
    }
    F8_TRY(u->diag->status);
    const f8_ref all = all_reduced(g, f8_concat(g, part, b->n, 0), f8_unit_ranks(u));
    f8_set_name(g, all, b->name);
    for (size_t i = 0; i < b->n; i++) {
        const int64_t end = at + f8_type_elements(&b->port[i]->type);
        add_sum(u, f, b->port[i], f8_reshape(g, f8_slice(g, all, 0, at, end), &b->port[i]->type));
        at = end;
    }
    return u->diag->status;
}

static f8_status sum_shards(const f8_unit *u, f8_func *f, const bucket *b)
{
    f8_ref *x = F8_NEW_ARRAY(u->arena, f8_ref, b->n), *sum = F8_NEW_ARRAY(u->arena, f8_ref, b->n);
    if (!x || !sum)
        return f8_arena_status(u->arena, u->diag);
    for (size_t i = 0; i < b->n; i++)
        x[i] = b->port[i]->ref;
    if (!f8_reduce_to_shards(f->graph, f8_unit_ranks(u), x, b->n, b->name, sum))
        return u->diag->status;
    for (size_t i = 0; i < b->n; i++)
        add_sum(u, f, b->port[i], sum[i]);
    return u->diag->status;
}

static f8_status sum_bucket(const f8_unit *u, f8_func *f, const bucket *b)
{
    return b->shards ? sum_shards(u, f, b) : sum_wholes(u, f, b);
}

/* ---- buckets ---- */

static int by_ref(const void *a, const void *b)
{
    const f8_port *x = *(f8_port *const *)a, *y = *(f8_port *const *)b;
    return x->ref < y->ref ? -1 : x->ref > y->ref;
}

/* The gradients in the order in which the backward makes them; all[n] is NULL. */
static f8_status list_gradients(const f8_unit *u, f8_func *f, f8_port ***all, size_t *n,
                                int64_t *bytes)
{
    *all = F8_NEW_ARRAY(u->arena, f8_port *, f->n_out + 1);
    *n = 0;
    *bytes = 0;
    if (!*all)
        return f8_arena_status(u->arena, u->diag);
    for (size_t i = 0; i < f->n_out; i++)
        if (f8_is_gradient(u, &f->out[i])) {
            (*all)[(*n)++] = &f->out[i];
            *bytes += f8_type_bytes(&f->out[i].type);
        }
    qsort(*all, *n, sizeof **all, by_ref);
    return F8_OK;
}

/* The name of the first gradient, and of the last if there are several. */
static const char *name_of(const f8_unit *u, const bucket *b)
{
    const char *first = u->module->var[b->port[0]->var].name,
               *last = u->module->var[b->port[b->n - 1]->var].name;
    return b->n == 1 ? first : f8_arena_printf(u->arena, "%s .. %s", first, last);
}

f8_status f8_shard_sum_gradients(f8_unit *u, f8_func *f, f8_wholes whole)
{
    f8_port **all;
    size_t n;
    int64_t bytes;
    F8_TRY(list_gradients(u, f, &all, &n, &bytes));
    const int64_t share = bytes / BUCKETS, full = share < LEAST  ? LEAST
                                                  : share < MOST ? share
                                                                 : MOST;
    for (size_t i = 0; i < n;) {
        bucket b = {.port = &all[i], .shards = whole[all[i]->var] != NULL};
        int64_t held = 0;
        for (; i < n && held < full && b.shards == (whole[all[i]->var] != NULL); i++, b.n++)
            held += f8_type_bytes(&all[i]->type);
        b.name = name_of(u, &b);
        if (!b.name)
            return f8_arena_status(u->arena, u->diag);
        F8_TRY(sum_bucket(u, f, &b));
    }
    return u->diag->status;
}
