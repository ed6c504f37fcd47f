/* What an attention problem's results should be, in double, and what they may be off by: see
 * attention_case.h. */
#include "tests/shared/kernel/attention_case.h"

#include "tests/shared/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIT 0x1p-24 /* of f32 */
#define SLACK 1.01

/* What dropout multiplies the weight of query i and key j by. */
static double kept(const att_case *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const f8_attention_desc *x = &c->desc;
    uint32_t seed;
    if (x->dropout == 0)
        return 1;
    memcpy(&seed, c->t[T_SEED].base, 4);
    const uint32_t key = test_pcg3d(seed, (uint32_t)x->stream, 0);
    const uint32_t bits = test_pcg3d((uint32_t)j, (uint32_t)((b * x->H + h) * x->T + i), key);
    return bits + 0x80000000u < (uint64_t)(x->dropout * 0x1p32) ? 0 : 1 / (1 - x->dropout);
}

/* What a mask adds to a score. */
static double added(const att_case *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const f8_attention_desc *x = &c->desc;
    const int64_t at = b * x->mask.b + h * x->mask.h + i * x->mask.q + j * x->mask.k;
    const uint8_t *from = c->t[T_MASK].base + (size_t)at * (x->masking == F8_MASK_BOOL ? 1 : 4);
    float f;
    if (!x->masking)
        return 0;
    if (x->masking == F8_MASK_BOOL)
        return *from ? 0 : -INFINITY;
    memcpy(&f, from, 4);
    return (double)f;
}

/* Bounds are sums of worst cases, u = 2^-24 for each rounding of a chain in f32: a chain of n
 * multiply-adds is off by at most n u sum |a b| (a little more; the factor SLACK covers
 * second-order terms), exp by 2 ulp and by its argument's absolute error. A target may be allowed
 * more (att_errors). */

/* Read a tensor the reference starts from into its value array. */
static void read_values(att_case *c, int tensor)
{
    const f8_attention_desc *x = &c->desc;
    double *to = c->t[tensor].value;
    if (tensor == T_LSE) {
        for (int64_t n = 0; n < x->B * x->H * x->T; n++)
            for (int64_t d = 0; d < f8_attention_lse_rows(x); d++) {
                const int64_t b = n / x->T / x->H, h = n / x->T % x->H;
                to[att_lse_at(x, b, n % x->T, h, d)] = att_get(c, tensor, b, n % x->T, h, d);
            }
        return;
    }
    const int64_t T = att_tokens(x, tensor);
    for (int64_t n = 0; n < x->B * T; n++)
        for (int64_t h = 0; h < c->t[tensor].heads; h++)
            for (int64_t d = 0; d < x->D; d++)
                *to++ = att_get(c, tensor, n / T, n % T, h, d);
}

/* The D values of a token's head. */
static const double *vector(const att_case *c, int tensor, int64_t b, int64_t t, int64_t head)
{
    const int64_t T = att_tokens(&c->desc, tensor);
    return c->t[tensor].value + ((b * T + t) * c->t[tensor].heads + head) * c->desc.D;
}

typedef struct row {
    double *s, *p, *es; /* per key: scaled score, exp(s - lse), error of s */
    int64_t keys;
    double lse[2]; /* with an f32 mask the largest score, and the log of the sum of the rest */
    double off;    /* what the largest score of an f32 mask is off by */
} row;

static double output_rounding(const att_case *c, double x)
{
    return fabs(x) * (c->desc.dtype == F8_BF16 ? 0x1p-8 : UNIT) + 0x1p-126;
}

/* s of a key as the formula has it, with an f32 mask rounded to f32; and what a target's may be off
 * by: before the mask `error`, which rounding beside a large mask swallows or makes a step of. */
static double masked(const att_case *c, double score, double plus, double error, double *off)
{
    if (c->desc.masking != F8_MASK_ADD) {
        *off = error;
        return score + plus;
    }
    const double s = (double)(float)(score + plus);
    const double up = (double)(float)(score + error + plus) - s;
    *off = fmax(up, s - (double)(float)(score - error + plus));
    return s;
}

/* The sum of exp(s - max), and lse from it. What exp's arguments are off by is added to es: without
 * an f32 mask max is, too; with one it is a score itself, exact, and a difference is rounded. */
