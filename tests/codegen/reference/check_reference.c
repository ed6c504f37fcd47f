/* The reference interpreter against plain definitions of every op that are written out here; and
 * the memory that it takes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/reference/reference.h"
#include "frontend/text/parse.h"
#include "ir/num/scalar.h"
#include "passes/pipeline.h"
#include "tests/shared/graphs/graphgen.h"
#include "tests/shared/passes/primitive.h"
#include "tests/shared/suite.h"

/* ---- functions from text ---- */

typedef struct fixture {
    f8_arena arena;
    f8_diag diag;
    f8_module *m;
    f8_func *f;
    void *in[16], *out[16];
} fixture;

static void start(fixture *x, const char *body)
{
    *x = (fixture){0};
    f8_arena_init(&x->arena, NULL);
    char *text = f8_arena_printf(&x->arena, "module m\n%s\n", body);
    f8_parse(text, strlen(text), "t", NULL, 0, &x->arena, &x->diag, &x->m);
    ck_assert_msg(x->m, "%u:%u %s\n%s", x->diag.loc.line, x->diag.loc.column, x->diag.text, text);
    x->f = &x->m->func[0];
    for (size_t i = 0; i < x->f->n_in; i++) {
        x->in[i] = f8_arena_array(&x->arena, (size_t)f8_type_elements(&x->f->in[i].type), 8);
        graphgen_fill(7, x->f->in[i].name, &x->f->in[i].type, x->in[i]);
    }
    for (size_t i = 0; i < x->f->n_out; i++)
        x->out[i] = f8_arena_array(&x->arena, (size_t)f8_type_elements(&x->f->out[i].type), 8);
}

static void go(fixture *x)
{
    ck_assert_msg(test_reference_run(x->f, (const void *const *)x->in, x->out, &x->diag) == F8_OK,
                  "%s", x->diag.text);
}

static void finish(fixture *x)
{
    f8_arena_end(&x->arena);
}

static bool same(float a, float b)
{
    return f8_bits(a) == f8_bits(b) || (isnan(a) && isnan(b));
}

