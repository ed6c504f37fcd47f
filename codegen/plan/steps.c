/* Row kernels, attention and scatter as steps. GEMMs and copies have their own files. */
#include "codegen/plan/parts.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "codegen/kernel/scatter.h"

/* ---- row kernels ---- */

/* The line of the text that a phase comes from: that of its first result that has a line, else of
 * its first node that has one. */
static f8_loc phase_loc(const f8_build *b, const f8_phase *p)
{
    const f8_loc *loc = b->func->graph->loc;
    for (uint32_t i = 0; i < p->n_out; i++)
        if (loc[p->out[i]].line)
            return loc[p->out[i]];
    for (uint32_t i = 0; i < p->n_nodes; i++)
        if (loc[p->node[i]].line)
            return loc[p->node[i]];
    return F8_NOWHERE;
}

/* The zeros behind rows are a buffer of their own: one element for each row of the value. */
static f8_status add_buffer_access(f8_build *b, const f8_kernel *k, const f8_binding *bound,
                                   uint32_t buffer)
{
    const f8_kbuffer *at = &k->buffer[buffer];
    const f8_ref r = bound->value[buffer];
    const f8_place *p = &bound->place[buffer];
    if (p->offset == f8_build_place(b, r)->offset)
        return f8_build_add_access(b, p, r, at->write);
    const f8_type column = {at->dtype, 2, {f8_type_rows(f8_build_type(b, r)), 1}};
    return f8_build_add_access_part(b, p, r, &column, at->write);
}

/* Adds the phase as a launch of the last step. */
static f8_status rows_launch(f8_build *b, const f8_group *g, uint32_t phase, f8_kernel *k,
                             const f8_binding *bound, uint32_t first_arg, uint32_t first_int)
{
    f8_step *s = &b->out->step[b->out->n_steps - 1];
    uint32_t choice = 0;
    for (uint32_t j = 0; j < k->n_buffers; j++)
        s->arg[first_arg + j] = f8_build_arg(b, &bound->place[j]);
    memcpy(s->ints + first_int, bound->ints, k->n_ints * sizeof *s->ints);
    if (!b->nameless)
        F8_TRY(f8_build_choose_kernel(b, s->name, k, bound->ints[0], &k, &choice));
    if (b->target->is_aligned &&
        b->target->is_aligned(b, k, s->arg + first_arg, s->ints + first_int))
        F8_TRY(f8_kernel_for_aligned(k, b->arena, &k, b->diag));
    const f8_kernel_source u = {.kind = F8_SOURCE_ROWS,
                                .text = k->text,
                                .hash = k->hash,
                                .kernel = k,
                                .loc = phase_loc(b, &g->phase[phase]),
                                .name = f8_arena_strdup(b->arena, g->name ? g->name : "")};
    f8_build_launch launch = {.first_arg = first_arg,
                              .first_int = first_int,
                              .n_args = k->n_buffers,
                              .n_ints = k->n_ints,
                              .choice = choice,
                              .bytes = bound->bytes_read + bound->bytes_written};
    F8_TRY(b->nameless ? f8_build_add_source(b, &u, &launch.source)
                       : f8_build_intern(b, &u, &launch.source));
    for (uint32_t j = 0; j < k->n_buffers; j++)
        F8_TRY(add_buffer_access(b, k, bound, j));
    s->bytes_read += bound->bytes_read;
    s->bytes_written += bound->bytes_written;
    return f8_build_add_launch(b, &launch, b->target->rows_tasks(b, k, bound->ints[0]));
}

/* One step for phases [begin, end); the arguments of the phases follow one another. */
static f8_status rows_step(f8_build *b, const f8_group *g, f8_kernel **k, const f8_binding *bound,
                           uint32_t begin, uint32_t end)
{
    uint32_t n_args = 0, n_ints = 0;
    for (uint32_t i = begin; i < end; i++) {
        n_args += k[i]->n_buffers;
        n_ints += k[i]->n_ints;
    }
    if (!n_args)
        return F8_OK;
    if (!f8_build_step(b, F8_STEP_KERNEL, g->name, n_args, n_ints))
        return f8_build_memory(b);
    n_args = n_ints = 0;
    for (uint32_t i = begin; i < end; i++) {
        if (!k[i]->n_instrs)
            continue;
        F8_TRY(rows_launch(b, g, i, k[i], &bound[i], n_args, n_ints));
        n_args += k[i]->n_buffers;
        n_ints += k[i]->n_ints;
    }
    return F8_OK;
}

