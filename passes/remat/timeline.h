/* A timeline of actions and its memory, for the planner alone (remat_plan.h): where every value is
 * touched and how many bytes lie in memory at every action, kept up to date while values to compute
 * again are put in and taken out.
 *
 * Every order of actions that keeps the steps in order and computes a value again only after it and
 * what that reads were made is a plan: lifetimes follow from it. So single insertions and removals
 * are always valid, and a search may try any. */
#ifndef F8_REMAT_TIMELINE_H
#define F8_REMAT_TIMELINE_H

#include "passes/remat/plan.h"

/* Actions have ids: step i is i, `n_steps` is the end, which reads the results, and greater ones
 * compute again. */
typedef struct f8_remat_timeline {
    const f8_remat_problem *p;
    f8_arena *arena;
    int64_t budget;
    bool failed; /* no memory: what follows means nothing */

    /* Of the problem, without repetitions: what an action reads (by step, then by value), what a
     * step makes. */
    uint32_t *need_at, *need, *make_at, *make;
    f8_remat_action *steps; /* the steps alone */
    uint32_t *first;        /* by value: the step that makes it */
    uint32_t *ready; /* by value: the first step before which it can be computed again; n_steps + 1:
                        never */

    uint32_t n;      /* actions, with the end */
    uint32_t *order; /* ids */
    int64_t *live;   /* bytes, by position */
    size_t order_room, live_room;
    uint32_t *position; /* by id */
    uint32_t *what;     /* by id: the value computed again */
    size_t position_room, what_room;
    uint32_t n_ids, *free_id, n_free;
    size_t free_room;

    struct f8_remat_accesses {
        uint32_t *id; /* actions that make or read it, in order */
        uint32_t n;
        size_t room;
    } * access; /* by value */

    double seconds;
    uint64_t work, limit; /* elementary operations, and when to come to an end: no clock, so that
                             plans repeat */
    uint64_t random;
    struct f8_remat_scratch *scratch; /* of the search */
} f8_remat_timeline;

/* The steps alone. F8_ERR_MEMORY, F8_ERR_INTERNAL for a problem whose steps read what was not made.
 */
f8_status f8_remat_timeline_make(const f8_remat_problem *p, int64_t budget, f8_arena *arena,
                                 f8_diag *diag, f8_remat_timeline *t);

/* Which of the touches of v is the first at `position` or after. */
uint32_t f8_remat_access_from(const f8_remat_timeline *t, uint32_t v, uint32_t position);
/* Compute `value` again at `position`; what is there moves up. Gives the id. */
uint32_t f8_remat_insert(f8_remat_timeline *t, uint32_t value, uint32_t position);
void f8_remat_remove(f8_remat_timeline *t, uint32_t id);
/* Back to the steps alone, then these actions. */
void f8_remat_load(f8_remat_timeline *t, const f8_remat_action *action, uint32_t n_actions);

static inline bool f8_remat_is_recompute(const f8_remat_timeline *t, uint32_t id)
{
    return id > t->p->n_steps;
}

static inline bool f8_remat_stop(const f8_remat_timeline *t)
{
    return t->failed || t->work >= t->limit;
}

/* What action `id` reads. */
static inline const uint32_t *f8_remat_needs(const f8_remat_timeline *t, uint32_t id, uint32_t *n)
{
    const uint32_t row = f8_remat_is_recompute(t, id) ? t->p->n_steps + 1 + t->what[id] : id;
    *n = t->need_at[row + 1] - t->need_at[row];
    return t->need + t->need_at[row];
}

static inline bool f8_remat_makes(const f8_remat_timeline *t, uint32_t id, uint32_t value)
{
    return f8_remat_is_recompute(t, id) ? t->what[id] == value : t->first[value] == id;
}

/* Bytes over the budget, the most of each step and what is computed again before it, summed over
 * steps: what a search brings to 0. Summed over actions it would grow by what is computed again
 * where all is over it still. */
double f8_remat_excess(f8_remat_timeline *t);

#endif
