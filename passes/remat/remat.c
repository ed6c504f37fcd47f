/* Rematerialization: fits micro_step into a budget of memory by recomputing values that were kept.
 *
 * The pass works on groups, after fusion. So it prices what will lie in memory: an FP8 copy at a
 * quarter of its f32 value, and nothing for what lives inside a kernel. The grouped and ordered
 * function becomes a problem of steps and values (problem.c). The planner solves it (plan.c), and
 * the graph is made anew, with recomputed values as clones (rewrite.c).
 *
 * The arena that follows is not the planner's sum: clones fuse with their readers, which can make a
 * value cost nothing, and other values share allocations. So grouping, order and places are made
 * anew as well, and the planner is asked again, corrected by what it missed, until the real arena
 * fits. That is done twice: once with clones in kernels of their own or of their readers, and once
 * with clones priced and grouped as parts of kernels that read the same values (sibling.c,
 * fuse/sibling.c). Of the plans that fit, the one whose groups take the least time is kept. Where
 * none fits, the error names the lowest arena that find_least sees. Name patterns give a plan of
 * their own (names.c): it is carried out whatever it costs, and then compared with the budget.
 *
 * Scales, amaxes and histories are values: a clone reads the very scale that its original read.
 * What `update` does is done once, however often a value is recomputed.
 *
 * Requires group. Gives groups of micro_step, and unit->remat; schedule and memory follow, as for
 * any other function. */
#include "passes/remat/remat.h"

#include <inttypes.h>
#include <math.h>

#include "passes/unit/cost.h"
#include "passes/fuse/group.h"
#include "passes/memory/memory.h"
#include "passes/memory/report.h"

enum { MOST_ROUNDS = 8 };

/* ---- one plan, carried out ---- */

typedef struct outcome {
    /* whether clones may join kernels that read the same values (fuse/sibling.c) */
    bool share_kernels;
    /* bytes; what lies outside the arena depends a little on the plan, so `allowed` does too */
    int64_t arena, allowed;
    double seconds;         /* of all groups */
} outcome;

enum { NOTHING_FITS = -1 }; /* the other functions alone exceed the budget */

/* The bytes that the arena of micro_step may take, given the rest of the program as it is. */
static f8_status arena_budget(f8_unit *u, int64_t *out)
{
    const f8_budget *b = &u->options.memory;
    f8_memory_outside outside;
    *out = INT64_MAX;
    if (b->share > 0)
        *out = u->remat.before - (int64_t)((1 - b->share) * (double)u->remat.activations_before);
    if (b->bytes <= 0)
        return F8_OK;
    F8_TRY(f8_memory_fixed(u, &outside));
    *out = outside.others <= b->bytes - outside.rest ? b->bytes - outside.rest - outside.extra
                                                     : NOTHING_FITS;
    return F8_OK;
}

static f8_status realize(f8_remat *s, const f8_remat_plan *plan, bool share_kernels, outcome *out)
{
    f8_unit *u = s->unit;
    F8_TRY(f8_unit_go_on(u));
    F8_TRY(f8_remat_rewrite(s, plan));
    F8_TRY(f8_group_function(u, s->func, share_kernels));
    F8_TRY(f8_schedule_function(u, s->func));
    F8_TRY(f8_place_function(u, s->func));
    *out = (outcome){.share_kernels = share_kernels,
                     .arena = s->func->lowered->arena_bytes,
                     .seconds = f8_cost_function(s->func, f8_unit_target(u))};
    u->remat.rounds++;
    return arena_budget(u, &out->allowed);
}

/* ---- a budget ---- */

typedef struct search {
    f8_remat *s;
    f8_remat_problem shared; /* the problem where clones may share kernels (sibling.c) */
    f8_remat_plan best, least;
    /* of `best`, the fastest plan that fits, and of `least`, the one with the lowest arena; arena
     * is INT64_MAX while there is none */
    outcome result, lowest;
} search;

static bool fits(const outcome *o)
{
    return o->arena <= o->allowed;
}

