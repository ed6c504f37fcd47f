/* The sizes of a lowered GEMM: see lowered.h. */
#include "ir/lowered.h"

/* Padding that both sides have; 0 if they differ. */
static int32_t common(int32_t x, int32_t y)
{
    return x == y ? x : 0;
}

f8_gemm_sizes f8_lowered_gemm(const f8_graph *g, const f8_lowered *p, f8_ref r)
{
    const f8_node *n = f8_at(g, r);
    const f8_ref a = n->in[0], b = n->in[n->op == F8_OP_SCALED_MATMUL ? 2 : 1];
    const bool trans_a = f8_attr_i(g, r, F8_A_TRANSPOSE_A) != 0;
    const bool trans_b = f8_attr_i(g, r, F8_A_TRANSPOSE_B) != 0;
    f8_gemm_sizes size = f8_type_gemm(f8_type_of(g, a), trans_a, f8_type_of(g, b), trans_b);
    if (!p->pad)
        return size;
    const f8_pad *x = &p->pad[a], *y = &p->pad[b], *z = &p->pad[r];
    size.m += common(trans_a ? x->cols : x->rows, z->rows);
    size.n += common(trans_b ? y->rows : y->cols, z->cols);
    if (x->zeros && y->zeros)
        size.k += common(trans_a ? x->rows : x->cols, trans_b ? y->cols : y->rows);
    return size;
}
