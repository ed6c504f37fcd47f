/* Rows of tensors in files as batches: NAME=FILE gives the input NAME of a function the
 * rows of FILE, that is, its slices along the first axis. */
#ifndef F8_DATA_ROWS_H
#define F8_DATA_ROWS_H

#include "frontend/checkpoint/tensor_file.h"
#include "frontend/train/data/options.h"
#include "ir/base/hash.h"

/* The files of one option; all have the same number of rows. */
typedef struct f8_row_files {
    f8_tensor_file *file;
    f8_tensor_in *in;
    f8_hash *hash; /* of the values, as the input has them: all, or of large files blocks of them */
    size_t n;
    uint64_t rows;
    const char *option; /* which gives them, for messages */
    char *refused;      /* this and its value, if it was refused */
} f8_row_files;

/* All fields are 0 before f8_rows_open. */
typedef struct f8_rows {
    f8_row_files data, validation; /* validation: none if no such files are given */
    uint64_t train; /* rows [0, train) are for training; the others are held out, unless there are
                       validation files, which then are */
    int64_t B;      /* rows of a batch; 0 before f8_rows_fit */
    f8_share share; /* of a batch of all ranks */
} f8_rows;

/* Opens options->batches and the validation files. diag->file may be memory of `r` here and below.
 * Close it in any case. */
f8_status f8_rows_open(f8_rows *r, const f8_data_options *options, f8_diag *diag);
void f8_rows_close(f8_rows *r); /* all zeros is fine */
/* Whether every input of a function has a file, whose rows have its dtype and sizes, and every file
 * an input; and the function has the output `loss`, f32 []. Values that may not fit the dtype are
 * read and checked. With options->hashes those of the values are computed. F8_ERR_CANCELLED:
 * options->stop said so. */
f8_status f8_rows_fit(f8_rows *r, const f8_data_options *options, const fp8c_program *program,
                      int function, f8_diag *diag);
/* Fills the inputs of a function with batch number `batch` of the training rows. An epoch takes
 * each row once, in an order that depends on the seed and the number of the epoch alone; batches go
 * on across its end. Fails if a file can't be read any more. */
f8_status f8_rows_draw(const f8_rows *r, fp8c_program *program, int function, uint64_t seed,
                       uint64_t batch, f8_diag *diag);
/* Which row of the files is row `row` of a batch. */
uint64_t f8_rows_place(const f8_rows *r, uint64_t seed, uint64_t batch, int64_t row);
/* Puts row `from` of the files into row `to` of the inputs. */
f8_status f8_rows_put(const f8_rows *r, fp8c_program *program, int function, uint64_t from,
                      int64_t to, f8_diag *diag);
/* Fills the inputs with batch number `batch` of the held-out rows, in their order. If they are
 * fewer than B, they are repeated. */
f8_status f8_rows_held_out(const f8_rows *r, fp8c_program *program, int function, uint64_t batch,
                           f8_diag *diag);
/* How many whole batches the held-out rows have, at least 1. */
uint64_t f8_rows_held_out_batches(const f8_rows *r);

#endif
