/* Groups to steps: row programs and other kernels, GEMMs, and copies. */
#include "codegen/build_parts.h"

#include "codegen/cpu_rows.h"
#include "codegen/cpu_scatter.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const f8_place *place(const f8_build *b, f8_ref r)
{
    return &b->func->program->place[r];
}

static const f8_type *type(const f8_build *b, f8_ref r)
{
    return f8_type_of(b->func->graph, r);
}

static f8_status broken(f8_build *b, f8_ref at, const char *what)
{
    return f8_fail(b->diag, F8_ERR_INTERNAL, b->func->graph->loc[at], "%s of '%s': %s (%%%u)",
                   f8_op_facts(f8_at(b->func->graph, at)->op)->name, b->func->name, what, at);
}

static f8_status no_memory(f8_build *b)
{
    return f8_arena_status(b->arena, b->diag);
}

static uint64_t text_hash(const char *s)
{
    uint64_t h = 14695981039346656037u;
    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * 1099511628211u;
    return h;
}

/* ---- row programs ---- */

/* One kernel: its phases lowered, then one step with all their arguments in a row. */
static f8_status rows_step(f8_build *b, const f8_group *g)
{
    f8_kernel **k = F8_NEW_ARRAY(b->arena, f8_kernel *, g->n_phases);
    f8_binding *bound = F8_NEW_ARRAY(b->arena, f8_binding, g->n_phases);
    uint32_t n_args = 0, n_ints = 0;
    if (!k || !bound)
        return no_memory(b);
    for (uint32_t i = 0; i < g->n_phases; i++) {
        F8_TRY(f8_kernel_lower(b->func, g, i, NULL, b->arena, &k[i], &bound[i], b->diag));
        n_args += k[i]->n_buffers;
        n_ints += k[i]->n_ints;
    }
    if (!n_args)
        return F8_OK;
    f8_step *s = f8_build_step(b, F8_STEP_KERNEL, g->name, n_args, n_ints);
    if (!s)
        return no_memory(b);
    n_args = n_ints = 0;
    for (uint32_t i = 0; i < g->n_phases; i++) {
        if (!k[i]->n_instrs)
            continue;
        uint32_t unit;
        const f8_build_unit u = {.kind = F8_UNIT_ROWS, .text = k[i]->text, .hash = k[i]->hash, .kernel = k[i],
                                 .name = f8_arena_strdup(b->arena, g->name ? g->name : "")};
        F8_TRY(f8_build_intern(b, &u, &unit));
        for (uint32_t j = 0; j < k[i]->n_buffers; j++)
            s->arg[n_args + j] = f8_build_arg(b, &bound[i].place[j]);
        memcpy(s->ints + n_ints, bound[i].ints, k[i]->n_ints * sizeof *s->ints);
        s->bytes_read += bound[i].bytes_read;
        s->bytes_written += bound[i].bytes_written;
        F8_TRY(f8_build_launch(b, unit, f8_cpu_rows_tasks(k[i], bound[i].ints[0]), n_args, n_ints));
        n_args += k[i]->n_buffers;
        n_ints += k[i]->n_ints;
    }
    return F8_OK;
}

/* ---- copies ---- */

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

typedef struct copy_axes {
    int32_t rank;
    int64_t size[F8_COPY_RANK], from[F8_COPY_RANK], to[F8_COPY_RANK];
} copy_axes;

/* Axes of one element go, neighbours that run on in both become one. */
static void merge_axes(copy_axes *c)
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

static f8_status copy_step(f8_build *b, const char *name, const f8_place *from, const f8_place *to,
                           f8_dtype dtype, copy_axes axes)
{
    merge_axes(&axes);
    f8_step *s = f8_build_step(b, F8_STEP_COPY, name, 2, 0);
    if (!s)
        return no_memory(b);
    s->arg[0] = f8_build_arg(b, from);
    s->arg[1] = f8_build_arg(b, to);
    s->copy.rank = axes.rank;
    s->copy.element = (uint32_t)f8_dtype_size(dtype);
    int64_t read = 1, written = 1;
    for (int i = 0; i < axes.rank; i++) {
        s->copy.size[i] = axes.size[i];
        s->copy.from[i] = axes.from[i];
        s->copy.to[i] = axes.to[i];
        written *= axes.size[i];
        read *= axes.from[i] ? axes.size[i] : 1;
    }
    s->bytes_read = read * s->copy.element;
    s->bytes_written = written * s->copy.element;
    return F8_OK;
}

