/* Scales of `delayed` for weights that have none: a program with `observe` runs on some batches. */
#ifndef F8_CMD_OBSERVE_H
#define F8_CMD_OBSERVE_H

#include "frontend/cli/cmd_checkpoint.h"
#include "frontend/cli/data.h"

/* Fills the inputs of function `eval` of the program that observes with batch `index`. false after
 * a message on stderr. */
typedef bool (*cli_fill)(void *user, fp8c_program *observer, int eval, int64_t index);

/* If the program needs scales that the files lack, makes w->observer and lets it see `batches`
 * batches. `options` are those of the program. false after a message on stderr. */
bool cli_observe(cli_weights *w, fp8c_context *ctx, const fp8c_module *module,
                 const fp8c_compile_options *options, fp8c_program *program, int64_t batches,
                 cli_fill fill, void *user);
/* The same with --calibrate batches of the training data. */
bool cli_observe_data(cli_weights *w, fp8c_context *ctx, const fp8c_module *module,
                      const fp8c_compile_options *options, fp8c_program *program, f8_data *data);
/* Prints that scales were calibrated on so many batches of `what`; nothing if there were none. */
void cli_print_calibrated(const char *recipe, int64_t batches, const char *what);

#endif
