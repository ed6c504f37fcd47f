/* The planner's local search over a timeline (timeline.h). */
#ifndef F8_REMAT_SEARCH_H
#define F8_REMAT_SEARCH_H

#include "passes/remat/timeline.h"

/* Recompute values until every action is within the budget or nothing helps. */
void f8_remat_repair(f8_remat_timeline *t);
/* Take back what is recomputed without need, the most expensive first. */
void f8_remat_trim(f8_remat_timeline *t);

/* The best actions so far. A plan within the budget is better than one that is not; then the faster
 * one, or the one with less excess, is better. */
typedef struct f8_remat_best {
    f8_remat_action *action;
    uint32_t n;
    size_t room;
    double seconds, excess;
} f8_remat_best;

/* Keep the timeline's actions if they are no worse. */
bool f8_remat_keep(f8_remat_timeline *t, f8_remat_best *best);
/* Improve `best` until `work` is done. */
void f8_remat_improve(f8_remat_timeline *t, f8_remat_best *best, uint64_t work);

#endif
