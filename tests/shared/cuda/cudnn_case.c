/* Attention problems on a device, with their reference: see cudnn_case.h. */
#include "tests/shared/cuda/cudnn_case.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/internal.h"

enum { GUARD = 256, PATTERN = 0x5a };
#define UNIT 0x1p-24
#define HALF 0x1p-8 /* bf16's */
#define SLACK 1.02  /* second-order terms */

static const char *const names[] = {"q", "k", "v", "o", "lse", "do", "dq", "dk", "dv"};

static void *must(void *p)
{
    ck_assert_ptr_nonnull(p);
    return p;
}

static void cu(CUresult rc, const char *call)
{
    ck_assert_msg(rc == CUDA_SUCCESS, "%s: %d", call, rc);
}
#define CU(call, ...) cu(c->device->cuda->cu.call(__VA_ARGS__), #call)

static void enter(const cudnn_case *c)
{
    f8_diag d = {0};
    ck_assert_msg(f8_cuda_enter(c->device->cuda, &d) == F8_OK, "%s", d.text);
}

static void leave(const cudnn_case *c)
{
    CU(cuStreamSynchronize, NULL);
    f8_cuda_leave(c->device->cuda);
}

const char *cudnn_case_describe(const f8_cudnn_attention_desc *d)
{
    static char text[160];
    snprintf(text, sizeof text, "B=%d T=%d H=%d Hkv=%d D=%d %s", (int)d->B, (int)d->T, (int)d->H,
             (int)d->Hkv, (int)d->D, d->causal ? "causal" : "full");
    return text;
}

/* ---- memory ---- */

static int64_t place(const cudnn_case *c, int t, int64_t b, int64_t i, int64_t h, int64_t d)
{
    const f8_cudnn_attention_desc *x = &c->desc;
    return t == CASE_LSE ? (b * x->H + h) * x->T + i
                         : (b * x->T + i) * c->t[t].stride + h * x->D + d;
}

static double element(const cudnn_case *c, int t, int64_t b, int64_t i, int64_t h, int64_t d)
{
    const size_t size = t == CASE_LSE ? 4 : 2;
    uint32_t u = 0;
    memcpy((char *)&u + (4 - size), c->t[t].host + (size_t)place(c, t, b, i, h, d) * size, size);
    float f;
    memcpy(&f, &u, 4);
    return (double)f;
}

static int64_t dense(const cudnn_case *c, int t, int64_t b, int64_t i, int64_t h, int64_t d)
{
    const f8_cudnn_attention_desc *x = &c->desc;
    return t == CASE_LSE ? (b * x->H + h) * x->T + i
                         : ((b * x->T + i) * c->t[t].heads + h) * x->D + d;
}

static void make_tensor(cudnn_case *c, int t, int64_t gap)
{
    const f8_cudnn_attention_desc *x = &c->desc;
    const bool kv = t == F8_CUDNN_K || t == F8_CUDNN_V || t == F8_CUDNN_DK || t == F8_CUDNN_DV;
    c->t[t].heads = kv ? x->Hkv : x->H;
    c->t[t].stride = c->t[t].heads * x->D + gap;
    const int64_t n = t == CASE_LSE ? x->B * x->H * x->T : x->B * x->T * c->t[t].heads * x->D;
    c->t[t].bytes = t == CASE_LSE ? n * 4 : x->B * x->T * c->t[t].stride * 2;
    c->t[t].host = must(malloc((size_t)c->t[t].bytes));
    c->t[t].value = must(calloc((size_t)n, sizeof(double)));
    c->t[t].bound = must(calloc((size_t)n, sizeof(double)));
    CUdeviceptr p;
    CU(cuMemAlloc_v2, &p, (size_t)c->t[t].bytes + 2 * GUARD);
    CU(cuMemsetD8Async, p, PATTERN, (size_t)c->t[t].bytes + 2 * GUARD, NULL);
    c->t[t].memory = p;
}

static void fill(cudnn_case *c, int t, uint64_t *s)
{
    const f8_cudnn_attention_desc *x = &c->desc;
    memset(c->t[t].host, PATTERN, (size_t)c->t[t].bytes);
    for (int64_t n = 0; n < x->B * x->T * c->t[t].heads * x->D; n++) {
        *s ^= *s << 13, *s ^= *s >> 7, *s ^= *s << 17;
        const float f = (float)((double)(int64_t)*s * 0x1p-62); /* [-2, 2) */
        uint32_t u;
        memcpy(&u, &f, 4);
        const uint16_t code = (uint16_t)(u >> 16);
        const int64_t row = n / x->D / c->t[t].heads, at = n % (x->D * c->t[t].heads);
        memcpy(c->t[t].host + (row * c->t[t].stride + at) * 2, &code, 2);
    }
    CU(cuMemcpyHtoDAsync_v2, c->t[t].memory + GUARD, c->t[t].host, (size_t)c->t[t].bytes, NULL);
}

