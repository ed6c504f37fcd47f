/* The judge: products. One bound for all of them, whatever the dtypes, scales and target. */
#include <math.h>

#include "codegen/reference/judge_parts.h"
#include "codegen/reference/reference.h"
#include "ir/lowered.h"
#include "ir/num/fp8.h"
#include "ir/num/scale_layout.h"

/* What a sum of k products may be off by, over the sum of their magnitudes. In f32, in any order
 * and grouping, (k + 1) u (Higham, Accuracy and Stability, 3.1), alpha and acc by 3 more roundings,
 * scales that multiply the operands by 2. Tensor cores cut off where others round: twice that.
 * Their FP8 sums on Hopper keep about 13 bits below the largest of the addends that meet in one
 * instruction, 32 products and the sum so far (DeepSeek-V3, arXiv 2412.19437, 3.3.2): 33 * 2^-13 of
 * their magnitude each time; cuBLASLt moves to f32 every 128 of k, which are 4 such times for each
 * part. */
static double sum_error(f8_sums sums, bool fp8, double k)
{
    if (sums != F8_SUMS_GPU)
        return (k + 6) * F8_U;
    return 2 * (k + 6) * F8_U + (fp8 ? 4 * 33 * 0x1p-13 : 0);
}

/* The scales of an operand; k and `outer` are the axes of the product that it has. */
typedef struct scales {
    f8_scales of;
    f8_scale_layout layout;
    const f8_type *codes;
    f8_rvalue data;
    int64_t outer, k;
    bool along;       /* they differ along k: elements are multiplied by them before the sum */
    double low, high; /* of the magnitudes that are finite and not 0 */
    double *most;     /* the largest finite one, by outer */
} scales;

/* A product whose rows are judged in parts, so that neither their right values nor their bounds are
 * ever held whole. */
typedef struct parts {
    f8_ref product;
    bool loses[2]; /* A and B: has factors that are subnormal */
    bool far;      /* scaled, and what is computed on the way may not be a normal f32 */
    bool free;     /* scaled, in an order that is not known */
    double relative, error, absolute;
    scales side[2];
    f8_arena arena; /* for all parts */
} parts;

/* ---- scales ---- */

/* Scales within it make no factor, sum or product of scales that is subnormal or overflows: codes
 * are 2^-16 to 2^16, and k is below 2^31. */
static const double NEAR = 0x1p60;

static f8_status measure(f8_judging *j, parts *p, int side)
{
    scales *s = &p->side[side];
    s->most = F8_NEW_ARRAY(&p->arena, double, (size_t)s->outer);
    F8_TRY(f8_arena_status(&p->arena, j->diag));
    const int64_t along = f8_scales_along_k(&s->of), step = along ? along : s->k;
    s->low = INFINITY;
    for (int64_t o = 0; o < s->outer; o++)
        for (int64_t k = 0; k < s->k; k += step) {
            const double x =
                fabs(f8_judge_at(&s->data, f8_scale_layout_at(s->layout, &s->of, s->codes, o, k)));
            if (!isfinite(x) || x == 0)
                continue;
            s->most[o] = x > s->most[o] ? x : s->most[o];
            s->high = x > s->high ? x : s->high;
            s->low = x < s->low ? x : s->low;
        }
    return F8_OK;
}

static f8_status read_scales(f8_judging *j, parts *p, int side)
{
    const f8_node *n = f8_at(j->g, p->product);
    const f8_gemm_sizes size = f8_gemm_sizes_of(j->g, p->product);
    const uint32_t at = side ? 2 : 0;
    scales *s = &p->side[side];
    s->codes = f8_type_of(j->g, n->in[at]);
    s->data = f8_judge_view(f8_type_of(j->g, n->in[at + 1]), j->operand[at + 1]);
    s->outer = side ? size.n : size.m;
    s->k = size.k;
    s->of.dtype = s->data.type.dtype;
    s->of.k_is_rows = side ? !f8_attr_i(j->g, p->product, F8_A_TRANSPOSE_B)
                           : f8_attr_i(j->g, p->product, F8_A_TRANSPOSE_A) != 0;
    f8_granularity_parse(f8_attr_s(j->g, p->product, side ? F8_A_SCALE_B : F8_A_SCALE_A),
                         &s->of.grain); /* inference has checked the texts */
    f8_scale_layout_parse(f8_attr_s(j->g, p->product, F8_A_SCALE_LAYOUT), &s->layout);
    const int64_t along = f8_scales_along_k(&s->of);
    s->along = along && along < s->k;
    F8_TRY(measure(j, p, side));
    p->loses[side] = s->along && s->low * 0x1p-16 < (double)FLT_MIN;
    p->far |= s->low < 1 / NEAR || s->high > NEAR;
    return F8_OK;
}

