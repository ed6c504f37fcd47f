/* What to keep across one moment and what to compute again after it, at a price per byte, as a
 * minimum cut. For the planner alone (remat_plan.h). */
#ifndef F8_REMAT_CUT_H
#define F8_REMAT_CUT_H

#include "passes/remat/timeline.h"

typedef struct f8_remat_cut {
    f8_remat_timeline *t;
    uint32_t moment; /* a step: values made before it are to be had by the steps after it that read
                        them */
    bool *recompute; /* by value: computed again */
    double bytes,
        seconds; /* kept and read by nothing at the moment itself; of all that is computed again */

    uint32_t *node_at, *edge_to, *edge_back;
    int64_t *room; /* by edge: what may still flow */
    uint32_t *level, *next, *queue, *path;
    uint32_t n_nodes;
    double unit; /* seconds of 1 in `room` */
} f8_remat_cut;

/* False: no memory. */
bool f8_remat_cut_make(f8_remat_timeline *t, uint32_t moment, f8_remat_cut *cut);
/* The cheapest choice at `price` seconds a byte. */
void f8_remat_cut_solve(f8_remat_cut *cut, double price);
/* Put it into the timeline, which has the steps alone: as late as possible, kept from then on. */
void f8_remat_cut_apply(const f8_remat_cut *cut);

#endif
