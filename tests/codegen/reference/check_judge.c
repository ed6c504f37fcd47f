/* The judge of single ops: what is computed right in f32, in another order than the reference's,
 * passes; an element that is off by twice its bound is named; bounds are no looser than a case
 * says. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/reference/judge.h"
#include "codegen/reference/reference.h"
#include "frontend/text/parse.h"
#include "ir/num/fp8.h"
#include "ir/num/granularity.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

/* ---- one op from text ---- */

typedef struct fixture {
    f8_arena arena;
    f8_diag diag;
    f8_graph *g;
    f8_ref r;  /* the op that is judged */
    f8_ref op; /* it, or the product that it rounds */
    const void *operand[8];
    void *got[F8_MAX_RESULTS];
    f8_judgement j;
} fixture;

static uint32_t load_bits(f8_dtype d, const void *data, int64_t i)
{
    uint32_t bits = 0;
    memcpy(&bits, (const char *)data + (size_t)i * f8_dtype_size(d), f8_dtype_size(d));
    return bits;
}

static void store_bits(f8_dtype d, void *data, int64_t i, uint32_t bits)
{
    memcpy((char *)data + (size_t)i * f8_dtype_size(d), &bits, f8_dtype_size(d));
}

static float load(const f8_type *t, const void *data, int64_t i)
{
    return f8_decode(t->dtype, load_bits(t->dtype, data, i));
}

static void store(const f8_type *t, void *data, int64_t i, float x)
{
    store_bits(t->dtype, data, i, f8_encode(t->dtype, x, false));
}

/* Names say what a port holds: s and t scales, l logarithms of sums, the others within 1. */
static void fill(const f8_port *p, uint32_t *seed, void *to)
{
    for (int64_t i = 0; i < f8_type_elements(&p->type); i++) {
        const float x = (float)test_random(seed) * 0x1p-23f - 1;
        if (p->type.dtype == F8_E8M0)
            store_bits(F8_E8M0, to, i, 125 + test_random(seed) % 5);
        else if (p->type.dtype == F8_BOOL)
            ((uint8_t *)to)[i] = x > -0.5f || i % 8 == 0;
        else
            store(&p->type, to, i,
                  *p->name == 's' || *p->name == 't' ? fabsf(x) + 0.25f
                  : *p->name == 'l'                  ? 3 + x
                                                     : x);
    }
}

static const f8_type *type_of_result(const fixture *x, int i)
{
    static f8_type t;
    t = f8_result_type(x->g, x->r, i);
    return &t;
}

static void start(fixture *x, const char *ports, const char *result, const char *op, uint32_t seed)
{
    *x = (fixture){0};
    f8_arena_init(&x->arena, NULL);
    f8_module *m = NULL;
    char *text = f8_arena_printf(&x->arena, "module m\nfunc f(%s) -> (%%y: %s) {\n  return %s\n}\n",
                                 ports, result, op);
    f8_parse(text, strlen(text), "t", NULL, 0, &x->arena, &x->diag, &m);
    ck_assert_msg(m, "%u:%u %s\n%s", x->diag.loc.line, x->diag.loc.column, x->diag.text, text);
    const f8_func *f = &m->func[0];
    x->g = f->graph;
    x->r = x->op = f->out[0].ref;
    if (f8_at(x->g, x->r)->op == F8_OP_CAST)
        x->op = f8_at(x->g, x->r)->in[0];
    for (size_t i = 0; i < f->n_in; i++) {
        void *to = f8_arena_array(&x->arena, 1, (size_t)f8_type_bytes(&f->in[i].type));
        fill(&f->in[i], &seed, to);
        x->operand[i] = to;
    }
    for (int i = 0; i < f8_op_facts(f8_at(x->g, x->r)->op)->results; i++)
        x->got[i] = f8_arena_array(&x->arena, 1, (size_t)f8_type_bytes(type_of_result(x, i)));
}

static void finish(fixture *x)
{
    f8_arena_end(&x->arena);
}

static const f8_type *type_of(const fixture *x, uint32_t operand)
{
    return f8_type_of(x->g, f8_at(x->g, x->op)->in[operand]);
}

static float in(const fixture *x, uint32_t operand, int64_t i)
{
    return load(type_of(x, operand), x->operand[operand], i);
}