static f8_status try_plan(search *x, const f8_remat_plan *plan, bool share_kernels, outcome *o)
{
    F8_TRY(realize(x->s, plan, share_kernels, o));
    if (fits(o) && (x->result.arena == INT64_MAX || o->seconds < x->result.seconds)) {
        x->best = *plan;
        x->result = *o;
    }
    if (o->arena < x->lowest.arena) {
        x->least = *plan;
        x->lowest = *o;
    }
    return F8_OK;
}

static f8_status attempt(search *x, int64_t goal, bool share_kernels, f8_remat_plan *plan,
                         outcome *o)
{
    f8_remat *s = x->s;
    F8_TRY(f8_remat_plan_make(share_kernels ? &x->shared : &s->problem, goal, s->scratch,
                              s->unit->diag, plan));
    return try_plan(x, plan, share_kernels, o);
}

/* Ask the planner until the arena has at most `most` bytes (0: what is allowed), then use up the
 * bytes that are left. */
static f8_status approach(search *x, int64_t most, int rounds, bool share_kernels)
{
    const int64_t budget = most ? most : x->s->unit->remat.budget;
    int64_t goal = budget, tight = -1; /* the largest goal whose arena fitted */
    int64_t loose = INT64_MAX;         /* the smallest goal whose arena did not fit */
    for (int i = 0; i < rounds && goal > 0; i++) {
        f8_remat_plan plan;
        outcome o;
        F8_TRY(attempt(x, goal, share_kernels, &plan, &o));
        const int64_t room = (most ? most : o.allowed) - o.arena;
        if (room >= 0) {
            tight = goal;
            goal += room;
            goal = goal >= loose ? tight + (loose - tight) / 2 : goal;
        } else {
            if (plan.peak > goal)
                return F8_OK; /* the planner has no better plan */
            loose = goal < plan.peak ? goal : plan.peak;
            goal = loose + room;
            goal = tight >= goal ? tight + (loose - tight) / 2 : goal;
        }
        if (tight >= 0 && goal - tight <= budget / 128)
            return F8_OK;
    }
    return F8_OK;
}

/* A tighter goal can end up faster, because other values fuse. A few are tried, fewer where the
 * function is long. */
static f8_status descend(search *x)
{
    static const double below[] = {0.95, 0.88, 0.8, 0.7, 0.6};
    enum { LONG = 600, FEW = 1 };
    const size_t n = x->s->problem.n_steps > LONG ? FEW : sizeof below / sizeof *below;
    for (size_t i = 0; i < n; i++)
        for (int shared = 0; shared < 2; shared++) {
            f8_remat_plan plan;
            outcome o;
            F8_TRY(attempt(x, (int64_t)(below[i] * (double)x->s->unit->remat.budget), shared, &plan,
                           &o));
        }
    return F8_OK;
}

/* Plans that keep whole layers. The planner, which knows nothing of fusion, may take them for
 * larger than they are. */
static f8_status try_waists(search *x)
{
    uint32_t waists = 2;
    for (uint32_t every = 1; every < waists && every <= 4; every *= 2) {
        f8_remat_plan plan;
        outcome o;
        F8_TRY(f8_remat_plan_by_waists(x->s, every, &plan, &waists));
        F8_TRY(try_plan(x, &plan, false, &o));
        if (fits(&o))
            F8_TRY(try_plan(x, &plan, true, &o));
    }
    return F8_OK;
}

/* The lowest arena there is: tries the planner's lowest peak and some goals above it, which may
 * share storage better, then a few steps down from the best of them. The search does not depend on
 * what was asked for, so the budget that is named as the least can be met. */
static f8_status find_least(search *x)
{
    static const double above[] = {1, 1.03, 1.1, 1.25};
    enum { SHARED = 2, STEPS_DOWN = 2, ROUNDS_DOWN = 2 };
    int64_t peak = 0;
    x->lowest.arena = INT64_MAX;
    F8_TRY(try_waists(x));
    if (x->result.arena != INT64_MAX)
        return F8_OK; /* one of them fits */
    for (size_t i = 0; i < sizeof above / sizeof *above; i++) {
        f8_remat_plan plan;
        outcome o;
        F8_TRY(attempt(x, (int64_t)(above[i] * (double)peak), false, &plan, &o));
        peak = i == 0 ? plan.peak : peak;
        if (i < SHARED)
            F8_TRY(attempt(x, (int64_t)(above[i] * (double)peak), true, &plan, &o));
    }
    for (int i = 0; i < STEPS_DOWN; i++) {
        const int64_t before = x->lowest.arena, most = before - before / 64;
        F8_TRY(approach(x, most, ROUNDS_DOWN, false));
        F8_TRY(approach(x, most, ROUNDS_DOWN, true));
        if (x->lowest.arena == before)
            break;
    }
    return F8_OK;
}

