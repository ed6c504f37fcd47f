/* Canonicalize: local rewrites that keep every bit, until none applies.
 *
 * Rules are data: one row per op, tried on a node whose operands are already rewritten. A rule must
 * hold for every input, NaN, Inf and -0 included (NaNs as a class, not by payload). So x * 1 and x
 * + (-0) are simplified, x + 0 is kept (it turns -0 into 0), and constants are folded by the
 * functions that the targets use. Common subexpressions and dead nodes need no rule: hash-consing
 * and f8_func_rewrite take care of them.
 *
 * Requires: nothing. Breaks: nothing. A fixed number of rounds bounds the time; each makes a graph
 * no deeper, and longer chains do not occur. */
#include "ir/num/scalar.h"
#include "passes/unit/formulas.h"
#include "passes/pipeline.h"

#include <math.h>

/* A node about to be made: its op and attributes are as in `from`, its operands are in `g`. */
typedef struct made {
    f8_graph *g;
    const f8_graph *from;
    f8_ref old;
    const f8_node *n; /* the node `old` */
    const f8_ref *in;
} made;

/* The node's replacement, or 0. */
typedef f8_ref (*rule_fn)(const made *m);

static const f8_node *operand(const made *m, uint32_t i)
{
    return f8_at(m->g, m->in[i]);
}

static f8_op op_of(const made *m, uint32_t i)
{
    return operand(m, i)->op;
}

static int64_t axis_of(const f8_graph *g, f8_ref r, int rank)
{
    int64_t axis = f8_attr_i(g, r, F8_A_AXIS);
    return axis < 0 ? axis + rank : axis;
}

/* ---- constants ---- */

static bool is_const(const f8_graph *g, f8_ref r, float *value)
{
    const f8_node *n = f8_at(g, r);
    if (n->op != F8_OP_CONST || n->type.dtype != F8_F32)
        return false;
    *value = (float)f8_attr_f(g, r, F8_A_VALUE);
    return true;
}

/* Whether operand i is the constant `c`, bit for bit. */
static bool is_value(const made *m, uint32_t i, float c)
{
    float v;
    return is_const(m->g, m->in[i], &v) && f8_bits(v) == f8_bits(c);
}

/* The op's f32 form applied to constants, as every target computes it. Only finite results are
 * folded: a text has no way to write others. */
static f8_ref fold_constants(const made *m)
{
    const f8_sform form = f8_op_facts(m->n->op)->form[F8_KIND_F];
    uint32_t v[3], y;
    if (!form || m->n->type.dtype != F8_F32)
        return 0;
    for (uint32_t i = 0; i < m->n->n_in; i++) {
        float value;
        if (!is_const(m->g, m->in[i], &value))
            return 0;
        v[i] = f8_bits(value);
    }
    f8_scalar_form_eval(form, (const uint32_t *const[3]){&v[0], &v[1], &v[2]}, &y, 1);
    return isfinite(f8_from_bits(y)) ? f8_const(m->g, (double)f8_from_bits(y)) : 0;
}

/* ---- pointwise ---- */

/* Operand i, if it already has the result's type by itself. */
static f8_ref only(const made *m, uint32_t i)
{
    return f8_type_equal(&operand(m, i)->type, &m->n->type) ? m->in[i] : 0;
}

static f8_ref mul_one(const made *m)
{
    f8_ref r = is_value(m, 1, 1) ? only(m, 0) : 0;
    return !r && is_value(m, 0, 1) ? only(m, 1) : r;
}

static f8_ref div_one(const made *m)
{
    return is_value(m, 1, 1) ? only(m, 0) : 0;
}

static f8_ref add_minus_zero(const made *m)
{
    f8_ref r = is_value(m, 1, -0.0f) ? only(m, 0) : 0;
    return !r && is_value(m, 0, -0.0f) ? only(m, 1) : r;
}

static f8_ref sub_zero(const made *m)
{
    return is_value(m, 1, 0) ? only(m, 0) : 0;
}

static f8_ref twice(const made *m) /* neg(neg x), not(not x) */
{
    return op_of(m, 0) == m->n->op ? operand(m, 0)->in[0] : 0;
}

