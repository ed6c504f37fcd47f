/* What the commands share: failures of calls, contexts, recipes. */
#include <string.h>

#include "frontend/cli/cli.h"

bool cli_is_package(const char *path)
{
    const size_t n = path ? strlen(path) : 0;
    return n > 4 && !strcmp(path + n - 4, ".f8x");
}

/* ---- calls of the library ---- */

int cli_fail(const fp8c_context *ctx)
{
    if (!cli_interrupted())
        cli_message("%s", fp8c_context_message(ctx));
    return CLI_FAILED;
}

bool cli_ok(const fp8c_context *ctx, fp8c_status status)
{
    return status == FP8C_OK || cli_fail(ctx) == CLI_DONE;
}

bool cli_done(const fp8c_context *ctx, fp8c_status status, const f8_diag *diag)
{
    if (status == FP8C_OK || diag->status == F8_OK)
        return cli_ok(ctx, status);
    return diag->status != F8_ERR_CANCELLED && cli_file_fail(diag);
}

/* ---- contexts, modules and programs ---- */

fp8c_context *cli_context(void)
{
    fp8c_context *ctx;
    if (fp8c_context_create(cli_context_options(), &ctx) == FP8C_OK && cli_keep(ctx))
        return ctx;
    cli_error(NULL, "out of memory");
    fp8c_context_destroy(ctx);
    return NULL;
}

bool cli_lists(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strcspn(at, ",") == n && !strncmp(at, name, n))
            return true;
    return false;
}

bool cli_asks_for(const cli *c, const char *a, const char *b)
{
    for (size_t i = 0; i < c->functions.n; i++)
        if (!strcmp(c->functions.text[i], a) || !strcmp(c->functions.text[i], b))
            return true;
    return false;
}

int cli_read_recipes(cli *c)
{
    fp8c_context *ctx = cli_context();
    int code = ctx ? CLI_DONE : CLI_FAILED;
    for (size_t i = 0; i <= c->compare.n && code == CLI_DONE; i++) {
        const char **text = i ? &c->compare.text[i - 1] : &c->recipe;
        if (*text == f8_default_recipe)
            continue;
        if (fp8c_recipe_canonical(ctx, *text, c->canonical[i], sizeof c->canonical[i]) == FP8C_OK) {
            *text = c->canonical[i];
        } else {
            cli_say(stderr, "%s '%s': ", i ? "--compare" : "--recipe", *text);
            code = cli_fail(ctx);
        }
    }
    fp8c_context_destroy(ctx);
    return code;
}

/* ---- recipes ---- */

const char *cli_recipe(const cli *c, size_t index)
{
    return index ? c->compare.text[index - 1] : c->recipe;
}

int cli_recipe_width(const cli *c, int least)
{
    for (size_t i = 0; i <= c->compare.n; i++)
        least = (int)strlen(cli_recipe(c, i)) > least ? (int)strlen(cli_recipe(c, i)) : least;
    return least;
}

size_t cli_baseline(const cli *c)
{
    for (size_t i = 0; i <= c->compare.n; i++)
        if (!strcmp(cli_recipe(c, i), "bf16"))
            return i;
    return c->compare.n > 0;
}
