/* Result types, I: the driver, canonical attributes, leaves, pointwise ops, reductions and shapes.
 * GEMM, attention, gathers, FP8 and composites are in infer_nn.c. */
#include "ir/num/granularity.h"
#include "ir/num/fp8.h"
#include "ir/internal.h"
#include "ir/num/scalar.h"

#include <math.h>
#include <string.h>

/* ---- canonical attributes ---- */

static f8_attr *find_attr(f8_op op, f8_attr *attr, f8_attr_key key)
{
    const int at = f8_op_attr(op, key);
    return at < 0 ? NULL : &attr[at];
}

/* A constant as its dtype holds it, so that two spellings of one f32 make one node. */
static double round_const(double v, f8_dtype to)
{
    return to == F8_F32 ? (double)(float)v : v;
}

/* Several axes ascend; `axis` is then the first of them. A list of one axis is `axis` alone. */
static void canonical_axes(f8_op op, const f8_type *t, f8_attr *attr)
{
    f8_attr *axis = find_attr(op, attr, F8_A_AXIS), *axes = find_attr(op, attr, F8_A_AXES);
    if (!axis || !axes || !t || axes->ints.n == 0)
        return;
    int64_t *v = axes->ints.v;
    for (int i = 0; i < axes->ints.n; i++) {
        const int64_t a = v[i] < 0 && v[i] >= -(int64_t)t->rank ? v[i] + t->rank : v[i];
        int at = i;
        for (; at > 0 && v[at - 1] > a; at--)
            v[at] = v[at - 1];
        v[at] = a;
    }
    axis->i = v[0];
    if (axes->ints.n == 1)
        axes->ints = (f8_ints){0};
}

void f8_canonical_attrs(const f8_graph *g, f8_op op, const f8_ref *in, uint32_t n_in, f8_attr *attr)
{
    int n = f8_op_facts(op)->n_attrs;
    const f8_type *t = n_in ? &g->node[in[0]].type : NULL;
    for (int i = 0; i < n; i++) {
        f8_attr *a = &attr[i];
        if (f8_attr_kind_of(a->key) == F8_ATTR_BOOL)
            a->i = a->i != 0;
        if (a->key == F8_A_AXIS && t && a->i < 0 && a->i >= -(int64_t)t->rank)
            a->i += t->rank;
        if (a->key == F8_A_PERM && t)
            for (int k = 0; k < a->ints.n; k++)
                if (a->ints.v[k] < 0 && a->ints.v[k] >= -(int64_t)t->rank)
                    a->ints.v[k] += t->rank;
    }
    canonical_axes(op, t, attr);
    f8_attr *kv = find_attr(op, attr, F8_A_KV_HEADS), *heads = find_attr(op, attr, F8_A_HEADS);
    if (kv && heads && kv->i == 0)
        kv->i = heads->i;
    f8_attr *group = find_attr(op, attr, F8_A_GROUP), *shift = find_attr(op, attr, F8_A_SHIFT);
    if (group && group->i == 0)
        group->i = f8_type_columns(t);
    if (shift && group && group->i > 0)
        shift->i = (shift->i % group->i + group->i) % group->i;
    f8_attr *value = find_attr(op, attr, F8_A_VALUE), *to = find_attr(op, attr, F8_A_TO);
    if (value && to)
        value->f = round_const(value->f, (f8_dtype)to->i);
}

/* ---- driver ---- */

typedef f8_status (*infer_fn)(f8_graph *g, const f8_node *n, f8_type *out);

static const infer_fn rules[F8_OP_COUNT] = {
#define OP(ID, name, lo, hi, results, CLS, rule, ...) [F8_OP_##ID] = f8_infer_##rule,
#include "ir/ops.def"
#undef OP
};

f8_status f8_infer(f8_graph *g, const f8_node *n, f8_type *out)
{
    f8_type t = {.dtype = F8_F32};
    F8_TRY(rules[n->op](g, n, &t));
    if (f8_type_bytes(&t) < 0)
        return f8_infer_fail(g, n, NULL, "the result has more than 2^47 bytes");
    *out = t;
    return F8_OK;
}

