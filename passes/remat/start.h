/* Where the planner's search starts from. For the planner alone (remat_plan.h). */
#ifndef F8_REMAT_START_H
#define F8_REMAT_START_H

#include "passes/remat/search.h"

/* The step with the most in memory when nothing is computed again; the timeline has the steps alone
 * then. */
uint32_t f8_remat_moment(f8_remat_timeline *t);
/* Repair, trim and keep; at most `work`. */
void f8_remat_finish(f8_remat_timeline *t, uint64_t work, f8_remat_best *best);

/* Minimum cuts at prices around the one that meets the budget. At most `work` for each. */
void f8_remat_from_prices(f8_remat_timeline *t, uint64_t work, f8_remat_best *best);
/* Checkpoints between segments, wherever little crosses, and between segments of segments, as deep
 * as the budget wants: of the sizes that take the least memory. At most `work` for each depth. */
void f8_remat_from_segments(f8_remat_timeline *t, uint64_t work, f8_remat_best *best);

#endif
