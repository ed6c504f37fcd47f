/* Granularity: how much of a tensor one scale covers.
 *
 * A value is seen as a matrix [R, C], its leading axes flattened. A scale covers `rows` by `cols` of
 * it, 0 meaning all there are; the blocks at the ends may be short. In the text:
 *
 *     tensor          {0, 0}      one scale
 *     row             {1, 0}      one for each row
 *     column          {0, 1}      one for each column
 *     block(1,128)    {1, 128}    runs of 128 along rows; block(128,1) along columns
 *     block(128,128)  {128, 128}  tiles
 *
 * A GEMM sums over one axis of each operand (k). Scales of single rows of the other axis leave the sum
 * alone; blocks along k weigh its parts. */
#ifndef F8_GRANULARITY_H
#define F8_GRANULARITY_H

#include "ir/base/type.h"

typedef struct f8_granularity {
    int64_t rows, cols;
} f8_granularity;

static const f8_granularity f8_per_tensor = {0, 0};

/* False for a text that is none of the above. */
bool f8_granularity_parse(const char *text, f8_granularity *out);
/* Returns the text: a constant, or in `buf` (48 bytes hold blocks of any size). */
const char *f8_granularity_print(f8_granularity g, char *buf, size_t size);

bool f8_granularity_equal(f8_granularity a, f8_granularity b);
/* Of the transpose. */
f8_granularity f8_granularity_transposed(f8_granularity g);
/* Scales have blocks along an axis: not one per index of it, and not one for all of it. */
bool f8_granularity_has_blocks(f8_granularity g);

/* The type of one number per block of a tensor of type `t`: f32 [] for a tensor; with rows == 1 the
 * leading axes of t, then the blocks of a row; else [blocks of rows, blocks of columns]. */
f8_type f8_granularity_type(f8_granularity g, const f8_type *t, f8_dtype dtype);

/* The sizes of that grid of numbers, as a matrix. */
int64_t f8_granularity_rows(f8_granularity g, const f8_type *t);
int64_t f8_granularity_columns(f8_granularity g, const f8_type *t);

/* How many blocks an axis of n has; `size` is g.rows or g.cols. */
static inline int64_t f8_granularity_blocks(int64_t size, int64_t n)
{
    return size ? (n + size - 1) / size : 1;
}

/* Blocks of columns that reduce_amax and kernels know: a power of two from 16 to 256. */
static inline bool f8_column_block(int64_t cols)
{
    return cols >= 16 && cols <= 256 && !(cols & (cols - 1));
}

/* The row or column of the grid that index `i` of an axis falls in. */
static inline int64_t f8_granularity_block(int64_t size, int64_t i)
{
    return size ? i / size : 0;
}

#endif