static bool judge(fixture *x, f8_sums sums)
{
    ck_assert_msg(f8_judge_node(x->g, x->r, sums, x->operand, (const void *const *)x->got, NULL,
                                &x->j, &x->diag) == F8_OK,
                  "%s", x->diag.text);
    ck_assert_int_eq(x->j.ok, x->j.off == 0);
    return x->j.ok;
}

#define ASSERT_OK(x, sums)                                                                         \
    ck_assert_msg(judge(x, sums), "result %d[%lld]: %g, not %g; allowed %g", (x)->j.result,        \
                  (long long)(x)->j.at, (x)->j.got, (x)->j.want, (x)->j.allowed)

/* ---- products, in f32, from the last k to the first ---- */

/* The scale of element (row, column) of operand i, as the attribute says. */
static float scale_at(const fixture *x, uint32_t i, f8_attr_key key, int64_t row, int64_t column)
{
    f8_granularity g;
    const f8_type *t = type_of(x, i);
    f8_granularity_parse(f8_attr_s(x->g, x->op, key), &g);
    const int64_t across = g.cols ? (f8_type_columns(t) + g.cols - 1) / g.cols : 1;
    return in(x, i + 1, (g.rows ? row / g.rows : 0) * across + (g.cols ? column / g.cols : 0));
}

static float factor(const fixture *x, uint32_t i, bool transposed, bool round, f8_attr_key key,
                    int64_t row, int64_t column)
{
    const int64_t r = transposed ? column : row, c = transposed ? row : column;
    const float v = in(x, i, r * f8_type_columns(type_of(x, i)) + c);
    if (f8_at(x->g, x->op)->op == F8_OP_SCALED_MATMUL)
        return v * scale_at(x, i, key, r, c);
    return round ? f8_round_bf16(v) : v;
}

static float product_at(const fixture *x, int64_t K, int64_t row, int64_t column)
{
    const f8_graph *g = x->g;
    const f8_node *n = f8_at(g, x->op);
    const uint32_t b = f8_gemm_b(n->op), added = n->op == F8_OP_SCALED_MATMUL ? 4 : 2;
    const bool ta = f8_attr_i(g, x->op, F8_A_TRANSPOSE_A), ra = f8_attr_i(g, x->op, F8_A_ROUND_A);
    const bool tb = f8_attr_i(g, x->op, F8_A_TRANSPOSE_B), rb = f8_attr_i(g, x->op, F8_A_ROUND_B);
    const int64_t columns = f8_type_columns(&n->type);
    float sum = 0;
    for (int64_t k = K; k-- > 0;)
        sum += factor(x, 0, ta, ra, F8_A_SCALE_A, row, k) *
               factor(x, b, tb, rb, F8_A_SCALE_B, k, column);
    if (n->n_in > added)
        sum += in(x, added, n->type.dtype == F8_BF16 ? column : row * columns + column);
    return sum;
}

static void product(fixture *x)
{
    const f8_type *t = type_of_result(x, 0);
    const int64_t rows = f8_type_rows(t), columns = f8_type_columns(t);
    const bool ta = f8_attr_i(x->g, x->op, F8_A_TRANSPOSE_A);
    const int64_t K = ta ? f8_type_rows(type_of(x, 0)) : f8_type_columns(type_of(x, 0));
    for (int64_t i = 0; i < rows * columns; i++)
        store(t, x->got[0], i, product_at(x, K, i / columns, i % columns));
}

/* ---- attention, in f32, keys from the last to the first ---- */

typedef struct heads {
    int64_t B, T, S, H, KH, D;
    bool causal, narrow; /* narrow: p and ds are rounded to bf16 */
    float scale;
} heads;

static heads heads_of(const fixture *x, bool narrow)
{
    const f8_type *q = type_of(x, 0), *k = type_of(x, 1);
    heads h = {.B = q->dim[0], .T = q->dim[1], .S = k->dim[1], .narrow = narrow};
    h.H = f8_attr_i(x->g, x->op, F8_A_HEADS);
    h.KH = f8_attr_i(x->g, x->op, F8_A_KV_HEADS);
    h.D = q->dim[2] / h.H;
    h.causal = f8_attr_i(x->g, x->op, F8_A_CAUSAL);
    h.scale = 1 / sqrtf((float)h.D);
    return h;
}

static int64_t row_of(const heads *a, bool key, int64_t b, int64_t h, int64_t i)
{
    return key ? ((b * a->S + i) * a->KH + h / (a->H / a->KH)) * a->D
               : ((b * a->T + i) * a->H + h) * a->D;
}

