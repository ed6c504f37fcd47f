/* Bytes as what is new in them beside others that are there already.
 *
 *     size                bytes of the whole, a varint
 *     length * 2, bytes         ... so many bytes that are new
 *     length * 2 + 1, offset    ... so many bytes of the base, from there on
 *
 * Numbers are LEB128. The same input gives the same bytes. */
#ifndef F8_DELTA_H
#define F8_DELTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/base/status.h"

/* Encode n bytes beside the base into the arena. *size: how many; n or more where nothing is
 * gained, and *out is then NULL. F8_ERR_MEMORY. */
f8_status f8_delta_make(const uint8_t *base, size_t n_base, const uint8_t *bytes, size_t n,
                        f8_arena *arena, uint8_t **out, size_t *size, f8_diag *diag);

/* Bytes of the whole; false: the delta is none, or says more than `most`. */
bool f8_delta_size(const uint8_t *delta, size_t n, size_t most, size_t *size);
/* The whole, of f8_delta_size bytes, to `out`. false: the delta is damaged; out then holds
 * anything. Reads nothing beyond what it is given. */
bool f8_delta_apply(const uint8_t *base, size_t n_base, const uint8_t *delta, size_t n,
                    uint8_t *out, size_t size);

#endif
