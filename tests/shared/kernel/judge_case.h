/* Single ops for the judge's tests: each from a text, with inputs from a seed, and with results
 * that are computed right, in f32 and in another order than the reference's. */
#ifndef F8_TESTS_JUDGE_CASE_H
#define F8_TESTS_JUDGE_CASE_H

#include <math.h>
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

static inline uint32_t load_bits(f8_dtype d, const void *data, int64_t i)
{
    uint32_t bits = 0;
    memcpy(&bits, (const char *)data + (size_t)i * f8_dtype_size(d), f8_dtype_size(d));
    return bits;
}

static inline void store_bits(f8_dtype d, void *data, int64_t i, uint32_t bits)
{
    memcpy((char *)data + (size_t)i * f8_dtype_size(d), &bits, f8_dtype_size(d));
}

static inline float load(const f8_type *t, const void *data, int64_t i)
{
    return f8_decode(t->dtype, load_bits(t->dtype, data, i));
}

static inline void store(const f8_type *t, void *data, int64_t i, float x)
{
    store_bits(t->dtype, data, i, f8_encode(t->dtype, x, false));
}

/* Names say what a port holds: s and t scales, l logarithms of sums, the others within 1. */
static inline void fill(const f8_port *p, uint32_t *seed, void *to)
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

static inline const f8_type *type_of_result(const fixture *x, int i)
{
    static f8_type t;
    t = f8_result_type(x->g, x->r, i);
    return &t;
}

static inline void start(fixture *x, const char *ports, const char *result, const char *op,
                         uint32_t seed)
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

static inline void finish(fixture *x)
{
    f8_arena_end(&x->arena);
}

static inline const f8_type *type_of(const fixture *x, uint32_t operand)
{
    return f8_type_of(x->g, f8_at(x->g, x->op)->in[operand]);
}

static inline float in(const fixture *x, uint32_t operand, int64_t i)
{
    return load(type_of(x, operand), x->operand[operand], i);
}

static inline bool judge(fixture *x, f8_sums sums)
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

/* With element i of a result as `got`, it alone is off. */
static inline void assert_named(fixture *x, int result, int64_t i, double got)
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

/* ---- products, in f32, from the last k to the first ---- */

/* The scale of element (row, column) of operand i, as the attribute says. */
static inline float scale_at(const fixture *x, uint32_t i, f8_attr_key key, int64_t row,
                             int64_t column)
{
    f8_granularity g;
    const f8_type *t = type_of(x, i);
    f8_granularity_parse(f8_attr_s(x->g, x->op, key), &g);
    const int64_t across = g.cols ? (f8_type_columns(t) + g.cols - 1) / g.cols : 1;
    return in(x, i + 1, (g.rows ? row / g.rows : 0) * across + (g.cols ? column / g.cols : 0));
}

static inline float factor(const fixture *x, uint32_t i, bool transposed, bool round,
                           f8_attr_key key, int64_t row, int64_t column)
{
    const int64_t r = transposed ? column : row, c = transposed ? row : column;
    const float v = in(x, i, r * f8_type_columns(type_of(x, i)) + c);
    if (f8_at(x->g, x->op)->op == F8_OP_SCALED_MATMUL)
        return v * scale_at(x, i, key, r, c);
    return round ? f8_round_bf16(v) : v;
}

static inline float product_at(const fixture *x, int64_t K, int64_t row, int64_t column)
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

static inline void product(fixture *x)
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
    bool adds;           /* an f32 mask: lse is the largest score, and the rest */
    float scale;
} heads;

static inline heads heads_of(const fixture *x, bool narrow)
{
    const f8_type *q = type_of(x, 0), *k = type_of(x, 1);
    heads h = {.B = q->dim[0], .T = q->dim[1], .S = k->dim[1], .narrow = narrow};
    h.H = f8_attr_i(x->g, x->op, F8_A_HEADS);
    h.KH = f8_attr_i(x->g, x->op, F8_A_KV_HEADS);
    h.D = q->dim[2] / h.H;
    h.causal = f8_attr_i(x->g, x->op, F8_A_CAUSAL);
    h.adds = f8_attention_adds(x->g, f8_at(x->g, x->op));
    h.scale = 1 / sqrtf((float)h.D);
    return h;
}

static inline int64_t row_of(const heads *a, bool key, int64_t b, int64_t h, int64_t i)
{
    return key ? ((b * a->S + i) * a->KH + h / (a->H / a->KH)) * a->D
               : ((b * a->T + i) * a->H + h) * a->D;
}