void cudnn_case_make(cudnn_case *c, cuda_device *device, const f8_cudnn_attention_desc *desc,
                     int64_t gap, uint64_t seed)
{
    static const int inputs[] = {F8_CUDNN_Q, F8_CUDNN_K, F8_CUDNN_V, F8_CUDNN_DO};
    *c = (cudnn_case){.desc = *desc, .device = device};
    uint64_t s = seed * 0x9e3779b97f4a7c15u + 1;
    enter(c);
    for (int t = 0; t < CASE_TENSORS; t++)
        make_tensor(c, t, gap);
    for (int i = 0; i < 4; i++)
        fill(c, inputs[i], &s);
    leave(c);
    c->desc.stride.q = c->t[F8_CUDNN_Q].stride, c->desc.stride.k = c->t[F8_CUDNN_K].stride;
    c->desc.stride.v = c->t[F8_CUDNN_V].stride, c->desc.stride.o = c->t[F8_CUDNN_O].stride;
    c->desc.stride.dout = c->t[F8_CUDNN_DO].stride, c->desc.stride.dq = c->t[F8_CUDNN_DQ].stride;
    c->desc.stride.dk = c->t[F8_CUDNN_DK].stride, c->desc.stride.dv = c->t[F8_CUDNN_DV].stride;
}

void cudnn_case_free(cudnn_case *c)
{
    enter(c);
    for (int t = 0; t < CASE_TENSORS; t++) {
        CU(cuMemFree_v2, c->t[t].memory);
        free(c->t[t].host);
        free(c->t[t].value);
        free(c->t[t].bound);
    }
    leave(c);
}

void cudnn_case_pointers(const cudnn_case *c, void *pointers[CASE_TENSORS])
{
    for (int t = 0; t < CASE_TENSORS; t++)
        pointers[t] = (void *)(uintptr_t)(c->t[t].memory + GUARD); /* NOLINT: a device pointer */
}

void cudnn_case_clear(cudnn_case *c, int t)
{
    enter(c);
    CU(cuMemsetD8Async, c->t[t].memory, PATTERN, (size_t)c->t[t].bytes + 2 * GUARD, NULL);
    leave(c);
}

void cudnn_case_fetch(cudnn_case *c)
{
    enter(c);
    for (int t = 0; t < CASE_TENSORS; t++) {
        uint8_t *all = must(malloc((size_t)c->t[t].bytes + 2 * GUARD));
        CU(cuMemcpyDtoHAsync_v2, all, c->t[t].memory, (size_t)c->t[t].bytes + 2 * GUARD, NULL);
        CU(cuStreamSynchronize, NULL);
        for (int i = 0; i < GUARD; i++)
            ck_assert_msg(all[i] == PATTERN && all[GUARD + c->t[t].bytes + i] == PATTERN,
                          "%s: %s was written outside", cudnn_case_describe(&c->desc), names[t]);
        memcpy(c->t[t].host, all + GUARD, (size_t)c->t[t].bytes);
        free(all);
    }
    leave(c);
}

void *cudnn_case_room(cudnn_case *c, int64_t bytes)
{
    CUdeviceptr p = 0;
    enter(c);
    if (bytes) {
        CU(cuMemAlloc_v2, &p, (size_t)bytes);
        CU(cuMemsetD8Async, p, PATTERN, (size_t)bytes, NULL);
    }
    leave(c);
    return (void *)(uintptr_t)p; /* NOLINT: a device pointer */
}

void cudnn_case_release(cudnn_case *c, void *room)
{
    enter(c);
    if (room)
        CU(cuMemFree_v2, (CUdeviceptr)(uintptr_t)room);
    leave(c);
}

/* ---- the reference ---- */

typedef struct row {
    double *s, *e; /* per key: scaled score, its error and exp's */
    int64_t keys;
    double lse, worst;
} row;

static row new_row(const cudnn_case *c)
{
    const size_t n = (size_t)c->desc.T * sizeof(double);
    return (row){.s = must(malloc(n)), .e = must(malloc(n))};
}

