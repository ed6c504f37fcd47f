/* Options that a command takes, but not in the way it was asked to work: they are refused, since
 * whoever gives one expects it to do something. The library refuses what a target does not have. */
#include <string.h>

#include "frontend/cli/auto.h"

/* A .f8x file without --target is opened for the GPU if it is for one. */
static bool without_gpu(const cli *c)
{
    const bool opens = !c->target && c->file && cli_is_package(c->file);
    return !opens && (!c->target || (!strstr(c->target, "cuda") && !strstr(c->target, "sm_")));
}

/* Refuses the options that have no use in a way to work. */
static bool refuses(const cli *c, int way, const char *who)
{
    for (int at = 0; at < CLI_N_OPTIONS; at++)
        if (c->given[at] && cli_options[at].unused & way)
            return cli_usage(c, "%s does not use '%s'", who, c->given[at]);
    return false;
}

bool cli_refuses_unused(const cli *c, int bit)
{
#define WAY(way, on, when, who)                                                                    \
    if ((on) & bit && (when) && refuses(c, way, who))                                              \
        return true;
#include "frontend/cli/ways.def"
    return false;
}
