/* Attention problems for tests: see attention_case.h. */
#include "tests/shared/kernel/attention_case.h"

#include "ir/num/fp8.h"

#include <check.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MARGIN = 256, CANARY = 0x5a };

#define UNIT 0x1p-24 /* of f32 */

const char *const att_name[T_COUNT] = {"q",  "k",  "v",  "o",    "lse", "do",
                                       "dq", "dk", "dv", "mask", "seed"};

f8_attention_desc att_shape(f8_dtype dtype, int64_t B, int64_t T, int64_t H, int64_t Hkv, int64_t D,
                            bool causal)
{
    return (f8_attention_desc){.dtype = dtype,
                               .B = B,
                               .T = T,
                               .Tk = T,
                               .H = H,
                               .Hkv = Hkv,
                               .D = D,
                               .causal = causal,
                               .scale = 1.0f / sqrtf((float)D)};
}

f8_attention_desc att_masked(f8_attention_desc x, f8_attention_masking masking, const char *axes)
{
    int64_t size = 1;
    x.masking = masking;
    x.mask.k = strchr(axes, 'k') ? size : 0, size *= x.mask.k ? x.Tk : 1;
    x.mask.q = strchr(axes, 'q') ? size : 0, size *= x.mask.q ? x.T : 1;
    x.mask.h = strchr(axes, 'h') ? size : 0, size *= x.mask.h ? x.H : 1;
    x.mask.b = strchr(axes, 'b') ? size : 0;
    return x;
}

int att_order(const f8_attention_desc *x, bool backward, int order[T_COUNT])
{
    static const int all[2][T_COUNT] = {
        {T_Q, T_K, T_V, T_MASK, T_SEED, T_O, T_LSE},
        {T_Q, T_K, T_V, T_O, T_LSE, T_DO, T_MASK, T_SEED, T_DQ, T_DK, T_DV}};
    int n = 0;
    for (int i = 0; i < (backward ? T_COUNT : 7); i++)
        if ((all[backward][i] != T_MASK || x->masking) &&
            (all[backward][i] != T_SEED || x->dropout > 0))
            order[n++] = all[backward][i];
    return n;
}

const char *att_describe(const f8_attention_desc *d)
{
    static _Thread_local char text[160];
    static const char *const masks[] = {"", " bool mask", " f32 mask"};
    snprintf(text, sizeof text, "%s B=%d T=%d Tk=%d H=%d Hkv=%d D=%d stride=%d %s%s dropout=%g",
             f8_dtype_name(d->dtype), (int)d->B, (int)d->T, (int)d->Tk, (int)d->H, (int)d->Hkv,
             (int)d->D, (int)d->stride.q, d->causal ? "causal" : "full", masks[d->masking],
             d->dropout);
    return text;
}

static void *must(void *p)
{
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double uniform(uint64_t *s) /* [-1, 1) */
{
    *s ^= *s << 13, *s ^= *s >> 7, *s ^= *s << 17;
    return (double)(int64_t)*s * 0x1p-63;
}

/* ---- tensors ---- */

static bool of_keys(int tensor)
{
    return tensor == T_K || tensor == T_V || tensor == T_DK || tensor == T_DV;
}

int64_t att_tokens(const f8_attention_desc *x, int tensor)
{
    return of_keys(tensor) ? x->Tk : x->T;
}

static size_t element_size(const att_case *c, int tensor)
{
    if (tensor == T_MASK)
        return c->desc.masking == F8_MASK_BOOL ? 1 : 4;
    return tensor == T_LSE || tensor == T_SEED ? 4 : f8_dtype_size(c->desc.dtype);
}

int64_t att_lse_at(const f8_attention_desc *x, int64_t b, int64_t t, int64_t head, int64_t d)
{
    return ((b * x->H + head) * f8_attention_lse_rows(x) + d) * x->T + t;
}

static int64_t lse_count(const f8_attention_desc *x)
{
    return x->B * x->H * f8_attention_lse_rows(x) * x->T;
}

static uint8_t *element(const att_case *c, int tensor, int64_t b, int64_t t, int64_t head,
                        int64_t d)
{
    const f8_attention_desc *x = &c->desc;
    int64_t at = (b * att_tokens(x, tensor) + t) * c->t[tensor].stride + head * x->D + d;
    if (tensor == T_LSE)
        at = att_lse_at(x, b, t, head, d);
    return c->t[tensor].base + (size_t)at * element_size(c, tensor);
}

double att_get(const att_case *c, int tensor, int64_t b, int64_t t, int64_t head, int64_t d)
{
    uint32_t u = 0;
    size_t n = element_size(c, tensor);
    memcpy(&u, element(c, tensor, b, t, head, d), n);
    if (n == 2)
        u <<= 16;
    float f;
    memcpy(&f, &u, 4);
    return (double)f;
}

void att_put(att_case *c, int tensor, int64_t b, int64_t t, int64_t head, int64_t d, double x)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, 4);
    size_t n = element_size(c, tensor);
    if (n == 2) {
        u = isnan(f) ? 0x7fc0 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
    }
    memcpy(element(c, tensor, b, t, head, d), &u, n);
}

