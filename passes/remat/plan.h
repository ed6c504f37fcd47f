/* Which values to keep and which to recompute, as a problem of its own: steps in order, values with
 * their bytes, and the cost of computing a value once more. The planner knows nothing of graphs;
 * remat.c makes the problem and carries the plan out.
 *
 * A plan is a list of actions: every step once, in the given order, and between them values to
 * recompute. The list alone says when a value is in memory: an instance of a value is in memory
 * from the action that makes it to the last action that reads it before the value is made again.
 * Whatever an action reads must have been made, and the newest instance is read. */
#ifndef F8_REMAT_PLAN_H
#define F8_REMAT_PLAN_H

#include "ir/base/progress.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct f8_remat_value {
    int64_t bytes;        /* in memory */
    double seconds;       /* to recompute it; negative: it can't be recomputed */
    /* what recomputing it reads; inputs and parameters, which always lie in memory, are not listed
     */
    const uint32_t *from;
    uint32_t n_from;
    bool result; /* in memory to the end */
} f8_remat_value;

/* A value may be written by several steps, in parts or by adding to it. The later ones need what
 * the earlier ones left, so such a value can't be recomputed. */
typedef struct f8_remat_step {
    const uint32_t *read, *write;
    uint32_t n_read, n_write;
    int64_t bytes; /* while it runs, in addition to its values */
} f8_remat_step;

typedef struct f8_remat_problem {
    const f8_remat_value *value;
    const f8_remat_step *step;
    uint32_t n_values, n_steps;
    f8_progress_phase *phase; /* asked while a plan is searched for; NULL: nobody listens */
} f8_remat_problem;

typedef struct f8_remat_action {
    bool recompute; /* value `index` is recomputed; else step `index` runs */
    uint32_t index;
} f8_remat_action;

typedef struct f8_remat_plan {
    f8_remat_action *action;
    uint32_t n_actions;
    double seconds;   /* of all recomputed values */
    int64_t peak;     /* bytes */
    uint32_t peak_at; /* the action at which the peak is */
    int64_t bound;    /* no plan's peak is lower: that of one step with what it reads and makes */
    int64_t uncut;    /* for later plans: up to this budget, starts at cuts lead to none */
    uint64_t work;    /* elementary operations that planning took */
} f8_remat_plan;

/* The fastest plan found whose peak is within `budget` bytes or, where none was found, one that
 * exceeds it by little; the caller compares. With budget 0 the plan with the lowest peak. `from`, a
 * plan of the same problem for another budget, may be where the search starts; NULL: there is none.
 * Deterministic. Lives in `arena`. F8_ERR_MEMORY. */
f8_status f8_remat_plan_make(const f8_remat_problem *p, int64_t budget, const f8_remat_plan *from,
                             f8_arena *arena, f8_diag *diag, f8_remat_plan *out);

/* Fill seconds, peak and peak_at from the actions. False where a value is read before it is made, a
 * step is missing or out of order, or a value is recomputed that can't be; also when out of memory.
 */
bool f8_remat_plan_measure(const f8_remat_problem *p, f8_arena *scratch, f8_remat_plan *plan);

#endif
