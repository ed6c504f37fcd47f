/* Problems for the planner of recomputation (passes/remat/plan.h), and the exact optimum of small
 * ones. */
#ifndef TESTS_REMAT_GRAPHS_H
#define TESTS_REMAT_GRAPHS_H

#include "passes/remat/plan.h"

/* A problem being built, in an arena. */
typedef struct remat_graph {
    f8_arena *arena;
    f8_remat_problem p; /* of the two below */
    f8_remat_value *value;
    f8_remat_step *step;
    size_t value_room, step_room;
    uint64_t random;
    uint32_t *border, *layer_end,
        n_layers; /* of transformers: the values between layers, the first step after each */
} remat_graph;

uint32_t remat_draw(remat_graph *g, uint32_t n); /* 0..n-1 */
uint32_t remat_value(remat_graph *g, int64_t bytes, double seconds);
/* What is written for the first time is had again from what is read, until remat_from says
 * something else. */
void remat_step(remat_graph *g, const uint32_t *read, uint32_t n_read, const uint32_t *write,
                uint32_t n_write, int64_t bytes);
void remat_from(remat_graph *g, uint32_t value, const uint32_t *from, uint32_t n_from);

/* At most 20 values: forward and backward (odd seeds), or any graph without cycles (even ones):
 * values that can't be recomputed, written in parts, results, several readers, workspace. */
void remat_random(remat_graph *g, f8_arena *arena, uint64_t seed);
/* A forward and a backward of equal steps: 1 byte and 1 second each. */
void remat_chain(remat_graph *g, f8_arena *arena, uint32_t n);
/* The training step of a transformer in FP8, as many bytes and seconds as its shapes say, about. */
void remat_transformer(remat_graph *g, f8_arena *arena, uint32_t n_layers);
/* The best plan that keeps what lies between layers alone, for the first `n` layers, and computes
 * each again as a whole when its backward begins, with the least n that is within the budget.
 * False: none is. */
bool remat_by_layers(const remat_graph *g, int64_t budget, f8_arena *arena, f8_remat_plan *out);

/* The optimum over all plans that keep the order of steps: Dijkstra over (next step, set of values
 * in memory). Fills actions and seconds. False: no plan is within the budget. For at most 32
 * values. */
bool remat_optimum(const f8_remat_problem *p, int64_t budget, f8_arena *arena, f8_remat_plan *out);

#endif