static f8_status rows_steps(f8_build *b, const f8_group *g)
{
    f8_kernel **k = F8_NEW_ARRAY(b->arena, f8_kernel *, g->n_phases);
    f8_binding *bound = F8_NEW_ARRAY(b->arena, f8_binding, g->n_phases);
    if (!k || !bound)
        return f8_build_memory(b);
    for (uint32_t i = 0; i < g->n_phases; i++)
        F8_TRY((b->nameless ? f8_kernel_describe : f8_kernel_lower)(
            b->func, g, i, b->facts, b->arena, &k[i], &bound[i], b->diag));
    if (!b->target->split_phases)
        return rows_step(b, g, k, bound, 0, g->n_phases);
    for (uint32_t i = 0; i < g->n_phases; i++)
        F8_TRY(rows_step(b, g, k, bound, i, i + 1));
    return F8_OK;
}

/* ---- attention ---- */

/* The place of result `index` of a node with several results, or scratch memory if nothing reads
 * the result. */
static f8_place result_place(f8_build *b, const f8_group *g, f8_ref r, int64_t index, f8_type *t)
{
    const f8_graph *graph = b->func->graph;
    *t = f8_result_type(graph, r, index);
    if (index == 0 && f8_build_place(b, r)->space != F8_SPACE_NONE)
        return *f8_build_place(b, r);
    for (uint32_t i = 1; i < g->n_out; i++)
        if (f8_attr_i(graph, g->out[i], F8_A_INDEX) == index &&
            f8_build_place(b, g->out[i])->space != F8_SPACE_NONE)
            return *f8_build_place(b, g->out[i]);
    return f8_build_scratch(b, f8_type_bytes(t), f8_type_columns(t));
}

/* The mask's strides: 0 along the axes of one element. */
static f8_status attention_mask(f8_build *b, f8_ref r, f8_ref mask, f8_attention_desc *d)
{
    const f8_type *t = f8_build_type(b, mask);
    const int64_t row = f8_build_place(b, mask)->stride;
    if (t->rank != 4)
        return f8_build_broken(b, r, "the mask has not four axes");
    d->masking = t->dtype == F8_BOOL ? F8_MASK_BOOL : F8_MASK_ADD;
    d->mask.k = t->dim[3] > 1;
    d->mask.q = t->dim[2] > 1 ? row : 0;
    d->mask.h = t->dim[1] > 1 ? row * t->dim[2] : 0;
    d->mask.b = t->dim[0] > 1 ? row * t->dim[2] * t->dim[1] : 0;
    return F8_OK;
}

static f8_status attention_desc(f8_build *b, f8_ref r, f8_attention_desc *d)
{
    const f8_graph *graph = b->func->graph;
    const f8_node *n = f8_at(graph, r);
    const f8_type *q = f8_build_type(b, n->in[0]);
    *d = (f8_attention_desc){.dtype = q->dtype,
                             .H = f8_attr_i(graph, r, F8_A_HEADS),
                             .Hkv = f8_attr_i(graph, r, F8_A_KV_HEADS),
                             .causal = f8_attr_i(graph, r, F8_A_CAUSAL) != 0,
                             .scale = (float)f8_attr_f(graph, r, F8_A_SCALE)};
    if (q->rank < 2 || d->H < 1)
        return f8_build_broken(b, r, "the queries have no time axis, or there are no heads");
    if (!d->Hkv)
        d->Hkv = d->H;
    const f8_type *k = f8_build_type(b, n->in[1]);
    if (k->rank < 2)
        return f8_build_broken(b, r, "the keys have no time axis");
    d->T = q->dim[q->rank - 2];
    d->Tk = k->dim[k->rank - 2];
    d->B = f8_type_rows(q) / d->T;
    d->D = f8_type_columns(q) / d->H;
    if (d->scale == 0)
        d->scale = (float)(1.0 / sqrt((double)d->D));
    d->stride.q = f8_build_place(b, n->in[0])->stride;
    d->stride.k = f8_build_place(b, n->in[1])->stride;
    d->stride.v = f8_build_place(b, n->in[2])->stride;
    d->dropout = f8_attr_f(graph, r, F8_A_DROPOUT);
    if (d->dropout > 0)
        d->stream = f8_attr_i(graph, r, F8_A_STREAM);
    const f8_ref mask = f8_attention_mask(graph, n);
    return mask ? attention_mask(b, r, mask, d) : F8_OK;
}