static void scores(const cudnn_case *c, row *r, int64_t b, int64_t i, int64_t h)
{
    const f8_cudnn_attention_desc *x = &c->desc;
    const int64_t g = h / (x->H / x->Hkv);
    const double scale = (double)x->scale;
    double max = -INFINITY, sum = 0;
    r->keys = x->causal ? i + 1 : x->T;
    for (int64_t j = 0; j < r->keys; j++) {
        double dot = 0, abs = 0;
        for (int64_t d = 0; d < x->D; d++) {
            const double p =
                element(c, F8_CUDNN_Q, b, i, h, d) * element(c, F8_CUDNN_K, b, j, g, d);
            dot += p;
            abs += fabs(p);
        }
        r->s[j] = dot * scale;
        r->e[j] = UNIT * (4 * (double)x->D * abs + 2 * fabs(dot)) * scale;
        max = fmax(max, r->s[j]);
    }
    r->worst = 0;
    for (int64_t j = 0; j < r->keys; j++) {
        sum += exp(r->s[j] - max);
        r->e[j] += UNIT * (8 + 4 * fabs(r->s[j]) + 4 * fabs(max));
        r->worst = fmax(r->worst, r->e[j]);
    }
    r->lse = max + log(sum);
}

void cudnn_case_forward(cudnn_case *c)
{
    const f8_cudnn_attention_desc *x = &c->desc;
    row r = new_row(c);
    for (int64_t n = 0; n < x->B * x->H * x->T; n++) {
        const int64_t i = n % x->T, h = n / x->T % x->H, b = n / x->T / x->H,
                      g = h / (x->H / x->Hkv);
        scores(c, &r, b, i, h);
        const double chain = 4 * UNIT * (double)(r.keys + 8);
        c->t[CASE_LSE].value[n] = r.lse;
        c->t[CASE_LSE].bound[n] = SLACK * (r.worst + chain + UNIT * (4 + 4 * fabs(r.lse)));
        for (int64_t d = 0; d < x->D; d++) {
            double o = 0, abs = 0;
            for (int64_t j = 0; j < r.keys; j++) {
                const double pv = exp(r.s[j] - r.lse) * element(c, F8_CUDNN_V, b, j, g, d);
                o += pv;
                abs += fabs(pv);
            }
            const int64_t at = dense(c, F8_CUDNN_O, b, i, h, d);
            c->t[F8_CUDNN_O].value[at] = o;
            c->t[F8_CUDNN_O].bound[at] =
                SLACK * (abs * (HALF + 2 * r.worst + 2 * chain) + fabs(o) * HALF) + 0x1p-120;
        }
    }
    free(r.s), free(r.e);
}

static void add(cudnn_case *c, int t, int64_t at, double value, double error)
{
    c->t[t].value[at] += value;
    c->t[t].bound[at] += error;
}

/* One query's part of the gradients. part[2][T * D]: this head's dk and dv, for their rounding. */
static void backward_row(cudnn_case *c, row *r, int64_t b, int64_t i, int64_t h, double *part)
{
    const f8_cudnn_attention_desc *x = &c->desc;
    const int64_t D = x->D, g = h / (x->H / x->Hkv);
    const double scale = (double)x->scale, lse = element(c, CASE_LSE, b, i, h, 0);
    const double chain = 4 * UNIT * (double)(x->T + 8), into = HALF + chain;
    double delta = 0, delta_abs = 0;
    for (int64_t d = 0; d < D; d++) {
        const double p = element(c, F8_CUDNN_DO, b, i, h, d) * element(c, F8_CUDNN_O, b, i, h, d);
        delta += p;
        delta_abs += fabs(p);
    }
    for (int64_t j = 0; j < r->keys; j++) {
        const double p = exp(r->s[j] - lse), ep = r->e[j] + UNIT * 4 * fabs(lse);
        double dp = 0, dp_abs = 0;
        for (int64_t d = 0; d < D; d++) {
            const double y =
                element(c, F8_CUDNN_DO, b, i, h, d) * element(c, F8_CUDNN_V, b, j, g, d);
            dp += y;
            dp_abs += fabs(y);
        }
        const double ds = scale * p * (dp - delta);
        const double eds =
            fabs(ds) * (ep + 4 * UNIT) + scale * p * 4 * UNIT * (double)D * (dp_abs + delta_abs);
        for (int64_t d = 0; d < D; d++) {
            const double dout = element(c, F8_CUDNN_DO, b, i, h, d);
            const double q = element(c, F8_CUDNN_Q, b, i, h, d),
                         k = element(c, F8_CUDNN_K, b, j, g, d);
            const int64_t key = dense(c, F8_CUDNN_DK, b, j, g, d);
            add(c, F8_CUDNN_DV, key, p * dout, fabs(p * dout) * (ep + into));
            add(c, F8_CUDNN_DK, key, ds * q, fabs(q) * (eds + fabs(ds) * into));
            add(c, F8_CUDNN_DQ, dense(c, F8_CUDNN_DQ, b, i, h, d), ds * k,
                fabs(k) * (eds + fabs(ds) * into));
            part[j * D + d] += ds * q;
            part[(x->T + j) * D + d] += p * dout;
        }
    }
}

