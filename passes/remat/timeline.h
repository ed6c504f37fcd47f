/* A timeline of actions and its memory, for the planner alone (plan.h): where every value is
 * accessed, and how many bytes are in memory at every action. Both are kept up to date while values
 * to recompute are inserted and removed.
 *
 * A list of actions is a plan if the steps stay in order, and a value is recomputed only after it
 * and what that reads were made. Lifetimes follow from the list. So single insertions and removals
 * are always valid, and a search may try any. */
#ifndef F8_REMAT_TIMELINE_H
#define F8_REMAT_TIMELINE_H

#include "passes/remat/plan.h"

/* Actions have ids: step i has id i, `n_steps` is the end, which reads the results, and greater ids
 * recompute a value. */
typedef struct f8_remat_timeline {
    const f8_remat_problem *p;
    f8_arena *arena;
    int64_t budget;
    /* out of memory, or cancelled, as `asked` says: the other fields mean nothing then */
    bool failed;
    f8_status asked;
    uint64_t asked_at, calls; /* the work then; how often f8_remat_stop was called */
    f8_diag *diag;

    /* Of the problem, without repetitions: what an action reads (rows by step, then by value), and
     * what a step makes. */
    uint32_t *need_at, *need, *make_at, *make;
    f8_remat_action *steps; /* the plan of the steps alone */
    uint32_t *first;        /* by value: the step that makes it */
    /* by value: the first step before which it can be recomputed; n_steps + 1: never */
    uint32_t *ready;

    uint32_t n;      /* actions, with the end */
    uint32_t *order; /* ids */
    int64_t *live;   /* bytes, by position */
    /* by position: a step's bytes over the budget, with those recomputed before it; else 0 */
    int64_t *over;
    size_t order_room, live_room, over_room;
    uint32_t *position; /* by id */
    uint32_t *what;     /* by id: the value that it recomputes */
    size_t position_room, what_room;
    uint32_t n_ids, *free_id, n_free;
    size_t free_room;

    struct f8_remat_accesses {
        uint32_t *id; /* actions that make or read it, in order */
        uint32_t n;
        size_t room;
    } * access; /* by value */

    int64_t excess; /* the sum of `over`: f8_remat_excess */
    struct f8_remat_bend *bend; /* scratch of the effects */

    double seconds;
    /* elementary operations so far, and the limit; no clock is used, so that plans repeat */
    uint64_t work, limit;
    uint64_t random;
    struct f8_remat_scratch *scratch; /* of the search */
} f8_remat_timeline;

/* Make the timeline of the steps alone. F8_ERR_MEMORY; F8_ERR_INTERNAL for a problem whose steps
 * read what was not made. */
f8_status f8_remat_timeline_make(const f8_remat_problem *p, int64_t budget, f8_arena *arena,
                                 f8_diag *diag, f8_remat_timeline *t);

/* The index of the first access of v at `position` or after. */
uint32_t f8_remat_access_from(const f8_remat_timeline *t, uint32_t v, uint32_t position);
/* Recompute `value` at `position`; the actions from there on move up. Gives the id. */
uint32_t f8_remat_insert(f8_remat_timeline *t, uint32_t value, uint32_t position);
void f8_remat_remove(f8_remat_timeline *t, uint32_t id);

/* What an insertion or a removal would do. Looking is several times quicker than doing it and
 * taking it back, which is what `work` counts: plans do not depend on how an effect is found. */
typedef struct f8_remat_effect {
    double excess; /* the excess then */
    uint64_t work; /* of doing it and taking it back */
} f8_remat_effect;
f8_remat_effect f8_remat_effect_of_insert(const f8_remat_timeline *t, uint32_t value,
                                          uint32_t position);
f8_remat_effect f8_remat_effect_of_remove(const f8_remat_timeline *t, uint32_t id);

/* Go back to the steps alone, then load these actions. */
void f8_remat_load(f8_remat_timeline *t, const f8_remat_action *action, uint32_t n_actions);

static inline bool f8_remat_is_recompute(const f8_remat_timeline *t, uint32_t id)
{
    return id > t->p->n_steps;
}

/* Whether the search has to end. Asks whether the call goes on. */
bool f8_remat_stop(f8_remat_timeline *t);

/* What recomputing a value reads. */
static inline const uint32_t *f8_remat_sources(const f8_remat_timeline *t, uint32_t value,
                                               uint32_t *n)
{
    const uint32_t row = t->p->n_steps + 1 + value;
    *n = t->need_at[row + 1] - t->need_at[row];
    return t->need + t->need_at[row];
}

/* What action `id` reads. */
static inline const uint32_t *f8_remat_needs(const f8_remat_timeline *t, uint32_t id, uint32_t *n)
{
    if (f8_remat_is_recompute(t, id))
        return f8_remat_sources(t, t->what[id], n);
    *n = t->need_at[id + 1] - t->need_at[id];
    return t->need + t->need_at[id];
}

static inline bool f8_remat_makes(const f8_remat_timeline *t, uint32_t id, uint32_t value)
{
    return f8_remat_is_recompute(t, id) ? t->what[id] == value : t->first[value] == id;
}

/* Whether access number `i` of v reads the instance that the access before it left. */
static inline bool f8_remat_reads_on(const f8_remat_timeline *t, uint32_t v, uint32_t i)
{
    return i < t->access[v].n && !f8_remat_makes(t, t->access[v].id[i], v);
}

/* Bytes over the budget: for each step the most among it and the values recomputed before it,
 * summed over steps. A search brings this to 0. A sum over all actions would grow with every
 * recomputed value while memory is still over the budget. */
static inline double f8_remat_excess(const f8_remat_timeline *t)
{
    return (double)t->excess;
}

#endif
