/* Predicted extra time by budget, compared with other ways to recompute. See memory.h.
 *
 * Two baselines:
 *
 *     every layer  a checkpoint at every layer: the residual stream alone is kept
 *                  (Chen et al. 2016, arXiv 1604.06174)
 *     selective    attention alone is recomputed, from its GEMM's results
 *                  (Korthikanti et al. 2022, arXiv 2205.05198)
 *
 * A third is the best plan of whole layers for a budget: it recomputes as many layers as the budget
 * needs and keeps the others. It is estimated, not planned. L - 1 of L layers save as much as all
 * L, since the layer whose backward runs first is recomputed at the peak. So n of L layers save n /
 * (L - 1) of the bytes and take n / L of the time. The estimate favours this baseline: where the
 * peak is in the head, that layer cannot be kept either. */
#include "bench/memory.h"

#include <math.h>
#include <string.h>

enum { SHARES = 9 };

typedef struct compared {
    plan_case c;
    plan_result base, checkpoint, selective;
    plan_result half;    /* the arena shrank by half of the activations */
    plan_result at_peak; /* activations and FP8 copies at the peak are half, or less */
} compared;

static double extra(const plan_result *r)
{
    return percent(r->extra_seconds, r->seconds);
}

/* Percent of extra time for the best plan of whole layers within `arena`; NaN: there is none. */
static double by_layers(const compared *x, int64_t arena)
{
    const double saved = (double)(x->base.before - x->checkpoint.after);
    const double need = (double)(x->base.before - arena);
    const double n = x->c.layers > 1 ? ceil(need / saved * (double)(x->c.layers - 1) - 1e-9)
                                     : (double)x->c.layers;
    if (saved <= 0 || need > saved)
        return (double)NAN;
    return extra(&x->checkpoint) * n / (double)x->c.layers;
}

static void print_plan(output *o, const compared *x, const char *name, const plan_result *r)
{
    char layers[32] = "none";
    const double other = by_layers(x, r->after);
    if (!isnan(other))
        snprintf(layers, sizeof layers, "%.2f%%", other);
    say(o, "| %s%s | %.1f | %.3f | %.1f | %lld | %.2f%% | %s |\n", name,
        r->met ? "" : ": not met, the least found", mib(r->after),
        (double)activations_left(r) / (double)r->activations_before, mib(r->activations_after),
        (long long)r->recomputed, extra(r), layers);
}

static void record_plan(output *o, const compared *x, const char *what, const plan_result *r)
{
    char name[96];
    case_name(&x->c, name, sizeof name);
    if (r->met)
        record(o, extra(r), "% extra time", "memory_cost %s %s", name, what);
    record(o, mib(r->after), "MiB of arena", "memory_cost_arena %s %s", name, what);
}

/* Ours with the arena that a baseline has. */
static void compare_with(output *o, const compared *x, const char *name, const plan_result *theirs)
{
    char label[64];
    plan_result ours;
    plan(&x->c, &(plan_wish){.arena = theirs->after}, &ours);
    snprintf(label, sizeof label, "%s", name);
    print_plan(o, x, label, theirs);
    record_plan(o, x, label, theirs);
    snprintf(label, sizeof label, "ours in the arena of %s", name);
    print_plan(o, x, label, &ours);
    record_plan(o, x, label, &ours);
    const bool no_worse = ours.met && extra(&ours) <= extra(theirs) + 1e-9;
    say(o, "| - ours takes no longer than %s: %s | | | | | | |\n", name, bar(o, no_worse));
    if (theirs != &x->checkpoint)
        return;
    say(o, "| - ours takes no more than 33%% there: %s | | | | | | |\n",
        bar(o, ours.met && extra(&ours) <= 33));
    if (!isnan(by_layers(x, theirs->after)))
        say(o, "| - ours takes no longer than the best of whole layers there: %s | | | | | | |\n",
            bar(o, ours.met && extra(&ours) <= by_layers(x, theirs->after)));
}

/* Copies of weights are no activations, but an arena also shrinks when they are recomputed: so this
 * is not `half`. Bisects between the arena of the plan with the fewest bytes and the one without
 * recomputation. */
