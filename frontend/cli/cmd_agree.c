/* What the ranks were started with: see cmd_agree.h. */
#include "frontend/cli/cmd_agree.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/cli/cmd_options.h"
#include "ir/base/hash.h"

/* The hash of each option's value; false: out of memory. */
static bool hash_options(const cli *c, f8_hash hash[CLI_N_OPTIONS])
{
    for (int at = 0; at < CLI_N_OPTIONS; at++) {
        const bool alike = cli_options[at].ranks == RANKS_ALIKE;
        json_t *value = alike ? cli_option_json(c, at) : NULL;
        char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
        hash[at] = text ? f8_hash_bytes(text, strlen(text)) : (f8_hash){0, 0};
        json_decref(value);
        free(text);
        if (alike && !text)
            return false;
    }
    return true;
}

static bool compare(const fp8c_comm *comm, const f8_hash *all)
{
    for (int at = 0; at < CLI_N_OPTIONS; at++)
        for (int r = 1; r < comm->ranks; r++)
            if (!f8_hash_equal(all[r * CLI_N_OPTIONS + at], all[at])) {
                fprintf(stderr, "fp8c: error: %s of rank %d differs from that of rank 0\n",
                        cli_option_name(at), r);
                return false;
            }
    return true;
}

static bool agree_options(const cli *c)
{
    f8_hash mine[CLI_N_OPTIONS], *all;
    const fp8c_comm *comm = &c->ranks->comm;
    all = malloc((size_t)comm->ranks * sizeof mine);
    bool ok = all && hash_options(c, mine);
    if (!ok)
        fprintf(stderr, "fp8c: error: out of memory\n");
    cli_peers_name(c->ranks->peers, "the options");
    if (ok && comm->all_gather(comm->user, mine, all, sizeof mine)) {
        const char *why = comm->message ? comm->message(comm->user) : NULL;
        fprintf(stderr, "fp8c: error: %s\n", why ? why : "the ranks can't exchange bytes");
        ok = false;
    }
    if (ok)
        c->ranks->common = !(ok = compare(comm, all));
    free(all);
    return ok;
}

static bool agree_module(const cli *c, const fp8c_module *module)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    const bool printed = to && fp8c_module_print(module, cli_write_file, to) == FP8C_OK;
    bool ok = to && !fclose(to) && printed;
    if (!ok)
        fprintf(stderr, "fp8c: error: out of memory\n");
    ok = ok && cli_ranks_agree(c->ranks, "the model", text);
    free(text);
    return ok;
}

bool cli_agree(const cli *c, const fp8c_module *module)
{
    if (!c->ranks)
        return true;
    cli_joining *j = c->ranks->peers ? NULL : c->ranks->joining;
    cli_joining_wait(j, CLI_AGREES);
    const bool ok = cli_ranks_agree(c->ranks, "the version of fp8c", fp8c_version()) &&
                    agree_options(c) && agree_module(c, module);
    cli_joining_done(j);
    return ok;
}