static const char *attention_text(f8_build *b, const f8_attention_desc *d, bool backward)
{
    uint32_t scale;
    memcpy(&scale, &d->scale, sizeof scale);
    const char *keys = "", *mask = "", *dropout = "";
    if (d->Tk != d->T)
        keys = f8_arena_printf(b->arena, " Tk %" PRId64, d->Tk);
    if (d->masking)
        mask = f8_arena_printf(b->arena,
                               " mask %s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64,
                               d->masking == F8_MASK_BOOL ? "bool" : "f32", d->mask.b, d->mask.h,
                               d->mask.q, d->mask.k);
    if (d->dropout > 0)
        dropout = f8_arena_printf(b->arena, " dropout %a stream %" PRId64, d->dropout, d->stream);
    return f8_arena_printf(
        b->arena,
        "attention%s %s B %" PRId64 " T %" PRId64 " H %" PRId64 " Hkv %" PRId64 " D %" PRId64
        "%s scale 0x%08" PRIx32 " strides %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64
        " %" PRId64 " %" PRId64 " %" PRId64 "%s%s%s",
        backward ? " grad" : "", f8_dtype_name(d->dtype), d->B, d->T, d->H, d->Hkv, d->D,
        d->causal ? " causal" : "", scale, d->stride.q, d->stride.k, d->stride.v, d->stride.o,
        d->stride.dout, d->stride.dq, d->stride.dk, d->stride.dv, keys ? keys : "",
        mask ? mask : "", dropout ? dropout : "");
}

/* Operands, then results, then the workspace. */
typedef struct attention_values {
    f8_place place[12];
    f8_type type[12];
    int64_t workspace;                 /* bytes */
    uint32_t n, first_result, n_typed; /* the workspace has no type */
} attention_values;

static f8_status attention_places(f8_build *b, const f8_group *g, f8_attention_desc *d,
                                  bool library, attention_values *v)
{
    const f8_ref r = f8_build_only_node(g);
    const f8_node *n = f8_at(b->func->graph, r);
    const bool backward = n->op == F8_OP_ATTENTION_GRAD;
    for (; v->n < n->n_in; v->n++) {
        v->place[v->n] = *f8_build_place(b, n->in[v->n]);
        v->type[v->n] = *f8_build_type(b, n->in[v->n]);
    }
    v->first_result = v->n;
    for (int64_t i = 0; i < (backward ? 3 : 2); i++, v->n++)
        v->place[v->n] = result_place(b, g, r, i, &v->type[v->n]);
    const f8_place *result = v->place + v->first_result;
    d->stride.o = (backward ? v->place + 3 : result)->stride;
    if (backward) {
        d->stride.dout = v->place[5].stride;
        d->stride.dq = result[0].stride;
        d->stride.dk = result[1].stride;
        d->stride.dv = result[2].stride;
    }
    v->n_typed = v->n;
    for (uint32_t i = 0; i < v->n; i++)
        if (v->place[i].space == F8_SPACE_NONE)
            return f8_build_broken(b, r, "an operand has no place in memory");
    if (b->target->attention_workspace && !library) {
        v->workspace = b->target->attention_workspace(d, backward);
        if (v->workspace)
            v->place[v->n] = f8_build_scratch(b, v->workspace, v->workspace);
        v->n++;
    }
    return F8_OK;
}

/* Sets the arguments of the step just made, its accesses, and the bytes that it reads and
 * writes. */