void cudnn_case_backward(cudnn_case *c)
{
    const f8_cudnn_attention_desc *x = &c->desc;
    const size_t n_part = (size_t)(2 * x->T * x->D);
    row r = new_row(c);
    double *part = must(malloc(n_part * sizeof *part));
    for (int t = F8_CUDNN_DQ; t <= F8_CUDNN_DV; t++) {
        const size_t size = (size_t)(x->B * x->T * c->t[t].heads * x->D) * sizeof(double);
        memset(c->t[t].value, 0, size);
        memset(c->t[t].bound, 0, size);
    }
    for (int64_t n = 0; n < x->B * x->H; n++) {
        const int64_t b = n / x->H, h = n % x->H;
        memset(part, 0, n_part * sizeof *part);
        for (int64_t i = 0; i < x->T; i++) {
            scores(c, &r, b, i, h);
            backward_row(c, &r, b, i, h, part);
        }
        for (int64_t k = 0; x->H != x->Hkv && k < x->T * x->D; k++) {
            const int64_t at = dense(c, F8_CUDNN_DK, b, k / x->D, h / (x->H / x->Hkv), k % x->D);
            add(c, F8_CUDNN_DK, at, 0, fabs(part[k]) * HALF);
            add(c, F8_CUDNN_DV, at, 0, fabs(part[x->T * x->D + k]) * HALF);
        }
    }
    for (int t = F8_CUDNN_DQ; t <= F8_CUDNN_DV; t++)
        for (int64_t n = 0; n < x->B * x->T * c->t[t].heads * x->D; n++)
            c->t[t].bound[n] =
                SLACK * (c->t[t].bound[n] + fabs(c->t[t].value[n]) * HALF) + 0x1p-120;
    free(part);
    free(r.s), free(r.e);
}

void cudnn_case_compare(const cudnn_case *c, int t)
{
    const f8_cudnn_attention_desc *x = &c->desc;
    const int64_t used = c->t[t].heads * x->D * 2, row_bytes = c->t[t].stride * 2;
    for (int64_t n = 0; t != CASE_LSE && n < c->t[t].bytes; n++)
        ck_assert_msg(n % row_bytes < used || c->t[t].host[n] == PATTERN,
                      "%s: %s was written between tokens", cudnn_case_describe(x), names[t]);
    for (int64_t b = 0; b < x->B; b++)
        for (int64_t i = 0; i < x->T; i++)
            for (int64_t h = 0; h < c->t[t].heads; h++)
                for (int64_t d = 0; d < (t == CASE_LSE ? 1 : x->D); d++) {
                    const int64_t at = dense(c, t, b, i, h, d);
                    const double got = element(c, t, b, i, h, d),
                                 off = fabs(got - c->t[t].value[at]);
                    ck_assert_msg(
                        off <= c->t[t].bound[at],
                        "%s: %s[%d][%d][%d][%d] is %.9g, not %.9g (off by %.3g, allowed %.3g)",
                        cudnn_case_describe(x), names[t], (int)b, (int)i, (int)h, (int)d, got,
                        c->t[t].value[at], off, c->t[t].bound[at]);
                }
}

/* ---- problems ---- */

const int64_t cudnn_case_shapes[CASE_SHAPES][5] = {
    {1, 2, 1, 1, 64},    {2, 64, 2, 2, 64}, {1, 65, 4, 2, 64},
    {1, 128, 2, 1, 128}, {2, 40, 6, 2, 80}, {1, 100, 3, 1, 32},
};

f8_cudnn_attention_desc cudnn_case_shape(const f8_cudnn *cudnn, int64_t B, int64_t T, int64_t H,
                                         int64_t Hkv, int64_t D, bool causal)
{
    T = cudnn->version <= 91500 ? f8_aligned(T, 128) : T;
    const int64_t q = H * D, kv = Hkv * D;
    return (f8_cudnn_attention_desc){.B = B,
                                     .T = T,
                                     .H = H,
                                     .Hkv = Hkv,
                                     .D = D,
                                     .causal = causal,
                                     .scale = 1 / sqrtf((float)D),
                                     .stride = {q, kv, kv, q, q, q, kv, kv}};
}

f8_cudnn_attention *cudnn_case_prepare(f8_cudnn *cudnn, const f8_cudnn_attention_desc *x,
                                       bool backward, const f8_cudnn_choice *choice)
{
    f8_diag d = {0};
    f8_cudnn_attention *a;
    f8_cudnn_attention_desc y = *x;
    y.backward = backward;
    ck_assert_msg(f8_cudnn_attention_prepare(cudnn, &y, choice, NULL, &a, &d) == F8_OK, "%s: %s",
                  cudnn_case_describe(x), d.text);
    return a;
}

void cudnn_case_contains(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part), "'%s' is not in: %s", part, text);
}
