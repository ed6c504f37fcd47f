/* Recipe auto on the command line: calibrating on the bytes of --data. */
#ifndef F8_CMD_CALIBRATE_H
#define F8_CMD_CALIBRATE_H

#include "frontend/cli/cmd_corpus.h"

bool cli_is_auto(const char *recipe);
/* For commands that have no data to choose on: whether `recipe` is auto, which is then said on
 * stderr. */
bool cli_refuses_auto(const cli *c, const char *recipe);

/* A calibration that has observed --calibrate batches of the corpus at the initial values of
 * --seed; writes
 * --write-rules. options: of the program to come. NULL after a message on stderr. The caller
 * destroys. */
fp8c_calibration *cli_calibrate(const cli *c, fp8c_context *ctx, const fp8c_module *module,
                                const fp8c_compile_options *options, cli_corpus *corpus);

/* Every GEMM's candidates, their errors and costs, and the winner: a table to `to` (may be NULL)
 * and records with event "candidate". */
void cli_print_trials(const fp8c_calibration *calibration, FILE *to, cli_json *json);

#endif
