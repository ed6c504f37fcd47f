/* The data of a command: see cmd_data.h. */
#include "frontend/cli/cmd_data.h"

bool cli_data_open(cli_data *d, const cli *c)
{
    *d = (cli_data){0};
    return cli_corpus_open(&d->corpus, c);
}

void cli_data_close(cli_data *d)
{
    cli_corpus_close(&d->corpus);
}

bool cli_data_fit(cli_data *d, const cli *c, const fp8c_module *module,
                  const fp8c_program *program, int function)
{
    return cli_corpus_cut(&d->corpus, c, module, program, function);
}

static bool fill(cli_data *d, fp8c_program *program, int function, bool held_out, uint64_t seed,
                 uint64_t batch)
{
    int32_t *tokens = cli_buffer(program, function, FP8C_INPUT, "tokens");
    int32_t *targets = cli_buffer(program, function, FP8C_INPUT, "targets");
    const bool ok = held_out ? cli_corpus_held_out(&d->corpus, batch, tokens, targets)
                             : cli_corpus_draw(&d->corpus, seed, batch, tokens, targets);
    d->failed |= !ok;
    return ok;
}

bool cli_data_fill(cli_data *d, fp8c_program *program, int function, uint64_t seed, uint64_t batch)
{
    return fill(d, program, function, false, seed, batch);
}

fp8c_status cli_held_out(cli_data *d, fp8c_program *program, int eval, double *loss,
                         int64_t *batches)
{
    const float *value = cli_buffer(program, eval, FP8C_OUTPUT, "loss");
    const uint64_t has = cli_corpus_held_out_batches(&d->corpus),
                   n = has < CLI_HELD_OUT_BATCHES ? has : CLI_HELD_OUT_BATCHES;
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (!fill(d, program, eval, true, 0, i))
            return FP8C_ERR_IO;
        const fp8c_status status =
            cli_interrupted() ? FP8C_ERR_CANCELLED : fp8c_program_run(program, eval);
        if (status != FP8C_OK)
            return status;
        sum += *value;
    }
    *loss = sum / (double)n;
    *batches = (int64_t)n;
    return FP8C_OK;
}

int64_t cli_data_items(const cli_data *d)
{
    return d->corpus.B * d->corpus.T;
}

const char *cli_data_shown(const cli_data *d)
{
    return d->corpus.tokens.shown;
}

const char *cli_data_unit(const cli_data *d)
{
    return d->corpus.tokens.text ? "byte" : "token";
}
