/* The planner: which values to keep and which to recompute. See plan.h.
 *
 * Plans within the budget are looked for in three ways, and the best of them is improved:
 *
 * - prices (cut.c, start.c): at a price per byte in memory at the fullest moment, what to keep and
 *   what to recompute after it is a minimum cut. Prices around the one that meets the budget are
 *   tried. Each cut is also a bound on the time of every plan, and a plan near it ends the search.
 * - gaps (search.c): while some step is over the budget, drop a value between two of its readers
 *   and recompute it before the second one, with what that needs in turn where it helps. The drop
 *   that removes the most bytes of excess a second comes first. Then drops that turn out not to be
 *   needed are taken back. It starts at the plan for another budget, if the caller has one.
 * - segments (segments.c): checkpoints, in several levels, for budgets too small for even one value
 *   a layer.
 * - iterated local search from the best plan: change a little at random (with a fixed seed),
 *   repair, take back, and keep what is no worse.
 *
 * Gaps see the memory of every action, workspace and recomputed values included, and may drop
 * recomputed values as well (nesting); but they drop one value at a time. A cut sees chains as a
 * whole, and small values that the backward does not read but that make large ones cheap to
 * recompute; but it sees one moment only, and no memory for recomputed values. Together they come
 * within a few percent of the bound that the cut gives for transformers, and nearly always reach
 * the optimum of small graphs (tests/passes/remat/check_remat_plan.c).
 *
 * What else there is, and why it was not taken:
 *
 * - Checkpoints every sqrt(n) layers (Chen et al. 2016, arXiv:1604.06174) recompute everything
 *   between them: attention and GEMMs, where norms and activations alone would do.
 * - DTR (Kirisame et al. 2021, arXiv:2006.09616) evicts by seconds / (bytes * staleness) while it
 *   runs, and does not know who reads a value next; we know all readers.
 * - Checkmate (Jain et al. 2020, arXiv:1910.02653) solves a mixed-integer program over steps x
 *   values. That is optimal, but for hundreds of steps it takes minutes to hours and a solver.
 * - PyTorch's min-cut partitioner (He 2022, "Min-cut optimal recomputation with AOTAutograd")
 *   minimizes the bytes between forward and backward, where rules say what may be recomputed. It
 *   weighs no seconds, knows no budget, and sees only that one moment. */
#include "passes/remat/plan.h"
#include "passes/remat/search.h"
#include "passes/remat/start.h"

#include <string.h>

static bool read_instance(const f8_remat_problem *p, const uint32_t *newest, uint32_t v,
                          uint32_t at, uint32_t *last)
{
    if (v >= p->n_values || newest[v] == UINT32_MAX)
        return false;
    last[newest[v]] = at;
    return true;
}

/* Instances are numbered as they are made. last[i] is the last action at which instance i is in
 * memory. */
typedef struct instances {
    uint32_t *newest, *value, *made, *last; /* newest by value, the others by instance */
    uint32_t n;
} instances;

static void make_instance(instances *x, uint32_t v, uint32_t at)
{
    x->newest[v] = x->n;
    x->value[x->n] = v;
    x->made[x->n] = x->last[x->n] = at;
    x->n++;
}

static bool walk_step(const f8_remat_problem *p, uint32_t s, uint32_t at, instances *x)
{
    const f8_remat_step *step = &p->step[s];
    for (uint32_t i = 0; i < step->n_read; i++)
        if (!read_instance(p, x->newest, step->read[i], at, x->last))
            return false;
    for (uint32_t i = 0; i < step->n_write; i++) {
        if (step->write[i] >= p->n_values)
            return false;
        if (!read_instance(p, x->newest, step->write[i], at, x->last))
            make_instance(x, step->write[i], at);
    }
    return true;
}

/* A value that several steps write, or that was never written, can't be recomputed. */
static bool walk_recompute(const f8_remat_problem *p, const uint32_t *n_writers, uint32_t v,
                           uint32_t at, instances *x)
{
    if (v >= p->n_values || !(p->value[v].seconds >= 0) || n_writers[v] != 1 ||
        x->newest[v] == UINT32_MAX)
        return false;
    for (uint32_t i = 0; i < p->value[v].n_from; i++)
        if (!read_instance(p, x->newest, p->value[v].from[i], at, x->last))
            return false;
    make_instance(x, v, at);
    return true;
}