#define ASSERT_SAME(a, b)                                                                          \
    ck_assert_msg(same((a), (b)), "%s: %.9g is not %.9g", #a, (double)(a), (double)(b))

/* ---- pointwise ---- */

START_TEST(broadcasting)
{
    fixture x;
    start(&x, "func f(%x: f32[2, 1, 3], %soft: f32[4, 1], %x2: f32[]) -> (%y: f32[2, 4, 3], %z: "
              "bool[2, 4, 3], %w: "
              "f32[2, 4, 3]) {\n  return sub(%x, %soft), lt(%soft, %x), fma(%x, %soft, %x2)\n}");
    go(&x);
    const float *a = x.in[0], *b = x.in[1], *c = x.in[2];
    for (int i = 0; i < 24; i++) {
        const float p = a[i / 12 * 3 + i % 3], q = b[i / 3 % 4];
        ASSERT_SAME(((float *)x.out[0])[i], p - q);
        ck_assert_int_eq(((uint8_t *)x.out[1])[i], q < p);
        ASSERT_SAME(((float *)x.out[2])[i], fmaf(p, q, *c));
    }
    finish(&x);
}
END_TEST

static const float specials[] = {0.0f,    -0.0f, 1,      -1,   INFINITY, -INFINITY, NAN,  1e-40f,
                                 -1e-45f, 3e38f, -3e38f, 2.5f, -2.5f,    88,        -100, 0.3f};
enum { N_SPECIALS = sizeof specials / sizeof specials[0] };

/* Every pair of special values through two-operand ops. */
START_TEST(special_values)
{
    fixture x;
    start(&x, "func f(%a: f32[16, 1], %b: f32[16]) -> (%r1: f32[16, 16], %r2: f32[16, 16], %r3: "
              "f32[16, 16], %r4: f32[16, "
              "16], %r5: bool[16, 16], %r6: bool[16, 1], %r7: f32[16, 1], %r8: i32[16, 1], %r9: "
              "f32[16, 1], %r10: f32[16, 1]) {\n"
              "  return add(%a, %b), div(%a, %b), max(%a, %b), min(%a, %b), le(%a, %b), "
              "isfinite(%a), rsqrt(%a), "
              "cast(%a) {to = i32}, exp(%a), relu(%a)\n}");
    memcpy(x.in[0], specials, sizeof specials);
    memcpy(x.in[1], specials, sizeof specials);
    go(&x);
    for (int i = 0; i < N_SPECIALS * N_SPECIALS; i++) {
        const float a = specials[i / N_SPECIALS], b = specials[i % N_SPECIALS];
        ASSERT_SAME(((float *)x.out[0])[i], a + b);
        ASSERT_SAME(((float *)x.out[1])[i], a / b);
        ASSERT_SAME(((float *)x.out[2])[i], f8_maximum(a, b));
        ASSERT_SAME(((float *)x.out[3])[i], f8_minimum(a, b));
        ck_assert_int_eq(((uint8_t *)x.out[4])[i], a <= b);
    }
    for (int i = 0; i < N_SPECIALS; i++) {
        const float a = specials[i];
        ck_assert_int_eq(((uint8_t *)x.out[5])[i], isfinite(a) != 0);
        ASSERT_SAME(((float *)x.out[6])[i], 1.0f / sqrtf(a));
        ck_assert_int_eq(((int32_t *)x.out[7])[i], f8_f32_to_i32(a));
        ASSERT_SAME(((float *)x.out[8])[i], f8_scalar_f32(F8_FN_EXP, a));
        /* +0 for -0, NaN for NaN */
        ASSERT_SAME(((float *)x.out[9])[i], isnan(a) ? a : a > 0 ? a : 0.0f);
    }
    finish(&x);
}
END_TEST

START_TEST(integers_wrap)
{
    fixture x;
    start(&x, "func f(%a: i32[5], %b: i32[5]) -> (%r1: i32[5], %r2: i32[5], %r3: i32[5], %r4: "
              "i32[5], %r5: bool[5], %r6: "
              "f32[5]) {\n  return add(%a, %b), mul(%a, %b), neg(%a), abs(%a), le(%a, %b), "
              "cast(%a) {to = f32}\n}");
    const int32_t a[] = {INT32_MAX, INT32_MIN, -7, 0, 123456789}, b[] = {1, -1, 3, 0, 987654321};
    memcpy(x.in[0], a, sizeof a);
    memcpy(x.in[1], b, sizeof b);
    go(&x);
    for (int i = 0; i < 5; i++) {
        const uint32_t u = (uint32_t)a[i], v = (uint32_t)b[i];
        ck_assert_uint_eq(((uint32_t *)x.out[0])[i], u + v);
        ck_assert_uint_eq(((uint32_t *)x.out[1])[i], u * v);
        ck_assert_uint_eq(((uint32_t *)x.out[2])[i], 0 - u);
        ck_assert_uint_eq(((uint32_t *)x.out[3])[i], a[i] < 0 ? 0 - u : u);
        ck_assert_int_eq(((uint8_t *)x.out[4])[i], a[i] <= b[i]);
        ASSERT_SAME(((float *)x.out[5])[i], (float)a[i]);
    }
    finish(&x);
}
END_TEST

/* All of bf16 through the casts and quantize. */
START_TEST(codecs)
{
    fixture x;
    start(&x, "func f(%x: bf16[256, 256], %s: f32[]) -> (%r1: f32[256, 256], %r2: f16[256, 256], "
              "%r3: f8e4m3[256, 256], %r4: "
              "f8e5m2[256, 256], %r5: bf16[256, 256]) {\n  return cast(%x), cast(%x) {to = f16}, "
              "quantize(%x, %s), "
              "quantize(%x, %s) {format = f8e5m2, saturate = false}, cast(mul(cast(%x), 1.001)) "
              "{to = bf16}\n}");
    for (int i = 0; i < 65536; i++)
        ((uint16_t *)x.in[0])[i] = (uint16_t)i;
    *(float *)x.in[1] = 0.75f;
    go(&x);
    for (int i = 0; i < 65536; i++) {
        const float v = f8_bf16_to_f32((uint16_t)i);
        ASSERT_SAME(((float *)x.out[0])[i], v);
        ASSERT_SAME(f8_f16_to_f32(((uint16_t *)x.out[1])[i]), f8_f16_to_f32(f8_f32_to_f16(v)));
        ASSERT_SAME(f8_e4m3_to_f32(((uint8_t *)x.out[2])[i]),
                    f8_e4m3_to_f32(f8_f32_to_e4m3(v * 0.75f, true)));
        ASSERT_SAME(f8_e5m2_to_f32(((uint8_t *)x.out[3])[i]),
                    f8_e5m2_to_f32(f8_f32_to_e5m2(v * 0.75f, false)));
        ASSERT_SAME(f8_bf16_to_f32(((uint16_t *)x.out[4])[i]), f8_round_bf16(v * 1.001f));
    }
    finish(&x);
}
END_TEST

/* ---- reductions ---- */

static const int lengths[] = {1,   2,   3,   63,  64,  65,  127, 128,  129,
                              255, 256, 257, 300, 511, 512, 513, 1000, 4100};
enum { N_LENGTHS = sizeof lengths / sizeof lengths[0] };

/* ir/README.md, word by word. */
static float row_sum(const float *v, int n)
{
    float lane[256];
    const int lanes = n < 256 ? n : 256;
    for (int j = 0; j < lanes; j++) {
        lane[j] = v[j];
        for (int i = j + 256; i < n; i += 256)
            lane[j] += v[i];
    }
    for (int h = 128; h >= 1; h /= 2)
        for (int j = 0; j < h; j++)
            if (j + h < lanes)
                lane[j] = lane[j] + lane[j + h];
    return lane[0];
}

static float column_sum(const float *v, int rows, int stride)
{
    if (rows <= 64) {
        float sum = v[0];
        for (int r = 1; r < rows; r++)
            sum += v[r * stride];
        return sum;
    }
    float part[128] = {0}; /* gcc does not see that rows > 64 */
    int n = 0;
    for (int first = 0; first < rows; first += 64)
        part[n++] = column_sum(v + first * stride, rows - first < 64 ? rows - first : 64, stride);
    return column_sum(part, n, 1);
}

START_TEST(canonical_sums)
{
    fixture x;
    char text[512];
    const int n = lengths[_i], blocks = (n + 63) / 64;
    snprintf(text, sizeof text,
             "func f(%%soft: f32[3, %d], %%soft2: f32[%d, 3]) -> (%%r1: f32[3, 1], %%r2: f32[1, "
             "3], %%r3: f32[%d, 3], %%r4: "
             "f32[3, 1], %%r5: f32[1, 3]) {\n  return reduce_sum(%%soft), reduce_sum(%%soft2) "
             "{axis = 0}, "
             "reduce_sum(%%soft2) {axis = 0, block = 64}, reduce_max(%%soft), reduce_amax(%%soft2) "
             "{axis = 0}\n}",
             n, n, blocks);
    start(&x, text);
    go(&x);
    const float *a = x.in[0], *b = x.in[1];
    for (int c = 0; c < 3; c++) {
        float top = -INFINITY, amax = 0;
        for (int i = 0; i < n; i++) {
            top = fmaxf(top, a[c * n + i]);
            amax = fmaxf(amax, fabsf(b[i * 3 + c]));
        }
        ASSERT_SAME(((float *)x.out[0])[c], row_sum(a + c * n, n));
        ASSERT_SAME(((float *)x.out[1])[c], column_sum(b + c, n, 3));
        for (int k = 0; k < blocks; k++)
            ASSERT_SAME(((float *)x.out[2])[k * 3 + c],
                        column_sum(b + k * 192 + c, n - k * 64 < 64 ? n - k * 64 : 64, 3));
        ASSERT_SAME(((float *)x.out[3])[c], top);
        ASSERT_SAME(((float *)x.out[4])[c], amax);
    }
    finish(&x);
}
END_TEST

/* No NaN or Inf is lost in a maximum, wherever it stands. */
START_TEST(nothing_is_laundered)
{
    fixture x;
    start(&x, "func f(%x: f32[2, 300]) -> (%r1: f32[2, 1], %r2: f32[2, 1], %r3: f32[], %r4: f32[1, "
              "300]) {\n"
              "  return reduce_max(%x), reduce_amax(%x), amax(%x), reduce_max(%x) {axis = 0}\n}");
    float *v = x.in[0];
    for (int at = 0; at < 300; at += 13) {
        for (int i = 0; i < 600; i++)
            v[i] = (float)(i % 7);
        v[at] = -INFINITY;
        v[300 + at] = NAN;
        go(&x);
        ASSERT_SAME(((float *)x.out[0])[0], 6.0f);
        ASSERT_SAME(((float *)x.out[0])[1], NAN);
        ASSERT_SAME(((float *)x.out[1])[0], INFINITY);
        ASSERT_SAME(((float *)x.out[1])[1], NAN);
        ASSERT_SAME(*(float *)x.out[2], NAN);
        ASSERT_SAME(((float *)x.out[3])[at], NAN);
    }
    finish(&x);
}
END_TEST

/* ---- moving ---- */

START_TEST(shapes)
{
    fixture x;
    start(&x, "func f(%x: i32[2, 3, 4], %x2: i32[2, 3, 1]) -> (%r1: i32[4, 2, 3], %r2: i32[2, 2, "
              "4], %r3: i32[2, 3, 5], %r4: "
              "i32[5, 2, 3, 4], %r5: i32[2, 3, 4], %r6: i32[6, 4]) {\n  return transpose(%x) {perm "
              "= [2, 0, 1]}, slice(%x) "
              "{axis = 1, start = 1, stop = 3}, concat(%x2, %x), broadcast(%x) {shape = [5, 2, 3, "
              "4]}, roll(%x) {shift = "
              "1, group = 2}, reshape(%x) {shape = [6, 4]}\n}");
    go(&x);
    const int32_t *a = x.in[0], *b = x.in[1];
    for (int i = 0; i < 24; i++) {
        ck_assert_int_eq(((int32_t *)x.out[0])[i], a[i / 3 % 2 * 12 + i % 3 * 4 + i / 6]);
        ck_assert_int_eq(((int32_t *)x.out[4])[i], a[i ^ 1]);
        ck_assert_int_eq(((int32_t *)x.out[5])[i], a[i]);
    }
    for (int i = 0; i < 16; i++)
        ck_assert_int_eq(((int32_t *)x.out[1])[i], a[i / 8 * 12 + 4 + i % 8]);
    for (int i = 0; i < 30; i++)
        ck_assert_int_eq(((int32_t *)x.out[2])[i], i % 5 ? a[i / 5 * 4 + i % 5 - 1] : b[i / 5]);
    for (int i = 0; i < 120; i++)
        ck_assert_int_eq(((int32_t *)x.out[3])[i], a[i % 24]);
    finish(&x);
}
END_TEST

START_TEST(gathers)
{
    fixture x;
    start(&x, "func f(%soft: f32[3, 5], %ids: i32[6], %soft2: f32[6, 5]) -> (%r1: f32[6, 5], %r2: "
              "f32[3, 5]) {\n"
              "  return embedding(%soft, %ids), embedding_grad(%soft, %ids, %soft2)\n}");
    const int32_t ids[] = {2, 0, 2, -1, 3, 2};
    memcpy(x.in[1], ids, sizeof ids);
    go(&x);
    const float *table = x.in[0], *dy = x.in[2];
    for (int i = 0; i < 30; i++) {
        const int id = ids[i / 5];
        ASSERT_SAME(((float *)x.out[0])[i], id < 0 || id > 2 ? NAN : table[id * 5 + i % 5]);
    }
    for (int c = 0; c < 5; c++) {
        ASSERT_SAME(((float *)x.out[1])[c], table[c] + dy[5 + c]);
        ASSERT_SAME(((float *)x.out[1])[5 + c], table[5 + c]);
        ASSERT_SAME(((float *)x.out[1])[10 + c],
                    ((table[10 + c] + dy[c]) + dy[10 + c]) + dy[25 + c]);
    }
    finish(&x);
}
END_TEST

/* Row 2 of a table alone. Ids that no table has are out of range there, too, however far. */
START_TEST(gathers_a_part)
{
    fixture x;
    start(&x, "func f(%soft: f32[3, 5], %ids: i64[4], %soft2: f32[4, 5]) -> (%r: f32[3, 5]) {\n"
              "  return embedding_grad(%soft, %ids, %soft2)\n}");
    const int64_t ids[] = {2, INT64_MIN, INT64_MAX, 0};
    const f8_type row = {F8_F32, 2, {1, 5}}, in[] = {row, x.f->in[1].type, x.f->in[2].type};
    const f8_part part = {.in = in, .out = &row, .first = 2};
    const float *table = x.in[0], *dy = x.in[2];
    const void *const operand[] = {table + 10, ids, dy};
    float result[5];
    void *const out[] = {result};
    ck_assert_int_eq(f8_reference_part(x.f->graph, x.f->out[0].ref, &part, operand, out, NULL,
                                       &x.diag), F8_OK);
    for (int c = 0; c < 5; c++)
        ASSERT_SAME(result[c], table[10 + c] + dy[c]);
    finish(&x);
}
END_TEST

/* ---- products ---- */

static double get(f8_dtype d, const void *v, int i)
{
    return (double)f8_decode(d, d == F8_F32    ? ((const uint32_t *)v)[i]
                                : d == F8_BF16 ? ((const uint16_t *)v)[i]
                                               : ((const uint8_t *)v)[i]);
}

/* Every dtype and transposition, odd sizes: a plain loop in double gives the same bits. */
START_TEST(products)
{
    static const struct {
        const char *a, *b;
        f8_dtype da, db;
    } dtypes[] = {{"f32", "f32", F8_F32, F8_F32},
                  {"bf16", "bf16", F8_BF16, F8_BF16},
                  {"f8e4m3", "f8e5m2", F8_E4M3, F8_E5M2}};
    const int ta = _i & 1, tb = _i >> 1 & 1, acc = _i >> 2 & 1, d = _i >> 3, M = 5, N = 270, K = 67;
    fixture x;
    char text[512];
    snprintf(text, sizeof text,
             "func f(%%soft: %s[%d, %d], %%soft2: %s[%d, %d], %%soft3: f32[%d, %d]) -> (%%y: "
             "f32[%d, %d]) {\n"
             "  return matmul(%%soft, %%soft2%s) {transpose_a = %s, transpose_b = %s}\n}",
             dtypes[d].a, ta ? K : M, ta ? M : K, dtypes[d].b, tb ? N : K, tb ? K : N, M, N, M, N,
             acc ? ", %soft3" : "", ta ? "true" : "false", tb ? "true" : "false");
    start(&x, text);
    go(&x);
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum += get(dtypes[d].da, x.in[0], ta ? k * M + m : m * K + k) *
                       get(dtypes[d].db, x.in[1], tb ? n * K + k : k * N + n);
            if (acc)
                sum = (double)((float *)x.in[2])[m * N + n] + sum;
            ASSERT_SAME(((float *)x.out[0])[m * N + n], (float)sum);
        }
    finish(&x);
}
END_TEST

