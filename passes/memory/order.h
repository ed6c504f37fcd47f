/* Orders of a function's groups, each with the memory that it needs. For schedule.c alone. */
#ifndef F8_ORDER_H
#define F8_ORDER_H

#include "passes/memory/storage.h"

typedef struct f8_group_edges {
    uint32_t *to; /* twice the group, + 1 if that group reads what this one makes */
    uint32_t n;
    size_t room;
} f8_group_edges;

/* The graph of groups. */
typedef struct f8_scheduler {
    f8_storage storage;
    f8_lowered *lowered;
    f8_arena scratch;
    f8_diag *diag;
    f8_group_edges *next; /* by group */
    uint32_t *n_before;   /* by group: edges into it */
    bool *recompute;      /* by group: it does nothing but recompute what others read */
    bool *inner;          /* by group: all of its results are read by others */
    bool any_recompute;
    uint32_t buckets; /* that may be under way at once behind a gate (overlap.c) */
    uint32_t *stamp, *stack, mark;
} f8_scheduler;

/* The group that makes operand k of group i, or F8_NO_GROUP. */
static inline uint32_t f8_group_maker(const f8_scheduler *s, uint32_t i, uint32_t k)
{
    const f8_storage *t = &s->storage;
    const uint32_t def = t->base[t->view[s->lowered->group[i].in[k]].base].def;
    return def == i ? F8_NO_GROUP : def;
}

/* Orders are made one after another: f8_order_begin once, for the allocations that `storage` has
 * then; turn[group] is the group's place in the first order. */
typedef struct f8_order_maker f8_order_maker;
f8_status f8_order_begin(f8_scheduler *s, const uint32_t *turn, f8_order_maker **out);

/* Fill `order`. A group that is `lazy` runs only when another group that needs it has its turn.
 * Turns are given to the lowest group that can have one; under `thrifty` to the one that frees
 * most, if any frees as much as it allocates. *peak: the most bytes in the arena at once; -1 if the
 * groups form a cycle. */
f8_status f8_order_make(f8_order_maker *p, const bool *lazy, bool thrifty, uint32_t *order,
                        int64_t *peak);

#endif