/* ---- leaves ---- */

f8_status f8_infer_input(f8_graph *g, const f8_node *n, f8_type *out)
{
    (void)g;
    *out = n->type; /* the port's; f8_verify compares them */
    return F8_OK;
}

f8_status f8_infer_const(f8_graph *g, const f8_node *n, f8_type *out)
{
    double v = f8_node_attr(n, F8_A_VALUE)->f;
    f8_dtype to = (f8_dtype)f8_node_attr(n, F8_A_TO)->i;
    bool exact;
    switch (to) {
    case F8_F32: exact = true; break;
    case F8_I32: exact = v >= INT32_MIN && v <= INT32_MAX && v == floor(v); break;
    case F8_BOOL: exact = v == 0 || v == 1; break;
    case F8_BF16:
    case F8_F16:
        exact = isnan(v) || (double)f8_decode(to, f8_encode(to, (float)v, false)) == v;
        break;
    default: return f8_infer_fail(g, n, NULL, "a constant can't be %s", f8_dtype_name(to));
    }
    if (!exact)
        return f8_infer_fail(g, n, NULL, "%g can't be represented in %s", v, f8_dtype_name(to));
    *out = (f8_type){.dtype = to};
    return F8_OK;
}

/* The attribute `shape` as a type. */
static f8_status shape_of(f8_graph *g, const f8_node *n, f8_dtype dtype, f8_type *out)
{
    const f8_ints *s = &f8_node_attr(n, F8_A_SHAPE)->ints;
    *out = (f8_type){.dtype = dtype, .rank = (uint8_t)s->n};
    for (int i = 0; i < s->n; i++) {
        if (s->v[i] < 1)
            return f8_infer_fail(g, n, NULL, "size %lld of axis %d is not positive",
                                 (long long)s->v[i], i);
        out->dim[i] = s->v[i];
    }
    return F8_OK;
}

f8_status f8_infer_iota(f8_graph *g, const f8_node *n, f8_type *out)
{
    F8_TRY(shape_of(g, n, F8_I32, out));
    if (f8_type_columns(out) > INT32_MAX)
        return f8_infer_fail(g, n, NULL, "an axis of %lld does not fit i32",
                             (long long)f8_type_columns(out));
    return F8_OK;
}

f8_status f8_infer_iota_f32(f8_graph *g, const f8_node *n, f8_type *out)
{
    F8_TRY(shape_of(g, n, F8_F32, out));
    if (out->rank != 2 || out->dim[1] % 2)
        return f8_infer_fail(g, n, NULL, "the shape must be [T, D] with D even");
    return f8_infer_rope_table(g, n);
}

/* ---- pointwise ---- */

/* The shape that all operands broadcast to, as in NumPy; out->dtype is not changed. */
static f8_status broadcast_shapes(f8_graph *g, const f8_node *n, f8_type *out)
{
    out->rank = 0;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (f8_in_type(g, n, i)->rank > out->rank)
            out->rank = f8_in_type(g, n, i)->rank;
    for (int d = 0; d < out->rank; d++)
        out->dim[d] = 1;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const f8_type *t = f8_in_type(g, n, i);
        for (int d = 0; d < t->rank; d++) {
            int64_t *have = &out->dim[d + out->rank - t->rank];
            if (*have == 1)
                *have = t->dim[d];
            else if (t->dim[d] != 1 && t->dim[d] != *have)
                return f8_infer_fail(g, n, NULL, "sizes %lld and %lld do not broadcast",
                                     (long long)*have, (long long)t->dim[d]);
        }
    }
    return F8_OK;
}

static f8_status need_same_dtype(f8_graph *g, const f8_node *n, uint32_t a, uint32_t b)
{
    f8_dtype x = f8_in_type(g, n, a)->dtype, y = f8_in_type(g, n, b)->dtype;
    if (x == y)
        return F8_OK;
    return f8_infer_fail(g, n, NULL, "dtypes %s and %s differ; cast one", f8_dtype_name(x),
                         f8_dtype_name(y));
}

