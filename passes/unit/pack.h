/* Packing lifetimes into one arena. */
#ifndef F8_PACK_H
#define F8_PACK_H

#include "ir/base/status.h"

#include <stdbool.h>

/* `bytes` (a multiple of the alignment) from position start to end, both inclusive. */
typedef struct f8_lifetime {
    int64_t bytes;
    uint32_t start, end;
    uint32_t id;    /* the caller's */
    int64_t offset; /* result */
} f8_lifetime;

typedef struct f8_packing {
    int64_t bytes;       /* of the arena */
    int64_t lower_bound; /* the most bytes alive at one position */
    int64_t steps;       /* blocks and tiles of positions that were looked at */
} f8_packing;

/* Give each block an offset such that blocks alive at the same position of [0, positions) never
 * overlap. False: out of memory. Deterministic; the blocks' order changes. */
bool f8_pack(f8_lifetime *block, uint32_t n, uint32_t positions, f8_arena *scratch,
             f8_packing *out);

#endif
