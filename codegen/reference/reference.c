/* Runs a function: visits the live nodes in order, evaluates each by its class, and frees each
 * value after its last use. See reference.h. */
#include "codegen/reference/reference.h"

#include <string.h>

#include "codegen/reference/interp.h"
#include "ir/num/scale_layout.h"

/* ---- one node ---- */

/* Turns scales in the layout of a library into the grid of scales that they stand for. */
static const f8_rvalue *grid_of(f8_interp *x, const f8_rvalue *scale, f8_scale_layout layout,
                                const f8_scales *s, const f8_type *codes)
{
    if (layout == F8_SCALES_GRID)
        return scale;
    f8_type t;
    f8_scale_layout_type(F8_SCALES_GRID, s, codes, &t);
    f8_rvalue *grid = f8_interp_temp(x, &t);
    const size_t size = f8_dtype_size(s->dtype);
    const int64_t across = s->k_is_rows ? f8_type_columns(codes) : f8_type_rows(codes);
    const int64_t along = s->k_is_rows ? f8_type_rows(codes) : f8_type_columns(codes);
    for (int64_t o = 0; grid && o < across; o++)
        for (int64_t k = 0; k < along; k++) {
            const size_t to = (size_t)f8_scale_layout_at(F8_SCALES_GRID, s, codes, o, k);
            const size_t from = (size_t)f8_scale_layout_at(layout, s, codes, o, k);
            memcpy((char *)grid->data + to * size, (const char *)scale->data + from * size, size);
        }
    return grid;
}

static f8_interp_grid scales_of(f8_interp *x, const f8_graph *g, f8_ref r, f8_attr_key key,
                                bool k_is_rows, const f8_rvalue *codes, const f8_rvalue *scale)
{
    f8_scales s = {.dtype = scale->type.dtype, .k_is_rows = k_is_rows};
    f8_scale_layout layout = F8_SCALES_GRID;
    f8_granularity_parse(f8_attr_s(g, r, key), &s.grain); /* inference has checked the texts */
    f8_scale_layout_parse(f8_attr_s(g, r, F8_A_SCALE_LAYOUT), &layout);
    return (f8_interp_grid){grid_of(x, scale, layout, &s, &codes->type), s.grain,
                            f8_granularity_columns(s.grain, &codes->type)};
}

/* The scales of the operands: one each, or those of blocks. */
static void set_scales(f8_interp *x, const f8_graph *g, f8_ref r, const f8_rvalue *const *in,
                       f8_interp_gemm *m)
{
    f8_granularity a = f8_per_tensor, b = f8_per_tensor;
    f8_granularity_parse(f8_attr_s(g, r, F8_A_SCALE_A), &a);
    f8_granularity_parse(f8_attr_s(g, r, F8_A_SCALE_B), &b);
    if (in[1]->type.dtype == F8_F32 && f8_granularity_equal(a, f8_per_tensor) &&
        f8_granularity_equal(b, f8_per_tensor)) {
        m->a_scale = in[1];
        m->b_scale = in[3];
        return;
    }
    m->a_grid = scales_of(x, g, r, F8_A_SCALE_A, m->transpose_a, in[0], in[1]);
    m->b_grid = scales_of(x, g, r, F8_A_SCALE_B, !m->transpose_b, in[2], in[3]);
}

static void eval_matmul(f8_interp *x, const f8_graph *g, f8_ref r, const f8_rvalue *const *in,
                        f8_rvalue *out)
{
    const f8_node *n = f8_at(g, r);
    const f8_gemm_operands o = f8_gemm_operands_of(n);
    f8_interp_gemm m = {
        .a = in[0],
        .b = in[f8_gemm_b(n->op)],
        .added = o.acc || o.bias ? in[f8_gemm_added(n->op)] : NULL,
        .is_bias = o.bias != 0,
        .adds_zeros = o.adds && !*(const uint8_t *)in[f8_gemm_added(n->op) + 1]->data,
        .transpose_a = f8_attr_i(g, r, F8_A_TRANSPOSE_A),
        .transpose_b = f8_attr_i(g, r, F8_A_TRANSPOSE_B),
        .round_a = f8_attr_i(g, r, F8_A_ROUND_A),
        .round_b = f8_attr_i(g, r, F8_A_ROUND_B),
    };
    if (o.a_scale)
        set_scales(x, g, r, in, &m);
    if (x->status != F8_OK)
        return;
    if (n->op == F8_OP_BATCH_MATMUL)
        f8_interp_batch_matmul(x, &m, out);
    else
        f8_interp_matmul(x, &m, out);
}

