/* Attention under large finite masks, on every target, through the public API: results and
 * gradients against formulas in double, written here.
 *
 * A score is an f32: the factor times q k, plus the mask, rounded once. At -1e9 an f32 is a
 * multiple of 64, so all keys of a row that is masked so have the same score. That is the
 * definition, as it is in PyTorch's math in f32; in double the scores would still differ. Inputs
 * are small multiples of 1/8 and factors are powers of two: then a score before the mask is exact
 * on every target, in bf16 too, and the rounded sum is the same everywhere. */
#include <float.h>
#include <math.h>

#include "tests/shared/api/pair_layer.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

static const char *targets[] = {"reference", "cpu", "cuda"};
enum {
    N_TARGETS = 3,
    BATCH = 2,
    H = 4,
    KH = 2,
    D = 16,
    MOST_T = 33,
    MOST = BATCH * MOST_T * H * D
};

typedef struct case_ {
    int T, S;
    bool causal;
    double dropout;
    float large; /* what q and k are multiplied by: scores of up to large^2 */
} case_;

static const case_ cases[] = {
    {1, 1, true, 0, 1},   {1, 8, false, 0, 1},    {33, 33, false, 0, 1},
    {33, 33, true, 0, 1}, {9, 20, false, 0.3, 1}, {20, 33, false, 0, 0x1p50f},
};
enum { N_CASES = sizeof cases / sizeof *cases, KINDS = 11 };

/* What is added to the score of a key: each kind is a row of the mask. */
static float mask_of(int kind, int j, int S)
{
    const float few = (float)(j % 5 - 2) / 4;
    switch (kind) {
    case 0: return -1e9f;
    case 1: return -FLT_MAX;
    case 2: return 1e9f;
    case 3: return j % 2 ? few : -1e9f;         /* some hidden, some ordinary */
    case 4: return -0x1.fep127f;                /* the least bf16 */
    case 5: return -65504;                      /* the least f16 */
    case 6: return -1e9f - 64 * (float)(j % 3); /* differences that an f32 of this size has */
    case 7: return j < S - 2 ? -INFINITY : 1e9f;
    case 8: return -INFINITY;                /* nothing to see */
    case 9: return j % 3 ? -FLT_MAX : -1e9f; /* the larger of two hides the other */
    default: return few;
    }
}

static float mask[BATCH * MOST_T * MOST_T], q[MOST], k[MOST], v[MOST], dy[MOST];

/* Gradients and the output, and of each the sum of the magnitudes of its terms. */
typedef struct sums {
    double x[MOST], abs[MOST];
} sums;
static sums y, dq, dk, dv;

static void add(sums *s, int at, double x, double abs)
{
    s->x[at] += x;
    s->abs[at] += abs;
}

static int query_at(int T, int b, int h, int i)
{
    return ((b * T + i) * H + h) * D;
}

static int key_at(int S, int b, int h, int j)
{
    return ((b * S + j) * KH + h / (H / KH)) * D;
}

static double dot(const float *a, const float *b)
{
    double sum = 0;
    for (int d = 0; d < D; d++)
        sum += (double)a[d] * (double)b[d];
    return sum;
}

/* The probabilities of a row: false if it sees nothing. */
static bool softmax(const case_ *c, int b, int h, int i, double *p)
{
    float s[MOST_T], top = -INFINITY;
    double sum = 0;
    for (int j = 0; j < c->S; j++) {
        const double score = dot(q + query_at(c->T, b, h, i), k + key_at(c->S, b, h, j)) / 4;
        const bool hidden = c->causal && j > i;
        s[j] = hidden ? -INFINITY : (float)(score + (double)mask[(b * c->T + i) * c->S + j]);
        top = fmaxf(top, s[j]);
    }
    for (int j = 0; j < c->S && top > -INFINITY; j++)
        sum += p[j] = exp((double)s[j] - (double)top);
    for (int j = 0; j < c->S && sum > 0; j++)
        p[j] /= sum;
    return sum > 0;
}

static double kept(const case_ *c, int b, int h, int i, int j)
{
    const uint32_t key = test_pcg3d(5, 0, 0);
    const uint32_t bits = test_pcg3d((uint32_t)j, (uint32_t)((b * H + h) * c->T + i), key);
    if (c->dropout == 0)
        return 1;
    return bits + 0x80000000u < (uint64_t)(c->dropout * 0x1p32) ? 0 : 1 / (1 - c->dropout);
}