/* ---- what scales add to a bound ---- */

/* `codes` is the sum of magnitudes of a result's terms without scales, a and b are the largest
 * scales of its row and its column. An element times its scale may overflow. The CPU computes the
 * rest in an order that neither overflows nor loses anything (f8_scales_product), unless one
 * operand alone is scaled before the sum. In other targets we don't know the order: they may
 * multiply the sum of each block of k by either scale first, or one scale by the other, and what
 * is below 2^-126 may become zero there. Inf: there is no bound. */
static double lost_by_scales(const parts *p, int64_t row, int64_t column, double codes)
{
    const scales *const s = p->side;
    const double top[2] = {s[0].most[row], s[1].most[column]};
    for (int side = 0; side < 2; side++) {
        const double largest = (double)f8_dtype_max(s[side].codes->dtype);
        const bool before = p->free || (s[side].along && !s[!side].along);
        if (s[side].along && top[side] * largest > (1 - 0x1p-20) * (double)FLT_MAX)
            return INFINITY;
        if (before && codes * top[side] >= F8_LARGEST)
            return INFINITY;
    }
    if (!p->free)
        return 0;
    if (top[0] * top[1] >= F8_LARGEST)
        return INFINITY;
    double blocks = 1;
    for (int side = 0; side < 2; side++)
        if (s[side].along)
            blocks = fmax(blocks,
                          (double)f8_granularity_blocks(f8_scales_along_k(&s[side].of), s[side].k));
    return F8_SMALLEST * (codes + blocks * (top[0] + top[1]));
}

/* Of a part of type t, from row `first` on. */
static f8_status add_scales(f8_judging *j, const parts *p, const f8_part *of, f8_bound *b)
{
    f8_part part = *of;
    const f8_type *t = of->out;
    const f8_type f32 = {F8_F32, 2, {f8_type_rows(t), f8_type_columns(t)}};
    f8_rvalue codes = f8_judge_room(j, t), lost = f8_judge_room(j, &f32);
    F8_TRY(f8_arena_status(&j->arena, j->diag));
    part.terms = F8_TERMS_UNSCALED;
    F8_TRY(f8_reference_part(j->g, p->product, &part, j->operand, &codes.data, &j->arena.allocator,
                             j->diag));
    for (int64_t i = 0; i < f8_type_elements(t); i++)
        ((float *)lost.data)[i] = (float)lost_by_scales(p, of->first + i / f32.dim[1],
                                                        i % f32.dim[1], f8_judge_at(&codes, i));
    b->lost[F8_BOUND_LOSSES - 1] = lost;
    return F8_OK;
}

/* ---- parts ---- */

static bool has_subnormal(const f8_type *t, const void *data)
{
    const f8_rvalue v = f8_judge_view(t, data);
    for (int64_t i = 0; i < f8_type_elements(t); i++) {
        const double x = fabs(f8_judge_at(&v, i));
        if (x > 0 && x < (double)FLT_MIN)
            return true;
    }
    return false;
}

