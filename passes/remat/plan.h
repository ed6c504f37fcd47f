/* What to keep and what to compute again, as a problem of its own: steps in order, values with
 * their bytes, and what it costs to have a value once more. Knows nothing of graphs; remat.c makes
 * the problem and carries the plan out.
 *
 * A plan is a list of actions: every step once, in the given order, and between them values
 * computed again. It alone says where a value lies when: an instance of a value is in memory from
 * the action that makes it to the last one that reads it before the value is made again. Whatever
 * is read must have been made and is the newest instance. */
#ifndef F8_REMAT_PLAN_H
#define F8_REMAT_PLAN_H

#include "ir/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct f8_remat_value {
    int64_t bytes;        /* in memory */
    double seconds;       /* to compute it again; negative: it can't be */
    const uint32_t *from; /* what computing it again reads; what always lies in memory (inputs,
                             parameters) is no value */
    uint32_t n_from;
    bool result; /* in memory to the end */
} f8_remat_value;

/* A value may be written by several steps (in parts, or added to): the later ones need what the
 * earlier ones left, and such a value can't be computed again. */
typedef struct f8_remat_step {
    const uint32_t *read, *write;
    uint32_t n_read, n_write;
    int64_t bytes; /* beside its values, while it runs */
} f8_remat_step;

typedef struct f8_remat_problem {
    const f8_remat_value *value;
    const f8_remat_step *step;
    uint32_t n_values, n_steps;
} f8_remat_problem;

typedef struct f8_remat_action {
    bool recompute; /* value `index` is computed again; else step `index` runs */
    uint32_t index;
} f8_remat_action;

typedef struct f8_remat_plan {
    f8_remat_action *action;
    uint32_t n_actions;
    double seconds;   /* of all that is computed again */
    int64_t peak;     /* bytes */
    uint32_t peak_at; /* the action that has it */
} f8_remat_plan;

/* The fastest plan found whose peak is within `budget` bytes, or, where none was found, the one
 * with the lowest peak (the caller compares). Deterministic. Lives in `arena`. F8_ERR_MEMORY. */
f8_status f8_remat_plan_make(const f8_remat_problem *p, int64_t budget, f8_arena *arena,
                             f8_diag *diag, f8_remat_plan *out);

/* Fill seconds, peak and peak_at from the actions. False where a value is read that was not made, a
 * step is missing or out of order, or a value is made again that can't be; or out of memory. */
bool f8_remat_plan_measure(const f8_remat_problem *p, f8_arena *scratch, f8_remat_plan *plan);

#endif
