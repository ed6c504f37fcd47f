/* The bytes of a text as tokens for training and evaluation. The last tenth of the text is held
 * out. train and eval share this file, so that both compute the same held-out loss. */
#ifndef F8_CMD_CORPUS_H
#define F8_CMD_CORPUS_H

#include "frontend/cli/cmd.h"

/* The text is cut into windows of T + 1 bytes: T tokens and their successors. All fields are 0
 * before cli_corpus_read. */
typedef struct cli_corpus {
    unsigned char *bytes;
    size_t size, train; /* bytes [0, train) are for training, the others are held out */
    int64_t B, T;       /* 0 before cli_corpus_cut */
    double unigram; /* entropy of single bytes, in nats: the best loss of a model that ignores their
                       order */
} cli_corpus;

/* false after a message on stderr: the file cannot be read. */
bool cli_corpus_read(cli_corpus *c, const char *path);
void cli_corpus_free(cli_corpus *c);
/* Cuts the bytes for a function with the inputs `tokens` and `targets`, i32 [B, T], and the output
 * `loss`, f32 []. The size of the vocabulary is the module's dim V, or 256 without one. false after
 * a message on stderr: the function has no such ports, the text is too short, or a byte is outside
 * the vocabulary. */
bool cli_corpus_cut(cli_corpus *c, const cli *options, const fp8c_module *module,
                    const fp8c_program *program, int function);
/* Draws a window of the training part by the seed and the number of the draw. Writes it as row
 * `row` of tokens and targets, both [B, T]. */
void cli_corpus_draw(const cli_corpus *c, uint64_t seed, uint64_t draw, int64_t row,
                     int32_t *tokens, int32_t *targets);

/* The mean loss that `eval` gives for the held-out part, in nats per byte, over whole batches of
 * windows in their order, at most 16. If there are fewer windows than B, they are repeated. */
fp8c_status cli_held_out(const cli_corpus *c, fp8c_program *program, int eval, double *loss,
                         int64_t *batches);

/* The program's own buffer for the port of that name; NULL if there is no such port. */
void *cli_buffer(fp8c_program *program, int function, fp8c_side side, const char *name);

#endif
