/* The data of a training or an evaluation: see data.h. */
#include "frontend/train/data/data.h"

#include <math.h>
#include <stdio.h>

#include "ir/base/format.h"

f8_status f8_data_open(f8_data *d, const f8_data_options *options, f8_diag *diag)
{
    *d = (f8_data){.options = *options, .by_rows = options->n_batches > 0};
    return d->by_rows ? f8_rows_open(&d->rows, &d->options, diag)
                      : f8_corpus_open(&d->corpus, &d->options, diag);
}

void f8_data_close(f8_data *d)
{
    f8_corpus_close(&d->corpus);
    f8_rows_close(&d->rows);
}

f8_status f8_data_fit(f8_data *d, const fp8c_module *module, const fp8c_program *program,
                      int function, f8_diag *diag)
{
    return d->by_rows ? f8_rows_fit(&d->rows, &d->options, program, function, diag)
                      : f8_corpus_cut(&d->corpus, &d->options, module, program, function, diag);
}

/* ---- batches ---- */

void *f8_data_buffer(fp8c_program *program, int function, fp8c_side side, const char *name)
{
    return fp8c_program_buffer(program, function, side,
                               fp8c_program_find_port(program, function, side, name));
}

/* Notes in `failed` how reading ended. */
static f8_status noted(f8_data *d, f8_status status)
{
    d->failed |= status != F8_OK;
    return status;
}

f8_status f8_data_fill(f8_data *d, fp8c_program *program, int function, uint64_t seed,
                       uint64_t batch, f8_diag *diag)
{
    return noted(d, d->by_rows
                        ? f8_rows_draw(&d->rows, program, function, seed, batch, diag)
                        : f8_corpus_draw(&d->corpus, seed, batch,
                                         f8_data_buffer(program, function, FP8C_INPUT, "tokens"),
                                         f8_data_buffer(program, function, FP8C_INPUT, "targets"),
                                         diag));
}

int64_t f8_data_rows(const f8_data *d)
{
    return d->by_rows ? d->rows.B : d->corpus.B;
}

uint64_t f8_data_place(const f8_data *d, uint64_t seed, uint64_t batch, int64_t row)
{
    return d->by_rows ? f8_rows_place(&d->rows, seed, batch, row)
                      : f8_corpus_place(&d->corpus, seed, batch, row);
}

f8_status f8_data_put(f8_data *d, fp8c_program *program, int function, uint64_t place, int64_t row,
                      f8_diag *diag)
{
    return noted(d, d->by_rows
                        ? f8_rows_put(&d->rows, program, function, place, row, diag)
                        : f8_corpus_put(&d->corpus, place, row,
                                        f8_data_buffer(program, function, FP8C_INPUT, "tokens"),
                                        f8_data_buffer(program, function, FP8C_INPUT, "targets"),
                                        diag));
}

f8_status f8_data_fill_held_out(f8_data *d, fp8c_program *program, int function, uint64_t batch,
                                f8_diag *diag)
{
    return noted(
        d, d->by_rows ? f8_rows_held_out(&d->rows, program, function, batch, diag)
                      : f8_corpus_held_out(&d->corpus, batch,
                                           f8_data_buffer(program, function, FP8C_INPUT, "tokens"),
                                           f8_data_buffer(program, function, FP8C_INPUT, "targets"),
                                           diag));
}

fp8c_status f8_data_held_out(f8_data *d, fp8c_program *program, int eval, double *loss,
                             int64_t *batches, f8_diag *diag)
{
    const float *value = f8_data_buffer(program, eval, FP8C_OUTPUT, "loss");
    const uint64_t has = d->by_rows ? f8_rows_held_out_batches(&d->rows)
                                    : f8_corpus_held_out_batches(&d->corpus),
                   n = has < F8_HELD_OUT_BATCHES ? has : F8_HELD_OUT_BATCHES;
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (f8_data_fill_held_out(d, program, eval, i, diag) != F8_OK)
            return FP8C_ERR_IO;
        const fp8c_status status = f8_stop_asked(&d->options.stop_together)
                                       ? FP8C_ERR_CANCELLED
                                       : fp8c_program_run(program, eval);
        if (status != FP8C_OK)
            return status;
        sum += *value;
    }
    *loss = sum / (double)n;
    *batches = (int64_t)n;
    return FP8C_OK;
}

/* ---- what is said of the data ---- */

int64_t f8_data_items(const f8_data *d)
{
    return d->by_rows ? (int64_t)d->rows.share.rows : (int64_t)d->corpus.share.rows * d->corpus.T;
}

const char *f8_data_items_name(const f8_data *d)
{
    return d->by_rows ? "rows" : "tokens";
}

const char *f8_data_unit(const f8_data *d)
{
    return d->by_rows ? "rows" : d->corpus.tokens.text ? "bytes" : "tokens";
}

/* By the names of the inputs. */
static json_t *row_hashes(const f8_row_files *f)
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

json_t *f8_data_facts(const f8_data *d)
{
    char unigram[40], hash[33], validation_hash[33];
    if (d->by_rows)
        return json_pack("{sI sI so so}", "rows", (json_int_t)d->rows.data.rows, "validation",
                         (json_int_t)d->rows.validation.rows, "hash", row_hashes(&d->rows.data),
                         "validation_hash", row_hashes(&d->rows.validation));
    f8_format(unigram, sizeof unigram, "%a", d->corpus.unigram);
    return json_pack("{sI sI ss ss ss}", "tokens", (json_int_t)d->corpus.tokens.n, "validation",
                     (json_int_t)d->corpus.validation.n, "unigram_entropy_hex", unigram, "hash",
                     f8_hash_text(d->corpus.hash, hash), "validation_hash",
                     f8_hash_text(d->corpus.validation_hash, validation_hash));
}

double f8_data_unigram(const f8_data *d)
{
    return d->by_rows ? NAN : d->corpus.unigram;
}

const char *f8_data_shown(const f8_data *d)
{
    return d->by_rows ? d->rows.data.file->path : d->corpus.tokens.shown;
}

const char *f8_data_held_out_shown(const f8_data *d)
{
    if (d->by_rows)
        return d->rows.validation.n ? d->rows.validation.file->path : f8_data_shown(d);
    return d->corpus.validation.n_shards ? d->corpus.validation.shown : f8_data_shown(d);
}

const char *f8_data_losses(const f8_data *d)
{
    return d->by_rows              ? "losses are means over batches"
           : d->corpus.tokens.text ? "losses in nats per byte"
                                   : "losses in nats per token";
}

const char *f8_data_compared(const f8_data *d, char text[80])
{
    text[0] = 0;
    if (!d->by_rows)
        f8_format(text, 80, "; the %s unigram entropy is %.4f",
                  d->corpus.tokens.text ? "text's" : "tokens'", d->corpus.unigram);
    return text;
}
