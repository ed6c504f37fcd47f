/* The planner of recomputation: what a plan means; small graphs against the exact optimum;
 * transformers against a bound and against checkpoints between layers; chains too long for one
 * level of checkpoints; wrong input; no memory. */
#include "passes/remat/cut.h"
#include "tests/shared/remat/remat_graphs.h"
#include "tests/shared/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static f8_arena arena;

static void set_up(void)
{
    f8_arena_init(&arena, NULL);
}

static void tear_down(void)
{
    f8_arena_end(&arena);
}

static f8_remat_plan plan(const f8_remat_problem *p, int64_t budget)
{
    f8_remat_plan made;
    f8_diag diag = {0};
    ck_assert_msg(f8_remat_plan_make(p, budget, NULL, &arena, &diag, &made) == F8_OK, "%s",
                  diag.text);
    f8_remat_plan again = made;
    ck_assert(f8_remat_plan_measure(p, &arena, &again));
    ck_assert_int_eq(again.peak, made.peak);
    ck_assert_uint_eq(again.peak_at, made.peak_at);
    ck_assert(again.seconds == made.seconds);
    return made;
}

static f8_remat_plan no_plan(const f8_remat_problem *p)
{
    f8_remat_plan x = {.action = F8_NEW_ARRAY(&arena, f8_remat_action, p->n_steps)};
    for (uint32_t s = 0; s < p->n_steps; s++)
        x.action[x.n_actions++].index = s;
    ck_assert(f8_remat_plan_measure(p, &arena, &x));
    return x;
}

static void insert(f8_remat_plan *x, uint32_t at, f8_remat_action action)
{
    f8_remat_action *a = F8_NEW_ARRAY(&arena, f8_remat_action, (size_t)x->n_actions + 1);
    memcpy(a, x->action, at * sizeof *a);
    a[at] = action;
    memcpy(a + at + 1, x->action + at, (x->n_actions++ - at) * sizeof *a);
    x->action = a;
}

/* ---- what a plan means ---- */

/* Bytes at one action, from the definition: is this value's newest instance read from here on, or
 * made here? */
static bool reads(const f8_remat_problem *p, const f8_remat_action *a, uint32_t v,
                  const uint32_t *first)
{
    const uint32_t *list = a->recompute ? p->value[a->index].from : p->step[a->index].read;
    const uint32_t n = a->recompute ? p->value[a->index].n_from : p->step[a->index].n_read;
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == v)
            return true;
    for (uint32_t i = 0; !a->recompute && i < p->step[a->index].n_write; i++)
        if (p->step[a->index].write[i] == v && first[v] != a->index)
            return true;
    return false;
}

static bool makes(const f8_remat_problem *p, const f8_remat_action *a, uint32_t v,
                  const uint32_t *first)
{
    (void)p;
    return a->recompute ? a->index == v : first[v] == a->index;
}

static int64_t bytes_at(const f8_remat_problem *p, const f8_remat_plan *x, uint32_t at,
                        const uint32_t *first)
{
    int64_t sum = x->action[at].recompute ? 0 : p->step[x->action[at].index].bytes;
    for (uint32_t v = 0; v < p->n_values; v++) {
        bool made = false, live = false;
        for (uint32_t i = 0; i <= at; i++)
            made = made || makes(p, &x->action[i], v, first);
        live = made && (makes(p, &x->action[at], v, first) || reads(p, &x->action[at], v, first));
        uint32_t i = at + 1;
        for (; made && !live && i < x->n_actions && !makes(p, &x->action[i], v, first); i++)
            live = reads(p, &x->action[i], v, first);
        if (live || (made && i == x->n_actions && p->value[v].result))
            sum += p->value[v].bytes;
    }
    return sum;
}

