/* What the files of the pass `legalize` share. */
#ifndef F8_LEGALIZER_H
#define F8_LEGALIZER_H

#include "ir/num/scale_layout.h"
#include "passes/unit/pass.h"

typedef struct f8_legalizer {
    const f8_unit *unit;
    const f8_target *target;
    const f8_func *func;
    f8_uses uses; /* of the graph being rewritten */
} f8_legalizer;

/* gemm.c: node `old` as the target's GEMMs can take it; 0 to leave it as it is. The first function
 * takes a MATMUL or SCALED_MATMUL, the second a CAST to bf16 of a product. */
f8_ref f8_legal_gemm(const f8_legalizer *l, f8_graph *to, const f8_graph *from, f8_ref old,
                     const f8_ref *in);
f8_ref f8_legal_gemm_rounded(const f8_legalizer *l, f8_graph *to, const f8_graph *from, f8_ref old,
                             const f8_ref *in);

/* scales.c: whether the target's GEMM has the scales of SCALED_MATMUL `old`; if not, the message is
 * written. The second function changes operand[1] and operand[3] to what that GEMM reads, and adds
 * the attributes that say so. turned: the operands whose codes were transposed. */
bool f8_has_scaling(const f8_legalizer *l, f8_graph *to, const f8_graph *from, f8_ref old);
void f8_legal_scales(const f8_legalizer *l, f8_graph *to, const f8_graph *from, f8_ref old,
                     const bool turned[2], f8_ref *operand, f8_attr *attr);

/* scales.c: the scales of operand 0 or 1 of a SCALED_MATMUL, and the order that they lie in. */
f8_scales f8_legal_scales_of(const f8_graph *g, f8_ref r, int which);
f8_scale_layout f8_legal_layout_of(const f8_graph *g, f8_ref r);

/* scales.c: the kind of scales of the second operand of a SCALED_MATMUL. */
f8_scale_kind f8_legal_scale_kind(const f8_graph *g, f8_ref r);

/* zeros.c: a matrix with zeros appended along an axis, up to a multiple of `by`. Zeros of one type
 * and `clone` are one value. */
f8_ref f8_legal_padded(f8_graph *g, f8_ref x, int axis, int64_t by, uint32_t clone);

/* pad.c: an FP8 product whose rows of activations are no multiple of target->fp8_multiple, as a
 * slice of a larger one; 0 to leave it as it is. Everything else is legal already. */
f8_ref f8_legal_pad(void *user, f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in);

enum { F8_COPY_CLONE = 0x6c67 };

/* The same value in storage of its own. The clone number keeps canonicalize and hash-consing from
 * dropping the copy. */
static inline f8_ref f8_legal_copy(f8_graph *g, f8_ref r)
{
    const f8_attr shape = F8_INTS(F8_A_SHAPE, f8_shape_of(f8_type_of(g, r)));
    return f8_make_clone(g, F8_OP_BROADCAST, &r, 1, &shape, 1, F8_COPY_CLONE);
}

#endif
