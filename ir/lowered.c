/* The sizes of GEMMs: see lowered.h. */
#include "ir/lowered.h"

/* Padding that both sides have; 0 if they differ. */
static int32_t common(int32_t x, int32_t y)
{
    return x == y ? x : 0;
}

f8_gemm_sizes f8_gemm_sizes_of(const f8_graph *g, f8_ref r)
{
    const f8_node *n = f8_at(g, r);
    const f8_gemm_operands o = f8_gemm_operands_of(n);
    const bool ta = f8_attr_i(g, r, F8_A_TRANSPOSE_A) != 0,
               tb = f8_attr_i(g, r, F8_A_TRANSPOSE_B) != 0;
    const f8_type *a = f8_type_of(g, o.a), *b = f8_type_of(g, o.b);
    f8_type one[3];
    if (n->op != F8_OP_BATCH_MATMUL)
        return f8_type_gemm(a, ta, b, tb);
    f8_type_batch(a, &one[0]);
    f8_type_batch(b, &one[1]);
    f8_gemm_sizes size = f8_type_gemm(&one[0], ta, &one[1], tb);
    size.batch = f8_type_batch(&n->type, &one[2]);
    return size;
}

f8_gemm_sizes f8_lowered_gemm(const f8_graph *g, const f8_lowered *p, f8_ref r)
{
    const f8_node *n = f8_at(g, r);
    const f8_ref a = n->in[0], b = f8_gemm_operands_of(n).b;
    const bool trans_a = f8_attr_i(g, r, F8_A_TRANSPOSE_A) != 0;
    const bool trans_b = f8_attr_i(g, r, F8_A_TRANSPOSE_B) != 0;
    f8_gemm_sizes size = f8_gemm_sizes_of(g, r);
    if (!p->pad || n->op == F8_OP_BATCH_MATMUL)
        return size;
    const f8_pad *x = &p->pad[a], *y = &p->pad[b], *z = &p->pad[r];
    size.m += common(trans_a ? x->cols : x->rows, z->rows);
    size.n += common(trans_b ? y->rows : y->cols, z->cols);
    if (x->zeros && y->zeros)
        size.k += common(trans_a ? x->rows : x->cols, trans_b ? y->cols : y->rows);
    return size;
}

/* A row of the result is a sum of its own, so two GEMMs make it as one does. m remains unpadded
 * where the result has no room for more rows: a gradient that is added to where it is kept.
 *
 * It pays if the first GEMM saves more time than the second costs. cuBLASLt 13.1 on an H200 takes
 * 0.38 ms for 50257 x 768 x 2048 and 0.22 ms with 50264: it saves 0.7 of the faster time. The
 * second has a handful of rows; few blocks run it, and it waits for memory along k. Its cost is
 * taken as four launches. */
int64_t f8_lowered_split(const f8_graph *g, const f8_target *target, f8_ref r,
                         const f8_gemm_sizes *size)
{
    const f8_node *n = f8_at(g, r);
    const int64_t rest = size->m % target->gemm_multiple;
    if (!rest || size->m < target->gemm_multiple || n->op != F8_OP_MATMUL ||
        !f8_attr_i(g, r, F8_A_TRANSPOSE_A) || f8_type_of(g, n->in[0])->dtype != F8_BF16 ||
        f8_type_of(g, n->in[1])->dtype != F8_BF16)
        return size->m;
    const double seconds = 2.0 * (double)size->m * (double)size->n * (double)size->k /
                           (target->rates.bf16 * 1e12 * target->speeds.gemm);
    return 0.7 * seconds > 4 * target->speeds.launch ? size->m - rest : size->m;
}
