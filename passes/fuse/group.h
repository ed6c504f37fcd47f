/* The pass `group`: fusion of nodes into groups. */
#ifndef F8_GROUP_H
#define F8_GROUP_H

#include "passes/unit/pass.h"

f8_status f8_pass_group(f8_unit *u); /* fusion: func->lowered (ir/lowered.h) */
/* One function, as the pass does it. May be called again for the same function. share_kernels:
 * GEMMs may wait so that what they read is recomputed in the kernel of a sibling (sibling.c). */
f8_status f8_group_function(f8_unit *u, f8_func *f, bool share_kernels);

/* The bytes that group `i` moves: what each of its phases reads and writes, a value once per phase;
 * and the bytes of its distinct inputs and outputs, the least that any kernel computing the same
 * could move. */
typedef struct f8_traffic {
    int64_t read, written, distinct;
} f8_traffic;
f8_traffic f8_group_traffic(const f8_func *f, uint32_t i);

#endif
