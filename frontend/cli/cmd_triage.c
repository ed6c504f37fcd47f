/* fp8c triage: says why a step of a training run went wrong. */
#include "frontend/cli/data.h"
#include "frontend/cli/told.h"
#include "frontend/diagnose/triage/search.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

/* The module of the run, and this rank's part of a batch. */
static bool load_module(f8_triage_search *t, cli *c)
{
    fp8c_context *ctx;
    fp8c_module *module;
    if (!cli_load(c, &ctx, &module))
        return false;
    const bool ok =
        f8_triage_module(t, module) && (!c->ranks || cli_ranks_divide(c->ranks, c, module));
    t->t->part = c->part;
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    return ok;
}

static void print(void *c, const char *text)
{
    if (cli_json_to_stdout(c))
        return;
    cli_say(stdout, "%s\n", text);
    fflush(stdout);
}

static void print_verdict(const f8_triage_search *t, cli *c)
{
    const f8_triage_verdict *v = &t->verdict;
    if (!cli_json_to_stdout(c))
        cli_say(stdout, "\nverdict: %s\n%s\n\nwhat to do: %s\n", f8_triage_class_name[v->class],
                v->text, v->advice);
}

static int run_triage(f8_triage_search *t, cli *c, const char *folder)
{
    cli_json json = {0};
    if (!f8_triage_open(t, folder))
        return CLI_FAILED;
    c->file = t->t->file;
    if (!load_module(t, c) || !cli_data_open(&t->data, c) || !cli_json_open(&json, c->json))
        return CLI_FAILED;
    const bool ok = f8_triage_run(t);
    if (ok) {
        print_verdict(t, c);
        cli_json_record(&json, f8_triage_record(t));
    }
    return cli_json_close(&json) && ok ? CLI_DONE : CLI_FAILED;
}

/* Makes malloc give large blocks back to the system as soon as they are freed. By default it may
 * keep them for later. Then what a compilation or the judging of one value needs for a moment would
 * be taken beside what the steps need. */
static void keep_no_blocks(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
#endif
}

int cmd_triage(const cli *given)
{
    cli own = *given;
    cli_ranks ranks;
    keep_no_blocks();
    own.file = NULL;
    own.resume = given->file;
    if (!cli_ranks_join(&ranks, &own))
        return cli_ranks_leave(&ranks, &own, CLI_FAILED);
    f8_train train = cli_told(&own, NULL);
    f8_triage_search t = {.t = &train, .asked = own.bad_step, .progress = print, .user = &own};
    const int code = run_triage(&t, &own, given->file);
    f8_triage_close(&t);
    return cli_ranks_leave(&ranks, &own, code);
}