/* Judges rows [first, first + n) of the result. A batch of products is one part. */
static f8_status judge_part(f8_judging *j, const parts *p, int64_t first, int64_t n)
{
    f8_type t = f8_at(j->g, p->product)->type;
    if (n < f8_type_rows(&t))
        t = (f8_type){t.dtype, 2, {n, f8_type_columns(&t)}};
    f8_part part = {.out = &t, .first = first, .terms = F8_TERMS};
    f8_rvalue want = f8_judge_room(j, &t);
    f8_bound b = {.error = p->error,
                  .relative = p->relative,
                  .absolute = p->absolute,
                  .sums = f8_judge_room(j, &t)};
    F8_TRY(f8_arena_status(&j->arena, j->diag));
    F8_TRY(f8_reference_part(j->g, p->product, &part, j->operand, &want.data, &j->arena.allocator,
                             j->diag));
    part.terms = F8_TERMS_MAGNITUDES;
    F8_TRY(f8_reference_part(j->g, p->product, &part, j->operand, &b.sums.data, &j->arena.allocator,
                             j->diag));
    for (int side = 0; side < 2; side++) {
        if (!p->loses[side])
            continue;
        part.terms = side ? F8_TERMS_SUBNORMAL_B : F8_TERMS_SUBNORMAL_A;
        b.lost[side] = f8_judge_room(j, &t);
        F8_TRY(f8_arena_status(&j->arena, j->diag));
        F8_TRY(f8_reference_part(j->g, p->product, &part, j->operand, &b.lost[side].data,
                                 &j->arena.allocator, j->diag));
    }
    if (p->far)
        F8_TRY(add_scales(j, p, &part, &b));
    const f8_dtype d = f8_at(j->g, j->r)->type.dtype; /* of a cast, not of the product */
    const f8_rvalue got = {{d, t.rank, {0}},
                           (char *)(uintptr_t)j->result[0] +
                               (size_t)(first * f8_type_columns(&t)) * f8_dtype_size(d)};
    f8_judge_result(j, 0, first * f8_type_columns(&t), &got, &want, &b);
    return F8_OK;
}

/* How many rows of a result are judged at once. An element depends on a row of A and a column of B
 * alone, so any number gives the same judgement. With few rows B would be packed too often. */
static int64_t rows_at_once(const f8_node *product)
{
    enum { BYTES = 128 << 10, FEWEST = 64 };
    const f8_type *t = &product->type;
    const int64_t rows = f8_type_rows(t), most = BYTES / (f8_type_bytes(t) / rows);
    if (product->op == F8_OP_BATCH_MATMUL)
        return rows;
    return most > FEWEST ? most : FEWEST;
}

static f8_status judge_parts(f8_judging *j, parts *p)
{
    const f8_node *n = f8_at(j->g, p->product);
    const int64_t rows = f8_type_rows(&n->type), step = rows_at_once(n);
    f8_status status = F8_OK;
    for (int side = 0; side < 2; side++) {
        if (n->op == F8_OP_SCALED_MATMUL)
            F8_TRY(read_scales(j, p, side));
        else
            p->loses[side] = has_subnormal(f8_type_of(j->g, n->in[side]), j->operand[side]);
    }
    for (int64_t first = 0; first < rows && status == F8_OK; first += step) {
        status = judge_part(j, p, first, rows - first < step ? rows - first : step);
        f8_judge_clear(j);
    }
    return status;
}

/* A machine that flushes subnormals loses what `lost` holds, and of each product and sum at most
 * 2^-126. A result in bf16 is rounded once more, and so may be the reference's: 2^-8 each. */
f8_status f8_judge_product(f8_judging *j, f8_ref product)
{
    const f8_node *n = f8_at(j->g, product);
    const double narrow = f8_at(j->g, j->r)->type.dtype == F8_BF16 ? 2 * F8_U_BF16 : 0;
    const double k = (double)f8_gemm_sizes_of(j->g, product).k;
    const bool fp8 = f8_dtype_is_fp8(f8_type_of(j->g, n->in[0])->dtype);
    parts p = {.product = product,
               .free = n->op == F8_OP_SCALED_MATMUL && j->sums != F8_SUMS_F32,
               .error = (1 + narrow) * sum_error(j->sums, fp8, k),
               .relative = narrow,
               .absolute = 2 * k * F8_SMALLEST};
    f8_arena_init(&p.arena, &j->arena.allocator);
    const f8_status status = judge_parts(j, &p);
    f8_arena_end(&p.arena);
    return status;
}
