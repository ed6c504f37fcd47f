/* What `fp8c train` says of its runs: see cmd_train.h. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "frontend/cli/cmd_train.h"
#include "frontend/train/spread.h"

/* ---- how far it is ---- */

enum { BAR = 24, LEAST_BAR = 4 };

/* "12 s", "3 min 20 s", "2 h 5 min" */
static void duration(double seconds, char text[40])
{
    const int64_t s = seconds < 1e9 ? (int64_t)(seconds + 0.5) : 1000000000;
    if (s < 60)
        snprintf(text, 40, "%" PRId64 " s", s);
    else if (s < 3600)
        snprintf(text, 40, "%" PRId64 " min %" PRId64 " s", s / 60, s % 60);
    else
        snprintf(text, 40, "%" PRId64 " h %" PRId64 " min", s / 3600, s % 3600 / 60);
}

void cli_train_progress(const f8_training *r, const f8_train_step *f)
{
    char left[40], lr[40] = "", bar[BAR + 4] = "", text[400], line[800];
    fp8c_info info = {.struct_size = sizeof info};
    const int64_t steps = r->t->options->steps;
    const double n = (double)(f->step - r->begin),
                 rate = n * (double)(r->accumulate * f8_data_items(r->data)) / f->seconds;
    fp8c_program_info(r->program, &info);
    if (!isnan(f->lr))
        snprintf(lr, sizeof lr, "  lr %.3g", f->lr);
    duration(f->seconds / n * (double)(r->end - f->step), left);
    const int used = snprintf(text, sizeof text,
                              "%" PRId64 "/%" PRId64 "  loss %.4f%s  %.0f %s/s  %s left  %.1f MiB",
                              f->step, steps, f->loss, lr, rate, f8_data_items_name(r->data), left,
                              cli_mib(info.peak_bytes));
    const int room = cli_columns() - (int)strlen(r->recipe) - used - 4,
              size = room < BAR ? room : BAR;
    if (size >= LEAST_BAR) {
        bar[0] = '[';
        for (int i = 0; i < size; i++)
            bar[1 + i] = i < size * f->step / steps ? '#' : '.';
        memcpy(bar + 1 + size, "] ", 3);
    }
    snprintf(line, sizeof line, "%s %s%s", r->recipe, bar, text);
    fprintf(stderr, "\r%.*s\033[K%s", cli_columns(), line, f->step == r->end ? "\n" : "");
}

/* ---- the table ---- */

static void print_head(const cli *c, const f8_data *data, int width)
{
    char rate[16];
    const bool several = c->seeds > 1;
    const char *spread = several ? "   spread" : "";
    snprintf(rate, sizeof rate, "%s/s", f8_data_items_name(data));
    cli_say(stdout, "%-*s %11s%s %11s%s %10s%s%s %10s %12s %9s  %s\n", width, "recipe",
            "final loss", spread, "held out", spread, "gap", spread, several ? "  " : "", rate,
            "peak memory", "compile", "FP8 GEMMs a step (planned)");
}

/* Losses that are not finite are shown as they are: a diverged run must look like one. */
static void print_row(const cli *c, const f8_train_result *r, const f8_spreads *s, bool is_base,
                      int width)
{
    const f8_spread *losses[] = {&s->final_loss, &s->heldout_loss};
    char gap[40] = "-";
    cli_say(stdout, "%-*s", width, r->recipe);
    for (int i = 0; i < 2; i++) {
        cli_say(stdout, " %11.4f", losses[i]->mean);
        if (c->seeds > 1)
            cli_say(stdout, " %8.4f", losses[i]->deviation);
    }
    if (!is_base)
        snprintf(gap, sizeof gap, "%+.3f%%", 100 * s->gap.mean);
    cli_say(stdout, " %10s", gap);
    if (c->seeds > 1 && is_base)
        cli_say(stdout, " %8s  ", "-");
    else if (c->seeds > 1)
        cli_say(stdout, " %7.3f%%%s", 100 * s->gap.deviation, s->inside ? " *" : "  ");
    cli_say(stdout, " %10.0f %8.1f MiB %7.2f s  %" PRId64 " (%" PRId64 ")\n",
            s->items_per_second.mean, cli_mib(r->info.peak_bytes), r->info.compile_seconds,
            r->fp8_gemms, r->fp8_planned);
}

static void print_spread(const cli *c, bool inside)
{
    if (c->seeds == 1) {
        cli_say(stdout, "one seed: no spread is known%s; --seeds N trains with N\n",
                c->compare.n ? ", so a gap may be chance" : "");
        return;
    }
    cli_say(stdout,
            "%" PRId64 " seeds, from %" PRIu64
            ": losses are means, spread is their sample standard deviation\n",
            c->seeds, c->seed);
    if (c->compare.n)
        cli_say(stdout, "a gap is taken between runs of one seed\n");
    if (inside)
        cli_say(stdout, "* not larger than its spread: these runs do not show a difference\n");
}

static void print_skipped(const cli *c, const f8_train_result *results, size_t recipe)
{
    int64_t skipped = 0;
    for (int64_t i = 0; i < c->seeds; i++)
        skipped += results[(int64_t)recipe * c->seeds + i].skipped;
    if (skipped)
        cli_say(stdout,
                "%s: %" PRId64 " of %" PRId64
                " steps were skipped: their gradient norm was not finite\n",
                cli_recipe(c, recipe), skipped, c->seeds * c->steps);
}

static void print_remat(const f8_train_result *r)
{
    const fp8c_remat *m = &r->remat;
    if (m->arena_before)
        cli_say(stdout,
                "%s: micro_step recomputes %" PRId64
                " values: this reduces the arena from %.1f to %.1f MiB and takes an estimated "
                "%.2f%% more time\n",
                r->recipe, m->recomputed, cli_mib(m->arena_before), cli_mib(m->arena_after),
                100 * m->extra_seconds / m->seconds);
}

void cli_train_print(const cli *c, const f8_train_result *results, int64_t tail,
                     const f8_data *data)
{
    const int width = cli_recipe_width(c, 10);
    const f8_train_result *runs = results, *base = results + cli_baseline(c) * (size_t)c->seeds;
    bool inside = false;
    print_head(c, data, width);
    for (size_t i = 0; i <= c->compare.n; i++, runs += c->seeds) {
        const f8_spreads s = f8_spreads_of(runs, base, c->seeds);
        print_row(c, runs, &s, runs == base, width);
        inside |= s.inside;
    }
    print_spread(c, inside);
    for (size_t i = 0; i <= c->compare.n; i++) {
        print_skipped(c, results, i);
        print_remat(&results[i * (size_t)c->seeds]);
    }
    const fp8c_device *d = &results[0].device;
    if (*d->name)
        cli_say(stdout, "on %s (%s), %" PRId32 " multiprocessors, %.1f GiB\n", d->name,
                results[0].target, d->multiprocessors, (double)d->memory / (1 << 30));
    char compared[80], of[60] = "that of the last step";
    if (tail > 1)
        snprintf(of, sizeof of, "the mean of the last %" PRId64 " steps", tail);
    cli_say(stdout, "%s; final loss is %s%s\n", f8_data_losses(data), of,
            f8_data_compared(data, compared));
}
