/* The data of a command: see cmd_data.h. */
#include "frontend/cli/cmd_data.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

bool cli_data_given(const cli *c)
{
    return c->data.n || c->batches.n;
}

bool cli_data_open(cli_data *d, const cli *c)
{
    *d = (cli_data){.by_rows = c->batches.n > 0, .ranks = c->ranks};
    return d->by_rows ? cli_rows_open(&d->rows, c) : cli_corpus_open(&d->corpus, c);
}

void cli_data_close(cli_data *d)
{
    cli_corpus_close(&d->corpus);
    cli_rows_close(&d->rows);
}

bool cli_data_fit(cli_data *d, const cli *c, const fp8c_module *module,
                  const fp8c_program *program, int function)
{
    return d->by_rows ? cli_rows_fit(&d->rows, c, program, function)
                      : cli_corpus_cut(&d->corpus, c, module, program, function);
}

/* ---- batches ---- */

bool cli_data_fill(cli_data *d, fp8c_program *program, int function, uint64_t seed, uint64_t batch)
{
    const bool ok =
        d->by_rows ? cli_rows_draw(&d->rows, program, function, seed, batch)
                   : cli_corpus_draw(&d->corpus, seed, batch,
                                     cli_buffer(program, function, FP8C_INPUT, "tokens"),
                                     cli_buffer(program, function, FP8C_INPUT, "targets"));
    d->failed |= !ok;
    return ok;
}

int64_t cli_data_rows(const cli_data *d)
{
    return d->by_rows ? d->rows.B : d->corpus.B;
}

uint64_t cli_data_place(const cli_data *d, uint64_t seed, uint64_t batch, int64_t row)
{
    return d->by_rows ? cli_rows_place(&d->rows, seed, batch, row)
                      : cli_corpus_place(&d->corpus, seed, batch, row);
}

bool cli_data_put(cli_data *d, fp8c_program *program, int function, uint64_t place, int64_t row)
{
    const bool ok = d->by_rows
                        ? cli_rows_put(&d->rows, program, function, place, row)
                        : cli_corpus_put(&d->corpus, place, row,
                                         cli_buffer(program, function, FP8C_INPUT, "tokens"),
                                         cli_buffer(program, function, FP8C_INPUT, "targets"));
    d->failed |= !ok;
    return ok;
}

static bool fill_held_out(cli_data *d, fp8c_program *program, int eval, uint64_t batch)
{
    const bool ok =
        d->by_rows ? cli_rows_held_out(&d->rows, program, eval, batch)
                   : cli_corpus_held_out(&d->corpus, batch,
                                         cli_buffer(program, eval, FP8C_INPUT, "tokens"),
                                         cli_buffer(program, eval, FP8C_INPUT, "targets"));
    d->failed |= !ok;
    return ok;
}

fp8c_status cli_held_out(cli_data *d, fp8c_program *program, int eval, double *loss,
                         int64_t *batches)
{
    const float *value = cli_buffer(program, eval, FP8C_OUTPUT, "loss");
    const uint64_t has = d->by_rows ? cli_rows_held_out_batches(&d->rows)
                                    : cli_corpus_held_out_batches(&d->corpus),
                   n = has < CLI_HELD_OUT_BATCHES ? has : CLI_HELD_OUT_BATCHES;
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (!fill_held_out(d, program, eval, i))
            return FP8C_ERR_IO;
        const fp8c_status status =
            cli_ranks_stop(d->ranks) ? FP8C_ERR_CANCELLED : fp8c_program_run(program, eval);
        if (status != FP8C_OK)
            return status;
        sum += *value;
    }
    *loss = sum / (double)n;
    *batches = (int64_t)n;
    return FP8C_OK;
}

/* ---- what is said of the data ---- */

int64_t cli_data_items(const cli_data *d)
{
    return d->by_rows ? (int64_t)d->rows.share.rows : (int64_t)d->corpus.share.rows * d->corpus.T;
}

const char *cli_data_items_name(const cli_data *d)
{
    return d->by_rows ? "rows" : "tokens";
}

const char *cli_data_unit(const cli_data *d)
{
    return d->by_rows ? "rows" : d->corpus.tokens.text ? "bytes" : "tokens";
}

/* By the names of the inputs. */
static json_t *row_hashes(const cli_row_files *f)
{
    char text[33];
    json_t *all = json_object();
    for (size_t i = 0; all && i < f->n; i++)
        if (json_object_set_new(all, f->file[i].name,
                                json_string(f8_hash_text(f->hash[i], text)))) {
            json_decref(all);
            return NULL;
        }
    return all;
}

json_t *cli_data_facts(const cli_data *d)
{
    char unigram[40], hash[33], validation_hash[33];
    if (d->by_rows)
        return json_pack("{sI sI so so}", "rows", (json_int_t)d->rows.data.rows, "validation",
                         (json_int_t)d->rows.validation.rows, "hash", row_hashes(&d->rows.data),
                         "validation_hash", row_hashes(&d->rows.validation));
    snprintf(unigram, sizeof unigram, "%a", d->corpus.unigram);
    return json_pack("{sI sI ss ss ss}", "tokens", (json_int_t)d->corpus.tokens.n, "validation",
                     (json_int_t)d->corpus.validation.n, "unigram_entropy_hex", unigram, "hash",
                     f8_hash_text(d->corpus.hash, hash), "validation_hash",
                     f8_hash_text(d->corpus.validation_hash, validation_hash));
}

bool cli_data_agreed(const cli_data *d, const cli *c)
{
    if (!c->ranks)
        return true;
    json_t *facts = cli_data_facts(d);
    char *text = facts ? json_dumps(facts, JSON_SORT_KEYS) : NULL;
    const bool ok = text && cli_ranks_agree(c->ranks, "the data", text);
    if (!text)
        fprintf(stderr, "error: out of memory\n");
    free(text);
    json_decref(facts);
    return ok;
}

double cli_data_unigram(const cli_data *d)
{
    return d->by_rows ? NAN : d->corpus.unigram;
}

const char *cli_data_shown(const cli_data *d)
{
    return d->by_rows ? d->rows.data.file->path : d->corpus.tokens.shown;
}

const char *cli_data_held_out_shown(const cli_data *d)
{
    if (d->by_rows)
        return d->rows.validation.n ? d->rows.validation.file->path : cli_data_shown(d);
    return d->corpus.validation.n_shards ? d->corpus.validation.shown : cli_data_shown(d);
}

const char *cli_data_losses(const cli_data *d)
{
    return d->by_rows              ? "losses are means over batches"
           : d->corpus.tokens.text ? "losses in nats per byte"
                                   : "losses in nats per token";
}

const char *cli_data_compared(const cli_data *d, char text[80])
{
    text[0] = 0;
    if (!d->by_rows)
        snprintf(text, 80, "; the %s unigram entropy is %.4f",
                 d->corpus.tokens.text ? "text's" : "tokens'", d->corpus.unigram);
    return text;
}
