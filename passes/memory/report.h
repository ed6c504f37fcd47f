/* What lies in memory when a function needs the most of it: bytes by category, tensors by name,
 * lifetimes.
 *
 * The peak is the first position of program->order at which the arena holds the most bytes. In the
 * arena of a function that computes gradients of a loss,
 *
 *     an activation is what the loss was computed from (an ancestor of it, or another result of
 *       such an op: attention's lse) and a group of the backward reads for the sake of a gradient;
 *       or such a value once more in another format or order (quantized along the other axis,
 *       transposed). What goes into the loss and into a gradient in one group, as logits do, waits
 *       for nothing and is none;
 *     an FP8 copy is an activation of an FP8 format, or the scales of such codes;
 *     a weight copy is what would be an activation, but is computed from variables alone: FP8 codes
 *       of weights, their transposes, casts;
 *     recomputed is what passes/remat/remat.c has computed again (f8_is_recomputed);
 *     workspace is everything else: temporaries, gradients of activations.
 *
 * A unit of storage that several values share (passes/memory/storage.h) is an activation if one of them
 * is. Functions without a backward have no activations: theirs lie in the workspace, or in ports.
 */
#ifndef F8_MEMORY_REPORT_H
#define F8_MEMORY_REPORT_H

#include "passes/unit/pass.h"

typedef enum f8_memory_category {
    F8_MEMORY_PARAMETERS,
    F8_MEMORY_GRADIENTS, /* what micro_step adds up */
    F8_MEMORY_OPTIMIZER,
    F8_MEMORY_STATES, /* scales, amaxes, histories, and a model's own */
    F8_MEMORY_PORTS,  /* inputs and results, of all functions */
    F8_MEMORY_CONSTANTS,
    F8_MEMORY_ACTIVATIONS, /* from here on of the arena */
    F8_MEMORY_FP8_COPIES,
    F8_MEMORY_WEIGHT_COPIES,
    F8_MEMORY_RECOMPUTED,
    F8_MEMORY_WORKSPACE,
    F8_MEMORY_CATEGORIES
} f8_memory_category;

/* "parameters", "fp8 copies"; NULL past the last. */
const char *f8_memory_category_name(f8_memory_category c);

/* Of each unit in f->lowered->allocation, in `arena`; the function was placed (f8_place_function). */
f8_status f8_memory_categories(const f8_func *f, f8_arena *arena, f8_diag *diag,
                               f8_memory_category **out);

/* data[r], all false before: whether node r depends on what the caller gives through the function's
 * ports, and not on variables alone. */
void f8_memory_mark_data(const f8_graph *g, const f8_port *in, size_t n_in, bool *data);

/* The peak: its position, and the bytes that the arena holds there (f->lowered->lower_bound). */
typedef struct f8_memory_peak {
    uint32_t at;
    int64_t bytes, activations; /* activations: those and FP8 copies */
} f8_memory_peak;
f8_status f8_memory_find_peak(const f8_func *f, f8_arena *scratch, f8_diag *diag,
                              f8_memory_peak *out);

/* Bytes of activations and FP8 copies at the peak. */
f8_status f8_memory_activations(const f8_func *f, f8_arena *scratch, f8_diag *diag, int64_t *bytes);

/* What a value is called: its name, a GEMM's linear and role, a port's name; else what made it, and
 * the nearest value with a name that it is made from: "gelu of h.0.mlp.c_fc.fprop". In `arena`, or
 * the graph's own; NULL: out of memory. */
const char *f8_memory_name(const f8_func *f, f8_ref r, f8_arena *arena);

/* ---- everything besides the arena ---- */

/* Exact for the program as it stands, with f8_options.code_bytes; it can change by a little when
 * micro_step does. Places functions that have no places yet. */
typedef struct f8_memory_outside {
    int64_t rest;   /* variables, ports, constants, kernels' and GEMMs' room outside of the arena */
    int64_t extra;  /* what code adds to micro_step's arena */
    int64_t others; /* the largest arena of the other functions, all of it */
} f8_memory_outside;
f8_status f8_memory_fixed(f8_unit *u, f8_memory_outside *out);

/* Whether `name` is `prefix` and the name of a parameter; bytes of the buffer of a port (0 for a
 * variable's). */
bool f8_memory_is_of_parameter(const f8_module *m, const char *name, const char *prefix);
int64_t f8_memory_port_bytes(const f8_unit *u, const f8_port *p);

/* ---- the report ---- */

typedef struct f8_memory_tensor {
    const char *name; /* of the value, else of what it comes from: "gelu of h.0.mlp.c_fc.fprop" */
    f8_type type;     /* of the unit's root */
    int64_t bytes;
    f8_memory_category category;
    const char *made, *read; /* of the arena: the groups that write it first and read it last; ""
                              * else, and where it is a result */
    uint32_t first, last;    /* positions; of what is there throughout 0 and n_groups */
} f8_memory_tensor;

/* At the peak of one function. */
typedef struct f8_memory_report {
    f8_memory_peak peak;
    const char *at; /* the group that runs then, "" for an empty function */
    int64_t bytes[F8_MEMORY_CATEGORIES];
    f8_memory_tensor *tensor; /* variables, ports, what the arena holds then: most bytes first */
    uint32_t n_tensors;
} f8_memory_report;

/* Lives in `arena`; the names of groups are the function's. Variables and ports of the module are
 * all counted, whether this function reads them or not; constants are of all functions. */
f8_status f8_memory_report_make(const f8_unit *u, const f8_func *f, f8_arena *arena,
                                f8_memory_report *out);

#endif