/* A value to another place, both as matrices. */
static f8_status copy_value(f8_build *b, const char *name, f8_ref from, const f8_place *to,
                            int64_t to_stride)
{
    const f8_type *t = type(b, from);
    const f8_place *p = place(b, from);
    if (p->space == F8_SPACE_NONE)
        return broken(b, from, "a copy of a value that lies nowhere");
    const copy_axes axes = {
        2, {f8_type_rows(t), f8_type_columns(t)}, {p->stride, 1}, {to_stride, 1}};
    return copy_step(b, name, p, to, t->dtype, axes);
}

static f8_status concat_steps(f8_build *b, const f8_group *g, f8_ref r)
{
    const f8_node *n = f8_at(b->func->graph, r);
    const f8_type *t = &n->type;
    int64_t axis = f8_attr_i(b->func->graph, r, F8_A_AXIS), stride[F8_MAX_RANK], at = 0;
    if (axis < 0)
        axis += t->rank;
    axis_strides(t, place(b, r), stride);
    for (uint32_t i = 0; i < n->n_in; i++) {
        const f8_type *x = type(b, n->in[i]);
        const f8_place *from = place(b, n->in[i]);
        f8_place to = *place(b, r);
        to.offset += at * stride[axis] * (int64_t)f8_dtype_size(t->dtype);
        at += x->dim[axis];
        const bool inside = from->space == to.space && from->port == to.port &&
                            from->offset == to.offset &&
                            (from->stride == to.stride || f8_type_rows(x) == 1);
        if (inside)
            continue;
        copy_axes axes = {.rank = t->rank};
        axis_strides(x, from, axes.from);
        for (int k = 0; k < t->rank; k++) {
            axes.size[k] = x->dim[k];
            axes.to[k] = stride[k];
        }
        F8_TRY(copy_step(b, g->name, from, &to, t->dtype, axes));
    }
    return F8_OK;
}

static f8_status reshape_step(f8_build *b, const f8_group *g, f8_ref r)
{
    const f8_ref x = f8_at(b->func->graph, r)->in[0];
    const f8_type *from = type(b, x), *to = type(b, r);
    const f8_place *p = place(b, r);
    /* one side may have gaps between rows; the other is then written in its rows */
    const bool source = f8_type_rows(from) == 1 || place(b, x)->stride == f8_type_columns(from);
    const bool target = f8_type_rows(to) == 1 || p->stride == f8_type_columns(to);
    if (target)
        return copy_value(b, g->name, x, p, f8_type_columns(from));
    if (!source && f8_type_columns(from) != f8_type_columns(to))
        return broken(b, r, "a reshape between two layouts with gaps");
    const copy_axes axes = {2,
                            {f8_type_rows(to), f8_type_columns(to)},
                            {source ? f8_type_columns(to) : place(b, x)->stride, 1},
                            {p->stride, 1}};
    return copy_step(b, g->name, place(b, x), p, to->dtype, axes);
}

static f8_status shape_step(f8_build *b, const f8_group *g, f8_ref r)
{
    const f8_graph *graph = b->func->graph;
    const f8_node *n = f8_at(graph, r);
    const f8_ref x = n->in[0];
    const f8_type *t = &n->type, *from = type(b, x);
    f8_place p = *place(b, x);
    int64_t have[F8_MAX_RANK];
    copy_axes axes = {.rank = t->rank};
    axis_strides(from, &p, have);
    axis_strides(t, place(b, r), axes.to);
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
    return copy_step(b, g->name, &p, place(b, r), t->dtype, axes);
}

/* The only node of a group that is no row program. */
static f8_ref only_node(const f8_group *g)
{
    if (g->n_phases && g->phase[0].n_nodes)
        return g->phase[0].node[0];
    return g->n_out ? g->out[0] : 0;
}