/* Values recomputed anywhere they may be. */
START_TEST(measure_is_the_definition)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        remat_graph g;
        remat_random(&g, &arena, seed);
        f8_remat_plan x = no_plan(&g.p);
        uint32_t first[32];
        for (uint32_t s = g.p.n_steps; s-- > 0;)
            for (uint32_t i = 0; i < g.p.step[s].n_write; i++)
                first[g.p.step[s].write[i]] = s;
        double seconds = 0;
        for (int k = 0; k < 12; k++) {
            const uint32_t v = remat_draw(&g, g.p.n_values), at = remat_draw(&g, x.n_actions + 1);
            f8_remat_plan with = x;
            insert(&with, at, (f8_remat_action){true, v});
            if (!f8_remat_plan_measure(&g.p, &arena, &with))
                continue;
            x = with;
            seconds += g.p.value[v].seconds;
        }
        int64_t peak = 0;
        uint32_t peak_at = 0;
        for (uint32_t at = 0; at < x.n_actions; at++)
            if (bytes_at(&g.p, &x, at, first) > peak)
                peak = bytes_at(&g.p, &x, peak_at = at, first);
        ck_assert_msg(x.peak == peak && x.peak_at == peak_at, "seed %d: %lld, not %lld", (int)seed,
                      (long long)x.peak, (long long)peak);
        ck_assert(x.seconds == seconds); /* whole numbers */
    }
}
END_TEST

/* a -> b -> c, c and a -> d; b is written in two parts. */
static void small_problem(remat_graph *g)
{
    *g = (remat_graph){.arena = &arena};
    const uint32_t a = remat_value(g, 10, 2), b = remat_value(g, 20, 1), c = remat_value(g, 5, 3),
                   d = remat_value(g, 1, -1);
    remat_step(g, NULL, 0, &a, 1, 7);
    remat_step(g, &a, 1, &b, 1, 0);
    remat_step(g, &a, 1, &b, 1, 0);
    remat_step(g, &b, 1, &c, 1, 0);
    remat_step(g, (const uint32_t[]){c, a}, 2, &d, 1, 100);
    g->value[d].result = true;
}