static f8_ref select_same(const made *m)
{
    return m->in[1] == m->in[2] ? only(m, 1) : 0;
}

/* Pointwise ops broadcast by themselves. So a broadcast node is dropped if another operand still
 * gives the result its shape. */
static f8_ref broadcast_operand(const made *m)
{
    f8_ref in[3];
    bool changed = false;
    for (uint32_t i = 0; i < m->n->n_in; i++) {
        in[i] = m->in[i];
        bool shaped = false;
        for (uint32_t k = 0; k < m->n->n_in; k++)
            shaped |= k != i &&
                      f8_type_same_shape(f8_type_of(m->g, k < i ? in[k] : m->in[k]), &m->n->type);
        if (op_of(m, i) == F8_OP_BROADCAST && shaped) {
            in[i] = operand(m, i)->in[0];
            changed = true;
        }
    }
    if (!changed)
        return 0;
    return f8_make_clone(m->g, m->n->op, in, (int)m->n->n_in, m->n->attr,
                         f8_op_facts(m->n->op)->n_attrs, m->n->clone);
}

static f8_ref cast_back(const made *m)
{
    f8_dtype to = m->n->type.dtype;
    if (operand(m, 0)->type.dtype == to)
        return m->in[0];
    f8_ref r = f8_fold_cast(m->g, m->in[0], to);
    return f8_at(m->g, r)->op != F8_OP_CAST || f8_at(m->g, r)->in[0] != m->in[0] ? r : 0;
}

/* ---- reductions ---- */

/* With one element along the axis, the result is that element. */
static f8_ref reduce_one(const made *m)
{
    return f8_type_same_shape(&operand(m, 0)->type, &m->n->type) ? m->in[0] : 0;
}

/* ---- shape ---- */

static f8_ref same_type(const made *m)
{
    return only(m, 0);
}

static f8_ref skip_reshape(const made *m) /* reshape(reshape x) */
{
    return op_of(m, 0) == F8_OP_RESHAPE ? f8_reshape(m->g, operand(m, 0)->in[0], &m->n->type) : 0;
}

static f8_ref join_transposes(const made *m)
{
    f8_ints outer = f8_attr_ints(m->from, m->old, F8_A_PERM), perm = outer;
    bool identity = true, inner = op_of(m, 0) == F8_OP_TRANSPOSE;
    f8_ints first = inner ? f8_attr_ints(m->g, m->in[0], F8_A_PERM) : outer;
    for (int i = 0; i < outer.n; i++) {
        perm.v[i] = inner ? first.v[outer.v[i]] : outer.v[i];
        identity &= perm.v[i] == i;
    }
    f8_ref x = inner ? operand(m, 0)->in[0] : m->in[0];
    if (identity)
        return x;
    return inner ? f8_make(m->g, F8_OP_TRANSPOSE, &x, 1, &F8_INTS(F8_A_PERM, perm), 1) : 0;
}

static f8_ref slice_of_slice(const made *m)
{
    f8_graph *g = m->g;
    int rank = m->n->type.rank;
    int64_t axis = axis_of(m->from, m->old, rank), start = f8_attr_i(m->from, m->old, F8_A_START);
    if (op_of(m, 0) != F8_OP_SLICE || axis_of(g, m->in[0], rank) != axis)
        return 0;
    start += f8_attr_i(g, m->in[0], F8_A_START);
    return f8_slice(g, operand(m, 0)->in[0], axis, start, start + m->n->type.dim[axis]);
}

/* A slice of a concat that is exactly one of the operands, or lies within one. */
static f8_ref slice_of_concat(const made *m)
{
    f8_graph *g = m->g;
    int rank = m->n->type.rank;
    int64_t axis = axis_of(m->from, m->old, rank), start = f8_attr_i(m->from, m->old, F8_A_START);
    int64_t stop = f8_attr_i(m->from, m->old, F8_A_STOP), at = 0;
    const f8_node *cat = operand(m, 0);
    if (cat->op != F8_OP_CONCAT || axis_of(g, m->in[0], rank) != axis)
        return 0;
    for (uint32_t i = 0; i < cat->n_in; i++) {
        int64_t size = f8_type_of(g, cat->in[i])->dim[axis];
        if (start >= at && stop <= at + size)
            return f8_slice(g, cat->in[i], axis, start - at, stop - at);
        at += size;
    }
    return 0;
}

