/* Options that a command takes, but not in the way it was asked to work: they are refused, since
 * whoever gives one expects it to do something. The library refuses what a target does not have. */
#include <string.h>

#include "frontend/cli/cmd_calibrate.h"

enum { MOST = 20 };
#define AT(field) (CLI_AT_##field + 1)

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

/* ---- what each does not use ---- */

static const struct {
    int on;
    bool (*when)(const cli *c);
    const char *who;
    int option[MOST + 1]; /* AT of each, then 0 */
} unused[] = {
    {ON_PRINT,
     prints_text,
     "without --print-after, print",
     {AT(recipe), AT(target), AT(attention), AT(device), AT(memory), AT(checkpoint), AT(recompute),
      AT(no_fuse), AT(steps)}},
    {ON_TRAIN | ON_EXPLAIN,
     without_auto,
     "without --recipe auto, it",
     {AT(calibrate), AT(budget), AT(write_rules)}},
    {ON_TRAIN,
     without_folder,
     "without --run and --resume, train",
     {AT(stop_at), AT(save_every), AT(keep), AT(checksum_every), AT(fingerprint_every),
      AT(dump), AT(dump_steps)}},
    {ON_TRAIN, without_records, "without --json, --run and --resume, train", {AT(stats)}},
    {ON_EXPLAIN,
     without_auto,
     "without --recipe auto, explain",
     {AT(data), AT(tokens), AT(batches), AT(seed)}},
    {ON_DATA, takes_rows, "with --batch, it", {AT(data), AT(tokens)}},
    {ON_COMPILE, compiles_kernels, "without -o NAME.f8x, compile", {AT(values)}},
    {ON_COMPILE, infers, "with --inference, compile", {AT(steps)}},
    {ON_RUN,
     runs_file,
     "with a compiled file, run",
     {AT(recipe), AT(rules), AT(attention), AT(steps)}},
    {ON_RUN, never_updates, "without the function update, run", {AT(steps)}},
    {ON_TUNE,
     tunes_gemm,
     "with --gemm, tune",
     {AT(recipe), AT(rules), AT(attention), AT(memory), AT(checkpoint), AT(recompute), AT(no_fuse),
      AT(only), AT(dims)}},
    {ON_TUNE,
     moves_rows,
     "with --export, --import and --merge, tune",
     {AT(recipe), AT(rules), AT(target), AT(attention), AT(device), AT(memory), AT(checkpoint),
      AT(recompute), AT(no_fuse), AT(only), AT(dims), AT(threads), AT(json), AT(time), AT(runs),
      AT(same_bits), AT(again)}},
    {ON_TARGET | ON_TUNE, without_gpu, "a --target that is no GPU", {AT(device)}},
    {ON_DOCTOR, only_looks, "without --burn, doctor", {AT(threads)}},
    {ON_HELP, prints_man, "with a COMMAND, help", {AT(man)}},
};

/* Whether a list has the option. */
static bool lists(const int *list, int at)
{
    while (*list && *list != at + 1)
        list++;
    return *list != 0;
}

bool cli_refuses_unused(const cli *c, int bit)
{
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
        for (int at = 0; at < CLI_N_OPTIONS && unused[i].on & bit; at++)
            if (c->given[at] && lists(unused[i].option, at) && unused[i].when(c)) {
                fprintf(stderr, "fp8c %s: %s does not use '%s'; see fp8c %s --help\n", c->command,
                        unused[i].who, c->given[at], c->command);
                return true;
            }
    return false;
}