static f8_status copy_steps(f8_build *b, const f8_group *g)
{
    const f8_ref r = only_node(g);
    if (place(b, r)->space == F8_SPACE_NONE)
        return broken(b, r, "a copy to nowhere");
    switch (f8_at(b->func->graph, r)->op) {
    case F8_OP_CONCAT: return concat_steps(b, g, r);
    case F8_OP_RESHAPE:
    case F8_OP_PROJECT: return reshape_step(b, g, r);
    case F8_OP_TRANSPOSE:
    case F8_OP_BROADCAST:
    case F8_OP_SLICE: return shape_step(b, g, r);
    default: return broken(b, r, "no copy does this");
    }
}

f8_status f8_build_final_copy(f8_build *b, const f8_final_copy *c)
{
    return copy_value(b, "result", c->from, &c->to, f8_type_columns(type(b, c->from)));
}

/* ---- GEMMs ---- */

static int64_t row_stride(const f8_build *b, f8_ref r)
{
    const int64_t columns = f8_type_columns(type(b, r)), stride = place(b, r)->stride;
    return f8_type_rows(type(b, r)) == 1 && stride < columns ? columns : stride;
}

/* Before something adds to `to`: bring the accumulator there, unless it lies there already. */
static f8_status bring(f8_build *b, const f8_group *g, f8_ref acc, f8_ref to)
{
    const f8_place *x = place(b, acc), *y = place(b, to);
    if (x->space == y->space && x->port == y->port && x->offset == y->offset &&
        (x->stride == y->stride || f8_type_rows(type(b, acc)) == 1))
        return F8_OK;
    return copy_value(b, g->name, acc, y, y->stride);
}

static f8_status gemm_step(f8_build *b, const f8_group *g)
{
    const f8_graph *graph = b->func->graph;
    const f8_ref r = only_node(g);
    const f8_node *n = f8_at(graph, r);
    const bool scaled = n->op == F8_OP_SCALED_MATMUL;
    const f8_ref x = n->in[0], y = n->in[scaled ? 2 : 1];
    const f8_ref acc = n->n_in > (scaled ? 4u : 2u) ? n->in[scaled ? 4 : 2] : 0;
    f8_gemm_desc d = {
        .trans_a = f8_attr_i(graph, r, F8_A_TRANSPOSE_A) != 0,
        .trans_b = f8_attr_i(graph, r, F8_A_TRANSPOSE_B) != 0,
        .round_a = f8_attr_i(graph, r, F8_A_ROUND_A) != 0 && type(b, x)->dtype == F8_F32,
        .round_b = f8_attr_i(graph, r, F8_A_ROUND_B) != 0 && type(b, y)->dtype == F8_F32,
        .a = type(b, x)->dtype,
        .b = type(b, y)->dtype,
        .accumulate = acc != 0,
        .has_alpha = scaled,
        .lda = row_stride(b, x),
        .ldb = row_stride(b, y),
        .ldc = row_stride(b, r),
        .algorithm = F8_GEMM_AUTO,
    };
    d.m = d.trans_a ? f8_type_columns(type(b, x)) : f8_type_rows(type(b, x));
    d.k = d.trans_a ? f8_type_rows(type(b, x)) : f8_type_columns(type(b, x));
    d.n = d.trans_b ? f8_type_rows(type(b, y)) : f8_type_columns(type(b, y));
    if (place(b, x)->space == F8_SPACE_NONE || place(b, y)->space == F8_SPACE_NONE ||
        place(b, r)->space == F8_SPACE_NONE)
        return broken(b, r, "an operand or result that lies nowhere");
    if (b->options->gemms)
        d.algorithm = f8_gemm_choose(b->options->gemms, &d);
    if (acc)
        F8_TRY(bring(b, g, acc, r));
    f8_step *s = f8_build_step(b, F8_STEP_GEMM, g->name, 5, 0);
    if (!s)
        return no_memory(b);
    s->gemm = d;
    s->fp8 = f8_dtype_is_fp8(d.a) && f8_dtype_is_fp8(d.b);
    s->arg[0] = f8_build_arg(b, place(b, x));
    s->arg[1] = f8_build_arg(b, place(b, y));
    s->arg[2] = f8_build_arg(b, place(b, r));
    if (scaled) {
        s->arg[3] = f8_build_arg(b, place(b, n->in[1]));
        s->arg[4] = f8_build_arg(b, place(b, n->in[3]));
    }
    s->bytes_written = f8_type_bytes(&n->type);
    s->bytes_read = f8_type_bytes(type(b, x)) + f8_type_bytes(type(b, y)) + (scaled ? 8 : 0) +
                    (acc ? s->bytes_written : 0);
    return F8_OK;
}

