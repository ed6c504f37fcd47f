/* Where each byte goes at the peak, under FP8 recipes and bf16, with and without recomputation. See
 * memory.h. */
#include "bench/memory.h"

#include <stdlib.h>
#include <string.h>

#include "bench/figures.h"

enum { RECIPES = 5, BF16 = 0, TIMES = 6, SHARES = 32, SHOWN = 14 };

static const char *const recipes[RECIPES] = {"bf16", "delayed", "current", "rowwise", "block"};
static const double times[TIMES] = {2, 4, 6, 8, 10, 15}; /* percent */

typedef struct column {
    plan_case c;
    plan_result base;
    plan_result at[SHARES]; /* by budget: share i / SHARES of the activations' bytes; made when
                               first asked for */
    bool known[SHARES];
} column;

/* ---- without recomputation ---- */

static void print_row(output *o, const char *name, const column *x,
                      int64_t (*figure)(const plan_result *))
{
    say(o, "| %s |", name);
    for (int i = 0; i < RECIPES; i++)
        say(o, " %.1f |", mib(figure(&x[i].base)));
    say(o, "\n");
}

static int64_t held(const plan_result *r)
{
    return r->activations_before;
}

static int64_t arena(const plan_result *r)
{
    return r->before;
}

/* Of a table with a column a recipe. */
static void print_head(output *o, const char *first)
{
    say(o, "| %s |", first);
    for (int i = 0; i < RECIPES; i++)
        say(o, " %s |", recipes[i]);
    say(o, "\n| --- |");
    for (int i = 0; i < RECIPES; i++)
        say(o, " --- |");
    say(o, "\n");
}

static void print_categories(output *o, const column *x)
{
    print_head(o, "MiB at the peak");
    for (int k = 0; k < F8_MEMORY_CATEGORIES; k++) {
        say(o, "| %s |", f8_memory_category_name((f8_memory_category)k));
        for (int i = 0; i < RECIPES; i++)
            say(o, " %.1f |", mib(x[i].base.category[k]));
        say(o, "\n");
    }
    print_row(o, "activations and FP8 copies", x, held);
    print_row(o, "arena", x, arena);
}

static double below(const plan_result *r, const plan_result *bf16)
{
    return percent((double)(bf16->activations_before - r->activations_before),
                   (double)bf16->activations_before);
}

static void print_below(output *o, const column *x)
{
    say(o, "| below bf16 | |");
    for (int i = 1; i < RECIPES; i++) {
        const double d = below(&x[i].base, &x[BF16].base);
        say(o, " %.1f%% |", d);
        record(o, d, "% below bf16", "memory_bytes %s B=%d %s %s", x->c.model, (int)x->c.batch,
               recipes[i], x->c.target);
    }
    say(o, "\n| at least 12%% | |");
    for (int i = 1; i < RECIPES; i++)
        say(o, " %s |", bar(o, below(&x[i].base, &x[BF16].base) >= 12));
    say(o, "\n");
}

/* The biggest classes of tensors of a recipe. */
static void print_classes(output *o, const column *x)
{
    const plan_result *r = &x->base;
    say(o,
        "\n%s, in the arena at the peak (names' numbers as #; of %.1f MiB):\n\n| tensors | "
        "category | dtype | number | MiB |\n"
        "| --- | --- | --- | --- | --- |\n",
        x->c.recipe, mib(r->before));
    for (int i = 0; i < r->n_classes && i < SHOWN; i++)
        say(o, "| %s | %s | %s | %d | %.1f |\n", r->class[i].name,
            f8_memory_category_name(r->class[i].category), r->class[i].dtype, r->class[i].n,
            mib(r->class[i].bytes));
}

/* ---- with recomputation, at equal extra time ---- */

static const plan_result *at_share(column *x, int i)
{
    if (!x->known[i])
        plan(&x->c, &(plan_wish){.share = (double)i / SHARES}, &x->at[i]);
    x->known[i] = true;
    return &x->at[i];
}

