/* The data of train, eval, explain and export: what fills the inputs of a function, batch by batch.
 * A batch is a function of the seed and its number alone, so that a run that goes on from a
 * position sees the same data as one that never stopped. */
#ifndef F8_CMD_DATA_H
#define F8_CMD_DATA_H

#include "frontend/cli/cmd_corpus.h"

/* The batches of the held-out data that a loss is the mean of, if there are as many. */
enum { CLI_HELD_OUT_BATCHES = 16 };

typedef struct cli_data {
    cli_corpus corpus;
    bool failed; /* reading a file failed later on, and stderr says so */
} cli_data;

/* Opens what the options name. false after a message on stderr. Close it in any case. */
bool cli_data_open(cli_data *d, const cli *c);
void cli_data_close(cli_data *d); /* all zeros is fine */
/* Checks the data against the inputs of a function. Every function that is to be filled has the
 * same ones, so later calls for other programs of the module check only these. false after a
 * message on stderr, or a signal. */
bool cli_data_fit(cli_data *d, const cli *c, const fp8c_module *module,
                  const fp8c_program *program, int function);
/* Fills the inputs of a function with batch number `batch` of the training data. false after a
 * message on stderr: a file can't be read any more. */
bool cli_data_fill(cli_data *d, fp8c_program *program, int function, uint64_t seed, uint64_t batch);
/* The mean loss that `eval` gives for the held-out data, over whole batches in their order, at most
 * CLI_HELD_OUT_BATCHES: always the same ones. If the data are less than a batch, they are repeated.
 * FP8C_ERR_IO with d->failed: a file can't be read any more. */
fp8c_status cli_held_out(cli_data *d, fp8c_program *program, int eval, double *loss,
                         int64_t *batches);

/* How many tokens a batch has. */
int64_t cli_data_items(const cli_data *d);
/* The files of --data, and what a token of them is: "byte" or "token". */
const char *cli_data_shown(const cli_data *d);
const char *cli_data_unit(const cli_data *d);

#endif