static void halve_at_peak(compared *x, const plan_result *least)
{
    enum { STEPS = 8 };
    int64_t low = least->after, high = x->base.before;
    x->at_peak = *least;
    for (int i = 0; i < STEPS; i++) {
        const int64_t arena = low + (high - low) / 2;
        plan_result r;
        plan(&x->c, &(plan_wish){.arena = arena}, &r);
        const bool half = r.met && r.activations_after <= x->base.activations_before / 2;
        if (half && r.extra_seconds < x->at_peak.extra_seconds)
            x->at_peak = r;
        *(half ? &low : &high) = arena;
    }
}

static void print_half(output *o, const plan_result *r, double most, const char *what)
{
    say(o, "%s for at most %g%%: ", what, most);
    if (r->met)
        say(o, "%s (%.2f%%, arena %.1f MiB). ", bar(o, extra(r) <= most), extra(r), mib(r->after));
    else
        say(o, "%s (no such plan). ", bar(o, false));
}

static void print_bars(output *o, const compared *x, int better, int possible)
{
    const double most = strcmp(x->c.recipe, "bf16") ? 10 : 8;
    plan_result at_peak = x->at_peak;
    at_peak.met &= at_peak.activations_after <= x->base.activations_before / 2;
    say(o, "\n");
    print_half(o, &x->half, most, "The arena less half of the activations");
    print_half(o, &at_peak, most, "Activations at the peak halved");
    say(o,
        "Less extra time than whole layers: %s (at %d of the %d budgets above that whole layers "
        "can meet).\n",
        bar(o, better == possible), better, possible);
    record_plan(o, x, "half at the peak", &at_peak);
}

static void one_case(output *o, const plan_case *c)
{
    char name[96];
    compared x = {.c = *c};
    plan_base(c, &x.base);
    plan(c, &(plan_wish){.checkpoint = "x.*"}, &x.checkpoint);
    plan(c, &(plan_wish){.recompute = "a.*"}, &x.selective);
    say(o,
        "\n### %s\n\nArena %.1f MiB, of it %.1f of activations and FP8 copies; a micro-step takes "
        "%.4g s, predicted.\n\n",
        case_name(c, name, sizeof name), mib(x.base.before), mib(x.base.activations_before),
        x.base.seconds);
    say(o, "| budget | arena MiB | activations left | at the peak MiB | recomputed | extra "
           "time | whole layers |\n"
           "| --- | --- | --- | --- | --- | --- | --- |\n");
    int better = 0, possible = 0;
    bool refused = false;
    plan_result r;
    for (int i = SHARES; i > 0; i--) {
        char label[32];
        snprintf(label, sizeof label, "0.%d", i);
        plan(c, &(plan_wish){.share = 0.1 * i}, &r);
        if (i == 5)
            x.half = r;
        const int64_t budget =
            x.base.before - (int64_t)((1 - 0.1 * i) * (double)x.base.activations_before);
        if (!isnan(by_layers(&x, budget))) {
            possible++;
            better += r.met && extra(&r) < by_layers(&x, budget);
        }
        if (r.met || !refused)
            print_plan(o, &x, label, &r);
        record_plan(o, &x, label, &r);
        refused |= !r.met;
    }
    plan_least(c, &r);
    print_plan(o, &x, "least", &r);
    record_plan(o, &x, "least", &r);
    halve_at_peak(&x, &r);
    compare_with(o, &x, "every layer", &x.checkpoint);
    compare_with(o, &x, "selective", &x.selective);
    print_bars(o, &x, better, possible);
}

void part_cost(output *o)
{
    static const struct {
        const char *model;
        int64_t batch, layers;
    } model[] = {{"gpt2_124m", 8, 12},
                 {"mpt_1b", 8, 24},
                 {"mpt_1b", 1, 24},
                 {"llama3_8b_block", 1, 1},
                 {"llama3_8b_block", 1, 4}};
    static const char *const recipe[] = {"bf16", "delayed", "block"}, *const target[] = {"cpu",
                                                                                         "sm_90a"};
    say(o, "\n## cost: budgets against predicted extra time\n\n"
           "Activations left: those without recomputation less what the arena shrank by, as a "
           "share; at the peak: bytes of "
           "activations and FP8 copies alone; whole layers: predicted extra time of the best plan "
           "of whole layers in that arena.\n");
    for (size_t m = 0; m < sizeof model / sizeof *model; m++)
        for (int t = 0; t < 2; t++)
            for (int r = 0; r < 3; r++)
                one_case(o, &(plan_case){.model = model[m].model,
                                         .batch = model[m].batch,
                                         .layers = model[m].layers,
                                         .recipe = recipe[r],
                                         .target = target[t]});
}