static void expect_row(const case_ *c, int b, int h, int i)
{
    const int at = query_at(c->T, b, h, i);
    double p[MOST_T], delta = 0, deltas = 0;
    if (!softmax(c, b, h, i, p))
        return;
    for (int j = 0; j < c->S; j++)
        for (int d = 0; d < D; d++) {
            const double x = kept(c, b, h, i, j) * p[j] * (double)v[key_at(c->S, b, h, j) + d];
            add(&y, at + d, x, fabs(x));
        }
    for (int d = 0; d < D; d++) {
        delta += y.x[at + d] * (double)dy[at + d];
        deltas += y.abs[at + d] * fabs((double)dy[at + d]);
    }
    for (int j = 0; j < c->S; j++) {
        const int to = key_at(c->S, b, h, j);
        const double keep = kept(c, b, h, i, j),
                     ds = p[j] / 4 * (keep * dot(dy + at, v + to) - delta);
        double most = deltas;
        for (int d = 0; d < D; d++)
            most += keep * fabs((double)dy[at + d] * (double)v[to + d]);
        for (int d = 0; d < D; d++) {
            const double x = keep * p[j] * (double)dy[at + d];
            const double kd = (double)k[to + d], qd = (double)q[at + d];
            add(&dv, to + d, x, fabs(x));
            add(&dq, at + d, ds * kd, p[j] / 4 * most * fabs(kd));
            add(&dk, to + d, ds * qd, p[j] / 4 * most * fabs(qd));
        }
    }
}

static void expect(const case_ *c)
{
    y = dq = dk = dv = (sums){{0}, {0}};
    for (int row = 0; row < BATCH * H * c->T; row++)
        expect_row(c, row / (H * c->T), row / c->T % H, row % c->T);
}

/* In bf16 p, ds, o and the result are rounded, 2^-9 of the magnitudes each, some twice: 2^-6 is
 * enough for all. In f32 it is the sums' chains of at most 66 + 20 roundings of 2^-24 (or on the
 * emulated quads twice that) and exp's error: 2^-15. A probability below 2^-126 may count as 0;
 * up to 66 of them meet in a sum, times at most 2^12 and what q or k are multiplied by. */
static void check(setup *s, const char *name, const sums *want, int n, const case_ *c, bool bf16,
                  const char *what)
{
    const float *got = pair_find(&s->out, name)->data;
    for (int i = 0; i < n; i++) {
        const double off = fabs((double)got[i] - want->x[i]);
        ck_assert_msg(off <= want->abs[i] * (bf16 ? 0x1p-6 : 0x1p-15) + 0x1p-107 * (double)c->large,
                      "%s: %s[%d] is %.9g, not %.9g", what, name, i, (double)got[i], want->x[i]);
    }
}

static void fill(setup *s, const char *name, int rows, int heads, float by, float *to)
{
    const fp8c_type type = {FP8C_F32, 3, {BATCH, rows, heads * D}};
    uint32_t seed = (uint32_t)name[strlen(name) - 1] * 7 + (uint32_t)rows;
    for (int i = 0; i < BATCH * rows * heads * D; i++)
        to[i] = by * ((float)(test_random(&seed) % 17) - 8) / 8;
    if (by != 1 && *name == 'k') /* equal keys: huge scores whose differences are 0 */
        for (int i = heads * D; i < BATCH * rows * heads * D; i++)
            to[i] = to[i % (heads * D)];
    pair_set(&s->in, name, &type, to);
}

static void run_case(setup *s, const case_ *c, const char *target, const char *of)
{
    const bool bf16 = !strcmp(of, "bf16");
    char text[512], what[96];
    snprintf(
        text, sizeof text,
        "module m\nfunc forward(%%q: f32[2, %d, 64], %%k: f32[2, %d, 32], %%v: f32[2, %d, 32],\n"
        "  %%m: f32[2, 1, %d, %d], %%seed: i32[]) -> (%%y: f32[2, %d, 64]) {\n"
        "  return attention(%%q, %%k, %%v, %%m, %%seed)\n"
        "    {heads = 4, kv_heads = 2, causal = %s, dropout = %g}\n}\n",
        c->T, c->S, c->S, c->T, c->S, c->T, c->causal ? "true" : "false", c->dropout);
    fp8c_compile_options o = pair_options(of);
    o.target = target;
    o.gradients_of = "q,k,v";
    begin(s, text, &o);
    fill(s, "q", c->T, H, c->large, q);
    fill(s, "k", c->S, KH, c->large, k);
    fill(s, "v", c->S, KH, 1, v);
    fill(s, "dy", c->T, H, 1, dy);
    pair_set(&s->in, "seed", &(fp8c_type){.dtype = FP8C_I32}, &(int32_t){5});
    for (int first = 0; first < KINDS; first += c->T == 1 ? 2 : KINDS) {
        const fp8c_type type = {FP8C_F32, 4, {BATCH, 1, c->T, c->S}};
        for (int i = 0; i < BATCH * c->T * c->S; i++)
            mask[i] = mask_of((i / c->S + first) % KINDS, i % c->S, c->S);
        pair_set(&s->in, "m", &type, mask);
        expect(c);
        pair_step(s->p, false, &s->in, &s->out);
        snprintf(what, sizeof what, "%s on %s, case %d, kinds from %d", of, target,
                 (int)(c - cases), first);
        check(s, "y", &y, BATCH * c->T * H * D, c, bf16, what);
        check(s, "dv", &dv, BATCH * c->S * KH * D, c, bf16, what);
        check(s, "dq", &dq, BATCH * c->T * H * D, c, bf16, what);
        check(s, "dk", &dk, BATCH * c->S * KH * D, c, bf16, what);
    }
    end(s);
}