/* ---- budgets that can't be met ---- */

/* The biggest tensors that the placed function holds at its peak, as text. *group is the group that
 * runs then. */
static f8_status peak_holders(const f8_remat *s, const char **group, const char **holders)
{
    enum { NAMED = 4 };
    f8_memory_report report;
    const char *text = "";
    uint32_t n = 0;
    F8_TRY(f8_memory_report_make(s->unit, s->func, s->scratch, &report));
    for (uint32_t i = 0; i < report.n_tensors && n < NAMED && text; i++) {
        const f8_memory_tensor *t = &report.tensor[i];
        if (t->category < F8_MEMORY_ACTIVATIONS)
            continue;
        text = f8_arena_printf(s->scratch, "%s%s%" PRId64 " bytes for '%s'", text, n ? ", " : "",
                               t->bytes, t->name);
        n++;
    }
    *group = report.at;
    *holders = text;
    return f8_arena_status(s->scratch, s->unit->diag);
}

/* Bytes of the program if micro_step has such an arena. Functions share one arena, so another
 * function may need more. */
static int64_t all_bytes(const f8_memory_outside *outside, int64_t arena)
{
    const int64_t own = outside->extra + arena;
    return outside->rest + (own > outside->others ? own : outside->others);
}

static f8_status too_few_bytes(const search *x)
{
    f8_unit *u = x->s->unit;
    const char *group, *holders;
    f8_memory_outside outside;
    F8_TRY(f8_memory_fixed(u, &outside));
    const int64_t bytes = all_bytes(&outside, x->lowest.arena);
    if (bytes == outside.rest + outside.others)
        return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "memory: the least possible budget is %" PRId64 " bytes, %" PRId64
                       " were asked for. Functions other than micro_step need them, and only "
                       "micro_step can recompute",
                       bytes, u->options.memory.bytes);
    F8_TRY(peak_holders(x->s, &group, &holders));
    return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                   "memory: the least possible budget is %" PRId64 " bytes (%" PRId64
                   " of them the arena), %" PRId64 " were asked for. At '%s' %s holds %s",
                   bytes, x->lowest.arena, u->options.memory.bytes, group, x->s->func->name,
                   holders);
}

static f8_status too_small_share(const search *x)
{
    f8_unit *u = x->s->unit;
    const f8_remat_summary *m = &u->remat;
    const double most = m->activations_before ? (double)m->activations_before : 1;
    const double share = ceil(1e4 * (1 - (double)(m->before - x->lowest.arena) / most)) / 1e4;
    const char *group, *holders;
    F8_TRY(peak_holders(x->s, &group, &holders));
    return f8_fail(
        u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
        "memory: the least possible share of activation bytes is %.4f (an arena of %" PRId64
        " bytes), %g was asked for. At '%s' %s holds %s",
        share, x->lowest.arena, u->options.memory.share, group, x->s->func->name, holders);
}

/* ---- the pass ---- */

/* The number of FP8 GEMMs of a function. */
static int64_t fp8_gemms(const f8_func *f)
{
    int64_t n = 0;
    for (f8_ref r = 1; r < f->graph->n_nodes; r++)
        n += f->graph->node[r].op == F8_OP_SCALED_MATMUL;
    return n;
}

/* The number of values in memory that a grouped function recomputes. */
static int64_t count_recomputed(const f8_func *f)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < f->lowered->n_groups; i++)
        for (uint32_t k = 0; k < f->lowered->group[i].n_out; k++)
            n += f8_is_recomputed(f->graph, f->lowered->group[i].out[k]);
    return n;
}