static void count_writers(const f8_remat_problem *p, uint32_t *n_writers, uint32_t *last_writer)
{
    memset(last_writer, 0xff, p->n_values * sizeof *last_writer);
    for (uint32_t s = 0; s < p->n_steps; s++)
        for (uint32_t i = 0; i < p->step[s].n_write; i++) {
            const uint32_t v = p->step[s].write[i];
            if (v < p->n_values && last_writer[v] != s) {
                last_writer[v] = s;
                n_writers[v]++;
            }
        }
}

static void find_peak(const f8_remat_problem *p, const instances *x, int64_t *change,
                      f8_remat_plan *plan)
{
    for (uint32_t i = 0; i < x->n; i++) {
        change[x->made[i]] += p->value[x->value[i]].bytes;
        change[x->last[i] + 1] -= p->value[x->value[i]].bytes;
    }
    int64_t live = 0;
    plan->peak = 0;
    plan->peak_at = 0;
    for (uint32_t at = 0; at < plan->n_actions; at++) {
        const f8_remat_action *a = &plan->action[at];
        live += change[at];
        const int64_t bytes = live + (a->recompute ? 0 : p->step[a->index].bytes);
        if (bytes > plan->peak) {
            plan->peak = bytes;
            plan->peak_at = at;
        }
    }
}

bool f8_remat_plan_measure(const f8_remat_problem *p, f8_arena *scratch, f8_remat_plan *plan)
{
    size_t made = plan->n_actions;
    for (uint32_t s = 0; s < p->n_steps; s++)
        made += p->step[s].n_write;
    uint32_t *n_writers = F8_NEW_ARRAY(scratch, uint32_t, p->n_values);
    int64_t *change = F8_NEW_ARRAY(scratch, int64_t, (size_t)plan->n_actions + 1);
    instances x = {
        .newest = F8_NEW_ARRAY(scratch, uint32_t, p->n_values),
        .value = F8_NEW_ARRAY(scratch, uint32_t, made),
        .made = F8_NEW_ARRAY(scratch, uint32_t, made),
        .last = F8_NEW_ARRAY(scratch, uint32_t, made),
    };
    if (!n_writers || !change || !x.newest || !x.value || !x.made || !x.last)
        return false;
    count_writers(p, n_writers, x.newest);
    memset(x.newest, 0xff, p->n_values * sizeof *x.newest);
    uint32_t next = 0;
    plan->seconds = 0;
    for (uint32_t at = 0; at < plan->n_actions; at++) {
        const f8_remat_action *a = &plan->action[at];
        if (!a->recompute && (next >= p->n_steps || a->index != next))
            return false;
        if (a->recompute ? !walk_recompute(p, n_writers, a->index, at, &x)
                         : !walk_step(p, next, at, &x))
            return false;
        next += !a->recompute;
        plan->seconds += a->recompute ? p->value[a->index].seconds : 0;
    }
    for (uint32_t v = 0; v < p->n_values; v++)
        if (p->value[v].result &&
            (!plan->n_actions || !read_instance(p, x.newest, v, plan->n_actions - 1, x.last)))
            return false;
    find_peak(p, &x, change, plan);
    return next == p->n_steps;
}

/* ---- planning ---- */

/* Limits of work, in elementary operations (about a nanosecond each), per step or value: for each
 * start, for all starts, and for improving the best plan. Small problems get some more for the
 * last, so that they are searched well for their size. Large ones get less once a plan fits. */
enum {
    WORK_START = 10000,
    WORK_ALL = 50000,
    WORK_IMPROVE = 1000,
    WORK_FIT = 10000, /* while none fits */
    WORK_SMALL = 2000000,
    WORK_LITTLE = 10000000, /* up to here every start is tried: start.h */
    WORK_ENOUGH = 80000000
};

/* Improves *best. `from` is the plan for another budget, or NULL. It is one more start of the
 * search, and often nearer to a plan that fits than the steps alone are.
 *
 * *uncut is the largest budget for which no start from cuts has led to a plan that fits. In a large
 * problem a start far from such a plan spends all its work in vain. So with `from` given, budgets
 * below *uncut get no starts from cuts, and the search ends at the first plan that fits. */
