/* Legalize, rows of activations: FP8 GEMMs of target->fp8_multiple rows.
 *
 * A batch may have any number of rows of activations: a token that is generated is one. They are m
 * of fprop and dgrad, and k of wgrad. cuBLASLt's FP8 GEMMs want multiples of 16, so zeros are
 * appended to the codes, and rows of the result that nobody asked for are cut off:
 *
 *     m   matmul(a, b)    is    slice(matmul(concat(a, zeros), b))
 *     k   matmul(a, b)    is    matmul(concat(a, zeros), concat(b, zeros))
 *
 * No bit changes. Each row of the result is computed by itself, so rows of zeros change no other
 * row. Along k each sum gets terms 0 * 0. The product of two codes +0 is +0, and x + 0 is x unless
 * x is -0. A sum that begins at +0 is never -0.
 *
 * The codes are padded, not the values that they are made of. So amaxes, histories and the
 * statistics of a run see no zeros. Scales of rows, and f32 scales of 1 x 128, are one for each
 * row: zeros are appended to these, too. Scales along k stay as they are. They cover blocks of 128
 * or 32 elements, which 16 divides: the last block gets longer, and no block is added. E8M0 scales
 * along m are filled up to 128 rows in any case.
 *
 * These are ordinary nodes, so nothing after this pass knows of them. A concatenation costs a small
 * kernel for its zeros, since codes are written in its place (passes/memory/storage_share.c). Only
 * codes with other readers, such as a caller who wants them as a result, are copied. */
#include "passes/legalize/legalizer.h"
#include "passes/unit/rows.h"

#include <string.h>

/* Numbers for zeros, above those of copies: each operand has zeros of its own, which lie behind it.
 */
enum { PAD_CLONE = 0xe200, PAD_CLONES = F8_CLONE_RECOMPUTED - PAD_CLONE };

/* ---- operands ---- */

/* An operand as a matrix of two axes, padded along one of them. */
static f8_ref longer(const f8_legalizer *l, f8_graph *g, f8_ref x, int axis)
{
    if (!x)
        return 0;
    const f8_type *t = f8_type_of(g, x);
    const f8_type matrix = {
        .dtype = t->dtype, .rank = 2, .dim = {f8_type_rows(t), f8_type_columns(t)}};
    const char *name = g->name[x];
    const f8_ref flat = f8_reshape(g, x, &matrix);
    const f8_ref padded =
        f8_legal_padded(g, flat, axis, l->target->fp8_multiple, PAD_CLONE + x % PAD_CLONES);
    if (!padded || padded == flat)
        return padded;
    f8_set_name(g, g->node[padded].in[1], "padding");
    if (name) {
        const char *full = f8_arena_printf(g->arena, "%s.padded", name);
        f8_set_name(g, padded, full ? full : "");
    }
    return padded;
}

/* The scales of operand `which`, whose codes became `codes`. */
static f8_ref longer_scales(const f8_legalizer *l, f8_graph *to, const f8_graph *from, f8_ref old,
                            int which, f8_ref array, f8_ref codes)
{
    const f8_scales s = f8_legal_scales_of(from, old, which);
    f8_type t;
    if (!array || !codes || f8_scales_kind(&s) == F8_SCALED_TENSOR)
        return array;
    if (!f8_scale_layout_type(f8_legal_layout_of(from, old), &s, f8_type_of(to, codes), &t))
        return 0;
    const f8_type *is = f8_type_of(to, array);
    return f8_type_elements(is) == f8_type_elements(&t)
               ? f8_reshape(to, array, &t)
               : longer(l, to, array, f8_type_rows(is) == f8_type_rows(&t));
}

/* ---- one product ---- */

f8_ref f8_legal_pad(void *user, f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in)
{
    const f8_legalizer *l = user;
    const f8_node *n = f8_at(from, old);
    if ((n->op != F8_OP_MATMUL && n->op != F8_OP_SCALED_MATMUL) ||
        !f8_dtype_is_fp8(f8_type_of(from, n->in[0])->dtype))
        return 0;
    const f8_gemm_sizes size = f8_gemm_sizes_of(from, old), padded = f8_fp8_padded(l->target, size);
    const bool along_m = padded.m != size.m, along_k = padded.k != size.k;
    if (!along_m && !along_k)
        return 0;
    const bool trans_a = f8_attr_i(from, old, F8_A_TRANSPOSE_A) != 0,
               trans_b = f8_attr_i(from, old, F8_A_TRANSPOSE_B) != 0;
    const f8_gemm_operands o = f8_gemm_operands_of(n);
    const uint32_t b = f8_gemm_b(n->op), acc = f8_gemm_added(n->op);
    f8_ref operand[F8_GEMM_MOST_OPERANDS];
    memcpy(operand, in, n->n_in * sizeof *operand);
    if (along_m)
        operand[0] = longer(l, to, operand[0], trans_a);
    if (along_k) {
        operand[0] = longer(l, to, operand[0], !trans_a);
        operand[b] = longer(l, to, operand[b], trans_b);
    }
    for (int i = 0; i < 2 && n->op == F8_OP_SCALED_MATMUL; i++)
        operand[2 * i + 1] = longer_scales(l, to, from, old, i, in[2 * i + 1], operand[2 * i]);
    if (along_m && o.acc)
        operand[acc] = longer(l, to, in[acc], 0);
    const f8_ref r = f8_make_clone(to, n->op, operand, (int)n->n_in, n->attr,
                                   f8_op_facts(n->op)->n_attrs, n->clone);
    f8_set_name(to, r, from->name[old]);
    return r && along_m ? f8_reshape(to, f8_slice(to, r, 0, 0, size.m), &n->type)
                        : f8_reshape(to, r, &n->type);
}
