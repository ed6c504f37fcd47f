/* Judges single ops: see judge.h. The reference gives both what an op should have made and the sums
 * of magnitudes that the error of summing is relative to. */
#include "codegen/reference/judge.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "codegen/reference/interp.h"
#include "codegen/reference/reference.h"
#include "ir/lowered.h"

static const double U = 0x1p-24;          /* half an ulp of 1 in f32 */
static const double BF16 = 0x1p-8;        /* the same in bf16 */
static const double SMALLEST = 0x1p-126;  /* what lies below it may count as zero */
static const double LARGEST = FLT_MAX / 4.0; /* larger sums may overflow on the way */

static double at(const f8_rvalue *v, int64_t i)
{
    static const f8_interp narrow = {0}; /* values have their own dtypes */
    double element;
    f8_interp_load(&narrow, v, i, 1, &element);
    return element;
}

static f8_rvalue view(const f8_type *t, const void *data)
{
    return (f8_rvalue){*t, (void *)(uintptr_t)data}; /* only read */
}

enum { OPERANDS = 8 }; /* the most: an attention's gradient has them */

/* ---- one element ---- */

static void note(f8_judgement *j, int result, int64_t i, double got, double want, double allowed)
{
    if (!j->off++) {
        j->ok = false;
        j->result = result;
        j->at = i;
        j->got = got;
        j->want = want;
        j->allowed = allowed;
    }
}

/* `allowed` is NaN where an operand is NaN, or Inf meets zero. Then the result must be NaN. */
static void judge_element(f8_judgement *j, int result, int64_t i, double got, double want,
                          double allowed)
{
    if (got == want || (isnan(got) && isnan(want)))
        return;
    if (allowed >= LARGEST) {
        j->unbounded++;
        return;
    }
    const double off = fabs(got - want), ratio = off / allowed;
    j->worst = isnan(ratio) ? INFINITY : ratio > j->worst ? ratio : j->worst;
    if (!(off <= allowed))
        note(j, result, i, got, want, allowed);
}

/* ---- bits ---- */

void f8_judge_bits(const f8_type *t, const void *got, const void *want, f8_judgement *out)
{
    const size_t size = f8_dtype_size(t->dtype);
    const int64_t n = f8_type_elements(t);
    const f8_rvalue g = view(t, got), w = view(t, want);
    *out = (f8_judgement){.ok = true};
    if (!memcmp(got, want, (size_t)n * size))
        return;
    for (int64_t i = 0; i < n; i++) {
        if (!memcmp((const char *)got + (size_t)i * size, (const char *)want + (size_t)i * size,
                    size))
            continue;
        const double a = at(&g, i), b = at(&w, i);
        if (!isnan(a) || !isnan(b))
            note(out, 0, i, a, b, 0);
    }
    out->worst = out->ok ? 0 : INFINITY;
}

/* ---- bounds ---- */

/* An element may be off by error * sums + lost[0] + lost[1] + relative * |want| + absolute. sums
 * and lost are values of the result's shape; where their data is NULL they are 0. */
typedef struct bound {
    double error, relative, absolute;
    f8_rvalue sums, lost[2];
} bound;

typedef struct judge {
    const f8_graph *g;
    f8_ref r;
    f8_sums sums;
    const void *const *operand, *const *result;
    const f8_judge_rows *strides; /* NULL: all values are contiguous */
    f8_arena arena;
    f8_judgement *out;
    f8_diag *diag;
} judge;

static f8_rvalue room(judge *j, const f8_type *t)
{
    return (f8_rvalue){*t, f8_arena_array(&j->arena, 1, (size_t)f8_type_bytes(t))};
}

/* Frees what judging a part took. */
static void clear(judge *j)
{
    const f8_allocator a = j->arena.allocator;
    f8_arena_end(&j->arena);
    f8_arena_init(&j->arena, &a);
    if (j->strides && j->strides->between)
        j->strides->between(j->strides->user);
}

static double allowed_at(const bound *b, int64_t i, double want)
{
    const double sum = b->sums.data ? at(&b->sums, i) : 0;
    double allowed = b->error * sum + b->absolute;
    if (sum >= LARGEST)
        return INFINITY;
    for (int side = 0; side < 2; side++) {
        const double lost = b->lost[side].data ? at(&b->lost[side], i) : 0;
        allowed += isnan(lost) ? 0 : lost;
    }
    return isfinite(want) ? allowed + b->relative * fabs(want) : allowed;
}