static f8_status attention_traffic(f8_build *b, f8_ref r, f8_step *s, const f8_attention_desc *d,
                                   const attention_values *v)
{
    const f8_node *n = f8_at(b->func->graph, r);
    for (uint32_t i = 0; i < v->n; i++) {
        s->arg[i] = f8_build_arg(b, &v->place[i]);
        const bool result = i >= v->first_result;
        if (i < v->n_typed)
            F8_TRY(f8_build_add_access_part(b, &v->place[i], result ? r : n->in[i], &v->type[i],
                                            result));
        else if (v->workspace)
            F8_TRY(f8_build_add_access_some(b, &v->place[i], 0, v->workspace, true));
    }
    for (uint32_t i = 0; i < n->n_in; i++)
        s->bytes_read += f8_type_bytes(f8_build_type(b, n->in[i]));
    s->bytes_written = f8_type_bytes(&n->type) + 4 * d->B * d->H * d->T * f8_attention_lse_rows(d);
    if (n->op == F8_OP_ATTENTION_GRAD)
        s->bytes_written = f8_type_bytes(f8_build_type(b, n->in[0])) +
                           f8_type_bytes(f8_build_type(b, n->in[1])) +
                           f8_type_bytes(f8_build_type(b, n->in[2]));
    return F8_OK;
}

static f8_status attention_step(f8_build *b, const f8_group *g)
{
    const f8_ref r = f8_build_only_node(g);
    const bool backward = f8_at(b->func->graph, r)->op == F8_OP_ATTENTION_GRAD;
    f8_attention_desc d;
    attention_values v = {.n = 0};
    F8_TRY(attention_desc(b, r, &d));
    const bool library =
        b->target->attention_by_library && b->target->attention_by_library(b, &d, backward);
    if (b->target->check_attention && !library)
        F8_TRY(b->target->check_attention(b, r, &d));
    F8_TRY(attention_places(b, g, &d, library, &v));
    if (library) {
        f8_cudnn_attention_desc problem;
        F8_TRY(b->target->library_attention(b, r, &d, backward, &problem));
        for (uint32_t i = 0; i < v.n; i++)
            if (v.place[i].offset % 16)
                return f8_fail(b->diag, F8_ERR_UNSUPPORTED, b->func->graph->loc[r],
                               "attention of '%s': cuDNN needs operands at multiples of 16 bytes",
                               b->func->name);
        f8_step *by_library = f8_build_step(b, F8_STEP_ATTENTION, g->name, v.n, 0);
        if (!by_library)
            return f8_build_memory(b);
        by_library->attention = problem;
        return attention_traffic(b, r, by_library, &d, &v);
    }
    const f8_kernel_source u = {.kind = F8_SOURCE_ATTENTION,
                                .name = f8_arena_strdup(b->arena, g->name ? g->name : ""),
                                .text = attention_text(b, &d, backward),
                                .loc = b->func->graph->loc[r],
                                .attention = d,
                                .backward = backward};
    f8_build_launch launch = {.n_args = v.n};
    F8_TRY(f8_build_intern(b, &u, &launch.source));
    f8_step *s = f8_build_step(b, F8_STEP_KERNEL, g->name, v.n, 0);
    if (!s)
        return f8_build_memory(b);
    F8_TRY(attention_traffic(b, r, s, &d, &v));
    return f8_build_add_launch(b, &launch, 0);
}

/* ---- scatter ---- */

