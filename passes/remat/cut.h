/* What to keep across one moment and what to recompute after it, at a price per byte, as a minimum
 * cut. For the planner alone (plan.h). */
#ifndef F8_REMAT_CUT_H
#define F8_REMAT_CUT_H

#include "passes/remat/timeline.h"

typedef struct f8_remat_cut {
    f8_remat_timeline *t;
    uint32_t moment; /* a step: the cut decides about values made before it that later steps read */
    bool *recompute; /* by value: recomputed */
    double bytes,
        /* bytes kept that the moment itself does not read; seconds of all recomputed values */
        seconds;

    uint32_t *node_at, *edge_to, *edge_back;
    int64_t *room; /* by edge: the capacity that is left */
    uint32_t *level, *next, *queue, *path;
    uint32_t n_nodes;
    double unit; /* seconds that 1 in room[] stands for */
} f8_remat_cut;

/* False: out of memory. */
bool f8_remat_cut_make(f8_remat_timeline *t, uint32_t moment, f8_remat_cut *cut);
/* Find the cheapest set of values to recompute, at `price` seconds a byte kept. */
void f8_remat_cut_solve(f8_remat_cut *cut, double price);
/* Insert the cut's values into the timeline, which has the steps alone: each as late as possible,
 * and kept from then on. */
void f8_remat_cut_apply(const f8_remat_cut *cut);

#endif
