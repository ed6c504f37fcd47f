/* fp8c check: parses and verifies a module, and compiles it if a target or recipe is asked for. */
#include <inttypes.h>

#include "frontend/cli/auto.h"

static bool check(cli_job *j)
{
    const cli *c = j->c;
    const fp8c_module_info info = f8_module_info(j->module);
    if (c->target || c->attention ||
        c->recipe != f8_default_recipe) { /* also check that it compiles so */
        const fp8c_compile_options options = cli_listing_options(c, c->recipe);
        if (!cli_compile(j, &options))
            return false;
    }
    cli_say(stdout, "%s: ok, %" PRId64 " parameter tensor%s, %" PRId64 " parameter%s\n", c->file,
            info.parameters, info.parameters == 1 ? "" : "s", info.elements,
            info.elements == 1 ? "" : "s");
    return true;
}

int cmd_check(const cli *c)
{
    return cli_refuses_auto(c) ? CLI_USAGE : cli_work(c, true, check);
}
