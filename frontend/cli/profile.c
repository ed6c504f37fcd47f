/* What --profile prints: the slowest steps of a plan, and sums (records/profile.c has them). */
#include <inttypes.h>
#include <string.h>

#include "frontend/cli/cli.h"

enum { USUAL_ROWS = 25, CELL = 32 };

/* ---- cells ---- */

/* "123 ns", "12.3 us", "1.23 ms": three digits. */
static const char *time_text(double seconds, char text[CELL])
{
    static const char *const units[] = {"s", "ms", "us", "ns"};
    int unit = 0;
    for (; unit < 3 && seconds < 0.9995; unit++)
        seconds *= 1e3;
    snprintf(text, CELL, "%.*f %s",
             seconds < 9.995   ? 2
             : seconds < 99.95 ? 1
                               : 0,
             seconds, units[unit]);
    return text;
}

/* "312 GFLOP/s", "18.2 GB/s"; "-": it has neither. */
static const char *rate_text(const f8_profile_row *r, char text[CELL])
{
    const double rate = f8_profile_rate(r) / 1e9;
    const bool tera = r->flops > 0 && rate >= 1e3;
    const double shown = tera ? rate / 1e3 : rate;
    snprintf(text, CELL, "%.*f %s", shown < 0.995 ? 3 : shown < 99.95, shown,
             tera           ? "TFLOP/s"
             : r->flops > 0 ? "GFLOP/s"
                            : "GB/s");
    return rate > 0 ? text : "-";
}

/* A share as "12.3%"; "-": it is not known. */
static const char *share_text(double share, bool known, char text[CELL])
{
    snprintf(text, CELL, "%.1f%%", 100 * share);
    return known ? text : "-";
}

static const char *layer_text(int64_t layer, char text[CELL])
{
    snprintf(text, CELL, "layer %" PRId64, layer);
    return layer >= 0 ? text : layer == F8_PROFILE_MANY ? "several layers" : "no layer";
}

static const char *limit_text(const f8_profile_row *r, char text[CELL])
{
    return share_text(r->limit > 0 ? f8_profile_rate(r) / r->limit : 0, r->limit > 0, text);
}

/* ---- tables ---- */

static void print_row(FILE *to, const f8_profile_row *r)
{
    char cell[6][CELL];
    cli_say(to, "%9s  %6s  %6s  %12s  %8s  %9s  %-10s  %-12s  %s%s%s",
            time_text(r->seconds, cell[0]), share_text(r->share, !r->beside, cell[1]),
            share_text(r->sum, true, cell[2]), rate_text(r, cell[3]), limit_text(r, cell[4]),
            r->estimated > 0 ? time_text(r->estimated, cell[5]) : "-", r->work, r->function,
            r->name, r->algorithm ? " " : "", r->algorithm ? r->algorithm : "");
    if (r->beside)
        cli_say(to, ", in no sum: beside %d steps; queued %s, waited for %s", (int)r->between,
                time_text(r->queued, cell[0]), time_text(r->waited, cell[1]));
    cli_say(to, "\n");
}

static void print_sums(FILE *to, const f8_profile_row *sum, size_t n, size_t most, const char *by)
{
    cli_say(to, "\n%-14s  %6s  %9s  %6s  %12s  %8s  %9s\n", by, "steps", "time", "share", "rate",
            "of limit", "estimated");
    for (size_t i = 0; i < n && i < most; i++) {
        const f8_profile_row *r = &sum[i];
        char cell[6][CELL];
        cli_say(to, "%-14s  %6" PRId64 "  %9s  %6s  %12s  %8s  %9s\n",
                r->work ? r->work : layer_text(r->layer, cell[0]), r->steps,
                time_text(r->seconds, cell[1]), share_text(r->share, true, cell[2]),
                rate_text(r, cell[3]), limit_text(r, cell[4]),
                r->estimated > 0 ? time_text(r->estimated, cell[5]) : "-");
    }
    if (n > most)
        cli_say(to, "and %zu more: --profile-rows all\n", n - most);
}

static void print_rows(FILE *to, const f8_profile *p, size_t most)
{
    char cell[CELL];
    cli_say(to, "%9s  %6s  %6s  %12s  %8s  %9s  %-10s  %-12s  %s\n", "time", "share", "sum", "rate",
            "of limit", "estimated", "work", "function", "step");
    for (size_t i = 0; i < p->n_rows && i < most; i++)
        print_row(to, &p->row[i]);
    double rest = 0;
    for (size_t i = most; i < p->n_rows; i++)
        rest += p->row[i].beside ? 0 : p->row[i].seconds;
    if (p->n_rows > most)
        cli_say(to, "%9s  %zu more: --profile-rows all\n", time_text(rest, cell), p->n_rows - most);
}

static void print(FILE *to, const f8_profile *p, size_t most)
{
    char cell[2][CELL];
    cli_say(to, "\nprofile: %s in the steps of the plan for each %s, the mean of %.0f",
            time_text(p->all.seconds, cell[0]), p->turn, p->turns);
    if (p->all.estimated > 0)
        cli_say(to, "; estimated %s", time_text(p->all.estimated, cell[1]));
    cli_say(to, "\n");
    print_rows(to, p, most);
    print_sums(to, p->work, p->n_works, most, "work");
    print_sums(to, p->layer, p->n_layers, most, "layer");
    if (p->all.gap > 0)
        cli_say(to, "\ngaps: in %s of these the GPU waited for the host to launch\n",
                time_text(p->all.gap, cell[0]));
    cli_say(to, "\nlimits: ");
    if (p->limit_bytes > 0)
        cli_say(to, "%.1f GB/s", p->limit_bytes / 1e9);
    if (p->limit_flops > 0)
        cli_say(to, "%s %.1f GFLOP/s", p->limit_flops_bf16 > 0 ? "," : " and",
                p->limit_flops / 1e9);
    if (p->limit_flops_bf16 > 0)
        cli_say(to, " in f32 and %.1f in bf16", p->limit_flops_bf16 / 1e9);
    cli_say(to, "%s%s\n", *p->limits_from ? ", " : "none is known", p->limits_from);
}

/* ---- all of it ---- */

bool cli_profile(const cli *c, const fp8c_program *program, f8_profile_runs runs, const void *user,
                 int except, const char *turn, double turns, cli_json *json, json_t *begin)
{
    FILE *to = cli_json_to_stdout(c) ? stderr : stdout;
    const size_t most = c->profile_rows < 0 ? SIZE_MAX
                        : c->profile_rows   ? (size_t)c->profile_rows
                                            : USUAL_ROWS;
    f8_profile p = {0};
    f8_diag diag = {0};
    size_t i;
    json_t *record;
    if (!c->profile || !(turns > 0)) {
        json_decref(begin);
        return true;
    }
    const bool ok = f8_profile_make(program, runs, user, except, turn, turns, &p, &diag) == F8_OK;
    if (!ok) {
        cli_error(NULL, "%s", diag.text);
    } else if (!p.n_rows) {
        cli_say(to, "\nprofile: target %s has no plan whose steps could be timed\n",
                fp8c_program_target(program));
    } else {
        print(to, &p, most);
    }
    json_t *all = f8_profile_records(&p, program, runs, user, begin);
    if (!all)
        cli_json_record(json, NULL);
    json_array_foreach (all, i, record)
        cli_json_record(json, json_incref(record));
    json_decref(all);
    f8_profile_free(&p);
    return ok;
}
