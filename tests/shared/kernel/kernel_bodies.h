/* Phases that several tests of kernels use, for any target. Each function adds its inputs, nodes
 * and results over values of [rows, cols] to the case, and ends the phase. The caller adds special
 * values after kc_begin, and checks the case. */
#ifndef F8_TESTS_KERNEL_BODIES_H
#define F8_TESTS_KERNEL_BODIES_H

#include "tests/shared/kernel/kernel_case.h"

/* Columns or rows around the sizes of vectors and blocks. */
enum { KC_RAGGED = 14 };
extern const int kc_ragged[KC_RAGGED];

/* ---- values ---- */

f8_ref kc_mean(kcase *c, f8_ref x); /* f32 of each row */
/* f32; in blocks of F8_COLSUM_BLOCK rows where x is taller. */
f8_ref kc_column_sum(kcase *c, f8_ref x);
/* f32; `block` rows each, a power of two up to F8_COLSUM_BLOCK. */
f8_ref kc_column_amax(kcase *c, f8_ref x, int64_t block);
f8_ref kc_quantize(kcase *c, f8_ref x, f8_ref scale, f8_dtype to, bool saturate);
f8_ref kc_transposed(kcase *c, f8_ref x); /* of two axes */
f8_ref kc_roll(kcase *c, f8_ref x, int64_t shift, int64_t group);
f8_ref kc_exp_off(kcase *c, f8_ref x, f8_ref top); /* exp(x - top) */

/* ---- phases ---- */

/* y = (x - mean) rstd w + b in bf16 from x of `dtype`, and its statistics; with `codes` also y's
 * amax of each row and y in e4m3. */
void kc_layernorm(kcase *c, f8_dtype dtype, int rows, int cols, bool codes);
/* A bf16 sum of a bf16 and a rounded f32 value, and its norm in e4m3 along rows and along columns,
 * with the amax of each row. */
void kc_residual_norm(kcase *c, int rows, int cols);
/* Gradient of a norm: dx in bf16, with sums over the rows (`reduce`) or without, and its amax.
 * `sums`: also sums over columns of values of both stages. `codes`: also dx in e5m2 along rows and
 * along columns. */
void kc_norm_backward(kcase *c, int rows, int cols, bool sums, bool codes, bool reduce);
/* Amaxes of columns in blocks of rows: block[0] of a value that is read; the others of computed
 * values, before and after a reduction of the row (0: none). The flags add what else one visit may
 * make of them. */
typedef struct kc_blocks {
    int64_t block[3];
    bool reduce, sums, codes;
} kc_blocks;
void kc_column_blocks(kcase *c, int rows, int cols, kc_blocks how);
/* A row is a block: codes by its own amax, and the inverse scale. */
void kc_row_blocks(kcase *c, int blocks, int cols, f8_dtype from, bool gelu);
/* Codes of rows in runs of `high`, each run with a row of scales; `turned`: and their transpose. */
void kc_scaled_runs(kcase *c, int runs, int high, int cols, bool turned);
/* Magnitudes, scales in f32, bf16 and E8M0 and codes of blocks of columns, from one visit; then the
 * codes' values, with scales read from memory. `how`: behind a reduction of the row; with
 * magnitudes of blocks of 32 rows; with the codes' transpose. */
enum { KC_REDUCED = 1, KC_MAXIMA = 2, KC_TURNED = 4 };
void kc_column_runs(kcase *c, int rows, int cols, int block, int how);
/* Codes by scales in memory, one for each block of high x wide. */
/* Rows and columns of tiles that kc_tiles is asked for. */
enum { KC_TILE_SIZES = 7 };
extern const int kc_tile_size[KC_TILE_SIZES][2];
void kc_tiles(kcase *c, int rows, int cols, int high, int wide);
/* Maximum, exp, sum, division; amax of the result and the logarithm of the sum. */
void kc_softmax(kcase *c, int rows, int cols);
/* n reductions of each row in one stage: maxima, amaxes and, with `sums`, sums in turn. */
void kc_many_reductions(kcase *c, int rows, int cols, int n, bool sums);
/* n values that a later stage needs and that take long to compute. */
void kc_many_near(kcase *c, int rows, int cols, int n);
/* Every pointwise op of f32: unary in one flat phase; binary and FMA by rows, in a phase for each
 * broadcast. */
void kc_pointwise(kcase *c, int rows, int cols);
void kc_ints_and_truth(kcase *c, int rows, int cols);
/* A phase for each narrow dtype: in, as f32 times scale, and for the 16-bit ones out again; also
 * `wide` [rows, cols] of f32 rounded to them. */
void kc_narrow(kcase *c, f8_ref scale, f8_ref wide);
/* Quantizes and decodes `wide` in both formats of FP8; ends no phase. */
void kc_codes(kcase *c, f8_ref scale, f8_ref wide, bool saturate);
/* Leading and middle axes broadcast over [2, 5, 3, d]: [5, 1, d], [2, 1, 1, d], [3, 1] and [1, 5,
 * 3, d]; `fused`: a product and a sum as FMA. */
void kc_periodic(kcase *c, int d, bool fused);
/* 15 rows of a table of 11, some of them outside it, plus positions. Returns the ids, i32[3, 5]. */
f8_ref kc_embedding(kcase *c, int cols);
/* Cross-entropy of 4 rows: the column's number against the row's target. */
void kc_targets(kcase *c, int cols);
/* A head's cross-entropy of rows of logits in `dtype`: the loss of each row, and the gradient of
 * the logits in bf16. */
void kc_loss(kcase *c, f8_dtype dtype, int rows, int cols);
/* The same as wide rows have it, of x = size times the logits: the sum begins with the largest of
 * the first `first` columns, if no x lies `above` or more above it. `out`: what is asked for in
 * some rows alone is stored, too, and so has to be right in all. */
typedef enum kc_wide_out { KC_WIDE_NONE, KC_WIDE_RARE, KC_WIDE_USUAL } kc_wide_out;
typedef struct kc_wide {
    int first;
    double above, size;
    kc_wide_out out;
} kc_wide;
void kc_wide_loss(kcase *c, f8_dtype dtype, int rows, int cols, kc_wide how);
/* Results over their own operands: values along rows, of rows and, in a flat phase, of one operand
 * twice. */
void kc_in_place(kcase *c, int rows, int cols);
/* Reads and writes columns of wider values in a phase that is made as if it were flat. Returns the
 * f32[6, cols] operand that is a value of its own. */
f8_ref kc_views(kcase *c, int cols);
/* Scalars, [77, 1] columns, values of one element, a constant. `in_place`: the scalar is
 * overwritten where it lies, and what follows has the vector of one element for it. */
void kc_small_shapes(kcase *c, bool in_place);

#endif
