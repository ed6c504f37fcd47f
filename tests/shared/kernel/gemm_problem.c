/* See gemm_problem.h. */
#include "tests/shared/kernel/gemm_problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/num/fp8.h"
#include "tests/shared/random.h"

void gemm_setup_make(gemm_setup *s)
{
    f8_diag diag = {0};
    *s = (gemm_setup){0};
    ck_assert_msg(f8_gemm_lib_create(NULL, &s->lib, &diag) == F8_OK, "%s", diag.text);
    for (int n = 1; n <= 3; n++) {
        f8_pool_options options = {.n_threads = n};
        ck_assert_msg(f8_pool_create(&options, &s->pools[n], &diag) == F8_OK, "%s", diag.text);
    }
}

void gemm_setup_end(gemm_setup *s)
{
    for (int n = 1; n <= 3; n++)
        f8_pool_destroy(s->pools[n]);
    f8_gemm_lib_destroy(s->lib);
}

void gemm_set_strides(f8_gemm_desc *d, int64_t extra)
{
    d->lda = (d->trans_a ? d->m : d->k) + extra;
    d->ldb = (d->trans_b ? d->k : d->n) + extra * 2;
    d->ldc = d->n + extra * 3;
}

/* ---- data ---- */

static void *room(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    ck_assert_ptr_nonnull(p);
    return p;
}

static float random_float(uint32_t *seed)
{
    return (float)((int)(test_random(seed) % 4001) - 2000) / 1024.0f +
           (float)(test_random(seed) % 999) * 0x1p-24f;
}

static void fill(f8_dtype dtype, void *data, size_t n, uint32_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        float x = random_float(seed);
        if (dtype == F8_F32)
            ((float *)data)[i] = x;
        else if (dtype == F8_BF16)
            ((uint16_t *)data)[i] = f8_f32_to_bf16(x);
        else {
            uint8_t code = (uint8_t)(test_random(seed) % 4 ? f8_encode(dtype, x, true)
                                                           : test_random(seed) % 8);
            ((uint8_t *)data)[i] = code;
        }
    }
}

static void fill_scales(f8_dtype dtype, void *data, size_t n, uint32_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        int exponent = (int)(test_random(seed) % 12) - 6;
        if (dtype == F8_E8M0)
            ((uint8_t *)data)[i] = (uint8_t)(127 + exponent);
        else
            ((float *)data)[i] = ldexpf(1 + (float)test_random(seed) * 0x1p-24f, exponent);
    }
}

static f8_type stored_type(const f8_gemm_desc *d, bool of_a)
{
    const int64_t outer = of_a ? d->m : d->n;
    const bool k_is_rows = of_a ? d->trans_a : !d->trans_b;
    return (f8_type){.rank = 2, .dim = {k_is_rows ? d->k : outer, k_is_rows ? outer : d->k}};
}

static size_t count_scales(const f8_gemm_desc *d, bool of_a)
{
    const f8_type t = stored_type(d, of_a);
    const f8_granularity g = of_a ? d->scale_a : d->scale_b;
    return (size_t)(f8_granularity_rows(g, &t) * f8_granularity_columns(g, &t));
}

gemm_problem gemm_problem_make(f8_gemm_desc d, uint32_t *seed)
{
    gemm_problem p = {.desc = d};
    p.a_count = (size_t)((d.trans_a ? d.k : d.m) * d.lda);
    p.b_count = (size_t)((d.trans_b ? d.n : d.k) * d.ldb);
    p.c_count = (size_t)(d.m * d.ldc);
    p.a = room(p.a_count * f8_dtype_size(d.a));
    p.b = room(p.b_count * f8_dtype_size(d.b));
    p.c0 = room(p.c_count * sizeof(float));
    p.a_values = room((size_t)(d.m * d.k) * sizeof(double));
    p.b_values = room((size_t)(d.n * d.k) * sizeof(double));
    fill(d.a, p.a, p.a_count, seed);
    fill(d.b, p.b, p.b_count, seed);
    fill(F8_F32, p.c0, p.c_count, seed);
    if (d.has_alpha) {
        p.scale_a_count = count_scales(&d, true);
        p.scale_b_count = count_scales(&d, false);
        p.scale_a = room(p.scale_a_count * f8_dtype_size(d.scale));
        p.scale_b = room(p.scale_b_count * f8_dtype_size(d.scale));
        fill_scales(d.scale, p.scale_a, p.scale_a_count, seed);
        fill_scales(d.scale, p.scale_b, p.scale_b_count, seed);
    }
    gemm_problem_dequantize(&p);
    return p;
}

void gemm_problem_end(gemm_problem *p)
{
    free(p->a);
    free(p->b);
    free(p->scale_a);
    free(p->scale_b);
    free(p->a_values);
    free(p->b_values);
    free(p->c0);
}