START_TEST(scaled_and_rounded_products)
{
    fixture x;
    start(&x, "func f(%soft: f8e4m3[3, 9], %soft2: f8e4m3[9, 2], %s: f32[], %t: f32[], %soft3: "
              "f32[3, 9], %soft4: bf16[9, "
              "2]) -> (%y: f32[3, 2], %z: f32[3, 2]) {\n  return scaled_matmul(%soft, %s, %soft2, "
              "%t), matmul(%soft3, "
              "%soft4) {round_a = true}\n}");
    *(float *)x.in[2] = 0.3f;
    *(float *)x.in[3] = 7.1f;
    go(&x);
    for (int i = 0; i < 6; i++) {
        double sum = 0, rounded = 0;
        for (int k = 0; k < 9; k++) {
            sum += get(F8_E4M3, x.in[0], i / 2 * 9 + k) * get(F8_E4M3, x.in[1], k * 2 + i % 2);
            rounded += (double)f8_round_bf16(((float *)x.in[4])[i / 2 * 9 + k]) *
                       get(F8_BF16, x.in[5], k * 2 + i % 2);
        }
        ASSERT_SAME(((float *)x.out[0])[i], (float)((double)(0.3f * 7.1f) * sum));
        ASSERT_SAME(((float *)x.out[1])[i], (float)rounded);
    }
    finish(&x);
}
END_TEST

