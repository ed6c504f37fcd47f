/* Rows of tensors in files as batches: NAME=FILE of --batch gives the input NAME of a function the
 * rows of FILE, that is, its slices along the first axis. */
#ifndef F8_CMD_ROWS_H
#define F8_CMD_ROWS_H

#include "frontend/cli/cmd_ranks.h"
#include "frontend/cli/cmd.h"
#include "frontend/cli/cmd_tensor_file.h"
#include "ir/base/hash.h"

/* The files of one option; all have the same number of rows. */
typedef struct cli_row_files {
    cli_tensor_file *file;
    cli_tensor_in *in;
    f8_hash *hash; /* of the values, as the input has them: all, or of large files blocks of them */
    size_t n;
    uint64_t rows;
} cli_row_files;

/* All fields are 0 before cli_rows_open. */
typedef struct cli_rows {
    cli_row_files data, validation; /* validation: no files without --validation */
    uint64_t train; /* rows [0, train) are for training; the others are held out, unless there are
                       validation files, which then are */
    int64_t B;      /* rows of a batch; 0 before cli_rows_fit */
    cli_share share; /* of a batch of all ranks */
} cli_rows;

/* Opens the files of --batch and --validation. false after a message on stderr. */
bool cli_rows_open(cli_rows *r, const cli *options);
void cli_rows_close(cli_rows *r); /* all zeros is fine */
/* Whether every input of a function has a file, whose rows have its dtype and sizes, and every file
 * an input; and the function has the output `loss`, f32 []. Values that may not fit the dtype are
 * read and checked. Where ranks or a run's folder compare data, their hashes are computed. false
 * after a message on stderr. */
bool cli_rows_fit(cli_rows *r, const cli *options, const fp8c_program *program, int function);
/* Fills the inputs of a function with batch number `batch` of the training rows. An epoch takes
 * each row once, in an order that depends on the seed and the number of the epoch alone; batches go
 * on across its end. false after a message on stderr: a file can't be read any more. */
bool cli_rows_draw(const cli_rows *r, fp8c_program *program, int function, uint64_t seed,
                   uint64_t batch);
/* Which row of the files is row `row` of a batch. */
uint64_t cli_rows_place(const cli_rows *r, uint64_t seed, uint64_t batch, int64_t row);
/* Puts row `from` of the files into row `to` of the inputs. false after a message on stderr. */
bool cli_rows_put(const cli_rows *r, fp8c_program *program, int function, uint64_t from,
                  int64_t to);
/* Fills the inputs with batch number `batch` of the held-out rows, in their order. If they are
 * fewer than B, they are repeated. */
bool cli_rows_held_out(const cli_rows *r, fp8c_program *program, int function, uint64_t batch);
/* How many whole batches the held-out rows have, at least 1. */
uint64_t cli_rows_held_out_batches(const cli_rows *r);

#endif