static setup a, b;

START_TEST(gradients)
{
    for (int i = 0; i < N_CASES; i++)
        run_case(&a, &cases[i], targets[_i % N_TARGETS], _i / N_TARGETS ? "bf16" : "f32");
}
END_TEST

/* ---- recipes ---- */

/* A layer with attention as an op and written out, whose softmax saves its probabilities. */
#define LAYER(ATTENTION)                                                                           \
    "module m\nparam wq: f32[128, 128] normal(0.1)\nparam wk: f32[128, 128] normal(0.1)\n"         \
    "param wv: f32[128, 128] normal(0.1)\nparam wo: f32[128, 128] normal(0.1)\n"                   \
    "func forward(%x: f32[2, 32, 128], %m: f32[2, 1, 32, 32]) -> (%y: f32[2, 32, 128]) {\n"        \
    "  %q = linear(%x, wq)\n  %k = linear(%x, wk)\n  %v = linear(%x, wv)\n" ATTENTION              \
    "  return linear(%a, wo)\n}\n"
#define HEADS(X)                                                                                   \
    "  %h" X " = transpose(reshape(%" X ") {shape = [2, 32, 8, 16]}) {perm = [0, 2, 1, 3]}\n"

static const char whole[] = LAYER("  %a = attention(%q, %k, %v, %m) {heads = 8, causal = false}\n");
static const char written_out[] = LAYER(HEADS("q") HEADS("k") HEADS(
    "v") "  %s = mul(cast(batch_matmul(%hq, %hk) {transpose_b = true}) {to = f32}, 0.25)\n"
         "  %o = batch_matmul(softmax(add(%s, %m)), %hv)\n"
         "  %a = reshape(transpose(%o) {perm = [0, 2, 1, 3]}) {shape = [2, 32, 128]}\n");

/* |x - y| over |y|, as vectors. */
static double distance(const pair_value *x, const pair_value *y)
{
    double off = 0, size = 0;
    for (int64_t i = 0; i < fp8c_type_bytes(&x->type) / 4; i++) {
        const double u = (double)((const float *)x->data)[i],
                     w = (double)((const float *)y->data)[i];
        off += (u - w) * (u - w);
        size += w * w;
    }
    return sqrt(off / size);
}

static void set_padding(setup *s, float number)
{
    static float m[2 * 32 * 32];
    for (int i = 0; i < 2 * 32 * 32; i++)
        m[i] = i < 32 * 32 && i % 32 < 12 ? number : 0; /* of the first sequence 12 keys */
    for (int i = 0; i < 12 * 32; i++) /* and, as causal masks do, all keys of these queries */
        m[i] = number;
    pair_set(&s->in, "m", &(fp8c_type){FP8C_F32, 4, {2, 1, 32, 32}}, m);
}

/* A left-padded sequence under every recipe: the same gradients, but for what is rounded of values
 * that differ by little. Roundings of single elements are up to 2^-8 in bf16 and 2^-4 in f8e4m3, of
 * either sign: as vectors such values differ by less than two of them. A weight of 1 for 1/32 in 12
 * of 64 queries is far more. */
