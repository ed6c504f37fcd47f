/* The plans from which the planner's search starts. For the planner alone (plan.h). */
#ifndef F8_REMAT_START_H
#define F8_REMAT_START_H

#include "passes/remat/search.h"

/* The step with the most bytes in memory when nothing is recomputed. The timeline must have the
 * steps alone. */
uint32_t f8_remat_moment(f8_remat_timeline *t);
/* Repair, trim and keep; at most `work`. */
void f8_remat_finish(f8_remat_timeline *t, uint64_t work, f8_remat_best *best);

/* Minimum cuts at prices around the one that meets the budget. At most `work` for each, and none
 * but the first is begun once a plan fits and the timeline's work is `enough`. True: the best plan
 * is so near the bound that the cuts give that no search is worth its time. */
bool f8_remat_from_prices(f8_remat_timeline *t, uint64_t work, uint64_t enough,
                          f8_remat_best *best);
/* Checkpoints between segments, which end where little crosses, and between segments of segments,
 * as deep as the budget needs, with the sizes that take the least memory. At most `work` for each
 * depth. */
void f8_remat_from_segments(f8_remat_timeline *t, uint64_t work, f8_remat_best *best);

#endif
