/* Which rows of a batch a process trains on, where several train together. */
#ifndef F8_SHARE_H
#define F8_SHARE_H

#include <stdint.h>

/* Of the `rows` rows that a batch of all ranks has, this rank's begin at `first`. */
typedef struct f8_share {
    uint64_t rows, first;
} f8_share;

/* The place of this rank's row `row` of batch `batch` in the sequence of all rows of all batches.
 */
static inline uint64_t f8_share_place(const f8_share *s, uint64_t batch, int64_t row)
{
    return batch * s->rows + s->first + (uint64_t)row;
}

/* How many whole batches of all ranks `n` rows are, at least 1. */
static inline uint64_t f8_share_batches(const f8_share *s, uint64_t n)
{
    return n < 2 * s->rows ? 1 : n / s->rows;
}

#endif