START_TEST(broken_plans)
{
    remat_graph g;
    small_problem(&g);
    const f8_remat_action remake_a = {true, 0}, remake_b = {true, 1}, remake_c = {true, 2},
                          remake_d = {true, 3};
    f8_remat_plan x = no_plan(&g.p);
    ck_assert_int_eq(x.peak, 100 + 10 + 5 + 1);
    ck_assert_uint_eq(x.peak_at, 4);
    ck_assert(x.seconds == 0);
    insert(&x, 4, remake_a); /* dropped before c is made */
    ck_assert(f8_remat_plan_measure(&g.p, &arena, &x));
    ck_assert(x.seconds == 2 && x.peak == 116 && x.peak_at == 5);
#define BROKEN(change)                                                                             \
    do {                                                                                           \
        x = no_plan(&g.p);                                                                         \
        change;                                                                                    \
        ck_assert_msg(!f8_remat_plan_measure(&g.p, &arena, &x), #change);                          \
    } while (0)
    BROKEN(insert(&x, 0, remake_a)); /* not made yet */
    BROKEN(insert(&x, 3, remake_c));
    BROKEN(insert(&x, 4, remake_b));                       /* written by two steps */
    BROKEN(insert(&x, 5, remake_d));                       /* can't be recomputed */
    BROKEN(insert(&x, 5, ((f8_remat_action){true, 4})));  /* no such value */
    BROKEN(insert(&x, 5, ((f8_remat_action){false, 5}))); /* no such step */
    BROKEN(insert(&x, 2, ((f8_remat_action){false, 1}))); /* twice */
    BROKEN(x.n_actions--);                                /* the last is missing */
    BROKEN(x.n_actions = 0);
    BROKEN(memmove(x.action + 1, x.action + 2, 3 * sizeof *x.action);
           x.n_actions--);                                /* one in between */
    BROKEN(x.action[1].index = 2; x.action[2].index = 1); /* out of order */
    x = no_plan(&g.p);
    g.value[1].from = (const uint32_t[]){0};
    g.step[0].read = (const uint32_t[]){3}; /* made later */
    g.step[0].n_read = 1;
    ck_assert(!f8_remat_plan_measure(&g.p, &arena, &x));
    f8_diag diag = {0};
    ck_assert_int_eq(f8_remat_plan_make(&g.p, 1000, NULL, &arena, &diag, &x), F8_ERR_INTERNAL);
    ck_assert_msg(strstr(diag.text, "value 3, which was not made"), "%s", diag.text);
    g.step[0].n_read = 0;
    remat_value(&g, 1, 1); /* a result that no step makes */
    g.value[4].result = true;
    diag = (f8_diag){0};
    ck_assert_int_eq(f8_remat_plan_make(&g.p, 1000, NULL, &arena, &diag, &x), F8_ERR_INTERNAL);
}
END_TEST

START_TEST(edges)
{
    const f8_remat_problem nothing = {0};
    f8_remat_plan x = plan(&nothing, 0);
    ck_assert(x.n_actions == 0 && x.peak == 0 && x.seconds == 0);
    remat_graph g;
    small_problem(&g);
    const int64_t peak = no_plan(&g.p).peak;
    static const int64_t loose[] = {INT64_MAX, 116};
    for (int i = 0; i < 2; i++) {
        x = plan(&g.p, loose[i]);
        ck_assert(x.n_actions == g.p.n_steps && x.seconds == 0 && x.peak == peak);
    }
    static const int64_t tight[] = {115, 0, -1, INT64_MIN + 1}; /* the last step alone takes 116 */
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(plan(&g.p, tight[i]).peak, peak);
    remat_chain(&g, &arena, 12);
    f8_remat_plan best;
    int64_t least = 1;
    while (!remat_optimum(&g.p, least, &arena, &best))
        least++;
    /* What can't be had: the lowest peak found is near the lowest there is, and what is just
     * possible is had. */
    ck_assert_int_le(plan(&g.p, 0).peak, least + 1);
    ck_assert_int_eq(plan(&g.p, least).peak, least);
    for (uint32_t v = 0; v < g.p.n_values; v++)
        g.value[v].seconds = g.value[v].seconds < 0 ? -1 : 0; /* all is free */
    ck_assert(plan(&g.p, least).peak <= least && plan(&g.p, least).seconds == 0);
    for (uint32_t v = 0; v < g.p.n_values; v++)
        g.value[v].seconds = -1;
    ck_assert_int_eq(plan(&g.p, least).peak, no_plan(&g.p).peak);
}
END_TEST

/* ---- against the optimum ---- */

enum { N_GRAPHS = 200, FIRST_SEED = 1 };

/* A random budget between the least that any plan needs and the most that any plan uses. A third of
 * the draws are the least. */
static int64_t draw_budget(remat_graph *g, f8_remat_plan *best)
{
    const int64_t most = no_plan(&g->p).peak;
    int64_t low = 0, high = most;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (remat_optimum(&g->p, middle, &arena, best))
            high = middle;
        else
            low = middle + 1;
    }
    const int64_t budget = remat_draw(g, 3) ? low + (most - low) * remat_draw(g, 100) / 100 : low;
    ck_assert(remat_optimum(&g->p, budget, &arena, best));
    return budget;
}

START_TEST(small_graphs_near_the_optimum)
{
    double sum = 0, worst = 1, sum_total = 0, worst_total = 1;
    int n = 0, exact = 0;
    for (uint64_t seed = FIRST_SEED; seed < FIRST_SEED + N_GRAPHS; seed++) {
        remat_graph g;
        f8_remat_plan best;
        tear_down();
        set_up();
        remat_random(&g, &arena, seed);
        const int64_t budget = draw_budget(&g, &best);
        const double seconds = best.seconds;
        ck_assert(f8_remat_plan_measure(&g.p, &arena,
                                        &best)); /* the two mean the same by memory and time */
        ck_assert(best.peak <= budget && best.seconds == seconds);
        const f8_remat_plan x = plan(&g.p, budget);
        ck_assert_msg(x.peak <= budget, "seed %d: %lld bytes, not %lld", (int)seed,
                      (long long)x.peak, (long long)budget);
        ck_assert_msg(x.seconds >= seconds, "seed %d: %g s, the optimum is %g", (int)seed,
                      x.seconds, seconds);
        ck_assert_msg(x.seconds <= 1.05 * seconds,
                      "seed %d, %lld bytes: %g s more, the optimum is %g", (int)seed,
                      (long long)budget, x.seconds, seconds);
        double once = 0;
        for (uint32_t v = 0; v < g.p.n_values; v++)
            once += fabs(g.p.value[v].seconds);
        exact += x.seconds == seconds;
        if (seconds == 0)
            continue;
        n++;
        sum += x.seconds / seconds;
        sum_total += (once + x.seconds) / (once + seconds);
        worst = fmax(worst, x.seconds / seconds);
        worst_total = fmax(worst_total, (once + x.seconds) / (once + seconds));
    }
    printf("plans of %d graphs (seeds from %d; %d need any), against the optimum: %d equal; extra "
           "time x%.4f mean, x%.4f "
           "worst; total time x%.5f mean, x%.4f worst\n",
           N_GRAPHS, FIRST_SEED, n, exact, sum / n, worst, sum_total / n, worst_total);
    ck_assert_int_gt(n, N_GRAPHS / 2);
}
END_TEST

