/* A diff of two sets for people, and as records: see measure.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/measure/measure.h"
#include "frontend/records/records.h"
#include "ir/base/format.h"

enum { LINE = 512, LABEL = 256 };

/* ---- what differs around the figures ---- */

typedef struct fact {
    const char *name, *value[2];
} fact;

static void put(FILE *to, const char *name, const char *side, const char *value)
{
    char head[LINE];
    f8_format(head, sizeof head, "%-10s %s", name, side);
    fputs(head, to);
    fputs(value, to);
    fputc('\n', to);
}

/* A fact once if it is the same on both sides. */
static void put_fact(FILE *to, const fact *f)
{
    const char *a = f->value[0] ? f->value[0] : "", *b = f->value[1] ? f->value[1] : "";
    if (!*a && !*b)
        return;
    if (!strcmp(a, b)) {
        put(to, f->name, "", a);
        return;
    }
    put(to, f->name, "A: ", *a ? a : "not known");
    put(to, "", "B: ", *b ? b : "not known");
}

static const char *version_of(const f8_measure_about *about, char to[LINE])
{
    const char *commit = about->commit ? about->commit : "";
    f8_format(to, LINE, "%s%s%s%s", about->version ? about->version : "", *commit ? " (" : "",
              commit, *commit ? ")" : "");
    return to;
}

static const char *date_of(const f8_measure_process *p)
{
    return p->date ? p->date : "";
}

/* When the first and the last process began. */
static const char *dates_of(const f8_measure_set *set, char to[LINE])
{
    to[0] = 0;
    if (!set->n_processes)
        return to;
    const char *first = date_of(&set->process[0]), *last = first;
    for (size_t i = 1; i < set->n_processes; i++) {
        const char *date = date_of(&set->process[i]);
        first = strcmp(date, first) < 0 ? date : first;
        last = strcmp(date, last) > 0 ? date : last;
    }
    f8_format(to, LINE, "%s%s%s, %zu process%s", first, strcmp(first, last) ? " to " : "",
              strcmp(first, last) ? last : "", set->n_processes, set->n_processes == 1 ? "" : "es");
    return to;
}

/* The least and the largest load, over the CPUs. */
static const char *loads_of(const f8_measure_set *set, char to[LINE])
{
    double least = INFINITY, most = -INFINITY;
    int64_t cpus = 0;
    to[0] = 0;
    for (size_t i = 0; i < set->n_processes; i++) {
        least = fmin(least, set->process[i].load); /* NaN is no least */
        most = fmax(most, set->process[i].load);
        cpus = set->process[i].cpus;
    }
    if (isfinite(least))
        f8_format(to, LINE, "%.2f to %.2f, with %" PRId64 " CPU%s", least, most, cpus,
                  cpus == 1 ? "" : "s");
    return to;
}

static void put_facts(FILE *to, const f8_measure_diff *d)
{
    const f8_measure_about *a = &d->a->about, *b = &d->b->about;
    char version[2][LINE], dates[2][LINE], loads[2][LINE], threads[2][LINE];
    f8_format(threads[0], LINE, "%" PRId64, a->threads);
    f8_format(threads[1], LINE, "%" PRId64, b->threads);
    const fact facts[] = {
        {"program", {a->program, b->program}},
        {"version", {version_of(a, version[0]), version_of(b, version[1])}},
        {"device", {a->device, b->device}},
        {"processor", {a->processor, b->processor}},
        {"target", {a->target, b->target}},
        {"threads", {threads[0], threads[1]}},
        {"libraries", {a->libraries, b->libraries}},
        {"driver", {a->driver, b->driver}},
        {"governor", {a->governor, b->governor}},
        {"system", {a->system, b->system}},
        {"inputs", {a->inputs, b->inputs}},
        {"date", {dates_of(d->a, dates[0]), dates_of(d->b, dates[1])}},
        {"load", {loads_of(d->a, loads[0]), loads_of(d->b, loads[1])}},
    };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        put_fact(to, &facts[i]);
    for (int side = 0; side < 2; side++)
        if (f8_measure_was_loaded(side ? d->b : d->a))
            put(to, "warning",
                side ? "B: " : "A: ", "the load was above the CPUs: others used this machine, too");
}

/* ---- rows ---- */

