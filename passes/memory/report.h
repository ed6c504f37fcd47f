/* What lies in memory when a function needs the most of it: bytes by category, tensors by name,
 * lifetimes.
 *
 * The peak is the first position of the order at which the arena holds the most bytes. In a
 * function that computes gradients of a loss, the bytes of the arena have these categories:
 *
 * - activation: what the loss was computed from (an ancestor of it, or another result of such an
 *   op, such as attention's lse) and a group of the backward reads for the sake of a gradient. Also
 *   such a value once more in another format or order: quantized along the other axis, or
 *   transposed. A value that goes into the loss and into a gradient in one group, as logits do, is
 *   not kept for the backward and is no activation.
 * - FP8 copy: an activation in an FP8 format, or the scales of such codes.
 * - weight copy: what would be an activation, but is computed from variables alone: FP8 codes of
 *   weights, their transposes, casts.
 * - recomputed: what passes/remat/ has recomputed (f8_is_recomputed).
 * - workspace: everything else, such as temporaries and gradients of activations.
 *
 * An allocation that several values share (storage.h) is an activation if one of them is. Functions
 * without a backward have no activations: all of their values are workspace, or lie in ports. */
#ifndef F8_MEMORY_REPORT_H
#define F8_MEMORY_REPORT_H

#include "passes/unit/pass.h"

typedef enum f8_memory_category {
    F8_MEMORY_PARAMETERS,
    F8_MEMORY_GRADIENTS, /* what micro_step accumulates */
    F8_MEMORY_OPTIMIZER,
    F8_MEMORY_STATES,       /* scales, amaxes, histories, and a model's own */
    F8_MEMORY_WEIGHT_CODES, /* of weights, kept between steps, with their scales */
    F8_MEMORY_PORTS,        /* inputs and results, of all functions */
    F8_MEMORY_CONSTANTS,
    F8_MEMORY_ACTIVATIONS, /* from here on in the arena */
    F8_MEMORY_FP8_COPIES,
    F8_MEMORY_WEIGHT_COPIES,
    F8_MEMORY_RECOMPUTED,
    F8_MEMORY_WORKSPACE,
    F8_MEMORY_CATEGORIES
} f8_memory_category;

/* "parameters", "fp8 copies", ...; NULL past the last one. */
const char *f8_memory_category_name(f8_memory_category c);

/* The category of each of f->lowered->allocation, in `arena`. The function must have places
 * (f8_place_function). */
f8_status f8_memory_categories(const f8_func *f, f8_arena *arena, f8_diag *diag,
                               f8_memory_category **out);

/* Sets data[r], all false before, where node r depends on what the caller gives through the
 * function's ports, and not on variables alone. */
void f8_memory_mark_data(const f8_graph *g, const f8_port *in, size_t n_in, bool *data);

/* The peak: its position in the order, and the bytes that the arena holds there
 * (f->lowered->lower_bound). */
typedef struct f8_memory_peak {
    uint32_t at;
    int64_t bytes, activations; /* in the arena; of them activations and FP8 copies */
} f8_memory_peak;
f8_status f8_memory_find_peak(const f8_func *f, f8_arena *scratch, f8_diag *diag,
                              f8_memory_peak *out);

/* Bytes of activations and FP8 copies at the peak. */
f8_status f8_memory_activations(const f8_func *f, f8_arena *scratch, f8_diag *diag, int64_t *bytes);

/* What a value is called: its own name, a GEMM's linear and role, or a port's name; else its op and
 * the nearest named value that it is made from: "gelu of h.0.mlp.c_fc.fprop". In `arena`, or the
 * graph's own. NULL: out of memory. */
const char *f8_memory_name(const f8_func *f, f8_ref r, f8_arena *arena);

/* ---- everything outside of the arena ---- */

/* Bytes outside of micro_step's arena. Exact for the plan as it stands if f8_options.code_bytes is
 * given; a change of micro_step can change them a little. Gives places to functions that have none
 * yet. */
typedef struct f8_memory_outside {
    int64_t rest;   /* variables, ports, constants, and the scratch of kernels and GEMMs */
    int64_t extra;  /* what code adds to micro_step's arena */
    int64_t others; /* the largest arena that another function needs (least_bytes) */
} f8_memory_outside;
f8_status f8_memory_fixed(f8_unit *u, f8_memory_outside *out);

/* Whether `name` is `prefix` followed by the name of a parameter. Below: the bytes of a port's
 * buffer (0 for a variable's). */
bool f8_memory_is_of_parameter(const f8_module *m, const char *name, const char *prefix);
int64_t f8_memory_port_bytes(const f8_unit *u, const f8_port *p);

/* ---- the report ---- */

typedef struct f8_memory_tensor {
    const char *name; /* as f8_memory_name gives it */
    f8_type type;     /* of the value at the start of the allocation */
    int64_t bytes;
    f8_memory_category category;
    /* in the arena: the groups that write it first and read it last; else "", also for results */
    const char *made, *read;
    uint32_t first, last; /* positions in the order; 0 and n_groups for what is there throughout */
} f8_memory_tensor;

/* What lies in memory at the peak of one function. */
typedef struct f8_memory_report {
    f8_memory_peak peak;
    const char *at; /* the group that runs then; "" for an empty function */
    int64_t bytes[F8_MEMORY_CATEGORIES];
    /* variables, ports, and what the arena holds then; most bytes first */
    f8_memory_tensor *tensor;
    uint32_t n_tensors;
} f8_memory_report;

/* The report lives in `arena`, except the names of groups, which are the function's. All variables
 * and ports of the module are counted, whether this function reads them or not, and the constants
 * of all functions. */
f8_status f8_memory_report_make(const f8_unit *u, const f8_func *f, f8_arena *arena,
                                f8_memory_report *out);

#endif