/* Softmax attention from its definition; keys a query may not see do not count, even NaN. */
START_TEST(attention)
{
    enum { T = 5, H = 4, KH = 2, D = 3 };
    fixture x;
    start(&x, "func f(%soft: f32[2, 5, 12], %soft2: f32[2, 5, 6], %soft3: f32[2, 5, 6]) -> (%o: "
              "f32[2, 5, 12], %lse: f32[2, "
              "4, 5]) {\n  %o = attention(%soft, %soft2, %soft3) {heads = 4, kv_heads = 2}\n  "
              "return %o, project(%o)\n}");
    const float *q = x.in[0], *v = x.in[2];
    float *k = x.in[1];
    k[(1 * T + 4) * KH * D] =
        NAN; /* the last key of batch 1, head 0: seen by the last query alone */
    go(&x);
    for (int b = 0; b < 2; b++)
        for (int h = 0; h < H; h++)
            for (int i = 0; i < T; i++) {
                double s[T], sum = 0;
                for (int j = 0; j <= i; j++) {
                    double dot = 0;
                    for (int d = 0; d < D; d++)
                        dot += (double)q[((b * T + i) * H + h) * D + d] *
                               (double)k[((b * T + j) * KH + h / 2) * D + d];
                    sum += s[j] = exp(dot / sqrt(D));
                }
                const double lse = log(sum), got = (double)((float *)x.out[1])[(b * H + h) * T + i];
                ck_assert((isnan(lse) && isnan(got)) || fabs(got - lse) <= 1e-6);
                for (int d = 0; d < D; d++) {
                    double o = 0;
                    for (int j = 0; j <= i; j++)
                        o += s[j] / sum * (double)v[((b * T + j) * KH + h / 2) * D + d];
                    const double y = (double)((float *)x.out[0])[((b * T + i) * H + h) * D + d];
                    ck_assert((isnan(o) && isnan(y)) || fabs(y - o) <= 1e-6);
                }
            }
    finish(&x);
}
END_TEST

