/* Deltas: bytes stored as their difference from other bytes, the base, which the reader has
 * already.
 *
 *     size                      the number of bytes of the whole
 *     length * 2, bytes         ... so many new bytes
 *     length * 2 + 1, offset    ... so many bytes copied from the base, from that offset on
 *
 * Numbers are varints (LEB128). The same input gives the same bytes. */
#ifndef F8_DELTA_H
#define F8_DELTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/base/status.h"

/* Encode n bytes as a delta from the base, into the arena; *size is its length. Where a delta would
 * not be shorter than the bytes, *out is NULL and *size is n. Fails with F8_ERR_MEMORY alone. */
f8_status f8_delta_make(const uint8_t *base, size_t n_base, const uint8_t *bytes, size_t n,
                        f8_arena *arena, uint8_t **out, size_t *size, f8_diag *diag);

/* The size of the whole. False if the delta is malformed or the size is more than `most`. */
bool f8_delta_size(const uint8_t *delta, size_t n, size_t most, size_t *size);
/* Write the whole, of f8_delta_size bytes, to `out`. False if the delta is damaged; `out` then
 * holds garbage. It never reads beyond the bytes it is given. */
bool f8_delta_apply(const uint8_t *base, size_t n_base, const uint8_t *delta, size_t n,
                    uint8_t *out, size_t size);

#endif
