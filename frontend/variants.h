/* Variants: one program for every value of its dims that are bounds.
 *
 * Shapes are static. A program holds a variant for each set of values asked for so far; the first
 * is for the bounds themselves. To make another one, the text is parsed again with these values in
 * place of the bounds, and compiled with the same options. So it has the bits and the steps of a
 * program compiled for these values alone. It shares variables, memory, threads and libraries with
 * the others (f8_exec_options.like). Internal to frontend/. */
#ifndef F8_VARIANTS_H
#define F8_VARIANTS_H

#include "frontend/fp8c.h"
#include "frontend/f8x/package.h"

struct f8_variant;

/* The bounds of a program; all zeros: it has none. Plain data but for `source`. */
typedef struct f8_bounds {
    f8_bound *bound;
    int32_t n, n_axes;
    f8_bound_axis *axis;
    struct f8_source *source; /* NULL: the program is from a file, and has only the values of the
                                 file */
} f8_bounds;

enum { F8_MAX_VALUES = 64 }; /* sets of values that one file holds */

/* Whether the port is one of a saved value, which forward gives to backward. Variants may save
 * other values; their further ports are the same. */
bool f8_is_saved_port(const f8_plan_port *port);

/* Switch to the values that the shapes of a call's inputs determine. `given` has a tensor for each
 * input that carries no variable, in order. Bounds that no shape determines keep their value.
 * F8_ERR_INPUT: two shapes determine different values, or a value that a dim can't have. The caller
 * checks everything else about the tensors. */
f8_status f8_bounds_of_shapes(fp8c_program *p, uint32_t func, const fp8c_tensor_view *const *given,
                              size_t n, f8_diag *diag);

/* For a file: make the variants for all sets of values that `values` names ("B=1,2,4 T=64"; NULL:
 * every value), and no others. At most F8_MAX_VALUES. p has no instances. */
f8_status f8_bounds_all(fp8c_program *p, const char *values, f8_diag *diag);

#endif
