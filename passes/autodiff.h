/* What the files of differentiation share: entry.c (the pass: entry points), autodiff.c (the tape),
 * optimizer.c (`update`). */
#ifndef F8_AUTODIFF_H
#define F8_AUTODIFF_H

#include "passes/pass.h"

/* The module variables of training, by position: param[i] has gradient grad[i] and moments m[i], v[i]. */
typedef struct f8_training {
    int32_t *param, *grad, *m, *v;
    size_t n;
    int32_t step, micro_steps;
} f8_training;

/* What the tape found for one parameter: contributions in the order the backward pass makes them. */
typedef struct f8_gradient {
    int32_t param;
    f8_ref *part;
    size_t n;
} f8_gradient;

/* Differentiate value `loss` of `f` (cotangent `seed`, same type) with respect to every parameter
 * that f reads: adds the backward nodes to f's graph. *out: one entry per such parameter, in the order of f's ports. */
f8_status f8_differentiate(f8_unit *u, f8_func *f, f8_ref loss, f8_ref seed, f8_gradient **out, size_t *n_out);

/* acc + all contributions, each taken into the running sum by the op that makes it where it can (a matmul's or
 * embedding_grad's acc operand), so that no gradient is stored twice. acc 0: start from nothing. */
f8_ref f8_accumulate(f8_graph *g, f8_ref acc, const f8_gradient *d);

/* optimizer.c: fill `f` (empty) with the update of every parameter. */
f8_status f8_build_update(f8_unit *u, f8_func *f, const f8_training *t);

#endif
