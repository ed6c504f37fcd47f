/* --weights, --save and --save-state: what the options say of checkpoints, and what is printed.
 * frontend/checkpoint/README.md describes the files; `fp8c train` adds `fp8c.recipe`, the recipe as
 * it was given, `fp8c.steps` and `fp8c.seed` to their metadata.
 *
 * What can fail returns false after a message on stderr. */
#ifndef F8_CLI_CHECKPOINT_H
#define F8_CLI_CHECKPOINT_H

#include "frontend/checkpoint/loader.h"
#include "frontend/cli/data.h"

/* Writes all variables of a program that was trained under `recipe` to `path`, whole or not at all.
 * Ranks call this together: rank 0 writes, and gets the parts of variables that they share. */
bool cli_checkpoint_save(const cli *c, const char *path, fp8c_program *program, const char *recipe,
                         int64_t n_steps);
/* The same for the bare bytes of the variables, one after the other. */
bool cli_state_save(const cli *c, const char *path, fp8c_program *program);
/* Whether the files of --save and --save-state can be written, as far as can be told before they
 * are. */
bool cli_can_save(const cli *c);

/* Opens the files of --weights, as --ignore and --map name their tensors. With --model a checkpoint
 * of fp8c has its own names: the options are for the model's. Close *l in any case. */
bool cli_weights_open(f8_loader *l, const cli *c);
bool cli_stored_read(f8_stored *s, const f8_loader *l, fp8c_context *ctx);
/* Whether a call on *l, for a program under `recipe`, did well. If tensors do not fit, the message
 * names each. */
bool cli_weights_done(const f8_loader *l, const cli_job *j, const char *recipe, fp8c_status status,
                      const f8_diag *diag);
/* Says what became of each tensor in the last load: with -v on stderr, and as a record. */
void cli_weights_report(const f8_loader *l, cli_job *j, const char *recipe);
/* Prints that scales were calibrated on so many batches of `what`; nothing if there were none. */
void cli_print_calibrated(const char *recipe, int64_t batches, const char *what);

#endif
