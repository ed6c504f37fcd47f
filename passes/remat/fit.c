/* Looks for the fastest plan whose real arena fits: see fit.h.
 *
 * The arena that follows from a plan is not the planner's sum: clones fuse with their readers,
 * which can make a value cost nothing, and other values share allocations. So grouping, order and
 * places are made anew, and the planner is asked again, corrected by what it missed, until the real
 * arena fits. That is done twice: once with clones in kernels of their own or of their readers, and
 * once with clones priced and grouped as parts of kernels that read the same values (sibling.c,
 * fuse/sibling.c). What the planner missed in one plan, it misses in the next: so the next budget's
 * first question is corrected already. */
#include "passes/remat/fit.h"

#include <stdlib.h>
#include <string.h>

#include "passes/unit/cost.h"
#include "passes/fuse/group.h"
#include "passes/memory/memory.h"
#include "passes/memory/report.h"

/* A plan within a 128th of the budget is close enough. A question after an arena that did not fit
 * spares a 512th: the next plan misses a few bytes more or less. */
enum { MOST_ROUNDS = 6, SHORT = 200, CLOSE = 128, SPARE = 512 };

/* ---- one plan, carried out ---- */

enum { NOTHING_FITS = -1 }; /* the other functions alone exceed the budget */

f8_status f8_fit_allowed(const f8_fit *x, int64_t *out)
{
    f8_unit *u = x->s.unit;
    const f8_budget *b = &x->budget;
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

/* The graph stays in its space, so that a note of the ports is all it takes to go back. */
static f8_status note_func(const f8_fit *x, f8_func *out)
{
    const f8_func *f = x->s.func;
    *out = *f;
    out->in = F8_NEW_ARRAY(x->s.scratch, f8_port, f->n_in);
    out->out = F8_NEW_ARRAY(x->s.scratch, f8_port, f->n_out);
    F8_TRY(f8_arena_status(x->s.scratch, x->s.unit->diag));
    memcpy(out->in, f->in, f->n_in * sizeof *f->in);
    memcpy(out->out, f->out, f->n_out * sizeof *f->out);
    return F8_OK;
}

static bool is_used(const f8_fit *x, const f8_arena *space)
{
    bool used = x->best.space == space || x->lowest.space == space;
    for (uint32_t i = 0; i < F8_FIT_WAISTS; i++)
        used |= x->waist[i].outcome[0].space == space || x->waist[i].outcome[1].space == space;
    return used;
}

/* An empty space. Gives up those of outcomes that nothing goes back to. */
static f8_arena *new_space(f8_fit *x)
{
    uint32_t i = 0;
    while (i < F8_FIT_SPACES && x->space[i] && is_used(x, x->space[i]))
        i++;
    if (i == F8_FIT_SPACES)
        return NULL;
    if (x->space[i])
        f8_arena_end(x->space[i]);
    else
        x->space[i] = f8_remat_space(x->spaces);
    return x->space[i];
}

/* The graph of a plan with its groups, order and places, all in the unit's arena. */
static f8_status make_func(f8_remat *s, const f8_remat_plan *plan, bool share_kernels)
{
    f8_unit *u = s->unit;
    F8_TRY(f8_remat_rewrite(s, plan));
    F8_TRY(f8_group_function(u, s->func, share_kernels));
    F8_TRY(f8_schedule_function(u, s->func));
    F8_TRY(f8_unit_within(u));
    F8_TRY(f8_place_function(u, s->func));
    return f8_unit_within(u);
}

f8_status f8_fit_carry_out(f8_fit *x, const f8_remat_plan *plan, bool share_kernels,
                           f8_fit_outcome *out)
{
    f8_remat *s = &x->s;
    f8_unit *u = s->unit;
    F8_TRY(f8_unit_go_on(u));
    f8_arena *const arena = u->arena;
    f8_remat_restore(s); /* the function may lie in the space that is given up */
    f8_arena *space = new_space(x);
    F8_TRY(f8_arena_status(arena, u->diag));
    if (!space)
        return f8_fail(u->diag, F8_ERR_INTERNAL, F8_NOWHERE, "remat: too many plans are kept");
    u->arena = space;
    const f8_status status = make_func(s, plan, share_kernels);
    u->arena = arena;
    F8_TRY(status);
    *out = (f8_fit_outcome){.plan = *plan,
                            .share_kernels = share_kernels,
                            .space = space,
                            .arena = s->func->lowered->arena_bytes,
                            .seconds = f8_cost_function(s->func, f8_unit_target(u))};
    x->rounds++;
    F8_TRY(note_func(x, &out->func));
    return f8_fit_allowed(x, &out->allowed);
}

bool f8_fit_fits(const f8_fit_outcome *o)
{
    return o->arena <= o->allowed;
}

static bool found(const f8_fit_outcome *o)
{
    return o->arena != INT64_MAX;
}

static void note(f8_fit *x, const f8_fit_outcome *o)
{
    if (f8_fit_fits(o) && (!found(&x->best) || o->seconds < x->best.seconds))
        x->best = *o;
    if (o->arena < x->lowest.arena)
        x->lowest = *o;
}

static f8_status attempt(f8_fit *x, int64_t goal, bool share_kernels, f8_fit_outcome *o)
{
    f8_remat *s = &x->s;
    f8_remat_plan plan, *from = &x->from[share_kernels];
    F8_TRY(f8_remat_plan_make(share_kernels ? &x->shared : &s->problem, goal,
                              from->action ? from : NULL, s->scratch, s->unit->diag, &plan));
    F8_TRY(f8_fit_carry_out(x, &plan, share_kernels, o));
    *from = plan;
    if (plan.peak > goal && goal >= x->floor)
        x->floor = goal > 0 ? goal + 1 : plan.peak;
    else if (plan.peak <= goal)
        x->missed[share_kernels] = o->arena - plan.peak;
    note(x, o);
    return F8_OK;
}

/* ---- a budget ---- */

/* In a short function another round takes little time, and the planner's error in bytes differs
 * much between plans. So those of the last plan do not correct the next question. */
static bool is_short_function(const f8_fit *x)
{
    return x->s.problem.n_steps <= SHORT;
}

/* Ask the planner until the arena has at most `most` bytes (0: what is allowed), then use up the
 * bytes that are left. */
static f8_status approach(f8_fit *x, int64_t most, int rounds, bool share_kernels)
{
    const int64_t budget = most ? most : x->allowed;
    const int64_t missed = is_short_function(x) ? 0 : x->missed[share_kernels];
    int64_t goal = missed > 0 ? budget - missed : budget;
    goal = goal < x->floor ? budget < x->floor ? budget : x->floor : goal;
    int64_t tight = -1;        /* the largest goal whose arena fitted */
    int64_t loose = INT64_MAX; /* the smallest goal whose arena did not fit */
    for (int i = 0; i < rounds && goal > 0 && goal >= x->floor; i++) {
        f8_fit_outcome o;
        F8_TRY(attempt(x, goal, share_kernels, &o));
        const int64_t room = (most ? most : o.allowed) - o.arena;
        if (room >= 0) {
            tight = goal;
            goal += room;
            goal = goal >= loose ? tight + (loose - tight) / 2 : goal;
        } else {
            if (o.plan.peak > goal)
                return F8_OK; /* the planner has no better plan */
            if (!most && !is_short_function(x) && found(&x->best) && o.seconds >= x->best.seconds)
                return F8_OK; /* with less memory it would be slower still */
            loose = goal < o.plan.peak ? goal : o.plan.peak;
            goal = loose + room - budget / SPARE;
            goal = tight >= goal ? tight + (loose - tight) / 2 : goal;
        }
        if (tight >= 0 && goal - tight <= budget / CLOSE)
            return F8_OK;
    }
    return F8_OK;
}

/* A tighter goal can end up faster, because other values fuse. A few are tried, in a long function
 * only one, and only where fusing changed much. */
static f8_status descend(f8_fit *x)
{
    static const double below[] = {0.95, 0.88, 0.8};
    const int64_t missed = x->best.arena - x->best.plan.peak;
    const bool is_short = is_short_function(x), odd = llabs(missed) > x->allowed / 32;
    const size_t n = is_short ? sizeof below / sizeof *below : odd;
    for (size_t i = 0; i < n; i++)
        for (int shared = 0; shared < 2; shared++) {
            const int64_t goal = (int64_t)(below[i] * (double)x->allowed);
            const int64_t before = x->missed[shared];
            f8_fit_outcome o;
            if (goal >= x->floor)
                F8_TRY(attempt(x, goal, shared, &o));
            x->missed[shared] = before;
        }
    return F8_OK;
}

/* Carries out the plan unless that was done for another budget. */
static f8_status try_waist(f8_fit *x, f8_fit_waist *w, bool share_kernels)
{
    f8_fit_outcome *o = &w->outcome[share_kernels];
    if (!o->plan.action)
        F8_TRY(f8_fit_carry_out(x, &w->plan, share_kernels, o));
    else
        F8_TRY(f8_fit_allowed(x, &o->allowed));
    note(x, o);
    return F8_OK;
}

/* Plans that keep whole layers. The planner, which knows nothing of fusion, may take them for
 * larger than they are. Those that are far slower than the best plan are left out. */
static f8_status try_waists(f8_fit *x)
{
    enum { FAR = 2 };
    uint32_t waists = 2;
    for (uint32_t i = 0, every = 1; i < F8_FIT_WAISTS && every < waists; i++, every *= 2) {
        f8_fit_waist *w = &x->waist[i];
        if (!w->plan.action) {
            F8_TRY(f8_remat_plan_by_waists(&x->s, every, &w->plan, &w->n));
            if (!f8_remat_plan_measure(&x->shared, x->s.scratch, &w->plan))
                w->plan.seconds = 0;
        }
        waists = w->n;
        if (found(&x->best) && w->plan.seconds > FAR * (x->best.seconds - x->s.unit->remat.seconds))
            continue;
        F8_TRY(try_waist(x, w, false));
        if (f8_fit_fits(&w->outcome[0]))
            F8_TRY(try_waist(x, w, true));
    }
    return F8_OK;
}

/* ---- the least ---- */

static void forget(f8_fit *x)
{
    x->floor = 0;
    x->missed[0] = x->missed[1] = 0;
    x->from[0] = x->from[1] = (f8_remat_plan){0};
}

/* The lowest arena there is: tries the planner's lowest peak and some goals above it, which may
 * share storage better, then a few steps down from the best of them. The search does not depend on
 * what was asked for, so the budget that is named as the least can be met. */
static f8_status find_least(f8_fit *x)
{
    static const double above[] = {1, 1.02, 1.05, 1.1, 1.25};
    enum { SHARED = 2, STEPS_DOWN = 6, ROUNDS_DOWN = 2 };
    f8_fit_outcome o;
    x->lowest.arena = INT64_MAX;
    F8_TRY(try_waists(x));
    if (found(&x->best))
        return F8_OK; /* one of them fits */
    forget(x);
    F8_TRY(attempt(x, 0, false, &o));
    const int64_t peak = o.plan.peak;
    for (size_t i = 0; i < sizeof above / sizeof *above; i++) {
        const int64_t goal = (int64_t)(above[i] * (double)peak);
        if (i > 0)
            F8_TRY(attempt(x, goal, false, &o));
        if (i < SHARED)
            F8_TRY(attempt(x, goal, true, &o));
    }
    for (int i = 0; i < STEPS_DOWN; i++) {
        const int64_t before = x->lowest.arena, most = before - before / 64;
        F8_TRY(approach(x, most, ROUNDS_DOWN, false));
        F8_TRY(approach(x, most, ROUNDS_DOWN, true));
        if (x->lowest.arena == before)
            break;
    }
    forget(x);
    return F8_OK;
}

/* ---- the interface ---- */

f8_status f8_fit_begin(f8_fit *x, f8_unit *u, f8_func *f, f8_arena *scratch)
{
    *x = (f8_fit){.spaces = f8_remat_spaces_make(u->arena)};
    F8_TRY(f8_arena_status(u->arena, u->diag));
    F8_TRY(f8_schedule_function(u, f));
    F8_TRY(f8_place_function(u, f));
    F8_TRY(f8_unit_within(u));
    u->remat = (f8_remat_summary){.ran = true,
                                  .before = f->lowered->arena_bytes,
                                  .seconds = f8_cost_function(f, f8_unit_target(u))};
    F8_TRY(f8_memory_activations(f, scratch, u->diag, &u->remat.activations_before));
    F8_TRY(f8_remat_problem_make(&x->s, u, f, scratch));
    F8_TRY(f8_unit_within(u));
    return f8_remat_siblings(&x->s, &x->shared);
}

/* What the planner misses of the function as it is. */
static f8_status miss(f8_fit *x)
{
    f8_remat_plan plan;
    f8_remat *s = &x->s;
    F8_TRY(f8_remat_plan_make(&s->problem, INT64_MAX, NULL, s->scratch, s->unit->diag, &plan));
    x->missed[0] = x->missed[1] = s->unit->remat.before - plan.peak;
    x->floor = plan.bound;
    return F8_OK;
}

f8_status f8_fit_find(f8_fit *x, const f8_budget *budget)
{
    x->budget = *budget;
    x->best = x->lowest = (f8_fit_outcome){.arena = INT64_MAX};
    F8_TRY(f8_fit_allowed(x, &x->allowed));
    if (x->floor == 0)
        F8_TRY(miss(x));
    F8_TRY(approach(x, 0, MOST_ROUNDS, false));
    F8_TRY(approach(x, 0, MOST_ROUNDS, true));
    if (!found(&x->best))
        return find_least(x);
    F8_TRY(descend(x));
    return try_waists(x);
}

void f8_fit_keep(f8_fit *x, const f8_fit_outcome *o)
{
    f8_func *f = x->s.func;
    f->graph = o->func.graph;
    f->lowered = o->func.lowered;
    memcpy(f->in, o->func.in, f->n_in * sizeof *f->in);
    memcpy(f->out, o->func.out, f->n_out * sizeof *f->out);
}