/* ---- attention ---- */

/* Result `index` of a multi-result node: where it lies, or room nobody reads. */
static f8_place result_place(f8_build *b, f8_ref r, int64_t index)
{
    const f8_graph *graph = b->func->graph;
    f8_type t = *type(b, r);
    if (index == 0 && place(b, r)->space != F8_SPACE_NONE)
        return *place(b, r);
    for (f8_ref p = r + 1; p < graph->n_nodes; p++)
        if (graph->node[p].op == F8_OP_PROJECT && graph->node[p].in[0] == r &&
            f8_attr_i(graph, p, F8_A_INDEX) == index && place(b, p)->space != F8_SPACE_NONE)
            return *place(b, p);
    f8_graph quiet = *graph; /* inference writes no node, only a message */
    f8_diag ignored = {0};
    quiet.diag = &ignored;
    f8_infer_result(&quiet, f8_at(graph, r), index, &t);
    const int64_t base = (b->func->program->arena_bytes + 63) / 64 * 64;
    const f8_place spare = {F8_SPACE_ARENA, -1, base + b->spare, f8_type_columns(&t)};
    b->spare += (f8_type_bytes(&t) + 63) / 64 * 64;
    return spare;
}

static f8_status attention_desc(f8_build *b, f8_ref r, f8_attention_desc *d)
{
    const f8_graph *graph = b->func->graph;
    const f8_node *n = f8_at(graph, r);
    const f8_type *q = type(b, n->in[0]);
    *d = (f8_attention_desc){.dtype = q->dtype,
                             .H = f8_attr_i(graph, r, F8_A_HEADS),
                             .Hkv = f8_attr_i(graph, r, F8_A_KV_HEADS),
                             .causal = f8_attr_i(graph, r, F8_A_CAUSAL) != 0,
                             .scale = (float)f8_attr_f(graph, r, F8_A_SCALE)};
    if (q->rank < 2 || d->H < 1)
        return broken(b, r, "queries without a time axis or heads");
    if (!d->Hkv)
        d->Hkv = d->H;
    d->T = q->dim[q->rank - 2];
    d->B = f8_type_rows(q) / d->T;
    d->D = f8_type_columns(q) / d->H;
    if (d->scale == 0)
        d->scale = (float)(1.0 / sqrt((double)d->D));
    d->stride.q = place(b, n->in[0])->stride;
    d->stride.k = place(b, n->in[1])->stride;
    d->stride.v = place(b, n->in[2])->stride;
    return F8_OK;
}

static const char *attention_text(f8_build *b, const f8_attention_desc *d, bool backward)
{
    uint32_t scale;
    memcpy(&scale, &d->scale, sizeof scale);
    return f8_arena_printf(b->arena,
                           "attention%s %s B %" PRId64 " T %" PRId64 " H %" PRId64 " Hkv %" PRId64
                           " D %" PRId64 "%s scale 0x%08" PRIx32 " strides %" PRId64 " %" PRId64
                           " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64,
                           backward ? " grad" : "", f8_dtype_name(d->dtype), d->B, d->T, d->H,
                           d->Hkv, d->D, d->causal ? " causal" : "", scale, d->stride.q,
                           d->stride.k, d->stride.v, d->stride.o, d->stride.dout, d->stride.dq,
                           d->stride.dk, d->stride.dv);
}