static f8_status keep(f8_remat *s, const f8_remat_plan *plan, bool share_kernels, outcome *o)
{
    f8_unit *u = s->unit;
    f8_remat_restore(s);
    const int64_t gemms = fp8_gemms(s->func);
    F8_TRY(realize(s, plan, share_kernels, o));
    u->remat.after = o->arena;
    u->remat.budget = o->allowed;
    u->remat.extra_seconds = o->seconds - u->remat.seconds;
    u->remat.recomputed = count_recomputed(s->func);
    u->remat.fp8_gemms = fp8_gemms(s->func) - gemms;
    u->fp8_gemms += u->remat.fp8_gemms;
    return f8_memory_activations(s->func, s->scratch, u->diag, &u->remat.activations_after);
}

static f8_status fit_names(f8_remat *s)
{
    f8_unit *u = s->unit;
    f8_remat_plan plan;
    outcome o;
    F8_TRY(f8_remat_plan_by_name(s, &plan));
    F8_TRY(keep(s, &plan, true, &o));
    if (fits(&o))
        return F8_OK;
    int64_t bytes = o.arena;
    if (u->options.memory.bytes > 0) {
        f8_memory_outside outside;
        F8_TRY(f8_memory_fixed(u, &outside));
        bytes = all_bytes(&outside, o.arena);
    }
    return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                   "memory: recomputing the values that the patterns name takes %" PRId64
                   " bytes%s, more than the budget; without patterns the compiler chooses "
                   "the values to recompute",
                   bytes, u->options.memory.bytes > 0 ? "" : " of the arena");
}

static f8_status fit(f8_remat *s)
{
    f8_unit *u = s->unit;
    search x = {.s = s, .result.arena = INT64_MAX, .lowest.arena = INT64_MAX};
    outcome o;
    if (u->options.checkpoint || u->options.recompute)
        return fit_names(s);
    if (u->remat.before <= u->remat.budget)
        return F8_OK;
    F8_TRY(f8_remat_siblings(s, &x.shared));
    F8_TRY(approach(&x, 0, MOST_ROUNDS, false));
    F8_TRY(approach(&x, 0, MOST_ROUNDS, true));
    if (x.result.arena != INT64_MAX) {
        F8_TRY(descend(&x));
        F8_TRY(try_waists(&x));
    } else {
        F8_TRY(find_least(&x));
    }
    if (x.result.arena != INT64_MAX)
        return keep(s, &x.best, x.result.share_kernels, &o);
    F8_TRY(keep(s, &x.least, x.lowest.share_kernels, &o));
    return u->options.memory.bytes > 0 ? too_few_bytes(&x) : too_small_share(&x);
}

static f8_status remat_function(f8_unit *u, f8_func *f, f8_arena *scratch)
{
    f8_remat s;
    F8_TRY(f8_schedule_function(u, f));
    F8_TRY(f8_place_function(u, f));
    u->remat = (f8_remat_summary){.ran = true,
                                  .before = f->lowered->arena_bytes,
                                  .after = f->lowered->arena_bytes,
                                  .seconds = f8_cost_function(f, f8_unit_target(u))};
    F8_TRY(f8_memory_activations(f, scratch, u->diag, &u->remat.activations_before));
    u->remat.activations_after = u->remat.activations_before;
    F8_TRY(arena_budget(u, &u->remat.budget));
    F8_TRY(f8_remat_problem_make(&s, u, f, scratch));
    return fit(&s);
}

static bool is_asked(const f8_options *o)
{
    return o->memory.bytes > 0 || o->memory.share > 0 || o->checkpoint || o->recompute;
}

f8_status f8_pass_remat(f8_unit *u)
{
    const f8_options *o = &u->options;
    f8_func *f = f8_module_find_func(u->module, "micro_step");
    f8_arena scratch;
    if (!is_asked(o))
        return F8_OK;
    if (o->pair)
        return f8_fail(
            u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
            "memory: a budget can't be met with 'forward' and 'backward' as a pair: their "
            "activations lie in the caller's buffers");
    if (!f)
        return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "memory: a program for inference has no activations to recompute");
    f8_arena_init(&scratch, &u->arena->allocator);
    const f8_status status = remat_function(u, f, &scratch);
    f8_arena_end(&scratch);
    return status;
}
