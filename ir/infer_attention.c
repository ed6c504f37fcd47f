/* Result types, IV: attention and dropout. See infer.c. */
#include "ir/internal.h"

#include <math.h>

/* The checks of q, k and v. */
static f8_status heads_ok(f8_graph *g, const f8_node *n, const char *roles)
{
    const f8_type *q = f8_in_type(g, n, 0), *k = f8_in_type(g, n, 1), *v = f8_in_type(g, n, 2);
    int64_t heads = f8_node_attr(n, F8_A_HEADS)->i, kv_heads = f8_node_attr(n, F8_A_KV_HEADS)->i;
    double scale = f8_node_attr(n, F8_A_SCALE)->f;
    F8_TRY(f8_need_dtype(g, n, roles, 0, F8_M_F32 | F8_M_BF16));
    if (q->dtype != k->dtype || q->dtype != v->dtype)
        return f8_infer_fail(g, n, roles, "dtypes %s, %s and %s differ", f8_dtype_name(q->dtype),
                             f8_dtype_name(k->dtype), f8_dtype_name(v->dtype));
    if (q->rank != 3 || k->rank != 3)
        return f8_infer_fail(g, n, roles, "each must be [batch, positions, heads * size]");
    if (heads < 1 || q->dim[2] % heads)
        return f8_infer_fail(g, n, roles, "%lld heads do not divide %lld columns", (long long)heads,
                             (long long)q->dim[2]);
    if (kv_heads < 1 || heads % kv_heads)
        return f8_infer_fail(g, n, roles, "kv_heads = %lld does not divide heads = %lld",
                             (long long)kv_heads, (long long)heads);
    if (!f8_type_same_shape(k, v) || k->dim[0] != q->dim[0] ||
        k->dim[2] != q->dim[2] / heads * kv_heads)
        return f8_infer_fail(g, n, roles, "k and v must both be [%lld, keys, %lld]",
                             (long long)q->dim[0], (long long)(q->dim[2] / heads * kv_heads));
    if (!isfinite(scale) || scale < 0)
        return f8_infer_fail(g, n, roles, "scale = %g must be finite and not negative", scale);
    return F8_OK;
}

/* The number of operands that an attention always has; 0: the node is another op. */
static uint32_t always(const f8_node *n)
{
    return n->op == F8_OP_ATTENTION ? 3 : n->op == F8_OP_ATTENTION_GRAD ? 6 : 0;
}

f8_ref f8_attention_seed(const f8_graph *g, const f8_node *n)
{
    const uint32_t at = always(n);
    if (!at || n->n_in <= at)
        return 0;
    const f8_type *last = f8_in_type(g, n, n->n_in - 1);
    if (last->dtype != F8_I32 || last->rank == 4) /* that is a mask of a wrong dtype */
        return 0;
    return n->in[n->n_in - 1];
}

f8_ref f8_attention_mask(const f8_graph *g, const f8_node *n)
{
    const uint32_t at = always(n);
    return at && n->n_in > at + (f8_attention_seed(g, n) != 0) ? n->in[at] : 0;
}

/* The mask is [batch, heads, positions, keys], or 1 in the place of any of these. */
static f8_status mask_ok(f8_graph *g, const f8_node *n, const char *roles)
{
    if (!f8_attention_mask(g, n))
        return F8_OK;
    const uint32_t at = always(n);
    const f8_type *q = f8_in_type(g, n, 0), *mask = f8_in_type(g, n, at);
    const int64_t want[] = {q->dim[0], f8_node_attr(n, F8_A_HEADS)->i, q->dim[1],
                            f8_in_type(g, n, 1)->dim[1]};
    F8_TRY(f8_need_dtype(g, n, roles, at, F8_M_BOOL | F8_M_F32));
    bool ok = mask->rank == 4;
    for (int i = 0; i < 4 && ok; i++)
        ok = mask->dim[i] == want[i] || mask->dim[i] == 1;
    if (!ok)
        return f8_infer_fail(g, n, roles,
                             "the mask must be [%lld, %lld, %lld, %lld]: batch, heads, positions, "
                             "keys; any size may be 1",
                             (long long)want[0], (long long)want[1], (long long)want[2],
                             (long long)want[3]);
    return F8_OK;
}

