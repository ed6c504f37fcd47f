/* What `fp8c report` prints. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/diagnose/report/parts.h"
#include "ir/base/format.h"
#include "ir/base/text.h"

enum { NAMED = 5, LINE = 1 << 14 }; /* tensors named of each run; bytes of two paths and words */

/* Names and messages are of others: no control character of theirs comes through. */
static void say(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(FILE *to, const char *format, ...)
{
    char line[LINE];
    va_list args;
    va_start(args, format);
    f8_vformat(line, sizeof line, format, args);
    va_end(args);
    f8_text_make_plain(line);
    fputs(line, to);
}

static const char *many(size_t n)
{
    return n == 1 ? "" : "s";
}

/* ---- runs ---- */

static void say_run(FILE *to, const f8_report_run *r)
{
    say(to, "%s: %zu step%s, final loss %.4f, ", r->name, r->n_steps, many(r->n_steps),
        f8_report_loss(r, r->n_steps));
    if (r->has_stats)
        say(to, "%zu tensor%s watched at %zu step%s\n", r->n_series, many(r->n_series),
            r->n_watched, many(r->n_watched));
    else
        say(to, "no statistics: train keeps them with --stats\n");
}

static void say_parted(FILE *to, const f8_report_parted *p)
{
    const double *run = p->run_at.figure, *good = p->good_at.figure;
    say(to, "  %s: step %" PRId64 ", underflow %.3g%% (%.3g%%), MSE %.3g (%.3g)\n", p->run->tensor,
        p->step, 100 * run[F8_FIGURE_underflow], 100 * good[F8_FIGURE_underflow],
        run[F8_FIGURE_mse], good[F8_FIGURE_mse]);
}

static f8_status say_part(FILE *to, const f8_report_run *good, const f8_report_run *run,
                          f8_diag *diag)
{
    f8_report_parting p;
    const f8_status status = f8_report_part(good, run, &p, diag);
    if (status == F8_OK) {
        say(to, "%s beside %s: ", run->name, good->name);
        if (p.loss_step)
            say(to, "the loss parts at step %" PRId64, p.loss_step);
        else
            say(to, "the loss does not part");
        if (p.compared)
            say(to, ", %zu of %zu tensors part%s\n", p.n, p.compared, p.n ? "; first" : "");
        else
            say(to, "; no tensor has figures in both runs\n");
    }
    for (size_t i = 0; i < p.n && i < NAMED && status == F8_OK; i++)
        say_parted(to, &p.tensor[i]);
    f8_report_part_free(&p);
    return status;
}

static f8_status say_runs(FILE *to, const f8_report *r, f8_diag *diag)
{
    for (size_t i = 0; i < r->n; i++)
        say_run(to, &r->run[i]);
    for (size_t i = 1; i < r->n; i++)
        F8_TRY(say_part(to, &r->run[0], &r->run[i], diag));
    return F8_OK;
}

/* ---- an index ---- */

/* How wide the column is in which all runs have one of the texts. */
static int width_of(const f8_report *r, const char *head,
                    const char *(*text)(const f8_report_run *))
{
    size_t width = strlen(head);
    for (size_t i = 0; i < r->n; i++)
        width = strlen(text(&r->run[i])) > width ? strlen(text(&r->run[i])) : width;
    return (int)width;
}

static const char *name_of(const f8_report_run *r)
{
    return r->name;
}

static const char *recipe_of(const f8_report_run *r)
{
    return f8_report_info(r, "recipe");
}

/* What the rates of all runs are. */
static const char *rate_head(const f8_report *r)
{
    for (size_t i = 1; i < r->n; i++)
        if (strcmp(r->run[i].rate_name, r->run[0].rate_name))
            return "rate";
    return r->n && !strncmp(r->run[0].rate_name, "rows", 4) ? "rows/s" : "tokens/s";
}

static void say_index(FILE *to, const f8_report *r)
{
    const int name = width_of(r, "run", name_of), recipe = width_of(r, "recipe", recipe_of);
    say(to, "%-*s  %-*s  %8s  %-8s  %10s  %9s  %10s  %6s\n", name, "run", recipe, "recipe", "steps",
        "", "final loss", "gap", rate_head(r), "alarms");
    for (size_t i = 0; i < r->n; i++) {
        const f8_report_run *run = &r->run[i];
        const f8_report_gap g = f8_report_gap_of(r, i);
        char gap[24] = "-", rate[24] = "-";
        if (g.base)
            f8_format(gap, sizeof gap, "%+.3f%%", 100 * g.gap);
        if (!isnan(f8_report_rate(run)))
            f8_format(rate, sizeof rate, "%.0f", f8_report_rate(run));
        say(to, "%-*s  %-*s  %8zu  %-8s  %10.4f  %9s  %10s  %6zu\n", name, name_of(run), recipe,
            recipe_of(run), run->n_steps, f8_report_state(run), f8_report_loss(run, run->n_steps),
            gap, rate, json_array_size(run->warnings));
    }
    for (size_t i = 0; i < r->n_unread; i++)
        say(to, "%s can't be read: %s\n", r->unread[i].name, r->unread[i].why);
}

f8_status f8_report_words(const f8_report *r, char **text, f8_diag *diag)
{
    size_t size;
    f8_status status = F8_OK;
    FILE *to = open_memstream(text, &size);
    if (!to)
        return f8_report_no_memory(diag);
    if (r->kind == F8_REPORT_INDEX)
        say_index(to, r);
    else
        status = say_runs(to, r, diag);
    if (fclose(to) && status == F8_OK)
        status = f8_report_no_memory(diag);
    if (status != F8_OK) {
        free(*text);
        *text = NULL;
    }
    return status;
}
