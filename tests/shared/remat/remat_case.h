/* Trains a model under budgets of memory next to the same model without one. After each micro-step
 * and update it compares every loss, gradient, scale, amax, history, parameter and moment, byte by
 * byte.
 *
 * Failures to compile or to run fail the running test; differences are returned. */
#ifndef F8_TEST_REMAT_CASE_H
#define F8_TEST_REMAT_CASE_H

#include "tests/shared/passes/compile.h"

typedef struct remat_model {
    const char *file, *dims; /* as in f8_compile_setup */
    const char *recipe;
    const char *keep; /* further results of micro_step, compared too; or NULL */
    f8_cuda *cuda;    /* NULL: the CPU */
    const f8_target *target;
} remat_model;

/* How one of them is compiled. */
typedef struct remat_way {
    const char *name; /* in messages */
    double share;     /* of activation bytes, or the least possible where that is more; 0: all */
    bool least;       /* the fewest bytes in all that the message names; it follows, then */
    const char *checkpoint, *recompute;
    int threads; /* 0: 1 */
    bool no_fuse;
    bool follows; /* compiles no update: takes over what the plain one's left */
    /* As in f8_options: to break it. */
    f8_status (*after)(void *user, f8_unit *u, const char *pass);
} remat_way;

enum { REMAT_WAYS = 16 };

typedef struct remat_case {
    remat_model model;
    f8_compiled plain, other[REMAT_WAYS];
    remat_way way[REMAT_WAYS];
    int n;
    int steps, micro_steps; /* run so far */
    float loss;             /* of the last micro-step; one that is not finite fails the test */
    char difference[256];   /* the first, or "" */
} remat_case;

void remat_open(remat_case *c, const remat_model *m);
/* The index of what it compiled; -1 for a share that is less than the least where another has that
 * already. */
int remat_add(remat_case *c, const remat_way *way);
/* Micro-steps, and the update that ends a step, of all. False: something differs, and c->difference
 * says what and where. Inputs are made from the numbers of steps; the sizes of those in f32 change
 * from step to step, and scales with them. */
bool remat_micro_steps(remat_case *c, int n);
bool remat_update(remat_case *c);
/* What can't differ: something was recomputed, the arena is within the budget, the most ever
 * allocated is what was planned, and FP8 GEMMs ran as often as planned, clones included. */
void remat_check(remat_case *c);
void remat_close(remat_case *c);

/* Bytes of a variable of the plain one (-1) or another, as of now; the caller frees. NULL if there
 * is none. */
void *remat_variable(remat_case *c, int which, const char *name, f8_type *type);

/* Nodes of micro_step that are recomputed, of `op`; the most of them with one name; and how
 * many GEMMs, one from another's result, are recomputed in a row. */
int remat_count_recomputed(const f8_compiled *p, f8_op op);
int remat_most_again(const f8_compiled *p, f8_op op);
int remat_depth(const f8_compiled *p);

#endif
