/* How the scales of a product's operand lie in memory: `scale_layout` of scaled_matmul.
 *
 * `grid` is the row-major grid of ir/num/granularity.h over the operand as it is stored. `cublaslt`
 * is what cuBLASLt reads (its documentation of CUDA 13, "Scaling factors layouts" and "1D Block
 * Scaling Factors Layout"). That depends on the axes of the product, not on those of the array.
 * With L blocks along k, and O rows (of A) or columns (of B) of the result:
 *
 *     one, or one for each of O           as in the grid
 *     f32, runs of b along k              [L, O]
 *     f32, tiles of b along k and c of O  [ceil(O / c), L rounded up to 4]; the padding is not read
 *     E8M0, runs of b along k             tiles of 128 of O by 4 blocks, row of tiles by row of
 *                                         tiles: [ceil(O / 128), ceil(L / 4), 32, 4, 4]; the scale
 *                                         of (o, l) is element [o / 128, l / 4, o % 32,
 *                                         o / 32 % 4, l % 4]; the padding is zero
 *
 * Both layouts are contiguous. */
#ifndef F8_SCALE_LAYOUT_H
#define F8_SCALE_LAYOUT_H

#include "ir/num/granularity.h"

typedef enum f8_scale_layout { F8_SCALES_GRID, F8_SCALES_CUBLASLT } f8_scale_layout;

enum { F8_SCALE_TILE = 128, F8_SCALE_TILE_K = 4 }; /* of E8M0 */

/* False for a text that is neither "grid" nor "cublaslt". */
bool f8_scale_layout_parse(const char *text, f8_scale_layout *out);
const char *f8_scale_layout_name(f8_scale_layout layout);

/* The scales of one operand of a product. */
typedef struct f8_scales {
    f8_granularity grain; /* over the codes as stored; it has blocks along k only */
    f8_dtype dtype;       /* F8_F32 or F8_E8M0 */
    bool k_is_rows;       /* the product sums over the rows of the codes */
} f8_scales;

/* How much one scale covers along k, and across it. As in f8_granularity, 0 means all. */
int64_t f8_scales_along_k(const f8_scales *s);
int64_t f8_scales_across(const f8_scales *s);

/* The kinds of scales that FP8 GEMMs read. */
typedef enum f8_scale_kind {
    F8_SCALED_TENSOR, /* one for the tensor */
    F8_SCALED_ROWS,   /* f32, one for each row (of A) or column (of B) of the result */
    F8_SCALED_RUNS,   /* f32, one for each 128 along k */
    F8_SCALED_TILES,  /* f32, one for each 128 along k by 128 across it */
    F8_SCALED_MX,     /* E8M0, one for each 32 along k */
    F8_SCALED_OTHER   /* none that a GEMM reads */
} f8_scale_kind;
f8_scale_kind f8_scales_kind(const f8_scales *s);

/* The type of the array of scales for codes of type `codes`. False where the layout has no such
 * array: for E8M0 scales that are not runs along k. */
bool f8_scale_layout_type(f8_scale_layout layout, const f8_scales *s, const f8_type *codes,
                          f8_type *out);

/* The index in that array of the scale of element (outer, k) of the operand. */
int64_t f8_scale_layout_at(f8_scale_layout layout, const f8_scales *s, const f8_type *codes,
                           int64_t outer, int64_t k);

#endif
