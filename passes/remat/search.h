/* The planner's local search over a timeline (remat_timeline.h). */
#ifndef F8_REMAT_SEARCH_H
#define F8_REMAT_SEARCH_H

#include "passes/remat/timeline.h"

/* Compute values again until all is within the budget or nothing helps. */
void f8_remat_repair(f8_remat_timeline *t);
/* Take back what is computed again to no end, dearest first. */
void f8_remat_trim(f8_remat_timeline *t);

/* The best actions so far: those within the budget, then the fastest; else those with the least
 * excess. */
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