/* Judges some elements of a result, from element `first` on: those in `got`, `want` and `b`. */
static void judge_result(judge *j, int result, int64_t first, const f8_rvalue *got,
                         const f8_rvalue *want, const bound *b)
{
    for (int64_t i = 0; i < f8_type_elements(&want->type); i++) {
        const double exact = at(want, i);
        judge_element(j->out, result, first + i, at(got, i), exact, allowed_at(b, i, exact));
    }
}

/* ---- products ---- */

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
        return (k + 6) * U;
    return 2 * (k + 6) * U + (fp8 ? 4 * 33 * 0x1p-13 : 0);
}

static bool has_subnormal(const f8_type *t, const void *data)
{
    const f8_rvalue v = view(t, data);
    for (int64_t i = 0; i < f8_type_elements(t); i++) {
        const double x = fabs(at(&v, i));
        if (x > 0 && x < (double)FLT_MIN)
            return true;
    }
    return false;
}

/* A product whose rows are judged in parts, so that neither their right values nor their bounds are
 * ever held whole. */
typedef struct parts {
    f8_ref product;
    bool loses[2]; /* A and B: has subnormals, which AMX takes as zeros. FP8 operands have none */
    double relative, error, absolute;
} parts;

/* Judges rows [first, first + n) of the result. A batch of products is one part. */
static f8_status judge_part(judge *j, const parts *p, int64_t first, int64_t n)
{
    const f8_node *node = f8_at(j->g, p->product);
    f8_type t = node->type;
    if (n < f8_type_rows(&t))
        t = (f8_type){t.dtype, 2, {n, f8_type_columns(&t)}};
    f8_part part = {.out = &t, .first = first, .terms = F8_TERMS};
    f8_rvalue want = room(j, &t);
    bound b = {
        .error = p->error, .relative = p->relative, .absolute = p->absolute, .sums = room(j, &t)};
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
        b.lost[side] = room(j, &t);
        F8_TRY(f8_arena_status(&j->arena, j->diag));
        F8_TRY(f8_reference_part(j->g, p->product, &part, j->operand, &b.lost[side].data,
                                 &j->arena.allocator, j->diag));
    }
    const f8_dtype d = f8_at(j->g, j->r)->type.dtype; /* of a cast, not of the product */
    const f8_rvalue got = {{d, t.rank, {0}},
                           (char *)(uintptr_t)j->result[0] +
                               (size_t)(first * f8_type_columns(&t)) * f8_dtype_size(d)};
    judge_result(j, 0, first * f8_type_columns(&t), &got, &want, &b);
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

/* A machine that flushes subnormals loses what `lost` holds, and of each product and sum at most
 * 2^-126. A result in bf16 is rounded once more, and so may be the reference's: 2^-8 each. */
static f8_status judge_product(judge *j, f8_ref product)
{
    const f8_node *n = f8_at(j->g, product);
    const double narrow = f8_at(j->g, j->r)->type.dtype == F8_BF16 ? 2 * BF16 : 0;
    const double k = (double)f8_gemm_sizes_of(j->g, product).k;
    const bool fp8 = f8_dtype_is_fp8(f8_type_of(j->g, n->in[0])->dtype);
    const int64_t rows = f8_type_rows(&n->type), step = rows_at_once(n);
    parts p = {.product = product,
               .error = (1 + narrow) * sum_error(j->sums, fp8, k),
               .relative = narrow,
               .absolute = 2 * k * SMALLEST};
    f8_status status = F8_OK;
    for (int side = 0; side < 2 && n->op != F8_OP_SCALED_MATMUL; side++)
        p.loses[side] = has_subnormal(f8_type_of(j->g, n->in[side]), j->operand[side]);
    for (int64_t first = 0; first < rows && status == F8_OK; first += step) {
        status = judge_part(j, &p, first, rows - first < step ? rows - first : step);
        clear(j);
    }
    return status;
}

/* ---- attention ---- */

/* The largest norm of a head's row, of elements that lie D after D. Rows with NaN or Inf don't
 * count: what they reach is NaN or Inf itself, and the bound is for the other elements. */
