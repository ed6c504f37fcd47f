/* Checkpoints on the command line. frontend/checkpoint/checkpoint.h describes their format.
 * `fp8c train` adds to the metadata:
 *     fp8c.recipe     the recipe of the training, as it was given
 *     fp8c.steps, fp8c.seed
 *
 * A file that `fp8c export` wrote holds only those states that `eval` reads. It holds weights of
 * linears as FP8 codes, each with its scales (passes/scale/serve.c names them), and more metadata:
 *     fp8c.stored     JSON, {"WEIGHT": "block {pow2 = true}", ...}: recipe of each stored weight
 *     fp8c.export     the recipe that was given to export
 *     fp8c.rules      JSON, [RULE, ...]: what --rule gave
 *     fp8c.library    the version of fp8c that wrote the file
 *
 * Weights of others are read too: frontend/checkpoint/README.md, "Weights of others". */
#ifndef F8_CMD_CHECKPOINT_H
#define F8_CMD_CHECKPOINT_H

#include "frontend/checkpoint/load.h"
#include "frontend/cli/cmd.h"

/* Writes all variables of a program that was trained under `recipe` to `path`, whole or not at all.
 * Ranks call this together: rank 0 writes, and gets the parts of variables that they share. false
 * after a message on stderr. */
bool cli_checkpoint_save(const cli *c, const char *path, fp8c_program *program, const char *recipe,
                         int64_t n_steps);
/* The same for the bare bytes of the variables, one after the other. */
bool cli_state_save(const cli *c, const char *path, fp8c_program *program);
/* Whether the files of --save and --save-state can be written, as far as can be told before they
 * are. false after a message on stderr. */
bool cli_can_save(const cli *c);

/* The files of --weights, as --ignore and --map name their tensors. */
typedef struct cli_weights {
    const cli *c;
    fp8c_load_options options;
    f8_weights files;       /* files.shown: what messages call them */
    fp8c_program *observer; /* gives scales that the files lack to the next load, which destroys it;
                               NULL: none */
    int64_t batches;        /* that the observer has seen */
    json_t *lists;          /* of the last load: {"taken": [...], "ignored": [...], ...} */
    FILE *problems;         /* a line for each tensor that is missing, unexpected or different */
} cli_weights;

/* false after a message on stderr. Close *w in any case. */
bool cli_weights_open(cli_weights *w, const cli *c);
void cli_weights_close(cli_weights *w); /* one that is all zeros is fine */

/* Gives a program, compiled under `recipe`, the values of the files, and all other variables their
 * initial values. A program for inference also takes the states that its `eval` reads: those that
 * `prepare` computes from the parameters alone are computed, those that the observer has seen
 * follow from it, others must be in the files. If anything does not fit, a message on stderr names
 * each tensor, and the result is false. */
bool cli_weights_load(cli_weights *w, fp8c_context *ctx, fp8c_program *program, const char *recipe);
/* The same for a program that stores weights as FP8, from values (F32, BF16, F16): it quantizes
 * them. Under `delayed` it uses the scales that training kept, if the files hold them. NaN in any
 * parameter, and Inf in a quantized one, are errors. l->from gets, for each variable, the tensor it
 * came from, or NULL. The caller ends `l`, also after a failure. */
bool cli_weights_quantize(cli_weights *w, fp8c_context *ctx, fp8c_program *program,
                          const char *recipe, f8_load *l);
/* Says what became of each tensor in the last load: with -v on stderr, and as a record with event
 * "weights". */
void cli_weights_report(const cli_weights *w, const char *recipe, cli_json *json);

/* The recipe under which each weight of an exported file is stored; empty for a checkpoint. */
typedef struct cli_stored {
    fp8c_stored_as *weight;
    size_t n;
    json_t *owner;
} cli_stored;
/* false after a message on stderr: the metadata is not valid. Free *s in any case. */
bool cli_stored_read(cli_stored *s, const f8_weights *files, fp8c_context *ctx);
void cli_stored_free(cli_stored *s);

#endif
