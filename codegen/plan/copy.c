/* Copies as steps: groups that move bytes, and results that could not be computed in place. */
#include "codegen/plan/parts.h"

#include <string.h>

/* On targets where strided copies are kernels, contiguous copies of at most this many bytes are
 * kernels too: merge.c can then join many of them in one launch. */
enum { SMALL_COPY = 1 << 16 };

/* Elements between neighbours along each axis of a value that lies at `p`. */
static void axis_strides(const f8_type *t, const f8_place *p, int64_t *stride)
{
    int64_t at = p->stride;
    for (int i = t->rank - 1; i >= 0; i--) {
        if (i == t->rank - 1) {
            stride[i] = 1;
        } else {
            stride[i] = at;
            at *= t->dim[i];
        }
    }
}

/* Drops axes of size 1, and joins neighbouring axes that are contiguous on both sides. */
static void merge_axes(f8_copy_axes *c)
{
    int n = 0;
    for (int i = 0; i < c->rank; i++) {
        if (c->size[i] == 1)
            continue;
        if (n && c->from[n - 1] == c->size[i] * c->from[i] &&
            c->to[n - 1] == c->size[i] * c->to[i]) {
            c->size[n - 1] *= c->size[i];
            c->from[n - 1] = c->from[i];
            c->to[n - 1] = c->to[i];
            continue;
        }
        c->size[n] = c->size[i];
        c->from[n] = c->from[i];
        c->to[n] = c->to[i];
        n++;
    }
    c->rank = n;
}

/* Bytes from the first element to the last. */
static int64_t extent(const f8_copy_axes *c, const int64_t *stride)
{
    int64_t last = 0;
    for (int i = 0; i < c->rank; i++)
        last += (c->size[i] - 1) * stride[i];
    return (last + 1) * c->element;
}

/* Whether the copy is one run of bytes. Rank 0 becomes rank 1, the form that a COPY step has. */
static bool contiguous(f8_copy_axes *c)
{
    if (c->rank == 0) {
        c->rank = 1;
        c->size[0] = c->from[0] = c->to[0] = 1;
    }
    return c->rank == 1 && c->from[0] == 1 && c->to[0] == 1;
}

static f8_step *plain_copy(f8_build *b, const char *name, const f8_copy_axes *axes)
{
    f8_step *s = f8_build_step(b, F8_STEP_COPY, name, 2, 0);
    if (!s)
        return NULL;
    s->copy.rank = axes->rank;
    s->copy.element = (uint32_t)axes->element;
    memcpy(s->copy.size, axes->size, sizeof axes->size);
    memcpy(s->copy.from, axes->from, sizeof axes->from);
    memcpy(s->copy.to, axes->to, sizeof axes->to);
    return s;
}

static f8_status kernel_copy(f8_build *b, const char *name, f8_ref r, const f8_place *from,
                             const f8_place *to, const f8_copy_axes *axes)
{
    f8_copy_kernel k = {0};
    F8_TRY(b->target->copy(b, from, to, axes, &k));
    k.source.kind = F8_SOURCE_COPY;
    k.source.name = f8_arena_strdup(b->arena, name ? name : "copy");
    k.source.loc = b->func->graph->loc[r];
    f8_build_launch launch = {.n_args = 2, .n_ints = k.n_ints};
    F8_TRY(f8_build_intern(b, &k.source, &launch.source));
    f8_step *s = f8_build_step(b, F8_STEP_KERNEL, name, 2, k.n_ints);
    if (!s)
        return f8_build_memory(b);
    memcpy(s->ints, k.ints, k.n_ints * sizeof *k.ints);
    return f8_build_add_launch(b, &launch, k.n_tasks);
}

