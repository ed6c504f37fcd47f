/* A program for every value of its dims that are bounds: which there are, and how others are made.
 *
 * Shapes are static throughout: a program holds a variant for each set of values asked for so far,
 * the first for the bounds themselves. Another is made by parsing the text again with these values
 * in place of the bounds and compiling that with the same options, so that it has the bits and the
 * steps of a program compiled for them alone; it shares variables, memory, threads and libraries
 * with the others (f8_exec_options.like). Internal to frontend/. */
#ifndef F8_VARIANTS_H
#define F8_VARIANTS_H

#include "frontend/fp8c.h"
#include "frontend/f8x/package.h"

struct f8_variant;

/* Of a program; plain data but for `source`. None: all zeros. */
typedef struct f8_bounds {
    f8_bound *bound;
    int32_t n, n_axes;
    f8_bound_axis *axis;
    struct f8_source *source; /* NULL: read from a file, there are no values but those it has */
} f8_bounds;

enum { F8_MAX_VALUES = 64 }; /* sets of values that one file holds */

/* Switch to the values that the shapes of a call's inputs tell, which are given in the order of the
 * function's inputs that carry no variable. Bounds that they tell nothing of stay. F8_ERR_INPUT:
 * two tell different values, or one that is none. What else can be wrong with tensors is for others
 * to say. */
f8_status f8_bounds_of_shapes(fp8c_program *p, uint32_t func, const fp8c_tensor_view *const *given,
                              size_t n, f8_diag *diag);

/* Variants for each set of values of `values` ("B=1,2,4 T=64"; NULL: all), and no others: for a
 * file. At most F8_MAX_VALUES. p has no instances. */
f8_status f8_bounds_all(fp8c_program *p, const char *values, f8_diag *diag);

#endif