/* ---- layers ---- */

/* A lower bound on the time of every plan (Lagrange's). At the moment with the most in memory,
 * whatever is read later is kept or recomputed. For any price a byte, the bound is the cost of the
 * cheapest choice, less the price of the bytes that the budget allows. */
static double bound(const f8_remat_problem *p, int64_t budget)
{
    f8_remat_timeline t;
    f8_remat_cut cut;
    f8_diag diag = {0};
    ck_assert_int_eq(f8_remat_timeline_make(p, budget, &arena, &diag, &t), F8_OK);
    uint32_t top = 0;
    for (uint32_t s = 0; s < p->n_steps; s++)
        top = t.live[s] > t.live[top] ? s : top;
    ck_assert(f8_remat_cut_make(&t, top, &cut));
    f8_remat_cut_solve(&cut, 0);
    const double room = cut.bytes - (double)(t.live[top] - budget);
    double low = log(1e-9), high = log(1e-3), best = 0;
    for (int i = 0; i < 25; i++) /* concave: thirds */
        for (int side = 0; side < 2; side++) {
            static double at[2];
            const double price = exp(low + (high - low) * (1 + side) / 3);
            f8_remat_cut_solve(&cut, price);
            at[side] = cut.seconds + price * (cut.bytes - room);
            best = fmax(best, at[side]);
            if (side)
                *(at[0] < at[1] ? &low : &high) = low + (high - low) * (at[0] < at[1] ? 1 : 2) / 3;
        }
    return best;
}

START_TEST(transformers)
{
    static const uint32_t n_layers[] = {3, 8, 24};
    static const double share[] = {0.75, 0.5, 0.35, 0.25, 0.15};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 5; k++) {
            remat_graph g;
            f8_remat_plan layers;
            tear_down();
            set_up();
            remat_transformer(&g, &arena, n_layers[i]);
            const int64_t full = no_plan(&g.p).peak, budget = (int64_t)((double)full * share[k]);
            const f8_remat_plan x = plan(&g.p, budget);
            const bool can = remat_by_layers(&g, budget, &arena, &layers);
            if (!can && n_layers[i] == 3)
                continue; /* one layer is a third of all */
            ck_assert_msg(x.peak <= budget, "%u layers, share %g: %lld bytes, not %lld",
                          n_layers[i], share[k], (long long)x.peak, (long long)budget);
            const double least = bound(&g.p, budget);
            ck_assert_msg(x.seconds >= least * 0.999999, "%g s, the bound is %g", x.seconds, least);
            if (can && n_layers[i] > 3) /* else the bound says little: one layer alone is over it */
                ck_assert_msg(x.seconds <= 1.05 * least,
                              "%u layers, share %g: %g s, the bound is %g", n_layers[i], share[k],
                              x.seconds, least);
            if (can)
                ck_assert_msg(x.seconds < layers.seconds, "%u layers, share %g: %g s, by layers %g",
                              n_layers[i], share[k], x.seconds, layers.seconds);
        }
}
END_TEST

/* Operations, not time. With twice the layers a plan takes about four times the work: twice the
 * values to look at, each change moving twice the actions. A plan near the bound ends the search,
 * as does enough work for a plan that fits. One for the neighbouring budget is no worse a start. */