/* ---- masks ---- */

/* Of a large row of an f32 mask; `draw` is within 1. Scores before it are within 30, so that at
 * 1e9, where an f32 is a multiple of 64, all keys of one number score the same. */
static float large(int64_t row, int64_t key, double draw)
{
    switch (row % 6) {
    case 0: return -1e9f;
    case 1: return -FLT_MAX;
    case 2: return 1e9f;
    case 3: return key % 3 ? -1e9f : (float)draw;
    case 4: return -65504;
    default: return draw < 0 ? -1e9f : -1e9f - 64;
    }
}

static void fill_mask(att_case *c, uint64_t *s)
{
    const f8_attention_desc *x = &c->desc;
    for (int64_t b = 0; b < x->B; b++)
        for (int64_t h = 0; h < x->H; h++)
            for (int64_t i = 0; i < x->T; i++)
                for (int64_t j = 0; x->masking && j < x->Tk; j++) {
                    const bool blind = x->mask.q && i == 0;
                    const double draw = uniform(s);
                    float f = blind || draw < -0.3 ? -INFINITY : (float)(4 * draw);
                    if (x->mask.q && i % 2)
                        f = large(i / 2, j, draw);
                    const int64_t at =
                        b * x->mask.b + h * x->mask.h + i * x->mask.q + j * x->mask.k;
                    if (x->masking == F8_MASK_BOOL)
                        c->t[T_MASK].base[at] = f == -INFINITY ? 0 : 1 + (uint8_t)(at % 255);
                    else
                        memcpy(c->t[T_MASK].base + at * 4, &f, 4);
                }
}

static int64_t mask_count(const f8_attention_desc *x)
{
    return !x->masking ? 0
                       : (x->mask.b ? x->B : 1) * (x->mask.h ? x->H : 1) * (x->mask.q ? x->T : 1) *
                             (x->mask.k ? x->Tk : 1);
}

static void make_tensor(att_case *c, int tensor, int64_t gap)
{
    const f8_attention_desc *x = &c->desc;
    att_tensor *t = &c->t[tensor];
    t->heads = of_keys(tensor) ? x->Hkv : x->H;
    t->stride = t->heads * x->D + gap;
    int64_t count = tensor == T_LSE    ? lse_count(x)
                    : tensor == T_MASK ? mask_count(x)
                    : tensor == T_SEED ? x->dropout > 0
                                       : x->B * att_tokens(x, tensor) * t->stride;
    t->bytes = (size_t)count * element_size(c, tensor) + 2 * MARGIN;
    t->memory = must(aligned_alloc(64, (t->bytes + 63) / 64 * 64));
    t->base = t->memory + MARGIN;
    memset(t->memory, CANARY, t->bytes);
    int64_t values =
        tensor == T_LSE ? lse_count(x) : x->B * att_tokens(x, tensor) * t->heads * x->D;
    t->value = must(calloc((size_t)values, sizeof(double)));
    t->bound = must(calloc((size_t)values, sizeof(double)));
}

void att_clear(att_case *c, int tensor)
{
    memset(c->t[tensor].memory, CANARY, c->t[tensor].bytes);
}