/* Adjacent slices of one value, in order, are one slice of it, or the value itself. */
static f8_ref concat_of_slices(const made *m)
{
    f8_graph *g = m->g;
    int rank = m->n->type.rank;
    int64_t axis = axis_of(m->from, m->old, rank), start = 0, stop = 0;
    f8_ref whole = 0;
    if (m->n->n_in == 1)
        return m->in[0];
    for (uint32_t i = 0; i < m->n->n_in; i++) {
        const f8_node *s = operand(m, i);
        if (s->op != F8_OP_SLICE || axis_of(g, m->in[i], rank) != axis ||
            (whole && s->in[0] != whole))
            return 0;
        if (whole && f8_attr_i(g, m->in[i], F8_A_START) != stop)
            return 0;
        if (!whole)
            start = f8_attr_i(g, m->in[i], F8_A_START);
        whole = s->in[0];
        stop = f8_attr_i(g, m->in[i], F8_A_STOP);
    }
    return f8_slice(g, whole, axis, start, stop);
}

static f8_ref skip_broadcast(const made *m) /* broadcast(broadcast x) */
{
    const f8_node *b = operand(m, 0);
    if (b->op != F8_OP_BROADCAST)
        return 0;
    return f8_make(m->g, F8_OP_BROADCAST, b->in, 1, &F8_INTS(F8_A_SHAPE, f8_shape_of(&m->n->type)),
                   1);
}

static f8_ref roll_nothing(const made *m)
{
    return f8_attr_i(m->from, m->old, F8_A_SHIFT) == 0 ? m->in[0] : 0;
}

/* ---- the table ---- */

static const struct {
    f8_op op;
    rule_fn rule;
} rules[] = {
    {F8_OP_MUL, mul_one},
    {F8_OP_DIV, div_one},
    {F8_OP_ADD, add_minus_zero},
    {F8_OP_SUB, sub_zero},
    {F8_OP_NEG, twice},
    {F8_OP_NOT, twice},
    {F8_OP_SELECT, select_same},
    {F8_OP_CAST, cast_back},
    {F8_OP_REDUCE_SUM, reduce_one},
    {F8_OP_REDUCE_MAX, reduce_one},
    {F8_OP_RESHAPE, same_type},
    {F8_OP_RESHAPE, skip_reshape},
    {F8_OP_TRANSPOSE, join_transposes},
    {F8_OP_SLICE, same_type},
    {F8_OP_SLICE, slice_of_slice},
    {F8_OP_SLICE, slice_of_concat},
    {F8_OP_CONCAT, concat_of_slices},
    {F8_OP_BROADCAST, same_type},
    {F8_OP_BROADCAST, skip_broadcast},
    {F8_OP_ROLL, roll_nothing},
};

typedef struct progress {
    bool changed;
} progress;

static f8_ref simplify(void *user, f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in)
{
    made m = {to, from, old, f8_at(from, old), in};
    f8_ref r = 0;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0] && !r; i++)
        if (rules[i].op == m.n->op)
            r = rules[i].rule(&m);
    if (!r && f8_op_facts(m.n->op)->cls == F8_POINTWISE) {
        r = fold_constants(&m);
        if (!r)
            r = broadcast_operand(&m);
    }
    ((progress *)user)->changed |= r != 0;
    return r;
}

enum { MAX_ROUNDS = 8 };

f8_status f8_pass_canonicalize(f8_unit *u)
{
    for (size_t i = 0; i < u->module->n_funcs; i++) {
        progress p = {true};
        for (int round = 0; p.changed && round < MAX_ROUNDS; round++) {
            p.changed = false;
            F8_TRY(f8_func_rewrite(&u->module->func[i], simplify, &p));
        }
    }
    return F8_OK;
}