static f8_status scatter_step(f8_build *b, const f8_group *g)
{
    const f8_ref r = f8_build_only_node(g);
    const f8_node *n = f8_at(b->func->graph, r);
    const f8_ref value[3] = {r, n->in[1], n->in[2]}; /* table, ids, dy */
    const f8_type *ids = f8_build_type(b, n->in[1]), *dy = f8_build_type(b, n->in[2]);
    F8_TRY(f8_build_copy_operand(b, g, n->in[0], r));
    const f8_kernel_source u = {
        .kind = F8_SOURCE_SCATTER,
        .name = f8_arena_strdup(b->arena, g->name ? g->name : ""),
        .text = f8_arena_printf(b->arena, "scatter of %s", f8_dtype_name(dy->dtype)),
        .loc = b->func->graph->loc[r],
        .dtype = dy->dtype};
    f8_build_launch launch = {.n_args = 3, .n_ints = F8_SCATTER_INTS};
    F8_TRY(f8_build_intern(b, &u, &launch.source));
    f8_step *s = f8_build_step(b, F8_STEP_KERNEL, g->name, 3, F8_SCATTER_INTS);
    if (!s)
        return f8_build_memory(b);
    for (uint32_t i = 0; i < 3; i++) {
        const f8_place *p = f8_build_place(b, value[i]);
        s->arg[i] = f8_build_arg(b, p);
        F8_TRY(f8_build_add_access_part(b, p, value[i], f8_build_type(b, value[i]), i == 0));
    }
    f8_build_last(b)->access[0].adds = true;
    const int64_t count = f8_type_elements(ids), columns = f8_type_columns(&n->type);
    const int64_t ints[F8_SCATTER_INTS] = {count, f8_type_rows(&n->type), columns,
                                           f8_build_place(b, r)->stride,
                                           f8_build_place(b, n->in[2])->stride};
    memcpy(s->ints, ints, sizeof ints);
    s->bytes_read = 4 * count + f8_type_bytes(dy) + 4 * count * columns;
    s->bytes_written = 4 * count * columns;
    return f8_build_add_launch(b, &launch, b->target->scatter_tasks(count, columns));
}

/* ---- collectives ---- */

static f8_collective collective_of(f8_op op)
{
    switch (op) {
    case F8_OP_ALL_SLICE: return F8_COLLECTIVE_ALL_SLICE;
    case F8_OP_ALL_GATHER: return F8_COLLECTIVE_ALL_GATHER;
    case F8_OP_ALL_REDUCE: return F8_COLLECTIVE_ALL_REDUCE;
    case F8_OP_REDUCE_SCATTER: return F8_COLLECTIVE_REDUCE_SCATTER;
    default: return F8_COLLECTIVE_ALL_TO_ALL;
    }
}

static f8_status collective_step(f8_build *b, const f8_group *g)
{
    const f8_ref r = f8_build_only_node(g);
    const f8_node *n = f8_at(b->func->graph, r);
    const int64_t ranks = f8_attr_i(b->func->graph, r, F8_A_RANKS);
    const f8_place *from = f8_build_place(b, n->in[0]), *to = f8_build_place(b, r);
    f8_step *s = f8_build_step(b, F8_STEP_COLLECTIVE, g->name, 2, 0);
    if (!s)
        return f8_build_memory(b);
    const f8_type *whole = f8_type_of(b->func->graph, n->in[0]);
    const int64_t bytes = f8_type_bytes(&n->type);
    const f8_collective kind = collective_of(n->op);
    const bool exchanges = kind == F8_COLLECTIVE_ALL_GATHER || kind == F8_COLLECTIVE_ALL_TO_ALL;
    s->collective =
        (f8_collective_desc){.kind = kind,
                             .ranks = (int32_t)ranks,
                             .bytes = exchanges ? bytes / ranks : bytes,
                             .whole = n->op == F8_OP_ALL_SLICE ? f8_type_bytes(whole) : 0,
                             .dtype = n->type.dtype};
    s->arg[0] = f8_build_arg(b, from);
    s->arg[1] = f8_build_arg(b, to);
    s->bytes_read = f8_collective_operand(&s->collective);
    s->bytes_written = f8_collective_result(&s->collective);
    F8_TRY(f8_build_add_access(b, from, n->in[0], false));
    return f8_build_add_access(b, to, r, true);
}

f8_status f8_build_group(f8_build *b, const f8_group *g)
{
    switch (g->kind) {
    case F8_GROUP_ROWS: return rows_steps(b, g);
    case F8_GROUP_GEMM: return f8_build_gemm(b, g);
    case F8_GROUP_ATTENTION:
    case F8_GROUP_ATTENTION_GRAD: return attention_step(b, g);
    case F8_GROUP_SCATTER: return scatter_step(b, g);
    case F8_GROUP_COLLECTIVE: return collective_step(b, g);
    case F8_GROUP_COPY: return f8_build_copies(b, g);
    }
    return f8_fail(b->diag, F8_ERR_INTERNAL, F8_NOWHERE, "a group has an unknown kind");
}