static bool holds_fp8(const f8_type *t)
{
    return f8_dtype_is_fp8(t->dtype) || t->dtype == F8_E8M0;
}

/* A composite's formula stands once, in the pass that expands it. */
static void refuse_composite(f8_interp *x, f8_op op)
{
    x->status =
        f8_fail(x->diag, F8_ERR_INTERNAL, x->at,
                "reference: %s is evaluated after the pass decompose", f8_op_facts(op)->name);
}

/* out[0..results of the op) */
static void eval_node(f8_interp *x, const f8_graph *g, f8_ref r, const f8_rvalue *const *in,
                      f8_rvalue *out)
{
    const f8_node *n = f8_at(g, r);
    if (x->status != F8_OK)
        return;
    bool fp8 = holds_fp8(&n->type);
    for (uint32_t i = 0; i < n->n_in; i++)
        fp8 |= holds_fp8(&in[i]->type);
    if (x->wide && fp8) {
        x->status = f8_fail(x->diag, F8_ERR_UNSUPPORTED, x->at,
                            "%s: no FP8 values in double precision", f8_op_facts(n->op)->name);
        return;
    }
    switch (f8_op_facts(n->op)->cls) {
    case F8_LEAF: f8_interp_leaf(x, g, r, out); break;
    case F8_POINTWISE: f8_interp_pointwise(x, n->op, in, (int)n->n_in, out); break;
    case F8_REDUCE:
        f8_interp_reduce_axes(x, n->op, f8_interp_axes(g, r), f8_attr_i(g, r, F8_A_BLOCK), in[0],
                              out);
        break;
    case F8_SHAPE: f8_interp_shape(x, g, r, in, out); break;
    case F8_GEMM: eval_matmul(x, g, r, in, out); break;
    case F8_ATTENTION: f8_interp_attention(x, g, r, in, out); break;
    case F8_GATHER: f8_interp_gather(x, n->op, in, out); break;
    case F8_FP8:
        if (n->op == F8_OP_QUANTIZE) {
            f8_interp_quantize(x, in[0], in[1], f8_attr_s(g, r, F8_A_GRANULARITY),
                               f8_attr_i(g, r, F8_A_SATURATE), out);
            break;
        }
        if (n->op == F8_OP_DEQUANTIZE) {
            f8_interp_dequantize(x, in[0], in[1], f8_attr_s(g, r, F8_A_GRANULARITY), out);
            break;
        }
        refuse_composite(x, n->op);
        break;
    case F8_COMPOSITE: refuse_composite(x, n->op); break;
    case F8_COLLECTIVE: f8_interp_collective(x, g, r, in[0], out); break;
    }
    f8_interp_free_temps(x);
}

/* ---- a function ---- */

/* The values of a run, by ref; an op with several results has several. */
typedef struct run {
    f8_interp x;
    const f8_func *f;
    const f8_graph *g;
    f8_arena arena;
    f8_rvalue (*value)[F8_MAX_RESULTS];
    uint32_t *last;            /* by ref: the last user, or n_nodes for results; 0: dead */
    uint32_t *expiring, *next; /* lists of the values whose last user is a node */
    const f8_rvalue **in;
    size_t in_room;
} run;

