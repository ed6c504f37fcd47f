/* What the files of differentiation share: entry.c (the pass: entry points), autodiff.c (the tape),
 * optimizer.c (`update`), pair.c (the joint function of forward and backward), split.c (the two cut
 * apart) and saved.c (what forward saves). */
#ifndef F8_AUTODIFF_H
#define F8_AUTODIFF_H

#include "passes/unit/pass.h"

/* The module variables of training, by position: param[i] has gradient grad[i] and moments m[i],
 * v[i]. Frozen parameters are none of them. */
typedef struct f8_training {
    int32_t *param, *grad, *m, *v;
    /* by variable: what the parameter's gradient holds counts as zeros while micro_steps is 0 */
    bool *keeps;
    size_t n;
    int32_t step, micro_steps;
} f8_training;

/* The gradient of a parameter or of a caller's input. */
typedef struct f8_gradient {
    size_t port;   /* of the function: what it is the gradient of */
    int32_t param; /* the parameter, or -1 */
    f8_ref sum;    /* 0: nothing contributes */
} f8_gradient;

/* What to differentiate. Results: a value and its cotangent, of the value's type. A value may occur
 * several times: its cotangents are added. */
typedef struct f8_seed {
    f8_ref value, cotangent;
} f8_seed;

typedef struct f8_vjp_request {
    const f8_seed *seed;
    size_t n_seeds;
    /* by variable: the state from which a parameter's sum starts, or NULL. Its port is added to the
     * function. Each contribution joins the sum as it is made, through the acc operand of the op
     * that makes it (matmul, embedding_grad) where there is one, so that no gradient is stored
     * twice */
    const int32_t *state_of;
    /* bool[]: whether those states hold sums; 0: they do. Where they do not, what they hold counts
     * as zeros. needs_zeros, by variable: set where zeros have to be there all the same */
    f8_ref adds;
    bool *needs_zeros;
    /* by input port of the function: whether the gradient of this input of the caller is wanted, or
     * NULL. It has the input's dtype and is rounded once, also where the input is f32 and linears
     * read it as bf16 */
    const bool *of_input;
} f8_vjp_request;

/* Differentiate `f` with respect to every parameter that it reads, but the frozen ones, and to the
 * inputs asked for: adds the backward's nodes to f's graph. *out has one entry for each of these,
 * in the order of f's ports. */
f8_status f8_differentiate(f8_unit *u, f8_func *f, const f8_vjp_request *request,
                           f8_gradient **out, size_t *n_out);

/* Whether contributions join the state of a gradient as they are made. A state of bf16 is rounded
 * once, with the whole sum. */
bool f8_adds_in_place(const f8_module *m, int32_t state);
/* The state's next value: its value, if `sum` has not joined it, and the sum, rounded to its dtype.
 * adds: as in f8_vjp_request. */
f8_ref f8_next_gradient(f8_func *f, int32_t state, f8_ref sum, bool added, f8_ref adds);

/* forward.c: a new function `name` with the inputs and the body of `original`; *map has the new ref
 * of each of its nodes. NULL on failure. */
f8_func *f8_entry_func(f8_unit *u, const f8_func *original, const char *name, f8_ref **map);
bool f8_is_scalar_loss(const f8_type *t);
/* The name that result i has in every entry point. */
const char *f8_result_name(const f8_func *original, size_t i);
/* Each run of the forward with gradients replaces the states that `original` replaces: adds these
 * results. F8_ERR_INPUT: it replaces a parameter. */
f8_status f8_replace_states(f8_unit *u, f8_func *f, const f8_func *original, const f8_ref *map);

/* pair.c: make the function `joint`, and unit->pair. state_of as in f8_vjp_request; NULL: gradients
 * of parameters are results by their names. */
f8_status f8_build_joint(f8_unit *u, f8_func *original, const int32_t *state_of);

/* optimizer.c: fill `f` (empty) with the update of every parameter. */
f8_status f8_build_update(f8_unit *u, f8_func *f, const f8_training *t);

f8_status f8_pass_autodiff(f8_unit *u); /* forward -> eval, micro_step, update, joint */
f8_status f8_pass_split(f8_unit *u);    /* joint -> forward and backward */

#endif
