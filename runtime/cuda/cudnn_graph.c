/* The attention graphs: see cudnn_graph.h. Shapes: b batch, h query heads, g key/value heads, t
 * tokens, d. */
#include "runtime/cuda/cudnn_graph.h"

#include "runtime/cuda/cudnn_api.h"

/* ---- building blocks ---- */

typedef struct builder {
    const f8_cudnn_attention_desc *x;
    f8_cudnn_graph *g;
} builder;

static f8_cudnn_tensor *set(builder *b, int at, int type, int64_t heads, int64_t rows,
                            int64_t columns)
{
    f8_cudnn_tensor *t = &b->g->tensor[at];
    *t = (f8_cudnn_tensor){.type = type,
                           .used = true,
                           .dim = {b->x->B, heads, rows, columns},
                           .stride = {heads * rows * columns, rows * columns, columns, 1}};
    return t;
}

/* A tensor of ours: [B, heads, T, D], or its last two axes exchanged. */
static void ours(builder *b, int at, int64_t heads, int64_t stride, bool transposed)
{
    const f8_cudnn_attention_desc *x = b->x;
    f8_cudnn_tensor *t =
        set(b, at, CUDNN_DATA_BFLOAT16, heads, transposed ? x->D : x->T, transposed ? x->T : x->D);
    t->real = true;
    t->stride[0] = x->T * stride;
    t->stride[1] = x->D;
    t->stride[2] = transposed ? 1 : stride;
    t->stride[3] = transposed ? stride : 1;
}

static void per_row(builder *b, int at) /* a real f32[B, H, T, 1] */
{
    set(b, at, CUDNN_DATA_FLOAT, b->x->H, b->x->T, 1)->real = true;
}

static void value(builder *b, int at)
{
    b->g->tensor[at] = (f8_cudnn_tensor){.type = CUDNN_DATA_FLOAT,
                                         .used = true,
                                         .value = true,
                                         .dim = {1, 1, 1, 1},
                                         .stride = {1, 1, 1, 1}};
}

static int new_tensor(builder *b, int type, int64_t rows,
                      int64_t columns) /* virtual [B, H, rows, columns] */
{
    int at = b->g->n_tensors++;
    set(b, at, type, b->x->H, rows, columns);
    return at;
}

static f8_cudnn_op *op(builder *b, f8_cudnn_op_kind kind, int mode, int out)
{
    f8_cudnn_op *o = &b->g->op[b->g->n_ops++];
    *o = (f8_cudnn_op){.kind = kind, .mode = mode, .compute = CUDNN_DATA_FLOAT, .out = out};
    return o;
}

static int matmul(builder *b, int left, int right, int out)
{
    f8_cudnn_op *o = op(b, F8_CUDNN_MATMUL, 0, out);
    o->in[0] = left, o->in[1] = right, o->n_in = 2;
    return out;
}

static int reduce(builder *b, int mode, int from, int out)
{
    f8_cudnn_op *o = op(b, F8_CUDNN_REDUCTION, mode, out);
    o->in[0] = from, o->n_in = 1;
    return out;
}

static int map(builder *b, int mode, int left, int right, int out) /* right < 0: of one operand */
{
    f8_cudnn_op *o = op(b, F8_CUDNN_POINTWISE, mode, out);
    o->in[0] = left, o->in[1] = right < 0 ? left : right, o->n_in = right < 0 ? 1 : 2;
    return out;
}

static int scores(builder *b) /* a virtual f32[B, H, T, T] */
{
    return new_tensor(b, CUDNN_DATA_FLOAT, b->x->T, b->x->T);
}

static int rows(builder *b) /* a virtual f32[B, H, T, 1] */
{
    return new_tensor(b, CUDNN_DATA_FLOAT, b->x->T, 1);
}

/* The same elements seen with the last two axes exchanged, as bf16 operands of a matmul. */
static int transpose(builder *b, int from, int64_t heads)
{
    const f8_cudnn_tensor *f = &b->g->tensor[from];
    int out = b->g->n_tensors++;
    f8_cudnn_tensor *t = set(b, out, CUDNN_DATA_BFLOAT16, heads, f->dim[3], f->dim[2]);
    t->stride[0] = f->stride[0], t->stride[1] = f->stride[1];
    t->stride[2] = f->stride[3], t->stride[3] = f->stride[2];
    f8_cudnn_op *o = op(b, F8_CUDNN_RESHAPE, 0, out);
    o->in[0] = from, o->n_in = 1;
    return out;
}

/* Scores of keys after the query become -Inf. */
static int mask(builder *b, int s)
{
    if (!b->x->causal)
        return s;
    int64_t T = b->x->T;
    int row = new_tensor(b, CUDNN_DATA_INT32, T, T), column = new_tensor(b, CUDNN_DATA_INT32, T, T);
    int keep = new_tensor(b, CUDNN_DATA_BOOLEAN, T, T), out = scores(b);
    map(b, CUDNN_POINTWISE_GEN_INDEX, s, -1, row);
    b->g->op[b->g->n_ops - 1].axis = 2;
    map(b, CUDNN_POINTWISE_GEN_INDEX, s, -1, column);
    b->g->op[b->g->n_ops - 1].axis = 3;
    map(b, CUDNN_POINTWISE_CMP_GE, row, column, keep);
    b->g->op[b->g->n_ops - 1].compute = CUDNN_DATA_BOOLEAN;
    map(b, CUDNN_POINTWISE_BINARY_SELECT, s, F8_CUDNN_MINUS_INF, out);
    f8_cudnn_op *select = &b->g->op[b->g->n_ops - 1];
    select->in[2] = keep, select->n_in = 3;
    return out;
}

