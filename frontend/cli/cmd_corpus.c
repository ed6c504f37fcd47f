/* The bytes of a text as tokens: see cmd_corpus.h. */
#include "frontend/cli/cmd_corpus.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { EVAL_BATCHES = 16 };

static double unigram_entropy(const cli_corpus *c)
{
    double count[256] = {0}, h = 0;
    for (size_t i = 0; i < c->size; i++)
        count[c->bytes[i]]++;
    for (int i = 0; i < 256; i++)
        if (count[i] > 0)
            h -= count[i] / (double)c->size * log(count[i] / (double)c->size);
    return h;
}

bool cli_corpus_read(cli_corpus *c, const char *path)
{
    *c = (cli_corpus){0};
    c->bytes = (unsigned char *)cli_read_file(path, &c->size);
    return c->bytes != NULL;
}

void cli_corpus_free(cli_corpus *c)
{
    free(c->bytes);
    c->bytes = NULL;
}

static bool cut(cli_corpus *c, const char *path, int64_t vocabulary)
{
    const size_t window = (size_t)c->T + 1;
    c->train = c->size - c->size / 10;
    if (c->train < window || c->size - c->train < window) {
        fprintf(
            stderr,
            "%s: error: the text has only %zu bytes: a sequence takes %zu, and a tenth of the text "
            "is held out, so at least %zu are needed\n",
            path, c->size, window, 10 * window);
        return false;
    }
    for (size_t i = 0; i < c->size; i++)
        if (c->bytes[i] >= vocabulary) {
            fprintf(stderr,
                    "%s: error: byte %d at offset %zu is outside the model's vocabulary of %" PRId64
                    "\n",
                    path, c->bytes[i], i, vocabulary);
            return false;
        }
    c->unigram = unigram_entropy(c);
    return true;
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
    return cut(c, options->data, vocabulary > 0 ? vocabulary : 256);
}

/* The window at byte `at` as row `row` of tokens and targets, both [B, T]. */
static void window(const cli_corpus *c, size_t at, int64_t row, int32_t *tokens, int32_t *targets)
{
    for (int64_t t = 0; t < c->T; t++) {
        tokens[row * c->T + t] = c->bytes[at + (size_t)t];
        targets[row * c->T + t] = c->bytes[at + (size_t)t + 1];
    }
}

void *cli_buffer(fp8c_program *program, int function, fp8c_side side, const char *name)
{
    return fp8c_program_buffer(program, function, side,
                               fp8c_program_find_port(program, function, side, name));
}

static uint64_t mix(uint64_t x) /* splitmix64 */
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void cli_corpus_draw(const cli_corpus *c, uint64_t seed, uint64_t draw, int64_t row,
                     int32_t *tokens, int32_t *targets)
{
    window(c, mix(mix(seed) + draw) % (c->train - (size_t)c->T), row, tokens, targets);
}

fp8c_status cli_held_out(const cli_corpus *c, fp8c_program *program, int eval, double *loss,
                         int64_t *batches)
{
    int32_t *tokens = cli_buffer(program, eval, FP8C_INPUT, "tokens");
    int32_t *targets = cli_buffer(program, eval, FP8C_INPUT, "targets");
    const float *value = cli_buffer(program, eval, FP8C_OUTPUT, "loss");
    const size_t windows = (c->size - c->train - 1) / (size_t)c->T;
    double sum = 0;
    int64_t n = 0;
    for (size_t at = 0; n < EVAL_BATCHES && (n == 0 || at + (size_t)c->B <= windows); n++) {
        for (int64_t b = 0; b < c->B; b++, at++)
            window(c, c->train + at % windows * (size_t)c->T, b, tokens, targets);
        const fp8c_status status =
            cli_interrupted() ? FP8C_ERR_CANCELLED : fp8c_program_run(program, eval);
        if (status != FP8C_OK)
            return status;
        sum += *value;
    }
    *loss = sum / (double)n;
    *batches = n;
    return FP8C_OK;
}
