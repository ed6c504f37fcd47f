/* Result types, II: GEMM, gathers, FP8 and composites. See infer.c. */
#include "ir/internal.h"
#include "ir/num/scale_layout.h"
#include "ir/place.h"

#include <math.h>
#include <string.h>

enum { M_ANY_GEMM = F8_M_F32 | F8_M_BF16 | F8_M_FP8 };

/* ---- GEMM ---- */

/* The product of operands `ia` and `ib`, as matrices, transposed as the attributes say: f32. */
static f8_status product(f8_graph *g, const f8_node *n, const char *roles, uint32_t ia, uint32_t ib,
                         bool transpose_a, bool transpose_b, f8_type *out)
{
    const f8_type *a = f8_in_type(g, n, ia), *b = f8_in_type(g, n, ib);
    if (a->rank < 1 + (int)transpose_a || b->rank < 2)
        return f8_infer_fail(g, n, roles, "both must be matrices, [.., rows, columns]");
    const f8_gemm_sizes size = f8_type_gemm(a, transpose_a, b, transpose_b);
    const int64_t kb = transpose_b ? f8_type_columns(b) : f8_type_rows(b);
    if (size.k != kb)
        return f8_infer_fail(g, n, roles, "inner sizes %lld and %lld differ%s", (long long)size.k,
                             (long long)kb,
                             n->op == F8_OP_MATMUL && a->rank > 2 && b->rank > 2
                                 ? "; batch_matmul multiplies the matrices of a batch"
                                 : "");
    *out = *a;
    out->dtype = F8_F32;
    if (transpose_a) {
        out->rank = 2;
        out->dim[0] = size.m;
    }
    out->dim[out->rank - 1] = size.n;
    return F8_OK;
}

/* Check operand `adds`, which follows operand `acc`, if there is one. */
static f8_status need_adds(f8_graph *g, const f8_node *n, const char *roles, uint32_t acc,
                           f8_dtype to)
{
    const f8_type scalar = {.dtype = F8_BOOL};
    if (n->n_in <= acc + 1)
        return F8_OK;
    if (to != F8_F32)
        return f8_infer_fail(g, n, roles, "what is added to a bf16 result is a bias, always");
    return f8_infer_need_type(g, n, roles, acc + 1, &scalar);
}

/* Set the result's dtype, and check operand `acc`, if the node has so many: added to f32 it is as
 * the result is, added before a rounding it is a bias. */
static f8_status rounded(f8_graph *g, const f8_node *n, const char *roles, uint32_t acc,
                         f8_type *out)
{
    char text[160];
    const f8_dtype to = (f8_dtype)f8_node_attr(n, F8_A_TO)->i;
    if (to != F8_F32 && to != F8_BF16)
        return f8_infer_fail(g, n, roles, "the result is f32 or bf16, not %s", f8_dtype_name(to));
    out->dtype = to;
    if (n->n_in <= acc)
        return F8_OK;
    const f8_type bias = {.dtype = F8_BF16, .rank = 1, .dim = {f8_type_columns(out)}},
                  *want = to == F8_F32 ? out : &bias;
    if (f8_type_equal(f8_in_type(g, n, acc), want))
        return need_adds(g, n, roles, acc, to);
    return f8_infer_fail(g, n, roles,
                         to == F8_F32 ? "acc must be the result's %s"
                                      : "with to = bf16 acc is a bias, which must be %s",
                         f8_type_print(want, text, sizeof text));
}

f8_gemm_operands f8_gemm_operands_of(const f8_node *n)
{
    const bool scaled = n->op == F8_OP_SCALED_MATMUL;
    const uint32_t at = f8_gemm_added(n->op);
    f8_gemm_operands o = {.a = n->in[0], .b = n->in[f8_gemm_b(n->op)]};
    if (scaled) {
        o.a_scale = n->in[1];
        o.b_scale = n->in[3];
    }
    if (n->n_in > at)
        *(n->type.dtype == F8_F32 ? &o.acc : &o.bias) = n->in[at];
    if (n->n_in > at + 1)
        o.adds = n->in[at + 1];
    return o;
}

bool f8_gemm_reads_acc(const f8_module *m, const f8_gemm_operands *o)
{
    return o->acc && (!o->adds || m->accumulate > 1);
}