/* A probability that something is dropped, and which of a seed's masks says what. */
static f8_status dropping_ok(f8_graph *g, const f8_node *n, f8_attr_key key)
{
    const double p = f8_node_attr(n, key)->f;
    const int64_t stream = f8_node_attr(n, F8_A_STREAM)->i;
    if (!(p >= 0 && p < 1))
        return f8_infer_fail(g, n, NULL, "%s must be 0 or more and below 1, not %g",
                             f8_attr_name(key), p);
    if (stream < -1 || stream > INT32_MAX)
        return f8_infer_fail(g, n, NULL, "stream must be 0 to 2147483647, or -1, not %lld",
                             (long long)stream);
    return F8_OK;
}

/* Rows of the softmax are numbered by i32. */
static f8_status dropout_ok(f8_graph *g, const f8_node *n, const char *roles)
{
    const f8_type *q = f8_in_type(g, n, 0);
    F8_TRY(dropping_ok(g, n, F8_A_DROPOUT));
    if (f8_attention_seed(g, n) || n->n_in == always(n) + 2)
        F8_TRY(f8_infer_need_type(g, n, roles, n->n_in - 1, &(f8_type){.dtype = F8_I32}));
    else if (f8_node_attr(n, F8_A_DROPOUT)->f > 0)
        return f8_infer_fail(g, n, roles, "dropout = %g needs a seed, i32[], as the last operand",
                             f8_node_attr(n, F8_A_DROPOUT)->f);
    if (f8_node_attr(n, F8_A_DROPOUT)->f > 0 &&
        f8_type_rows(q) > INT32_MAX / f8_node_attr(n, F8_A_HEADS)->i)
        return f8_infer_fail(g, n, roles, "the number of a row of the softmax does not fit i32");
    return F8_OK;
}

bool f8_attention_adds(const f8_graph *g, const f8_node *n)
{
    const f8_ref mask = f8_attention_mask(g, n);
    return mask && f8_type_of(g, mask)->dtype == F8_F32;
}

static f8_type lse_type(const f8_graph *g, const f8_node *n)
{
    const int64_t B = f8_in_type(g, n, 0)->dim[0], T = f8_in_type(g, n, 0)->dim[1];
    const int64_t H = f8_node_attr(n, F8_A_HEADS)->i;
    if (f8_attention_adds(g, n))
        return (f8_type){.dtype = F8_F32, .rank = 4, .dim = {B, H, 2, T}};
    return (f8_type){.dtype = F8_F32, .rank = 3, .dim = {B, H, T}};
}

f8_status f8_infer_attention(f8_graph *g, const f8_node *n, f8_type *out)
{
    const char *roles = f8_op_facts(n->op)->operands;
    F8_TRY(heads_ok(g, n, roles));
    F8_TRY(mask_ok(g, n, roles));
    F8_TRY(dropout_ok(g, n, roles));
    *out = *f8_in_type(g, n, 0);
    return F8_OK;
}

f8_status f8_infer_attention_grad(f8_graph *g, const f8_node *n, f8_type *out)
{
    const char *roles = f8_op_facts(n->op)->operands;
    F8_TRY(heads_ok(g, n, roles));
    F8_TRY(mask_ok(g, n, roles));
    F8_TRY(dropout_ok(g, n, roles));
    *out = *f8_in_type(g, n, 0);
    f8_type lse = lse_type(g, n);
    if (!f8_type_equal(f8_in_type(g, n, 3), out) || !f8_type_equal(f8_in_type(g, n, 5), out) ||
        !f8_type_equal(f8_in_type(g, n, 4), &lse))
        return f8_infer_fail(g, n, roles,
                             "o and do must be as q, lse f32[batch, heads, %spositions]",
                             f8_attention_adds(g, n) ? "2, " : "");
    return F8_OK;
}

f8_type f8_result_type(const f8_graph *g, f8_ref r, int64_t index)
{
    const f8_node *n = f8_at(g, r);
    if (index == 0)
        return n->type;
    return n->op == F8_OP_ATTENTION ? lse_type(g, n) : *f8_in_type(g, n, (uint32_t)index);
}

f8_status f8_infer_dropout(f8_graph *g, const f8_node *n, f8_type *out)
{
    const char *roles = f8_op_facts(n->op)->operands;
    F8_TRY(f8_need_dtype(g, n, roles, 0, F8_M_F32));
    F8_TRY(f8_infer_need_type(g, n, roles, 1, &(f8_type){.dtype = F8_I32}));
    *out = *f8_in_type(g, n, 0);
    F8_TRY(dropping_ok(g, n, F8_A_P));
    if (f8_type_rows(out) > INT32_MAX || f8_type_columns(out) > INT32_MAX)
        return f8_infer_fail(g, n, NULL, "the number of a row or column does not fit i32");
    return F8_OK;
}
