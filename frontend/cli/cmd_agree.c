/* What the ranks were started with: see cmd_agree.h. */
#include "frontend/cli/cmd_agree.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/cli/cmd_options.h"
#include "ir/base/hash.h"

/* Each option that ranks must have alike, with the hash of its value. -1: out of memory. */
static int hash_options(const cli *c, f8_ranks_fact fact[CLI_N_OPTIONS])
{
    int n = 0;
    for (int at = 0; at < CLI_N_OPTIONS; at++) {
        if (cli_options[at].ranks != RANKS_ALIKE)
            continue;
        json_t *value = cli_option_json(c, at);
        char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
        if (text)
            fact[n++] = (f8_ranks_fact){cli_option_name(at), f8_hash_bytes(text, strlen(text))};
        json_decref(value);
        free(text);
        if (!text)
            return -1;
    }
    return n;
}

static bool agree_options(const cli *c)
{
    f8_ranks_fact fact[CLI_N_OPTIONS];
    f8_diag diag = {0};
    const int n = hash_options(c, fact);
    if (n < 0) {
        fprintf(stderr, "fp8c: error: out of memory\n");
        return false;
    }
    return cli_ranks_said(f8_ranks_agree_facts(c->ranks, "the options", fact, (size_t)n, &diag),
                          &diag);
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
    f8_joining *j = c->ranks->peers ? NULL : c->ranks->joining;
    f8_joining_wait(j, F8_STAGE_AGREES);
    const bool ok = cli_ranks_agree(c->ranks, "the version of fp8c", fp8c_version()) &&
                    agree_options(c) && agree_module(c, module);
    f8_joining_done(j);
    return ok;
}
