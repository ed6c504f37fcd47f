/* Tokens cut into windows: see corpus.h. */
#include "frontend/train/data/corpus.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "frontend/train/data/mix.h"
#include "ir/base/file.h"

f8_status f8_corpus_open(f8_corpus *c, const f8_data_options *o, f8_diag *diag)
{
    *c = (f8_corpus){0};
    F8_TRY(f8_tokens_open(&c->tokens, o->files, o->n_files, o, diag));
    return o->n_validation ? f8_tokens_open(&c->validation, o->validation, o->n_validation, o, diag)
                           : F8_OK;
}

void f8_corpus_close(f8_corpus *c)
{
    f8_tokens_close(&c->tokens);
    f8_tokens_close(&c->validation);
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

static f8_status too_few(const f8_tokens *t, uint64_t window, uint64_t needed, const char *why,
                         f8_diag *diag)
{
    return f8_file_fail(diag, F8_ERR_INPUT, t->shown,
                        "the %s only %" PRIu64 " %s: a sequence takes %" PRIu64
                        "%s, so at least %" PRIu64 " are needed",
                        t->text ? "text has" : "files have", t->n, t->text ? "bytes" : "tokens",
                        window, why, needed);
}

/* Whether all tokens are in the vocabulary; the entropy of those to train on. */
static f8_status check_tokens(f8_corpus *c, int64_t vocabulary, const f8_stop *stop, f8_diag *diag)
{
    uint64_t *count = calloc((size_t)vocabulary, sizeof *count);
    if (!count)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: a vocabulary of %" PRId64,
                       vocabulary);
    f8_status status = f8_tokens_count(&c->tokens, vocabulary, stop, count, &c->hash, diag);
    if (status == F8_OK) {
        c->unigram = entropy(count, vocabulary, c->tokens.n);
        status =
            f8_tokens_count(&c->validation, vocabulary, stop, count, &c->validation_hash, diag);
    }
    free(count);
    return status;
}

static f8_status cut(f8_corpus *c, int64_t vocabulary, const f8_stop *stop, f8_diag *diag)
{
    const uint64_t window = (uint64_t)c->T + 1, n = c->tokens.n;
    if (c->validation.n_shards) {
        c->train = n;
        if (n < window)
            return too_few(&c->tokens, window, window, "", diag);
        if (c->validation.n < window)
            return too_few(&c->validation, window, window, "", diag);
    } else {
        c->train = n - n / 10;
        if (c->train < window || n - c->train < window)
            return too_few(&c->tokens, window, 10 * window, ", and a tenth of the text is held out",
                           diag);
    }
    return check_tokens(c, vocabulary, stop, diag);
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

f8_status f8_corpus_cut(f8_corpus *c, const f8_data_options *o, const fp8c_module *module,
                        const fp8c_program *program, int function, f8_diag *diag)
{
    fp8c_type tokens = {.dtype = FP8C_I32, .rank = 2}, loss = {.dtype = FP8C_F32};
    if (!has_port(program, function, FP8C_INPUT, "tokens", &tokens) ||
        !has_port(program, function, FP8C_INPUT, "targets", &tokens) ||
        !has_port(program, function, FP8C_OUTPUT, "loss", &loss))
        return f8_file_fail(
            diag, F8_ERR_INPUT, o->model,
            "%s needs a function forward(%%tokens, %%targets) with two inputs i32[B, T], whose "
            "first result is the loss, f32[]",
            o->needs);
    const int64_t vocabulary = fp8c_module_dim(module, "V");
    if (c->T != 0) /* already cut, for another recipe of the same module */
        return F8_OK;
    c->B = tokens.dim[0];
    c->T = tokens.dim[1];
    c->share = f8_data_share(o, c->B);
    const f8_status status = cut(c, vocabulary > 0 ? vocabulary : 256, &o->stop, diag);
    if (status != F8_OK)
        c->T = 0;
    return status;
}

/* ---- batches ---- */

/* The window at token `at` as row `row` of tokens and targets, both [B, T]. */
static f8_status window(const f8_corpus *c, const f8_tokens *from, uint64_t at, int64_t row,
                        int32_t *tokens, int32_t *targets, f8_diag *diag)
{
    const uint64_t T = (uint64_t)c->T;
    F8_TRY(f8_tokens_get(from, at, tokens + row * c->T, T, diag));
    return f8_tokens_get(from, at + 1, targets + row * c->T, T, diag);
}

uint64_t f8_corpus_place(const f8_corpus *c, uint64_t seed, uint64_t batch, int64_t row)
{
    const uint64_t draw = f8_share_place(&c->share, batch, row);
    return f8_mix(f8_mix(seed) + draw) % (c->train - (uint64_t)c->T);
}

f8_status f8_corpus_put(const f8_corpus *c, uint64_t at, int64_t row, int32_t *tokens,
                        int32_t *targets, f8_diag *diag)
{
    return window(c, &c->tokens, at, row, tokens, targets, diag);
}

f8_status f8_corpus_draw(const f8_corpus *c, uint64_t seed, uint64_t batch, int32_t *tokens,
                         int32_t *targets, f8_diag *diag)
{
    for (int64_t row = 0; row < c->B; row++)
        F8_TRY(f8_corpus_put(c, f8_corpus_place(c, seed, batch, row), row, tokens, targets, diag));
    return F8_OK;
}

/* The held-out tokens: where they begin in `from`, and how many windows follow each other there. */
static const f8_tokens *held_out(const f8_corpus *c, uint64_t *begin, uint64_t *windows)
{
    const f8_tokens *from = c->validation.n_shards ? &c->validation : &c->tokens;
    *begin = c->validation.n_shards ? 0 : c->train;
    *windows = (from->n - *begin - 1) / (uint64_t)c->T;
    return from;
}

f8_status f8_corpus_held_out(const f8_corpus *c, uint64_t batch, int32_t *tokens, int32_t *targets,
                             f8_diag *diag)
{
    uint64_t begin, windows;
    const f8_tokens *from = held_out(c, &begin, &windows);
    for (int64_t row = 0; row < c->B; row++) {
        const uint64_t at = f8_share_place(&c->share, batch, row) % windows;
        F8_TRY(window(c, from, begin + at * (uint64_t)c->T, row, tokens, targets, diag));
    }
    return F8_OK;
}

uint64_t f8_corpus_held_out_batches(const f8_corpus *c)
{
    uint64_t begin, windows;
    held_out(c, &begin, &windows);
    return f8_share_batches(&c->share, windows);
}
