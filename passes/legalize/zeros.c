/* Legalize: zeros appended to codes and to scales. */
#include "passes/legalize/legalizer.h"

static f8_ref spread(f8_graph *g, f8_ref x, const f8_type *t, uint32_t clone)
{
    return f8_make_clone(g, F8_OP_BROADCAST, &x, 1, &F8_INTS(F8_A_SHAPE, f8_shape_of(t)), 1, clone);
}

static f8_ref codes(f8_graph *g, f8_ref x, f8_dtype format, uint32_t clone)
{
    return f8_make_clone(g, F8_OP_QUANTIZE, (f8_ref[]){x, f8_const(g, 1)}, 2,
                         &F8_INT(F8_A_FORMAT, format), 1, clone);
}

static f8_ref zeros(f8_graph *g, const f8_type *t, uint32_t clone)
{
    const f8_ref zero = f8_const(g, 0);
    if (t->dtype == F8_F32)
        return spread(g, zero, t, clone);
    if (t->dtype == F8_E8M0) /* it has no zero; its smallest value is code 0 */
        return spread(g, codes(g, zero, t->dtype, 0), t, clone);
    return codes(g, spread(g, zero, t, clone), t->dtype, clone);
}

f8_ref f8_legal_padded(f8_graph *g, f8_ref x, int axis, int64_t by, uint32_t clone)
{
    if (!x)
        return 0;
    f8_type rest = *f8_type_of(g, x);
    rest.dim[axis] = f8_aligned(rest.dim[axis], by) - rest.dim[axis];
    return rest.dim[axis] ? f8_concat(g, (f8_ref[]){x, zeros(g, &rest, clone)}, 2, axis) : x;
}
