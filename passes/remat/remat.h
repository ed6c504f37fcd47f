/* The pass `remat`, and what its files share: a placed function as a problem for the planner, and a
 * plan carried out.
 *
 * A value is an allocation that some group writes (memory/storage.h). Its cone is what recomputing
 * it takes: its node with the nodes inside the same kernel, back to values that lie in memory. */
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
    f8_graph *g; /* the function's graph before any plan; func->graph is replaced by plans */
    f8_lowered *lowered; /* likewise */
    f8_port *in, *out;   /* likewise */
    f8_arena *scratch;
    f8_storage storage;
    f8_remat_problem problem;
    /* by base: the value of its allocation; F8_NO_VALUE where no group writes it */
    uint32_t *value;
    f8_ref *root;     /* by value */
    f8_cone *cone;    /* by value */
    uint32_t *level;  /* by ref: GEMMs and other whole groups on the longest path to it */
    uint32_t top;     /* the highest level of the forward; gradients are above */
    bool *backward;   /* by step: it makes nothing that the loss is computed from */
    bool *read_backward; /* by value: a backward step reads it */
    bool *activation; /* by value: an activation, an FP8 copy or a weight copy (memory/report.h) */
} f8_remat;

enum { F8_NO_VALUE = UINT32_MAX };

/* problem.c: fill all of *s from func, which is grouped, ordered and placed. `scratch` outlives *s.
 */
f8_status f8_remat_problem_make(f8_remat *s, f8_unit *u, f8_func *f, f8_arena *scratch);
/* Whether operand `o` of a node in phase `p` of `group` is read from memory. */
bool f8_remat_reads_memory(const f8_group *group, const f8_phase *p, f8_ref o);

/* sibling.c: the problem with the cost of values where the backward may compute them in kernels
 * that it runs anyway. */
f8_status f8_remat_siblings(f8_remat *s, f8_remat_problem *out);

/* names.c: the plan that the options' patterns ask for. F8_ERR_INPUT where a pattern matches
 * nothing. */
f8_status f8_remat_plan_by_name(f8_remat *s, f8_remat_plan *out);
/* The plan that keeps every `every`-th waist and no other value. A waist is a value that is all
 * that the forward reads after some step, such as a residual stream between layers. *waists: how
 * many there are. */
f8_status f8_remat_plan_by_waists(f8_remat *s, uint32_t every, f8_remat_plan *out,
                                  uint32_t *waists);

/* rewrite.c: give func the graph of the plan, without groups. It lies in the unit's arena. */
f8_status f8_remat_rewrite(f8_remat *s, const f8_remat_plan *plan);
/* Put the original graph and its lowered function back. */
void f8_remat_restore(f8_remat *s);

f8_status f8_pass_remat(f8_unit *u); /* fits micro_step into options.memory by recomputing values */

/* What budgets cost that are asked for one after another. The unit went through all passes without
 * a budget, has a micro_step, and outlives the budgets; so does `scratch`, where they live. */
typedef struct f8_remat_budgets f8_remat_budgets;
f8_status f8_remat_budgets_make(f8_unit *u, f8_arena *scratch, f8_remat_budgets **out);
/* The plan for a budget, which the unit has then; the bytes of the program in all. A budget near
 * the one before takes the least time. F8_ERR_UNSUPPORTED where it can't be met, as the pass. */
f8_status f8_remat_budget(f8_remat_budgets *b, const f8_budget *budget, f8_remat_summary *out,
                          int64_t *planned);

#endif
