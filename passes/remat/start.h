/* The plans from which the planner's search starts. For the planner alone (plan.h). */
#ifndef F8_REMAT_START_H
#define F8_REMAT_START_H

#include "passes/remat/search.h"

/* The step with the most bytes in memory when nothing is recomputed. The timeline must have the
 * steps alone. */
uint32_t f8_remat_moment(f8_remat_timeline *t);
/* Repair, trim and keep; at most `work`. */
void f8_remat_finish(f8_remat_timeline *t, uint64_t work, f8_remat_best *best);

/* Limits of work. A start takes at most `start`. Up to `little` work of the timeline all starts are
 * tried; from there on those that rarely find a better plan are left out. None is begun once a plan
 * fits and the timeline's work is `enough`. */
typedef struct f8_remat_limits {
    uint64_t start, little, enough;
} f8_remat_limits;

/* Minimum cuts at prices around the one that meets the budget. True: the best plan is so near the
 * bound that the cuts give that no search is worth its time. */
bool f8_remat_from_prices(f8_remat_timeline *t, const f8_remat_limits *limits, f8_remat_best *best);
/* Checkpoints between segments, which end where little crosses, and between segments of segments,
 * as deep as the budget needs, with the sizes that take the least memory. At most `work` for each
 * depth. */
void f8_remat_from_segments(f8_remat_timeline *t, uint64_t work, f8_remat_best *best);

#endif
