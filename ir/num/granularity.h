/* Granularity: how much of a tensor one scale covers.
 *
 * A value is seen as a matrix [R, C]: its leading axes are flattened. A scale covers `rows` by
 * `cols` of it, where 0 means all; the blocks at the ends may be shorter. In the text:
 *
 *     tensor          {0, 0}      one scale
 *     row             {1, 0}      one for each row
 *     column          {0, 1}      one for each column
 *     block(1,128)    {1, 128}    runs of 128 along rows; block(128,1) along columns
 *     block(128,128)  {128, 128}  tiles
 *
 * A GEMM sums over one axis of each operand (k). A scale for each row of the other axis can be
 * multiplied in after the sum. Blocks along k have one scale for each part of the sum. */
#ifndef F8_GRANULARITY_H
#define F8_GRANULARITY_H

#include "ir/base/type.h"

typedef struct f8_granularity {
    int64_t rows, cols;
} f8_granularity;

static const f8_granularity f8_per_tensor = {0, 0};

/* False if the text is none of the above. */
bool f8_granularity_parse(const char *text, f8_granularity *out);
/* Returns the text: a constant, or `buf` filled (48 bytes hold blocks of any size). */
const char *f8_granularity_print(f8_granularity g, char *buf, size_t size);

bool f8_granularity_equal(f8_granularity a, f8_granularity b);
/* That of the transposed matrix: rows and columns exchanged. */
f8_granularity f8_granularity_transposed(f8_granularity g);
/* Whether scales have blocks along an axis: neither one for each index of it, nor one for all. */
bool f8_granularity_has_blocks(f8_granularity g);

/* The type that holds one number for each block of a tensor of type `t`. One scale for the tensor:
 * []. rows == 1: the leading axes of t, then the blocks of a row. Otherwise [blocks of rows, blocks
 * of columns]. */
f8_type f8_granularity_type(f8_granularity g, const f8_type *t, f8_dtype dtype);

/* The rows and columns of that grid of numbers. */
int64_t f8_granularity_rows(f8_granularity g, const f8_type *t);
int64_t f8_granularity_columns(f8_granularity g, const f8_type *t);

/* How many blocks an axis of n elements has; `size` is g.rows or g.cols. */
static inline int64_t f8_granularity_blocks(int64_t size, int64_t n)
{
    return size ? (n + size - 1) / size : 1;
}

/* Whether reduce_amax and kernels can do blocks of so many columns: a power of two, 16 to 256. */
static inline bool f8_column_block(int64_t cols)
{
    return cols >= 16 && cols <= 256 && !(cols & (cols - 1));
}

/* The row or column of the grid that index `i` of an axis belongs to. */
static inline int64_t f8_granularity_block(int64_t size, int64_t i)
{
    return size ? i / size : 0;
}

#endif