START_TEST(work_of_deep_models)
{
    enum { DEEP = 96, MOST = 120 * 1000 * 1000 };
    static const double share[] = {0.75, 0.5, 0.25, 0.15};
    uint64_t before = 0;
    for (uint32_t layers = DEEP / 4; layers <= DEEP; layers *= 2) {
        uint64_t work = 0;
        f8_remat_plan last = {0};
        remat_graph g;
        tear_down();
        set_up();
        remat_transformer(&g, &arena, layers);
        for (int i = 0; i < 4; i++) {
            f8_diag diag = {0};
            f8_remat_plan x;
            const int64_t budget = (int64_t)((double)no_plan(&g.p).peak * share[i]);
            const f8_status status = f8_remat_plan_make(&g.p, budget, last.action ? &last : NULL,
                                                        &arena, &diag, &x);
            ck_assert_msg(status == F8_OK, "%s", diag.text);
            ck_assert_int_le(x.peak, budget);
            ck_assert_int_le(x.bound, x.peak);
            ck_assert_msg(x.seconds <= 1.05 * bound(&g.p, budget), "%u layers, share %g: %g s",
                          layers, share[i], x.seconds);
            ck_assert_uint_gt(x.work, 0);
            ck_assert_msg(x.work <= MOST, "%u layers, share %g: %llu operations", layers, share[i],
                          (unsigned long long)x.work);
            work += x.work;
            last = x;
        }
        printf("%u layers: %llu operations for 4 plans\n", layers, (unsigned long long)work);
        ck_assert(!before || work <= 6 * before);
        before = work;
    }
}
END_TEST

static int stop(void *user, const f8_progress_state *state)
{
    (void)state;
    return ++*(int *)user == 2;
}

/* The search asks whether to go on, and what was found so far is given up. */
START_TEST(cancelled)
{
    int calls = 0;
    const f8_progress to = {stop, &calls};
    f8_progress_phase phase = f8_progress_begin(&to, "budget", 1);
    remat_graph g;
    f8_remat_plan x;
    f8_diag diag = {0};
    remat_transformer(&g, &arena, 12);
    const int64_t budget = no_plan(&g.p).peak / 4;
    ck_assert_int_eq(f8_progress_at(&phase, 0, "remat", &diag), F8_OK);
    phase.asked = -1e9; /* long ago */
    g.p.phase = &phase;
    ck_assert_int_eq(f8_remat_plan_make(&g.p, budget, NULL, &arena, &diag, &x), F8_ERR_CANCELLED);
    ck_assert_str_eq(diag.text, "cancelled by the progress callback: budget, 0 of 1 done");
    ck_assert_int_eq(calls, 2);
}
END_TEST

/* Budgets too small for what begins at a cut: where one was, cuts are left out for smaller ones.
 * They took more than half of the first one's work. */
START_TEST(work_below_what_cuts_meet)
{
    enum { DEEP = 128 };
    static const double share[] = {0.07, 0.06};
    remat_graph g;
    f8_remat_plan x[2] = {0};
    remat_transformer(&g, &arena, DEEP);
    for (int i = 0; i < 2; i++) {
        f8_diag diag = {0};
        const int64_t budget = (int64_t)((double)no_plan(&g.p).peak * share[i]);
        const f8_status status =
            f8_remat_plan_make(&g.p, budget, i ? &x[0] : NULL, &arena, &diag, &x[i]);
        ck_assert_msg(status == F8_OK, "%s", diag.text);
        ck_assert_int_le(x[i].peak, budget);
        printf("%d layers, share %g: %llu operations\n", DEEP, share[i],
               (unsigned long long)x[i].work);
    }
    ck_assert_int_gt(x[0].uncut, 0);
    ck_assert_int_eq(x[1].uncut, x[0].uncut);
    ck_assert_uint_le(3 * x[1].work, 2 * x[0].work);
}
END_TEST

/* Seconds that a chain of n equal steps takes more in `bytes` (Griewank and Walther 2000): three of
 * them are for the gradient read, the gradient made and the value at hand, the others for c
 * checkpoints; n steps after one take
 *
 *   t(n, c) = min over m of m + t(n - m, c - 1) + t(m, c),  t(n, 0) = n (n - 1) / 2,
 *
 * less the n - 1 steps of the forward, which run once anyway. */