static f8_status pointwise(f8_graph *g, const f8_node *n, unsigned mask, f8_dtype result,
                           f8_type *out)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        F8_TRY(f8_need_dtype(g, n, NULL, i, mask));
    for (uint32_t i = 1; i < n->n_in; i++)
        F8_TRY(need_same_dtype(g, n, 0, i));
    out->dtype = result;
    return broadcast_shapes(g, n, out);
}

/* The operands must have a dtype that the op has a form for. A form whose result is a truth value
 * gives bool. */
f8_status f8_infer_pointwise(f8_graph *g, const f8_node *n, f8_type *out)
{
    const uint8_t *form = f8_op_facts(n->op)->form;
    const unsigned mask = (form[F8_KIND_F] ? F8_M_F32 : 0) | (form[F8_KIND_I] ? F8_M_I32 : 0) |
                          (form[F8_KIND_B] ? F8_M_BOOL : 0);
    const f8_sform any = form[F8_KIND_F]   ? form[F8_KIND_F]
                         : form[F8_KIND_B] ? form[F8_KIND_B]
                                           : form[F8_KIND_I];
    const bool truth = f8_scalar_form(any)->result_kind == F8_KIND_B;
    return pointwise(g, n, mask, truth ? F8_BOOL : f8_in_type(g, n, 0)->dtype, out);
}

/* Composites of f32 that give f32 of the same shape. */
f8_status f8_infer_same1(f8_graph *g, const f8_node *n, f8_type *out)
{
    F8_TRY(pointwise(g, n, F8_M_F32, F8_F32, out));
    if (n->op == F8_OP_SOFTMAX && out->rank == 0)
        return f8_infer_fail(g, n, NULL, "a scalar has no last axis");
    if (n->op == F8_OP_GELU) {
        const char *how = f8_node_attr(n, F8_A_APPROXIMATE)->s;
        if (strcmp(how, "tanh") && strcmp(how, "none"))
            return f8_infer_fail(g, n, NULL,
                                 "approximate = \"%s\" is neither \"tanh\" nor \"none\"", how);
    }
    if (n->op == F8_OP_GELU || n->op == F8_OP_SILU) {
        const f8_dtype rounded = (f8_dtype)f8_node_attr(n, F8_A_ROUNDED)->i;
        if (rounded != F8_F32 && rounded != F8_BF16)
            return f8_infer_fail(g, n, NULL, "rounded = %s is neither f32 nor bf16",
                                 f8_dtype_name(rounded));
    }
    return F8_OK;
}

f8_status f8_infer_select(f8_graph *g, const f8_node *n, f8_type *out)
{
    F8_TRY(f8_need_dtype(g, n, f8_op_facts(n->op)->operands, 0, F8_M_BOOL));
    F8_TRY(need_same_dtype(g, n, 1, 2));
    out->dtype = f8_in_type(g, n, 1)->dtype;
    return broadcast_shapes(g, n, out);
}

f8_status f8_infer_cast(f8_graph *g, const f8_node *n, f8_type *out)
{
    f8_dtype to = (f8_dtype)f8_node_attr(n, F8_A_TO)->i, from = f8_in_type(g, n, 0)->dtype;
    if (to == F8_BOOL)
        return f8_infer_fail(g, n, NULL, "a cast to bool is a comparison: lt, le or eq");
    if (to == F8_I64 && from != F8_I64 && from != F8_I32)
        return f8_infer_fail(g, n, NULL, "a cast from %s to i64: cast to i32 first",
                             f8_dtype_name(from));
    if (from == F8_I64 && to != F8_I64 && to != F8_I32)
        return f8_infer_fail(g, n, NULL, "a cast from i64 to %s: cast to i32 first",
                             f8_dtype_name(to));
    if (to != F8_F32 && to != F8_BF16 && to != F8_F16 && to != F8_I32 && to != F8_I64)
        return f8_infer_fail(g, n, NULL, "a cast to %s needs a scale: use quantize",
                             f8_dtype_name(to));
    /* One node must not round twice. */
    if (from == F8_I32 && (to == F8_BF16 || to == F8_F16))
        return f8_infer_fail(g, n, NULL, "a cast from i32 to %s rounds twice: cast to f32 first",
                             f8_dtype_name(to));
    *out = *f8_in_type(g, n, 0);
    out->dtype = to;
    return F8_OK;
}

