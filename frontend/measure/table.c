/* A set as a table for a terminal: see measure.h. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/measure/columns.h"
#include "ir/base/format.h"

static void put(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(FILE *to, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    f8_vformat(line, sizeof line, format, args);
    va_end(args);
    fputs(line, to);
}

/* ---- cells ---- */

static const char *seconds(double x, char to[F8_COLUMN_SHOWN])
{
    return isnan(x) ? "-" : f8_column_show(x, F8_UNIT_SECONDS, to);
}

static const char *bits(const f8_measurement *m)
{
    return m->same_bits == F8_MEASURE_UNKNOWN ? "-" : m->same_bits == F8_MEASURE_YES ? "yes" : "no";
}

static void put_number(FILE *to, int width, const char *format, double x)
{
    char text[F8_COLUMN_SHOWN] = "-";
    if (!isnan(x))
        f8_format(text, sizeof text, format, x);
    put(to, " %*s", width, text);
}

/* Median, quartiles, rate and share of the limit. */
static void put_times(const f8_measurement *m, FILE *to)
{
    char median[F8_COLUMN_SHOWN], first[F8_COLUMN_SHOWN], third[F8_COLUMN_SHOWN], both[64];
    f8_format(both, sizeof both, "%s - %s", seconds(m->quartile[0], first),
              seconds(m->quartile[1], third));
    put(to, " %9s  %-21s", seconds(m->median, median), both);
    put_number(to, 8, "%.1f", 1e-9 * m->rate);
    put_number(to, 6, "%.0f%%", m->share > 0 ? 100 * m->share : NAN);
}

#define TIMES_HEAD "    median  quartiles              GFLOP/s  limit"

static const char *why(const f8_measurement *m)
{
    return m->state == F8_MEASURE_LATE ? "out of time" : m->reason;
}

/* ---- one problem: a line for each way ---- */

static void put_way(const f8_measurement *m, int width, FILE *to)
{
    char compile[F8_COLUMN_SHOWN];
    put(to, "%-5.5s %c %-*s", m->cache, m->chosen ? '*' : ' ', width, m->candidate);
    if (m->state != F8_MEASURE_TIMED) {
        put(to, "  %s\n", why(m));
        return;
    }
    put(to, " %4zu", m->runs);
    put_times(m, to);
    put(to, "  %-4s", bits(m));
    put_number(to, 7, "%.2g", m->error);
    put(to, "  %9s\n", seconds(m->compile_seconds, compile));
}

static void put_ways(const f8_measure_set *set, FILE *to)
{
    int width = 34; /* room for the names of a CPU; cuBLASLt's differ in their last words */
    for (size_t i = 0; i < set->n_measurements; i++) {
        const int n = (int)strlen(set->measurement[i].candidate);
        width = n > width ? n : width;
    }
    put(to, "%s\n%-5s   %-*s %4s" TIMES_HEAD "  bits   error    compile\n",
        set->measurement->problem.text, "cache", width, "way (*: what compiles take)", "runs");
    for (size_t i = 0; i < set->n_measurements; i++)
        put_way(&set->measurement[i], width, to);
    fputs("bits: whether they are those of the model's way; error: the largest of 4,096 elements, "
          "in units of its bound\n",
          to);
}

/* ---- several problems: a line for each ---- */

/* The fastest of fp8c's ways; a problem's measurements are neighbours. */
static const f8_measurement *best_of(const f8_measure_set *set, const f8_measurement *model)
{
    const f8_measurement *best = model, *end = set->measurement + set->n_measurements;
    for (const f8_measurement *m = model; m < end && !strcmp(m->problem.text, model->problem.text);
         m++)
        if (m->kind != F8_MEASURE_PEER && m->state == F8_MEASURE_TIMED &&
            !strcmp(m->cache, model->cache) && m->median < best->median &&
            f8_measure_compares(m, model))
            best = m;
    return best;
}

static void put_problem(const f8_measure_set *set, const f8_measurement *model, FILE *to)
{
    const f8_measurement *best = best_of(set, model);
    char median[F8_COLUMN_SHOWN];
    put(to, "%-46s %5" PRId64 " %-5.5s", model->problem.text, model->problem.count, model->cache);
    if (model->state != F8_MEASURE_TIMED) {
        put(to, " %s\n", why(model));
        return;
    }
    put_times(model, to);
    put(to, " %9s", seconds(best->median, median));
    put_number(to, 5, "%.1f%%", 100 * (1 - best->median / model->median));
    put(to, "  %-4s %c %s", bits(best), best->chosen ? '*' : ' ', best->candidate);
    put(to, *model->problem.name ? "  (%s)\n" : "\n", model->problem.name);
}

static void put_problems(const f8_measure_set *set, FILE *to)
{
    put(to, "%-46s %5s %-5s" TIMES_HEAD "      best  less  bits   way (*: what compiles take)\n",
        "GEMM", "count", "cache");
    for (size_t i = 0; i < set->n_measurements; i++)
        if (set->measurement[i].kind == F8_MEASURE_MODEL)
            put_problem(set, &set->measurement[i], to);
}