/* ---- values ---- */

static float value_at(f8_dtype dtype, const void *data, int64_t i)
{
    switch (f8_dtype_size(dtype)) {
    case 1: return f8_decode(dtype, ((const uint8_t *)data)[i]);
    case 2: return f8_decode(dtype, ((const uint16_t *)data)[i]);
    default: return f8_decode(dtype, ((const uint32_t *)data)[i]);
    }
}

/* The scales of an operand, to be asked for by the element as stored. */
typedef struct grid {
    const void *data; /* NULL: 1 everywhere */
    f8_dtype dtype;
    f8_granularity g;
    int64_t columns;
} grid;

static grid grid_of(const gemm_problem *p, bool of_a)
{
    const f8_type t = stored_type(&p->desc, of_a);
    const f8_granularity g = of_a ? p->desc.scale_a : p->desc.scale_b;
    return (grid){of_a ? p->scale_a : p->scale_b, p->desc.scale, g, f8_granularity_columns(g, &t)};
}

static float scale_at(const grid *x, int64_t row, int64_t col)
{
    if (!x->data)
        return 1;
    return value_at(x->dtype, x->data,
                    f8_granularity_block(x->g.rows, row) * x->columns +
                        f8_granularity_block(x->g.cols, col));
}

static float element_of(const gemm_problem *p, bool of_a, int64_t at)
{
    const f8_gemm_desc *d = &p->desc;
    const float x = of_a ? value_at(d->a, p->a, at) : value_at(d->b, p->b, at);
    return (of_a ? d->round_a : d->round_b) ? f8_round_bf16(x) : x;
}

static void dequantize(const gemm_problem *p, bool of_a)
{
    const f8_gemm_desc *d = &p->desc;
    const int64_t outer = of_a ? d->m : d->n, ld = of_a ? d->lda : d->ldb;
    const bool k_is_rows = of_a ? d->trans_a : !d->trans_b;
    const grid scales = grid_of(p, of_a);
    double *to = of_a ? p->a_values : p->b_values;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < d->k; k++) {
            const int64_t row = k_is_rows ? k : o, col = k_is_rows ? o : k;
            *to++ =
                (double)element_of(p, of_a, row * ld + col) * (double)scale_at(&scales, row, col);
        }
}

void gemm_problem_dequantize(gemm_problem *p)
{
    dequantize(p, true);
    dequantize(p, false);
}

float *gemm_problem_decoded(const gemm_problem *p, bool of_a, bool scaled)
{
    const size_t n = of_a ? p->a_count : p->b_count;
    const int64_t ld = of_a ? p->desc.lda : p->desc.ldb;
    const int64_t columns = stored_type(&p->desc, of_a).dim[1];
    const grid scales = grid_of(p, of_a);
    float *out = room(n * sizeof *out);
    for (int64_t i = 0; i < (int64_t)n; i++) {
        out[i] = element_of(p, of_a, i);
        if (scaled && i % ld < columns)
            out[i] *= scale_at(&scales, i / ld, i % ld);
    }
    return out;
}

/* ---- a run ---- */

enum { CANARY = 4096 };

float *gemm_problem_run(const gemm_setup *s, const gemm_problem *p, int prepared, int threads)
{
    const f8_gemm_desc *d = &p->desc;
    f8_diag diag = {0};
    f8_gemm *gemm;
    f8_status status = f8_gemm_prepare(s->lib, d, prepared, &gemm, &diag);
    ck_assert_msg(status == F8_OK, "%s", diag.text);
    size_t bytes = f8_gemm_workspace(gemm);
    ck_assert_uint_eq(bytes % 64, 0);
    unsigned char *ws = aligned_alloc(64, bytes + 2 * CANARY);
    ck_assert_ptr_nonnull(ws);
    memset(ws, 0xa5, bytes + 2 * CANARY);
    float *c = room(p->c_count * sizeof *c);
    memcpy(c, p->c0, p->c_count * sizeof *c);
    if (!d->accumulate || p->afresh) /* then what C held must not show */
        for (int64_t i = 0; i < d->m; i++)
            memset(c + i * d->ldc, 0xff, (size_t)d->n * sizeof *c);
    status = (p->afresh ? f8_gemm_run_afresh : f8_gemm_run)(gemm, s->pools[threads], p->a, p->b, c,
                                                            p->scale_a, p->scale_b, ws + CANARY);
    ck_assert_int_eq(status, F8_OK);
    for (size_t i = 0; i < CANARY; i++)
        require(ws[i] == 0xa5 && ws[CANARY + bytes + i] == 0xa5, "written outside the workspace");
    free(ws);
    f8_gemm_release(gemm);
    return c;
}