/* Operands u and v, rows that begin there. */
static float dot(const fixture *x, int64_t D, uint32_t u, int64_t at_u, uint32_t v, int64_t at_v)
{
    float sum = 0;
    for (int64_t d = D; d-- > 0;)
        sum += in(x, u, at_u + d) * in(x, v, at_v + d);
    return sum;
}

/* A mask has the shape [1, 1, T, S]. */
static float score(const fixture *x, const heads *a, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const uint32_t at_mask = f8_at(x->g, x->op)->op == F8_OP_ATTENTION ? 3 : 6;
    const float s =
        a->scale * dot(x, a->D, 0, row_of(a, false, b, h, i), 1, row_of(a, true, b, h, j));
    if (a->causal && j > i)
        return -INFINITY;
    if (f8_at(x->g, x->op)->n_in <= at_mask)
        return s;
    if (type_of(x, at_mask)->dtype == F8_BOOL)
        return ((const uint8_t *)x->operand[at_mask])[i * a->S + j] ? s : -INFINITY;
    return s + in(x, at_mask, i * a->S + j);
}

static float narrowed(const heads *a, float v)
{
    return a->narrow ? f8_round_bf16(v) : v;
}

static void attend(fixture *x, const heads *a, int64_t b, int64_t h, int64_t i)
{
    float p[64], sum = 0;
    const f8_type o = f8_result_type(x->g, x->r, 0);
    for (int64_t j = a->S; j-- > 0;)
        sum += p[j] = expf(score(x, a, b, h, i, j));
    ((float *)x->got[1])[(b * a->H + h) * a->T + i] = logf(sum);
    for (int64_t d = 0; d < a->D; d++) {
        float y = 0;
        for (int64_t j = a->S; j-- > 0;)
            y += narrowed(a, p[j]) * in(x, 2, row_of(a, true, b, h, j) + d);
        store(&o, x->got[0], row_of(a, false, b, h, i) + d, y / sum);
    }
}

static void differentiate(const fixture *x, const heads *a, int64_t b, int64_t h, float *dq,
                          float *dk, float *dv)
{
    for (int64_t i = a->T; i-- > 0;)
        for (int64_t j = a->S; j-- > 0;) {
            const int64_t q = row_of(a, false, b, h, i), k = row_of(a, true, b, h, j);
            const float p = expf(score(x, a, b, h, i, j) - in(x, 4, (b * a->H + h) * a->T + i));
            const float dp = dot(x, a->D, 5, q, 2, k) - dot(x, a->D, 5, q, 3, q);
            const float ds = narrowed(a, a->scale * narrowed(a, p) * dp);
            for (int64_t d = 0; d < a->D; d++) {
                dq[q + d] += ds * in(x, 1, k + d);
                dk[k + d] += ds * in(x, 0, q + d);
                dv[k + d] += narrowed(a, p) * in(x, 5, q + d);
            }
        }
}

static void gradients(fixture *x, const heads *a)
{
    float *sum[3];
    for (int i = 0; i < 3; i++)
        sum[i] = f8_arena_array(&x->arena, (size_t)f8_type_elements(type_of_result(x, i)), 4);
    for (int64_t b = 0; b < a->B; b++)
        for (int64_t h = 0; h < a->H; h++)
            differentiate(x, a, b, h, sum[0], sum[1], sum[2]);
    for (int i = 0; i < 3; i++)
        for (int64_t e = 0; e < f8_type_elements(type_of_result(x, i)); e++)
            store(type_of_result(x, i), x->got[i], e, sum[i][e]);
}

static void attention(fixture *x, bool narrow)
{
    const heads a = heads_of(x, narrow);
    if (f8_at(x->g, x->op)->op == F8_OP_ATTENTION_GRAD) {
        gradients(x, &a);
        return;
    }
    for (int64_t i = 0; i < a.B * a.H * a.T; i++)
        attend(x, &a, i / (a.H * a.T), i / a.T % a.H, i % a.T);
}

/* ---- cases ---- */

