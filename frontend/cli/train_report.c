/* What `fp8c train` says of its runs: see cmd_train.h. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/cmd_train.h"

/* ---- how far it is ---- */

enum { BAR = 24, LEAST_BAR = 4 };

/* "12 s", "3 min 20 s", "2 h 5 min" */
static const char *duration(double seconds, char text[40])
{
    const int64_t s = seconds < 1e9 ? (int64_t)(seconds + 0.5) : 1000000000;
    if (s < 60)
        snprintf(text, 40, "%" PRId64 " s", s);
    else if (s < 3600)
        snprintf(text, 40, "%" PRId64 " min %" PRId64 " s", s / 60, s % 60);
    else
        snprintf(text, 40, "%" PRId64 " h %" PRId64 " min", s / 3600, s % 3600 / 60);
    return text;
}

void cli_train_progress(const cli_train_now *now)
{
    char left[40], lr[40] = "", bar[BAR + 4] = "", text[400], line[800];
    if (!isnan(now->lr))
        snprintf(lr, sizeof lr, "  lr %.3g", now->lr);
    const int used = snprintf(text, sizeof text,
                              "%" PRId64 "/%" PRId64 "  loss %.4f%s  %.0f %s/s  %s left  %.1f MiB",
                              now->step, now->steps, now->loss, lr, now->rate, now->items,
                              duration(now->seconds_left, left), (double)now->bytes / (1 << 20));
    const int room = cli_columns() - (int)strlen(now->recipe) - used - 4,
              size = room < BAR ? room : BAR;
    if (size >= LEAST_BAR) {
        bar[0] = '[';
        for (int i = 0; i < size; i++)
            bar[1 + i] = i < size * now->step / now->steps ? '#' : '.';
        memcpy(bar + 1 + size, "] ", 3);
    }
    snprintf(line, sizeof line, "%s %s%s", now->recipe, bar, text);
    fprintf(stderr, "\r%.*s\033[K%s", cli_columns(), line, now->last ? "\n" : "");
}

/* ---- several seeds ---- */

/* The mean of a quantity over the seeds, and its sample standard deviation (0 for one seed). */
typedef struct spread {
    double mean, deviation;
} spread;

static spread spread_of(const double *value, int64_t n)
{
    spread s = {0, 0};
    for (int64_t i = 0; i < n; i++)
        s.mean += value[i] / (double)n;
    for (int64_t i = 0; i < n && n > 1; i++)
        s.deviation += (value[i] - s.mean) * (value[i] - s.mean) / (double)(n - 1);
    s.deviation = sqrt(s.deviation);
    return s;
}

enum { FINAL, HELD_OUT, RATE, GAP, N_QUANTITIES };

/* A recipe's runs. A gap is taken between runs of one seed, which see the same data. */
typedef struct summary {
    spread of[N_QUANTITIES];
    bool is_base, inside; /* inside: the gap is not larger than its spread */
} summary;

static double quantity(const f8_train_result *r, const f8_train_result *base, int which)
{
    return which == FINAL      ? r->final_loss
           : which == HELD_OUT ? r->heldout_loss
           : which == RATE     ? r->items_per_second
                               : r->final_loss / base->final_loss - 1;
}

static summary summarize(const cli *c, const f8_train_result *results, size_t recipe)
{
    const int64_t n = c->seeds;
    const size_t base = cli_baseline(c);
    summary s = {.is_base = recipe == base};
    double *value = malloc((size_t)n * sizeof *value);
    for (int q = 0; q < N_QUANTITIES; q++) {
        for (int64_t i = 0; value && i < n; i++)
            value[i] =
                quantity(&results[(int64_t)recipe * n + i], &results[(int64_t)base * n + i], q);
        s.of[q] = value ? spread_of(value, n) : (spread){NAN, NAN};
        if (isnan(s.of[q].mean)) /* which printf would write with its sign */
            s.of[q] = (spread){NAN, NAN};
    }
    free(value);
    s.inside = n > 1 && !s.is_base && fabs(s.of[GAP].mean) <= s.of[GAP].deviation;
    return s;
}

void cli_train_record_spread(const cli *c, const f8_train_result *results, cli_json *json)
{
    for (size_t i = 0; i <= c->compare.n && c->seeds > 1; i++) {
        const summary s = summarize(c, results, i);
        const spread *gap = &s.of[GAP];
        json_t *record =
            json_pack("{ss ss sI sI so so so so}", "event", "spread", "recipe", cli_recipe(c, i),
                      "seed", (json_int_t)c->seed, "seeds", (json_int_t)c->seeds, "final_loss",
                      f8_json_number(s.of[FINAL].mean), "final_loss_deviation",
                      f8_json_number(s.of[FINAL].deviation), "heldout_loss",
                      f8_json_number(s.of[HELD_OUT].mean), "heldout_loss_deviation",
                      f8_json_number(s.of[HELD_OUT].deviation));
        if (record && !s.is_base)
            json_object_update_new(record,
                                   json_pack("{so so sb}", "gap", f8_json_number(gap->mean),
                                             "gap_deviation", f8_json_number(gap->deviation),
                                             "gap_inside_spread", (int)s.inside));
        cli_json_record(json, record);
    }
}

