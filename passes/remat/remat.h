/* The pass `remat`, and what its files share: a placed function as a problem for the planner, and a
 * plan carried out.
 *
 * A value is a unit of storage that some group writes (storage.h). Its cone is what computing it
 * again takes: its node and those inside the same kernel, back to values that lie in memory. */
#ifndef F8_REMAT_H
#define F8_REMAT_H

#include "passes/unit/pass.h"
#include "passes/remat/plan.h"
#include "passes/memory/storage.h"

typedef struct f8_cone {
    f8_ref *node; /* ascending */
    uint32_t n;
} f8_cone;

typedef struct f8_remat {
    f8_unit *unit;
    f8_func *func;
    f8_graph *g; /* the function's as it was: func->graph is replaced by plans carried out */
    f8_lowered *lowered; /* likewise */
    f8_port *in, *out;   /* likewise */
    f8_arena *scratch;
    f8_storage storage;
    f8_remat_problem problem;
    uint32_t *value;  /* by base: its unit's value; F8_NO_VALUE for what no group writes */
    f8_ref *root;     /* by value */
    f8_cone *cone;    /* by value */
    uint32_t *level;  /* by ref: GEMMs and other whole groups on the longest path to it */
    uint32_t top;     /* the highest level of those: gradients are above */
    bool *backward;   /* by step: it makes nothing that the loss is computed from */
    bool *read_backward; /* by value: a late step reads it */
    bool *activation; /* by value: an activation, an FP8 copy or a weight copy (memory_report.h) */
} f8_remat;

enum { F8_NO_VALUE = UINT32_MAX };

/* remat_problem.c: fill all of *s from func, grouped, ordered and placed. `scratch` outlives it. */
f8_status f8_remat_problem_make(f8_remat *s, f8_unit *u, f8_func *f, f8_arena *scratch);
/* Whether operand `o` of a node in phase `p` of `group` is read from memory. */
bool f8_remat_reads_memory(const f8_group *group, const f8_phase *p, f8_ref o);

/* remat_sibling.c: the problem with what values cost where the backward may compute them in kernels
 * it runs anyway. */
f8_status f8_remat_siblings(f8_remat *s, f8_remat_problem *out);

/* remat_names.c: the plan that the options' patterns ask for. F8_ERR_INPUT where one matches
 * nothing. */
f8_status f8_remat_plan_by_name(f8_remat *s, f8_remat_plan *out);
/* The plan that keeps each `every`th waist alone: a value that is all that the forward goes on with
 * at some step, as a residual stream between layers. *waists: how many there are. */
f8_status f8_remat_plan_by_waists(f8_remat *s, uint32_t every, f8_remat_plan *out,
                                  uint32_t *waists);

/* remat_rewrite.c: give func the graph of the plan: no groups yet. */
f8_status f8_remat_rewrite(f8_remat *s, const f8_remat_plan *plan);
/* Put the original graph and its program back. */
void f8_remat_restore(f8_remat *s);

f8_status f8_pass_remat(f8_unit *u); /* micro_step within options.memory: values computed again */

#endif
