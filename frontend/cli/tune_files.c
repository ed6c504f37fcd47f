/* The files that fp8c tune writes of what it measured. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/cli/tune.h"

bool cli_tune_write_text(const char *path, char *text)
{
    cli_text t;
    cli_text_open(&t, path);
    if (t.to && text)
        fputs(text, t.to);
    if (!text)
        cli_error(path, "out of memory");
    const bool ok = text != NULL;
    free(text);
    return cli_text_end(&t, ok) && ok;
}

char *cli_tune_lines(json_t *records)
{
    size_t size, i;
    char *text = NULL;
    json_t *record;
    FILE *to = records ? open_memstream(&text, &size) : NULL;
    bool ok = to != NULL;
    json_array_foreach (records, i, record)
        ok = ok && !json_dumpf(record, to, JSON_COMPACT | JSON_PRESERVE_ORDER) &&
             fputc('\n', to) != EOF;
    ok = (!to || !fclose(to)) && ok;
    json_decref(records);
    if (ok)
        return text;
    free(text);
    return NULL;
}

bool cli_tune_write_records(const cli *c, json_t *records)
{
    if (c->json)
        return cli_tune_write_text(c->json, cli_tune_lines(records));
    json_decref(records);
    return true;
}

/* Whether a file can be there. */
static bool may_write(const char *path)
{
    char folder[PATH_MAX];
    if (!path || !strcmp(path, "-"))
        return true;
    const char *slash = strrchr(path, '/');
    const size_t length = slash ? (size_t)(slash - path) + 1 : 1;
    if (length >= sizeof folder)
        return cli_error(path, "%s", strerror(ENAMETOOLONG));
    memcpy(folder, slash ? path : ".", length);
    folder[length] = 0;
    if (access(path, F_OK) ? !access(folder, W_OK | X_OK) : !access(path, W_OK))
        return true;
    return cli_error(path, "%s", strerror(errno));
}

bool cli_tune_may_write(const cli *c)
{
    return may_write(c->csv) && may_write(c->tables) && may_write(c->t4);
}

/* All records: of what was measured, of what that says as a whole, and the caller's. */
static json_t *all_records(const f8_measure_set *set, json_t *more)
{
    json_t *all = f8_measure_records(set), *headlines = f8_measure_headline_records(set);
    const bool ok = all && headlines && !json_array_extend(all, headlines) &&
                    (!more || !json_array_extend(all, more));
    json_decref(headlines);
    json_decref(more);
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

bool cli_tune_write(const cli *c, const f8_measure_set *set, json_t *more)
{
    bool ok = cli_tune_write_records(c, all_records(set, more));
    ok &= !c->csv || cli_tune_write_text(c->csv, f8_measure_csv(set));
    ok &= !c->tables || cli_tune_write_text(c->tables, f8_measure_markdown(set));
    return (!c->t4 || cli_tune_write_text(c->t4, f8_measure_t4(set))) && ok;
}
