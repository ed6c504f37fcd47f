/* The data of a training or an evaluation: what fills the inputs of a function, batch by batch.
 * These are windows of tokens or rows of tensors, in files. A batch is a function of the seed and
 * its number alone, so that a run that goes on from a position sees the same data as one that never
 * stopped. */
#ifndef F8_DATA_H
#define F8_DATA_H

#include <jansson.h>

#include "frontend/train/data/corpus.h"
#include "frontend/train/data/rows.h"

/* The batches of the held-out data that a loss is the mean of, if there are as many. */
enum { F8_HELD_OUT_BATCHES = 16 };

typedef struct f8_data {
    f8_data_options options;
    bool by_rows; /* which of the two it is */
    f8_corpus corpus;
    f8_rows rows;
    bool failed; /* reading a file failed later on, as a diag has said */
} f8_data;

/* Opens what the options name. diag->file may be memory of `d` here and below. Close it in any
 * case. */
f8_status f8_data_open(f8_data *d, const f8_data_options *options, f8_diag *diag);
void f8_data_close(f8_data *d); /* all zeros is fine */
/* The program's own buffer for the port of that name; NULL if there is no such port. */
void *f8_data_buffer(fp8c_program *program, int function, fp8c_side side, const char *name);
/* Checks the data against the inputs of a function. Every function that is to be filled has the
 * same ones, so later calls for other programs of the module check less. F8_ERR_CANCELLED:
 * options.stop said so. */
f8_status f8_data_fit(f8_data *d, const fp8c_module *module, const fp8c_program *program,
                      int function, f8_diag *diag);
/* Fills the inputs of a function with batch number `batch` of the training data. Fails if a file
 * can't be read any more. */
f8_status f8_data_fill(f8_data *d, fp8c_program *program, int function, uint64_t seed,
                       uint64_t batch, f8_diag *diag);
/* The rows of a batch of this rank. */
int64_t f8_data_rows(const f8_data *d);
/* What row `row` of a batch is in the files: the number of a row, or of a window's first token. */
uint64_t f8_data_place(const f8_data *d, uint64_t seed, uint64_t batch, int64_t row);
/* Fills row `row` of the inputs with what the files have at a place. Fails as f8_data_fill. */
f8_status f8_data_put(f8_data *d, fp8c_program *program, int function, uint64_t place, int64_t row,
                      f8_diag *diag);
/* Fills the inputs with batch number `batch` of the held-out data, which follow each other. If they
 * are less than a batch, they are repeated. Fails as f8_data_fill. */
f8_status f8_data_fill_held_out(f8_data *d, fp8c_program *program, int function, uint64_t batch,
                                f8_diag *diag);
/* The mean loss that `eval` gives for the held-out data, over whole batches in their order, at most
 * F8_HELD_OUT_BATCHES: always the same ones. Asks options.stop_together before each. FP8C_ERR_IO
 * with d->failed: a file can't be read any more, and the diag says so. Of another failure the
 * context of the program has the message. */
fp8c_status f8_data_held_out(f8_data *d, fp8c_program *program, int eval, double *loss,
                             int64_t *batches, f8_diag *diag);

/* How many tokens or rows a batch has, and which of them: "tokens" or "rows". */
int64_t f8_data_items(const f8_data *d);
const char *f8_data_items_name(const f8_data *d);
/* The same as said of the files: "bytes", "tokens" or "rows". */
const char *f8_data_unit(const f8_data *d);
/* What tells these data from others, for other ranks and a run that goes on later: how many there
 * are, hashes of their values, and for tokens their entropy. NULL: out of memory. After
 * f8_data_fit. */
json_t *f8_data_facts(const f8_data *d);
/* The entropy of single tokens (corpus.h). NaN for rows. */
double f8_data_unigram(const f8_data *d);
/* The files of the training data, and those of the held-out data, for messages. */
const char *f8_data_shown(const f8_data *d);
const char *f8_data_held_out_shown(const f8_data *d);
/* What the losses are and what to compare them with, as parts of a line: "losses in nats per byte"
 * and "; the text's unigram entropy is 3.3128". For rows: "losses are means over batches" and "".
 */
const char *f8_data_losses(const f8_data *d);
const char *f8_data_compared(const f8_data *d, char text[80]);

#endif
