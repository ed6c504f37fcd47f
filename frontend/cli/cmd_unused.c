/* Options that a command takes, but not in the way it was asked to work: they are refused, since
 * whoever gives one expects it to do something. The library refuses what a target does not have. */
#include <string.h>

#include "frontend/cli/auto.h"

static bool without_auto(const cli *c)
{
    for (size_t i = 0; i <= c->compare.n; i++)
        if (f8_is_auto(cli_recipe(c, i)))
            return false;
    return true;
}

/* A .f8x file without --target is opened for the GPU if it is for one. */
static bool without_gpu(const cli *c)
{
    const bool opens = !c->target && c->file && cli_is_package(c->file);
    return !opens && (!c->target || (!strstr(c->target, "cuda") && !strstr(c->target, "sm_")));
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

/* WAY(way, commands, when, "who"): a value of the column `unused` in options.def, the commands that
 * know this way to work, whether `c` asks for it, and who then does not use the option. */
#define WAYS                                                                                       \
    WAY(PRINTS_TEXT, ON_PRINT, !c->print_after, "without --print-after, print")                    \
    WAY(NO_AUTO, ON_TRAIN | ON_EXPLAIN, without_auto(c), "without --recipe auto, it")              \
    WAY(NO_FOLDER, ON_TRAIN, !c->run && !c->resume, "without --run and --resume, train")           \
    WAY(NO_RECORDS, ON_TRAIN, !c->json && !c->run && !c->resume,                                   \
        "without --json, --run and --resume, train")                                               \
    WAY(EXPLAINS_WITHOUT_AUTO, ON_EXPLAIN, without_auto(c), "without --recipe auto, explain")      \
    WAY(TAKES_ROWS, ON_DATA, c->batches.n > 0, "with --batch, it")                                 \
    WAY(COMPILES_KERNELS, ON_COMPILE, c->emit || !cli_is_package(c->output),                       \
        "without -o NAME.f8x, compile")                                                            \
    WAY(INFERS, ON_COMPILE, c->inference, "with --inference, compile")                             \
    WAY(RUNS_FILE, ON_RUN, cli_is_package(c->file), "with a compiled file, run")                   \
    WAY(NEVER_UPDATES, ON_RUN, never_updates(c), "without the function update, run")               \
    WAY(TUNES_GEMM, ON_TUNE, c->gemm != NULL, "with --gemm, tune")                                 \
    WAY(MOVES_ROWS, ON_TUNE, c->rows_in || c->rows_out || c->merge.n,                              \
        "with --export, --import and --merge, tune")                                               \
    WAY(NO_GPU, ON_TARGET | ON_TUNE, without_gpu(c), "a --target that is no GPU")                  \
    WAY(ONLY_LOOKS, ON_DOCTOR, !(c->burn > 0), "without --burn, doctor")                           \
    WAY(PRINTS_MAN, ON_HELP, c->man && c->file, "with a COMMAND, help")

/* Refuses the options that have no use in a way to work. */
static bool refuses(const cli *c, int way, const char *who)
{
    for (int at = 0; at < CLI_N_OPTIONS; at++)
        if (c->given[at] && cli_options[at].unused & way) {
            fprintf(stderr, "fp8c %s: %s does not use '%s'; see fp8c %s --help\n", c->command, who,
                    c->given[at], c->command);
            return true;
        }
    return false;
}

bool cli_refuses_unused(const cli *c, int bit)
{
#define WAY(way, on, when, who)                                                                    \
    if ((on) & bit && (when) && refuses(c, way, who))                                              \
        return true;
    WAYS
#undef WAY
        return false;
}
