/* Order and places: the two passes over func->lowered, and what they do of one function. */
#ifndef F8_MEMORY_H
#define F8_MEMORY_H

#include "passes/unit/pass.h"

f8_status f8_pass_schedule(f8_unit *u); /* order of groups */
f8_status f8_pass_memory(f8_unit *u);   /* places: offsets, views, in-place state */

/* Of one function, as its pass does it; it may be done again. */
f8_status f8_schedule_function(f8_unit *u, f8_func *f);
f8_status f8_place_function(f8_unit *u, f8_func *f);

#endif