static double largest_norm(const f8_type *t, const void *data, int64_t stride, int64_t D)
{
    const f8_rvalue v = view(t, data);
    const int64_t columns = f8_type_columns(t);
    double top = 0;
    for (int64_t i = 0; i < f8_type_elements(t); i += D) {
        const int64_t first = stride ? i / columns * stride + i % columns : i;
        double sum = 0;
        for (int64_t d = 0; d < D; d++)
            sum += at(&v, first + d) * at(&v, first + d);
        top = isfinite(sum) && sum > top ? sum : top;
    }
    return sqrt(top);
}

/* Of a mask or lse: elements that hide a score have no size. */
static double largest_finite(const f8_type *t, const void *data)
{
    const f8_rvalue v = view(t, data);
    double top = 0;
    for (int64_t i = 0; i < f8_type_elements(t); i++) {
        const double x = fabs(at(&v, i));
        top = isfinite(x) && x > top ? x : top;
    }
    return top;
}

/* What the errors of an attention come from. */
typedef struct scores {
    bool grad;
    double D, T, group; /* T: of queries and keys the longer */
    double u;           /* half an ulp, as large as it is allowed to be */
    double size, error; /* of the largest score: its magnitude A, and e, what it is off by */
    double reach;       /* the largest magnitude of what exp takes of a score that counts */
    bool adds;          /* an f32 mask: then A and e are those of scores before it */
    double factor;      /* w: what a probability is off by, over it */
    double lost;        /* what flushed subnormals cost a result at most */
} scores;

static int64_t operand_stride(const judge *j, uint32_t i)
{
    return j->strides ? j->strides->operand[i] : 0;
}

/* A: by Cauchy and Schwarz the magnitudes of a dot product sum up to at most the product of the
 * norms. Also the magnitudes of the others, which only `lost` needs. */
static void measure(const judge *j, scores *s)
{
    const f8_node *n = f8_at(j->g, j->r);
    const double attr = f8_attr_f(j->g, j->r, F8_A_SCALE);
    const double scale = attr != 0 ? fabs(attr) : 1 / sqrt(s->D);
    const uint32_t at_mask = s->grad ? 6 : 3, at_lse = s->grad ? 4 : 3;
    const f8_ref mask = f8_attention_mask(j->g, n);
    double top[6] = {0}, others = 1 + scale;
    for (uint32_t i = 0; i < at_mask; i++) {
        const f8_type *t = f8_type_of(j->g, n->in[i]);
        top[i] = i == at_lse ? largest_finite(t, j->operand[i])
                             : largest_norm(t, j->operand[i], operand_stride(j, i), (int64_t)s->D);
        others *= i == at_lse ? 1 : 1 + top[i];
    }
    s->size = s->reach = scale * top[0] * top[1];
    if (s->adds) /* beyond 104 below the largest, exp is 0 in f32 */
        s->reach = fmin(s->size + largest_finite(f8_type_of(j->g, mask), j->operand[at_mask]),
                        128 + log(s->T));
    else if (s->grad && top[4] > s->size) /* lse is subtracted from a score */
        s->size = s->reach = top[4];
    s->lost = 4 * s->T * s->group * others / (1 - f8_attr_f(j->g, j->r, F8_A_DROPOUT)) * SMALLEST;
}

/* With A the largest score's magnitude: a score errs by e = (D + 3) u A, its exponential by e and 2
 * u (A + 1) for the rounded difference and exp itself, a sum of T by T u: p is off by a factor of
 * at most w = 2 (e + 2 u (A + 1)) + (T + 4) u. With an f32 mask e is what a score errs by before
 * the mask is added. What rounding the sum then adds depends on its neighbours: the reference finds
 * it for each query (f8_part). The difference that exp takes is not as large as the mask, where p
 * is not 0: its magnitude stands in the place of A, beside e. On tensor cores p and dp - delta of
 * bf16 operands are rounded to bf16 before the products, 2^-8 each, twice in dq and dk (p, then
 * ds), and everything in f32 is allowed 4 times as much: sums cut off, exp2 and log2 with a factor.
 */