static double revolve(uint32_t n, int64_t bytes)
{
    static double t[65][65];
    for (uint32_t c = 0; c < 65; c++)
        for (uint32_t l = 0; l <= n; l++) {
            t[l][c] = l * (l - 1.0) / 2;
            for (uint32_t m = 1; c && m < l; m++)
                t[l][c] = fmin(t[l][c], m + t[m][c] + t[l - m][c - 1]);
        }
    return t[n][bytes - 3] - (n - 1);
}

/* Fewer bytes than checkpoints of one level take: what is recomputed is dropped and computed
 * again once more. */
START_TEST(nested)
{
    enum { N = 64 };
    remat_graph g;
    f8_remat_plan best;
    remat_chain(&g, &arena, 10);
    for (int64_t bytes = 5; bytes < 12; bytes++) {
        ck_assert(remat_optimum(&g.p, bytes, &arena, &best));
        ck_assert(best.seconds == revolve(10, bytes)); /* the formula means the same memory */
    }
    remat_chain(&g, &arena, N);
    static const int64_t budgets[] = {40, 20, 14, 11, 8, 6};
    static const double within[] = {1.05, 1.05, 1.1,
                                    1.25, 1.35, 1.5}; /* a search, and no formula for chains */
    for (int i = 0; i < 6; i++) {
        const f8_remat_plan x = plan(&g.p, budgets[i]);
        const double least = revolve(N, budgets[i]);
        ck_assert_msg(x.peak <= budgets[i], "%lld bytes, not %lld", (long long)x.peak,
                      (long long)budgets[i]);
        ck_assert_msg(x.seconds <= within[i] * least,
                      "chain of %d in %lld: %g s, the optimum is %g", N, (long long)budgets[i],
                      x.seconds, least);
    }
    /* 24 layers of 13 MiB each, whose borders alone are 24 MiB. */
    remat_transformer(&g, &arena, 24);
    ck_assert_int_le(plan(&g.p, 22 << 20).peak, 22 << 20);
}
END_TEST

/* ---- determinism, memory ---- */

START_TEST(plans_repeat)
{
    remat_graph g;
    remat_transformer(&g, &arena, 6);
    const f8_remat_plan a = plan(&g.p, 20 << 20);
    free(malloc(12345));
    const f8_remat_plan b = plan(&g.p, 20 << 20);
    ck_assert_uint_eq(a.n_actions, b.n_actions);
    for (uint32_t i = 0; i < a.n_actions; i++)
        ck_assert(a.action[i].recompute == b.action[i].recompute &&
                  a.action[i].index == b.action[i].index);
}
END_TEST

typedef struct limit {
    int left;
} limit;

static void *limited_alloc(void *user, size_t size, size_t align)
{
    limit *l = user;
    return l->left-- > 0 ? aligned_alloc(align, (size + align - 1) / align * align) : NULL;
}

static void limited_free(void *user, void *p, size_t size)
{
    (void)user;
    (void)size;
    free(p);
}

START_TEST(no_memory)
{
    remat_graph g;
    remat_transformer(&g, &arena, 8);
    int n = 0;
    for (f8_status status = F8_ERR_MEMORY; status != F8_OK; n++) {
        limit left = {n};
        const f8_allocator allocator = {limited_alloc, limited_free, &left};
        f8_arena small;
        f8_diag diag = {0};
        f8_remat_plan x;
        f8_arena_init(&small, &allocator);
        status = f8_remat_plan_make(&g.p, 30 << 20, NULL, &small, &diag, &x);
        ck_assert(status == F8_OK ||
                  (status == F8_ERR_MEMORY && strstr(diag.text, "out of memory")));
        f8_arena_end(&small);
    }
    ck_assert_int_gt(n, 2); /* the first arena, and those that grow */
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("remat_plan");
    TCase *tc = tcase_create("remat_plan");
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, measure_is_the_definition);
    tcase_add_test(tc, broken_plans);
    tcase_add_test(tc, edges);
    tcase_add_test(tc, small_graphs_near_the_optimum);
    tcase_add_test(tc, transformers);
    tcase_add_test(tc, work_of_deep_models);
    tcase_add_test(tc, work_below_what_cuts_meet);
    tcase_add_test(tc, cancelled);
    tcase_add_test(tc, nested);
    tcase_add_test(tc, plans_repeat);
    tcase_add_test(tc, no_memory);
    suite_add_tcase(suite, tc);
    return suite;
}
