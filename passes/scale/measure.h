/* Measuring candidates (choose.h) on samples of a GEMM's operands. */
#ifndef F8_MEASURE_H
#define F8_MEASURE_H

#include "ir/num/quantize.h"
#include "passes/scale/choose.h"

/* How many rows of each operand (indices of the result) an error is measured over. */
enum { F8_MEASURE_ROWS = 16, F8_MEASURE_MOST = F8_SAMPLE_TILE * F8_SAMPLE_TILES };

/* A part of an operand, with k along columns, as whole tiles of F8_SAMPLE_TILE rows (the last may
 * be short). Some of its rows are measured. All values are finite. */
typedef struct f8_operand_part {
    const float *v;       /* [rows, k] */
    int64_t rows, k;      /* rows <= F8_MEASURE_MOST */
    const float
        /* [rows]: amax of each row over all of k, where v has only a part of k; or NULL */
        *row_max;
    float most,
        before; /* amax of the tensor; the largest amax of earlier batches (0: there was none) */
} f8_operand_part;

/* Sums over batches, one entry per candidate: over the result's rows and over its columns, each
 * line's squared error divided by its squared norm. */
typedef struct f8_measured {
    double row, column;
    int64_t rows, columns;
    f8_quantize_error operand[2];
} f8_measured;

/* Bytes of workspace that f8_measure needs for parts with at most `k` columns. */
size_t f8_measure_workspace(int64_t k);

/* Add one batch to sum[F8_CANDIDATES]. Excluded candidates are skipped. part and kind are in the
 * role's order. */
void f8_measure(const f8_trial *t, const f8_operand_part part[2], void *workspace,
                f8_measured *sum);
/* From the sums to the trial's candidates. */
void f8_measured_errors(f8_trial *t, const f8_measured *sum);

#endif
