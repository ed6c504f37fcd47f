/* A GEMM group is one step. If its accumulator lies elsewhere, a copy step precedes it. */
#include "codegen/plan/parts.h"

static int64_t row_stride(const f8_build *b, f8_ref r)
{
    const f8_type *t = f8_build_type(b, r);
    const int64_t columns = f8_type_columns(t), stride = f8_build_place(b, r)->stride;
    return f8_type_rows(t) == 1 && stride < columns ? columns : stride;
}

typedef struct operands {
    f8_ref a, b, a_scale, b_scale, acc; /* scales and accumulator: 0 if there is none */
} operands;

static operands operands_of(const f8_node *n)
{
    if (n->op == F8_OP_SCALED_MATMUL)
        return (operands){n->in[0], n->in[2], n->in[1], n->in[3], n->n_in > 4 ? n->in[4] : 0};
    return (operands){n->in[0], n->in[1], 0, 0, n->n_in > 2 ? n->in[2] : 0};
}

static f8_gemm_desc describe(const f8_build *b, f8_ref r, const operands *o)
{
    const f8_graph *graph = b->func->graph;
    const f8_type *x = f8_build_type(b, o->a), *y = f8_build_type(b, o->b);
    f8_gemm_desc d = {
        .trans_a = f8_attr_i(graph, r, F8_A_TRANSPOSE_A) != 0,
        .trans_b = f8_attr_i(graph, r, F8_A_TRANSPOSE_B) != 0,
        .round_a = f8_attr_i(graph, r, F8_A_ROUND_A) != 0 && x->dtype == F8_F32,
        .round_b = f8_attr_i(graph, r, F8_A_ROUND_B) != 0 && y->dtype == F8_F32,
        .a = x->dtype,
        .b = y->dtype,
        .c = f8_build_type(b, r)->dtype,
        .accumulate = o->acc != 0,
        .has_alpha = o->a_scale != 0,
        .lda = row_stride(b, o->a),
        .ldb = row_stride(b, o->b),
        .ldc = row_stride(b, r),
    };
    if (d.has_alpha) { /* inference has checked the texts */
        f8_granularity_parse(f8_attr_s(graph, r, F8_A_SCALE_A), &d.scale_a);
        f8_granularity_parse(f8_attr_s(graph, r, F8_A_SCALE_B), &d.scale_b);
        d.scale = f8_build_type(b, o->a_scale)->dtype;
        f8_scale_layout_parse(f8_attr_s(graph, r, F8_A_SCALE_LAYOUT), &d.scale_layout);
    }
    const f8_gemm_sizes size = f8_lowered_gemm(graph, b->func->lowered, r);
    d.m = size.m;
    d.n = size.n;
    d.k = size.k;
    return d;
}

static f8_status operand(f8_build *b, f8_step *s, uint32_t index, f8_ref r, bool write)
{
    if (!r)
        return F8_OK;
    const f8_place *p = f8_build_place(b, r);
    if (p->space == F8_SPACE_NONE)
        return f8_build_broken(b, r, "this operand or result of a GEMM has no place in memory");
    s->arg[index] = f8_build_arg(b, p);
    const f8_pad *pad = b->func->lowered->pad ? &b->func->lowered->pad[r] : NULL;
    if (!pad || !(pad->rows || pad->cols))
        return f8_build_add_access(b, p, r, write);
    f8_type t = *f8_build_type(b, r);
    t = (f8_type){t.dtype, 2, {f8_type_rows(&t) + pad->rows, f8_type_columns(&t) + pad->cols}};
    return f8_build_add_access_part(b, p, r, &t, write);
}

f8_status f8_build_gemm(f8_build *b, const f8_group *g)
{
    const f8_ref r = f8_build_only_node(g);
    const f8_node *n = f8_at(b->func->graph, r);
    const operands o = operands_of(n);
    f8_gemm_desc d = describe(b, r, &o);
    F8_TRY(b->target->gemm(b, r, &d));
    if (o.acc)
        F8_TRY(f8_build_copy_operand(b, g, o.acc, r));
    f8_step *s = f8_build_step(b, F8_STEP_GEMM, g->name, 5, 0);
    if (!s)
        return f8_build_memory(b);
    s->gemm = d;
    F8_TRY(f8_build_choose_gemm(b, s->name, &s->gemm, &s->choice));
    s->fp8 = f8_dtype_is_fp8(d.a) && f8_dtype_is_fp8(d.b);
    F8_TRY(operand(b, s, 0, o.a, false));
    F8_TRY(operand(b, s, 1, o.b, false));
    F8_TRY(operand(b, s, 2, r, true));
    f8_build_last(b)->access[2].adds = o.acc != 0;
    F8_TRY(operand(b, s, 3, o.a_scale, false));
    F8_TRY(operand(b, s, 4, o.b_scale, false));
    s->bytes_written = f8_type_bytes(&n->type);
    s->bytes_read = f8_type_bytes(f8_build_type(b, o.a)) + f8_type_bytes(f8_build_type(b, o.b)) +
                    (o.a_scale ? f8_type_bytes(f8_build_type(b, o.a_scale)) +
                                     f8_type_bytes(f8_build_type(b, o.b_scale))
                               : 0) +
                    (o.acc ? s->bytes_written : 0);
    return F8_OK;
}