/* loosest: no bound may be larger, over the largest element of its result. */
static const struct {
    const char *ports, *result, *op;
    double loosest;
} cases[] = {
    {"%a: f32[17, 40], %b: f32[40, 9], %c: f32[17, 9]", "f32[17, 9]", "matmul(%a, %b, %c)", 2e-5},
    {"%a: bf16[40, 17], %b: bf16[9, 40]", "f32[17, 9]",
     "matmul(%a, %b) {transpose_a = true, transpose_b = true}", 2e-5},
    {"%a: f32[17, 40], %b: f32[40, 9]", "f32[17, 9]",
     "matmul(%a, %b) {round_a = true, round_b = true}", 2e-5},
    {"%a: bf16[17, 40], %b: bf16[40, 9], %c: bf16[9]", "bf16[17, 9]",
     "matmul(%a, %b, %c) {to = bf16}", 0.01},
    {"%a: f32[17, 40], %b: f32[40, 9]", "bf16[17, 9]", "cast(matmul(%a, %b)) {to = bf16}", 0.01},
    {"%a: f8e4m3[16, 64], %s: f32[], %b: f8e5m2[64, 16], %t: f32[]", "f32[16, 16]",
     "scaled_matmul(%a, %s, %b, %t)", 5e-5},
    {"%a: f8e4m3[16, 64], %s: f32[16, 1], %b: f8e4m3[32, 64], %t: f32[32, 1]", "f32[16, 32]",
     "scaled_matmul(%a, %s, %b, %t) {transpose_b = true, scale_a = \"row\", scale_b = \"row\"}",
     5e-5},
    {"%a: f8e5m2[16, 256], %s: f32[16, 2], %b: f8e4m3[256, 128], %t: f32[2, 1]", "bf16[16, 128]",
     "scaled_matmul(%a, %s, %b, %t) {scale_a = \"block(1,128)\", scale_b = \"block(128,128)\", to "
     "= "
     "bf16}",
     0.01},
    {"%a: f8e4m3[16, 64], %s: f8e8m0[16, 2], %b: f8e4m3[32, 64], %t: f8e8m0[32, 2], %c: f32[16, "
     "32]",
     "f32[16, 32]",
     "scaled_matmul(%a, %s, %b, %t, %c) {transpose_b = true, scale_a = \"block(1,32)\", scale_b = "
     "\"block(1,32)\"}",
     5e-5},
    {"%q: f32[2, 12, 32], %k: f32[2, 20, 16], %v: f32[2, 20, 16]", "f32[2, 12, 32]",
     "attention(%q, %k, %v) {heads = 4, kv_heads = 2, causal = false}", 1e-4},
    {"%q: bf16[1, 16, 32], %k: bf16[1, 16, 32], %v: bf16[1, 16, 32]", "bf16[1, 16, 32]",
     "attention(%q, %k, %v) {heads = 2}", 0.01},
    {"%q: f32[1, 9, 16], %k: f32[1, 8, 16], %v: f32[1, 8, 16], %m: bool[1, 1, 9, 8]",
     "f32[1, 9, 16]", "attention(%q, %k, %v, %m) {heads = 2, causal = false}", 1e-4},
    {"%q: f32[2, 12, 32], %k: f32[2, 12, 16], %v: f32[2, 12, 16], %o: f32[2, 12, 32], "
     "%l: f32[2, 4, 12], %d: f32[2, 12, 32], %m: f32[1, 1, 12, 12]",
     "f32[2, 12, 32]", "attention_grad(%q, %k, %v, %o, %l, %d, %m) {heads = 4, kv_heads = 2}",
     1e-3},
    {"%q: bf16[1, 16, 32], %k: bf16[1, 16, 32], %v: bf16[1, 16, 32], %o: bf16[1, 16, 32], "
     "%l: f32[1, 2, 16], %d: bf16[1, 16, 32]",
     "bf16[1, 16, 32]", "attention_grad(%q, %k, %v, %o, %l, %d) {heads = 2, causal = false}", 0.02},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static void compute(fixture *x, int i, uint32_t seed)
{
    start(x, cases[i].ports, cases[i].result, cases[i].op, seed);
    if (f8_op_facts(f8_at(x->g, x->op)->op)->cls == F8_ATTENTION)
        attention(x, false);
    else
        product(x);
}

START_TEST(right_ones_pass)
{
    for (uint32_t seed = 1; seed <= 3; seed++) {
        fixture x;
        compute(&x, _i, seed);
        for (f8_sums sums = F8_SUMS_F32; sums <= F8_SUMS_GPU; sums++) {
            ASSERT_OK(&x, sums);
            ck_assert_int_eq(x.j.unbounded, 0);
            ck_assert_double_le(x.j.worst, 1);
        }
        finish(&x);
    }
}
END_TEST

static double largest(const f8_type *t, const void *data, int64_t *at)
{
    double top = -1;
    for (int64_t i = 0; i < f8_type_elements(t); i++)
        if (fabs((double)load(t, data, i)) > top) {
            top = fabs((double)load(t, data, i));
            *at = i;
        }
    return top;
}

/* What the bound of an element is shows in the judgement of a NaN there. */
static double allowed_at(fixture *x, int result, int64_t i)
{
    const f8_type t = f8_result_type(x->g, x->r, result);
    const uint32_t was = load_bits(t.dtype, x->got[result], i);
    store(&t, x->got[result], i, NAN);
    ck_assert(!judge(x, F8_SUMS_F32));
    ck_assert_int_eq(x->j.off, 1);
    ck_assert_int_eq(x->j.result, result);
    ck_assert_int_eq(x->j.at, i);
    ck_assert(isnan(x->j.got) && isinf(x->j.worst));
    store_bits(t.dtype, x->got[result], i, was);
    return x->j.allowed;
}

static void assert_named(fixture *x, int result, int64_t i, double got)
{
    const f8_type t = f8_result_type(x->g, x->r, result);
    const uint32_t was = load_bits(t.dtype, x->got[result], i);
    store(&t, x->got[result], i, (float)got);
    ck_assert_msg(!judge(x, F8_SUMS_F32), "result %d[%lld] as %g", result, (long long)i, got);
    ck_assert_int_eq(x->j.off, 1);
    ck_assert_int_eq(x->j.result, result);
    ck_assert_int_eq(x->j.at, i);
    ck_assert_double_gt(x->j.worst, 1);
    store_bits(t.dtype, x->got[result], i, was);
}

/* Each element of a small sample, of every result. */
START_TEST(wrong_ones_are_named)
{
    fixture x;
    compute(&x, _i, 7);
    for (int r = 0; r < f8_op_facts(f8_at(x.g, x.r)->op)->results; r++) {
        const f8_type t = f8_result_type(x.g, x.r, r);
        int64_t top_at = 0;
        const double top = largest(&t, x.got[r], &top_at);
        for (int64_t i = 0; i < f8_type_elements(&t); i += 1 + f8_type_elements(&t) / 9) {
            const double allowed = allowed_at(&x, r, i), want = x.j.want;
            ck_assert_msg(allowed <= cases[_i].loosest * top, "%g of %g", allowed, top);
            assert_named(&x, r, i, want + 2.1 * allowed);
            assert_named(&x, r, i, want - 2.1 * allowed);
            assert_named(&x, r, i, INFINITY);
        }
        const uint32_t bit = t.dtype == F8_BF16 ? 1u << 7 : 1u << 23; /* the lowest exponent bit */
        store_bits(t.dtype, x.got[r], top_at, load_bits(t.dtype, x.got[r], top_at) ^ bit);
        ck_assert(!judge(&x, F8_SUMS_GPU));
        ck_assert_int_eq(x.j.at, top_at);
        store_bits(t.dtype, x.got[r], top_at, load_bits(t.dtype, x.got[r], top_at) ^ bit);
    }
    ASSERT_OK(&x, F8_SUMS_F32);
    finish(&x);
}
END_TEST

/* ---- what the ways of summing allow ---- */

/* The bound of a product in f32, by hand: (k + 6) u of the sum of magnitudes. */
START_TEST(bound_of_a_product)
{
    fixture x;
    compute(&x, 0, 3);
    for (int64_t i = 0; i < 17 * 9; i += 5) {
        double sum = fabs((double)in(&x, 2, i));
        for (int64_t k = 0; k < 40; k++)
            sum += fabs((double)in(&x, 0, i / 9 * 40 + k) * (double)in(&x, 1, k * 9 + i % 9));
        ck_assert_double_eq_tol(allowed_at(&x, 0, i), 46 * 0x1p-24 * sum,
                                1e-6 * 46 * 0x1p-24 * sum);
    }
    finish(&x);
}
END_TEST

/* Of the 32 products that meet and the sum so far, each is cut off 13 bits below the largest. */
static float hopper(const fixture *x, int64_t K, int64_t row, int64_t column)
{
    float sum = 0, term[33];
    for (int64_t k = 0; k < K; k += 32) {
        int top = -200, e;
        for (int64_t i = 0; i < 32; i++) {
            term[i] = in(x, 0, row * K + k + i) * in(x, 2, (k + i) * 16 + column);
            frexpf(term[i], &e);
            top = term[i] != 0 && e > top ? e : top;
        }
        term[32] = sum;
        frexpf(sum, &e);
        top = sum != 0 && e > top ? e : top;
        sum = 0;
        for (int i = 0; i < 33; i++)
            sum += ldexpf(truncf(ldexpf(term[i], 13 - top)), top - 13);
    }
    return sum * in(x, 1, 0) * in(x, 3, 0);
}

START_TEST(few_bits_of_fp8)
{
    fixture x;
    compute(&x, 5, 11);
    for (int64_t i = 0; i < 16 * 16; i++)
        ((float *)x.got[0])[i] = hopper(&x, 64, i / 16, i % 16);
    ASSERT_OK(&x, F8_SUMS_GPU);
    ck_assert(!judge(&x, F8_SUMS_EMULATED));
    finish(&x);
}
END_TEST

/* p and ds rounded to bf16: for bf16 operands where the target says so, and for f32 never. */
START_TEST(narrow_probabilities)
{
    static const struct {
        int at;
        bool bf16;
    } of[] = {{9, false}, {10, true}, {12, false}, {13, true}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        fixture x;
        compute(&x, of[i].at, 5);
        attention(&x, true);
        ck_assert_int_eq(judge(&x, F8_SUMS_EMULATED), of[i].bf16);
        ck_assert_int_eq(judge(&x, F8_SUMS_GPU), of[i].bf16);
        if (!of[i].bf16)
            ck_assert(!judge(&x, F8_SUMS_F32));
        finish(&x);
    }
}
END_TEST

/* A factor that is subnormal may count as zero; one that is normal may not. */
START_TEST(flushed_factors)
{
    fixture x;
    start(&x, "%a: bf16[1, 2], %b: bf16[2, 1]", "f32[1, 1]", "matmul(%a, %b)", 1);
    uint16_t *a = (uint16_t *)(uintptr_t)x.operand[0], *b = (uint16_t *)(uintptr_t)x.operand[1];
    a[0] = 0x0040; /* 2^-127 */
    a[1] = 0;
    b[0] = b[1] = 0x5f80; /* 2^64 */
    *(float *)x.got[0] = 0;
    ASSERT_OK(&x, F8_SUMS_F32);
    *(float *)x.got[0] = 0x1p-63f;
    ASSERT_OK(&x, F8_SUMS_F32);
    *(float *)x.got[0] = 0x1.1p-62f;
    ck_assert(!judge(&x, F8_SUMS_F32));
    a[0] = 0x0080; /* 2^-126 */
    *(float *)x.got[0] = 0;
    ck_assert(!judge(&x, F8_SUMS_F32));
    finish(&x);
}
END_TEST

/* ---- NaN, Inf and overflow ---- */

START_TEST(nan_and_inf)
{
    fixture x;
    compute(&x, 0, 4);
    ((float *)(uintptr_t)x.operand[0])[2 * 40 + 5] = NAN; /* row 2 of the result */
    ck_assert(!judge(&x, F8_SUMS_F32));
    ck_assert_int_eq(x.j.off, 9);
    ck_assert_int_eq(x.j.at, 18);
    ck_assert(isnan(x.j.want) && isinf(x.j.worst));
    for (int i = 18; i < 27; i++)
        ((uint32_t *)x.got[0])[i] = 0xffc12345; /* any NaN will do */
    ASSERT_OK(&x, F8_SUMS_F32);
    ((float *)x.got[0])[20] = INFINITY;
    ck_assert(!judge(&x, F8_SUMS_F32));
    ck_assert_int_eq(x.j.at, 20);
    finish(&x);
}
END_TEST

/* NaN in one head's row: the elements that it reaches must be NaN, and the others are judged as
 * without it. */
START_TEST(nan_in_a_head)
{
    static const struct {
        int at, operand;
    } of[] = {{9, 0}, {9, 2}, {13, 5}, {13, 1}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        fixture x;
        compute(&x, of[i].at, 3);
        store(type_of(&x, of[i].operand), (void *)(uintptr_t)x.operand[of[i].operand], 3, NAN);
        ck_assert(!judge(&x, F8_SUMS_F32));
        ck_assert(isnan(x.j.want));
        attention(&x, false);
        const f8_type *t = type_of_result(&x, 0);
        const int64_t last = f8_type_elements(t) - 1; /* of another head */
        store_bits(t->dtype, x.got[0], last, load_bits(t->dtype, x.got[0], last) + 1);
        ASSERT_OK(&x, F8_SUMS_F32);
        assert_named(&x, 0, last, 2 * (double)load(t, x.got[0], last) + 1);
        finish(&x);
    }
}
END_TEST

/* A sum that may overflow on the way has no bound, which is counted; its neighbours have one. */
START_TEST(overflow_is_counted)
{
    fixture x;
    start(&x, "%a: f32[2, 2], %b: f32[2, 1]", "f32[2, 1]", "matmul(%a, %b)", 1);
    float *a = (float *)(uintptr_t)x.operand[0], *b = (float *)(uintptr_t)x.operand[1];
    a[0] = 3e38f, a[1] = -3e38f, a[2] = a[3] = 1;
    b[0] = b[1] = 1;
    ((float *)x.got[0])[0] = INFINITY;
    ((float *)x.got[0])[1] = 2;
    ASSERT_OK(&x, F8_SUMS_F32);
    ck_assert_int_eq(x.j.unbounded, 1);
    ((float *)x.got[0])[1] = INFINITY;
    ck_assert(!judge(&x, F8_SUMS_F32));
    ck_assert_int_eq(x.j.at, 1);
    finish(&x);
}
END_TEST

/* Near the largest f32 a result may be rounded to Inf. */
START_TEST(rounding_to_inf_is_counted)
{
    fixture x;
    start(&x, "%a: f32[1, 1], %b: f32[1, 1]", "bf16[1, 1]", "cast(matmul(%a, %b)) {to = bf16}", 1);
    *(float *)(uintptr_t)x.operand[0] = FLT_MAX;
    *(float *)(uintptr_t)x.operand[1] = 1;
    *(uint16_t *)x.got[0] = 0x7f80;
    ASSERT_OK(&x, F8_SUMS_F32);
    ck_assert_int_eq(x.j.unbounded, 1);
    finish(&x);
}
END_TEST

/* Scores so large that nothing is known of their exponentials: nothing is judged, and this shows.
 */
START_TEST(scores_without_a_bound)
{
    fixture x;
    compute(&x, 9, 2);
    for (int64_t i = 0; i < f8_type_elements(type_of(&x, 0)); i++)
        ((float *)(uintptr_t)x.operand[0])[i] *= 1e9f;
    ASSERT_OK(&x, F8_SUMS_F32);
    ck_assert_int_gt(x.j.unbounded, 0);
    finish(&x);
}
END_TEST

/* A query that sees no key: o is 0 and lse is Inf, and nothing else will do. */
START_TEST(hidden_rows)
{
    fixture x;
    compute(&x, 11, 2);
    memset((uint8_t *)(uintptr_t)x.operand[3] + 3 * 8, 0, 8);
    ck_assert(!judge(&x, F8_SUMS_F32));
    memset((float *)x.got[0] + 3 * 16, 0, 16 * sizeof(float));
    ck_assert(!judge(&x, F8_SUMS_F32));
    ck_assert_int_eq(x.j.result, 1);
    ck_assert_int_eq(x.j.off, 2);
    ((float *)x.got[1])[3] = ((float *)x.got[1])[9 + 3] = INFINITY;
    ASSERT_OK(&x, F8_SUMS_F32);
    finish(&x);
}
END_TEST

/* ---- bits ---- */

START_TEST(bits_of_every_dtype)
{
    for (int d = 0; d < F8_DTYPE_COUNT; d++) {
        const f8_type t = {.dtype = (f8_dtype)d, .rank = 2, .dim = {3, 5}};
        uint8_t want[15 * 8], got[15 * 8];
        const size_t size = f8_dtype_size(t.dtype);
        f8_judgement j;
        memset(want, 0x31, sizeof want);
        memcpy(got, want, sizeof want);
        f8_judge_bits(&t, got, want, &j);
        ck_assert(j.ok && j.off == 0 && j.worst == 0);
        for (size_t bit = 0; bit < 8 * size; bit++) {
            memcpy(got, want, sizeof want);
            got[7 * size + bit / 8] ^= (uint8_t)(1u << bit % 8);
            got[11 * size] ^= 1;
            f8_judge_bits(&t, got, want, &j);
            ck_assert_msg(!j.ok && j.off == 2 && j.at == 7, "%s: bit %zu: %lld off, at %lld",
                          f8_dtype_name(t.dtype), bit, (long long)j.off, (long long)j.at);
        }
    }
}
END_TEST

START_TEST(bits_of_nan)
{
    static const struct {
        f8_dtype d;
        uint32_t nan, other, inf;
    } of[] = {{F8_F32, 0x7fc00000, 0xff800001, 0x7f800000},
              {F8_BF16, 0x7fc0, 0xff81, 0x7f80},
              {F8_F16, 0x7e00, 0xfc01, 0x7c00},
              {F8_E5M2, 0x7e, 0xff, 0x7c},
              {F8_E4M3, 0x7f, 0xff, 0x7e}}; /* it has no Inf: its largest number */
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        const f8_type t = {.dtype = of[i].d, .rank = 1, .dim = {1}};
        f8_judgement j;
        f8_judge_bits(&t, &of[i].other, &of[i].nan, &j);
        ck_assert(j.ok);
        f8_judge_bits(&t, &of[i].inf, &of[i].nan, &j);
        ck_assert(!j.ok && j.off == 1 && isnan(j.want) && !isnan(j.got));
        f8_judge_bits(&t, &of[i].nan, &of[i].inf, &j);
        ck_assert(!j.ok && isnan(j.got));
    }
    const f8_type f32 = {.dtype = F8_F32};
    f8_judgement j;
    f8_judge_bits(&f32, &(float){-0.0f}, &(float){0}, &j);
    ck_assert(!j.ok);
}
END_TEST