static void normalize(const att_case *c, row *r, double max)
{
    const bool adds = c->desc.masking == F8_MASK_ADD;
    double sum = 0;
    for (int64_t j = 0; j < r->keys; j++)
        sum += exp(r->s[j] - max);
    r->lse[0] = adds ? max : max + log(sum);
    r->lse[1] = log(sum);
    for (int64_t j = 0; j < r->keys; j++) {
        const double below = max - r->s[j],
                     more = adds ? 4 * below : 2 * fabs(r->s[j]) + 2 * fabs(max);
        if (r->s[j] == -INFINITY || (adds && below - r->es[j] > 104)) {
            r->es[j] = 0; /* its exponential is 0 */
            continue;
        }
        r->off = fmax(r->off, r->es[j]);
        r->es[j] += c->errors.exp + UNIT * more; /* and rescaling */
    }
    r->off = adds ? r->off : 0; /* else errors of the largest and of the others go together */
}

static void scores(const att_case *c, row *r, int64_t b, int64_t i, int64_t h)
{
    const f8_attention_desc *x = &c->desc;
    int64_t g = h / (x->H / x->Hkv);
    double scale = (double)x->scale;
    r->keys = x->causal && i < x->Tk ? i + 1 : x->Tk;
    r->off = 0;
    double max = -INFINITY;
    for (int64_t j = 0; j < r->keys; j++) {
        const double *q = vector(c, T_Q, b, i, h), *k = vector(c, T_K, b, j, g);
        double dot = 0, abs = 0;
        for (int64_t d = 0; d < x->D; d++) {
            double a = q[d] * k[d];
            dot += a;
            abs += fabs(a);
        }
        const double plus = added(c, b, h, i, j);
        const double error =
            (c->errors.term * (double)x->D * abs + UNIT * 2 * fabs(dot)) * fabs(scale);
        r->s[j] = masked(c, dot * scale, plus, error, &r->es[j]);
        if (r->s[j] > max)
            max = r->s[j];
    }
    if (max == -INFINITY) { /* nothing to see */
        r->lse[0] = x->masking == F8_MASK_ADD ? 0 : INFINITY;
        r->lse[1] = INFINITY;
        memset(r->es, 0, (size_t)r->keys * sizeof *r->es);
        return;
    }
    normalize(c, r, max);
}

/* The probability of a score, from the rows of lse at `lse`, T apart. */
static double weight(const att_case *c, double s, const double *lse)
{
    return exp(c->desc.masking == F8_MASK_ADD ? (s - lse[0]) - lse[c->desc.T] : s - lse[0]);
}

static row new_row(const att_case *c)
{
    size_t n = (size_t)c->desc.Tk * sizeof(double);
    const row r = {.s = malloc(n), .p = malloc(n), .es = malloc(n)};
    if (!r.s || !r.p || !r.es) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return r;
}

static void free_row(row *r)
{
    free(r->s), free(r->p), free(r->es);
}

void att_reference_forward(att_case *c)
{
    const f8_attention_desc *x = &c->desc;
    const bool adds = x->masking == F8_MASK_ADD;
    row r = new_row(c);
    read_values(c, T_Q), read_values(c, T_K), read_values(c, T_V);
    for (int64_t n = 0; n < x->B * x->H * x->T; n++) {
        int64_t i = n % x->T, h = n / x->T % x->H, b = n / x->T / x->H, g = h / (x->H / x->Hkv);
        scores(c, &r, b, i, h);
        double worst = 0, chain = c->errors.term * (double)(r.keys + 8 + 3 * (r.keys / 48));
        for (int64_t j = 0; j < r.keys; j++) {
            worst = fmax(worst, r.es[j]);
            r.p[j] = exp(r.s[j] - r.lse[0] - (adds ? r.lse[1] : 0));
        }
        for (int64_t d = 0; d < f8_attention_lse_rows(x); d++) {
            const int64_t at = att_lse_at(x, b, i, h, d);
            c->t[T_LSE].value[at] = r.lse[d];
            c->t[T_LSE].bound[at] =
                adds && d == 0 ? r.off
                               : SLACK * (worst + r.off + chain + UNIT * (4 + 4 * fabs(r.lse[d])));
        }
        for (int64_t d = 0; d < x->D; d++) {
            double o = 0, abs = 0;
            for (int64_t j = 0; j < r.keys; j++) {
                double pv = kept(c, b, h, i, j) * r.p[j] * vector(c, T_V, b, j, g)[d];
                o += pv;
                abs += fabs(pv);
            }
            int64_t at = ((b * x->T + i) * x->H + h) * x->D + d;
            c->t[T_O].value[at] = o;
            c->t[T_O].bound[at] =
                SLACK * (abs * (2 * worst + 2 * chain + c->errors.left) + output_rounding(c, o));
        }
    }
    free_row(&r);
}