f8_ref f8_counted(const f8_func *f, const f8_graph *g, f8_ref adds)
{
    const f8_node *n = f8_at(g, adds);
    if (n->op != F8_OP_LT)
        return 0;
    const f8_node *zero = f8_at(g, n->in[0]), *count = f8_at(g, n->in[1]);
    if (zero->op != F8_OP_CONST || f8_node_attr(zero, F8_A_VALUE)->f != 0 ||
        count->op != F8_OP_INPUT)
        return 0;
    const f8_port *p = &f->in[f8_node_attr(count, F8_A_INDEX)->i];
    return p->var >= 0 && !strcmp(p->name, F8_COUNT_NAME) ? n->in[1] : 0;
}

f8_status f8_infer_matmul(f8_graph *g, const f8_node *n, f8_type *out)
{
    const char *roles = f8_op_facts(n->op)->operands;
    f8_dtype a = f8_in_type(g, n, 0)->dtype, b = f8_in_type(g, n, 1)->dtype;
    F8_TRY(f8_need_dtype(g, n, roles, 0, M_ANY_GEMM));
    F8_TRY(f8_need_dtype(g, n, roles, 1, M_ANY_GEMM));
    /* the dtypes that are multiplied: an f32 operand may be rounded as it is read */
    f8_dtype as = f8_node_attr(n, F8_A_ROUND_A)->i ? F8_BF16 : a;
    f8_dtype bs = f8_node_attr(n, F8_A_ROUND_B)->i ? F8_BF16 : b;
    if (as != bs && !(f8_dtype_is_fp8(a) && f8_dtype_is_fp8(b)))
        return f8_infer_fail(g, n, roles, "dtypes %s and %s differ; cast one", f8_dtype_name(a),
                             f8_dtype_name(b));
    if ((f8_node_attr(n, F8_A_ROUND_A)->i && a != F8_F32) ||
        (f8_node_attr(n, F8_A_ROUND_B)->i && b != F8_F32))
        return f8_infer_fail(g, n, roles, "only an f32 operand can be rounded on the way in");
    F8_TRY(product(g, n, roles, 0, 1, f8_node_attr(n, F8_A_TRANSPOSE_A)->i,
                   f8_node_attr(n, F8_A_TRANSPOSE_B)->i, out));
    return rounded(g, n, roles, 2, out);
}

/* The leading axes of the result: those of a and b, which broadcast as NumPy's do. */
static f8_status batch_axes(f8_graph *g, const f8_node *n, const char *roles, f8_type *out)
{
    const f8_type *a = f8_in_type(g, n, 0), *b = f8_in_type(g, n, 1);
    out->rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 0; i + 2 < out->rank; i++) {
        const int ia = i - (out->rank - a->rank), ib = i - (out->rank - b->rank);
        const int64_t x = ia < 0 ? 1 : a->dim[ia], y = ib < 0 ? 1 : b->dim[ib];
        if (x != y && x != 1 && y != 1)
            return f8_infer_fail(g, n, roles, "sizes %lld and %lld of a batch differ; one may be 1",
                                 (long long)x, (long long)y);
        out->dim[i] = x == 1 ? y : x;
    }
    return F8_OK;
}

f8_status f8_infer_batch_matmul(f8_graph *g, const f8_node *n, f8_type *out)
{
    const char *roles = f8_op_facts(n->op)->operands;
    const f8_type *a = f8_in_type(g, n, 0), *b = f8_in_type(g, n, 1);
    f8_type one[2], product_type;
    F8_TRY(f8_need_dtype(g, n, roles, 0, F8_M_F32 | F8_M_BF16));
    F8_TRY(f8_need_dtype(g, n, roles, 1, F8_M_F32 | F8_M_BF16));
    if (a->dtype != b->dtype)
        return f8_infer_fail(g, n, roles, "dtypes %s and %s differ; cast one",
                             f8_dtype_name(a->dtype), f8_dtype_name(b->dtype));
    if (a->rank < 2 || b->rank < 2)
        return f8_infer_fail(g, n, roles, "both must be matrices, [.., rows, columns]");
    f8_type_batch(a, &one[0]);
    f8_type_batch(b, &one[1]);
    const bool ta = f8_node_attr(n, F8_A_TRANSPOSE_A)->i, tb = f8_node_attr(n, F8_A_TRANSPOSE_B)->i;
    const f8_gemm_sizes size = f8_type_gemm(&one[0], ta, &one[1], tb);
    const int64_t kb = one[1].dim[tb ? 1 : 0];
    if (size.k != kb)
        return f8_infer_fail(g, n, roles, "inner sizes %lld and %lld differ", (long long)size.k,
                             (long long)kb);
    product_type = (f8_type){.dtype = F8_F32};
    F8_TRY(batch_axes(g, n, roles, &product_type));
    product_type.dim[product_type.rank - 2] = size.m;
    product_type.dim[product_type.rank - 1] = size.n;
    *out = product_type;
    return rounded(g, n, roles, 2, out);
}

