/* Tokens cut into windows for training and evaluation. train and eval share this file, so that both
 * compute the same held-out loss. */
#ifndef F8_CMD_CORPUS_H
#define F8_CMD_CORPUS_H

#include "frontend/cli/cmd_ranks.h"
#include "frontend/cli/cmd_tokens.h"

/* A window has T + 1 tokens: T tokens and their successors. Windows lie in the stream of tokens
 * wherever they fall, also across two files. All fields are 0 before cli_corpus_open. */
typedef struct cli_corpus {
    cli_tokens tokens, validation; /* validation: no shards without --validation */
    uint64_t train; /* tokens [0, train) are for training; the others are held out, unless there are
                       validation files, which then are */
    int64_t B, T;   /* 0 before cli_corpus_cut */
    cli_share share; /* of a batch of all ranks */
    f8_hash hash, validation_hash; /* of all tokens: cmd_tokens.h */
    double unigram; /* entropy of single tokens, in nats: the best loss of a model that ignores
                       their order */
} cli_corpus;

/* Opens the files of --data and --validation as --tokens says. false after a message on stderr. */
bool cli_corpus_open(cli_corpus *c, const cli *options);
void cli_corpus_close(cli_corpus *c);
/* Cuts the tokens for a function with the inputs `tokens` and `targets`, i32 [B, T], and the output
 * `loss`, f32 []. The size of the vocabulary is the module's dim V, or 256 without one. false after
 * a message on stderr: the function has no such ports, there are too few tokens, or one is outside
 * the vocabulary; and after a signal. */
bool cli_corpus_cut(cli_corpus *c, const cli *options, const fp8c_module *module,
                    const fp8c_program *program, int function);
/* Fills tokens and targets, both [B, T], with batch number `batch` of the training tokens: B
 * windows at random places. The places depend on the seed and the number alone. false after a
 * message on stderr: a file can't be read any more. */
bool cli_corpus_draw(const cli_corpus *c, uint64_t seed, uint64_t batch, int32_t *tokens,
                     int32_t *targets);
/* Where the window of row `row` of a batch begins. */
uint64_t cli_corpus_place(const cli_corpus *c, uint64_t seed, uint64_t batch, int64_t row);
/* Puts the window that begins at token `at` into row `row`. false after a message on stderr. */
bool cli_corpus_put(const cli_corpus *c, uint64_t at, int64_t row, int32_t *tokens,
                    int32_t *targets);
/* Fills both with batch number `batch` of the held-out tokens, whose windows follow each other. If
 * they are fewer than B, they are repeated. */
bool cli_corpus_held_out(const cli_corpus *c, uint64_t batch, int32_t *tokens, int32_t *targets);
/* How many whole batches of windows the held-out tokens have, at least 1. */
uint64_t cli_corpus_held_out_batches(const cli_corpus *c);

#endif
