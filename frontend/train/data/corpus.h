/* Tokens cut into windows for training and evaluation. train and eval share this file, so that both
 * compute the same held-out loss. */
#ifndef F8_CORPUS_H
#define F8_CORPUS_H

#include "frontend/fp8c.h"
#include "frontend/train/data/tokens.h"

/* A window has T + 1 tokens: T tokens and their successors. Windows lie in the stream of tokens
 * wherever they fall, also across two files. All fields are 0 before f8_corpus_open. */
typedef struct f8_corpus {
    f8_tokens tokens, validation; /* validation: no shards without such files */
    uint64_t train; /* tokens [0, train) are for training; the others are held out, unless there are
                       validation files, which then are */
    int64_t B, T;   /* 0 before f8_corpus_cut */
    f8_share share; /* of a batch of all ranks */
    f8_hash hash, validation_hash; /* of all tokens: tokens.h */
    double unigram; /* entropy of single tokens, in nats: the best loss of a model that ignores
                       their order */
} f8_corpus;

/* Opens options->files and the validation files. diag->file may be memory of `c` here and below.
 * Close it in any case. */
f8_status f8_corpus_open(f8_corpus *c, const f8_data_options *options, f8_diag *diag);
void f8_corpus_close(f8_corpus *c);
/* Cuts the tokens for a function with the inputs `tokens` and `targets`, i32 [B, T], and the output
 * `loss`, f32 []. The size of the vocabulary is the module's dim V, or 256 without one. Fails if
 * the function has no such ports, there are too few tokens, or one is outside the vocabulary. */
f8_status f8_corpus_cut(f8_corpus *c, const f8_data_options *options, const fp8c_module *module,
                        const fp8c_program *program, int function, f8_diag *diag);
/* Fills tokens and targets, both [B, T], with batch number `batch` of the training tokens: B
 * windows at random places. The places depend on the seed and the number alone. Fails if a file
 * can't be read any more. */
f8_status f8_corpus_draw(const f8_corpus *c, uint64_t seed, uint64_t batch, int32_t *tokens,
                         int32_t *targets, f8_diag *diag);
/* Where the window of row `row` of a batch begins. */
uint64_t f8_corpus_place(const f8_corpus *c, uint64_t seed, uint64_t batch, int64_t row);
/* Puts the window that begins at token `at` into row `row`. */
f8_status f8_corpus_put(const f8_corpus *c, uint64_t at, int64_t row, int32_t *tokens,
                        int32_t *targets, f8_diag *diag);
/* Fills both with batch number `batch` of the held-out tokens, whose windows follow each other. If
 * they are fewer than B, they are repeated. */
f8_status f8_corpus_held_out(const f8_corpus *c, uint64_t batch, int32_t *tokens, int32_t *targets,
                             f8_diag *diag);
/* How many whole batches of windows the held-out tokens have, at least 1. */
uint64_t f8_corpus_held_out_batches(const f8_corpus *c);

#endif