static f8_status granularity_of(f8_graph *g, const f8_node *n, f8_attr_key key, f8_granularity *out)
{
    const char *text = f8_node_attr(n, key)->s;
    if (f8_granularity_parse(text, out))
        return F8_OK;
    return f8_infer_fail(g, n, NULL,
                         "%s = \"%.60s\" is none of tensor, row, column and block(ROWS,COLUMNS)",
                         f8_attr_name(key), text);
}

/* Check the scales of operand `iq` of a scaled_matmul, which are the operand after it. */
static f8_status scales_ok(f8_graph *g, const f8_node *n, const char *roles, uint32_t iq,
                           f8_attr_key key, bool k_is_rows)
{
    f8_granularity s;
    F8_TRY(granularity_of(g, n, key, &s));
    const int64_t along_k = k_is_rows ? s.rows : s.cols, across = k_is_rows ? s.cols : s.rows;
    if (along_k == 1 || (along_k && !across))
        return f8_infer_fail(
            g, n, roles,
            "%s = \"%s\": a GEMM takes one scale for the tensor, one for each row of "
            "its result, or one for each block along k",
            f8_attr_name(key), f8_node_attr(n, key)->s);
    const f8_dtype dtype = f8_in_type(g, n, iq + 1)->dtype;
    if (dtype != F8_F32 && dtype != F8_E8M0)
        return f8_infer_fail(g, n, roles, "operand %u must be f32 or f8e8m0, not %s", iq + 2,
                             f8_dtype_name(dtype));
    const f8_scales scales = {.grain = s, .dtype = dtype, .k_is_rows = k_is_rows};
    f8_scale_layout layout;
    f8_type want;
    const char *text = f8_node_attr(n, F8_A_SCALE_LAYOUT)->s;
    if (!f8_scale_layout_parse(text, &layout))
        return f8_infer_fail(g, n, NULL, "scale_layout = \"%.60s\" is neither grid nor cublaslt",
                             text);
    if (!f8_scale_layout_type(layout, &scales, f8_in_type(g, n, iq), &want))
        return f8_infer_fail(
            g, n, roles,
            "%s = \"%s\": with scale_layout = \"cublaslt\" f8e8m0 scales must be runs along k",
            f8_attr_name(key), f8_node_attr(n, key)->s);
    return f8_infer_need_type(g, n, roles, iq + 1, &want);
}

f8_status f8_infer_scaled_matmul(f8_graph *g, const f8_node *n, f8_type *out)
{
    const char *roles = f8_op_facts(n->op)->operands;
    const bool ta = f8_node_attr(n, F8_A_TRANSPOSE_A)->i, tb = f8_node_attr(n, F8_A_TRANSPOSE_B)->i;
    F8_TRY(f8_need_dtype(g, n, roles, 0, F8_M_FP8));
    F8_TRY(f8_need_dtype(g, n, roles, 2, F8_M_FP8));
    F8_TRY(product(g, n, roles, 0, 2, ta, tb, out));
    F8_TRY(scales_ok(g, n, roles, 0, F8_A_SCALE_A, ta));
    F8_TRY(scales_ok(g, n, roles, 2, F8_A_SCALE_B, !tb));
    if (f8_in_type(g, n, 1)->dtype != f8_in_type(g, n, 3)->dtype)
        return f8_infer_fail(g, n, roles, "a_inv and b_inv must have the same dtype");
    return rounded(g, n, roles, 4, out);
}