static void search(f8_remat_timeline *t, const f8_remat_plan *from, int64_t *uncut,
                   f8_remat_best *best)
{
    const uint64_t size = (uint64_t)t->p->n_steps + t->p->n_values + 20,
                   all = t->work + WORK_ALL * size, most = WORK_ENOUGH / 4,
                   work = WORK_START * size < most ? WORK_START * size : most;
    const f8_remat_limits limits = {
        .start = work, .little = t->work + WORK_LITTLE, .enough = t->work + WORK_ENOUGH};
    const bool large = from && WORK_START * size > 2 * most;
    f8_remat_load(t, t->steps, t->p->n_steps);
    f8_remat_keep(t, best);
    if (best->excess == 0)
        return;
    if (!large || t->budget > *uncut) {
        if (f8_remat_from_prices(t, &limits, best))
            return;
        *uncut = best->excess > 0 ? t->budget : *uncut;
    }
    if (large && best->excess == 0)
        return;
    if (from) {
        f8_remat_load(t, from->action, from->n_actions);
        f8_remat_finish(t, work, best);
    }
    if (!from || (best->excess > 0 && !large) || t->work < limits.little) {
        f8_remat_load(t, t->steps, t->p->n_steps);
        f8_remat_finish(t, work, best);
    }
    if (best->excess > 0 || !from)
        f8_remat_from_segments(t, work, best);
    if (best->excess > 0 && t->work < all) {
        f8_remat_load(t, best->action, best->n);
        f8_remat_finish(t, all - t->work, best);
    }
    if (large && best->excess == 0)
        return;
    uint64_t improve = t->work < limits.enough ? WORK_IMPROVE * size : 0;
    if (best->excess > 0)
        improve = WORK_FIT * size < WORK_ENOUGH ? WORK_FIT * size : WORK_ENOUGH;
    f8_remat_improve(t, best, WORK_SMALL + improve);
}

/* A bound below every plan's peak: one step with what it reads and makes; the results. */
static int64_t least_peak(const f8_remat_timeline *t)
{
    int64_t most = 0;
    for (uint32_t s = 0; s <= t->p->n_steps; s++) {
        int64_t bytes = s < t->p->n_steps ? t->p->step[s].bytes : 0;
        for (uint32_t i = t->need_at[s]; i < t->need_at[s + 1]; i++)
            bytes += t->p->value[t->need[i]].bytes;
        for (uint32_t i = t->make_at[s]; s < t->p->n_steps && i < t->make_at[s + 1]; i++)
            bytes += t->p->value[t->make[i]].bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static int64_t peak_of(f8_remat_timeline *t, const f8_remat_best *best)
{
    int64_t peak = 0;
    f8_remat_load(t, best->action, best->n);
    for (uint32_t at = 0; at < t->n; at++)
        peak = t->live[at] > peak ? t->live[at] : peak;
    return peak;
}

/* The lowest peak. A search for a budget that can't be met lowers the sum of all excess, not the
 * peak. So where nothing fits, ask for more bytes. */
static void search_lower(f8_remat_timeline *t, const f8_remat_plan *from, int64_t *uncut,
                         f8_remat_best *best)
{
    enum { TRIES = 2 };
    t->budget = least_peak(t);
    search(t, from, uncut, best);
    for (int i = 0; i < TRIES && best->excess > 0 && !t->failed; i++) {
        f8_remat_best other = {0};
        const int64_t peak = peak_of(t, best);
        t->budget += (peak - t->budget) / 2;
        search(t, from, uncut, &other);
        if (!t->failed && peak_of(t, &other) < peak)
            *best = other;
    }
}

f8_status f8_remat_plan_make(const f8_remat_problem *p, int64_t budget, const f8_remat_plan *from,
                             f8_arena *arena, f8_diag *diag, f8_remat_plan *out)
{
    f8_remat_timeline t;
    f8_arena scratch;
    f8_arena_init(&scratch, &arena->allocator);
    *out = (f8_remat_plan){.uncut = from ? from->uncut : 0};
    f8_status status = f8_remat_timeline_make(p, budget > 0 ? budget : 0, &scratch, diag, &t);
    if (status == F8_OK) {
        f8_remat_best best = {0};
        if (budget > 0)
            search(&t, from, &out->uncut, &best);
        else
            search_lower(&t, from, &out->uncut, &best);
        out->action = F8_NEW_ARRAY(arena, f8_remat_action, best.n);
        if (t.failed)
            status = t.asked ? t.asked : f8_arena_status(&scratch, diag);
        else if (!out->action)
            status = f8_arena_status(arena, diag);
        else {
            memcpy(out->action, best.action, best.n * sizeof *out->action);
            out->n_actions = best.n;
            out->bound = least_peak(&t);
            out->work = t.work;
            if (!f8_remat_plan_measure(p, &scratch, out))
                status = scratch.failed
                             ? f8_arena_status(&scratch, diag)
                             : f8_fail(diag, F8_ERR_INTERNAL, F8_NOWHERE,
                                       "remat: the planner made a plan that can't be carried out");
        }
    }
    f8_arena_end(&scratch);
    return status;
}
