/* The model of a command, and the options of its compiles: see cli.h. */
#include "frontend/cli/told.h"

static bool needs_steps; /* the module that was loaded does */

bool cli_load(const cli *c, fp8c_context **ctx, fp8c_module **module)
{
    f8_train t = cli_told(c, NULL);
    const bool ok = f8_train_load(&t, ctx, module);
    needs_steps = ok && f8_module_info(*module).needs_steps;
    return ok;
}

void cli_note_steps(const cli *c)
{
    if (needs_steps && !c->steps)
        cli_say(
            stderr,
            "fp8c: warning: the optimizer's schedule has no `steps`: it gets %d; --steps N gives "
            "it others\n",
            F8_DEFAULT_STEPS);
}

fp8c_compile_options cli_compile_options(const cli *c, const char *recipe)
{
    fp8c_compile_options options = f8_train_compile_options(&c->train, recipe, needs_steps);
    options.inference = c->inference;
    options.ranks = c->n_ranks;
    return options;
}

fp8c_compile_options cli_listing_options(const cli *c, const char *recipe)
{
    fp8c_compile_options options = cli_compile_options(c, recipe);
    options.no_device = 1;
    return options;
}

bool cli_compile(cli_job *j, const fp8c_compile_options *options)
{
    return cli_ok(j->ctx, fp8c_compile(j->module, options, &j->program));
}

int cli_end(cli_job *j, bool ok)
{
    ok &= cli_json_close(&j->json);
    fp8c_program_destroy(j->program);
    fp8c_module_destroy(j->module);
    fp8c_context_destroy(j->ctx);
    return ok ? CLI_DONE : CLI_FAILED;
}

int cli_work(const cli *c, bool loads, bool (*work)(cli_job *j))
{
    cli_job j = {.c = c, .to = cli_table(c)};
    bool ok = loads ? cli_load(c, &j.ctx, &j.module) : (j.ctx = cli_context()) != NULL;
    ok = ok && cli_json_open(&j.json, c->json) && work(&j);
    return cli_end(&j, ok);
}
