/* Rematerialization: micro_step within a budget of memory, some values computed again in place of kept.
 *
 * On whole groups, after fusion: so what is priced is what will lie in memory, an FP8 copy at a quarter of its f32
 * value, and what lives inside a kernel is no question. The grouped and ordered function becomes a problem of steps and
 * values (remat_problem.c), the planner solves it (remat_plan.c), and the graph is made anew with what is computed again
 * as clones (remat_rewrite.c). They then fuse with their readers, which can make a value cost nothing, and others share
 * storage: the arena that comes of it is not the planner's sum. So grouping, order and places are made anew as well, and
 * the planner is asked again with what it missed by, until the real arena fits. Of the plans that fit, the one whose groups
 * take the least time is kept.
 *
 * Scales, amaxes and histories are values: a clone reads the very scale its original read, and what `update` does is
 * done once, whatever is computed how often.
 *
 * Requires group. Gives groups of micro_step; schedule and memory follow, as for any other function. */
#include "passes/remat.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "passes/cost.h"
#include "passes/memory_report.h"

enum { MOST_ROUNDS = 8 };

static double group_seconds(const f8_unit *u, const f8_func *f)
{
    double sum = 0;
    for (uint32_t i = 0; i < f->program->n_groups; i++)
        sum += f8_cost_group(f, f8_unit_target(u), i);
    return sum;
}

/* ---- plans by name ---- */

static const char *value_name(const f8_remat *s, uint32_t v)
{
    return s->g->name[s->root[v]];
}

/* Whether the options' patterns want activation `v` computed again. */
static bool wished(const f8_remat *s, uint32_t v)
{
    const f8_options *o = &s->unit->options;
    const char *name = value_name(s, v);
    if (o->checkpoint && !(name && f8_pattern_match(o->checkpoint, name)))
        return true;
    return o->recompute && name && f8_pattern_match(o->recompute, name);
}

typedef struct forced {
    f8_remat *s;
    f8_remat_plan *plan;
    bool *again; /* by value: it is to be, where the backward reads it */
    bool *made;  /* by value: it was */
    uint32_t *stack;
} forced;

/* Whether `v` has to be made before step `at` of the backward can read it. */
static bool is_missing(const forced *f, uint32_t v, uint32_t at)
{
    const f8_remat *s = f->s;
    if (f->made[v] || s->cone[v].n == 0)
        return false;
    return f->again[v] || s->storage.base[s->root[v]].end < at;
}

/* Compute v again before step `at`, and before it what it needs. */
static void make_again(forced *f, uint32_t v, uint32_t at)
{
    uint32_t depth = 0;
    f->stack[depth++] = v;
    while (depth > 0) {
        const uint32_t top = f->stack[depth - 1];
        const f8_remat_value *value = &f->s->problem.value[top];
        uint32_t need = top;
        for (uint32_t i = 0; i < value->n_from && need == top; i++)
            if (is_missing(f, value->from[i], at))
                need = value->from[i];
        if (need != top) {
            f->stack[depth++] = need;
            continue;
        }
        if (!f->made[top])
            f->plan->action[f->plan->n_actions++] = (f8_remat_action){true, top};
        f->made[top] = true;
        depth--;
    }
}

static f8_status plan_by_name(f8_remat *s, f8_remat_plan *out)
{
    const uint32_t n = s->problem.n_values, steps = s->problem.n_steps;
    const f8_options *o = &s->unit->options;
    forced f = {.s = s, .plan = out};
    bool kept = false, any = false;
    f.again = F8_NEW_ARRAY(s->scratch, bool, n);
    f.made = F8_NEW_ARRAY(s->scratch, bool, n);
    f.stack = F8_NEW_ARRAY(s->scratch, uint32_t, n + 1);
    *out = (f8_remat_plan){.action = F8_NEW_ARRAY(s->scratch, f8_remat_action, n + steps)};
    F8_TRY(f8_arena_status(s->scratch, s->unit->diag));
    for (uint32_t v = 0; v < n; v++) {
        if (!s->activation[v])
            continue;
        f.again[v] = s->cone[v].n > 0 && !s->problem.value[v].result && wished(s, v);
        kept |= o->checkpoint && value_name(s, v) && f8_pattern_match(o->checkpoint, value_name(s, v));
        any |= o->recompute && value_name(s, v) && f8_pattern_match(o->recompute, value_name(s, v));
    }
    if (o->checkpoint && *o->checkpoint && !kept)
        return f8_fail(s->unit->diag, F8_ERR_INPUT, F8_NOWHERE, "checkpoint: '%s' matches no activation", o->checkpoint);
    if (o->recompute && !any)
        return f8_fail(s->unit->diag, F8_ERR_INPUT, F8_NOWHERE, "recompute: '%s' matches no activation", o->recompute);
    for (uint32_t i = 0; i < steps; i++) {
        const f8_remat_step *step = &s->problem.step[i];
        for (uint32_t k = 0; k < step->n_read && s->late[i]; k++)
            if (is_missing(&f, step->read[k], i))
                make_again(&f, step->read[k], i);
        out->action[out->n_actions++] = (f8_remat_action){false, i};
    }
    return F8_OK;
}