bool att_canary(const att_case *c, int tensor)
{
    const att_tensor *t = &c->t[tensor];
    size_t size = element_size(c, tensor), data = t->bytes - 2 * MARGIN;
    size_t row = (size_t)t->stride * size, used = (size_t)(t->heads * c->desc.D) * size;
    for (size_t i = 0; i < t->bytes; i++) {
        bool inside = i >= MARGIN && i < MARGIN + data &&
                      (tensor == T_LSE || tensor >= T_MASK || (i - MARGIN) % row < used);
        if (!inside && t->memory[i] != CANARY)
            return false;
    }
    return true;
}

/* ---- compiling and running ---- */

static void compile(att_case *c, f8_llvm *llvm, bool backward)
{
    f8_diag d = {0};
    f8_llvm_module *m;
    f8_object o;
    double start = seconds();
    if (f8_llvm_module_begin(&m, llvm, "attention", &d) ||
        f8_cpu_attention_emit(m, &c->desc, backward, "attention", c->phase[backward],
                              &c->n_phases[backward], &d) ||
        f8_llvm_module_compile(m, &c->arena, &o, &d) ||
        f8_link(&o, 1, &c->arena, &c->image[backward], &d) ||
        f8_blob_map(&c->blob[backward], c->image[backward].bytes, c->image[backward].size,
                    c->image[backward].code_size, &d)) {
        fprintf(stderr, "attention: %s\n", d.text);
        exit(1);
    }
    c->compile_seconds[backward] = seconds() - start;
    f8_llvm_module_end(m);
}

void att_make(att_case *c, f8_llvm *llvm, const f8_attention_desc *desc, int64_t gap,
              uint64_t seed)
{
    *c = (att_case){.desc = *desc, .errors = {.term = UNIT, .exp = 8 * UNIT}};
    f8_arena_init(&c->arena, NULL);
    for (int i = 0; i < T_COUNT; i++)
        make_tensor(c, i, gap);
    int64_t *stride[] = {&c->desc.stride.q,
                         &c->desc.stride.k,
                         &c->desc.stride.v,
                         &c->desc.stride.o,
                         NULL,
                         &c->desc.stride.dout,
                         &c->desc.stride.dq,
                         &c->desc.stride.dk,
                         &c->desc.stride.dv,
                         NULL,
                         NULL};
    for (int i = 0; i < T_COUNT; i++)
        if (stride[i])
            *stride[i] = c->t[i].stride;
    uint64_t s = seed * 0x9e3779b97f4a7c15u + 1;
    static const int inputs[] = {T_Q, T_K, T_V, T_DO};
    for (int k = 0; k < 4; k++)
        for (int64_t b = 0; b < desc->B; b++)
            for (int64_t t = 0; t < att_tokens(desc, inputs[k]); t++)
                for (int64_t h = 0; h < c->t[inputs[k]].heads; h++)
                    for (int64_t e = 0; e < desc->D; e++)
                        att_put(c, inputs[k], b, t, h, e, 2 * uniform(&s));
    fill_mask(c, &s);
    if (desc->dropout > 0)
        memcpy(c->t[T_SEED].base, &(uint32_t){(uint32_t)seed * 40503u}, 4);
    if (llvm) {
        compile(c, llvm, false);
        compile(c, llvm, true);
    }
}

void att_free(att_case *c)
{
    for (int i = 0; i < T_COUNT; i++) {
        free(c->t[i].memory);
        free(c->t[i].value);
        free(c->t[i].bound);
    }
    f8_blob_unmap(&c->blob[0]);
    f8_blob_unmap(&c->blob[1]);
    f8_arena_end(&c->arena);
}

void att_tasks(const att_case *c, bool backward, int phase, int64_t begin, int64_t end,
               void *scratch)
{
    void *args[T_COUNT];
    int order[T_COUNT];
    const int n = att_order(&c->desc, backward, order);
    for (int i = 0; i < n; i++)
        args[i] = c->t[order[i]].base;
    const f8_link_symbol *s = f8_link_find(&c->image[backward], c->phase[backward][phase].symbol);
    f8_blob_phase(&c->blob[backward], s->offset)(args, NULL, begin, end, scratch);
}

