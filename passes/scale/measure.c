/* Measuring candidates: see measure.h. */
#include "passes/scale/measure.h"

#include <math.h>
#include <string.h>

enum { LANES = 8 };

typedef struct work {
    /* [F8_MEASURE_ROWS, k]: values, and the same after quantizing and dequantizing */
    float *picked[2], *back[2];
    /* of one operand: at most one per block of 32 of the measured rows */
    float *amax, *scale, *inv;
} work;

static int64_t scales_room(int64_t k)
{
    return F8_MEASURE_ROWS * ((k + 31) / 32);
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

/* The i-th measured row. Measured rows are spread over the part. */
static int64_t pick(const f8_operand_part *p, int64_t i)
{
    return i * p->rows / picks(p);
}

static void gather(const f8_operand_part *p, float *to)
{
    for (int64_t i = 0; i < picks(p); i++)
        memcpy(to + i * p->k, p->v + pick(p, i) * p->k, (size_t)p->k * sizeof *to);
}

/* The amaxes of the i-th measured row, [blocks of a row]: the tensor's, the row's or its tile's. */
static void amax_of_row(const f8_quantizer *q, const f8_recipe *r, const f8_operand_part *p,
                        const float *row, int64_t i, float *amax)
{
    const int64_t at = pick(p, i), tile = at / F8_SAMPLE_TILE * F8_SAMPLE_TILE;
    const f8_granularity along = {0, q->grain.cols};
    if (!q->grain.rows)
        *amax = r->scaling == F8_SCALING_DELAYED && p->before > 0 ? p->before : p->most;
    else if (q->grain.rows > 1)
        f8_matrix_amax(along, p->v + tile * p->k,
                       p->rows - tile < F8_SAMPLE_TILE ? p->rows - tile : F8_SAMPLE_TILE, p->k,
                       amax);
    else if (!q->grain.cols && p->row_max)
        *amax = p->row_max[at];
    else
        f8_matrix_amax(along, row, 1, p->k, amax);
}

static void quantize(const f8_recipe *r, f8_operand_kind kind, const f8_operand_part *p,
                     const float *picked, const work *w, float *back, f8_quantize_error *e)
{
    f8_quantizer q = {.grain = f8_recipe_granularity(r, kind, false),
                      .format = f8_recipe_format(r, kind),
                      .mx = r->scaling == F8_SCALING_MX,
                      .pow2 = r->pow2,
                      .margin = r->margin};
    const f8_quantizer of_row = {.grain = {0, q.grain.cols},
                                 .format = q.format,
                                 .mx = q.mx,
                                 .pow2 = q.pow2,
                                 .margin = q.margin};
    const int64_t across = f8_quantizer_scales(&of_row, 1, p->k);
    int64_t tile = -1;
    for (int64_t i = 0; i < picks(p); i++) {
        const int64_t mine = pick(p, i) / F8_SAMPLE_TILE;
        if (i == 0 || q.grain.rows == 1 || mine != tile)
            amax_of_row(&q, r, p, picked + i * p->k, i, w->amax);
        tile = mine;
        f8_scales_of(&of_row, w->amax, across, w->scale, w->inv);
        f8_matrix_dequantized(&of_row, picked + i * p->k, 1, p->k, w->scale, w->inv,
                              back + i * p->k, e);
    }
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

typedef double product[F8_MEASURE_ROWS][F8_MEASURE_ROWS];

static void multiply(float *const operand[2], int64_t rows, int64_t cols, int64_t k, product out)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            out[i][j] = (double)dot(operand[0] + i * k, operand[1] + j * k, k);
}

/* Add each line's share of error; lines are the rows or the columns of a result. A line that is
 * zero counts as lost if it does not stay zero. If it does, it shows nothing and is not counted. */
static void add_lines(const product exact, const product made, int64_t lines, int64_t n,
                      bool columns, double *sum, int64_t *count)
{
    for (int64_t i = 0; i < lines; i++) {
        double off = 0, size = 0;
        for (int64_t j = 0; j < n; j++) {
            const double y = columns ? exact[j][i] : exact[i][j],
                         d = (columns ? made[j][i] : made[i][j]) - y;
            off += d * d;
            size += y * y;
        }
        if (size == 0 && off == 0)
            continue;
        *sum += size == 0 ? 1 : off / size;
        ++*count;
    }
}

void f8_measure(const f8_trial *t, const f8_operand_part part[2], void *workspace, f8_measured *sum)
{
    const int64_t k = part[0].k, rows = picks(&part[0]), cols = picks(&part[1]);
    const work w = divide(workspace, k);
    product exact, made;
    f8_operand_kind kind[2];
    f8_role_operands(t->role, kind);
    gather(&part[0], w.picked[0]);
    gather(&part[1], w.picked[1]);
    multiply(w.picked, rows, cols, k, exact);
    for (int c = 1; c < F8_CANDIDATES; c++) {
        const f8_candidate *candidate = &t->candidate[c];
        if (candidate->excluded)
            continue;
        for (int i = 0; i < 2; i++)
            quantize(&candidate->recipe, kind[i], &part[i], w.picked[i], &w, w.back[i],
                     &sum[c].operand[i]);
        multiply(w.back, rows, cols, k, made);
        add_lines(exact, made, rows, cols, false, &sum[c].row, &sum[c].rows);
        add_lines(exact, made, cols, rows, true, &sum[c].column, &sum[c].columns);
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
        const double row =
            sqrt(sum[c].row / (double)sum[c].rows); /* 0 / 0 where all lines were zero */
        const double column = sqrt(sum[c].column / (double)sum[c].columns);
        to->error =
            row >= column ? row : column; /* NaN where either is: fmax would take the other */
        if (isnan(row))
            to->error = row;
        for (int i = 0; i < 2; i++) {
            const f8_quantize_error *e = &sum[c].operand[i];
            to->operand[i] = (f8_operand_error){.sqnr = 10 * log10(e->signal / e->noise),
                                                .underflow = share(e->underflow, e->n),
                                                .overflow = share(e->overflow, e->n)};
        }
    }
}