/* ---- one plan, carried out ---- */

typedef struct outcome {
    int64_t arena, allowed; /* what lies beside the arena depends on the plan by a little, so what is allowed does */
    double seconds;         /* of all groups */
} outcome;

/* What the arena of micro_step, as it stands, may take. */
static f8_status arena_budget(f8_unit *u, int64_t *out)
{
    const f8_budget *b = &u->options.memory;
    f8_memory_beside beside;
    *out = INT64_MAX;
    if (b->share > 0)
        *out = u->remat.before - (int64_t)((1 - b->share) * (double)u->remat.activations_before);
    if (b->bytes <= 0)
        return F8_OK;
    F8_TRY(f8_memory_fixed(u, &beside));
    *out = b->bytes - beside.rest - beside.extra;
    return beside.others <= b->bytes - beside.rest
               ? F8_OK
               : f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                         "memory: the least possible budget is %" PRId64 " bytes, %" PRId64
                         " were asked for: functions other than micro_step, which have nothing to compute again, need them",
                         beside.rest + beside.others, b->bytes);
}

static f8_status realize(f8_remat *s, const f8_remat_plan *plan, outcome *out)
{
    f8_unit *u = s->unit;
    F8_TRY(f8_remat_rewrite(s, plan));
    F8_TRY(f8_group_function(u, s->func));
    F8_TRY(f8_schedule_function(u, s->func));
    F8_TRY(f8_place_function(u, s->func));
    *out = (outcome){.arena = s->func->program->arena_bytes, .seconds = group_seconds(u, s->func)};
    u->remat.rounds++;
    return arena_budget(u, &out->allowed);
}

/* ---- a budget ---- */

typedef struct search {
    f8_remat *s;
    f8_remat_plan best;
    outcome result; /* of best; arena INT64_MAX: none yet */
} search;

static bool fits(const outcome *o)
{
    return o->arena <= o->allowed;
}

static bool better(const outcome *o, const outcome *than)
{
    if (fits(o) != fits(than))
        return fits(o);
    return fits(o) ? o->seconds < than->seconds : o->arena < than->arena;
}

static f8_status attempt(search *x, int64_t goal, f8_remat_plan *plan, outcome *o)
{
    f8_remat *s = x->s;
    F8_TRY(f8_remat_plan_make(&s->problem, goal, s->scratch, s->unit->diag, plan));
    F8_TRY(realize(s, plan, o));
    if (better(o, &x->result)) {
        x->best = *plan;
        x->result = *o;
    }
    return F8_OK;
}

/* Ask the planner until the arena fits, then for what room is left; at last for the least there is. */
static f8_status find_plan(search *x, int64_t budget)
{
    int64_t goal = budget, tight = -1; /* tight: the largest goal whose arena fitted */
    int64_t loose = INT64_MAX;         /* the smallest whose did not */
    f8_remat_plan plan;
    outcome o;
    for (int i = 0; i < MOST_ROUNDS && goal > 0; i++) {
        F8_TRY(attempt(x, goal, &plan, &o));
        if (!fits(&o)) {
            if (plan.peak > goal)
                break; /* the planner has no better */
            loose = goal;
            goal -= o.arena - o.allowed;
            goal = tight >= goal ? tight + (loose - tight) / 2 : goal;
        } else {
            tight = goal;
            goal += o.allowed - o.arena;
            goal = goal >= loose ? tight + (loose - tight) / 2 : goal;
        }
        if (tight >= 0 && goal - tight <= budget / 128)
            break;
    }
    return fits(&x->result) ? F8_OK : attempt(x, 0, &plan, &o);
}