void att_run(att_case *c, bool backward, int parts, bool reverse)
{
    for (int p = 0; p < c->n_phases[backward]; p++) {
        const f8_cpu_phase *ph = &c->phase[backward][p];
        size_t size = (size_t)ph->scratch;
        uint8_t *scratch = must(aligned_alloc(64, (size + 2 * MARGIN + 63) / 64 * 64));
        for (int k = 0; k < parts; k++) {
            int64_t part = reverse ? parts - 1 - k : k;
            memset(scratch, 0xff, size + 2 * MARGIN); /* NaNs: nothing left over may be read */
            att_tasks(c, backward, p, ph->n_tasks * part / parts, ph->n_tasks * (part + 1) / parts,
                      scratch + MARGIN);
            for (size_t i = 0; i < MARGIN; i++)
                if (scratch[i] != 0xff || scratch[MARGIN + size + i] != 0xff) {
                    fprintf(stderr, "attention: phase %d wrote outside its scratch\n", p);
                    exit(1);
                }
        }
        free(scratch);
    }
}

/* ---- asserting ---- */

void att_check(const att_case *c, int tensor)
{
    const f8_attention_desc *d = &c->desc;
    const att_tensor *t = &c->t[tensor];
    int64_t D = tensor == T_LSE ? f8_attention_lse_rows(d) : d->D;
    for (int64_t b = 0; b < d->B; b++)
        for (int64_t i = 0; i < att_tokens(d, tensor); i++)
            for (int64_t h = 0; h < t->heads; h++)
                for (int64_t e = 0; e < D; e++) {
                    int64_t at = tensor == T_LSE
                                     ? att_lse_at(d, b, i, h, e)
                                     : ((b * att_tokens(d, tensor) + i) * t->heads + h) * D + e;
                    double got = att_get(c, tensor, b, i, h, e);
                    double off = got == t->value[at] ? 0 : fabs(got - t->value[at]); /* or Inf */
                    ck_assert_msg(
                        off <= t->bound[at],
                        "%s: %s[%d][%d][%d][%d] is %.9g, not %.9g (off by %.3g, allowed %.3g)",
                        att_describe(d), att_name[tensor], (int)b, (int)i, (int)h, (int)e, got,
                        t->value[at], off, t->bound[at]);
                }
    ck_assert_msg(att_canary(c, tensor), "%s: %s was written outside", att_describe(d),
                  att_name[tensor]);
}

bool att_row_is_nan(const att_case *c, int tensor, int64_t t, int64_t h)
{
    int nans = 0;
    for (int64_t e = 0; e < c->desc.D; e++)
        nans += isnan(att_get(c, tensor, 0, t, h, e)) != 0;
    ck_assert_msg(nans == 0 || nans == c->desc.D, "%s row %d is partly NaN", att_name[tensor],
                  (int)t);
    return nans != 0;
}

enum { INFINITE_KEY = 70 };

void att_put_infinite_scores(att_case *c)
{
    for (int64_t t = 0; t < c->desc.T; t++)
        for (int64_t e = 0; e < c->desc.D; e++)
            att_put(c, T_Q, 0, t, 0, e, 1.0);
    att_put(c, T_K, 0, 0, 0, 3, -INFINITY);           /* its score is -Inf: weight 0 */
    att_put(c, T_K, 0, INFINITE_KEY, 0, 3, INFINITY); /* +Inf: no softmax from here on */
}

void att_check_infinite_scores(const att_case *c)
{
    ck_assert(att_row_is_nan(c, T_O, 0, 0)); /* only -Inf to see */
    ck_assert(att_get(c, T_LSE, 0, 0, 0, 0) == -(double)INFINITY);
    for (int64_t t = 1; t < c->desc.T; t++)
        ck_assert_msg(att_row_is_nan(c, T_O, t, 0) == (t >= INFINITE_KEY), "row %d", (int)t);
    for (int64_t e = 0; e < c->desc.D; e++) /* row 1 sees key 1 alone */
        ck_assert(att_get(c, T_O, 0, 1, 0, e) == att_get(c, T_V, 0, 1, 0, e));
}