/* Copies value `r`, or a part of it, from one place to another. */
static f8_status copy_step(f8_build *b, const char *name, f8_ref r, const f8_place *from,
                           const f8_place *to, f8_copy_axes axes)
{
    axes.element = (int64_t)f8_dtype_size(f8_build_type(b, r)->dtype);
    merge_axes(&axes);
    const bool run = contiguous(&axes);
    if (!b->target->copy || (run && axes.size[0] * axes.element > SMALL_COPY)) {
        if (!plain_copy(b, name, &axes))
            return f8_build_memory(b);
    } else {
        F8_TRY(kernel_copy(b, name, r, from, to, &axes));
    }
    f8_step *s = &b->out->step[b->out->n_steps - 1];
    s->arg[0] = f8_build_arg(b, from);
    s->arg[1] = f8_build_arg(b, to);
    s->bytes_read = s->bytes_written = axes.element;
    for (int i = 0; i < axes.rank; i++) {
        s->bytes_written *= axes.size[i];
        s->bytes_read *= axes.from[i] ? axes.size[i] : 1;
    }
    F8_TRY(f8_build_add_access_some(b, from, r, extent(&axes, axes.from), false));
    F8_TRY(f8_build_add_access_some(b, to, r, extent(&axes, axes.to), true));
    f8_build_last(b)->access[1].whole = run;
    return F8_OK;
}

/* Copies a value to another place, both taken as matrices. */
static f8_status copy_value(f8_build *b, const char *name, f8_ref from, const f8_place *to,
                            int64_t to_stride)
{
    const f8_type *t = f8_build_type(b, from);
    const f8_place *p = f8_build_place(b, from);
    if (p->space == F8_SPACE_NONE)
        return f8_build_broken(b, from, "the value to copy has no place in memory");
    const f8_copy_axes axes = {.rank = 2,
                               .size = {f8_type_rows(t), f8_type_columns(t)},
                               .from = {p->stride, 1},
                               .to = {to_stride, 1}};
    return copy_step(b, name, from, p, to, axes);
}

static f8_status concat_steps(f8_build *b, const f8_group *g, f8_ref r)
{
    const f8_node *n = f8_at(b->func->graph, r);
    const f8_type *t = &n->type;
    int64_t axis = f8_attr_i(b->func->graph, r, F8_A_AXIS), stride[F8_MAX_RANK], at = 0;
    if (axis < 0)
        axis += t->rank;
    axis_strides(t, f8_build_place(b, r), stride);
    for (uint32_t i = 0; i < n->n_in; i++) {
        const f8_type *x = f8_build_type(b, n->in[i]);
        const f8_place *from = f8_build_place(b, n->in[i]);
        f8_place to = *f8_build_place(b, r);
        to.offset += at * stride[axis] * (int64_t)f8_dtype_size(t->dtype);
        at += x->dim[axis];
        const bool inside = from->space == to.space && from->port == to.port &&
                            from->offset == to.offset &&
                            (from->stride == to.stride || f8_type_rows(x) == 1);
        if (inside)
            continue;
        f8_copy_axes axes = {.rank = t->rank};
        axis_strides(x, from, axes.from);
        for (int k = 0; k < t->rank; k++) {
            axes.size[k] = x->dim[k];
            axes.to[k] = stride[k];
        }
        F8_TRY(copy_step(b, g->name, n->in[i], from, &to, axes));
    }
    return F8_OK;
}

static f8_status reshape_step(f8_build *b, const f8_group *g, f8_ref r)
{
    const f8_ref x = f8_at(b->func->graph, r)->in[0];
    const f8_type *from = f8_build_type(b, x), *to = f8_build_type(b, r);
    const f8_place *p = f8_build_place(b, r);
    /* one side may have gaps between its rows; the copy then goes by the rows of that side */
    const bool source =
        f8_type_rows(from) == 1 || f8_build_place(b, x)->stride == f8_type_columns(from);
    const bool target = f8_type_rows(to) == 1 || p->stride == f8_type_columns(to);
    if (target)
        return copy_value(b, g->name, x, p, f8_type_columns(from));
    if (!source && f8_type_columns(from) != f8_type_columns(to))
        return f8_build_broken(b, r, "both sides of the reshape have gaps between their rows");
    const f8_copy_axes axes = {
        .rank = 2,
        .size = {f8_type_rows(to), f8_type_columns(to)},
        .from = {source ? f8_type_columns(to) : f8_build_place(b, x)->stride, 1},
        .to = {p->stride, 1}};
    return copy_step(b, g->name, r, f8_build_place(b, x), p, axes);
}