/* ---- what can't be met ---- */

/* The biggest of what the placed function holds at its peak, as text; *group is what runs then. */
static const char *peak_holders(const f8_remat *s, const char **group)
{
    enum { NAMED = 4 };
    f8_memory_report report;
    const char *text = "";
    *group = "";
    if (f8_memory_report_make(s->unit, s->func, s->scratch, &report) != F8_OK)
        return "";
    *group = report.at;
    uint32_t n = 0;
    for (uint32_t i = 0; i < report.n_tensors && n < NAMED && text; i++) {
        const f8_memory_tensor *t = &report.tensor[i];
        if (t->category < F8_MEMORY_ACTIVATIONS)
            continue;
        text = f8_arena_printf(s->scratch, "%s%s'%s' %" PRId64, text, n ? ", " : "", t->name, t->bytes);
        n++;
    }
    return text ? text : "";
}

static f8_status too_little(const search *x)
{
    f8_remat *s = x->s;
    f8_unit *u = s->unit;
    const f8_budget *asked = &u->options.memory;
    const f8_remat_summary *m = &u->remat;
    const int64_t more = x->result.arena - x->result.allowed;
    char text[160];
    if (asked->share > 0)
        snprintf(text, sizeof text, "the least possible share of activation bytes is %.4f (an arena of %" PRId64
                 " bytes), %g was asked for", ceil(1e4 * (1 - (double)(m->before - x->result.arena) /
                 (double)(m->activations_before ? m->activations_before : 1))) / 1e4, x->result.arena, asked->share);
    else
        snprintf(text, sizeof text, "the least possible budget is %" PRId64 " bytes (%" PRId64
                 " of them the arena), %" PRId64 " were asked for", asked->bytes + more, x->result.arena, asked->bytes);
    const char *group, *holders = peak_holders(s, &group);
    return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                   "memory: %s. %s needs them at '%s', for %s", text, s->func->name, group, holders);
}

/* ---- the pass ---- */

static int64_t count_again(const f8_remat *s, const f8_remat_plan *plan, int64_t *fp8_gemms)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < plan->n_actions; i++)
        if (plan->action[i].again) {
            n++;
            *fp8_gemms += s->g->node[s->root[plan->action[i].index]].op == F8_OP_SCALED_MATMUL;
        }
    return n;
}

static f8_status keep(f8_remat *s, const f8_remat_plan *plan, outcome *o)
{
    f8_unit *u = s->unit;
    F8_TRY(realize(s, plan, o));
    u->remat.after = o->arena;
    u->remat.budget = o->allowed;
    u->remat.extra_seconds = o->seconds - u->remat.seconds;
    u->remat.recomputed = count_again(s, plan, &u->remat.fp8_gemms);
    u->fp8_gemms += u->remat.fp8_gemms;
    return f8_memory_activations(s->func, s->scratch, u->diag, &u->remat.activations_after);
}

static f8_status fit(f8_remat *s)
{
    f8_unit *u = s->unit;
    const bool by_name = u->options.checkpoint || u->options.recompute;
    search x = {.s = s, .result = {.arena = INT64_MAX}};
    if (by_name)
        F8_TRY(plan_by_name(s, &x.best));
    else if (u->remat.before <= u->remat.budget)
        return F8_OK;
    else
        F8_TRY(find_plan(&x, u->remat.budget));
    F8_TRY(keep(s, &x.best, &x.result));
    return fits(&x.result) ? F8_OK : too_little(&x);
}

static f8_status remat_function(f8_unit *u, f8_func *f, f8_arena *scratch)
{
    f8_remat s;
    F8_TRY(f8_schedule_function(u, f));
    F8_TRY(f8_place_function(u, f));
    u->remat = (f8_remat_summary){.ran = true, .before = f->program->arena_bytes, .after = f->program->arena_bytes,
                                  .seconds = group_seconds(u, f)};
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
        return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "memory: the activations of forward and backward as a pair are the caller's buffers");
    if (!f)
        return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "memory: a program for inference has no activations to compute again");
    f8_arena_init(&scratch, &u->arena->allocator);
    const f8_status status = remat_function(u, f, &scratch);
    f8_arena_end(&scratch);
    return status;
}