/* ---- reductions ---- */

/* *out is operand 0's type to begin with; the attribute `axis` must be one of its axes. */
static f8_status axis_of(f8_graph *g, const f8_node *n, f8_type *out, int64_t *axis)
{
    *out = *f8_in_type(g, n, 0);
    *axis = f8_node_attr(n, F8_A_AXIS)->i;
    if (*axis < 0 || *axis >= out->rank)
        return f8_infer_fail(g, n, NULL, "there is no axis %lld", (long long)*axis);
    return F8_OK;
}

/* The axes that a reduction reduces, which then have size 1 in *out. */
static f8_status reduced_axes(f8_graph *g, const f8_node *n, f8_type *out)
{
    const f8_attr *axes = f8_node_attr(n, F8_A_AXES);
    int64_t axis;
    F8_TRY(axis_of(g, n, out, &axis));
    for (int i = 0; i < axes->ints.n; i++) {
        const int64_t a = axes->ints.v[i];
        if (a < 0 || a >= out->rank)
            return f8_infer_fail(g, n, NULL, "there is no axis %lld", (long long)a);
        if (i > 0 && a == axes->ints.v[i - 1])
            return f8_infer_fail(g, n, NULL, "axis %lld is listed twice", (long long)a);
        out->dim[a] = 1;
    }
    out->dim[axis] = 1;
    return F8_OK;
}

f8_status f8_infer_reduce(f8_graph *g, const f8_node *n, f8_type *out)
{
    F8_TRY(f8_need_dtype(g, n, NULL, 0, F8_M_F32));
    const f8_attr *block = f8_node_attr(n, F8_A_BLOCK);
    const int64_t axis = f8_node_attr(n, F8_A_AXIS)->i;
    F8_TRY(reduced_axes(g, n, out));
    if (!block || block->i == 0)
        return F8_OK;
    if (f8_node_attr(n, F8_A_AXES)->ints.n > 0 || (axis != 0 && axis != out->rank - 1))
        return f8_infer_fail(g, n, NULL, "block = %lld: only the first or the last axis has blocks",
                             (long long)block->i);
    if (axis == out->rank - 1 ? n->op != F8_OP_REDUCE_AMAX || !f8_column_block(block->i)
                              : block->i < 0)
        return f8_infer_fail(
            g, n, NULL,
            "block = %lld: along the first of several axes it must be positive; along the last "
            "only reduce_amax has blocks, of a power of two from 16 to 256",
            (long long)block->i);
    const int64_t size = f8_in_type(g, n, 0)->dim[axis];
    out->dim[axis] = size / block->i + (size % block->i != 0);
    return F8_OK;
}

/* ---- shape ---- */

f8_status f8_infer_reshape(f8_graph *g, const f8_node *n, f8_type *out)
{
    const f8_type *t = f8_in_type(g, n, 0);
    char text[160];
    F8_TRY(shape_of(g, n, t->dtype, out));
    if (f8_type_elements(out) != f8_type_elements(t))
        return f8_infer_fail(g, n, NULL, "%lld elements do not fill %s",
                             (long long)f8_type_elements(t), f8_type_print(out, text, sizeof text));
    return F8_OK;
}

f8_status f8_infer_same(f8_graph *g, const f8_node *n, f8_type *out)
{
    *out = *f8_in_type(g, n, 0);
    return F8_OK;
}

f8_status f8_infer_boundary(f8_graph *g, const f8_node *n, f8_type *out)
{
    *out = *f8_in_type(g, n, 0);
    if (!f8_dtype_is_float(out->dtype) || f8_dtype_size(out->dtype) == 1)
        return f8_infer_fail(g, n, NULL, "only f32, bf16 and f16 values have a boundary");
    return F8_OK;
}