static scores scores_of(const judge *j)
{
    const f8_node *n = f8_at(j->g, j->r);
    const f8_type *q = f8_type_of(j->g, n->in[0]), *k = f8_type_of(j->g, n->in[1]);
    const int64_t H = f8_attr_i(j->g, j->r, F8_A_HEADS), T = q->dim[1], K = k->dim[1];
    const int64_t D = q->dim[2] / H, group = H / f8_attr_i(j->g, j->r, F8_A_KV_HEADS);
    scores s = {.grad = n->op == F8_OP_ATTENTION_GRAD,
                .D = (double)D,
                .T = (double)(T > K ? T : K),
                .group = (double)group,
                .u = j->sums == F8_SUMS_F32 ? U : 4 * U,
                .adds = f8_attention_adds(j->g, n)};
    measure(j, &s);
    s.error = (s.D + 3) * s.u * s.size;
    s.factor = 2 * (s.error + 2 * s.u * (s.reach + 1)) + (s.T + 4) * s.u;
    if (j->sums != F8_SUMS_F32 && q->dtype == F8_BF16)
        s.factor += 2 * BF16;
    return s;
}

/* With w and sums of magnitudes, in which p keeps its value: o is off by w and T u of its sum; lse
 * by e + T u + 2 u |lse|; the gradients by w and what their own sums add, T of each query head that
 * shares a key head, and D in dp and in delta. A result in bf16 may be either neighbour.
 * tests/codegen/cpu/check_attention.c and tests/codegen/cuda/check_cuda_attention.c have finer
 * bounds. */
static bound attention_bound(const scores *s, int result, const f8_type *t)
{
    const double added = 2 * s->D + 8, shared = s->T * s->group;
    const double terms[2][3] = {{s->T, 0, 0}, {added + s->T, added + shared, shared + 4}};
    bound b = {.relative = t->dtype == F8_BF16 ? 2 * BF16 : 2 * U};
    if (!s->grad && result == 1) {
        if (s->adds)
            b = (bound){.error = 2}; /* of `more`: the largest is off by it, and the rest again */
        b.absolute = s->error * (s->adds ? 2 : 1) + (s->T + 4) * s->u +
                     2 * s->u * (s->reach + log(s->T) + 1);
    } else {
        b.error = s->factor + terms[s->grad][result] * s->u;
        b.absolute = s->lost;
    }
    if (s->error + 2 * s->u * (s->reach + 1) <= 0.5)
        return b;
    return (bound){.absolute = INFINITY}; /* exp of such an error is no longer linear */
}

/* Sequence b of an attention's batch: its operands, its results and what these should be. The batch
 * is the first axis of every value, but for the seed and a mask that all sequences share. */
typedef struct batch {
    int64_t b, size; /* size: how many sequences */
    f8_type in[OPERANDS], out[F8_MAX_RESULTS];
    const void *operand[OPERANDS], *got[F8_MAX_RESULTS];
    void *want[F8_MAX_RESULTS], *sums[F8_MAX_RESULTS];
    f8_judgement said[F8_MAX_RESULTS]; /* of each result, over the sequences so far */
} batch;

/* The part of a value that belongs to sequence s->b: returns its type. *data: where it is if its
 * rows follow one another, else a contiguous copy. */
static f8_type element_of(judge *j, const batch *s, const f8_type *t, const void *all,
                          int64_t stride, const void **data)
{
    f8_type one = *t;
    const bool has = t->rank >= 3 && t->dim[0] == s->size;
    if (has)
        one.dim[0] = 1;
    const int64_t rows = f8_type_rows(&one), before = has ? s->b * rows : 0;
    const size_t size = f8_dtype_size(t->dtype), columns = (size_t)f8_type_columns(t);
    const size_t step = stride ? (size_t)stride : columns;
    *data = all ? (const char *)all + (size_t)before * step * size : NULL;
    if (!all || step == columns)
        return one;
    char *to = room(j, &one).data;
    for (int64_t i = 0; to && i < rows; i++)
        memcpy(to + (size_t)i * columns * size, (const char *)*data + (size_t)i * step * size,
               columns * size);
    *data = to;
    return one;
}

static void cut_batch(judge *j, batch *s)
{
    const f8_node *n = f8_at(j->g, j->r);
    for (uint32_t i = 0; i < n->n_in; i++)
        s->in[i] = element_of(j, s, f8_type_of(j->g, n->in[i]), j->operand[i], operand_stride(j, i),
                              &s->operand[i]);
    for (int i = 0; i < f8_op_facts(n->op)->results; i++) {
        const f8_type t = f8_result_type(j->g, j->r, i);
        s->out[i] =
            element_of(j, s, &t, j->result[i], j->strides ? j->strides->result[i] : 0, &s->got[i]);
        s->want[i] = room(j, &s->out[i]).data;
        s->sums[i] = room(j, &s->out[i]).data;
    }
}

