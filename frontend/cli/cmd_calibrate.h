/* Recipe auto on the command line: it measures on --data. */
#ifndef F8_CMD_CALIBRATE_H
#define F8_CMD_CALIBRATE_H

#include "frontend/cli/data.h"

bool cli_is_auto(const char *recipe);
/* For commands that have no data to measure on. If `recipe` is auto, prints a message on stderr and
 * returns true. */
bool cli_refuses_auto(const cli *c, const char *recipe);

/* Creates a calibration and lets it observe --calibrate batches of the data, with the initial
 * values of --seed. Writes the file of --write-rules. `options` are those of the program that will
 * be compiled. The caller destroys the result. NULL after a message on stderr. */
fp8c_calibration *cli_calibrate(const cli *c, fp8c_context *ctx, const fp8c_module *module,
                                const fp8c_compile_options *options, f8_data *data);

/* Adds what the calibration chose to the rules of the module, so that recipe auto no longer needs a
 * calibration. false after a message on stderr. */
bool cli_take_rules(fp8c_context *ctx, fp8c_module *module, const fp8c_calibration *calibration);
/* Prints the candidates of every GEMM, their errors and costs, and which one won: a table to `to`
 * (unless NULL), and records with event "candidate". */
void cli_print_trials(const fp8c_calibration *calibration, FILE *to, cli_json *json);

#endif
