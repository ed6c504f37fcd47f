/* Fitting a function into budgets: the planner's questions and answers, carried out until the real
 * arena fits. For the pass alone (remat.h). One function may be fitted into one budget after
 * another; what they have in common is found once, and each starts where the one before ended. */
#ifndef F8_REMAT_FIT_H
#define F8_REMAT_FIT_H

#include "passes/remat/remat.h"
#include "passes/remat/space.h"

/* A plan, carried out. */
typedef struct f8_fit_outcome {
    f8_remat_plan plan;
    /* whether clones may join kernels that read the same values (fuse/sibling.c) */
    bool share_kernels;
    /* bytes; what lies outside the arena depends a little on the plan, so `allowed` does too. arena
     * is INT64_MAX while there is no outcome */
    int64_t arena, allowed;
    double seconds; /* of all groups */
    f8_func func;    /* what became of it, to go back to */
    f8_arena *space; /* where that lies */
} f8_fit_outcome;

/* The plan that keeps some waists; its outcome by share_kernels. */
typedef struct f8_fit_waist {
    f8_remat_plan plan;
    uint32_t n; /* waists there are */
    f8_fit_outcome outcome[2];
} f8_fit_waist;

/* The waists' outcomes, the best, the lowest and one that is being made. */
enum { F8_FIT_WAISTS = 3, F8_FIT_SPACES = 2 * F8_FIT_WAISTS + 3 };

typedef struct f8_fit {
    f8_remat s;
    f8_remat_problem shared; /* the problem where clones may share kernels (sibling.c) */
    /* Of the budgets so far. By share_kernels: the last plan, and the bytes that the planner missed
     * in it. */
    f8_remat_plan from[2];
    int64_t missed[2];
    int64_t floor; /* the planner has no plan for goals below; 0: not known */
    f8_fit_waist waist[F8_FIT_WAISTS];
    int rounds; /* plans carried out */

    f8_budget budget;
    int64_t allowed;
    f8_remat_spaces *spaces;
    f8_arena *space[F8_FIT_SPACES];
    f8_fit_outcome best, lowest; /* the fastest that fits; the one with the lowest arena */
} f8_fit;

/* Order and place `f`, and fill what all budgets have in common. `scratch` outlives *x. */
f8_status f8_fit_begin(f8_fit *x, f8_unit *u, f8_func *f, f8_arena *scratch);
/* Fill x->best. Where its arena is INT64_MAX nothing fits, and x->lowest is the least. */
f8_status f8_fit_find(f8_fit *x, const f8_budget *budget);
/* The bytes that the arena may take, given the rest of the program as it is. */
f8_status f8_fit_allowed(const f8_fit *x, int64_t *out);
bool f8_fit_fits(const f8_fit_outcome *o);
/* Give func the groups, order and places of a plan. */
f8_status f8_fit_carry_out(f8_fit *x, const f8_remat_plan *plan, bool share_kernels,
                           f8_fit_outcome *out);
/* Give func what a plan made of it before. */
void f8_fit_keep(f8_fit *x, const f8_fit_outcome *o);

#endif
