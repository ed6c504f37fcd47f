/* The bytes of a text as what a language model is trained and judged on: the last tenth is held
 * out. train and eval share this, so that a held-out loss is the same number from either. */
#ifndef F8_CMD_CORPUS_H
#define F8_CMD_CORPUS_H

#include "frontend/cli/cmd.h"

/* Cut into windows of T + 1 bytes: T tokens and their successors. Zero before cli_corpus_read. */
typedef struct cli_corpus {
    unsigned char *bytes;
    size_t size, train; /* [0, train) to train on, the rest held out */
    int64_t B, T;       /* 0 before cli_corpus_cut */
    double
        unigram; /* entropy of single bytes, in nats: what a model that ignores order can reach */
} cli_corpus;

/* A message on stderr and false: the file can't be read. */
bool cli_corpus_read(cli_corpus *c, const char *path);
void cli_corpus_free(cli_corpus *c);
/* Cut the bytes for a function with the inputs `tokens` and `targets`, i32 [B, T], and the output
 * `loss`. The module's dim V, else 256, is how large its vocabulary is. A message on stderr and
 * false: it has no such ports, the bytes are too few, or one is beyond the vocabulary. */
bool cli_corpus_cut(cli_corpus *c, const cli *options, const fp8c_module *module,
                    const fp8c_program *program, int function);
/* A window of the part to train on, drawn by seed and the number of the draw, as row `row` of
 * tokens and targets, both [B, T]. */
void cli_corpus_draw(const cli_corpus *c, uint64_t seed, uint64_t draw, int64_t row,
                     int32_t *tokens, int32_t *targets);

/* The mean loss over the held-out part by `eval`, in nats a byte: its windows in order, whole
 * batches and at most 16 of them; of fewer windows than B the first ones again. */
fp8c_status cli_held_out(const cli_corpus *c, fp8c_program *program, int eval, double *loss,
                         int64_t *batches);

/* The program's own buffer of a port, by name; NULL: there is none. */
void *cli_buffer(fp8c_program *program, int function, fp8c_side side, const char *name);

#endif
