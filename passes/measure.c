/* Measuring candidates: see measure.h. */
#include "passes/measure.h"

#include <math.h>
#include <string.h>

enum { LANES = 8 };

typedef struct work {
    float *picked[2], *back[2]; /* [F8_MEASURE_ROWS, k]: values, and after quantizing */
    float *amax, *scale, *inv;  /* of one operand: at most one a block of 32 for F8_MEASURE_TILE rows */
} work;

static int64_t scales_room(int64_t k)
{
    return F8_MEASURE_TILE * ((k + 31) / 32);
}

size_t f8_measure_workspace(int64_t k)
{
    return (size_t)(4 * F8_MEASURE_ROWS * k + 3 * scales_room(k)) * sizeof(float);
}

static work divide(void *workspace, int64_t k)
{
    float *at = workspace;
    work w;
    for (int i = 0; i < 2; i++, at += F8_MEASURE_ROWS * k)
        w.picked[i] = at;
    for (int i = 0; i < 2; i++, at += F8_MEASURE_ROWS * k)
        w.back[i] = at;
    w.amax = at;
    w.scale = w.amax + scales_room(k);
    w.inv = w.scale + scales_room(k);
    return w;
}

/* ---- one operand ---- */

static int64_t picks(const f8_operand_part *p)
{
    return p->rows < F8_MEASURE_ROWS ? p->rows : F8_MEASURE_ROWS;
}

/* Row i of those measured: spread over the part. */
static int64_t pick(const f8_operand_part *p, int64_t i)
{
    return i * p->rows / picks(p);
}

static void gather(const f8_operand_part *p, float *to)
{
    for (int64_t i = 0; i < picks(p); i++)
        memcpy(to + i * p->k, p->v + pick(p, i) * p->k, (size_t)p->k * sizeof *to);
}

/* Scales of the picked rows: of the tensor, of the rows, of blocks of them or of the part as a tile's rows. */
static void scales(const f8_quantizer *q, const f8_recipe *r, const f8_operand_part *p, const float *picked,
                   const work *w)
{
    const int64_t n = picks(p);
    if (!q->grain.rows) {
        w->amax[0] = r->scaling == F8_SCALING_DELAYED && p->before > 0 ? p->before : p->most;
        f8_scales_of(q, w->amax, 1, w->scale, w->inv);
        return;
    }
    f8_granularity rows = q->grain;
    if (q->grain.rows > 1) /* the tile's amaxes, for every row of it */
        f8_matrix_amax((f8_granularity){0, q->grain.cols}, p->v, p->rows, p->k, w->amax);
    else
        f8_matrix_amax(rows, picked, n, p->k, w->amax);
    if (!q->grain.cols && p->row_max)
        for (int64_t i = 0; i < n; i++)
            w->amax[i] = p->row_max[pick(p, i)];
    f8_scales_of(q, w->amax, f8_quantizer_scales(q, n, p->k), w->scale, w->inv);
}

static void quantize(const f8_recipe *r, f8_operand_kind kind, const f8_operand_part *p, const float *picked,
                     const work *w, float *back, f8_quantize_error *e)
{
    const f8_quantizer q = {.grain = f8_recipe_granularity(r, kind, false),
                            .format = f8_recipe_format(r, kind), .mx = r->scaling == F8_SCALING_MX,
                            .pow2 = r->pow2, .margin = r->margin};
    scales(&q, r, p, picked, w);
    f8_matrix_dequantized(&q, picked, picks(p), p->k, w->scale, w->inv, back, e);
}

/* ---- the product ---- */

static float dot(const float *a, const float *b, int64_t n)
{
    float lane[LANES] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += a[i + j] * b[i + j];
    for (; i < n; i++)
        rest += a[i] * b[i];
    for (int j = 0; j < LANES; j++)
        rest += lane[j];
    return rest;
}

void f8_measure(const f8_trial *t, const f8_operand_part part[2], void *workspace, f8_measured *sum)
{
    const int64_t k = part[0].k, rows = picks(&part[0]), cols = picks(&part[1]);
    const work w = divide(workspace, k);
    float exact[F8_MEASURE_ROWS][F8_MEASURE_ROWS];
    f8_operand_kind kind[2];
    f8_role_operands(t->role, kind);
    gather(&part[0], w.picked[0]);
    gather(&part[1], w.picked[1]);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            exact[i][j] = dot(w.picked[0] + i * k, w.picked[1] + j * k, k);
    for (int c = 1; c < F8_CANDIDATES; c++) {
        const f8_candidate *candidate = &t->candidate[c];
        if (candidate->excluded)
            continue;
        for (int i = 0; i < 2; i++)
            quantize(&candidate->recipe, kind[i], &part[i], w.picked[i], &w, w.back[i], &sum[c].operand[i]);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++) {
                const double y = (double)exact[i][j];
                const double off = (double)dot(w.back[0] + i * k, w.back[1] + j * k, k) - y;
                sum[c].off += off * off;
                sum[c].result += y * y;
            }
    }
}

static double share(int64_t part, int64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

void f8_measured_errors(f8_trial *t, const f8_measured *sum)
{
    for (int c = 1; c < F8_CANDIDATES; c++) {
        f8_candidate *to = &t->candidate[c];
        if (to->excluded)
            continue;
        to->error = sum[c].result > 0 ? sqrt(sum[c].off / sum[c].result) : sum[c].off > 0 ? INFINITY : 0;
        for (int i = 0; i < 2; i++) {
            const f8_quantize_error *e = &sum[c].operand[i];
            to->operand[i] = (f8_operand_error){.sqnr = 10 * log10(e->signal / e->noise),
                                                .underflow = share(e->underflow, e->n),
                                                .overflow = share(e->overflow, e->n)};
        }
    }
}
