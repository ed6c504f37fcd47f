/* How long planning takes: MPT-1B with more and fewer layers. See memory.h. */
#include "bench/memory.h"

#include <math.h>

enum { TRIES = 3, SIZES = 4 };

static const int64_t sizes[SIZES] = {12, 24, 48, 96}; /* layers */
/* Power of layers that still counts as about linear: 2.5 times for twice as many. */
static const double steepest = 1.3;

/* The least of a few times, where once is quick: the machine is shared. */
static void quickest(const plan_case *c, const plan_wish *w, plan_result *out)
{
    plan(c, w, out);
    for (int i = 1; i < TRIES && out->pass_seconds < 2; i++) {
        plan_result r;
        plan(c, w, &r);
        if (r.pass_seconds < out->pass_seconds)
            *out = r;
    }
}

/* Seconds of all passes. */
static double one_size(output *o, const char *recipe, const char *target, double share,
                       int64_t layers)
{
    const plan_case c = {
        .model = "mpt_1b", .recipe = recipe, .target = target, .batch = 8, .layers = layers};
    plan_result base, r;
    plan_wish ask = {.share = share, .whole = true};
    quickest(&c, &(plan_wish){.whole = true}, &base);
    if (!share) {
        plan_result least;
        plan(&c, &(plan_wish){.arena = 1}, &least);
        ask.arena = least.after;
    }
    quickest(&c, &ask, &r);
    say(o, "| %s %s | %s | %d | %.3f | %.3f | %.3f | %.1f | %d |%s\n", recipe, target,
        share ? "0.5" : "least", (int)layers, base.pass_seconds, r.remat_seconds, r.pass_seconds,
        1e3 * r.remat_seconds / (double)layers, r.rounds, r.met ? "" : " not met");
    record(o, r.pass_seconds, "s", "memory_quick mpt_1b L=%d %s %s %s", (int)layers, recipe, target,
           share ? "share 0.5" : "least");
    record(o, r.remat_seconds, "s", "memory_quick_remat mpt_1b L=%d %s %s %s", (int)layers, recipe,
           target, share ? "share 0.5" : "least");
    return r.pass_seconds;
}

typedef struct slowest {
    double at_24, exponent;
} slowest;

static void one_case(output *o, const char *recipe, const char *target, double share,
                     slowest *worst)
{
    double seconds[SIZES];
    for (int i = 0; i < SIZES; i++)
        seconds[i] = one_size(o, recipe, target, share, sizes[i]);
    const double exponent = log(seconds[3] / seconds[1]) / log((double)sizes[3] / (double)sizes[1]);
    say(o, "| - time grows with layers to the power of %.2f from 24 to 96 | | | | | | | |\n",
        exponent);
    record(o, exponent, "power of layers, 24 to 96", "memory_quick_growth %s %s %s", recipe, target,
           share ? "share 0.5" : "least");
    worst->at_24 = fmax(worst->at_24, seconds[1]);
    worst->exponent = fmax(worst->exponent, exponent);
}

static void one_share(output *o, double share)
{
    static const char *const target[] = {"cpu", "sm_90a"}, *const recipe[] = {"bf16", "delayed"};
    const char *name = share ? "share 0.5" : "the least possible";
    slowest worst = {0};
    say(o, "\n| case | budget | layers | passes without budget | remat | all passes | remat ms a "
           "layer | rounds |\n"
           "| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < 2; i++)
            one_case(o, recipe[i], target[t], share, &worst);
    say(o, "\n%s: under 2 s at 24 layers (all passes): %s, the slowest took %.3f s. ", name,
        bar(o, worst.at_24 < 2), worst.at_24);
    say(o, "Time grows about linearly (power at most %.1f): %s, %.2f at worst.\n", steepest,
        bar(o, worst.exponent <= steepest), worst.exponent);
}

void part_quick(output *o)
{
    say(o, "\n## quick: planning mpt_1b, B=8, all functions: seconds of a CPU, the least of %d\n",
        TRIES);
    one_share(o, 0.5);
    one_share(o, 0);
}
