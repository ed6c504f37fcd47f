/* Options that a command takes, but not in the way it was asked to work: they are refused, since
 * whoever gives one expects it to do something. The library refuses what a target does not have. */
#include <string.h>

#include "frontend/cli/auto.h"

/* ---- ways to work ---- */

static bool prints_text(const cli *c)
{
    return !c->print_after;
}

static bool without_auto(const cli *c)
{
    for (size_t i = 0; i <= c->compare.n; i++)
        if (f8_is_auto(cli_recipe(c, i)))
            return false;
    return true;
}

static bool without_folder(const cli *c)
{
    return !c->run && !c->resume;
}

static bool takes_rows(const cli *c)
{
    return c->batches.n > 0;
}

/* A .f8x file without --target is opened for the GPU if it is for one. */
static bool without_gpu(const cli *c)
{
    const bool opens = !c->target && c->file && cli_is_package(c->file);
    return !opens && (!c->target || (!strstr(c->target, "cuda") && !strstr(c->target, "sm_")));
}

static bool compiles_kernels(const cli *c)
{
    return c->emit || !cli_is_package(c->output);
}

static bool runs_file(const cli *c)
{
    return cli_is_package(c->file);
}

static bool never_updates(const cli *c)
{
    bool pair = false, updates = false;
    for (size_t i = 0; i < c->functions.n; i++) {
        const char *name = c->functions.text[i];
        pair |= !strcmp(name, "forward") || !strcmp(name, "backward");
        updates |= !strcmp(name, "micro_step") || !strcmp(name, "update");
    }
    return pair || !updates;
}

static bool without_records(const cli *c)
{
    return !c->json && !c->run && !c->resume;
}

static bool infers(const cli *c)
{
    return c->inference;
}

static bool tunes_gemm(const cli *c)
{
    return c->gemm != NULL;
}

static bool moves_rows(const cli *c)
{
    return c->rows_in || c->rows_out || c->merge.n;
}

static bool only_looks(const cli *c)
{
    return !(c->burn > 0);
}

static bool prints_man(const cli *c)
{
    return c->man && c->file;
}

/* ---- who does not use an option then ---- */

static const struct {
    int way; /* of the column `unused` in options.def */
    int on;
    bool (*when)(const cli *c);
    const char *who;
} ways[] = {
    {PRINTS_TEXT, ON_PRINT, prints_text, "without --print-after, print"},
    {NO_AUTO, ON_TRAIN | ON_EXPLAIN, without_auto, "without --recipe auto, it"},
    {NO_FOLDER, ON_TRAIN, without_folder, "without --run and --resume, train"},
    {NO_RECORDS, ON_TRAIN, without_records, "without --json, --run and --resume, train"},
    {EXPLAINS_WITHOUT_AUTO, ON_EXPLAIN, without_auto, "without --recipe auto, explain"},
    {TAKES_ROWS, ON_DATA, takes_rows, "with --batch, it"},
    {COMPILES_KERNELS, ON_COMPILE, compiles_kernels, "without -o NAME.f8x, compile"},
    {INFERS, ON_COMPILE, infers, "with --inference, compile"},
    {RUNS_FILE, ON_RUN, runs_file, "with a compiled file, run"},
    {NEVER_UPDATES, ON_RUN, never_updates, "without the function update, run"},
    {TUNES_GEMM, ON_TUNE, tunes_gemm, "with --gemm, tune"},
    {MOVES_ROWS, ON_TUNE, moves_rows, "with --export, --import and --merge, tune"},
    {NO_GPU, ON_TARGET | ON_TUNE, without_gpu, "a --target that is no GPU"},
    {ONLY_LOOKS, ON_DOCTOR, only_looks, "without --burn, doctor"},
    {PRINTS_MAN, ON_HELP, prints_man, "with a COMMAND, help"},
};

bool cli_refuses_unused(const cli *c, int bit)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int at = 0; at < CLI_N_OPTIONS && ways[i].on & bit; at++)
            if (c->given[at] && cli_options[at].unused & ways[i].way && ways[i].when(c)) {
                fprintf(stderr, "fp8c %s: %s does not use '%s'; see fp8c %s --help\n", c->command,
                        ways[i].who, c->given[at], c->command);
                return true;
            }
    return false;
}
