/* Packing lifetimes into one arena. */
#ifndef F8_PACK_H
#define F8_PACK_H

#include "ir/base/status.h"

/* `bytes` (a multiple of the alignment) from position start to end, both inclusive. */
typedef struct f8_lifetime {
    int64_t bytes;
    uint32_t start, end;
    uint32_t id;    /* the caller's */
    int64_t offset; /* result */
} f8_lifetime;

/* Give each block an offset such that blocks alive at the same position never overlap. Returns the
 * bytes of the arena, or -1 when out of memory; *lower_bound is the most bytes alive at one
 * position of [0, positions). Deterministic; the blocks' order changes. */
int64_t f8_pack(f8_lifetime *block, uint32_t n, uint32_t positions, f8_arena *scratch,
                int64_t *lower_bound);

#endif