/* Operands u and v, rows that begin there. */
static inline float dot(const fixture *x, int64_t D, uint32_t u, int64_t at_u, uint32_t v,
                        int64_t at_v)
{
    float sum = 0;
    for (int64_t d = D; d-- > 0;)
        sum += in(x, u, at_u + d) * in(x, v, at_v + d);
    return sum;
}

/* A mask has the shape [1, 1, T, S]. */
static inline float score(const fixture *x, const heads *a, int64_t b, int64_t h, int64_t i,
                          int64_t j)
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

static inline float narrowed(const heads *a, float v)
{
    return a->narrow ? f8_round_bf16(v) : v;
}

static inline void attend(fixture *x, const heads *a, int64_t b, int64_t h, int64_t i)
{
    float p[64], sum = 0, top = a->adds ? -INFINITY : 0;
    const f8_type o = f8_result_type(x->g, x->r, 0);
    for (int64_t j = a->S; j-- > 0;)
        p[j] = score(x, a, b, h, i, j);
    for (int64_t j = a->S; a->adds && j-- > 0;)
        top = fmaxf(top, p[j]);
    for (int64_t j = a->S; j-- > 0;)
        sum += p[j] = expf(p[j] - top);
    float *lse = (float *)x->got[1] + (b * a->H + h) * a->T * (a->adds ? 2 : 1) + i;
    if (a->adds)
        *lse = top;
    lse[a->adds ? a->T : 0] = logf(sum);
    for (int64_t d = 0; d < a->D; d++) {
        float y = 0;
        for (int64_t j = a->S; j-- > 0;)
            y += narrowed(a, p[j]) * in(x, 2, row_of(a, true, b, h, j) + d);
        store(&o, x->got[0], row_of(a, false, b, h, i) + d, y / sum);
    }
}

static inline void differentiate(const fixture *x, const heads *a, int64_t b, int64_t h, float *dq,
                                 float *dk, float *dv)
{
    for (int64_t i = a->T; i-- > 0;)
        for (int64_t j = a->S; j-- > 0;) {
            const int64_t q = row_of(a, false, b, h, i), k = row_of(a, true, b, h, j);
            const int64_t lse = (b * a->H + h) * a->T * (a->adds ? 2 : 1) + i;
            float s = score(x, a, b, h, i, j) - in(x, 4, lse);
            s -= a->adds ? in(x, 4, lse + a->T) : 0;
            const float p = expf(s);
            const float dp = dot(x, a->D, 5, q, 2, k) - dot(x, a->D, 5, q, 3, q);
            const float ds = narrowed(a, a->scale * narrowed(a, p) * dp);
            for (int64_t d = 0; d < a->D; d++) {
                dq[q + d] += ds * in(x, 1, k + d);
                dk[k + d] += ds * in(x, 0, q + d);
                dv[k + d] += narrowed(a, p) * in(x, 5, q + d);
            }
        }
}

static inline void gradients(fixture *x, const heads *a)
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

static inline void attention(fixture *x, bool narrow)
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
     "%l: f32[2, 4, 2, 12], %d: f32[2, 12, 32], %m: f32[1, 1, 12, 12]",
     "f32[2, 12, 32]", "attention_grad(%q, %k, %v, %o, %l, %d, %m) {heads = 4, kv_heads = 2}",
     1e-3},
    {"%q: bf16[1, 16, 32], %k: bf16[1, 16, 32], %v: bf16[1, 16, 32], %o: bf16[1, 16, 32], "
     "%l: f32[1, 2, 16], %d: bf16[1, 16, 32]",
     "bf16[1, 16, 32]", "attention_grad(%q, %k, %v, %o, %l, %d) {heads = 2, causal = false}", 0.02},
    /* the next two are judged in parts of 64 rows */
    {"%a: f32[7, 150], %b: f32[7, 700], %c: f32[150, 700]", "f32[150, 700]",
     "matmul(%a, %b, %c) {transpose_a = true}", 2e-5},
    {"%a: f8e4m3[150, 16], %s: f32[150, 1], %b: f8e4m3[16, 700], %t: f32[1, 700]", "f32[150, 700]",
     "scaled_matmul(%a, %s, %b, %t) {scale_a = \"row\", scale_b = \"column\"}", 5e-5},
    {"%q: f32[1, 9, 16], %k: f32[1, 8, 16], %v: f32[1, 8, 16], %m: f32[1, 1, 9, 8]",
     "f32[1, 9, 16]", "attention(%q, %k, %v, %m) {heads = 2, causal = false}", 1e-4},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static inline void compute(fixture *x, int i, uint32_t seed)
{
    start(x, cases[i].ports, cases[i].result, cases[i].op, seed);
    if (f8_op_facts(f8_at(x->g, x->op)->op)->cls == F8_ATTENTION)
        attention(x, false);
    else
        product(x);
}

#endif