static f8_status attention_step(f8_build *b, const f8_group *g)
{
    const f8_ref r = only_node(g);
    const f8_node *n = f8_at(b->func->graph, r);
    const bool backward = n->op == F8_OP_ATTENTION_GRAD;
    f8_attention_desc d;
    F8_TRY(attention_desc(b, r, &d));
    f8_place p[9];
    int count = 0;
    for (uint32_t i = 0; i < n->n_in; i++)
        p[count++] = *place(b, n->in[i]);
    for (int64_t i = 0; i < (backward ? 3 : 2); i++)
        p[count++] = result_place(b, r, i);
    d.stride.o = p[3].stride;
    if (backward) {
        d.stride.dout = p[5].stride;
        d.stride.dq = p[6].stride;
        d.stride.dk = p[7].stride;
        d.stride.dv = p[8].stride;
    }
    for (int i = 0; i < count; i++)
        if (p[i].space == F8_SPACE_NONE)
            return broken(b, r, "an operand that lies nowhere");
    f8_build_unit u = {.kind = F8_UNIT_ATTENTION,
                       .name = f8_arena_strdup(b->arena, g->name ? g->name : ""),
                       .text = attention_text(b, &d, backward),
                       .attention = d,
                       .backward = backward};
    if (!u.text)
        return no_memory(b);
    u.hash = text_hash(u.text);
    uint32_t unit;
    F8_TRY(f8_build_intern(b, &u, &unit));
    f8_step *s = f8_build_step(b, F8_STEP_KERNEL, g->name, (uint32_t)count, 0);
    if (!s)
        return no_memory(b);
    for (int i = 0; i < count; i++)
        s->arg[i] = f8_build_arg(b, &p[i]);
    for (uint32_t i = 0; i < n->n_in; i++)
        s->bytes_read += f8_type_bytes(type(b, n->in[i]));
    s->bytes_written = backward
                           ? f8_type_bytes(type(b, n->in[0])) + f8_type_bytes(type(b, n->in[1])) +
                                 f8_type_bytes(type(b, n->in[2]))
                           : f8_type_bytes(&n->type) + 4 * d.B * d.H * d.T;
    return f8_build_launch(b, unit, 0, 0, 0);
}

/* ---- scatter ---- */

static f8_status scatter_step(f8_build *b, const f8_group *g)
{
    const f8_ref r = only_node(g);
    const f8_node *n = f8_at(b->func->graph, r);
    const f8_ref ids = n->in[1], dy = n->in[2];
    const f8_type *t = type(b, dy);
    F8_TRY(bring(b, g, n->in[0], r));
    f8_build_unit u = {.kind = F8_UNIT_SCATTER,
                       .name = f8_arena_strdup(b->arena, g->name ? g->name : ""),
                       .text = f8_arena_printf(b->arena, "scatter of %s", f8_dtype_name(t->dtype)),
                       .dtype = t->dtype};
    if (!u.text)
        return no_memory(b);
    u.hash = text_hash(u.text);
    uint32_t unit;
    F8_TRY(f8_build_intern(b, &u, &unit));
    f8_step *s = f8_build_step(b, F8_STEP_KERNEL, g->name, 3, F8_SCATTER_INTS);
    if (!s)
        return no_memory(b);
    s->arg[0] = f8_build_arg(b, place(b, r));
    s->arg[1] = f8_build_arg(b, place(b, ids));
    s->arg[2] = f8_build_arg(b, place(b, dy));
    const int64_t count = f8_type_elements(type(b, ids)), columns = f8_type_columns(&n->type);
    const int64_t ints[F8_SCATTER_INTS] = {count, f8_type_rows(&n->type), columns,
                                           place(b, r)->stride, place(b, dy)->stride};
    memcpy(s->ints, ints, sizeof ints);
    s->bytes_read = 4 * count + f8_type_bytes(t) + 4 * count * columns;
    s->bytes_written = 4 * count * columns;
    return f8_build_launch(b, unit, f8_cpu_scatter_tasks(columns), 0, 0);
}

f8_status f8_build_group(f8_build *b, const f8_group *g)
{
    switch (g->kind) {
    case F8_GROUP_ROWS: return rows_step(b, g);
    case F8_GROUP_GEMM: return gemm_step(b, g);
    case F8_GROUP_ATTENTION:
    case F8_GROUP_ATTENTION_GRAD: return attention_step(b, g);
    case F8_GROUP_SCATTER: return scatter_step(b, g);
    case F8_GROUP_COPY: return copy_steps(b, g);
    }
    return f8_fail(b->diag, F8_ERR_INTERNAL, F8_NOWHERE, "a group of an unknown kind");
}
