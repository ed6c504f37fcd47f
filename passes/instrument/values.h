/* What the GEMMs of a function's linears read and write. values.c lists these values, figures.c
 * computes the figures of one, and instrument.c adds results to the function. */
#ifndef F8_INSTRUMENT_VALUES_H
#define F8_INSTRUMENT_VALUES_H

#include "passes/unit/pass.h"

/* An operand or a result of a GEMM. The refs are nodes of the function whose GEMM it is. */
typedef struct f8_gemm_value {
    const char *name; /* "LINEAR.x", "LINEAR.dy.1x128", "LINEAR.y"; with "@RECIPE" for a what-if */
    const char *linear;
    f8_watched_kind kind;
    f8_granularity grain;
    f8_recipe recipe;           /* of an operand */
    bool what_if;               /* quantized for its figures alone */
    bool k_is_rows;             /* of an operand: the GEMM sums over its rows */
    unsigned roles;             /* of the linear's GEMMs that read it, or that made it: bits */
    const char **alias;         /* its names in other linears that read it */
    size_t n_aliases, alias_room;
    f8_ref x;                   /* the value before it is quantized; of any float dtype */
    f8_ref q, scale, scale_inv; /* the codes, what x is multiplied by, its inverse; 0 if x is not
                                   quantized */
    const char *granularity;    /* the attribute of the QUANTIZE that made the codes */
} f8_gemm_value;

typedef struct f8_gemm_values {
    f8_gemm_value *value;
    size_t n, room;
} f8_gemm_values;

/* List what the GEMMs of the function's linears read and write, in the order of the graph. A linear
 * has a value once, however many of its GEMMs read it. A value that several linears read is listed
 * for each of them. what_if (may be NULL): each operand is listed a second time, as that recipe
 * would quantize it; the nodes that do it are added to the graph. The list lies in scratch. */
f8_status f8_find_gemm_values(f8_unit *u, f8_func *f, const f8_recipe *what_if, f8_arena *scratch,
                              f8_gemm_values *out);

/* Whether both are one value: the same nodes, under the same recipe, with scales of the same
 * granularity. */
bool f8_same_gemm_value(const f8_gemm_value *a, const f8_gemm_value *b);

/* The figures of a value as F8_SUMS scalars, [1, F8_SUMS]. 0 if the graph
 * failed. */
f8_ref f8_figures_of(f8_graph *g, const f8_gemm_value *v);

#endif
