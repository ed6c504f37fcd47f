/* What the files of differentiation share: entry.c (the pass: entry points), autodiff.c (the tape),
 * optimizer.c (`update`). */
#ifndef F8_AUTODIFF_H
#define F8_AUTODIFF_H

#include "passes/unit/pass.h"

/* The module variables of training, by position: param[i] has gradient grad[i] and moments m[i],
 * v[i]. */
typedef struct f8_training {
    int32_t *param, *grad, *m, *v;
    size_t n;
    int32_t step, micro_steps;
} f8_training;

/* The gradient of one parameter: a running sum; 0 where nothing contributes. */
typedef struct f8_gradient {
    int32_t param;
    f8_ref sum;
} f8_gradient;

/* Differentiate value `loss` of `f` (with cotangent `seed` of the same type) with respect to every
 * parameter that f reads: adds the backward's nodes to f's graph. *out has one entry per such
 * parameter, in the order of f's ports. state_of, if not NULL, gives by variable the state from
 * which a parameter's sum starts (its port is added to f). Each contribution joins the sum as it is
 * made, through the acc operand of the op that makes it (matmul, embedding_grad) where there is
 * one, so that no gradient is stored twice. */
f8_status f8_differentiate(f8_unit *u, f8_func *f, f8_ref loss, f8_ref seed,
                           const int32_t *state_of, f8_gradient **out, size_t *n_out);

/* optimizer.c: fill `f` (empty) with the update of every parameter. */
f8_status f8_build_update(f8_unit *u, f8_func *f, const f8_training *t);

f8_status f8_pass_autodiff(f8_unit *u); /* forward -> eval, micro_step, update, joint */
f8_status f8_pass_split(f8_unit *u);    /* joint -> forward and backward */

#endif