/* The plan with the fewest bytes for at most so much extra time: bisection, since less memory takes
 * more time; then of all that were made the best, since plans are not quite so. */
static const plan_result *fewest(column *x, double seconds)
{
    int low = 0, high = SHARES; /* low: not possible; high: possible */
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        const plan_result *r = at_share(x, middle);
        *(r->met && r->extra_seconds <= seconds ? &high : &low) = middle;
    }
    const plan_result *best = &x->base;
    for (int i = 0; i < SHARES; i++)
        if (x->known[i] && x->at[i].met && x->at[i].extra_seconds <= seconds &&
            x->at[i].after < best->after)
            best = &x->at[i];
    return best;
}

/* How much more than bf16 takes, in percent; negative where it is less. */
static double over_bf16(int64_t bytes, int64_t bf16)
{
    return percent((double)(bytes - bf16), (double)bf16);
}

/* One extra time, for which all may take `extra` percent of the bf16 step, or each of its own. */
static void print_time(output *o, column *x, double extra, bool own)
{
    const plan_result *bf16 = fewest(&x[BF16], extra / 100 * x[BF16].base.seconds);
    say(o, "| %g%% of %s | %.1f, %.1f |", extra, own ? "its own step" : "bf16's step",
        mib(activations_left(bf16)), mib(bf16->activations_after));
    for (int i = 1; i < RECIPES; i++) {
        const plan_result *r = fewest(&x[i], extra / 100 * x[own ? i : BF16].base.seconds);
        const double left = over_bf16(activations_left(r), activations_left(bf16));
        const double at_peak = over_bf16(r->activations_after, bf16->activations_after);
        say(o, " %.1f (%+.1f%%), %.1f (%+.1f%%): %s |", mib(activations_left(r)), left,
            mib(r->activations_after), at_peak, bar(o, left <= -25));
        record(o, left, "% against bf16", "memory_bytes_left %s B=%d %s %s %g%% of %s step",
               x->c.model, (int)x->c.batch, recipes[i], x->c.target, extra, own ? "own" : "bf16");
        record(o, at_peak, "% against bf16", "memory_bytes_at_peak %s B=%d %s %s %g%% of %s step",
               x->c.model, (int)x->c.batch, recipes[i], x->c.target, extra, own ? "own" : "bf16");
    }
    say(o, "\n");
}

static void print_equal_time(output *o, column *x)
{
    say(o, "\nWith recomputation at equal predicted extra time, MiB: activations left (those "
           "without it less what the arena shrank by; "
           "the bar: at least 25%% below bf16's), and activations and FP8 copies at the peak. "
           "Steps take");
    for (int i = 0; i < RECIPES; i++)
        say(o, " %s %.4g s,", recipes[i], x[i].base.seconds);
    say(o, " predicted.\n\n");
    print_head(o, "extra time");
    for (int own = 0; own < 2; own++)
        for (int t = 0; t < TIMES; t++)
            print_time(o, x, times[t], own);
}

static void one_model(output *o, const char *model, const char *target)
{
    column *x = calloc(RECIPES, sizeof *x);
    must(x != NULL, "memory");
    for (int i = 0; i < RECIPES; i++) {
        x[i].c = (plan_case){.model = model, .recipe = recipes[i], .target = target, .batch = 8};
        plan_base(&x[i].c, &x[i].base);
    }
    say(o, "\n### %s, B=8, %s\n\n", model, target);
    print_categories(o, x);
    print_below(o, x);
    print_classes(o, &x[BF16]);
    print_classes(o, &x[1]);
    print_equal_time(o, x);
    free(x);
}

void part_bytes(output *o)
{
    say(o, "\n## bytes: where they go, micro_step at its peak\n");
    static const char *const target[] = {"cpu", "sm_90a"}, *const model[] = {"gpt2_124m", "mpt_1b"};
    for (int m = 0; m < 2; m++)
        for (int t = 0; t < 2; t++)
            one_model(o, model[m], target[t]);
}