START_TEST(padding_under_recipes)
{
    /* written out, activations are bf16 but under f32: the least f32 must not be -Inf there; beside
     * -65504 a bf16 score is rounded more coarsely than attention's f32 one */
    static const float numbers[] = {-1e9f, -0x1.fep127f, -FLT_MAX, -65504};
    const char *name = recipes[_i % N_RECIPES];
    fp8c_compile_options o = pair_options(name);
    o.target = targets[_i / N_RECIPES];
    o.gradients_of = "x";
    const double most = !strcmp(name, "f32") ? 1e-6 : !strcmp(name, "bf16") ? 0.015 : 0.06;
    if (!strcmp(name, "mxfp8") && !strcmp(o.target, "cuda")) /* sm_90a has none */
        return;
    begin(&a, whole, &o);
    begin(&b, written_out, &o);
    for (int i = 0; i < (strcmp(name, "f32") ? 3 : 4); i++) {
        set_padding(&a, numbers[i]);
        set_padding(&b, numbers[i]);
        pair_step(a.p, !strcmp(name, "delayed"), &a.in, &a.out);
        pair_step(b.p, !strcmp(name, "delayed"), &b.in, &b.out);
        int n = 0;
        for (int k = 0; k < a.out.n; k++) {
            const pair_value *x = &a.out.value[k], *other = pair_find(&b.out, x->name);
            if (!other || !strncmp(x->name, "saved.", 6) || x->type.dtype != FP8C_F32)
                continue;
            const double off = distance(x, other);
            ck_assert_msg(off <= most, "%s on %s, %g: %s is off by %g", name, o.target,
                          (double)numbers[i], x->name, off);
            n++;
        }
        ck_assert_int_ge(n, 6); /* y, dx, and four weights' */
    }
    end(&b);
    end(&a);
}
END_TEST

/* ---- constants ---- */

/* Scores of 8 queries and 16 keys, hidden by what HIDE says of the number that stands for it. */
#define HIDDEN(HIDE)                                                                               \
    "module m\nfunc forward(%x: f32[8, 16], %seen: bool[8, 16]) -> (%y: f32[8, 16]) {\n"           \
    "  return softmax(" HIDE ")\n}\n"

/* In each text the same with f32's least number and with bf16's. */
static const char *const least[][2] = {
    {HIDDEN("select(%seen, %x, -3.4028234663852886e38)"),
     HIDDEN("select(%seen, %x, -3.3895313892515355e38)")},
    {HIDDEN("add(%x, select(%seen, 0, -3.4028234663852886e38))"),
     HIDDEN("add(%x, select(%seen, 0, -3.3895313892515355e38))")},
};
enum { N_LEAST = sizeof least / sizeof *least };

/* Under bf16 a constant beyond bf16's range is the least bf16, not -Inf: a row in which everything
 * is hidden has a softmax, 1/16 everywhere, and a gradient. */
START_TEST(least_constants)
{
    static const fp8c_type type = {FP8C_F32, 2, {8, 16}}, keys = {FP8C_BOOL, 2, {8, 16}};
    static float x[128], d[128];
    static uint8_t seen[128];
    fp8c_compile_options o = pair_options("bf16");
    o.target = targets[_i % N_TARGETS];
    o.gradients_of = "x";
    setup *both[] = {&a, &b};
    for (int i = 0; i < 128; i++) {
        x[i] = (float)(i * 37 % 64 - 32) / 8;
        d[i] = (float)(i * 11 % 16 - 8) / 4;
        seen[i] = i >= 16 && i * 7 % 5 > 1; /* the first query sees nothing */
    }
    for (int k = 0; k < 2; k++) {
        begin(both[k], least[_i / N_TARGETS][k], &o);
        pair_set(&both[k]->in, "x", &type, x);
        pair_set(&both[k]->in, "seen", &keys, seen);
        pair_set(&both[k]->in, "dy", &type, d);
        pair_step(both[k]->p, false, &both[k]->in, &both[k]->out);
    }
    const float *y_of = pair_find(&a.out, "y")->data, *dx = pair_find(&a.out, "dx")->data;
    for (int i = 0; i < 128; i++) {
        ck_assert_msg(isfinite(y_of[i]) && isfinite(dx[i]), "y[%d] = %g and dx = %g on %s", i,
                      (double)y_of[i], (double)dx[i], o.target);
        if (i < 16)
            ck_assert_float_eq(y_of[i], 0.0625f);
        else if (!seen[i])
            ck_assert_float_eq(y_of[i], 0);
    }
    ck_assert(pair_equal(&a.out, &b.out, "y") && pair_equal(&a.out, &b.out, "dx"));
    end(&b);
    end(&a);
}
END_TEST

Suite *f8_suite(void)
{
    f8_test_gpu_emulated();
    if (getenv("FP8C_TEST_PEER")) /* where there is no LLVM */
        targets[1] = getenv("FP8C_TEST_PEER");
    Suite *s = suite_create("large_masks");
    TCase *t = tcase_create("large_masks");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, gradients, 0, 2 * N_TARGETS);
    tcase_add_loop_test(t, padding_under_recipes, 0, N_TARGETS * N_RECIPES);
    tcase_add_loop_test(t, least_constants, 0, N_TARGETS * N_LEAST);
    suite_add_tcase(s, t);
    return s;
}
