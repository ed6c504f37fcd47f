/* Tokens cut into windows: see cmd_corpus.h. */
#include "frontend/train/data/corpus.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "frontend/train/data/mix.h"

bool cli_corpus_open(cli_corpus *c, const cli *options)
{
    *c = (cli_corpus){0};
    return cli_tokens_open(&c->tokens, &options->data, options->tokens) &&
           (!options->validation.n ||
            cli_tokens_open(&c->validation, &options->validation, options->tokens));
}

void cli_corpus_close(cli_corpus *c)
{
    cli_tokens_close(&c->tokens);
    cli_tokens_close(&c->validation);
}

/* ---- cutting ---- */

static double entropy(const uint64_t *count, int64_t vocabulary, uint64_t n)
{
    double h = 0;
    for (int64_t i = 0; i < vocabulary; i++)
        if (count[i] > 0)
            h -= (double)count[i] / (double)n * log((double)count[i] / (double)n);
    return h;
}

static bool too_few(const cli_tokens *t, uint64_t window, uint64_t needed, const char *why)
{
    fprintf(stderr,
            "%s: error: the %s only %" PRIu64 " %s: a sequence takes %" PRIu64
            "%s, so at least %" PRIu64 " are needed\n",
            t->shown, t->text ? "text has" : "files have", t->n, t->text ? "bytes" : "tokens",
            window, why, needed);
    return false;
}

/* Whether all tokens are in the vocabulary; the entropy of those of --data. */
static bool check_tokens(cli_corpus *c, int64_t vocabulary)
{
    uint64_t *count = calloc((size_t)vocabulary, sizeof *count);
    if (!count)
        fprintf(stderr, "error: out of memory: a vocabulary of %" PRId64 "\n", vocabulary);
    bool ok = count && cli_tokens_count(&c->tokens, vocabulary, count, &c->hash);
    if (ok)
        c->unigram = entropy(count, vocabulary, c->tokens.n);
    ok = ok && cli_tokens_count(&c->validation, vocabulary, count, &c->validation_hash);
    free(count);
    return ok;
}

static bool cut(cli_corpus *c, int64_t vocabulary)
{
    const uint64_t window = (uint64_t)c->T + 1, n = c->tokens.n;
    if (c->validation.n_shards) {
        c->train = n;
        if (n < window)
            return too_few(&c->tokens, window, window, "");
        if (c->validation.n < window)
            return too_few(&c->validation, window, window, "");
    } else {
        c->train = n - n / 10;
        if (c->train < window || n - c->train < window)
            return too_few(&c->tokens, window, 10 * window,
                           ", and a tenth of the text is held out");
    }
    return check_tokens(c, vocabulary);
}

/* Whether there is a port `name` of that type. A size of 0 in `type` stands for any size, and is
 * replaced by the port's. */
static bool has_port(const fp8c_program *program, int function, fp8c_side side, const char *name,
                     fp8c_type *type)
{
    fp8c_port port;
    const int index = fp8c_program_find_port(program, function, side, name);
    if (index < 0 || fp8c_program_port(program, function, side, index, &port) != FP8C_OK ||
        port.type.dtype != type->dtype || port.type.rank != type->rank)
        return false;
    for (int i = 0; i < type->rank; i++) {
        if (type->dim[i] && type->dim[i] != port.type.dim[i])
            return false;
        type->dim[i] = port.type.dim[i];
    }
    return true;
}

bool cli_corpus_cut(cli_corpus *c, const cli *options, const fp8c_module *module,
                    const fp8c_program *program, int function)
{
    fp8c_type tokens = {.dtype = FP8C_I32, .rank = 2}, loss = {.dtype = FP8C_F32};
    if (!has_port(program, function, FP8C_INPUT, "tokens", &tokens) ||
        !has_port(program, function, FP8C_INPUT, "targets", &tokens) ||
        !has_port(program, function, FP8C_OUTPUT, "loss", &loss)) {
        fprintf(stderr,
                "%s: error: %s needs a function forward(%%tokens, %%targets) with two inputs "
                "i32[B, T], whose first result is the loss, f32[]\n",
                options->file, options->command);
        return false;
    }
    const int64_t vocabulary = fp8c_module_dim(module, "V");
    if (c->T != 0) /* already cut, for another recipe of the same module */
        return true;
    c->B = tokens.dim[0];
    c->T = tokens.dim[1];
    c->share = cli_share_of(options, c->B);
    return cut(c, vocabulary > 0 ? vocabulary : 256);
}

/* ---- batches ---- */

/* The window at token `at` as row `row` of tokens and targets, both [B, T]. */
static bool window(const cli_corpus *c, const cli_tokens *from, uint64_t at, int64_t row,
                   int32_t *tokens, int32_t *targets)
{
    const uint64_t T = (uint64_t)c->T;
    return cli_tokens_get(from, at, tokens + row * c->T, T) &&
           cli_tokens_get(from, at + 1, targets + row * c->T, T);
}

uint64_t cli_corpus_place(const cli_corpus *c, uint64_t seed, uint64_t batch, int64_t row)
{
    const uint64_t draw = cli_share_place(&c->share, batch, row);
    return cli_mix(cli_mix(seed) + draw) % (c->train - (uint64_t)c->T);
}

bool cli_corpus_put(const cli_corpus *c, uint64_t at, int64_t row, int32_t *tokens,
                    int32_t *targets)
{
    return window(c, &c->tokens, at, row, tokens, targets);
}

bool cli_corpus_draw(const cli_corpus *c, uint64_t seed, uint64_t batch, int32_t *tokens,
                     int32_t *targets)
{
    bool ok = true;
    for (int64_t row = 0; row < c->B && ok; row++)
        ok = cli_corpus_put(c, cli_corpus_place(c, seed, batch, row), row, tokens, targets);
    return ok;
}

/* The held-out tokens: where they begin in `from`, and how many windows follow each other there. */
static const cli_tokens *held_out(const cli_corpus *c, uint64_t *begin, uint64_t *windows)
{
    const cli_tokens *from = c->validation.n_shards ? &c->validation : &c->tokens;
    *begin = c->validation.n_shards ? 0 : c->train;
    *windows = (from->n - *begin - 1) / (uint64_t)c->T;
    return from;
}

bool cli_corpus_held_out(const cli_corpus *c, uint64_t batch, int32_t *tokens, int32_t *targets)
{
    uint64_t begin, windows;
    const cli_tokens *from = held_out(c, &begin, &windows);
    bool ok = true;
    for (int64_t row = 0; row < c->B && ok; row++) {
        const uint64_t at = cli_share_place(&c->share, batch, row) % windows;
        ok = window(c, from, begin + at * (uint64_t)c->T, row, tokens, targets);
    }
    return ok;
}

uint64_t cli_corpus_held_out_batches(const cli_corpus *c)
{
    uint64_t begin, windows;
    held_out(c, &begin, &windows);
    return windows < 2 * c->share.rows ? 1 : windows / c->share.rows;
}