static f8_status plan_lifetimes(run *s)
{
    const f8_graph *g = s->g;
    s->value = f8_arena_array(&s->arena, g->n_nodes, sizeof *s->value);
    s->last = F8_NEW_ARRAY(&s->arena, uint32_t, g->n_nodes);
    s->expiring = F8_NEW_ARRAY(&s->arena, uint32_t, g->n_nodes);
    s->next = F8_NEW_ARRAY(&s->arena, uint32_t, g->n_nodes);
    F8_TRY(f8_arena_status(&s->arena, s->x.diag));
    for (size_t i = 0; i < s->f->n_out; i++)
        s->last[s->f->out[i].ref] = g->n_nodes;
    size_t most = 1;
    for (f8_ref r = g->n_nodes; r-- > 1;) {
        const f8_node *n = f8_at(g, r);
        if (!s->last[r])
            continue;
        if (s->last[r] < g->n_nodes) {
            s->next[r] = s->expiring[s->last[r]];
            s->expiring[s->last[r]] = r;
        }
        most = n->n_in > most ? n->n_in : most;
        for (uint32_t i = 0; i < n->n_in; i++)
            if (!s->last[n->in[i]])
                s->last[n->in[i]] = r; /* users are visited from the last */
    }
    s->in = f8_arena_array(&s->arena, most, sizeof *s->in);
    return f8_arena_status(&s->arena, s->x.diag);
}

static void drop(run *s, f8_ref r)
{
    if (f8_at(s->g, r)->op == F8_OP_INPUT)
        return; /* the caller owns these */
    for (int i = 0; i < F8_MAX_RESULTS; i++) {
        f8_rvalue *v = &s->value[r][i];
        f8_interp_free(&s->x, v->data, f8_interp_bytes(&s->x, &v->type));
        v->data = NULL;
    }
}

static void run_node(run *s, f8_ref r)
{
    const f8_node *n = f8_at(s->g, r);
    f8_rvalue *out = s->value[r];
    s->x.at = s->g->loc[r];
    for (int i = 0; i < f8_op_facts(n->op)->results; i++) {
        out[i].type = f8_result_type(s->g, r, i);
        out[i].data = f8_interp_alloc(&s->x, f8_interp_bytes(&s->x, &out[i].type));
    }
    for (uint32_t i = 0; i < n->n_in; i++)
        s->in[i] = s->value[n->in[i]];
    if (n->op == F8_OP_PROJECT)
        s->in[0] = &s->value[n->in[0]][f8_attr_i(s->g, r, F8_A_INDEX)];
    eval_node(&s->x, s->g, r, s->in, out);
    for (f8_ref e = s->expiring[r]; e; e = s->next[e])
        drop(s, e);
}

/* A result may be an input whose buffer another result replaces. Such inputs are copied first. */
static void write_results(run *s, void *const *out)
{
    for (size_t i = 0; i < s->f->n_out; i++) {
        const f8_ref r = s->f->out[i].ref;
        f8_rvalue *v = s->value[r];
        if (f8_at(s->g, r)->op != F8_OP_INPUT)
            continue;
        const size_t bytes = f8_interp_bytes(&s->x, &v->type);
        void *copy = f8_arena_array(&s->arena, 1, bytes);
        if (!copy) {
            s->x.status = f8_arena_status(&s->arena, s->x.diag);
            return;
        }
        memcpy(copy, v->data, bytes);
        v->data = copy;
    }
    for (size_t i = 0; i < s->f->n_out; i++) {
        const f8_rvalue *v = s->value[s->f->out[i].ref];
        memcpy(out[i], v->data, f8_interp_bytes(&s->x, &v->type));
    }
}

static f8_status run_all(run *s, const void *const *in, void *const *out)
{
    F8_TRY(plan_lifetimes(s));
    for (size_t i = 0; i < s->f->n_in;
         i++) /* inputs are only read; the cast is needed for the shared type */
        s->value[s->f->in[i].ref][0] = (f8_rvalue){s->f->in[i].type, (void *)(uintptr_t)in[i]};
    for (f8_ref r = 1; r < s->g->n_nodes && s->x.status == F8_OK; r++)
        if (s->last[r] && f8_at(s->g, r)->op != F8_OP_INPUT)
            run_node(s, r);
    if (s->x.status == F8_OK)
        write_results(s, out);
    f8_interp_free_temps(&s->x);
    for (f8_ref r = 1; r < s->g->n_nodes; r++)
        drop(s, r);
    return s->x.status;
}

