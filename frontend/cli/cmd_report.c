/* fp8c report: training runs, by their folders, as a page, as records, or as a trace. */
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/told.h"
#include "frontend/diagnose/report/report.h"

/* Everything is made before anything is written: what goes wrong leaves the files as they were. */
typedef struct made {
    char *page, *trace, *words;
    size_t n_page;
} made;

static f8_status make(const cli *c, const f8_report *r, int again, made *m, f8_diag *diag)
{
    json_t *trace = NULL;
    if (c->output)
        F8_TRY(f8_report_page(r, again, &m->page, &m->n_page, diag));
    if (!again)
        F8_TRY(f8_report_words(r, &m->words, diag));
    if (!c->trace)
        return F8_OK;
    F8_TRY(f8_report_trace(r, &trace, diag));
    m->trace = json_dumps(trace, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(trace);
    return m->trace ? F8_OK : f8_file_fail(diag, F8_ERR_MEMORY, NULL, "out of memory");
}

static bool put(const char *path, const char *text)
{
    cli_text to;
    cli_text_open(&to, path);
    if (to.to)
        fputs(text, to.to);
    return cli_text_end(&to, true);
}

static void put_record(void *user, json_t *record)
{
    cli_json_record(user, record);
}

static bool write_all(const cli *c, const f8_report *r, const made *m)
{
    f8_diag diag = {0};
    cli_json json;
    if ((m->page && !put(c->output, m->page)) || (m->trace && !put(c->trace, m->trace)) ||
        !cli_json_open(&json, c->json))
        return false;
    const bool made_records =
        !c->json || f8_report_records(r, put_record, &json, &diag) == F8_OK || cli_file_fail(&diag);
    return cli_json_close(&json) && made_records;
}

static bool is_stdout(const char *path)
{
    return path && (!strcmp(path, "-") || !strcmp(path, "/dev/stdout"));
}

static void print(const cli *c, const made *m)
{
    if (is_stdout(c->output) || is_stdout(c->trace) || cli_json_to_stdout(c))
        return;
    cli_say(stdout, "%s", m->words);
    if (m->page)
        cli_say(stdout, "%s: the page, %.2f MB\n", c->output, 1e-6 * (double)m->n_page);
}

/* Makes and writes all that is asked for. What is printed comes at the end of a watch only.
 * F8_ERR_CANCELLED: a message is on stderr already. */
static f8_status report(void *user, const f8_report *r, int again, f8_diag *diag)
{
    const cli *c = user;
    made m = {0};
    f8_status status = make(c, r, again, &m, diag);
    if (status == F8_OK && !write_all(c, r, &m))
        status = F8_ERR_CANCELLED;
    if (status == F8_OK && !again)
        print(c, &m);
    free(m.page);
    free(m.trace);
    free(m.words);
    return status;
}

static void say_waits(void *user, const f8_diag *why)
{
    (void)user;
    cli_message("%s: waiting for the first step: %s", why->file, why->text);
}

static f8_status watch(const cli *c, f8_report_kind kind, f8_report *r, f8_diag *diag)
{
    enum { EVERY = 5, PATIENCE = 10 }; /* seconds */
    const f8_report_watched w = {kind,      c->files.text, c->files.n,
                                 EVERY,     PATIENCE,      report,
                                 say_waits, cli_stopped,   (void *)(uintptr_t)c};
    cli_hold("interrupted: the page is written for the last time; once more ends at once");
    cli_message("%s: the page; a browser that shows it loads it again by itself", c->output);
    return f8_report_watch(&w, r, diag);
}

int cmd_report(const cli *c)
{
    const f8_report_kind kind = c->all ? F8_REPORT_INDEX : F8_REPORT_RUNS;
    f8_diag diag = {0};
    f8_report r = {0};
    if (!c->all && !c->watch && !c->output && !c->json && !c->trace)
        return cli_usage(c, "-o FILE (the page), --json FILE or --trace FILE is needed");
    if (c->watch && (!c->output || is_stdout(c->output)))
        return cli_usage(c, "--watch writes a page again and again: -o FILE is needed");
    f8_status status = c->watch ? watch(c, kind, &r, &diag)
                                : f8_report_read(&r, kind, c->files.text, c->files.n, &diag);
    if (status == F8_OK && !c->watch)
        status = report((void *)(uintptr_t)c, &r, 0, &diag);
    if (status != F8_OK && status != F8_ERR_CANCELLED)
        cli_file_fail(&diag);
    f8_report_free(&r);
    return status == F8_OK ? CLI_DONE : CLI_FAILED;
}
