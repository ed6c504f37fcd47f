/* A GEMM group is one step, or two (f8_lowered_split). If its accumulator lies elsewhere, a copy
 * step precedes it. */
#include "codegen/plan/parts.h"

static int64_t row_stride(const f8_build *b, f8_ref r)
{
    const f8_type *t = f8_build_type(b, r);
    const int64_t columns = f8_type_columns(t), stride = f8_build_place(b, r)->stride;
    return f8_type_rows(t) == 1 && stride < columns ? columns : stride;
}

/* How many elements lie between the starts of two matrices of a batch. 0: all products read the
 * same matrix. */
static int64_t batch_stride(const f8_type *t, int64_t row)
{
    f8_type matrix;
    return f8_type_batch(t, &matrix) > 1 ? matrix.dim[0] * row : 0;
}

static f8_gemm_desc describe(const f8_build *b, f8_ref r, const f8_gemm_operands *o)
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
        .bias = o->bias != 0,
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
    if (size.batch > 1) {
        d.batch = size.batch;
        d.stride_a = batch_stride(x, d.lda);
        d.stride_b = batch_stride(y, d.ldb);
        d.stride_c = d.m * d.ldc;
    }
    return d;
}

/* A matrix of a GEMM, or rows of it: where it lies, with its padding. */
typedef struct matrix {
    f8_place place;
    f8_type type;
} matrix;

static matrix matrix_of(const f8_build *b, f8_ref r, bool batch)
{
    const f8_type *t = f8_build_type(b, r);
    const f8_pad none = {0}, *pad = b->func->lowered->pad ? &b->func->lowered->pad[r] : &none;
    matrix m = {*f8_build_place(b, r), *t};
    if (batch) /* it computes with no padding */
        return m;
    if (pad->rows || pad->cols)
        m.type =
            (f8_type){t->dtype, 2, {f8_type_rows(t) + pad->rows, f8_type_columns(t) + pad->cols}};
    return m;
}

/* Elements [begin, begin + size) along an axis, 0 or 1. */
static void cut(matrix *m, int axis, int64_t begin, int64_t size)
{
    const int64_t rows = f8_type_rows(&m->type), columns = f8_type_columns(&m->type);
    m->place.offset += begin * (axis ? 1 : m->place.stride) * (int64_t)f8_dtype_size(m->type.dtype);
    m->type = (f8_type){m->type.dtype, 2, {axis ? rows : size, axis ? size : columns}};
}

static f8_status add_operand(f8_build *b, f8_step *s, uint32_t index, f8_ref r, const matrix *m,
                             bool write)
{
    if (m->place.space == F8_SPACE_NONE)
        return f8_build_broken(b, r, "this operand or result of a GEMM has no place in memory");
    s->arg[index] = f8_build_arg(b, &m->place);
    return f8_type_equal(&m->type, f8_build_type(b, r))
               ? f8_build_add_access(b, &m->place, r, write)
               : f8_build_add_access_part(b, &m->place, r, &m->type, write);
}

/* Adds scales or a bias, `r`, as argument `index`; 0: the product has none. Unlike the matrices it
 * is read without padding, and rename.c may move it. */
static f8_status add_whole(f8_build *b, f8_step *s, uint32_t index, f8_ref r)
{
    if (!r)
        return F8_OK;
    const matrix m = {*f8_build_place(b, r), *f8_build_type(b, r)};
    s->bytes_read += f8_type_bytes(&m.type);
    F8_TRY(add_operand(b, s, index, r, &m, false));
    f8_step_builder *d = f8_build_last(b);
    d->access[d->n_accesses - 1].arg = index + 1;
    return F8_OK;
}

/* Adds what says whether C holds anything. On CUDA that is the count itself, which the host knows
 * before the function begins. */
static f8_status add_adds(f8_build *b, f8_step *s, f8_ref adds)
{
    if (!adds || b->facts->kind != F8_TARGET_CUDA)
        return add_whole(b, s, F8_GEMM_ADDS, adds);
    const f8_ref count = f8_counted(b->func, b->func->graph, adds);
    if (!count)
        return f8_build_broken(b, adds, "the host can't know whether this GEMM adds to its result");
    s->arg[F8_GEMM_ADDS] = f8_build_arg(b, f8_build_place(b, count));
    return F8_OK;
}

/* The step that makes rows [begin, begin + d->m) of the result. */
static f8_status gemm_step(f8_build *b, const f8_group *g, f8_ref r, const f8_gemm_operands *o,
                           f8_gemm_desc d, int64_t begin, bool part)
{
    const bool batch = f8_at(b->func->graph, r)->op == F8_OP_BATCH_MATMUL;
    matrix x = matrix_of(b, o->a, batch), y = matrix_of(b, o->b, batch), z = matrix_of(b, r, batch);
    if (part) {
        cut(&x, d.trans_a ? 1 : 0, begin, d.m);
        cut(&z, 0, begin, d.m);
    }
    F8_TRY(b->target->gemm(b, r, &d));
    f8_step *s = f8_build_step(b, F8_STEP_GEMM, g->name, F8_GEMM_ARGS, 0);
    if (!s)
        return f8_build_memory(b);
    s->gemm = d;
    F8_TRY(f8_build_choose_gemm(b, s->name, &s->gemm, &s->choice));
    s->fp8 = f8_dtype_is_fp8(d.a) && f8_dtype_is_fp8(d.b);
    s->branch = g->beside;
    F8_TRY(add_operand(b, s, F8_GEMM_A, o->a, &x, false));
    F8_TRY(add_operand(b, s, F8_GEMM_B, o->b, &y, false));
    F8_TRY(add_operand(b, s, F8_GEMM_C, r, &z, true));
    f8_build_last(b)->access[2].adds = o->acc != 0;
    F8_TRY(add_whole(b, s, F8_GEMM_SCALE_A, o->a_scale));
    F8_TRY(add_whole(b, s, F8_GEMM_SCALE_B, o->b_scale));
    F8_TRY(add_whole(b, s, F8_GEMM_BIAS, o->bias));
    F8_TRY(add_adds(b, s, o->adds));
    s->bytes_written = f8_type_bytes(&z.type);
    s->bytes_read += f8_type_bytes(&x.type) + f8_type_bytes(&y.type) +
                     (f8_gemm_reads_acc(b->module, o) ? s->bytes_written : 0);
    return F8_OK;
}

f8_status f8_build_gemm(f8_build *b, const f8_group *g)
{
    const f8_ref r = f8_build_only_node(g);
    const f8_gemm_operands o = f8_gemm_operands_of(f8_at(b->func->graph, r));
    f8_gemm_desc d = describe(b, r, &o);
    const f8_gemm_sizes size = {d.m, d.n, d.k, f8_gemm_batch(&d)};
    const int64_t m = d.m, first = f8_lowered_split(b->func->graph, b->facts, r, &size);
    if (o.acc)
        F8_TRY(f8_build_copy_operand(b, g, o.acc, r));
    d.m = first;
    F8_TRY(gemm_step(b, g, r, &o, d, 0, first < m));
    d.m = m - first;
    return d.m ? gemm_step(b, g, r, &o, d, first, true) : F8_OK;
}
