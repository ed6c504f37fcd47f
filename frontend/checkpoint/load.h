/* Loading: files of weights matched with a program, and read into it. fp8c_program_load and
 * fp8c_program_load_weights are made of it, and so is what the command line does with --weights.
 * Internal to frontend/.
 *
 *     f8_weights_open(&weights, ...);
 *     f8_load l = {.program = p, .weights = &weights, .o = &options, .states = ..., .diag = &diag};
 *     status = f8_load_match(&l);       (nothing has changed yet)
 *     if (status == F8_OK)
 *         status = f8_load_values(&l);
 *     f8_load_end(&l); */
#ifndef F8_LOAD_H
#define F8_LOAD_H

#include "frontend/checkpoint/checkpoint.h"
#include "frontend/checkpoint/weights.h"

typedef enum f8_load_states {
    F8_LOAD_NO_STATES,   /* parameters alone; the states keep their values */
    F8_LOAD_EVAL_STATES, /* and the states that eval needs */
    F8_LOAD_ALL_STATES,
    F8_LOAD_FITTING_STATES /* those states that fit with all their elements. The others keep their
                              values: FP8C_LOAD_MISSING. States of the files that the program lacks
                              are FP8C_LOAD_IGNORED */
} f8_load_states;

enum { F8_LOAD_LIST = 640 }; /* bytes of the list of what is wrong; the rest is only counted */

typedef struct f8_load {
    fp8c_program *program;
    f8_weights *weights;
    const fp8c_load_options *o; /* of which it reads allow_missing, scales and report */
    f8_load_states states;
    bool exact; /* no dtype is converted, no tensor is left out, and every value is read once before
                   the first is written */
    bool quantize; /* weights that the program stores as FP8 come from values, and none may be NaN,
                      nor Inf where it is quantized */
    f8_diag *diag;
    /* What matching finds. All zeros before. */
    const f8_weight **from;  /* by variable; NULL: it is not from a file */
    f8_checkpoint_names names; /* of elements, in the files */
    const char *prefix;      /* what names of weights begin with in the files */
    bool compute;            /* a state that prepare computes is not in the files */
    bool calibrated;         /* the scales are those of o->scales */
    bool scales_missing;     /* ... and there is none to ask */
    bool kept;               /* an allowed parameter is missing: it keeps its value */
    int n, n_wrong, n_shown; /* n: variables */
    char text[F8_LOAD_LIST];
    size_t length;
    f8_arena memory;
} f8_load;

/* What a program takes of files, if the caller does not say so. */
f8_load_states f8_load_usual_states(fp8c_program *program, const f8_weights *weights);
/* Whether the program needs scales of `delayed` that only a training, or a program with `observe`,
 * can give, and no file has them. */
bool f8_load_needs_scales(fp8c_program *program, const f8_weights *weights);

/* Whether values may be loaded now. `call` is for the message. */
f8_status f8_load_allowed(fp8c_program *program, const char *call, f8_diag *diag);
/* Find the tensor of every variable, and say through o->report what becomes of each. */
f8_status f8_load_match(f8_load *l);
f8_status f8_load_values(f8_load *l);
void f8_load_end(f8_load *l);

/* ---- what match.c and load.c share ---- */

/* The state's tensor, under its own prefix or, unless `exact`, as a buffer of others. */
f8_weight *f8_load_find_state(const f8_load *l, const char *name);
/* Whether values are for a program that trains. Its scales begin anew: of a stored weight, they
 * follow from the values. */
bool f8_load_trains(const f8_load *l);
/* The weight stored as FP8 whose codes or scales are variable i, if the program makes them from
 * values that the files have. */
bool f8_load_quantizes(const f8_load *l, int i, fp8c_stored *to);
/* The scales of a tensor of FP8 codes, if the program trains and wants values of this dtype, or
 * NULL. */
f8_weight *f8_load_dequantizes(const f8_load *l, const f8_weight *t, f8_st_dtype want);
/* Where the scale of an element of fp8.scale is in the files: its tensor, and its index there.
 * NULL: no file has it. */
const f8_weight *f8_load_kept(const f8_load *l, const char *element, int64_t *index);

#endif