/* ---- results ---- */

typedef struct dot {
    double sum, magnitude;
} dot;

/* In several sums, so that an addition need not wait for the one before. */
static dot dot_of(const gemm_problem *p, int64_t i, int64_t j)
{
    enum { SUMS = 8 };
    const double *a = p->a_values + i * p->desc.k, *b = p->b_values + j * p->desc.k;
    const int64_t whole = p->desc.k / SUMS * SUMS;
    double sum[SUMS] = {0}, magnitude[SUMS] = {0};
    for (int64_t k = 0; k < whole; k += SUMS)
        for (int l = 0; l < SUMS; l++) {
            sum[l] += a[k + l] * b[k + l];
            magnitude[l] += fabs(a[k + l] * b[k + l]);
        }
    for (int64_t k = whole; k < p->desc.k; k++) {
        sum[k - whole] += a[k] * b[k];
        magnitude[k - whole] += fabs(a[k] * b[k]);
    }
    dot x = {0, 0};
    for (int l = 0; l < SUMS; l++) {
        x.sum += sum[l];
        x.magnitude += magnitude[l];
    }
    return x;
}

int64_t gemm_problem_wrong(const gemm_problem *p, const float *c, char *text)
{
    const f8_gemm_desc *d = &p->desc;
    const int64_t step = d->m * d->n * d->k > 50000000 ? 997 : 1;
    const bool blocks =
        f8_granularity_has_blocks(d->scale_a) || f8_granularity_has_blocks(d->scale_b);
    const double chunks = (double)(d->k / (blocks ? 32 : 512) + 2);
    int64_t wrong = 0;
    for (int64_t e = 0; e < d->m * d->n; e += step) {
        const int64_t i = e / d->n, j = e % d->n;
        const dot x = dot_of(p, i, j);
        const double before = d->accumulate ? (double)p->c0[i * d->ldc + j] : 0.0;
        const double want = before + x.sum, got = (double)c[i * d->ldc + j];
        const double bound =
            (((double)d->k + 4) * x.magnitude + chunks * (fabs(before) + x.magnitude)) * 0x1p-24;
        if (!(fabs(got - want) <= bound) && !wrong++)
            snprintf(text, 120, "[%d,%d]: %g, want %g +- %g", (int)i, (int)j, got, want, bound);
    }
    for (int64_t i = 0; i < d->m; i++)
        require(memcmp(c + i * d->ldc + d->n, p->c0 + i * d->ldc + d->n,
                       (size_t)(d->ldc - d->n) * sizeof *c) == 0,
                "written between the rows of C");
    return wrong;
}

double gemm_problem_difference(const gemm_problem *p, const float *c)
{
    const f8_gemm_desc *d = &p->desc;
    double products = 0, squares = 0;
    for (int64_t i = 0; i < d->m; i++)
        for (int64_t j = 0; j < d->n; j++) {
            const double x = (double)c[i * d->ldc + j];
            const double y =
                dot_of(p, i, j).sum + (d->accumulate ? (double)p->c0[i * d->ldc + j] : 0.0);
            products += x * y;
            squares += x * x + y * y;
        }
    return 1 - 2 * products / squares;
}

static void check_afresh(const gemm_setup *s, const gemm_problem *p)
{
    gemm_problem zeros = *p, afresh = *p;
    zeros.c0 = room(p->c_count * sizeof *zeros.c0);
    memcpy(zeros.c0, p->c0, p->c_count * sizeof *zeros.c0);
    for (int64_t i = 0; i < p->desc.m; i++)
        memset(zeros.c0 + i * p->desc.ldc, 0, (size_t)p->desc.n * sizeof *zeros.c0);
    afresh.afresh = true;
    float *want = gemm_problem_run(s, &zeros, 2, 2), *got = gemm_problem_run(s, &afresh, 2, 2);
    ck_assert_msg(!memcmp(want, got, p->c_count * sizeof *want), "bits differ from those of zeros");
    free(want);
    free(got);
    free(zeros.c0);
}

void gemm_problem_check(const gemm_setup *s, const gemm_problem *p)
{
    static const int prepared[] = {3, 2, 3}, threads[] = {1, 2, 3};
    char text[120] = "";
    float *c = gemm_problem_run(s, p, 1, 0);
    const int64_t wrong = gemm_problem_wrong(p, c, text);
    ck_assert_msg(wrong == 0, "%d elements wrong, first %s", (int)wrong, text);
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        float *again = gemm_problem_run(s, p, prepared[i], threads[i]);
        ck_assert_msg(memcmp(c, again, p->c_count * sizeof *c) == 0, "bits differ with %d threads",
                      threads[i]);
        free(again);
    }
    free(c);
    if (p->desc.accumulate)
        check_afresh(s, p);
}