/* ---- what can't be judged ---- */

START_TEST(other_ops_are_refused)
{
    static const char *const op[] = {"add(%a, %b)", "cast(matmul(%a, %b)) {to = f16}"};
    for (int i = 0; i < 2; i++) {
        fixture x;
        start(&x, "%a: f32[4, 4], %b: f32[4, 4]", i ? "f16[4, 4]" : "f32[4, 4]", op[i], 1);
        ck_assert_int_eq(f8_judge_node(x.g, x.r, F8_SUMS_F32, x.operand, (const void *const *)x.got,
                                       NULL, &x.j, &x.diag),
                         F8_ERR_UNSUPPORTED);
        ck_assert_msg(strstr(x.diag.text, "judged by its bits"), "%s", x.diag.text);
        finish(&x);
    }
}
END_TEST

typedef struct meter {
    int64_t live, count, fail_at;
} meter;

static void *meter_alloc(void *user, size_t size, size_t align)
{
    meter *m = user;
    if (m->count++ == m->fail_at)
        return NULL;
    m->live += (int64_t)size;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void meter_free(void *user, void *p, size_t size)
{
    ((meter *)user)->live -= p ? (int64_t)size : 0;
    free(p);
}

START_TEST(memory)
{
    meter m = {.fail_at = -1};
    const f8_allocator a = {meter_alloc, meter_free, &m};
    fixture x;
    compute(&x, _i, 1);
    const void *const *got = (const void *const *)x.got;
    ck_assert_int_eq(f8_judge_node(x.g, x.r, F8_SUMS_F32, x.operand, got, &a, &x.j, &x.diag),
                     F8_OK);
    ck_assert_int_eq(m.live, 0);
    const int64_t count = m.count;
    ck_assert_int_gt(count, 2);
    for (int64_t i = 0; i < count; i++) {
        f8_diag diag = {0};
        m = (meter){.fail_at = i};
        ck_assert_int_eq(f8_judge_node(x.g, x.r, F8_SUMS_F32, x.operand, got, &a, &x.j, &diag),
                         F8_ERR_MEMORY);
        ck_assert_int_eq(m.live, 0);
    }
    finish(&x);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("judge");
    TCase *t = tcase_create("judge");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, right_ones_pass, 0, CASES);
    tcase_add_loop_test(t, wrong_ones_are_named, 0, CASES);
    tcase_add_test(t, bound_of_a_product);
    tcase_add_test(t, few_bits_of_fp8);
    tcase_add_test(t, narrow_probabilities);
    tcase_add_test(t, flushed_factors);
    tcase_add_test(t, nan_and_inf);
    tcase_add_test(t, nan_in_a_head);
    tcase_add_test(t, overflow_is_counted);
    tcase_add_test(t, rounding_to_inf_is_counted);
    tcase_add_test(t, scores_without_a_bound);
    tcase_add_test(t, hidden_rows);
    tcase_add_test(t, bits_of_every_dtype);
    tcase_add_test(t, bits_of_nan);
    tcase_add_test(t, other_ops_are_refused);
    tcase_add_loop_test(t, memory, 0, CASES);
    suite_add_tcase(s, t);
    return s;
}