/* ---- below the table ---- */

static void put_headline(const f8_measure_headline *x, FILE *to)
{
    char model[F8_COLUMN_SHOWN], best[F8_COLUMN_SHOWN], same[F8_COLUMN_SHOWN];
    put(to,
        "%s: %" PRId64 " of %" PRId64 " %s timed, %" PRId64 " lacking, %" PRId64 " out of time\n",
        x->cache, x->timed, x->problems, strcmp(x->cache, "step") ? "GEMMs" : "problems",
        x->lacking, x->late);
    if (!x->timed)
        return;
    if (isnan(x->best)) {
        put(to, "  each as often as a step has it: %s by the model, the only way that was timed\n",
            seconds(x->model, model));
        if (x->share > 0)
            put(to, "  share of this machine's limits, geometric mean: %.0f%%\n", 100 * x->share);
        return;
    }
    put(to,
        "  each as often as a step has it: %s by the model, %s at best (regret %.1f%%), %s "
        "at best with the same bits\n",
        seconds(x->model, model), seconds(x->best, best), 100 * x->regret,
        seconds(x->best_same_bits, same));
    if (x->share > 0)
        put(to,
            "  share of this machine's limits, geometric mean: %.0f%% by the model, %.0f%% "
            "at best\n",
            100 * x->share, 100 * x->best_share);
}

static void put_peer(const f8_measure_peer_line *x, FILE *to)
{
    put(to,
        "%s, fp8c's time over that of %s: %.3f by the model, %.3f at best (geometric means of "
        "%" PRId64 " GEMMs); fp8c's best is slower on %" PRId64 ", beyond the interval",
        x->cache, x->peer, x->model, x->best, x->problems, x->slower);
    if (x->unknown)
        put(to, "; %" PRId64 " have no interval", x->unknown);
    fputc('\n', to);
}

/* Whose limits are those of its data sheet. */
static bool is_gpu(const f8_measure_set *set)
{
    return !strncmp(set->about.target, "sm_", 3);
}

/* The median of a limit before, and after, over the processes that know it. */
static void put_limit(const f8_measure_set *set, const char *name, const char *unit, size_t member,
                      FILE *to)
{
    double x[2][64];
    size_t n = 0;
    for (size_t i = 0; i < set->n_processes && n < 64; i++) {
        const f8_measure_process *p = &set->process[i];
        x[0][n] = *(const double *)((const char *)&p->before + member);
        x[1][n] = *(const double *)((const char *)&p->after + member);
        n += x[0][n] > 0 && x[1][n] > 0;
    }
    if (!n)
        return;
    const double before = f8_measure_quantile(x[0], n, 0.5),
                 after = f8_measure_quantile(x[1], n, 0.5);
    if (is_gpu(set))
        put(to, "  %s %.1f %s\n", name, 1e-9 * after, unit);
    else
        put(to, "  %s %.1f and %.1f %s\n", name, 1e-9 * before, 1e-9 * after, unit);
}

static void put_machine(const f8_measure_set *set, FILE *to)
{
    put(to, "\n%s; %s; %zu process%s\n", set->about.device, set->about.libraries, set->n_processes,
        set->n_processes == 1 ? "" : "es");
    if (set->n_processes)
        put(to, "limits, %s:\n", is_gpu(set) ? "of its data sheet" : "measured before and after");
    put_limit(set, "f32", "GFLOP/s", offsetof(f8_measure_limits, flops_f32), to);
    put_limit(set, "bf16", "GFLOP/s", offsetof(f8_measure_limits, flops_bf16), to);
    put_limit(set, "FP8", "GFLOP/s", offsetof(f8_measure_limits, flops_fp8), to);
    put_limit(set, "memory", "GB/s", offsetof(f8_measure_limits, bytes), to);
    if (f8_measure_was_loaded(set))
        fputs("warning: the machine's load was above its CPUs before a process began; times are "
              "those of a busy machine\n",
              to);
}

void f8_measure_put_foot(const f8_measure_set *set, FILE *to)
{
    f8_measure_headline x;
    f8_measure_peer_line peer;
    put_machine(set, to);
    for (int i = 0; f8_measure_headline_at(set, i, &x); i++)
        put_headline(&x, to);
    for (int i = 0; f8_measure_peer_at(set, i, &peer); i++)
        put_peer(&peer, to);
}

/* ---- the whole ---- */

static bool has_one_problem(const f8_measure_set *set)
{
    for (size_t i = 1; i < set->n_measurements; i++)
        if (strcmp(set->measurement[i].problem.text, set->measurement->problem.text))
            return false;
    return true;
}

static void put_all(const f8_measure_set *set, FILE *to)
{
    if (!set->n_measurements)
        return;
    if (has_one_problem(set))
        put_ways(set, to);
    else
        put_problems(set, to);
    f8_measure_put_foot(set, to);
}

char *f8_measure_table(const f8_measure_set *set)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        return NULL;
    put_all(set, to);
    const bool ok = !ferror(to);
    if (!fclose(to) && ok)
        return text;
    free(text);
    return NULL;
}
