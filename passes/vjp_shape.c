/* Derivatives of shape ops (move the cotangent back) and of reductions (spread it out). */
#include "passes/formulas.h"
#include "passes/vjp.h"

#define RULE(name) void f8_vjp_##name(f8_graph *g, f8_ref y, f8_ref dy, f8_ref *dx)

static f8_type type_of_input(const f8_graph *g, f8_ref y)
{
    return *f8_type_of(g, f8_at(g, y)->in[0]);
}

/* ---- shape ---- */

RULE(reshape)
{
    f8_type t = type_of_input(g, y);
    dx[0] = f8_reshape(g, dy, &t);
}

RULE(transpose)
{
    f8_ints perm = f8_attr_ints(g, y, F8_A_PERM), back = {.n = perm.n};
    for (int i = 0; i < perm.n; i++)
        back.v[perm.v[i]] = i;
    dx[0] = f8_make(g, F8_OP_TRANSPOSE, &dy, 1, &F8_INTS(F8_A_PERM, back), 1);
}

f8_ref f8_vjp_pad(f8_graph *g, f8_ref dy, const f8_type *whole, int64_t axis, int64_t start,
                  int64_t stop)
{
    if (!dy)
        return 0;
    f8_ref part[3];
    int n = 0;
    f8_type zeros = *whole;
    zeros.dtype = f8_type_of(g, dy)->dtype;
    zeros.dim[axis] = start;
    if (start > 0)
        part[n++] = f8_zeros(g, &zeros);
    part[n++] = dy;
    zeros.dim[axis] = whole->dim[axis] - stop;
    if (stop < whole->dim[axis])
        part[n++] = f8_zeros(g, &zeros);
    return f8_concat(g, part, n, axis);
}

/* One slice alone; autodiff joins slices that tile their operand before it comes to this. */
RULE(slice)
{
    f8_type t = type_of_input(g, y);
    int64_t axis = f8_attr_i(g, y, F8_A_AXIS);
    axis += axis < 0 ? t.rank : 0;
    dx[0] = f8_vjp_pad(g, dy, &t, axis, f8_attr_i(g, y, F8_A_START), f8_attr_i(g, y, F8_A_STOP));
}

RULE(concat)
{
    f8_node n = *f8_at(g, y);
    int64_t axis = f8_attr_i(g, y, F8_A_AXIS), at = 0;
    axis += axis < 0 ? n.type.rank : 0;
    for (uint32_t i = 0; i < n.n_in; i++) {
        int64_t size = f8_type_of(g, n.in[i])->dim[axis];
        dx[i] = f8_slice(g, dy, axis, at, at + size);
        at += size;
    }
}

RULE(broadcast)
{
    f8_type t = type_of_input(g, y);
    dx[0] = f8_sum_to(g, f8_fold_cast(g, dy, F8_F32), &t);
}

RULE(roll)
{
    int64_t group = f8_attr_i(g, y, F8_A_GROUP), shift = f8_attr_i(g, y, F8_A_SHIFT);
    if (group == 0)
        group = f8_type_columns(&f8_at(g, y)->type);
    f8_attr attr[] = {F8_INT(F8_A_SHIFT, (group - shift % group) % group),
                      F8_INT(F8_A_GROUP, group)};
    dx[0] = f8_make(g, F8_OP_ROLL, &dy, 1, attr, 2);
}

/* Reached only when the loss uses attention's log-sum-exp (or another second result). */
RULE(project)
{
    (void)dy;
    (void)dx;
    f8_fail(g->diag, F8_ERR_UNSUPPORTED, g->loc[y], "can't differentiate through result %lld of %s",
            (long long)f8_attr_i(g, y, F8_A_INDEX),
            f8_op_facts(f8_at(g, f8_at(g, y)->in[0])->op)->name);
}

/* ---- reductions ---- */

RULE(reduce_sum)
{
    f8_type t = type_of_input(g, y);
    dx[0] = f8_broadcast(g, dy, &t);
}

RULE(mean)
{
    f8_type t = type_of_input(g, y);
    int64_t n = f8_type_elements(&t) / f8_type_elements(f8_type_of(g, y));
    dx[0] = f8_broadcast(g, f8_binary(g, F8_OP_DIV, dy, f8_const(g, (double)n)), &t);
}

/* Elements that equal the maximum share its cotangent equally (as PyTorch's amax does). */
RULE(reduce_max)
{
    f8_ref x = f8_at(g, y)->in[0];
    f8_ref one = f8_const(g, 1), zero = f8_const(g, 0);
    f8_ref hit = f8_select(g, f8_binary(g, F8_OP_EQ, x, y), one, zero);
    f8_ref count = f8_reduce(g, F8_OP_REDUCE_SUM, hit, f8_attr_i(g, y, F8_A_AXIS));
    dx[0] = f8_binary(g, F8_OP_MUL, hit, f8_binary(g, F8_OP_DIV, dy, count));
}