/* Operand `i` must be a vector of `size` elements, f32. */
static f8_status need_vector(f8_graph *g, const f8_node *n, const char *roles, uint32_t i,
                             int64_t size)
{
    const f8_type *t = f8_in_type(g, n, i);
    F8_TRY(f8_need_dtype(g, n, roles, i, F8_M_F32 | F8_M_BF16));
    if (t->rank != 1 || t->dim[0] != size)
        return f8_infer_fail(g, n, roles, "operand %u must be f32[%lld]", i + 1, (long long)size);
    return F8_OK;
}

f8_status f8_infer_linear(f8_graph *g, const f8_node *n, f8_type *out)
{
    const char *roles = f8_op_facts(n->op)->operands;
    F8_TRY(f8_need_dtype(g, n, roles, 0, F8_M_F32));
    F8_TRY(f8_need_dtype(g, n, roles, 1, F8_M_F32 | F8_M_BF16));
    if (f8_in_type(g, n, 1)->rank != 2)
        return f8_infer_fail(g, n, roles, "w must be a matrix");
    F8_TRY(product(g, n, roles, 0, 1, false, f8_node_attr(n, F8_A_TRANSPOSE_B)->i, out));
    return n->n_in == 3 ? need_vector(g, n, roles, 2, f8_type_columns(out)) : F8_OK;
}

/* ---- gather ---- */

/* table [V, C] and ids [..] give [.., C]. */
static f8_status rows_by_id(f8_graph *g, const f8_node *n, const char *roles, f8_type *out)
{
    const f8_type *table = f8_in_type(g, n, 0), *ids = f8_in_type(g, n, 1);
    const unsigned also = n->op == F8_OP_EMBEDDING ? F8_M_BF16 : 0;
    F8_TRY(f8_need_dtype(g, n, roles, 0, F8_M_F32 | also));
    F8_TRY(f8_need_dtype(g, n, roles, 1, F8_M_I32 | F8_M_I64));
    if (table->rank != 2 || ids->rank >= F8_MAX_RANK)
        return f8_infer_fail(g, n, roles, "the table must be [V, C], the ids of at most %d axes",
                             F8_MAX_RANK - 1);
    *out = *ids;
    out->dtype = F8_F32;
    out->dim[out->rank++] = table->dim[1];
    return F8_OK;
}

f8_status f8_infer_embedding(f8_graph *g, const f8_node *n, f8_type *out)
{
    F8_TRY(rows_by_id(g, n, f8_op_facts(n->op)->operands, out));
    const int64_t padding = f8_node_attr(n, F8_A_PADDING)->i, rows = f8_in_type(g, n, 0)->dim[0];
    if (padding < -1 || padding >= rows)
        return f8_infer_fail(g, n, NULL, "padding = %lld is no row of the table, which has %lld",
                             (long long)padding, (long long)rows);
    return F8_OK;
}

f8_status f8_infer_embedding_grad(f8_graph *g, const f8_node *n, f8_type *out)
{
    const char *roles = f8_op_facts(n->op)->operands;
    f8_type dy;
    char text[160];
    F8_TRY(rows_by_id(g, n, roles, &dy));
    if (!f8_type_equal(f8_in_type(g, n, 2), &dy))
        return f8_infer_fail(g, n, roles, "dy must be %s", f8_type_print(&dy, text, sizeof text));
    *out = *f8_in_type(g, n, 0);
    return F8_OK;
}

/* ---- FP8 ---- */

static f8_status need_format(f8_graph *g, const f8_node *n, bool or_e8m0, f8_dtype *format)
{
    *format = (f8_dtype)f8_node_attr(n, F8_A_FORMAT)->i;
    if (f8_dtype_is_fp8(*format) || (or_e8m0 && *format == F8_E8M0))
        return F8_OK;
    return f8_infer_fail(g, n, NULL, "format = %s is neither f8e4m3 nor f8e5m2%s",
                         f8_dtype_name(*format), or_e8m0 ? " nor f8e8m0" : "");
}

f8_status f8_infer_amax(f8_graph *g, const f8_node *n, f8_type *out)
{
    f8_granularity s;
    F8_TRY(f8_need_dtype(g, n, NULL, 0, F8_M_F32 | F8_M_BF16));
    F8_TRY(granularity_of(g, n, F8_A_GRANULARITY, &s));
    if (!f8_in_type(g, n, 0)->rank && (s.rows || s.cols))
        return f8_infer_fail(g, n, NULL, "a scalar has no rows and columns");
    *out = f8_granularity_type(s, f8_in_type(g, n, 0), F8_F32);
    return F8_OK;
}

