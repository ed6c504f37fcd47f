/* fp8c print: a module in canonical form, or as it is after a pass. */
#include "frontend/cli/auto.h"

static bool print(cli_job *j)
{
    fp8c_status status;
    if (j->c->print_after) {
        fp8c_compile_options options = cli_listing_options(j->c, j->c->recipe);
        options.plan_only = 1; /* passes need no kernels */
        options.print_after = j->c->print_after;
        options.write = f8_write_stream;
        options.write_user = stdout;
        status = fp8c_compile(j->module, &options, &j->program);
    } else {
        status = fp8c_module_print(j->module, f8_write_stream, stdout);
    }
    return ferror(stdout) || cli_ok(j->ctx, status); /* main says so */
}

int cmd_print(const cli *c)
{
    return cli_refuses_auto(c) ? CLI_USAGE : cli_work(c, true, print);
}