/* ---- state, double, memory ---- */

/* Two variables that trade places in their own buffers, while a third reads both. */
START_TEST(results_over_inputs)
{
    fixture x;
    start(&x, "state a: f32[3] zeros\nstate b: f32[3] zeros\nstate c: f32[3] zeros\n"
              "func f(%x: f32[3]) -> () {\n  return a <- b, b <- a, c <- add(a, b)\n}");
    float v[3][3] = {{1, 2, 3}, {10, 20, 30}, {0}};
    for (size_t i = 0; i < x.f->n_in; i++)
        if (x.f->in[i].var >= 0)
            x.in[i] = v[x.f->in[i].var];
    for (size_t i = 0; i < x.f->n_out; i++)
        x.out[i] = v[x.f->out[i].var];
    go(&x);
    for (int i = 0; i < 3; i++) {
        ASSERT_SAME(v[0][i], 10.0f * (float)(i + 1));
        ASSERT_SAME(v[1][i], (float)(i + 1));
        ASSERT_SAME(v[2][i], 11.0f * (float)(i + 1));
    }
    finish(&x);
}
END_TEST

START_TEST(double_precision)
{
    fixture x;
    start(&x,
          "func f(%a: f32[2], %i: i32[2]) -> (%y: f32[2], %z: bf16[2], %n: i32[2], %s: f32[1]) {\n"
          "  %b = cast(%a) {to = bf16}\n  return exp(cast(%b)), %b, add(%i, cast(%a) {to = i32}), "
          "reduce_sum(%a)\n}");
    memcpy(x.in[0], (double[]){1.0 / 3, 2.7}, 16);
    memcpy(x.in[1], (int32_t[]){INT32_MAX, 5}, 8);
    ck_assert_int_eq(test_reference_run_f64(x.f, (const void *const *)x.in, x.out, &x.diag), F8_OK);
    ck_assert_double_eq(((double *)x.out[0])[0], exp(1.0 / 3)); /* the cast to bf16 did not round */
    ck_assert_double_eq(((double *)x.out[1])[1], 2.7);
    ck_assert_int_eq(((int32_t *)x.out[2])[0], INT32_MAX);
    ck_assert_int_eq(((int32_t *)x.out[2])[1], 7);
    ck_assert_double_eq(*(double *)x.out[3], 1.0 / 3 + 2.7);
    finish(&x);
    start(&x, "func f(%a: f32[2]) -> (%y: f32[2]) {\n  return cast(quantize(%a, 1))\n}");
    ck_assert_int_eq(test_reference_run_f64(x.f, (const void *const *)x.in, x.out, &x.diag),
                     F8_ERR_UNSUPPORTED);
    ck_assert_str_eq(x.diag.text, "quantize: no FP8 values in double precision");
    finish(&x);
}
END_TEST

