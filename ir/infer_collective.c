/* Result types, III: collectives. See infer.c. */
#include "ir/internal.h"

#include <string.h>

static f8_status ranks_of(f8_graph *g, const f8_node *n, int64_t *ranks)
{
    *ranks = f8_node_attr(n, F8_A_RANKS)->i;
    if (*ranks < 1 || *ranks > F8_MAX_RANKS)
        return f8_infer_fail(g, n, NULL, "ranks must be 1 to %d, not %lld", F8_MAX_RANKS,
                             (long long)*ranks);
    return F8_OK;
}

/* Operand 1 has a row for each rank. */
static f8_status need_rows_of_ranks(f8_graph *g, const f8_node *n)
{
    const f8_type *t = f8_in_type(g, n, 0);
    int64_t ranks;
    F8_TRY(ranks_of(g, n, &ranks));
    if (t->rank == 0 || t->dim[0] != ranks)
        return f8_infer_fail(g, n, f8_op_facts(n->op)->operands,
                             "the first axis of x must have a size of `ranks`, %lld",
                             (long long)ranks);
    return F8_OK;
}

f8_status f8_infer_all_gather(f8_graph *g, const f8_node *n, f8_type *out)
{
    const f8_type *t = f8_in_type(g, n, 0);
    int64_t ranks;
    F8_TRY(ranks_of(g, n, &ranks));
    if (t->rank == F8_MAX_RANK)
        return f8_infer_fail(g, n, NULL, "x has %d axes already, as many as a value can have",
                             F8_MAX_RANK);
    *out = (f8_type){.dtype = t->dtype, .rank = (uint8_t)(t->rank + 1), .dim = {ranks}};
    for (int i = 0; i < t->rank; i++)
        out->dim[i + 1] = t->dim[i];
    return F8_OK;
}

f8_status f8_infer_all_to_all(f8_graph *g, const f8_node *n, f8_type *out)
{
    F8_TRY(need_rows_of_ranks(g, n));
    *out = *f8_in_type(g, n, 0);
    return F8_OK;
}

f8_status f8_infer_collective_broadcast(f8_graph *g, const f8_node *n, f8_type *out)
{
    const int64_t root = f8_node_attr(n, F8_A_ROOT)->i;
    int64_t ranks;
    F8_TRY(ranks_of(g, n, &ranks));
    if (root < 0 || root >= ranks)
        return f8_infer_fail(g, n, NULL, "root is %lld, which is none of %lld ranks",
                             (long long)root, (long long)ranks);
    *out = *f8_in_type(g, n, 0);
    return F8_OK;
}

f8_status f8_infer_all_slice(f8_graph *g, const f8_node *n, f8_type *out)
{
    const f8_type *t = f8_in_type(g, n, 0);
    int64_t ranks;
    F8_TRY(ranks_of(g, n, &ranks));
    if (t->rank == 0)
        return f8_infer_fail(g, n, f8_op_facts(n->op)->operands, "x has no rows to share");
    *out = *t;
    out->dim[0] = f8_shard_rows(t->dim[0], ranks);
    return F8_OK;
}

static f8_status need_reduction(f8_graph *g, const f8_node *n)
{
    const char *reduce = f8_node_attr(n, F8_A_REDUCE)->s, *order = f8_node_attr(n, F8_A_ORDER)->s;
    F8_TRY(f8_need_dtype(g, n, f8_op_facts(n->op)->operands, 0, F8_M_F32 | F8_M_BF16));
    if (strcmp(reduce, "sum") && strcmp(reduce, "amax"))
        return f8_infer_fail(g, n, NULL, "reduce must be \"sum\" or \"amax\", not \"%s\"", reduce);
    if (strcmp(order, "ranks") && strcmp(order, "library"))
        return f8_infer_fail(g, n, NULL, "order must be \"ranks\" or \"library\", not \"%s\"",
                             order);
    if (!strcmp(order, "library") &&
        (strcmp(reduce, "sum") || f8_in_type(g, n, 0)->dtype != F8_F32))
        return f8_infer_fail(g, n, NULL, "order \"library\" is for the sum of an f32 x");
    return F8_OK;
}

f8_status f8_infer_all_reduce(f8_graph *g, const f8_node *n, f8_type *out)
{
    int64_t ranks;
    F8_TRY(need_reduction(g, n));
    F8_TRY(ranks_of(g, n, &ranks));
    *out = *f8_in_type(g, n, 0);
    out->dtype = F8_F32;
    return F8_OK;
}

f8_status f8_infer_reduce_scatter(f8_graph *g, const f8_node *n, f8_type *out)
{
    const f8_type *t = f8_in_type(g, n, 0);
    F8_TRY(need_reduction(g, n));
    F8_TRY(need_rows_of_ranks(g, n));
    *out = (f8_type){.dtype = F8_F32, .rank = (uint8_t)(t->rank - 1)};
    for (int i = 1; i < t->rank; i++)
        out->dim[i - 1] = t->dim[i];
    return F8_OK;
}