static f8_status judge_batch(judge *j, const scores *of, batch *s)
{
    f8_part part = {.in = s->in, .out = s->out, .first = s->b, .terms = F8_TERMS};
    cut_batch(j, s);
    F8_TRY(f8_arena_status(&j->arena, j->diag));
    F8_TRY(f8_reference_part(j->g, j->r, &part, s->operand, s->want, &j->arena.allocator, j->diag));
    part.terms = F8_TERMS_MAGNITUDES;
    part.score_error = of->error;
    part.weight_error = of->factor;
    F8_TRY(f8_reference_part(j->g, j->r, &part, s->operand, s->sums, &j->arena.allocator, j->diag));
    for (int i = 0; i < f8_op_facts(f8_at(j->g, j->r)->op)->results; i++) {
        const f8_type t = f8_result_type(j->g, j->r, i);
        const f8_rvalue exact = {s->out[i], s->want[i]}, got = view(&s->out[i], s->got[i]);
        bound b = attention_bound(of, i, &t);
        if (b.error > 0)
            b.sums = (f8_rvalue){s->out[i], s->sums[i]};
        j->out = &s->said[i];
        if (s->got[i]) /* else no node reads it */
            judge_result(j, i, s->b * f8_type_elements(&s->out[i]), &got, &exact, &b);
    }
    return F8_OK;
}

/* Adds the judgement of the next result. */
static void add(f8_judgement *to, const f8_judgement *next)
{
    const f8_judgement before = *to;
    if (before.ok)
        *to = *next;
    to->off = before.off + next->off;
    to->unbounded = before.unbounded + next->unbounded;
    to->worst = before.worst > next->worst ? before.worst : next->worst;
}

/* Judges each sequence of the batch by itself, so that the right values are never held whole. */
static f8_status judge_attention(judge *j)
{
    const scores of = scores_of(j);
    f8_judgement *out = j->out;
    batch s = {.size = f8_type_of(j->g, f8_at(j->g, j->r)->in[0])->dim[0]};
    f8_status status = F8_OK;
    for (int i = 0; i < F8_MAX_RESULTS; i++)
        s.said[i].ok = true;
    for (; s.b < s.size && status == F8_OK; s.b++) {
        status = judge_batch(j, &of, &s);
        clear(j);
    }
    for (int i = 0; i < F8_MAX_RESULTS; i++)
        add(out, &s.said[i]);
    return status;
}

/* ---- one node ---- */

static f8_status judge_op(judge *j)
{
    const f8_node *n = f8_at(j->g, j->r);
    if (f8_op_facts(n->op)->cls == F8_ATTENTION)
        return judge_attention(j);
    const bool cast = n->op == F8_OP_CAST && n->type.dtype == F8_BF16;
    const f8_ref product = cast ? n->in[0] : j->r;
    if (f8_op_facts(f8_at(j->g, product)->op)->cls == F8_GEMM)
        return judge_product(j, product);
    return f8_fail(j->diag, F8_ERR_UNSUPPORTED, j->g->loc[j->r],
                   "%s: judged by its bits, not within a bound", f8_op_facts(n->op)->name);
}

f8_status f8_judge_node(const f8_graph *g, f8_ref r, f8_sums sums, const void *const *operand,
                        const void *const *result, const f8_allocator *allocator, f8_judgement *out,
                        f8_diag *diag)
{
    return f8_judge_strided(g, r, sums, operand, result, NULL, allocator, out, diag);
}

f8_status f8_judge_strided(const f8_graph *g, f8_ref r, f8_sums sums, const void *const *operand,
                           const void *const *result, const f8_judge_rows *strides,
                           const f8_allocator *allocator, f8_judgement *out, f8_diag *diag)
{
    *out = (f8_judgement){.ok = true};
    judge j = {.g = g,
               .r = r,
               .sums = sums,
               .operand = operand,
               .result = result,
               .strides = strides,
               .out = out,
               .diag = diag};
    f8_arena_init(&j.arena, allocator);
    const f8_status status = judge_op(&j);
    f8_arena_end(&j.arena);
    return status;
}