/* A composite's formula stands in the pass that expands it, not here. */
START_TEST(composites_are_refused)
{
    static const char *const body[] = {"func f(%a: f32[2]) -> (%y: f32[2]) {\n  return gelu(%a)\n}",
                                       "func f(%a: f32[2]) -> (%y: f32[]) {\n  return amax(%a)\n}"};
    static const char *const of[] = {"gelu", "amax"};
    fixture x;
    start(&x, body[_i]);
    const f8_status status = f8_reference_run(x.f, (const void *const *)x.in, x.out, NULL, &x.diag);
    ck_assert_int_eq(status, F8_ERR_INTERNAL);
    ck_assert_msg(strstr(x.diag.text, of[_i]) && strstr(x.diag.text, "after the pass decompose"),
                  "%s", x.diag.text);
    finish(&x);
}
END_TEST

typedef struct meter {
    int64_t live, peak, count, fail_at;
} meter;

static void *meter_alloc(void *user, size_t size, size_t align)
{
    meter *m = user;
    if (m->count++ == m->fail_at)
        return NULL;
    m->live += (int64_t)size;
    m->peak = m->live > m->peak ? m->live : m->peak;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void meter_free(void *user, void *p, size_t size)
{
    ((meter *)user)->live -= p ? (int64_t)size : 0;
    free(p);
}

/* Values are freed after their last use; a failed allocation is an error, and nothing leaks. */
START_TEST(memory)
{
    fixture x;
    start(
        &x,
        "func f(%soft: f32[100, 100]) -> (%y: f32[100, 1]) {\n  repeat i < 20 carry %x = %soft {\n"
        "    %x = softmax(matmul(%x, %x))\n  }\n  return reduce_sum(%x)\n}");
    f8_unit u = {.module = x.m, .arena = &x.arena, .diag = &x.diag};
    ck_assert_int_eq(f8_pass_decompose(&u), F8_OK);
    meter m = {.fail_at = -1};
    const f8_allocator a = {meter_alloc, meter_free, &m};
    ck_assert_int_eq(f8_reference_run(x.f, (const void *const *)x.in, x.out, &a, &x.diag), F8_OK);
    ck_assert_int_eq(m.live, 0);
    ck_assert_int_lt(m.peak, 12 * 40000); /* not 20 products and all that softmax makes */
    const int64_t count = m.count;
    for (int64_t i = 0; i < count; i += 1 + i / 7) {
        f8_diag diag = {0};
        m = (meter){.fail_at = i};
        ck_assert_int_eq(f8_reference_run(x.f, (const void *const *)x.in, x.out, &a, &diag),
                         F8_ERR_MEMORY);
        ck_assert_int_eq(m.live, 0);
    }
    finish(&x);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("reference");
    TCase *t = tcase_create("reference");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, broadcasting);
    tcase_add_test(t, special_values);
    tcase_add_test(t, integers_wrap);
    tcase_add_test(t, codecs);
    tcase_add_loop_test(t, canonical_sums, 0, N_LENGTHS);
    tcase_add_test(t, nothing_is_laundered);
    tcase_add_test(t, shapes);
    tcase_add_test(t, gathers);
    tcase_add_test(t, gathers_a_part);
    tcase_add_loop_test(t, products, 0, 24);
    tcase_add_test(t, scaled_and_rounded_products);
    tcase_add_test(t, attention);
    tcase_add_test(t, results_over_inputs);
    tcase_add_test(t, double_precision);
    tcase_add_loop_test(t, composites_are_refused, 0, 2);
    tcase_add_test(t, memory);
    suite_add_tcase(s, t);
    return s;
}
