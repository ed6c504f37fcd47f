/* What lies in memory when a function needs the most of it: bytes by category, tensors by name, lifetimes.
 *
 * The peak is the first position of program->order at which the arena holds the most bytes. In the arena of a function
 * that computes gradients of a loss,
 *     an activation is what the loss was computed from (an ancestor of it) and the backward reads: a group where it
 *       goes into a gradient and not into the loss;
 *     an FP8 copy is an activation of an FP8 format, or the scales of such codes;
 *     recomputed is what passes/remat.c has computed again (f8_is_again);
 *     workspace is everything else: temporaries, gradients of activations.
 * A unit of storage that several values share (passes/storage.h) is an activation if one of them is. Functions
 * without a backward have no activations: theirs lie in the workspace, or in ports. */
#ifndef F8_MEMORY_REPORT_H
#define F8_MEMORY_REPORT_H

#include "passes/pass.h"

typedef enum f8_memory_category {
    F8_MEMORY_PARAMETERS,
    F8_MEMORY_GRADIENTS, /* what micro_step adds up */
    F8_MEMORY_OPTIMIZER,
    F8_MEMORY_STATES,    /* scales, amaxes, histories, and a model's own */
    F8_MEMORY_PORTS,     /* inputs and results, of all functions */
    F8_MEMORY_CONSTANTS,
    F8_MEMORY_ACTIVATIONS, /* from here on of the arena */
    F8_MEMORY_FP8_COPIES,
    F8_MEMORY_RECOMPUTED,
    F8_MEMORY_WORKSPACE,
    F8_MEMORY_CATEGORIES
} f8_memory_category;

/* "parameters", "fp8 copies"; NULL past the last. */
const char *f8_memory_category_name(f8_memory_category c);

/* Of each unit in f->program->held, in `arena`; the function was placed (f8_place_function). */
f8_status f8_memory_categories(const f8_func *f, f8_arena *arena, f8_diag *diag,
                               f8_memory_category **out);

/* The peak: its position, and the bytes that the arena holds there (f->program->lower_bound). */
typedef struct f8_memory_peak {
    uint32_t at;
    int64_t bytes, activations; /* activations: those and FP8 copies */
} f8_memory_peak;
f8_status f8_memory_find_peak(const f8_func *f, f8_arena *scratch, f8_diag *diag, f8_memory_peak *out);

/* Bytes of activations and FP8 copies at the peak. */
f8_status f8_memory_activations(const f8_func *f, f8_arena *scratch, f8_diag *diag, int64_t *bytes);

#endif
