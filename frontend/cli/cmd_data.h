/* The data of train, eval, explain and export: what fills the inputs of a function, batch by batch.
 * These are windows of tokens (--data) or rows of tensors (--batch). A batch is a function of the
 * seed and its number alone, so that a run that goes on from a position sees the same data as one
 * that never stopped. */
#ifndef F8_CMD_DATA_H
#define F8_CMD_DATA_H

#include "frontend/cli/cmd_corpus.h"
#include "frontend/cli/cmd_ranks.h"
#include "frontend/cli/cmd_rows.h"

/* The batches of the held-out data that a loss is the mean of, if there are as many. */
enum { CLI_HELD_OUT_BATCHES = 16 };

typedef struct cli_data {
    bool by_rows; /* which of the two it is */
    cli_corpus corpus;
    cli_rows rows;
    cli_ranks *ranks; /* NULL: this process is alone */
    bool failed; /* reading a file failed later on, and stderr says so */
} cli_data;

/* Whether the options name data. */
bool cli_data_given(const cli *c);
/* Opens what the options name. false after a message on stderr. Close it in any case. */
bool cli_data_open(cli_data *d, const cli *c);
void cli_data_close(cli_data *d); /* all zeros is fine */
/* Checks the data against the inputs of a function. Every function that is to be filled has the
 * same ones, so later calls for other programs of the module check less. false after a message on
 * stderr, or a signal. */
bool cli_data_fit(cli_data *d, const cli *c, const fp8c_module *module,
                  const fp8c_program *program, int function);
/* Fills the inputs of a function with batch number `batch` of the training data. false after a
 * message on stderr: a file can't be read any more. */
bool cli_data_fill(cli_data *d, fp8c_program *program, int function, uint64_t seed, uint64_t batch);
/* The rows of a batch of this rank. */
int64_t cli_data_rows(const cli_data *d);
/* What row `row` of a batch is in the files: the number of a row, or of a window's first token. */
uint64_t cli_data_place(const cli_data *d, uint64_t seed, uint64_t batch, int64_t row);
/* Fills row `row` of the inputs with what the files have at a place. false as in cli_data_fill. */
bool cli_data_put(cli_data *d, fp8c_program *program, int function, uint64_t place, int64_t row);
/* The mean loss that `eval` gives for the held-out data, over whole batches in their order, at most
 * CLI_HELD_OUT_BATCHES: always the same ones. If the data are less than a batch, they are repeated.
 * FP8C_ERR_IO with d->failed: a file can't be read any more. */
fp8c_status cli_held_out(cli_data *d, fp8c_program *program, int eval, double *loss,
                         int64_t *batches);

/* How many tokens or rows a batch has, and which of them: "tokens" or "rows". */
int64_t cli_data_items(const cli_data *d);
const char *cli_data_items_name(const cli_data *d);
/* The same as said of the files: "bytes", "tokens" or "rows". */
const char *cli_data_unit(const cli_data *d);
/* What tells these data from others, for other ranks and a run that goes on later: how many there
 * are, hashes of their values, and for tokens their entropy. NULL: out of memory. After
 * cli_data_fit. */
json_t *cli_data_facts(const cli_data *d);
/* Whether all ranks train on the same data, as often and from the same seeds. false after a message
 * on stderr. */
bool cli_data_agreed(const cli_data *d, const cli *c);
/* The entropy of single tokens (cmd_corpus.h). NaN for rows. */
double cli_data_unigram(const cli_data *d);
/* The files of the training data, and those of the held-out data, for messages. */
const char *cli_data_shown(const cli_data *d);
const char *cli_data_held_out_shown(const cli_data *d);
/* What the losses are and what to compare them with, as parts of a line: "losses in nats per byte"
 * and "; the text's unigram entropy is 3.3128". For rows: "losses are means over batches" and "".
 */
const char *cli_data_losses(const cli_data *d);
const char *cli_data_compared(const cli_data *d, char text[80]);

#endif