/* ---- the table ---- */

static void print_head(const cli *c, const f8_data *data, int width)
{
    char rate[16];
    const bool several = c->seeds > 1;
    const char *spread = several ? "   spread" : "";
    snprintf(rate, sizeof rate, "%s/s", f8_data_items_name(data));
    printf("%-*s %11s%s %11s%s %10s%s%s %10s %12s %9s  %s\n", width, "recipe", "final loss", spread,
           "held out", spread, "gap", spread, several ? "  " : "", rate, "peak memory", "compile",
           "FP8 GEMMs a step (planned)");
}

/* Losses that are not finite are shown as they are: a diverged run must look like one. */
static void print_row(const cli *c, const f8_train_result *r, const summary *s, int width)
{
    char spread[2][16] = {"", ""}, gap[40] = "-";
    for (int q = FINAL; q <= HELD_OUT && c->seeds > 1; q++)
        snprintf(spread[q], sizeof spread[q], " %8.4f", s->of[q].deviation);
    if (!s->is_base)
        snprintf(gap, sizeof gap, "%+.3f%%", 100 * s->of[GAP].mean);
    printf("%-*s %11.4f%s %11.4f%s %10s", width, r->recipe, s->of[FINAL].mean, spread[FINAL],
           s->of[HELD_OUT].mean, spread[HELD_OUT], gap);
    if (c->seeds > 1 && s->is_base)
        printf(" %8s  ", "-");
    else if (c->seeds > 1)
        printf(" %7.3f%%%s", 100 * s->of[GAP].deviation, s->inside ? " *" : "  ");
    printf(" %10.0f %8.1f MiB %7.2f s  %" PRId64 " (%" PRId64 ")\n", s->of[RATE].mean,
           (double)r->info.peak_bytes / (1 << 20), r->info.compile_seconds, r->fp8_gemms,
           r->fp8_planned);
}

static void print_spread(const cli *c, bool inside)
{
    if (c->seeds == 1) {
        printf("one seed: no spread is known%s; --seeds N trains with N\n",
               c->compare.n ? ", so a gap may be chance" : "");
        return;
    }
    printf("%" PRId64 " seeds, from %" PRIu64
           ": losses are means, spread is their sample standard deviation\n",
           c->seeds, c->seed);
    if (c->compare.n)
        printf("a gap is taken between runs of one seed\n");
    if (inside)
        printf("* not larger than its spread: these runs do not show a difference\n");
}

static void print_skipped(const cli *c, const f8_train_result *results, size_t recipe)
{
    int64_t skipped = 0;
    for (int64_t i = 0; i < c->seeds; i++)
        skipped += results[(int64_t)recipe * c->seeds + i].skipped;
    if (skipped)
        printf("%s: %" PRId64 " of %" PRId64
               " steps were skipped: their gradient norm was not finite\n",
               cli_recipe(c, recipe), skipped, c->seeds * c->steps);
}

static void print_remat(const f8_train_result *r)
{
    const fp8c_remat *m = &r->remat;
    if (m->arena_before)
        printf("%s: micro_step recomputes %" PRId64
               " values: this reduces the arena from %.1f to %.1f MiB and takes an estimated "
               "%.2f%% more time\n",
               r->recipe, m->recomputed, (double)m->arena_before / (1 << 20),
               (double)m->arena_after / (1 << 20), 100 * m->extra_seconds / m->seconds);
}

void cli_train_print(const cli *c, const f8_train_result *results, int64_t tail,
                     const f8_data *data)
{
    const int width = cli_recipe_width(c, 10);
    bool inside = false;
    print_head(c, data, width);
    for (size_t i = 0; i <= c->compare.n; i++) {
        const summary s = summarize(c, results, i);
        print_row(c, &results[i * (size_t)c->seeds], &s, width);
        inside |= s.inside;
    }
    print_spread(c, inside);
    for (size_t i = 0; i <= c->compare.n; i++) {
        print_skipped(c, results, i);
        print_remat(&results[i * (size_t)c->seeds]);
    }
    const fp8c_device *d = &results[0].device;
    if (*d->name)
        printf("on %s (%s), %" PRId32 " multiprocessors, %.1f GiB\n", d->name, results[0].target,
               d->multiprocessors, (double)d->memory / (1 << 30));
    char compared[80], of[60] = "that of the last step";
    if (tail > 1)
        snprintf(of, sizeof of, "the mean of the last %" PRId64 " steps", tail);
    printf("%s; final loss is %s%s\n", f8_data_losses(data), of, f8_data_compared(data, compared));
}
