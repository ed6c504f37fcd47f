/* What the linears' GEMMs of a function read and write: values.c finds it, figures.c measures it,
 * and instrument.c gives it out. */
#ifndef F8_INSTRUMENT_VALUES_H
#define F8_INSTRUMENT_VALUES_H

#include "passes/unit/pass.h"

/* An operand or a result of a GEMM. Refs are into the function that it was found in. */
typedef struct f8_gemm_value {
    const char *name; /* "LINEAR.x", "LINEAR.dy.1x128", "LINEAR.y"; with "@RECIPE" for a what-if */
    const char *linear;
    f8_watched_kind kind;
    f8_granularity grain;
    f8_recipe recipe;           /* of an operand */
    bool what_if;               /* quantized for its figures alone */
    f8_ref x;                   /* the value before it is quantized; of any float dtype */
    f8_ref q, scale, scale_inv; /* the codes, what x is multiplied by, its inverse; 0 if x is not
                                   quantized */
} f8_gemm_value;

typedef struct f8_gemm_values {
    f8_gemm_value *value;
    size_t n, room;
} f8_gemm_values;

/* Find the values of all GEMMs of the function that have a linear's name and a role, each once.
 * Values that several linears read are listed for each of them. what_if: list each operand that is
 * quantized so, too; its nodes are added to the graph. NULL: no recipe. Lists lie in scratch. */
f8_status f8_find_gemm_values(f8_unit *u, f8_func *f, const f8_recipe *what_if, f8_arena *scratch,
                              f8_gemm_values *out);

/* Whether both are one value: the same nodes under the same recipe, with scales that cover the
 * same. */
bool f8_same_gemm_value(const f8_gemm_value *a, const f8_gemm_value *b);

/* The figures of a value as F8_WATCHED_FIGURES scalars, [1, F8_WATCHED_FIGURES]. 0 if the graph
 * failed. */
f8_ref f8_figures_of(f8_graph *g, const f8_gemm_value *v);

#endif
