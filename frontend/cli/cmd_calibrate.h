/* Calibrations on the command line: recipe auto, which measures on the bytes of --data, and the
 * scales of `delayed` for weights of others. */
#ifndef F8_CMD_CALIBRATE_H
#define F8_CMD_CALIBRATE_H

#include "frontend/cli/cmd_checkpoint.h"
#include "frontend/cli/cmd_corpus.h"

bool cli_is_auto(const char *recipe);
/* For commands that have no data to measure on. If `recipe` is auto, prints a message on stderr and
 * returns true. */
bool cli_refuses_auto(const cli *c, const char *recipe);

/* Creates a calibration and lets it observe --calibrate batches of the corpus, with the initial
 * values of --seed. Writes the file of --write-rules. `options` are those of the program that will
 * be compiled. The caller destroys the result. NULL after a message on stderr. */
fp8c_calibration *cli_calibrate(const cli *c, fp8c_context *ctx, const fp8c_module *module,
                                const fp8c_compile_options *options, cli_corpus *corpus);

/* Prints the candidates of every GEMM, their errors and costs, and which one won: a table to `to`
 * (unless NULL), and records with event "candidate". */
void cli_print_trials(const fp8c_calibration *calibration, FILE *to, cli_json *json);

/* Fills the inputs of function `eval` of the program that observes with batch `index`. false after
 * a message on stderr. */
typedef bool (*cli_fill)(void *user, fp8c_program *observer, int eval, int64_t index);

/* If the program needs scales that the files lack, makes w->observer and lets it see `batches`
 * batches. `options` are those of the program. false after a message on stderr. */
bool cli_observe(cli_weights *w, fp8c_context *ctx, const fp8c_module *module,
                 const fp8c_compile_options *options, fp8c_program *program, int64_t batches,
                 cli_fill fill, void *user);
/* The same with --calibrate batches of the training part of a corpus. */
bool cli_observe_corpus(cli_weights *w, fp8c_context *ctx, const fp8c_module *module,
                        const fp8c_compile_options *options, fp8c_program *program,
                        cli_corpus *corpus);
/* Prints that scales were calibrated on so many batches of `what`; nothing if there were none. */
void cli_print_calibrated(const char *recipe, int64_t batches, const char *what);

#endif