/* A time of four digits. */
static const char *show_time(double seconds, char to[32])
{
    static const struct {
        double unit;
        const char *name;
    } units[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
    size_t i = 0;
    while (i < 3 && seconds < units[i].unit)
        i++;
    const double x = seconds / units[i].unit;
    const int digits = x < 10 ? 3 : x < 100 ? 2 : x < 1000 ? 1 : 0;
    f8_format(to, 32, x < 1e6 ? "%.*f %s" : "%.*e %s", digits, x, units[i].name);
    return to;
}

static bool differ(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") != 0;
}

static const char *show_interval(const f8_measure_change *c, char to[64])
{
    if (!isnan(c->ratio.low))
        f8_format(to, 64, "%.3f to %.3f", c->ratio.low, c->ratio.high);
    else
        f8_format(to, 64, "%s",
                  c->a->n_processes < 2 || c->b->n_processes < 2 ? "one process: no interval"
                                                                 : "0 s: no interval");
    return to;
}

/* A problem; that of a model's step behind the step's name, for the text of a kernel has none. */
static const char *label(const f8_measurement *m, char to[LABEL])
{
    const bool named = !strcmp(m->cache, "step") && *m->problem.name;
    f8_format(to, LABEL, "%s%s%s", named ? m->problem.name : "", named ? ": " : "",
              m->problem.text);
    return to;
}

static void put_change(FILE *to, const f8_measure_change *c, int width)
{
    char line[LINE], time[2][32], interval[64], problem[LABEL];
    f8_format(line, sizeof line, "%-*s  %-5s  %10s  %10s  %7.3f  %-24s  %s", width,
              label(c->a, problem), c->a->cache, show_time(c->a->median, time[0]),
              show_time(c->b->median, time[1]), c->ratio.ratio, show_interval(c, interval),
              !c->marked           ? ""
              : c->ratio.ratio > 1 ? "slower"
                                   : "faster");
    size_t n = strlen(line);
    while (n && line[n - 1] == ' ')
        line[--n] = 0;
    fputs(line, to);
    const char *a[] = {c->a->candidate, c->a->operands}, *b[] = {c->b->candidate, c->b->operands};
    for (int i = 0; i < 2; i++)
        if (differ(a[i], b[i])) {
            const char *const words[] = {i ? "  (of A: " : "  (A: ", a[i],
                                         i ? "; of B: " : "; B: ", b[i], ")"};
            for (int j = 0; j < 5; j++)
                fputs(words[j] ? words[j] : "", to);
        }
    fputc('\n', to);
}

/* Marked ones first, then the slowest. */
static int compare(const void *a, const void *b)
{
    const f8_measure_change *x = *(const f8_measure_change *const *)a;
    const f8_measure_change *y = *(const f8_measure_change *const *)b;
    if (x->marked != y->marked)
        return y->marked - x->marked;
    const double r = x->ratio.ratio, s = y->ratio.ratio;
    if (r == s || isnan(r) || isnan(s)) /* a ratio of nothing comes last; else a's order */
        return isnan(r) != isnan(s) ? isnan(r) - isnan(s) : (x > y) - (x < y);
    return r < s ? 1 : -1;
}

static int width_of(const f8_measure_diff *d)
{
    size_t width = strlen("problem");
    char problem[LABEL];
    for (size_t i = 0; i < d->n_changes; i++) {
        const size_t n = strlen(label(d->change[i].a, problem));
        width = n > width ? n : width;
    }
    return (int)(width < 200 ? width : 200);
}

static void put_changes(FILE *to, const f8_measure_diff *d, const f8_measure_change **order)
{
    char head[LINE], interval[32];
    const int width = width_of(d);
    for (size_t i = 0; i < d->n_changes; i++)
        order[i] = &d->change[i];
    qsort(order, d->n_changes, sizeof *order, compare);
    f8_format(interval, sizeof interval, "%g%% interval", 100 * d->options.level);
    f8_format(head, sizeof head, "\n%-*s  %-5s  %10s  %10s  %7s  %s\n", width, "problem", "cache",
              "A median", "B median", "B/A", interval);
    fputs(head, to);
    for (size_t i = 0; i < d->n_changes; i++)
        put_change(to, order[i], width);
}

static void put_only(FILE *to, const f8_measure_diff *d, int side)
{
    if (d->n_only[side])
        fputs(side ? "\nin B alone:\n" : "\nin A alone:\n", to);
    for (size_t i = 0; i < d->n_only[side]; i++) {
        const f8_measurement *m = d->only[side][i];
        char time[32], problem[LABEL];
        const char *const words[] = {"  ", label(m, problem),          "  ", m->cache,
                                     "  ", show_time(m->median, time), "  ", m->candidate,
                                     "\n"};
        for (size_t j = 0; j < sizeof words / sizeof *words; j++)
            fputs(words[j], to);
    }
}

static void put_end(FILE *to, const f8_measure_diff *d)
{
    size_t marked = 0, without = 0;
    char text[LINE];
    for (size_t i = 0; i < d->n_changes; i++) {
        marked += d->change[i].marked;
        without += isnan(d->change[i].ratio.p);
    }
    f8_format(
        text, sizeof text,
        "\n%zu problem%s in both, geometric mean of B/A %.3f; %zu marked: p < %g after Holm's "
        "correction\n",
        d->n_changes, d->n_changes == 1 ? "" : "s", d->mean, marked, 1 - d->options.level);
    fputs(text, to);
    f8_format(text, sizeof text,
              "intervals by a bootstrap over processes, then runs: %" PRId64 " draws, seed %" PRIu64
              "\n",
              d->options.draws, d->options.seed);
    fputs(text, to);
    f8_format(text, sizeof text,
              "together the problems changed by more than their runs explain, as on a machine that "
              "is not the same from call to call: all intervals allow for %.1f%%%s\n",
              100 * d->scatter, d->scatter > 0.0299 ? ", the most that is allowed for" : "");
    if (d->scatter > 0.0005)
        fputs(text, to);
    if (d->drift.limit) {
        const f8_measure_ratio *r = &d->drift.ratio;
        f8_format(text, sizeof text,
                  "the machine was in another state: its limit of %s in B is %.3f of that in A "
                  "(%.3f to %.3f). All intervals allow for as large a change\n",
                  d->drift.limit, 1 / r->ratio, 1 / r->high, 1 / r->low);
        fputs(text, to);
    }
    f8_format(text, sizeof text,
              "%zu without an interval: only what several processes measured has one "
              "(--processes)\n",
              without);
    if (without)
        fputs(text, to);
}

char *f8_measure_diff_table(const f8_measure_diff *d)
{
    char *text = NULL;
    size_t n;
    const f8_measure_change **order = malloc((d->n_changes + 1) * sizeof *order);
    FILE *to = order ? open_memstream(&text, &n) : NULL;
    if (to) {
        put_facts(to, d);
        put_changes(to, d, order);
        put_only(to, d, 0);
        put_only(to, d, 1);
        put_end(to, d);
    }
    const bool whole = to && !ferror(to);
    free((void *)order);
    if (to && !fclose(to) && whole)
        return text;
    free(text);
    return NULL;
}

/* ---- records ---- */

static json_t *change_record(const f8_measure_change *c)
{
    const f8_measurement *a = c->a, *b = c->b;
    return json_pack("{ss ss ss ss ss so so sI sI sI sI so so so so sb}", "event", "change",
                     "problem", a->problem.text, "cache", a->cache, "candidate_a", a->candidate,
                     "candidate_b", b->candidate, "median_a", f8_json_number(a->median), "median_b",
                     f8_json_number(b->median), "runs_a", (json_int_t)a->runs, "runs_b",
                     (json_int_t)b->runs, "processes_a", (json_int_t)a->n_processes, "processes_b",
                     (json_int_t)b->n_processes, "ratio", f8_json_number(c->ratio.ratio), "low",
                     f8_json_number(c->ratio.low), "high", f8_json_number(c->ratio.high), "p",
                     f8_json_number(c->ratio.p), "marked", c->marked);
}

static json_t *only_record(const f8_measurement *m, int side)
{
    return json_pack("{ss ss ss ss ss so}", "event", "only", "in", side ? "b" : "a", "problem",
                     m->problem.text, "cache", m->cache, "candidate", m->candidate, "median",
                     f8_json_number(m->median));
}

static const char *text(const char *x)
{
    return x ? x : "";
}

static json_t *side_of(const f8_measure_set *set)
{
    char dates[LINE], loads[LINE];
    const f8_measure_about *x = &set->about;
    return json_pack("{ss ss ss ss ss sI ss ss ss sb}", "version", text(x->version), "commit",
                     text(x->commit), "device", text(x->device), "target", text(x->target),
                     "libraries", text(x->libraries), "threads", (json_int_t)x->threads, "inputs",
                     text(x->inputs), "dates", dates_of(set, dates), "loads", loads_of(set, loads),
                     "loaded", f8_measure_was_loaded(set));
}

static json_t *diff_record(const f8_measure_diff *d)
{
    json_int_t marked = 0;
    for (size_t i = 0; i < d->n_changes; i++)
        marked += d->change[i].marked;
    return json_pack("{ss sI sI so sI sI so so ss so so so}", "event", "diff", "changes",
                     (json_int_t)d->n_changes, "marked", marked, "mean", f8_json_number(d->mean),
                     "seed", (json_int_t)d->options.seed, "draws", (json_int_t)d->options.draws,
                     "level", f8_json_number(d->options.level), "drift",
                     f8_json_number(d->options.drift), "drift_of", text(d->drift.limit), "scatter",
                     f8_json_number(d->scatter), "a", side_of(d->a), "b", side_of(d->b));
}

json_t *f8_measure_diff_records(const f8_measure_diff *d)
{
    json_t *all = json_array();
    bool ok = all != NULL;
    for (size_t i = 0; ok && i < d->n_changes; i++)
        ok = !json_array_append_new(all, change_record(&d->change[i]));
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; ok && i < d->n_only[side]; i++)
            ok = !json_array_append_new(all, only_record(d->only[side][i], side));
    ok = ok && !json_array_append_new(all, diff_record(d));
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}