f8_status f8_infer_transpose(f8_graph *g, const f8_node *n, f8_type *out)
{
    const f8_type *t = f8_in_type(g, n, 0);
    const f8_ints *perm = &f8_node_attr(n, F8_A_PERM)->ints;
    unsigned seen = 0;
    *out = *t;
    bool ok = perm->n == t->rank;
    for (int i = 0; ok && i < perm->n; i++) {
        ok = perm->v[i] >= 0 && perm->v[i] < t->rank && !(seen & 1u << perm->v[i]);
        if (ok) {
            seen |= 1u << perm->v[i];
            out->dim[i] = t->dim[perm->v[i]];
        }
    }
    if (!ok)
        return f8_infer_fail(g, n, NULL, "perm must name each of the %d axes once", t->rank);
    return F8_OK;
}

f8_status f8_infer_slice(f8_graph *g, const f8_node *n, f8_type *out)
{
    int64_t start = f8_node_attr(n, F8_A_START)->i, stop = f8_node_attr(n, F8_A_STOP)->i, axis;
    F8_TRY(axis_of(g, n, out, &axis));
    if (start < 0 || stop > out->dim[axis] || start >= stop)
        return f8_infer_fail(g, n, NULL, "[%lld, %lld) does not lie within axis %lld of size %lld",
                             (long long)start, (long long)stop, (long long)axis,
                             (long long)out->dim[axis]);
    out->dim[axis] = stop - start;
    return F8_OK;
}

f8_status f8_infer_concat(f8_graph *g, const f8_node *n, f8_type *out)
{
    int64_t axis;
    F8_TRY(axis_of(g, n, out, &axis));
    for (uint32_t i = 1; i < n->n_in; i++) {
        const f8_type *t = f8_in_type(g, n, i);
        F8_TRY(need_same_dtype(g, n, 0, i));
        bool ok = t->rank == out->rank;
        for (int d = 0; ok && d < t->rank; d++)
            ok = d == axis || t->dim[d] == out->dim[d];
        if (!ok || __builtin_add_overflow(out->dim[axis], t->dim[axis], &out->dim[axis]))
            return f8_infer_fail(g, n, NULL,
                                 "operand %u must have operand 1's sizes on all axes but %lld",
                                 i + 1, (long long)axis);
    }
    return F8_OK;
}

f8_status f8_infer_broadcast(f8_graph *g, const f8_node *n, f8_type *out)
{
    const f8_type *t = f8_in_type(g, n, 0);
    char text[160];
    F8_TRY(shape_of(g, n, t->dtype, out));
    bool ok = t->rank <= out->rank;
    for (int d = 0; ok && d < t->rank; d++)
        ok = t->dim[d] == 1 || t->dim[d] == out->dim[d + out->rank - t->rank];
    if (!ok)
        return f8_infer_fail(g, n, NULL, "does not broadcast to %s",
                             f8_type_print(out, text, sizeof text));
    return F8_OK;
}

f8_status f8_infer_roll(f8_graph *g, const f8_node *n, f8_type *out)
{
    *out = *f8_in_type(g, n, 0);
    int64_t group = f8_node_attr(n, F8_A_GROUP)->i, columns = f8_type_columns(out);
    if (out->rank == 0)
        return f8_infer_fail(g, n, NULL, "a scalar has no last axis");
    if (group < 1 || columns % group)
        return f8_infer_fail(g, n, NULL, "groups of %lld do not divide %lld columns",
                             (long long)group, (long long)columns);
    return F8_OK;
}

f8_status f8_infer_project(f8_graph *g, const f8_node *n, f8_type *out)
{
    const f8_node *of = &g->node[n->in[0]];
    int64_t index = f8_node_attr(n, F8_A_INDEX)->i;
    int results = f8_op_facts(of->op)->results;
    if (index < 1 || index >= results)
        return f8_infer_fail(g, n, NULL, "%s has %d result%s: there is no result %lld",
                             f8_op_facts(of->op)->name, results, results == 1 ? "" : "s",
                             (long long)index);
    *out = f8_result_type(g, n->in[0], index);
    return F8_OK;
}