f8_status f8_infer_fp8_scale(f8_graph *g, const f8_node *n, f8_type *out)
{
    const char *roles = f8_op_facts(n->op)->operands;
    f8_dtype format;
    F8_TRY(need_format(g, n, false, &format));
    for (uint32_t i = 0; i < n->n_in; i++)
        F8_TRY(f8_need_dtype(g, n, roles, i, F8_M_F32));
    *out = *f8_in_type(g, n, 0);
    if (n->n_in == 2 && !f8_type_equal(f8_in_type(g, n, 1), out))
        return f8_infer_fail(g, n, roles, "amax and previous must have the same shape");
    return F8_OK;
}

/* Operand 1 must have a number for each block of operand 0, or broadcast to it. */
static f8_status scale_fits(f8_graph *g, const f8_node *n, const char *roles)
{
    const f8_type *x = f8_in_type(g, n, 0), *s = f8_in_type(g, n, 1);
    f8_granularity grain;
    if (strcmp(f8_node_attr(n, F8_A_GRANULARITY)->s, "broadcast")) {
        F8_TRY(granularity_of(g, n, F8_A_GRANULARITY, &grain));
        if (!f8_granularity_has_blocks(grain) || !x->rank)
            return f8_infer_fail(g, n, roles,
                                 "granularity must be block(ROWS,COLUMNS) of a matrix: other "
                                 "scales broadcast and need none");
        const f8_type want = f8_granularity_type(grain, x, s->dtype);
        return f8_infer_need_type(g, n, roles, 1, &want);
    }
    bool fits = s->rank <= x->rank;
    for (int i = 1; fits && i <= s->rank; i++)
        fits = s->dim[s->rank - i] == 1 || s->dim[s->rank - i] == x->dim[x->rank - i];
    return fits ? F8_OK : f8_infer_fail(g, n, roles, "the scale does not broadcast");
}

f8_status f8_infer_quantize(f8_graph *g, const f8_node *n, f8_type *out)
{
    const char *roles = f8_op_facts(n->op)->operands;
    f8_dtype format;
    F8_TRY(need_format(g, n, true, &format));
    F8_TRY(f8_need_dtype(g, n, roles, 0, F8_M_F32 | F8_M_BF16));
    F8_TRY(f8_need_dtype(g, n, roles, 1, F8_M_F32));
    *out = *f8_in_type(g, n, 0);
    out->dtype = format;
    return scale_fits(g, n, roles);
}

f8_status f8_infer_dequantize(f8_graph *g, const f8_node *n, f8_type *out)
{
    const char *roles = f8_op_facts(n->op)->operands;
    F8_TRY(f8_need_dtype(g, n, roles, 0, F8_M_FP8));
    F8_TRY(f8_need_dtype(g, n, roles, 1, F8_M_F32 | 1 << F8_E8M0));
    *out = *f8_in_type(g, n, 0);
    out->dtype = F8_F32;
    return scale_fits(g, n, roles);
}

f8_status f8_infer_history_push(f8_graph *g, const f8_node *n, f8_type *out)
{
    const char *roles = f8_op_facts(n->op)->operands;
    const f8_type *h = f8_in_type(g, n, 0);
    F8_TRY(f8_need_dtype(g, n, roles, 0, F8_M_F32));
    F8_TRY(f8_need_dtype(g, n, roles, 1, F8_M_F32));
    f8_type row = *h;
    if (h->rank > 0)
        row.rank--;
    if (h->rank == 0 || !f8_type_same_shape(&row, f8_in_type(g, n, 1)))
        return f8_infer_fail(g, n, roles, "the amax must have the history's axes but the last");
    *out = *h;
    return F8_OK;
}

/* ---- composites ---- */

