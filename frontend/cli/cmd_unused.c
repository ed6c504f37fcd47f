/* Options that a command takes, but not in the way it was asked to work: they are refused, since
 * whoever gives one expects it to do something. The library refuses what a target does not have. */
#include <string.h>

#include "frontend/cli/cmd_calibrate.h"

_Static_assert(CLI_N_OPTIONS <= 64, "a bit for each");
#define BIT(field) ((uint64_t)1 << CLI_AT_##field)

/* ---- ways to work ---- */

static bool prints_text(const cli *c)
{
    return !c->print_after;
}

static bool without_auto(const cli *c)
{
    for (size_t i = 0; i <= c->compare.n; i++)
        if (cli_is_auto(cli_recipe(c, i)))
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

static bool prints_man(const cli *c)
{
    return c->man && c->file;
}

/* ---- what each does not use ---- */

static const struct {
    int on;
    bool (*when)(const cli *c);
    const char *who;
    uint64_t options;
} unused[] = {
    {ON_PRINT, prints_text, "without --print-after, print",
     BIT(recipe) | BIT(target) | BIT(attention) | BIT(device) | BIT(memory) | BIT(checkpoint) |
         BIT(recompute) | BIT(no_fuse) | BIT(steps)},
    {ON_TRAIN | ON_EXPLAIN, without_auto, "without --recipe auto, it",
     BIT(calibrate) | BIT(budget) | BIT(write_rules)},
    {ON_TRAIN, without_folder, "without --run and --resume, train",
     BIT(stop_at) | BIT(save_every) | BIT(keep) | BIT(checksum_every)},
    {ON_EXPLAIN, without_auto, "without --recipe auto, explain",
     BIT(data) | BIT(tokens) | BIT(batches) | BIT(seed)},
    {ON_DATA, takes_rows, "with --batch, it", BIT(data) | BIT(tokens)},
    {ON_COMPILE, compiles_kernels, "without -o NAME.f8x, compile", BIT(values)},
    {ON_COMPILE, infers, "with --inference, compile", BIT(steps)},
    {ON_RUN, runs_file, "with a compiled file, run",
     BIT(recipe) | BIT(rules) | BIT(attention) | BIT(steps)},
    {ON_RUN, never_updates, "without the function update, run", BIT(steps)},
    {ON_TUNE, tunes_gemm, "with --gemm, tune",
     BIT(recipe) | BIT(rules) | BIT(attention) | BIT(memory) | BIT(checkpoint) | BIT(recompute) |
         BIT(no_fuse) | BIT(only) | BIT(dims)},
    {ON_TUNE, moves_rows, "with --export, --import and --merge, tune",
     BIT(recipe) | BIT(rules) | BIT(target) | BIT(attention) | BIT(device) | BIT(memory) |
         BIT(checkpoint) | BIT(recompute) | BIT(no_fuse) | BIT(only) | BIT(dims) | BIT(threads) |
         BIT(json) | BIT(time) | BIT(runs) | BIT(same_bits) | BIT(again)},
    {ON_TARGET | ON_TUNE, without_gpu, "a --target that is no GPU", BIT(device)},
    {ON_HELP, prints_man, "with a COMMAND, help", BIT(man)},
};

bool cli_refuses_unused(const cli *c, int bit)
{
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
        for (int at = 0; at < CLI_N_OPTIONS && unused[i].on & bit; at++)
            if (c->given[at] && unused[i].options >> at & 1 && unused[i].when(c)) {
                fprintf(stderr, "fp8c %s: %s does not use '%s'; see fp8c %s --help\n", c->command,
                        unused[i].who, c->given[at], c->command);
                return true;
            }
    return false;
}
