/* fp8c report: training runs, by their folders, as a page, as records, or as a trace. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/cli.h"
#include "frontend/diagnose/report/report.h"

enum { NAMED = 5 }; /* tensors that are printed of each run */

/* Everything is made before anything is written: what goes wrong leaves the files as they were. */
typedef struct made {
    char *page, *trace;
    size_t n_page;
} made;

static f8_status make(const cli *c, const f8_report *r, made *m, f8_diag *diag)
{
    json_t *trace = NULL;
    if (c->output)
        F8_TRY(f8_report_page(r, &m->page, &m->n_page, diag));
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

/* ---- what is printed ---- */

static bool is_stdout(const char *path)
{
    return path && (!strcmp(path, "-") || !strcmp(path, "/dev/stdout"));
}

static void print_run(const f8_report_run *r)
{
    printf("%s: %zu steps, final loss %.4f, ", r->name, r->n_steps, f8_report_final_loss(r));
    if (r->has_stats)
        printf("%zu tensors watched at %zu steps\n", r->n_series, r->n_watched);
    else
        printf("no statistics: train keeps them with --stats\n");
}

static void print_parted(const f8_report_parted *p)
{
    printf("  %s: step %" PRId64 ", underflow %.3g%% (%.3g%%), MSE %.3g (%.3g)\n", p->run->tensor,
           p->step, 100 * p->run_at.figure[F8_FIGURE_underflow],
           100 * p->good_at.figure[F8_FIGURE_underflow], p->run_at.figure[F8_FIGURE_mse],
           p->good_at.figure[F8_FIGURE_mse]);
}

/* Prints where a run parts from the good one. false after a message on stderr. */
static bool print_part(const f8_report_run *good, const f8_report_run *run)
{
    f8_diag diag = {0};
    f8_report_parting p;
    const bool ok = f8_report_part(good, run, &p, &diag) == F8_OK || cli_file_fail(&diag);
    if (ok) {
        printf("%s beside %s: ", run->name, good->name);
        if (p.loss_step)
            printf("the loss parts at step %" PRId64, p.loss_step);
        else
            printf("the loss does not part");
        printf(", %zu of %zu tensors part%s\n", p.n, p.compared, p.n ? "; first" : "");
    }
    for (size_t i = 0; i < p.n && i < NAMED && ok; i++)
        print_parted(&p.tensor[i]);
    f8_report_part_free(&p);
    return ok;
}

static bool print_all(const cli *c, const f8_report *r, const made *m)
{
    if (is_stdout(c->output) || is_stdout(c->trace) || cli_json_to_stdout(c))
        return true;
    for (size_t i = 0; i < r->n; i++)
        print_run(&r->run[i]);
    for (size_t i = 1; i < r->n; i++)
        if (!print_part(&r->run[0], &r->run[i]))
            return false;
    if (m->page)
        printf("%s: the page, %.2f MB\n", c->output, 1e-6 * (double)m->n_page);
    return true;
}

int cmd_report(const cli *c)
{
    f8_diag diag = {0};
    f8_report report;
    made m = {0};
    if (!c->output && !c->json && !c->trace)
        return cli_usage(c, "-o FILE (the page), --json FILE or --trace FILE is needed");
    f8_status status = f8_report_read(&report, c->files.text, c->files.n, &diag);
    if (status == F8_OK)
        status = make(c, &report, &m, &diag);
    bool ok = status == F8_OK || cli_file_fail(&diag);
    ok = ok && write_all(c, &report, &m) && print_all(c, &report, &m);
    free(m.page);
    free(m.trace);
    f8_report_free(&report);
    return ok ? CLI_DONE : CLI_FAILED;
}
