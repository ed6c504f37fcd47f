/* Files of weights for the programs of one command: opened once, loaded into one program after
 * another, with an account of what became of each tensor. Scales of `delayed` that the files lack
 * are calibrated. `fp8c eval`, `export` and `run` use it; fp8c_program_load_weights does the same
 * for one program (load.h). Internal to frontend/.
 *
 * Calls that compile or run a program return an fp8c_status. If one fails and the diag has no
 * message, the context has it. */
#ifndef F8_LOADER_H
#define F8_LOADER_H

#include "frontend/checkpoint/load.h"

typedef struct f8_loader {
    fp8c_load_options options;
    uint64_t seed; /* of the values that the files do not give */
    bool begins;   /* a training begins: of the files it takes the parameters alone */
    f8_weights files;
    fp8c_program *observer; /* gives scales that the files lack to the next load, which destroys it;
                               NULL: none */
    int64_t batches;        /* that the observer has seen */
    /* Of the last load. */
    json_t *lists;       /* {"taken": [...], "ignored": [...], "calibrated": ..., "missing": ...} */
    json_t *problems;    /* [{"fate", "name", "detail"}, ...]: why it failed; else empty */
    bool scales_missing; /* a reason is that the files have no scales for the recipe */
} f8_loader;

/* The strings of `o` must outlive l. Close l after a failure too; one that is all zeros is fine. */
f8_status f8_loader_open(f8_loader *l, const fp8c_load_options *o, uint64_t seed, f8_diag *diag);
void f8_loader_close(f8_loader *l);

/* Give a program the values of the files, and all other variables their initial values. A program
 * for inference also takes the states that its `eval` reads: those that `prepare` computes from the
 * parameters alone are computed, those that the observer has seen follow from it, others must be in
 * the files. If tensors do not fit, l->problems has each, and no message is needed. */
fp8c_status f8_loader_load(f8_loader *l, fp8c_program *program, f8_diag *diag);
/* The same for a program that stores weights as FP8, from values (F32, BF16, F16): they are
 * quantized. Under `delayed` this takes the scales that training kept, if the files hold them. NaN
 * in any parameter, and Inf in a quantized one, are errors. load->from gets, for each variable, the
 * tensor it came from, or NULL. End `load` also after a failure. */
fp8c_status f8_loader_quantize(f8_loader *l, fp8c_program *program, f8_load *load, f8_diag *diag);
/* The record `weights`: what became of each tensor in the last load. NULL: out of memory. */
json_t *f8_loader_record(const f8_loader *l, const char *recipe);
/* The same for people, in lines without control characters: "FILE: 3 taken, 1 ignored, ...", and a
 * line for each tensor; no newline at the end. NULL: out of memory. The caller frees it. */
char *f8_loader_lists(const f8_loader *l);
/* Why the last load failed, if l->problems has it: "FILE: error: the file does not hold the weights
 * of MODEL under RECIPE:", and a line for each tensor. As above. */
char *f8_loader_refusal(const f8_loader *l, const char *model, const char *recipe);

/* Fills the inputs of function `eval` of the program that observes with batch `index`. */
typedef f8_status (*f8_loader_fill)(void *user, fp8c_program *observer, int eval, int64_t index,
                                    f8_diag *diag);
/* If the program needs scales that the files lack, make l->observer, and let it see `batches`
 * batches. `options` are those of the program. */
fp8c_status f8_loader_observe(f8_loader *l, const fp8c_module *module,
                              const fp8c_compile_options *options, fp8c_program *program,
                              int64_t batches, f8_loader_fill fill, void *user, f8_diag *diag);

/* The recipe under which each weight of an exported file is stored, or one of others in FP8; n is 0
 * for a checkpoint. */
typedef struct f8_stored {
    fp8c_stored_as *weight;
    size_t n;
    json_t *owner;
} f8_stored;
/* F8_ERR_INPUT: the metadata `fp8c.stored` is not valid. Free *s in any case. */
f8_status f8_stored_read(f8_stored *s, const f8_weights *files, fp8c_context *ctx, f8_diag *diag);
/* What `export` was asked for, or else the recipe of the first weight. NULL: none is stored. */
const char *f8_stored_under(const f8_stored *s, const f8_weights *files);
void f8_stored_free(f8_stored *s);

#endif