/* value += x, bound += e */
static void add(att_case *c, int tensor, int64_t at, double x, double e)
{
    c->t[tensor].value[at] += x;
    c->t[tensor].bound[at] += e;
}

static void backward_row(att_case *c, row *r, int64_t b, int64_t i, int64_t h)
{
    const f8_attention_desc *x = &c->desc;
    const int64_t D = x->D, g = h / (x->H / x->Hkv);
    const double *q = vector(c, T_Q, b, i, h), *o = vector(c, T_O, b, i, h);
    const double *dout = vector(c, T_DO, b, i, h);
    const double scale = (double)x->scale, *lse = c->t[T_LSE].value + att_lse_at(x, b, i, h, 0);
    const bool adds = x->masking == F8_MASK_ADD;
    double delta = 0, delta_abs = 0;
    /* the longest chain an element of dq, dk or dv sums in */
    const int64_t longest = x->T > x->Tk ? x->T : x->Tk;
    double chain = c->errors.term * ((double)(longest * (x->H / x->Hkv)) + 4) + c->errors.left;
    for (int64_t d = 0; d < D; d++) {
        delta += dout[d] * o[d];
        delta_abs += fabs(dout[d] * o[d]);
    }
    for (int64_t j = 0; j < r->keys; j++) {
        const double *k = vector(c, T_K, b, j, g), *v = vector(c, T_V, b, j, g);
        if (r->s[j] == -INFINITY)
            continue;
        double p = weight(c, r->s[j], lse), dp = 0, dp_abs = 0;
        double ep = r->es[j] + UNIT * 2 * fabs(lse[adds ? x->T : 0]);
        for (int64_t d = 0; d < D; d++) {
            dp += dout[d] * v[d];
            dp_abs += fabs(dout[d] * v[d]);
        }
        const double keep = kept(c, b, h, i, j);
        dp *= keep;
        dp_abs *= keep;
        double ds = p * (dp - delta);
        double eds =
            fabs(ds) * (ep + 2 * UNIT) + p * c->errors.term * (double)D * (dp_abs + delta_abs);
        const int64_t key = ((b * x->Tk + j) * x->Hkv + g) * D,
                      query = ((b * x->T + i) * x->H + h) * D;
        for (int64_t d = 0; d < D; d++) {
            add(c, T_DV, key + d, keep * p * dout[d], fabs(keep * p * dout[d]) * (ep + chain));
            add(c, T_DK, key + d, scale * ds * q[d], fabs(scale * q[d]) * (eds + chain * fabs(ds)));
            add(c, T_DQ, query + d, scale * ds * k[d],
                fabs(scale * k[d]) * (eds + chain * fabs(ds)));
        }
    }
}

void att_reference_backward(att_case *c)
{
    const f8_attention_desc *x = &c->desc;
    row r = new_row(c);
    for (int tensor = T_Q; tensor <= T_DO; tensor++)
        read_values(c, tensor);
    for (int tensor = T_DQ; tensor <= T_DV; tensor++) {
        size_t n =
            (size_t)(x->B * att_tokens(x, tensor) * c->t[tensor].heads * x->D) * sizeof(double);
        memset(c->t[tensor].value, 0, n);
        memset(c->t[tensor].bound, 0, n);
    }
    for (int64_t n = 0; n < x->B * x->H * x->T; n++) {
        int64_t i = n % x->T, h = n / x->T % x->H, b = n / x->T / x->H;
        scores(c, &r, b, i, h);
        backward_row(c, &r, b, i, h);
    }
    for (int tensor = T_DQ; tensor <= T_DV; tensor++)
        for (int64_t n = 0; n < x->B * att_tokens(x, tensor) * c->t[tensor].heads * x->D; n++)
            c->t[tensor].bound[n] =
                SLACK * c->t[tensor].bound[n] + output_rounding(c, c->t[tensor].value[n]);
    free_row(&r);
}