static f8_status shape_step(f8_build *b, const f8_group *g, f8_ref r)
{
    const f8_graph *graph = b->func->graph;
    const f8_node *n = f8_at(graph, r);
    const f8_ref x = n->in[0];
    const f8_type *t = &n->type, *from = f8_build_type(b, x);
    f8_place p = *f8_build_place(b, x);
    int64_t have[F8_MAX_RANK];
    f8_copy_axes axes = {.rank = t->rank};
    axis_strides(from, &p, have);
    axis_strides(t, f8_build_place(b, r), axes.to);
    const f8_ints perm = f8_attr_ints(graph, r, F8_A_PERM);
    const int64_t given = f8_attr_i(graph, r, F8_A_AXIS);
    const int axis = (int)(given < 0 ? given + t->rank : given);
    for (int i = 0; i < t->rank; i++) {
        const int mine = i - t->rank + from->rank; /* aligned from the right */
        axes.size[i] = t->dim[i];
        if (n->op == F8_OP_TRANSPOSE)
            axes.from[i] = have[perm.v[i]];
        else
            axes.from[i] = mine >= 0 && from->dim[mine] != 1 ? have[mine] : 0;
    }
    if (n->op == F8_OP_SLICE)
        p.offset += f8_attr_i(graph, r, F8_A_START) * have[axis] * (int64_t)f8_dtype_size(t->dtype);
    return copy_step(b, g->name, r, &p, f8_build_place(b, r), axes);
}

f8_status f8_build_copies(f8_build *b, const f8_group *g)
{
    const f8_ref r = f8_build_only_node(g);
    if (f8_build_place(b, r)->space == F8_SPACE_NONE)
        return f8_build_broken(b, r, "the result has no place in memory");
    switch (f8_at(b->func->graph, r)->op) {
    case F8_OP_CONCAT: return concat_steps(b, g, r);
    case F8_OP_RESHAPE:
    case F8_OP_PROJECT: return reshape_step(b, g, r);
    case F8_OP_TRANSPOSE:
    case F8_OP_BROADCAST:
    case F8_OP_SLICE: return shape_step(b, g, r);
    default: return f8_build_broken(b, r, "no copy step computes this op");
    }
}

f8_status f8_build_final_copy(f8_build *b, const f8_final_copy *c)
{
    return copy_value(b, "result", c->from, &c->to, f8_type_columns(f8_build_type(b, c->from)));
}

/* Copies zeros behind the last row of each result of a group that has padding there. */
f8_status f8_build_zeros(f8_build *b, const f8_group *g)
{
    const f8_lowered *low = b->func->lowered;
    for (uint32_t i = 0; low->pad && i < g->n_out; i++) {
        const f8_ref r = g->out[i];
        const f8_pad *pad = &low->pad[r];
        const f8_type *t = f8_build_type(b, r);
        if (!pad->rows || !pad->zeros)
            continue;
        f8_place to = *f8_build_place(b, r);
        const f8_place zero = {F8_SPACE_CONST, -1, low->zero, 0};
        to.offset += f8_type_rows(t) * to.stride * (int64_t)f8_dtype_size(t->dtype);
        const f8_copy_axes axes = {
            .rank = 1, .size = {pad->rows * to.stride}, .from = {0}, .to = {1}};
        F8_TRY(copy_step(b, "padding", r, &zero, &to, axes));
    }
    return F8_OK;
}

f8_status f8_build_copy_operand(f8_build *b, const f8_group *g, f8_ref acc, f8_ref to)
{
    const f8_place *x = f8_build_place(b, acc), *y = f8_build_place(b, to);
    if (x->space == y->space && x->port == y->port && x->offset == y->offset &&
        (x->stride == y->stride || f8_type_rows(f8_build_type(b, acc)) == 1))
        return F8_OK;
    return copy_value(b, g->name, acc, y, y->stride);
}