/* ---- the two graphs ---- */

/* s = mask(scale q k^T); lse = max s + log sum exp(s - max s); o = bf16(exp(s - max s) / sum) v */
static void forward(builder *b)
{
    const f8_cudnn_attention_desc *x = b->x;
    ours(b, F8_CUDNN_V, x->Hkv, x->stride.v, false);
    int s = matmul(b, F8_CUDNN_Q, F8_CUDNN_K, scores(b));
    s = mask(b, map(b, CUDNN_POINTWISE_MUL, s, F8_CUDNN_SCALE, scores(b)));
    int max = reduce(b, CUDNN_REDUCE_TENSOR_MAX, s, rows(b));
    int e =
        map(b, CUDNN_POINTWISE_EXP, map(b, CUDNN_POINTWISE_SUB, s, max, scores(b)), -1, scores(b));
    int sum = reduce(b, CUDNN_REDUCE_TENSOR_ADD, e, rows(b));
    int log = map(b, CUDNN_POINTWISE_LOG, sum, -1, rows(b));
    map(b, CUDNN_POINTWISE_ADD, max, log, F8_CUDNN_LSE);
    int p = map(b, CUDNN_POINTWISE_DIV, e, sum, new_tensor(b, CUDNN_DATA_BFLOAT16, x->T, x->T));
    matmul(b, p, F8_CUDNN_V, F8_CUDNN_O);
}

/* left^T right for each query head, then summed over the heads of a group. */
static void gradient(builder *b, int left, int right, int out)
{
    const f8_cudnn_attention_desc *x = b->x;
    int from = transpose(b, left, x->H);
    if (x->H == x->Hkv) {
        matmul(b, from, right, out);
        return;
    }
    int heads = matmul(b, from, right, new_tensor(b, CUDNN_DATA_BFLOAT16, x->T, x->D));
    reduce(b, CUDNN_REDUCE_TENSOR_ADD, heads, out);
}

/* delta = sum do o; p = exp(mask(scale q k^T - lse)); dv = p^T do;
 * ds = scale p (do v^T - delta); dk = ds^T q; dq = ds k */
static void backward(builder *b)
{
    const f8_cudnn_attention_desc *x = b->x;
    ours(b, F8_CUDNN_V, x->Hkv, x->stride.v, true);
    ours(b, F8_CUDNN_DO, x->H, x->stride.dout, false);
    ours(b, F8_CUDNN_DQ, x->H, x->stride.dq, false);
    ours(b, F8_CUDNN_DK, x->Hkv, x->stride.dk, false);
    ours(b, F8_CUDNN_DV, x->Hkv, x->stride.dv, false);
    per_row(b, F8_CUDNN_DELTA);
    value(b, F8_CUDNN_ONE); /* the pattern's place for the scale of dropout */

    int product = map(b, CUDNN_POINTWISE_MUL, F8_CUDNN_DO, F8_CUDNN_O,
                      new_tensor(b, CUDNN_DATA_FLOAT, x->T, x->D));
    map(b, CUDNN_POINTWISE_MUL, reduce(b, CUDNN_REDUCE_TENSOR_ADD, product, rows(b)), F8_CUDNN_ONE,
        F8_CUDNN_DELTA);

    int s = matmul(b, F8_CUDNN_Q, F8_CUDNN_K, scores(b));
    s = map(b, CUDNN_POINTWISE_MUL, s, F8_CUDNN_SCALE, scores(b));
    s = mask(b, map(b, CUDNN_POINTWISE_SUB, s, F8_CUDNN_LSE, scores(b)));
    int p = map(b, CUDNN_POINTWISE_EXP, s, -1, scores(b));
    gradient(b, p, F8_CUDNN_DO, F8_CUDNN_DV);

    int ds = matmul(b, F8_CUDNN_DO, F8_CUDNN_V, scores(b));
    ds = map(b, CUDNN_POINTWISE_SUB, ds, F8_CUDNN_DELTA, scores(b));
    ds = map(b, CUDNN_POINTWISE_MUL, ds, p, scores(b));
    ds = map(b, CUDNN_POINTWISE_MUL, ds, F8_CUDNN_SCALE, scores(b));
    gradient(b, ds, F8_CUDNN_Q, F8_CUDNN_DK);
    matmul(b, ds, transpose(b, F8_CUDNN_K, x->Hkv), F8_CUDNN_DQ);
}

void f8_cudnn_attention_graph(const f8_cudnn_attention_desc *desc, f8_cudnn_graph *out)
{
    *out = (f8_cudnn_graph){.n_tensors = F8_CUDNN_FIXED};
    builder b = {desc, out};
    ours(&b, F8_CUDNN_Q, desc->H, desc->stride.q, false);
    ours(&b, F8_CUDNN_K, desc->Hkv, desc->stride.k, true);
    ours(&b, F8_CUDNN_O, desc->H, desc->stride.o, false);
    per_row(&b, F8_CUDNN_LSE);
    value(&b, F8_CUDNN_SCALE);
    if (desc->causal)
        value(&b, F8_CUDNN_MINUS_INF);
    if (desc->backward)
        backward(&b);
    else
        forward(&b);
}
