/* fp8c check and fp8c print. */
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
    printf("%s: ok, %" PRId64 " parameter tensor%s, %" PRId64 " parameter%s\n", c->file,
           info.parameters, info.parameters == 1 ? "" : "s", info.elements,
           info.elements == 1 ? "" : "s");
    return true;
}

int cmd_check(const cli *c)
{
    return cli_refuses_auto(c, c->recipe) ? CLI_USAGE : cli_work(c, true, check);
}

static bool print(cli_job *j)
{
    fp8c_status status;
    if (j->c->print_after) {
        fp8c_compile_options options = cli_listing_options(j->c, j->c->recipe);
        options.plan_only = 1; /* passes need no kernels */
        options.print_after = j->c->print_after;
        options.write = cli_write_file;
        options.write_user = stdout;
        status = fp8c_compile(j->module, &options, &j->program);
    } else {
        status = fp8c_module_print(j->module, cli_write_file, stdout);
    }
    return ferror(stdout) || cli_ok(j->ctx, status); /* main says so */
}

int cmd_print(const cli *c)
{
    return cli_refuses_auto(c, c->recipe) ? CLI_USAGE : cli_work(c, true, print);
}
