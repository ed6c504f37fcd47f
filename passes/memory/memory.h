/* The passes `schedule` (order) and `memory` (places) over func->lowered, and both for one
 * function. */
#ifndef F8_MEMORY_H
#define F8_MEMORY_H

#include "passes/unit/pass.h"

f8_status f8_pass_schedule(f8_unit *u); /* order of groups */
f8_status f8_pass_memory(f8_unit *u);   /* places: offsets, views, in-place state */

/* For one function, as its pass does it. May be called again for the same function. */
f8_status f8_schedule_function(f8_unit *u, f8_func *f);
f8_status f8_place_function(f8_unit *u, f8_func *f);
/* The order with up to this many large collectives under way at once behind a gate (overlap.c);
 * f8_schedule_function has one. */
f8_status f8_schedule_buckets(f8_unit *u, f8_func *f, uint32_t buckets);

#endif