f8_status f8_infer_norm(f8_graph *g, const f8_node *n, f8_type *out)
{
    const char *roles = f8_op_facts(n->op)->operands;
    double eps = f8_node_attr(n, F8_A_EPS)->f;
    F8_TRY(f8_need_dtype(g, n, roles, 0, F8_M_F32));
    *out = *f8_in_type(g, n, 0);
    if (out->rank == 0)
        return f8_infer_fail(g, n, roles, "a scalar has no last axis");
    for (uint32_t i = 1; i < n->n_in; i++)
        F8_TRY(need_vector(g, n, roles, i, f8_type_columns(out)));
    if (!isfinite(eps) || eps < 0)
        return f8_infer_fail(g, n, roles, "eps = %g must be finite and not negative", eps);
    return F8_OK;
}

f8_status f8_infer_rope(f8_graph *g, const f8_node *n, f8_type *out)
{
    F8_TRY(f8_need_dtype(g, n, NULL, 0, F8_M_F32));
    *out = *f8_in_type(g, n, 0);
    int64_t heads = f8_node_attr(n, F8_A_HEADS)->i, columns = f8_type_columns(out);
    if (out->rank < 2)
        return f8_infer_fail(g, n, NULL, "must be [.., positions, heads * size]");
    if (heads < 1 || columns % heads || columns / heads % 2)
        return f8_infer_fail(g, n, NULL, "%lld columns are not %lld heads of even size",
                             (long long)columns, (long long)heads);
    return f8_infer_rope_table(g, n);
}

static f8_status targets_ok(f8_graph *g, const f8_node *n, const char *roles)
{
    f8_type rows = *f8_in_type(g, n, 0);
    F8_TRY(f8_need_dtype(g, n, roles, 0, F8_M_F32));
    F8_TRY(f8_need_dtype(g, n, roles, 1, F8_M_I32 | F8_M_I64));
    if (rows.rank > 0)
        rows.rank--;
    if (f8_in_type(g, n, 0)->rank == 0 || !f8_type_same_shape(&rows, f8_in_type(g, n, 1)))
        return f8_infer_fail(g, n, roles, "the targets must have the logits' axes but the last");
    return F8_OK;
}

/* A cast makes the nearest i32 of an i64 target, so the least and the greatest i32 each stand for
 * many targets. */
static f8_status ignore_ok(f8_graph *g, const f8_node *n)
{
    const int64_t ignore = f8_node_attr(n, F8_A_IGNORE)->i, none = (int64_t)INT32_MAX + 1;
    if (f8_in_type(g, n, 1)->dtype != F8_I64 || ignore == none ||
        (ignore > INT32_MIN && ignore < INT32_MAX))
        return F8_OK;
    return f8_infer_fail(g, n, NULL, "ignore must be -2147483647 to 2147483646, not %lld",
                         (long long)ignore);
}

/* The type of the loss. */
static f8_status loss_type(f8_graph *g, const f8_node *n, const char *roles, f8_type *out)
{
    const char *reduction = f8_node_attr(n, F8_A_REDUCTION)->s;
    const double smoothing = f8_node_attr(n, F8_A_LABEL_SMOOTHING)->f;
    F8_TRY(targets_ok(g, n, roles));
    *out = (f8_type){.dtype = F8_F32};
    if (!strcmp(reduction, "none")) {
        *out = *f8_in_type(g, n, 1);
        out->dtype = F8_F32;
    } else if (strcmp(reduction, "mean") && strcmp(reduction, "sum")) {
        return f8_infer_fail(g, n, NULL, "reduction is \"mean\", \"sum\" or \"none\", not \"%s\"",
                             reduction);
    }
    F8_TRY(ignore_ok(g, n));
    if (!(smoothing >= 0 && smoothing <= 1))
        return f8_infer_fail(g, n, NULL, "label_smoothing must be 0 to 1, not %g", smoothing);
    return F8_OK;
}

f8_status f8_infer_cross_entropy(f8_graph *g, const f8_node *n, f8_type *out)
{
    return loss_type(g, n, f8_op_facts(n->op)->operands, out);
}

f8_status f8_infer_cross_entropy_grad(f8_graph *g, const f8_node *n, f8_type *out)
{
    const char *roles = f8_op_facts(n->op)->operands;
    f8_type loss;
    F8_TRY(loss_type(g, n, roles, &loss));
    F8_TRY(f8_infer_need_type(g, n, roles, 2, &loss));
    *out = *f8_in_type(g, n, 0);
    return F8_OK;
}
