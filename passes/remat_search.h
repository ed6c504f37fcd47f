/* The planner's local search over a timeline (remat_timeline.h). */
#ifndef F8_REMAT_SEARCH_H
#define F8_REMAT_SEARCH_H

#include "passes/remat_timeline.h"

/* Compute values again until all is within the budget or nothing helps. */
void f8_remat_repair(f8_remat_timeline *t);
/* Take back what is computed again to no end, dearest first. */
void f8_remat_trim(f8_remat_timeline *t);
/* Improve `best` until `work` is done. */
void f8_remat_improve(f8_remat_timeline *t, uint64_t work);

#endif
