/* fp8c compile -o NAME.f8x: compiles a module ahead of time for one or more targets. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/auto.h"

enum { MOST_TARGETS = 16 };

bool cli_is_package(const char *path)
{
    const size_t n = path ? strlen(path) : 0;
    return n > 4 && !strcmp(path + n - 4, ".f8x");
}

/* Whether the list of --target can be taken. false after a message: there are too many, or one is
 * empty. */
static bool check_targets(const char *list)
{
    for (int n = 0; list; n++) {
        const size_t length = strcspn(list, ",");
        if (n == MOST_TARGETS) {
            fprintf(stderr, "fp8c compile: --target takes at most %d targets\n", MOST_TARGETS);
            return false;
        }
        if (!length) {
            fprintf(stderr, "fp8c compile: bad value for --target: name %d of the list is empty\n",
                    n + 1);
            return false;
        }
        list = list[length] ? list + length + 1 : NULL;
    }
    return true;
}

static bool report_file(cli_job *j)
{
    const char *path = j->c->output;
    fp8c_file_info info = {.struct_size = sizeof info};
    if (!cli_ok(j->ctx, fp8c_file_read_info(j->ctx, path, 0, &info)))
        return false;
    json_t *targets = json_array();
    cli_say(j->to, "%s: %" PRId64 " bytes, for", path, info.bytes);
    for (int i = 0; fp8c_file_read_info(j->ctx, path, i, &info) == FP8C_OK; i++) {
        cli_say(j->to, "%s %s", i ? "," : "", info.target);
        json_array_append_new(targets, json_string(info.target));
    }
    cli_say(j->to, "\n");
    cli_json_record(&j->json, json_pack("{ss ss sI ss so}", "event", "file", "path", path, "bytes",
                                        (json_int_t)info.bytes, "checksum", info.checksum,
                                        "targets", targets));
    return true;
}

static bool compile(cli_job *j)
{
    fp8c_compile_options options[MOST_TARGETS];
    const cli *c = j->c;
    size_t n = 0;
    char *list = strdup(c->target ? c->target : "cpu"), *rest;
    if (!list)
        return cli_error(NULL, "out of memory");
    if (!c->inference)
        cli_note_steps(c);
    for (char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        options[n] = cli_listing_options(c, c->recipe);
        options[n].target = name;
        options[n++].values = c->values;
    }
    const bool ok = cli_ok(j->ctx, fp8c_compile_file(j->module, options, n, c->output));
    free(list);
    return ok && report_file(j);
}

int cli_compile_package(const cli *c)
{
    return cli_refuses_auto(c, c->recipe) || !check_targets(c->target) ? CLI_USAGE
                                                                       : cli_work(c, true, compile);
}