static f8_status interpret(const f8_func *f, const void *const *in, void *const *out,
                           const f8_comm *comm, const f8_allocator *allocator, bool wide,
                           f8_diag *diag)
{
    const f8_allocator own = allocator ? *allocator : f8_default_allocator();
    run s = {.x = {.allocator = &own, .diag = diag, .wide = wide, .comm = comm},
             .f = f,
             .g = f->graph};
    f8_arena_init(&s.arena, &own);
    const f8_status status = run_all(&s, in, out);
    f8_arena_end(&s.arena);
    return status;
}

f8_status f8_reference_run(const f8_func *f, const void *const *in, void *const *out,
                           const f8_allocator *allocator, f8_diag *diag)
{
    return interpret(f, in, out, NULL, allocator, false, diag);
}

f8_status f8_reference_run_rank(const f8_func *f, const void *const *in, void *const *out,
                                const f8_comm *comm, const f8_allocator *allocator, f8_diag *diag)
{
    return interpret(f, in, out, comm, allocator, false, diag);
}

f8_status f8_reference_run_f64(const f8_func *f, const void *const *in, void *const *out,
                               const f8_allocator *allocator, f8_diag *diag)
{
    return interpret(f, in, out, NULL, allocator, true, diag);
}

f8_status f8_reference_part(const f8_graph *g, f8_ref r, const f8_part *part,
                            const void *const *value, void *const *result,
                            const f8_allocator *allocator, f8_diag *diag)
{
    const f8_allocator own = allocator ? *allocator : f8_default_allocator();
    const f8_node *n = f8_at(g, r);
    f8_interp x = {.allocator = &own,
                   .diag = diag,
                   .magnitudes = part->terms != F8_TERMS,
                   .score_error = part->score_error,
                   .weight_error = part->weight_error,
                   .subnormal = part->terms == F8_TERMS_SUBNORMAL_A   ? 'a'
                                : part->terms == F8_TERMS_SUBNORMAL_B ? 'b'
                                                                      : 0,
                   .unscaled = part->terms == F8_TERMS_UNSCALED,
                   .first = part->first,
                   .at = g->loc[r]};
    f8_arena arena;
    f8_arena_init(&arena, &own);
    f8_rvalue *operand = F8_NEW_ARRAY(&arena, f8_rvalue, n->n_in), out[F8_MAX_RESULTS];
    const f8_rvalue **in = f8_arena_array(&arena, n->n_in, sizeof *in);
    f8_status status = f8_arena_status(&arena, diag);
    for (uint32_t i = 0; status == F8_OK && i < n->n_in; i++) {
        f8_type type = part->in ? part->in[i] : *f8_type_of(g, n->in[i]);
        if (n->op == F8_OP_PROJECT) /* value[0] is the result that PROJECT takes */
            type = n->type;
        operand[i] = (f8_rvalue){type, (void *)(uintptr_t)value[i]};
        in[i] = &operand[i];
    }
    if (status == F8_OK) {
        for (int i = 0; i < f8_op_facts(n->op)->results; i++)
            out[i] = (f8_rvalue){part->out ? part->out[i] : f8_result_type(g, r, i), result[i]};
        eval_node(&x, g, r, in, out);
        status = x.status;
    }
    f8_arena_end(&arena);
    return status;
}

f8_status f8_reference_node(const f8_graph *g, f8_ref r, const void *const *value,
                            void *const *result, const f8_allocator *allocator, f8_diag *diag)
{
    const f8_part all = {.terms = F8_TERMS};
    return f8_reference_part(g, r, &all, value, result, allocator, diag);
}
