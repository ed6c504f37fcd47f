/* fp8c check and fp8c print. */
#include <inttypes.h>

#include "frontend/cli/cmd_calibrate.h"

/* Parses c->file and returns the exit code of `work`. */
static int with_module(const cli *c,
                     int (*work)(const cli *c, fp8c_context *ctx, fp8c_module *module))
{
    fp8c_context *ctx;
    fp8c_module *module;
    if (cli_refuses_auto(c, c->recipe))
        return CLI_USAGE;
    if (!cli_load(c, &ctx, &module))
        return CLI_FAILED;
    const int code = work(c, ctx, module);
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    return code;
}

static int check(const cli *c, fp8c_context *ctx, fp8c_module *module)
{
    fp8c_module_info info = {.struct_size = sizeof info};
    fp8c_module_report(module, &info);
    if (c->target || c->attention ||
        c->recipe != cli_default_recipe) { /* also check that it compiles so */
        const fp8c_compile_options options = cli_listing_options(c, c->recipe);
        fp8c_program *program;
        if (fp8c_compile(module, &options, &program) != FP8C_OK)
            return cli_fail(ctx);
        fp8c_program_destroy(program);
    }
    printf("%s: ok, %" PRId64 " parameter tensor%s, %" PRId64 " parameter%s\n", c->file,
           info.parameters, info.parameters == 1 ? "" : "s", info.elements,
           info.elements == 1 ? "" : "s");
    return CLI_DONE;
}

int cmd_check(const cli *c)
{
    return with_module(c, check);
}

static int print(const cli *c, fp8c_context *ctx, fp8c_module *module)
{
    fp8c_status status;
    if (c->print_after) {
        fp8c_compile_options options = cli_listing_options(c, c->recipe);
        options.plan_only = 1; /* passes need no kernels */
        options.print_after = c->print_after;
        options.write = cli_write_file;
        options.write_user = stdout;
        fp8c_program *program;
        status = fp8c_compile(module, &options, &program);
        fp8c_program_destroy(program);
    } else {
        status = fp8c_module_print(module, cli_write_file, stdout);
    }
    if (ferror(stdout)) /* main says so */
        return CLI_DONE;
    return status == FP8C_OK ? CLI_DONE : cli_fail(ctx);
}

int cmd_print(const cli *c)
{
    return with_module(c, print);
}
