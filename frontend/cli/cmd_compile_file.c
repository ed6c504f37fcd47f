/* fp8c compile -o NAME.f8x: compiles a module ahead of time for one or more targets. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/cmd_calibrate.h"

enum { MOST_TARGETS = 16 };

bool cli_is_package(const char *path)
{
    const size_t n = path ? strlen(path) : 0;
    return n > 4 && !strcmp(path + n - 4, ".f8x");
}

/* Splits a list at its commas, in place, and returns the number of names. -1 after a message: there
 * are too many, or one is empty. */
static int split(char *list, const char *name[MOST_TARGETS])
{
    int n = 0;
    for (char *at = list; at; n++) {
        char *comma = strchr(at, ',');
        if (n == MOST_TARGETS) {
            fprintf(stderr, "fp8c compile: --target takes at most %d targets\n", MOST_TARGETS);
            return -1;
        }
        if (!*at || at == comma) {
            fprintf(stderr, "fp8c compile: bad value for --target: name %d of the list is empty\n",
                    n + 1);
            return -1;
        }
        if (comma)
            *comma++ = 0;
        name[n] = at;
        at = comma;
    }
    return n;
}

static int report_file(const cli *c, fp8c_context *ctx, cli_json *json)
{
    fp8c_file_info info = {.struct_size = sizeof info};
    json_t *targets = json_array();
    if (fp8c_file_read_info(ctx, c->output, 0, &info) != FP8C_OK) {
        json_decref(targets);
        return cli_fail(ctx);
    }
    FILE *to = cli_json_to_stdout(c) ? NULL : stdout;
    if (to)
        fprintf(to, "%s: %" PRId64 " bytes, for", c->output, info.bytes);
    for (int i = 0; fp8c_file_read_info(ctx, c->output, i, &info) == FP8C_OK; i++) {
        if (to)
            fprintf(to, "%s %s", i ? "," : "", info.target);
        json_array_append_new(targets, json_string(info.target));
    }
    if (to)
        fputc('\n', to);
    cli_json_record(json, json_pack("{ss ss sI ss so}", "event", "file", "path", c->output, "bytes",
                                    (json_int_t)info.bytes, "checksum", info.checksum, "targets",
                                    targets));
    return CLI_DONE;
}

static int compile(const cli *c, fp8c_context *ctx, const fp8c_module *module,
                   const char *const *name, int n)
{
    fp8c_compile_options options[MOST_TARGETS];
    cli_json json;
    if (!cli_json_open(&json, c->json))
        return CLI_FAILED;
    if (!c->inference)
        cli_note_steps(c);
    for (int i = 0; i < n; i++) {
        options[i] = cli_listing_options(c, c->recipe);
        options[i].target = name[i];
        options[i].values = c->values;
    }
    int code = fp8c_compile_file(module, options, (size_t)n, c->output) == FP8C_OK
                   ? report_file(c, ctx, &json)
                   : cli_fail(ctx);
    if (!cli_json_close(&json))
        code = CLI_FAILED;
    return code;
}

int cli_compile_package(const cli *c)
{
    fp8c_context *ctx;
    fp8c_module *module;
    const char *name[MOST_TARGETS];
    if (cli_refuses_auto(c, c->recipe))
        return CLI_USAGE;
    char *list = strdup(c->target ? c->target : "cpu");
    if (!list) {
        fprintf(stderr, "error: out of memory\n");
        return CLI_FAILED;
    }
    const int n = split(list, name);
    if (n < 0 || !cli_load(c, &ctx, &module)) {
        free(list);
        return n < 0 ? CLI_USAGE : CLI_FAILED;
    }
    const int code = compile(c, ctx, module, name, n);
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    free(list);
    return code;
}
