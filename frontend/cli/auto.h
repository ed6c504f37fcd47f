/* Recipe auto on the command line. */
#ifndef F8_CLI_AUTO_H
#define F8_CLI_AUTO_H

#include "frontend/cli/data.h"
#include "frontend/train/calibrate.h"

/* Whether --recipe or a --compare is auto. */
bool cli_is_auto(const cli *c);
/* The same for commands that have no data to measure on: true after a message on stderr. */
bool cli_refuses_auto(const cli *c);

/* Writes the rules to the FILE of --write-rules, if it is given; `-` is stdout. `job`: a cli_job
 * with c and ctx. false after a message on stderr. */
bool cli_write_rules(void *job, const fp8c_calibration *calibration);
/* f8_train_calibrate, and cli_write_rules. NULL after a message on stderr. */
fp8c_calibration *cli_calibrate(cli_job *j, const fp8c_compile_options *options, f8_data *data);
/* Prints the candidates of every GEMM, their errors and costs, and which one won: a table to `to`
 * (unless NULL), and records with event "candidate". */
void cli_print_trials(const fp8c_calibration *calibration, FILE *to, cli_json *json);

#endif
